/* SPDX-License-Identifier: Apache-2.0 */
#include "queue.h"

#include "base/thread.h"

int fl_queue_init(struct fl_queue *q)
{
    *q = (struct fl_queue){ 0 };
    pthread_mutex_init(&q->lock, NULL);
    pthread_cond_init(&q->idle, NULL);
    return fl_cond_init(&q->more);
}

void fl_queue_fini(struct fl_queue *q)
{
    pthread_cond_destroy(&q->more);
    pthread_cond_destroy(&q->idle);
    pthread_mutex_destroy(&q->lock);
}

void fl_queue_push(struct fl_queue *q, struct fl_sample *const *samples, unsigned n)
{
    pthread_mutex_lock(&q->lock);
    for (unsigned i = 0; i < n; i++) {
        samples[i]->next = NULL;
        if (q->tail)
            q->tail->next = samples[i];
        else
            q->head = samples[i];
        q->tail = samples[i];
    }
    const unsigned wake = n < q->waiting ? n : q->waiting;
    for (unsigned i = 0; i < wake; i++)
        pthread_cond_signal(&q->more);
    pthread_mutex_unlock(&q->lock);
}

static struct fl_sample *take(struct fl_queue *q)
{
    struct fl_sample *s = q->closed ? NULL : q->head;

    if (s) {
        q->head = s->next;
        if (!q->head)
            q->tail = NULL;
        q->busy++;
    }
    return s;
}

struct fl_sample *fl_queue_pop(struct fl_queue *q)
{
    struct fl_sample *s;

    pthread_mutex_lock(&q->lock);
    while (!(s = take(q)) && !q->closed) {
        q->waiting++;
        pthread_cond_wait(&q->more, &q->lock);
        q->waiting--;
    }
    pthread_mutex_unlock(&q->lock);
    return s;
}

struct fl_sample *fl_queue_try_pop(struct fl_queue *q)
{
    pthread_mutex_lock(&q->lock);
    struct fl_sample *s = take(q);
    pthread_mutex_unlock(&q->lock);
    return s;
}

void fl_queue_close(struct fl_queue *q)
{
    pthread_mutex_lock(&q->lock);
    q->closed = true;
    pthread_cond_broadcast(&q->more);
    pthread_mutex_unlock(&q->lock);
}

void fl_queue_done(struct fl_queue *q)
{
    pthread_mutex_lock(&q->lock);
    if (--q->busy == 0)
        pthread_cond_broadcast(&q->idle);
    pthread_mutex_unlock(&q->lock);
}

void fl_queue_wait_idle(struct fl_queue *q)
{
    pthread_mutex_lock(&q->lock);
    while (q->busy)
        pthread_cond_wait(&q->idle, &q->lock);
    pthread_mutex_unlock(&q->lock);
}
