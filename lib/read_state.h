/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the read stage share (read.c, read_extent.c, read_op.c); nobody else includes
 * it.
 *
 *   request   what a sample asks for (struct fl_read_req)
 *   extent    one range of one container on its way into one place; serves one request, or several
 * neighbours operation one attempt to read a part of an extent; large extents have several
 *
 *   fl_read_submit -> extents (read_extent.c) -> operations (read_op.c) -> fl_read_wait
 *                                             -> lent, copied by their borrower (read_cached.c) */
#ifndef FL_READ_STATE_H
#define FL_READ_STATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "read.h"

/* cfg.depth = 0: as many operations as make up FL_READ_FLIGHT bytes, within these bounds. Drives want
 * bytes in flight for long reads, and operations in flight for short ones. */
#define FL_READ_DEPTH_MIN 64
#define FL_READ_DEPTH_MAX 256
#define FL_READ_FLIGHT ((uint64_t)8 << 20)
#define FL_READ_BYTES ((uint64_t)64 << 20)
#define FL_READ_COALESCE ((uint64_t)1 << 20)
#define FL_READ_GAP ((uint64_t)16 << 10)
#define FL_READ_OP_BYTES ((uint64_t)1 << 20) // longest operation
#define FL_READ_DIRECT_DST 65536             // shorter requests with a dst are coalesced and copied
#define FL_READ_LEND_DST 4096                // likewise, where the borrower copies
#define FL_READ_LEND_BYTES 8192              // shorter neighbours share a read rather than be lent
#define FL_READ_REAP 64                      // operations taken from the backend at a time

struct fl_extent {
    struct fl_file *file;
    struct fl_block *block; // memory; of no bytes if the extent is read straight to a dst
    uint8_t *mem;           // where `start` goes
    int buf_slot;
    uint64_t start, end; // offsets in the container, aligned as the file wants it
    uint64_t issued;     // start .. start + issued has been given to operations
    unsigned ops;        // of these, not ended
    unsigned n_reqs;
    struct fl_read_req *reqs, **reqs_end;
    struct fl_extent *next;     // in the queue of extents with something to issue, or of one loan
    struct fl_granule *granule; // it is kept for requests to come; NULL: not, or no longer
    bool finished;              // nothing left to read
};

/* A piece of a container that was read whole because others are likely to want of it (cfg.around). */
struct fl_granule {
    uint32_t container;
    uint32_t hash_next;       // place + 1 in the same bucket, 0: none
    uint64_t index;           // offset / around
    struct fl_extent *extent; // NULL: let go
};

struct fl_read_op {
    struct fl_io_op io; // what is asked for now: the first member, backends hand it back
    struct fl_extent *extent;
    uint64_t begin, end; // its share of the extent
    uint64_t target; // end of what is being read now: `end`, or of one request's part after a split
    uint64_t reached;     // first byte that has not been read yet
    unsigned tries;       // refused or without progress in a row
    bool split, reopened; // each request by itself, after an error; opened anew, once
    bool inflight;
    int64_t retry_at;        // 0: not waiting for another try
    struct fl_read_op *next; // free or waiting for another try
};

struct fl_read {
    struct fl_read_cfg cfg;
    struct fl_ring arena;
    struct fl_files files;
    const struct fl_io_ops *ops;
    struct fl_io *io;
    pthread_mutex_t io_lock; // the backend may be replaced at the start: guards ops and io against
                             // wake and stats
    _Atomic bool woken;      // by fl_read_wake(), not yet told
    bool started, stopped;
    bool growing;         // not all memory is registered yet
    int start_err;        // why the backend did not start
    uint64_t table_bytes; // taken from the budget

    struct fl_extent *extents; // beside arena.blocks
    struct fl_extent *open;    // the newest extent, still growing; NULL: none
    struct fl_extent *issue, **issue_end;
    struct fl_read_op *op_table, *op_free, *op_retry;
    unsigned n_ops, inflight, unkicked;
    bool by_bytes;           // the depth follows from the bytes in flight
    uint64_t inflight_bytes; // asked for by operations in flight
    struct fl_sample *done, **done_end;
    struct fl_granule *granules; // a ring, in the order of their memory
    uint32_t *granule_buckets;
    uint32_t n_granules, first_granule, used_granules; // n_granules: a power of two, 0: no granules
    unsigned pending;                                  // samples taken and not returned
    int64_t progress_ns; // when something last ended, or began while nothing was in flight

    char reason[288];
    /* Counters: written by the feeder alone, read by anyone. Relaxed: each stands for itself. */
    _Atomic uint64_t bytes_read, bytes_wanted, busy_ns, wait_in_ns, wait_out_ns;
    _Atomic int64_t reads, retries, samples, n_direct, n_buffered;
    /* Loans (read_cached.c). */
    uint32_t last_container; // where the last sample that was planned ended
    uint64_t last_end;
    unsigned cold_streak, cold_skip; // cold samples in a row; samples not to be asked about
    _Atomic unsigned
        n_lent; // extents whose file and block a borrower holds; sequentially consistent
                // with the arena's wish for room: one of the two sides sees the other
    _Atomic(struct fl_sample *) returned; // not cached after all: a stack, linked by next
    _Atomic int64_t copies, returns;
    _Atomic uint64_t copied_bytes, copy_ns;
    bool wants_room; // the last submit found no memory: waiting now is waiting for the decoders
};

static inline void fl_count(_Atomic uint64_t *counter, uint64_t n)
{
    const uint64_t now = atomic_load_explicit(counter, memory_order_relaxed);
    atomic_store_explicit(counter, now + n, memory_order_relaxed);
}

static inline void fl_count_one(_Atomic int64_t *counter)
{
    const int64_t now = atomic_load_explicit(counter, memory_order_relaxed);
    atomic_store_explicit(counter, now + 1, memory_order_relaxed);
}

/* --- read_extent.c --- */

/* Turn a sample's requests into extents. As fl_read_submit(). */
int fl_extent_plan(struct fl_read *r, struct fl_sample *s);

/* The extent may be issued. */
void fl_extent_enqueue(struct fl_read *r, struct fl_extent *x);

/* Nothing more joins the open extent: it may be issued. */
void fl_extent_close_open(struct fl_read *r);

/* All of an extent has been read or has failed: its requests are served. */
void fl_extent_finish(struct fl_read *r, struct fl_extent *x);

/* A sample's read failed: the first failure stays. */
void fl_read_fail(struct fl_read *r, struct fl_read_req *req, int code, uint64_t offset,
                  const char *what);

void fl_read_push_done(struct fl_read *r, struct fl_sample *s);

/* What a plan may have changed, to take it back: a sample finds room as a whole or not at all. */
struct fl_read_undo {
    struct fl_ring_mark mark;
    struct fl_extent *open, open_copy;
    uint32_t open_refs;
    struct fl_extent *ready, **ready_end; // extents that the plan completed, not yet in the queue
    uint32_t used_granules;
    struct {
        struct fl_extent *extent;
        struct fl_read_req **reqs_end; // NULL: it was finished, the request was served at once
    } joined[FL_MAX_COLUMNS];
    unsigned n_joined;
};

/* Memory and an extent for start .. end; the caller's hold on the file goes over to it. NULL: no room. */
struct fl_extent *fl_extent_new(struct fl_read *r, struct fl_file *file, uint64_t start,
                                uint64_t end);

/* Let the extent serve the request. */
void fl_extent_attach(struct fl_extent *x, struct fl_read_req *req);

/* Keep a completed extent of this plan until all of the sample has found room. */
void fl_extent_set_aside(struct fl_read_undo *u, struct fl_extent *x);

/* --- read_granule.c --- */

int fl_granule_open(struct fl_read *r);
void fl_granule_close(struct fl_read *r);
uint64_t fl_granule_bytes(const struct fl_read_cfg *c);

/* 1: the request is served by a granule; 0: it is none of their business; -EAGAIN: no room for a new one. Takes over
 * the caller's hold on the file if it returns 1. *waits: the request will be served later. */
int fl_granule_place(struct fl_read *r, struct fl_read_undo *u, struct fl_file *file,
                     struct fl_read_req *req, bool *waits);
void fl_granule_undo(struct fl_read *r, struct fl_read_undo *u);

/* Let go of the oldest memory as far as granules alone hold it. False: nothing came of it. */
bool fl_granule_shed(struct fl_read *r);

/* A part of the extent will not be read for whoever comes now: nobody must join it any more. */
void fl_granule_flawed(struct fl_read *r, struct fl_extent *x);

/* All requests of the extent are served; those that come now are served at once. */
void fl_granule_finished(struct fl_extent *x);

/* --- read_cached.c --- */

/* May a sample with these requests be lent at all, and is it time to look again? */
bool fl_cached_worth_asking(struct fl_read *r, struct fl_read_req *const *reqs, unsigned n);

/* Are all of them in the page cache? Remembers the answer. */
bool fl_cached_all(struct fl_read *r, struct fl_read_req *const *reqs, struct fl_file *const *files,
                   unsigned n);

/* The sample goes out with these extents, linked by next, unread. */
void fl_cached_lend(struct fl_read *r, struct fl_sample *s, struct fl_extent *extents);

/* Samples that were lent and found not to be cached: their extents are to be issued now. */
void fl_cached_take_back(struct fl_read *r);

/* A lent sample is no longer wanted. Any thread that has it. */
void fl_cached_drop(struct fl_sample *s);

/* --- read_op.c --- */

/* Give queued extents to the backend as long as operations are free. */
void fl_op_pump(struct fl_read *r);

/* The backend handed an operation back: go on with it, or end it. */
void fl_op_ended(struct fl_read *r, struct fl_read_op *op);

/* Submit again what waited long enough. Returns when the next one is due, INT64_MAX: none. */
int64_t fl_op_retry_due(struct fl_read *r, int64_t now);

#endif
