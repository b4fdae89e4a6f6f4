/* SPDX-License-Identifier: Apache-2.0 */
/* Samples on their way to the workers, linked through sample->next. It needs no bound of its own: a
 * sample exists once for each row of each slot. */
#ifndef FL_QUEUE_H
#define FL_QUEUE_H

#include <pthread.h>
#include <stdbool.h>

#include "sample.h"

struct fl_queue {
    pthread_mutex_t lock;
    pthread_cond_t more;
    struct fl_sample *head, *tail;
    pthread_cond_t idle;
    unsigned waiting; // threads inside fl_queue_pop()
    unsigned busy;    // samples popped and not yet done
    bool closed;
};

int fl_queue_init(struct fl_queue *q);
void fl_queue_fini(struct fl_queue *q);

/* Append n samples; wakes no more threads than there are samples for. */
void fl_queue_push(struct fl_queue *q, struct fl_sample *const *samples, unsigned n);

/* The oldest sample; waits for one. NULL: the queue is closed. Each popped sample is followed by
 * fl_queue_done() when the worker has let go of it. */
struct fl_sample *fl_queue_pop(struct fl_queue *q);
void fl_queue_done(struct fl_queue *q);

/* The oldest sample, or NULL if there is none now. */
struct fl_sample *fl_queue_try_pop(struct fl_queue *q);

/* Wait until no popped sample is being worked on. */
void fl_queue_wait_idle(struct fl_queue *q);

/* Everyone inside pop returns NULL, now and later; what is queued is dropped. */
void fl_queue_close(struct fl_queue *q);

#endif
