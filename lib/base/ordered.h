/* SPDX-License-Identifier: Apache-2.0 */
/* Numbered pieces of work done by several threads and joined in order by the caller: what comes out does not
 * depend on the threads. No piece is begun more than `window` ahead of the one that is joined next. */
#ifndef FL_BASE_ORDERED_H
#define FL_BASE_ORDERED_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

struct fl_ordered {
    size_t n;         // pieces
    int n_threads;    // at least 1
    size_t window;    // at least n_threads
    const char *name; // of the threads, at most 15 bytes

    /* One thread's state for work(); NULL: none is needed. A NULL result ends the thread. */
    void *(*begin)(void *cookie);
    void (*end)(void *cookie, void *state);

    /* Do piece i. Leaves its failure in the piece. */
    void (*work)(void *cookie, void *state, size_t i);

    /* In order, in the calling thread. A value other than 0 stops everything and is returned. */
    int (*join)(void *cookie, size_t i);

    /* About ten times a second, likewise; may be NULL. */
    int (*idle)(void *cookie);

    atomic_bool stop; // set when it is over early: long pieces may look at it
};

/* Returns 0, what join() or idle() returned (the sentence that they left stays), FL_ERR(ENOMEM) or an error of
 * starting the first thread. All threads are gone when it returns. */
int fl_ordered_run(struct fl_ordered *o, void *cookie);

#endif
