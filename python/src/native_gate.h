/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps an object open while calls are inside it, with or without the interpreter's lock. */
#ifndef FL_PYTHON_NATIVE_GATE_H
#define FL_PYTHON_NATIVE_GATE_H

#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>

/* Calls inside; INT_MIN / 2 and above, but below 0: closed. Zero is open and empty. */
struct native_gate {
    _Atomic int n;
};

/* False: closed. */
static inline bool native_gate_enter(struct native_gate *g)
{
    // Acquire: what open wrote is seen; a call that finds it closed takes its step back.
    if (atomic_fetch_add_explicit(&g->n, 1, memory_order_acquire) >= 0)
        return true;
    atomic_fetch_sub_explicit(&g->n, 1, memory_order_relaxed);
    return false;
}

static inline void native_gate_leave(struct native_gate *g)
{
    atomic_fetch_sub_explicit(&g->n, 1, memory_order_release); // with the acquire of close
}

/* 1: closed by this call; 0: was closed already; -1: calls are inside. */
static inline int native_gate_close(struct native_gate *g)
{
    int none = 0;

    if (atomic_compare_exchange_strong_explicit(&g->n, &none, INT_MIN / 2, memory_order_acq_rel,
                                                memory_order_acquire))
        return 1;
    return none < 0 ? 0 : -1;
}

#endif
