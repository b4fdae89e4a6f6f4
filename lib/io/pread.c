/* SPDX-License-Identifier: Apache-2.0 */
/* Reads by pread: a pool of threads, or none at all: then wait() reads in the caller's thread.
 * The same bytes as io_uring, for kernels and containers that refuse it, and for loaders without
 * threads. */
#define _GNU_SOURCE
#include "io/io.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/thread.h"

#define CLOSE_NS (5 * (int64_t)1000000000) // how long close() waits for reads that do not return

struct list {
    struct fl_io_op *first, **end;
};

struct pool {
    struct fl_io_info info;
    struct list fresh; // taken by submit, not yet shown to the threads; the feeder's own
    unsigned n_fresh;
    pthread_mutex_t lock; // guards everything below
    pthread_cond_t work;  // queue is not empty, or stop
    pthread_cond_t ended; // done is not empty, woken, or a thread has left
    struct list queue, done;
    unsigned idle;            // threads that wait for work
    bool waiting;             // the feeder waits
    bool woken, stop, orphan; // orphan: close() gave up, the last thread frees the pool
    unsigned alive, n_threads;
    pthread_t threads[];
};

static struct pool *self(struct fl_io *io)
{
    return (struct pool *)io;
}

static void push(struct list *l, struct fl_io_op *op)
{
    op->next = NULL;
    *l->end = op;
    l->end = &op->next;
}

static struct fl_io_op *pop(struct list *l)
{
    struct fl_io_op *op = l->first;

    if (op && !(l->first = op->next))
        l->end = &l->first;
    return op;
}

static void read_op(struct fl_io_op *op)
{
    const ssize_t n = pread(op->fd, op->buf, op->length, (off_t)op->offset);

    op->result = n < 0 ? -errno : n;
}

static void pool_free(struct pool *p)
{
    pthread_cond_destroy(&p->ended);
    pthread_cond_destroy(&p->work);
    pthread_mutex_destroy(&p->lock);
    free(p);
}

static void *thread_body(void *arg)
{
    struct pool *p = arg;
    struct fl_io_op *op;

    pthread_mutex_lock(&p->lock);
    while (!p->stop) {
        if (!(op = pop(&p->queue))) {
            p->idle++;
            pthread_cond_wait(&p->work, &p->lock);
            p->idle--;
            continue;
        }
        pthread_mutex_unlock(&p->lock);
        read_op(op);
        pthread_mutex_lock(&p->lock);
        push(&p->done, op);
        if (p->waiting) {
            p->waiting = false;
            pthread_cond_signal(&p->ended);
        }
    }
    const bool last = !--p->alive && p->orphan;
    pthread_cond_signal(&p->ended);
    pthread_mutex_unlock(&p->lock);
    if (last)
        pool_free(p);
    return NULL;
}

static bool pread_close(struct fl_io *io);

static int pread_open(struct fl_io **out, const struct fl_io_cfg *cfg)
{
    struct pool *p = calloc(1, sizeof(*p) + cfg->threads * sizeof(p->threads[0]));

    if (!p)
        return fl_err(FL_ERR(ENOMEM), FL_STAGE_READ, "no memory for the pread backend");
    p->info = (struct fl_io_info){ .name = fl_io_pread.name, .depth = cfg->depth };
    p->fresh.end = &p->fresh.first;
    p->queue.end = &p->queue.first;
    p->done.end = &p->done.first;
    pthread_mutex_init(&p->lock, NULL);
    int err = fl_cond_init(&p->work);
    if (!err)
        err = fl_cond_init(&p->ended);
    if (err) {
        free(p);
        return fl_err(err, FL_STAGE_READ, "the pread backend's locks: %s", strerror(-err));
    }
    while (!err && p->n_threads < cfg->threads) {
        pthread_mutex_lock(&p->lock);
        err = fl_thread_start(&p->threads[p->n_threads], "fl-pread", thread_body, p);
        if (!err)
            p->n_threads = ++p->alive;
        pthread_mutex_unlock(&p->lock);
    }
    if (err && !p->n_threads) { // fewer threads than asked for are slower, none is an error
        pread_close((struct fl_io *)p);
        return fl_err(err, FL_STAGE_READ, "no thread for reading could be started: %s",
                      strerror(-err));
    }
    *out = (struct fl_io *)p;
    return 0;
}

static int pread_start(struct fl_io *io, int fd, uint64_t size)
{
    (void)io;
    (void)fd;
    (void)size;
    return 0;
}

static bool pread_set_file(struct fl_io *io, unsigned slot, int fd)
{
    (void)io;
    (void)slot;
    (void)fd;
    return false;
}

static int pread_find_buffer(const struct fl_io *io, const uint8_t *buf, size_t bytes)
{
    (void)io;
    (void)buf;
    (void)bytes;
    return -1;
}

static void pread_submit(struct fl_io *io, struct fl_io_op *op)
{
    struct pool *p = self(io);

    push(&p->fresh, op);
    p->n_fresh++;
}

/* Show the threads what was taken. Under the lock. */
static void publish(struct pool *p)
{
    if (!p->n_fresh)
        return;
    *p->queue.end = p->fresh.first;
    p->queue.end = p->fresh.end;
    p->fresh.first = NULL;
    p->fresh.end = &p->fresh.first;
    for (unsigned i = p->n_fresh < p->idle ? p->n_fresh : p->idle; i; i--)
        pthread_cond_signal(&p->work);
    p->n_fresh = 0;
}

static void pread_kick(struct fl_io *io)
{
    struct pool *p = self(io);

    if (!p->n_fresh || !p->n_threads)
        return;
    pthread_mutex_lock(&p->lock);
    publish(p);
    pthread_mutex_unlock(&p->lock);
}

static unsigned take(struct list *l, struct fl_io_op **done, unsigned max)
{
    unsigned n = 0;

    while (n < max && (done[n] = pop(l)))
        n++;
    return n;
}

static int pread_wait(struct fl_io *io, struct fl_io_op **done, unsigned max, int64_t deadline)
{
    struct pool *p = self(io);
    unsigned n;

    pthread_mutex_lock(&p->lock);
    publish(p);
    if (!p->n_threads && !p->done.first && (done[0] = pop(&p->queue))) {
        pthread_mutex_unlock(&p->lock);
        read_op(done[0]); // inline: this thread is the pool
        return 1;
    }
    while (!(n = take(&p->done, done, max)) && !p->woken) {
        p->waiting = true;
        if (fl_cond_wait_until(&p->ended, &p->lock, deadline)) {
            n = take(&p->done, done, max);
            break;
        }
    }
    p->waiting = false;
    p->woken = false;
    pthread_mutex_unlock(&p->lock);
    return (int)n;
}

static void pread_wake(struct fl_io *io)
{
    struct pool *p = self(io);

    pthread_mutex_lock(&p->lock);
    p->woken = true;
    p->waiting = false;
    pthread_cond_signal(&p->ended);
    pthread_mutex_unlock(&p->lock);
}

/* Reads that no thread has begun end at once; the others when the drive answers. */
static void pread_cancel(struct fl_io *io)
{
    struct pool *p = self(io);
    struct fl_io_op *op;

    pthread_mutex_lock(&p->lock);
    publish(p);
    while ((op = pop(&p->queue))) {
        op->result = -ECANCELED;
        push(&p->done, op);
    }
    pthread_mutex_unlock(&p->lock);
}

static bool pread_close(struct fl_io *io)
{
    struct pool *p = self(io);
    const int64_t deadline = fl_now_ns() + CLOSE_NS;

    pthread_mutex_lock(&p->lock);
    p->stop = true;
    pthread_cond_broadcast(&p->work);
    while (p->alive && !fl_cond_wait_until(&p->ended, &p->lock, deadline))
        ;
    p->orphan = p->alive;
    const bool drained = !p->orphan;
    const unsigned n = p->n_threads;
    for (unsigned i = 0; i < n && !drained; i++)
        pthread_detach(p->threads[i]); // a thread that never comes back keeps the pool, and frees
                                       // it if it does
    pthread_mutex_unlock(&p->lock);
    if (!drained)
        return false;
    for (unsigned i = 0; i < n; i++)
        pthread_join(p->threads[i], NULL);
    pool_free(p);
    return true;
}

static const struct fl_io_info *pread_info(const struct fl_io *io)
{
    return &((const struct pool *)io)->info;
}

const struct fl_io_ops fl_io_pread = {
    .name = "pread",
    .open = pread_open,
    .start = pread_start,
    .set_file = pread_set_file,
    .find_buffer = pread_find_buffer,
    .submit = pread_submit,
    .kick = pread_kick,
    .wait = pread_wait,
    .wake = pread_wake,
    .cancel = pread_cancel,
    .close = pread_close,
    .info = pread_info,
};
