/* SPDX-License-Identifier: Apache-2.0 */
#include "shard/window.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/err.h"
#include "base/thread.h"

struct slot {
    bool ready;
    uint64_t bytes;
};

struct fl_window {
    struct fl_window_cfg cfg;
    pthread_mutex_t lock;  // guards all below
    pthread_cond_t room;   // the ring moved on, or stop
    pthread_cond_t filled; // the head is ready, or the end was found
    uint64_t head, tail;   // tickets: head is taken next, tail is handed to a thread next
    uint64_t bytes;        // in slots that are ready
    bool end, stop;
    struct slot *slots;
    pthread_t *threads;
    unsigned n_started, n_named;
};

/* May a thread begin the item at the tail? Lock held. */
static bool has_room(const struct fl_window *w)
{
    return w->tail - w->head < w->cfg.n_slots && (w->bytes < w->cfg.budget || w->tail == w->head);
}

static void *thread_body(void *arg)
{
    struct fl_window *w = arg;

    pthread_mutex_lock(&w->lock);
    const unsigned me = w->n_named++;
    for (;;) {
        while (!w->stop && !w->end && !has_room(w))
            pthread_cond_wait(&w->room, &w->lock);
        const int64_t item = w->stop || w->end ? -1 : w->cfg.next(w->cfg.ctx);
        if (item < 0)
            break;
        const uint64_t ticket = w->tail++;
        const unsigned at = (unsigned)(ticket % w->cfg.n_slots);
        pthread_mutex_unlock(&w->lock);
        const uint64_t bytes = w->cfg.prepare(w->cfg.ctx, me, at, item);
        pthread_mutex_lock(&w->lock);
        w->slots[at].ready = true;
        w->slots[at].bytes = bytes;
        w->bytes += bytes;
        if (ticket == w->head)
            pthread_cond_signal(&w->filled);
    }
    w->end = true;
    pthread_cond_broadcast(&w->room);
    pthread_cond_signal(&w->filled);
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

static int start_threads(struct fl_window *w)
{
    for (unsigned i = 0; i < w->cfg.n_threads; i++) {
        char name[16];
        snprintf(name, sizeof(name), "fl-shard-%u", i % 1000);
        const int err = fl_thread_start(&w->threads[i], name, thread_body, w);
        if (err)
            return fl_err(FL_ERR(ENOMEM), FL_STAGE_PLAN, "cannot start thread %u of %u: %s", i + 1,
                          w->cfg.n_threads, fl_strerror(err));
        w->n_started++;
    }
    return 0;
}

int fl_window_start(struct fl_window **out, const struct fl_window_cfg *cfg)
{
    struct fl_window *w = calloc(1, sizeof(*w));
    int err = 0;

    if (!w)
        return fl_err(FL_ERR(ENOMEM), FL_STAGE_PLAN, "no memory for the sharder's threads");
    w->cfg = *cfg;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->room, NULL);
    fl_cond_init(&w->filled);
    w->slots = calloc(cfg->n_slots, sizeof(*w->slots));
    w->threads = calloc(cfg->n_threads, sizeof(*w->threads));
    if (!w->slots || !w->threads)
        err = fl_err(FL_ERR(ENOMEM), FL_STAGE_PLAN, "no memory for the sharder's threads");
    else
        err = start_threads(w);
    if (err) {
        fl_window_stop(w);
        return err;
    }
    *out = w;
    return 0;
}

void fl_window_stop(struct fl_window *w)
{
    if (!w)
        return;
    pthread_mutex_lock(&w->lock);
    w->stop = true;
    pthread_cond_broadcast(&w->room);
    pthread_mutex_unlock(&w->lock);
    for (unsigned i = 0; i < w->n_started; i++)
        pthread_join(w->threads[i], NULL);
    pthread_mutex_destroy(&w->lock);
    pthread_cond_destroy(&w->room);
    pthread_cond_destroy(&w->filled);
    free(w->slots);
    free(w->threads);
    free(w);
}

int fl_window_take(struct fl_window *w, int64_t deadline)
{
    int got = -1;

    pthread_mutex_lock(&w->lock);
    for (;;) {
        const unsigned at = (unsigned)(w->head % w->cfg.n_slots);
        if (w->head < w->tail && w->slots[at].ready)
            got = (int)at;
        else if (w->end && w->head == w->tail)
            got = -2;
        if (got != -1 || fl_cond_wait_until(&w->filled, &w->lock, deadline) == FL_ERR(ETIMEDOUT))
            break;
    }
    pthread_mutex_unlock(&w->lock);
    return got;
}

void fl_window_release(struct fl_window *w)
{
    pthread_mutex_lock(&w->lock);
    struct slot *s = &w->slots[w->head % w->cfg.n_slots];
    s->ready = false;
    w->bytes -= s->bytes;
    w->head++;
    pthread_cond_broadcast(&w->room);
    pthread_mutex_unlock(&w->lock);
}
