/* SPDX-License-Identifier: Apache-2.0 */
/* Many threads prepare samples, one takes them in order. A ring of slots, bounded in number and in
 * bytes: a thread whose sample would begin while the ring holds `budget` bytes waits, unless everybody waits
 * for just that sample. Memory is so at most budget plus one sample for each thread. */
#ifndef FL_SHARD_WINDOW_H
#define FL_SHARD_WINDOW_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fl_window;

struct fl_window_cfg {
    unsigned n_threads, n_slots;
    uint64_t budget; // bytes
    void *ctx;

    /* Number of the next item to prepare, or -1 after the last one; under the window's lock. */
    int64_t (*next)(void *ctx);

    /* Thread `thread` prepares `item` in slot `slot`; returns the bytes that the slot holds now. Failures are
     * kept in the slot. */
    uint64_t (*prepare)(void *ctx, unsigned thread, unsigned slot, int64_t item);
};

/* Starts the threads. Returns 0 or FL_ERR(...) with a sentence. */
int fl_window_start(struct fl_window **out, const struct fl_window_cfg *cfg);

/* Stops them, whatever they are at: each ends its sample first. NULL is fine. */
void fl_window_stop(struct fl_window *w);

/* Wait for the next item in order. Returns its slot; -1: none by `deadline` (fl_now_ns() scale); -2: that was
 * the last. The slot is the caller's until fl_window_release(). */
int fl_window_take(struct fl_window *w, int64_t deadline);
void fl_window_release(struct fl_window *w);

#endif
