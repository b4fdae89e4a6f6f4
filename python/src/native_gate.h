/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps an object open while calls are inside it, with or without the interpreter's lock. */
#ifndef FL_PYTHON_NATIVE_GATE_H
#define FL_PYTHON_NATIVE_GATE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <time.h>

#define NATIVE_GATE_CLOSED 0x80000000u

/* Calls inside, and whether it is closed. Zero is open and empty. */
struct native_gate {
    _Atomic unsigned n;
};

static inline void native_gate_leave(struct native_gate *g)
{
    atomic_fetch_sub_explicit(&g->n, 1,
                              memory_order_release); // with the acquire of native_gate_wait
}

/* False: closed. */
static inline bool native_gate_enter(struct native_gate *g)
{
    // Acquire: what open wrote is seen; a call that finds it closed takes its step back.
    if (!(atomic_fetch_add_explicit(&g->n, 1, memory_order_acquire) & NATIVE_GATE_CLOSED))
        return true;
    native_gate_leave(g);
    return false;
}

static inline bool native_gate_closed(struct native_gate *g)
{
    return atomic_load_explicit(&g->n, memory_order_relaxed) & NATIVE_GATE_CLOSED;
}

/* False: it was closed already. Nobody enters from now on; who is inside leaves when it looks. */
static inline bool native_gate_close(struct native_gate *g)
{
    const unsigned old = atomic_fetch_or_explicit(&g->n, NATIVE_GATE_CLOSED, memory_order_acq_rel);
    return !(old & NATIVE_GATE_CLOSED);
}

/* Closed: until the last call has left. Without the interpreter's lock, which those inside may need. */
static inline void native_gate_wait(struct native_gate *g)
{
    const struct timespec pause = { .tv_nsec = 1000000 };

    while (atomic_load_explicit(&g->n, memory_order_acquire) != NATIVE_GATE_CLOSED)
        nanosleep(&pause, NULL);
}

#endif
