/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "base/ordered.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/thread.h"

#define IDLE_NS 100000000

/* Lock rule: everything below `lock` is under it. */
struct run {
    struct fl_ordered *o;
    void *cookie;
    int64_t next_idle; // fl_now_ns() scale; of the calling thread alone

    pthread_mutex_t lock;
    pthread_cond_t changed; // a piece was finished or joined, a thread ended, or it is over
    size_t next, joined;    // pieces handed out; joined
    int alive;              // threads
    bool *finished;
};

static bool stopped(const struct run *r)
{
    return atomic_load_explicit(&r->o->stop, memory_order_relaxed);
}

static void work_on(struct run *r, void *state)
{
    pthread_mutex_lock(&r->lock);
    for (;;) {
        while (r->next < r->o->n && r->next >= r->joined + r->o->window && !stopped(r))
            pthread_cond_wait(&r->changed, &r->lock);
        if (r->next == r->o->n || stopped(r))
            break;
        const size_t i = r->next++;
        pthread_mutex_unlock(&r->lock);
        r->o->work(r->cookie, state, i);
        pthread_mutex_lock(&r->lock);
        r->finished[i] = true;
        pthread_cond_broadcast(&r->changed);
    }
    pthread_mutex_unlock(&r->lock);
}

static void *thread_body(void *arg)
{
    struct run *r = arg;
    void *state = r->o->begin ? r->o->begin(r->cookie) : NULL;

    if (state || !r->o->begin)
        work_on(r, state);
    if (state && r->o->end)
        r->o->end(r->cookie, state);
    pthread_mutex_lock(&r->lock);
    r->alive--;
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
    return NULL;
}

static int idle(struct run *r)
{
    if (!r->o->idle || fl_now_ns() < r->next_idle)
        return 0;
    r->next_idle = fl_now_ns() + IDLE_NS;
    return r->o->idle(r->cookie);
}

static int wait_for(struct run *r, size_t i)
{
    int err = 0;

    pthread_mutex_lock(&r->lock);
    while (!err && !r->finished[i]) {
        if (!r->alive) {
            err = fl_err(FL_ERR(ENOMEM), FL_STAGE_PLAN, "no memory for the threads' buffers");
            break;
        }
        fl_cond_wait_until(&r->changed, &r->lock, r->o->idle ? r->next_idle : INT64_MAX);
        pthread_mutex_unlock(&r->lock);
        err = idle(r);
        pthread_mutex_lock(&r->lock);
    }
    pthread_mutex_unlock(&r->lock);
    return err;
}

static int join_all(struct run *r)
{
    int err = 0;

    for (size_t i = 0; !err && i < r->o->n; i++) {
        if ((err = wait_for(r, i)) || (err = r->o->join(r->cookie, i)))
            break;
        pthread_mutex_lock(&r->lock);
        r->joined = i + 1;
        pthread_cond_broadcast(&r->changed);
        pthread_mutex_unlock(&r->lock);
        err = idle(r);
    }
    return err;
}

static int run_threads(struct run *r)
{
    const int want = (size_t)r->o->n_threads < r->o->n ? r->o->n_threads : (int)r->o->n;
    pthread_t *threads = calloc((size_t)want + 1, sizeof(*threads));
    int started = 0, err = 0;

    if (!threads)
        return fl_err(FL_ERR(ENOMEM), FL_STAGE_PLAN, "out of memory");
    r->alive = want;
    while (started < want &&
           !(err = fl_thread_start(&threads[started], r->o->name, thread_body, r)))
        started++;
    pthread_mutex_lock(&r->lock);
    r->alive -= want - started; // fewer threads do as well
    pthread_mutex_unlock(&r->lock);
    if (!started && want)
        err = fl_err(err, FL_STAGE_PLAN, "no thread could be started: %s", strerror(-err));
    else
        err = join_all(r);
    atomic_store(&r->o->stop, true);
    pthread_mutex_lock(&r->lock);
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
    while (started > 0)
        pthread_join(threads[--started], NULL);
    free(threads);
    return err;
}

int fl_ordered_run(struct fl_ordered *o, void *cookie)
{
    struct run r = { .o = o, .cookie = cookie, .next_idle = fl_now_ns() + IDLE_NS };
    int err;

    atomic_store(&o->stop, false);
    if (!(r.finished = calloc(o->n + 1, sizeof(*r.finished))))
        return fl_err(FL_ERR(ENOMEM), FL_STAGE_PLAN, "out of memory");
    if ((err = -pthread_mutex_init(&r.lock, NULL))) {
        err = fl_err(err, FL_STAGE_PLAN, "no lock: %s", strerror(-err));
    } else {
        if ((err = fl_cond_init(&r.changed))) {
            err = fl_err(err, FL_STAGE_PLAN, "no condition variable: %s", strerror(-err));
        } else {
            err = run_threads(&r);
            pthread_cond_destroy(&r.changed);
        }
        pthread_mutex_destroy(&r.lock);
    }
    free(r.finished);
    return err;
}
