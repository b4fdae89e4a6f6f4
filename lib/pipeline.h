/* SPDX-License-Identifier: Apache-2.0 */
/* The stages at work: the one place that knows all of them.
 *
 *   feeder thread     pipeline_feed.c    plan -> read; owns the order, the cursor and the reader
 *   worker threads    pipeline_work.c    decode -> augment -> batch
 *   touching thread   pipeline_touch.c   populates memory behind the first batch, then ends
 *   device thread     pipeline_device.c  host slot -> device slot (CUDA only)
 *   consumer          pipeline_next.c    in the caller's thread
 *
 * With no workers the consumer's thread does the feeder's and the workers' part, by the same functions.
 *
 * Locks: pool->lock guards the states of slots and outputs and everything marked so below; queue.lock
 * guards the queue. queue.lock is never held while pool->lock is taken. */
#ifndef FL_PIPELINE_H
#define FL_PIPELINE_H

#include <stdatomic.h>
#include <stdbool.h>

#include <feedline/dataset.h>
#include <feedline/stats.h>

#include "base/log.h"
#include "batch.h"
#include "decode.h"
#include "device.h"
#include "plan.h"
#include "queue.h"
#include "request.h"
#include "read.h"
#include "report.h"
#include "sequence.h"
#include "settings.h"

/* Nanoseconds and counts of one stage, summed over its threads. */
struct fl_meter {
    _Atomic int64_t busy, wait_in, wait_out, items, stall;
    _Atomic uint64_t bytes;
};

static inline void fl_meter_add(_Atomic int64_t *counter, int64_t n)
{
    atomic_fetch_add_explicit(counter, n, memory_order_relaxed); // statistics order nothing
}

struct fl_worker {
    struct fl_pipeline *pipeline;
    struct fl_decode decode;
    pthread_t thread;
};

struct fl_pipeline {
    const struct fl_settings *settings; // the pool's copy
    struct fl_log log;
    pthread_mutex_t log_lock;
    struct fl_pool *pool;
    struct fl_read *read;
    struct fl_device *device;  // NULL for host batches
    struct fl_gpu_decode *gpu; // NULL: pictures are decoded on the CPU
    struct fl_plan plan;
    struct fl_queue queue;
    struct fl_worker *workers; // n_workers, or the one of the inline mode
    unsigned n_workers, n_started;
    pthread_t feeder, device_thread, toucher;
    bool feeder_started, device_started, toucher_started;
    _Atomic bool stop;

    struct fl_report report; // the consumer's own

    /* the feeder's own */
    struct fl_sequence sequence;
    struct fl_cursor feed;         // next batch to plan
    int64_t feed_seq;              // its number
    bool feed_ended;               // cfg.epochs are planned
    struct fl_slot *filling;       // batch that is being planned
    int64_t next_row;              // of it
    struct fl_sample *pending;     // planned, but not accepted by the read stage yet
    struct fl_container container; // returned to the read stage
    char container_path[4096];

    /* under pool->lock */
    struct fl_cursor next;   // next batch to hand out
    int64_t want;            // its number
    int64_t upload_seq;      // number of the next batch to copy to the device
    unsigned inside;         // threads in fl_pipeline_next()
    bool feeder_stop;        // the workers are gone: close the reader
    struct fl_sample *retry; // bad samples that wait for a stand-in
    int64_t measured_at;     // how busy the device is: the last look, and its clocks then
    double measured_copy, measured_work;
    FlError fatal;   // the storage or the device is gone; code 0: no
    FlError stalled; // no progress for stall_timeout; code 0: no
    bool seek;       // the feeder is to empty the pipeline and go on at seek_to
    struct fl_cursor seek_to;
    int64_t epoch_bad, epoch_seen;

    struct fl_meter meters[FL_N_STAGES];
    int64_t opened_at;
    _Atomic uint64_t peak; // most bytes of slots and read memory in use at one time
    _Atomic int64_t first_batch_at, bad, substituted, decoded;
};

/* ---- pipeline.c ------------------------------------------------------------------------------ */

/* Allocates everything, starts the threads. On error the pipeline is closed. */
int fl_pipeline_open(struct fl_pipeline *p, const struct fl_settings *settings);
void fl_pipeline_close(struct fl_pipeline *p);

void fl_pipeline_stats(struct fl_pipeline *p, FlLoaderStats *out);

/* ---- pipeline_feed.c ------------------------------------------------------------------------- */

/* The read stage's view of the dataset. */
struct fl_read_source fl_feed_source(struct fl_pipeline *p);

/* Path of one of its containers. Any thread. Negative: it has none. */
int fl_feed_path(const struct fl_pipeline *p, uint32_t container, char *path, size_t size);

/* Thread body. */
void *fl_feed_run(void *pipeline);

/* One turn: plan and submit what there is room for, wait for reads until the deadline, pass on what is
 * complete. Returns 0 or the reader's error. */
int fl_feed_turn(struct fl_pipeline *p, int64_t deadline);

/* Empty the pipeline and stand at the cursor. The feeder's thread only. */
void fl_feed_seek(struct fl_pipeline *p, const struct fl_cursor *to);

/* ---- pipeline_touch.c ------------------------------------------------------------------------ */

/* 0 or a negative errno. */
int fl_touch_start(struct fl_pipeline *p);

/* ---- pipeline_work.c ------------------------------------------------------------------------- */

void *fl_work_run(void *worker); // thread body
void fl_work_sample(struct fl_worker *w, struct fl_sample *s);

/* All rows of a slot are done: collate it and hand it on. Any thread. */
void fl_work_complete(struct fl_pipeline *p, struct fl_slot *slot);

/* ---- pipeline_device.c ----------------------------------------------------------------------- */

int fl_upload_open(struct fl_pipeline *p);
void *fl_upload_run(void *pipeline); // thread body

/* ---- pipeline_gpu.c, or pipeline_no_gpu.c in a build without CUDA -------------------------------- */

#define FL_GPU_LANES 2 // batches in the GPU decoder at the same time

/* After the device stage. Sets p->gpu if pictures are to be decoded there. */
int fl_gpu_decode_open(struct fl_pipeline *p);
void fl_gpu_decode_close(struct fl_pipeline *p);

/* Why the CPU decodes a picture of a column that has a GPU decoder. */
enum fl_gpu_left {
    FL_GPU_LEFT_KIND = 0, // not a picture for the GPU, or not an operation
    FL_GPU_LEFT_BALANCE,  // the device had enough to do: decode = auto
    FL_GPU_LEFT_ROOM,     // the batch had no room for it, or it is too large
    FL_GPU_LEFT_AGAIN,    // the GPU found it damaged
    FL_N_GPU_LEFT
};

int64_t fl_gpu_decode_left(const struct fl_pipeline *p, enum fl_gpu_left why); // pictures so far
int64_t fl_gpu_decode_count(const struct fl_pipeline *p);                      // pictures so far
uint64_t fl_gpu_decode_bytes(const struct fl_pipeline *p); // of them, compressed
uint64_t fl_gpu_decode_device_bytes(const struct fl_pipeline *p);

/* Decide which columns of a sample the GPU decodes (s->on_gpu), and get them ready. May set s->err. */
void fl_gpu_decode_prepare(struct fl_pipeline *p, struct fl_sample *s);

/* fl_device_copy() of a batch with such samples: fills job->skip. The lane is free again after settle. */
int fl_gpu_decode_submit(struct fl_pipeline *p, struct fl_slot *slot, struct fl_device_job *job,
                         unsigned lane);

/* The batch's work has ended: decode on the CPU what the GPU found damaged. True: rows of the host slot or
 * of its mask changed, submit it once more. */
bool fl_gpu_decode_settle(struct fl_pipeline *p, struct fl_slot *slot, unsigned lane);

/* Give back the read memory that the slot's samples still hold. */
void fl_gpu_decode_release(struct fl_pipeline *p, struct fl_slot *slot);

/* ---- pipeline_next.c ------------------------------------------------------------------------- */

/* fl_loader_next() with a deadline, fl_now_ns() scale. */
int fl_pipeline_next(struct fl_pipeline *p, FlBatch *batch, void *stream, int64_t deadline);

/* Go on at a cursor: what was read ahead is dropped, held batches stay. */
int fl_pipeline_seek(struct fl_pipeline *p, const struct fl_cursor *to);

#endif
