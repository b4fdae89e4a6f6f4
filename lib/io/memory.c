/* SPDX-License-Identifier: Apache-2.0 */
/* Reads from memory, with trouble on request: each file is loaded whole when it is opened; reads
 * are copied when their delay is over. No thread, no randomness but the seed's. For tests, and to
 * price everything but the drive. */
#define _GNU_SOURCE
#include "io/io.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/rng.h"
#include "base/thread.h"

struct content {
    uint8_t *bytes; // NULL: slot is empty
    size_t size;
    int64_t nth; // how many files had been opened before, and this one
};

struct waiting {
    struct fl_io_op *op;
    int64_t due; // INT64_MAX: never
};

struct memory {
    struct fl_io_info info;
    struct fl_io_faults faults;
    struct content *files;
    unsigned n_files;
    int64_t opened, taken;
    struct waiting *heap; // the earliest first
    unsigned n_heap;
    _Atomic uint64_t asked, copied;
    pthread_mutex_t lock; // guards woken; and the files against copies
    pthread_cond_t cond;
    bool woken;
};

static struct memory *self(struct fl_io *io)
{
    return (struct memory *)io;
}

static int memory_open(struct fl_io **out, const struct fl_io_cfg *cfg)
{
    struct memory *m = calloc(1, sizeof(*m));

    if (!m)
        return fl_err(FL_ERR(ENOMEM), FL_STAGE_READ, "no memory for the memory backend");
    m->info = (struct fl_io_info){ .name = fl_io_memory.name, .depth = cfg->depth };
    m->n_files = cfg->n_files;
    m->files = calloc(cfg->n_files ? cfg->n_files : 1, sizeof(*m->files));
    m->heap = calloc(cfg->depth, sizeof(*m->heap));
    if (cfg->faults)
        m->faults = *cfg->faults;
    if (!m->files || !m->heap || fl_cond_init(&m->cond)) {
        free(m->files);
        free(m->heap);
        free(m);
        return fl_err(FL_ERR(ENOMEM), FL_STAGE_READ, "no memory for the memory backend");
    }
    pthread_mutex_init(&m->lock, NULL);
    *out = (struct fl_io *)m;
    return 0;
}

static int memory_start(struct fl_io *io, int fd, uint64_t size)
{
    (void)io;
    (void)fd;
    (void)size;
    return 0;
}

static bool load(struct content *c, int fd)
{
    struct stat st;

    if (fstat(fd, &st) || !(c->bytes = malloc((size_t)st.st_size + 1)))
        return false;
    while (c->size < (size_t)st.st_size) {
        const ssize_t n =
            pread(fd, c->bytes + c->size, (size_t)st.st_size - c->size, (off_t)c->size);
        if (n <= 0)
            break; // reads of what is missing will end early, as from a file that was cut
        c->size += (size_t)n;
    }
    return true;
}

static bool memory_set_file(struct fl_io *io, unsigned slot, int fd)
{
    struct memory *m = self(io);

    if (slot >= m->n_files)
        return false;
    struct content *c = &m->files[slot];
    const int64_t nth = c->nth; // of a file that is being opened anew

    pthread_mutex_lock(&m->lock); // of another file's slot at most, but nobody need prove it
    free(c->bytes);
    *c = (struct content){ 0 };
    if (fd >= 0)
        c->nth = nth ? nth : ++m->opened;
    const bool loaded = fd < 0 || load(c, fd);
    pthread_mutex_unlock(&m->lock);
    return loaded;
}

static bool memory_cached(struct fl_io *io, uint64_t offset, uint64_t length)
{
    struct memory *m = self(io);
    struct fl_rng r;

    (void)offset;
    (void)length;
    fl_rng_init(&r, m->faults.seed, 1, atomic_fetch_add(&m->asked, 1), FL_RNG_USER, 0);
    return fl_rng_double(&r) >= m->faults.p_cold;
}

static int memory_find_buffer(const struct fl_io *io, const uint8_t *buf, size_t bytes)
{
    (void)io;
    (void)buf;
    (void)bytes;
    return -1;
}

/* Result of a read, faults included; copies what it says was read. */
static int64_t read_op(const struct memory *m, const struct fl_io_op *op, struct fl_rng *r)
{
    const struct fl_io_faults *f = &m->faults;

    if (op->file_slot < 0 || !m->files[op->file_slot].bytes)
        return -EBADF;
    const struct content *c = &m->files[op->file_slot];
    const bool hit = !f->only_slot || f->only_slot == c->nth;
    if (hit && fl_rng_double(r) < f->p_error)
        return f->error ? f->error : -EIO;
    if (hit && fl_rng_double(r) < f->p_again)
        return fl_rng_below(r, 2) ? -EAGAIN : -EINTR;
    const size_t size = c->size - (hit && f->eof_early && c->size ? 1 : 0);
    size_t n = op->offset < size ? size - op->offset : 0;
    if (n > op->length)
        n = op->length;
    if (n > 1 && hit && fl_rng_double(r) < f->p_short)
        n = 1 + (size_t)fl_rng_below(r, n - 1);
    memcpy(op->buf, c->bytes + op->offset * (n > 0), n);
    return (int64_t)n;
}

static int64_t memory_copy(struct fl_io *io, const struct fl_io_op *op)
{
    struct memory *m = self(io);
    struct fl_rng r;

    fl_rng_init(&r, m->faults.seed, 2, atomic_fetch_add(&m->copied, 1), FL_RNG_USER, 0);
    if (fl_rng_double(&r) < m->faults.p_miss)
        return -EAGAIN;
    pthread_mutex_lock(&m->lock);
    const int64_t n = read_op(m, op, &r);
    pthread_mutex_unlock(&m->lock);
    return n;
}

static void sift_up(struct memory *m, unsigned i, struct waiting w)
{
    for (; i && m->heap[(i - 1) / 2].due > w.due; i = (i - 1) / 2)
        m->heap[i] = m->heap[(i - 1) / 2];
    m->heap[i] = w;
}

static struct fl_io_op *pop(struct memory *m)
{
    struct fl_io_op *op = m->heap[0].op;
    const struct waiting last = m->heap[--m->n_heap];
    unsigned i = 0, child;

    while ((child = 2 * i + 1) < m->n_heap) {
        if (child + 1 < m->n_heap && m->heap[child + 1].due < m->heap[child].due)
            child++;
        if (m->heap[child].due >= last.due)
            break;
        m->heap[i] = m->heap[child];
        i = child;
    }
    m->heap[i] = last;
    return op;
}

/* The draws of an operation depend on its number alone, so that a run can be repeated. */
static void memory_submit(struct fl_io *io, struct fl_io_op *op)
{
    struct memory *m = self(io);
    const struct fl_io_faults *f = &m->faults;
    struct fl_rng r;
    int64_t due = 0;

    fl_rng_init(&r, f->seed, 0, (uint64_t)m->taken++, FL_RNG_USER, 0);
    if (f->delay_ns)
        due = fl_now_ns() + (int64_t)(2 * fl_rng_double(&r) * (double)f->delay_ns);
    if (f->hang_after && m->taken > f->hang_after)
        due = INT64_MAX;
    else
        op->result = read_op(m, op, &r);
    sift_up(m, m->n_heap++, (struct waiting){ op, due });
}

static void memory_kick(struct fl_io *io)
{
    (void)io;
}

static int memory_wait(struct fl_io *io, struct fl_io_op **done, unsigned max, int64_t deadline)
{
    struct memory *m = self(io);
    unsigned n = 0;

    pthread_mutex_lock(&m->lock);
    for (;;) {
        const int64_t now = fl_now_ns();
        while (n < max && m->n_heap && m->heap[0].due <= now)
            done[n++] = pop(m);
        if (n || m->woken || now >= deadline)
            break;
        const int64_t due = m->n_heap ? m->heap[0].due : INT64_MAX;
        fl_cond_wait_until(&m->cond, &m->lock, due < deadline ? due : deadline);
    }
    m->woken = false;
    pthread_mutex_unlock(&m->lock);
    return (int)n;
}

static void memory_wake(struct fl_io *io)
{
    struct memory *m = self(io);

    pthread_mutex_lock(&m->lock);
    m->woken = true;
    pthread_cond_signal(&m->cond);
    pthread_mutex_unlock(&m->lock);
}

static void memory_cancel(struct fl_io *io)
{
    struct memory *m = self(io);

    for (unsigned i = 0; i < m->n_heap; i++) {
        m->heap[i].due = 0;
        m->heap[i].op->result = -ECANCELED;
    }
}

static bool memory_close(struct fl_io *io)
{
    struct memory *m = self(io);

    for (unsigned i = 0; i < m->n_files; i++)
        free(m->files[i].bytes);
    pthread_cond_destroy(&m->cond);
    pthread_mutex_destroy(&m->lock);
    free(m->files);
    free(m->heap);
    free(m);
    return true;
}

static const struct fl_io_info *memory_info(const struct fl_io *io)
{
    return &((const struct memory *)io)->info;
}

const struct fl_io_ops fl_io_memory = {
    .name = "memory",
    .open = memory_open,
    .start = memory_start,
    .set_file = memory_set_file,
    .find_buffer = memory_find_buffer,
    .submit = memory_submit,
    .kick = memory_kick,
    .wait = memory_wait,
    .wake = memory_wake,
    .cancel = memory_cancel,
    .close = memory_close,
    .info = memory_info,
    .cached = memory_cached,
    .copy = memory_copy,
};
