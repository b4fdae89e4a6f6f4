/* SPDX-License-Identifier: Apache-2.0 */
/* Stage 2, read: planned samples in, samples whose bytes are in memory out.
 *
 * One thread, the feeder, calls start (implied by the first of the others), submit, flush and wait;
 * any thread may call release, wake and stats. Bytes in flight and held are bounded by the arena,
 * operations by depth; nothing is allocated after open. A sample that cannot be read comes out of
 * wait like any other, with its err set.
 *
 *     for (;;) {
 *         while (there is a next sample s && !(err = fl_read_submit(r, s)))
 *             ;                                  // -EAGAIN: no room now, s stays next
 *         if (nothing more to submit for now)
 *             fl_read_flush(r);
 *         n = fl_read_wait(r, done, FL_LEN(done), deadline);
 *         hand on done[0 .. n)
 *     }
 */
#ifndef FL_READ_H
#define FL_READ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <feedline/config.h>
#include <feedline/stats.h>
#include "base/log.h"
#include "buffer.h"
#include "io/files.h"
#include "io/io.h"
#include "sample.h"

struct fl_read;

struct fl_read_cfg {
    FlIo io;
    FlSwitch direct;
    unsigned depth;    // operations in flight; 0: 64, up to 256 as long as they are short
    uint64_t bytes;    // of the arena; 0: 64 MiB
    uint64_t coalesce; // longest read that serves several requests; 0: 1 MiB; 1: do not coalesce
    uint64_t gap; // bytes between two requests worth reading rather than starting another read; 0:
                  // 16 KiB
    uint64_t
        around; // shorter requests are read with what surrounds them, in aligned pieces of so many bytes, kept for
    // others while there is room: for orders that stay in a neighbourhood (FL_SHUFFLE_BLOCK); 0: not
    unsigned threads;  // of the pread backend; 0: automatic
    bool inline_reads; // no thread of our own: pread in the caller's thread, inside fl_read_wait()
    bool lend;         // what is in the page cache is copied by whoever gets it, see fl_read_copy()
    bool no_register;  // no registered files and buffers
    bool lazy;         // the arena's memory comes with fl_read_touch()
    int numa_node;     // of the arena, -1: no preference
    int64_t stall_timeout_ns;           // 0: never
    struct fl_budget *budget;           // may be NULL
    const struct fl_io_region *regions; // other memory that req.dst may point into: batch slots
    unsigned n_regions;
    struct fl_read_source source;
    const struct fl_io_faults *faults; // not NULL: the memory backend, for tests and the benchmark
    struct fl_log log;
};

/* 0; FL_ERR(EINVAL): a setting (named); FL_ERR(ENOMEM); with FL_IO_URING also what the kernel
 * refused with. */
int fl_read_open(struct fl_read **out, const struct fl_read_cfg *cfg);

/* Bytes that fl_read_open() takes from the budget. */
uint64_t fl_read_bytes(const struct fl_read_cfg *cfg);

/* Take all of s->reads[0 .. n_reads). 0: it will come out of wait; 1 (with cfg.lend): its bytes are
 * in the page cache, s is the caller's again, unread: fl_read_copy() brings them; -EAGAIN: no room
 * now, s is untouched. Never waits for a read (a container that was not open yet is opened here). */
int fl_read_submit(struct fl_read *r, struct fl_sample *s);

/* Begin everything that was held back to be coalesced. For when no submit follows soon; wait does
 * it when the drive would run dry. */
void fl_read_flush(struct fl_read *r);

/* Wait until samples are complete. Returns how many were put in done; 0 at the deadline
 * (fl_now_ns() scale, INT64_MAX: none), after fl_read_wake(), and when memory was released that a
 * submit had asked for; FL_ERR(ETIMEDOUT): nothing ended for stall_timeout, the text names
 * container and offset of the oldest read; the next call goes on waiting. Other errors: the backend
 * broke. */
int fl_read_wait(struct fl_read *r, struct fl_sample **done, unsigned max, int64_t deadline_ns);

/* Make the current or the next wait return. Any thread. */
void fl_read_wake(struct fl_read *r);

/* Copy the bytes of a sample that submit lent (s->unread is set). Any thread that has the sample.
 * True: they are there. False: some of them have left the page cache; the sample belongs to the read
 * stage again and comes out of wait. Never waits. */
bool fl_read_copy(struct fl_read *r, struct fl_sample *s);

/* The sample's bytes are no longer needed: data of every request is gone; a lent sample need not
 * have been copied. Any thread, at most once per submit. */
void fl_read_release(struct fl_sample *s);

/* Where a request has a dst and its bytes were not read straight there, copy them. Any thread that
 * has the sample. */
void fl_read_settle(struct fl_read_req *req);

/* Samples accepted that wait has not returned yet, those that fl_read_copy() gave back included (a
 * lower bound while others copy). Feeder only. */
unsigned fl_read_pending(const struct fl_read *r);

/* The container that is being opened right now, -1: none. Opening cannot be interrupted; this is to
 * name what a stalled loader waits for. Any thread. */
int64_t fl_read_opening(const struct fl_read *r);

/* Fill the reading part of *out and its stages[FL_STAGE_READ]. Any thread. */
void fl_read_stats(const struct fl_read *r, FlLoaderStats *out);

/* Base and size of the arena, for cudaHostRegister. */
struct fl_io_region fl_read_arena(const struct fl_read *r);

/* Populate `more` bytes of the arena that are not there yet. Any thread, one at a time. False: all of
 * it is there, or the system has no more. */
bool fl_read_touch(struct fl_read *r, size_t more);

/* Bytes of the arena that are in use. Feeder only. */
uint64_t fl_read_used(const struct fl_read *r);

/* Cancel what is in flight and wait for its end, a few seconds at most; samples not yet returned
 * are dropped. The feeder's last call, before its thread ends (with inline reads fl_read_close()
 * does it). False: reads of a dead drive are still in flight. */
bool fl_read_stop(struct fl_read *r);

/* Stop, unregister, free. Bounded: true, or false if reads of a dead drive are still in flight;
 * then the arena is left mapped, and memory that req.dst pointed into must never be freed or used
 * again. Any thread, once the feeder's has ended; nobody else may be inside a call or hold a block.
 * NULL is fine; sets *r to NULL. */
bool fl_read_close(struct fl_read **r);

#endif
