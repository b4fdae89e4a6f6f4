/* SPDX-License-Identifier: Apache-2.0 */
/* Stage 6, device: batches of host slots become batches of device slots.
 *
 * Life of a device slot:
 *
 *   free -> fl_device_copy() -> copy issued, ready event recorded -> fl_device_acquire() -> held:
 * the consumer's stream waits for the event -> fl_device_release() records the consumer's event ->
 * free
 *
 * Both edges are events: the next copy into the slot waits, on the device, for the consumer's
 * event, and the consumer's stream waits for ours. The host waits for neither. Who holds which slot
 * is the caller's book-keeping; this stage only orders the work.
 *
 * Threads: open, stop and close from any thread, not at the same time as other calls. copy, begin,
 * finish, copied and wait_copied from one thread at a time (the device thread). acquire and release
 * from any thread, also while the device thread works on other slots. Every call leaves the calling
 * thread's current CUDA device and capture mode as they were, and runs in relaxed capture mode, so
 * that another thread may capture a graph meanwhile. No call allocates after open.
 *
 * A host batch (FL_CPU) needs no device stage: do not open one. Nothing here is called by CPU-only
 * use. */
#ifndef FL_DEVICE_H
#define FL_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <feedline/config.h>
#include <feedline/error.h>

#include "base/log.h"

struct fl_device;
struct fl_gpu_ops;

#define FL_DEVICE_ALIGN 512 // every column of a device slot begins at a multiple of this

/* How a column gets from the host slot to the device slot. */
enum fl_device_op {
    FL_DEVICE_COPY = 0, // the bytes as they are: labels, raw records, variable bytes
    FL_DEVICE_IMAGE, // host: u8 {rows, height, width, channels}; device: dtype, layout, normalised
};

struct fl_device_column {
    enum fl_device_op op;
    uint64_t capacity; // FL_DEVICE_COPY: most bytes of the column in one batch

    /* FL_DEVICE_IMAGE */
    int32_t height, width, channels; // channels 1 or 3
    FlDtype dtype;                   // FL_U8, FL_F32, FL_F16, FL_BF16
    FlLayout layout;
    // {channels, 256} elements of dtype: what the host kernels write for each value of each channel, so
    // that both sides are bit-equal. Copied. FL_U8: NULL, the pixels as they are
    const void *table;
    // What the table was made from: the kernels compute where that gives its bits. std[0] 0: they look up
    float mean[3], std[3];
};

struct fl_device_cfg {
    FlDevice device;       // type FL_DEVICE_CUDA
    unsigned n_slots;      // device slots
    unsigned n_host_slots; // 0 <= host slot < n_host_slots in every job
    int64_t max_rows;      // of a batch
    bool high_priority;    // of the stream for kernels
    unsigned n_columns;
    struct fl_device_column columns[FL_MAX_COLUMNS];
    uint64_t budget;     // what the whole loader may use, for messages; 0: not limited
    uint64_t host_bytes; // what it uses on the host, for messages
    struct fl_log log;
    const struct fl_gpu_ops *ops; // NULL: the build's own; tests bring a recording one
};

/* One batch on its way.
 * bytes: of FL_DEVICE_COPY columns, <= capacity; images ignore it. skip: for images, 1 for each row that
 * is decoded on the device and so not copied; NULL: all rows come from the host. Rows of images that are
 * not valid become zeros in their final form, as on the host; absent (may be NULL) tells of others, of
 * valid rows without this field. */
struct fl_device_job {
    unsigned host_slot, device_slot;
    int64_t rows;                    // <= max_rows
    const void *src[FL_MAX_COLUMNS]; // first byte of each column in the host slot
    uint64_t bytes[FL_MAX_COLUMNS];
    const uint8_t *skip[FL_MAX_COLUMNS];
    const uint8_t *valid; // {rows}; copied to the device too
    bool (*absent)(const void *cookie, unsigned column, int64_t row);
    const void *cookie;
};

/* Where a filled slot's columns lie on the device; the same for the whole life of the stage. */
struct fl_device_view {
    void *column[FL_MAX_COLUMNS];    // final form: what the consumer sees
    uint8_t *pixels[FL_MAX_COLUMNS]; // FL_DEVICE_IMAGE: u8 {rows, height, width, channels} before
                                     // finish (equal to column[] for FL_U8 NHWC); else NULL
    uint8_t *valid;
};

struct fl_device_stats {
    uint64_t pinned_bytes, pageable_bytes; // of the slabs given to fl_device_pin()
    uint64_t device_bytes;
    int64_t batches; // copied
    uint64_t h2d_bytes;
    double h2d_seconds;    // on the device, between the first byte of each batch and its last
    double kernel_seconds; // on the device, our kernels. Both scaled up where some were not timed
    int32_t numa_node;     // of the device, -1: unknown
};

/* Bytes of device memory that such a stage takes, or 0 if the sizes overflow. Needs no device. */
uint64_t fl_device_bytes(const struct fl_device_cfg *cfg);

/* The NUMA node next to a device, -1 where it is unknown (one node, a container, no driver).
 * Creates no context; ask before the slabs are made. */
int fl_device_numa_node(FlDevice device);

/* Open the device, allocate everything. @return 0; FL_ERR(ENODEV): no driver, no such device,
 * driver too old, or a build without CUDA (the message tells which); FL_ERR(ENOMEM): with the
 * budget in the message. */
int fl_device_open(struct fl_device **out, const struct fl_device_cfg *cfg);

/* Pin host memory (page aligned), before any job uses it. Memory that is pinned already is fine.
 * Where the driver refuses, the memory stays pageable: a warning, a number in the stats, and slower
 * copies.
 * @return 0, also for a refusal; FL_ERR(EINVAL), FL_ERR(E2BIG): more than 64 slabs. */
int fl_device_pin(struct fl_device *dev, void *base, uint64_t bytes);

/* Issue the copies of a job, the kernels, and the ready event. Waits for nothing. Equal to begin +
 * finish. */
int fl_device_copy(struct fl_device *dev, const struct fl_device_job *job);

/* The same in two steps, for work between them: begin issues the copies, then the caller puts its
 * kernels on fl_device_stream(), which by then waits for these copies and for the slot's former
 * consumer; finish issues the normalising kernels behind them and records the ready event. */
int fl_device_begin(struct fl_device *dev, const struct fl_device_job *job);
int fl_device_finish(struct fl_device *dev, const struct fl_device_job *job);

/* cudaStream_t for work between begin and finish; cudaStream_t that the copies of begin run on. */
void *fl_device_stream(struct fl_device *dev);
void *fl_device_copy_stream(struct fl_device *dev);

void fl_device_view(const struct fl_device *dev, unsigned device_slot, struct fl_device_view *view);

/* For a caller that makes CUDA calls of its own on the streams above: enter makes our device
 * current and the capture mode relaxed in this thread, leave puts back what was there. Calls nest.
 */
struct fl_device_scope {
    int capture_mode;
    int current; // private
};
int fl_device_enter(struct fl_device *dev, struct fl_device_scope *scope);
void fl_device_leave(struct fl_device *dev, struct fl_device_scope *scope);

/* Has the last copy out of this host slot ended, so that it may be filled again?
 * @return 1: yes (or never copied); 0: not yet; < 0: the device failed. */
int fl_device_copied(struct fl_device *dev, unsigned host_slot);

/* Wait until it has, at most until `deadline` (fl_now_ns() scale). While the copy itself has to
 * wait for the consumer, this polls; once it can run, the wait is one short blocking wait.
 * @return 0; FL_ERR(ETIMEDOUT); another error: the device failed. */
int fl_device_wait_copied(struct fl_device *dev, unsigned host_slot, int64_t deadline);

/* Has the work of finish ended on the device? The GPU decoder's error flags are on the host by
 * then.
 * @return 1, 0, or < 0 as fl_device_copied(). fl_device_wait_ready() as fl_device_wait_copied(). */
int fl_device_is_ready(struct fl_device *dev, unsigned device_slot);
int fl_device_wait_ready(struct fl_device *dev, unsigned device_slot, int64_t deadline);

/* Make `stream` (cudaStream_t: NULL is the legacy default stream of our device, cudaStreamPerThread
 * the calling thread's) wait for the slot's content. @return 0; FL_ERR(EINVAL): the stream is
 * capturing a graph, or is of another device; FL_ERR(EIO): the device failed. On error the slot is
 * not held. */
int fl_device_acquire(struct fl_device *dev, unsigned device_slot, void *stream);

/* The slot may be filled again once the work that `stream` holds now has ended. Valid until
 * fl_device_close(). @return as fl_device_acquire(); on error the slot is still held. */
int fl_device_release(struct fl_device *dev, unsigned device_slot, void *stream);

/* One more stream has used the slot: later copies wait for the work that it holds now. Before release, from
 * one thread at a time for each slot. @return as fl_device_acquire(). */
int fl_device_record(struct fl_device *dev, unsigned device_slot, void *stream);

void fl_device_stats(struct fl_device *dev, struct fl_device_stats *stats);

/* The device thread is over: wait for what it issued and unpin the slabs, which may then be freed.
 * Slots that are held stay valid; acquire and release go on working. */
void fl_device_stop(struct fl_device *dev);

/* Free everything, after stop and after the last slot was released. Waits for the consumers'
 * streams to get to their releases. NULL is fine; sets *dev to NULL. */
void fl_device_close(struct fl_device **dev);

#endif
