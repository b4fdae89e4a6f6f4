/* SPDX-License-Identifier: Apache-2.0 */
/* Stage 5, batch: slots, the memory of batches in flight, and what becomes of rows that failed.
 *
 * A host slot:    FREE -> FILLING -> FILLED -> READY -> HELD -> FREE          (host batches)
 *                 FREE -> FILLING -> FILLED -> COPYING -> FREE                (CUDA: then it is the
 * device slot that is FREE -> READY -> HELD -> FREE, with an event on each edge; see device.h)
 *
 * A row belongs to the worker that has its sample, from the plan until fl_batch_row_done(); the last row
 * done hands the slot on. States change under the pool's lock only. The pool outlives the loader while
 * batches are held: each holds a reference. */
#ifndef FL_BATCH_H
#define FL_BATCH_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <feedline/batch.h>

#include "buffer.h"
#include "plan.h"
#include "sample.h"
#include "settings.h"

enum fl_slot_state {
    FL_SLOT_FREE = 0,
    FL_SLOT_FILLING, // rows are planned, read, decoded
    FL_SLOT_FILLED,  // all rows done; waits for the device thread
    FL_SLOT_COPYING, // to the device
    FL_SLOT_READY,   // waits for the consumer
    FL_SLOT_HELD,    // by the consumer
};

/* A sample that failed, kept until its batch is handed out: for the report. */
struct fl_bad {
    struct fl_bad *next;
    FlError err;
    int64_t epoch, id;
    unsigned part;
    uint32_t row, attempt; // attempt 0: the row's own sample, else a stand-in
    int column;            // whose field it was, -1: unknown
};

/* What a consumer gets to see; of a host slot or of a device slot. */
struct fl_output {
    enum fl_slot_state state; // device slots: FREE, READY, HELD
    int64_t seq;              // number of the batch since the pipeline began
    struct fl_plan_batch plan;
    int64_t bad;                      // rows that failed, stand-ins not counted
    int64_t replaced;                 // rows with a stand-in
    int64_t *ids;                     // {rows}
    uint8_t *valid;                   // {rows}
    uint8_t *parts;                   // {rows} part of a mixture
    int64_t *offsets[FL_MAX_COLUMNS]; // FL_COLUMN_BYTES: {rows + 1}
    void *columns[FL_MAX_COLUMNS];    // host or device memory
    const uint8_t *device_valid;
    FlError err;             // of the first row that failed, in row order; code 0: none
    struct fl_bad *bad_rows; // with cfg.bad_report: all that failed, in no order; malloced
    /* When the last row was read, decoded, and the batch ready, fl_now_ns() scale. */
    int64_t read_at, decoded_at, ready_at;
    unsigned index;
    bool device;
    struct fl_pool *pool;
};

struct fl_slot {
    struct fl_output out;
    _Atomic int64_t rows_left; // rows not done yet, and one more while rows are still being planned
    _Atomic int64_t read_at;   // latest completion so far
    _Atomic int64_t bad, replaced;
    struct fl_sample *samples;        // {batch}
    int64_t *lengths[FL_MAX_COLUMNS]; // FL_COLUMN_BYTES: {rows} bytes of each value
    uint8_t *row_errors;              // {rows} 1: samples[row].err is set
};

struct fl_pool {
    pthread_mutex_t lock;
    pthread_cond_t ready;               // a batch became ready, or something ended
    const struct fl_settings *settings; // a copy owned by the pool
    struct fl_settings own;
    struct fl_budget budget;
    struct fl_slab columns;      // of all slots
    struct fl_slab rest;         // samples, ids, masks, offsets
    bool lazy;                   // most of both is populated behind the first batch
    unsigned n_slots, n_outputs; // outputs: n_slots for host batches, device slots otherwise
    struct fl_slot *slots;
    struct fl_output *outputs; // device slots; NULL for host batches
    _Atomic int refs;          // the loader's, and one for each batch that is held
    unsigned held;             // outputs held by the consumer
    unsigned busy;             // slots that were not free when the last one was taken, and that one
    bool device_busy;          // by its own clocks, nearly all of the time
    _Atomic uint32_t
        cpu_share; // of 256 pictures, how many the workers decode in its place: fl_pool_balance()
    bool poisoned; // reads of a dead drive may still write here: never unmap
    pid_t pid;
    struct fl_device *device;
    /* Device slots: make a stream wait for the content; note one more user; record the event behind
     * which the slot is reused. */
    int (*acquire_output)(struct fl_output *out, void *stream);
    int (*record_output)(struct fl_output *out, void *stream);
    int (*release_output)(struct fl_output *out, void *stream);
    void (*close_device)(struct fl_pool *p); // before the memory goes; NULL: no device
    void (*room)(void *ctx); // a slot became free: wakes the feeder; NULL once closed
    void *room_ctx;
};

/* All memory of the slots, under cfg.memory_limit. settings is copied. */
int fl_pool_open(struct fl_pool **out, const struct fl_settings *settings);
void fl_pool_put(struct fl_pool *p); // one reference less; frees at the last

/* A free host slot for this batch, its rows reset and planned rows set up; NULL: none is free.
 * The caller plans the rows, then calls fl_slot_planned(). */
struct fl_slot *fl_pool_take(struct fl_pool *p, int64_t seq, const struct fl_plan_batch *plan);

/* Address of a row's column. */
uint8_t *fl_slot_row(const struct fl_pool *p, const struct fl_slot *s, unsigned column,
                     int64_t row);

/* A batch has come out of the device, and is not marked ready yet: is the device what limits? So it is if it
 * is busy, a filled batch waits for it, and none is ready for the consumer. Then cpu_share grows by a step, else
 * it shrinks by one. Under the lock. */
#define FL_SHARE_STEP 8
#define FL_SHARE_MOST 240 // the device keeps some, so that its speed goes on being measured
void fl_pool_balance(struct fl_pool *p);

/* A row is over, good or failed (s->err). True: it was the last one, the caller finishes the slot with
 * fl_slot_finish(). Any thread. */
bool fl_batch_row_done(struct fl_sample *s);
bool fl_slot_planned(struct fl_slot *s);

/* With cfg.bad_report: put a failure down, s->err described. Any thread that has the row. Without memory it is
 * missing in the report. */
void fl_pool_note_bad(struct fl_pool *p, const struct fl_sample *s);

void fl_bad_free(struct fl_bad **list);
void fl_bad_move(struct fl_bad **to, struct fl_bad **from); // *to keeps what it has

/* Collate: holes zeroed, values of variable length moved together, the first error picked. Sets nothing
 * but the slot's own fields; the caller then changes its state. */
void fl_slot_finish(struct fl_pool *p, struct fl_slot *s);

/* Fill what the consumer sees from an output that is HELD. */
void fl_output_view(const struct fl_pool *p, struct fl_output *out, FlBatch *batch);

#endif
