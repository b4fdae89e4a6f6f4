/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include "device.h"

#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/err.h"
#include "device_impl.h"

/* Between two looks at a copy that has to wait for the consumer. */
#define POLL_NS_FIRST 50000
#define POLL_NS_MOST 1000000

void *fl_device_stream(struct fl_device *dev)
{
    return dev->work_stream;
}

void *fl_device_copy_stream(struct fl_device *dev)
{
    return dev->copy_stream;
}

void fl_device_view(const struct fl_device *dev, unsigned device_slot, struct fl_device_view *view)
{
    *view = dev->slots[device_slot].view;
}

/* Device time between two events, once both have happened; false: not yet, or never recorded. */
static bool elapsed(const struct fl_device *dev, void *from, void *to, double *seconds)
{
    float ms = 0;

    if (dev->ops->event_query(to) || dev->ops->event_elapsed(&ms, from, to))
        return false;
    *seconds = (double)ms / 1e3;
    return true;
}

/* Read the clocks of the trip before: by the time a host slot was filled again they have stopped. One that
 * still runs goes without: nobody waits for a number. */
static void take_times(struct fl_device *dev, struct fl_device_trip *trip)
{
    double copy = 0, work = 0;
    const bool copied = trip->copy_untimed && elapsed(dev, trip->started, trip->copied, &copy);
    const bool worked = trip->work_untimed && elapsed(dev, trip->prepared, trip->worked, &work);

    trip->copy_untimed = trip->work_untimed = false;
    pthread_mutex_lock(&dev->lock);
    dev->stats.h2d_seconds += copied ? copy : 0;
    dev->stats.kernel_seconds += worked ? work : 0;
    dev->copies_timed += copied;
    dev->works_timed += worked;
    pthread_mutex_unlock(&dev->lock);
}

/* Rows of a picture column that come from the host, in as few copies as there are runs of them. */
static int copy_rows(struct fl_device *dev, uint8_t *dst, const uint8_t *src, uint64_t row_bytes,
                     const uint8_t *skip, int64_t rows, uint64_t *copied)
{
    int e = 0;

    for (int64_t from = 0, to; from < rows && !e; from = to) {
        const bool left_out = skip && skip[from];

        for (to = from + 1; to < rows && left_out == (skip && skip[to]); to++)
            ;
        if (left_out)
            continue;
        const uint64_t at = (uint64_t)from * row_bytes, bytes = (uint64_t)(to - from) * row_bytes;
        e = dev->ops->copy(dst + at, src + at, bytes, dev->copy_stream);
        *copied += bytes;
    }
    return e;
}

static int copy_columns(struct fl_device *dev, const struct fl_device_slot *slot,
                        const struct fl_device_job *job, uint64_t *copied)
{
    int e = 0;

    for (unsigned i = 0; i < dev->cfg.n_columns && !e; i++) {
        const struct fl_device_column *c = &dev->cfg.columns[i];

        if (c->op == FL_DEVICE_IMAGE) {
            e = copy_rows(dev, slot->view.pixels[i], job->src[i], fl_device_picture(c),
                          job->skip[i], job->rows, copied);
        } else if (job->bytes[i]) {
            e = dev->ops->copy(slot->view.column[i], job->src[i], job->bytes[i], dev->copy_stream);
            *copied += job->bytes[i];
        }
    }
    if (!e && job->rows)
        e = dev->ops->copy(slot->view.valid, job->valid, (size_t)job->rows, dev->copy_stream);
    *copied += (uint64_t)job->rows;
    return e;
}

static int check_job(const struct fl_device *dev, const struct fl_device_job *job)
{
    bool fits = job->device_slot < dev->cfg.n_slots && job->host_slot < dev->cfg.n_host_slots &&
                job->rows >= 0 && job->rows <= dev->cfg.max_rows;

    for (unsigned i = 0; i < dev->cfg.n_columns && fits; i++)
        fits = dev->cfg.columns[i].op == FL_DEVICE_IMAGE ||
               job->bytes[i] <= dev->cfg.columns[i].capacity;
    return fits ? 0
                : fl_err(FL_ERR(EINVAL), FL_STAGE_DEVICE,
                         "a batch of %lld rows does not fit its device slot", (long long)job->rows);
}

/* With the device current. The order of these lines is the guarantee: nothing is written to the slot before
 * its consumer is through with it, and the kernels see all that was copied. */
static int issue_copies(struct fl_device *dev, const struct fl_device_job *job, uint64_t *copied)
{
    const struct fl_gpu_ops *ops = dev->ops;
    struct fl_device_slot *slot = &dev->slots[job->device_slot];
    struct fl_device_trip *trip = &dev->trips[job->host_slot];
    int e;

    take_times(dev, trip);
    if ((e = ops->stream_wait(dev->copy_stream, slot->released)) ||
        (e = ops->event_record(trip->started, dev->copy_stream)) ||
        (e = copy_columns(dev, slot, job, copied)) ||
        (e = ops->event_record(trip->copied, dev->copy_stream)) ||
        (e = ops->stream_wait(dev->work_stream, trip->copied)) ||
        (e = ops->event_record(slot->prepared, dev->work_stream)) ||
        (e = ops->event_record(trip->prepared, dev->work_stream)))
        return fl_device_error(dev, e, "to copy a batch");
    trip->copy_untimed = true;
    return 0;
}

int fl_device_begin(struct fl_device *dev, const struct fl_device_job *job)
{
    struct fl_device_scope scope;
    uint64_t copied = 0;
    int e = check_job(dev, job);

    if (e || (e = fl_device_enter(dev, &scope)))
        return e;
    e = issue_copies(dev, job, &copied);
    fl_device_leave(dev, &scope);
    pthread_mutex_lock(&dev->lock);
    dev->stats.h2d_bytes += copied;
    pthread_mutex_unlock(&dev->lock);
    return e;
}

static int normalize(struct fl_device *dev, const struct fl_device_slot *slot, unsigned i,
                     int64_t rows)
{
    struct fl_gpu_normalize n = dev->normalize[i];

    n.src = slot->view.pixels[i];
    n.dst = slot->view.column[i];
    n.rows = rows;
    return dev->ops->normalize(&n, dev->work_stream);
}

static bool empty(const struct fl_device_job *job, unsigned column, int64_t row)
{
    return !job->valid[row] || (job->absent && job->absent(job->cookie, column, row));
}

/* Zero in u8 is not zero once it is normalised. */
static int clear_rows(struct fl_device *dev, const struct fl_device_slot *slot,
                      const struct fl_device_job *job, unsigned i)
{
    const struct fl_device_column *c = &dev->cfg.columns[i];
    const uint64_t row_bytes = fl_device_picture(c) * fl_dtype_bytes(c->dtype);
    int e = 0;

    for (int64_t from = 0, to; from < job->rows && !e; from = to) {
        const bool clear = empty(job, i, from);

        for (to = from + 1; to < job->rows && clear == empty(job, i, to); to++)
            ;
        if (clear)
            e = dev->ops->zero((uint8_t *)slot->view.column[i] + (uint64_t)from * row_bytes,
                               (uint64_t)(to - from) * row_bytes, dev->work_stream);
    }
    return e;
}

int fl_device_finish(struct fl_device *dev, const struct fl_device_job *job)
{
    struct fl_device_scope scope;
    const struct fl_device_slot *slot = &dev->slots[job->device_slot];
    struct fl_device_trip *trip = &dev->trips[job->host_slot];
    int e = fl_device_enter(dev, &scope);

    if (e)
        return e;
    for (unsigned i = 0; i < dev->cfg.n_columns && !e; i++) {
        if (dev->cfg.columns[i].op != FL_DEVICE_IMAGE || !job->rows)
            continue;
        if (fl_device_staged(&dev->cfg.columns[i]))
            e = normalize(dev, slot, i, job->rows);
        if (!e)
            e = clear_rows(dev, slot, job, i);
    }
    if (!e)
        e = dev->ops->event_record(slot->ready, dev->work_stream);
    if (!e)
        e = dev->ops->event_record(trip->worked, dev->work_stream);
    fl_device_leave(dev, &scope);
    if (e)
        return fl_device_error(dev, e, "to normalise a batch");
    trip->work_untimed = true;
    pthread_mutex_lock(&dev->lock);
    dev->stats.batches++;
    pthread_mutex_unlock(&dev->lock);
    return 0;
}

int fl_device_copy(struct fl_device *dev, const struct fl_device_job *job)
{
    const int e = fl_device_begin(dev, job);

    return e ? e : fl_device_finish(dev, job);
}

/* 1: has happened; 0: not yet; < 0: the device failed. */
static int happened(struct fl_device *dev, void *event)
{
    struct fl_device_scope scope;
    int e = fl_device_enter(dev, &scope);

    if (e)
        return e;
    e = dev->ops->event_query(event);
    fl_device_leave(dev, &scope);
    if (e == FL_GPU_NOT_READY)
        return 0;
    return e ? fl_device_error(dev, e, "while a batch was copied") : 1;
}

/* Wait for `event`; until `bounded`, an event before it, the wait has no bound, for it is the consumer that
 * has to let go of a slot: so look at the clock. From there on the device needs milliseconds. */
static int wait_event(struct fl_device *dev, void *bounded, void *event, int64_t deadline)
{
    struct fl_device_scope scope;
    int64_t pause = POLL_NS_FIRST;
    int e;

    while (!(e = happened(dev, bounded))) {
        if (fl_now_ns() + pause > deadline)
            return FL_ERR(ETIMEDOUT);
        nanosleep(&(struct timespec){ .tv_nsec = pause }, NULL);
        pause = pause < POLL_NS_MOST / 2 ? 2 * pause : POLL_NS_MOST;
    }
    if (e < 0 || (e = fl_device_enter(dev, &scope)))
        return e;
    e = dev->ops->event_sync(event);
    fl_device_leave(dev, &scope);
    return e ? fl_device_error(dev, e, "while a batch was copied") : 0;
}

int fl_device_copied(struct fl_device *dev, unsigned host_slot)
{
    return happened(dev, dev->trips[host_slot].copied);
}

int fl_device_wait_copied(struct fl_device *dev, unsigned host_slot, int64_t deadline)
{
    struct fl_device_trip *trip = &dev->trips[host_slot];

    return wait_event(dev, trip->started, trip->copied, deadline);
}

int fl_device_is_ready(struct fl_device *dev, unsigned device_slot)
{
    return happened(dev, dev->slots[device_slot].ready);
}

int fl_device_wait_ready(struct fl_device *dev, unsigned device_slot, int64_t deadline)
{
    struct fl_device_slot *slot = &dev->slots[device_slot];

    return wait_event(dev, slot->prepared, slot->ready, deadline);
}

static int stream_error(const struct fl_device *dev, int code)
{
    const int n = dev->cfg.device.ordinal;

    if (code == FL_GPU_CAPTURE_IMPLICIT)
        return fl_err(
            FL_ERR(EINVAL), FL_STAGE_CONSUMER,
            "the legacy default stream cannot be used while a stream that is ordered with "
            "it is captured into a CUDA graph; pass the loader a non-blocking stream");
    if (code == FL_GPU_BAD_HANDLE)
        return fl_err(
            FL_ERR(EINVAL), FL_STAGE_CONSUMER,
            "the stream does not belong to CUDA device %d, where the loader's batches are", n);
    return fl_device_error(dev, code, "on the consumer's stream");
}

static int refuse_capture(const struct fl_device *dev, void *stream)
{
    int capturing = 0;
    const int e = dev->ops->stream_capturing(stream, &capturing);

    if (e)
        return stream_error(dev, e);
    if (capturing)
        return fl_err(
            FL_ERR(EINVAL), FL_STAGE_CONSUMER,
            "batches cannot be taken or given back on a stream that is being captured into "
            "a CUDA graph; do it before or after the capture");
    return 0;
}

int fl_device_acquire(struct fl_device *dev, unsigned device_slot, void *stream)
{
    struct fl_device_scope scope;
    int e = fl_device_enter(dev, &scope);

    if (e)
        return e;
    e = refuse_capture(dev, stream);
    if (!e && (e = dev->ops->stream_wait(stream, dev->slots[device_slot].ready)))
        e = stream_error(dev, e);
    fl_device_leave(dev, &scope);
    return e;
}

int fl_device_release(struct fl_device *dev, unsigned device_slot, void *stream)
{
    struct fl_device_scope scope;
    int e = fl_device_enter(dev, &scope);

    if (e)
        return e;
    e = refuse_capture(dev, stream);
    if (!e && (e = dev->ops->event_record(dev->slots[device_slot].released, stream)))
        e = stream_error(dev, e);
    fl_device_leave(dev, &scope);
    return e;
}

int fl_device_record(struct fl_device *dev, unsigned device_slot, void *stream)
{
    struct fl_device_scope scope;
    void *event =
        dev->slots[device_slot].released; // free until fl_device_release() records it anew
    int e = fl_device_enter(dev, &scope);

    if (e)
        return e;
    e = refuse_capture(dev, stream);
    // The copy stream waits at once: coarser than a wait of the slot alone, and rarely needed.
    if (!e && ((e = dev->ops->event_record(event, stream)) ||
               (e = dev->ops->stream_wait(dev->copy_stream, event))))
        e = stream_error(dev, e);
    fl_device_leave(dev, &scope);
    return e;
}

void fl_device_stats(struct fl_device *dev, struct fl_device_stats *stats)
{
    pthread_mutex_lock(&dev->lock);
    *stats = dev->stats;
    // As if every batch had been timed, so that bytes over seconds is a rate.
    if (dev->copies_timed)
        stats->h2d_seconds *= (double)stats->batches / (double)dev->copies_timed;
    if (dev->works_timed)
        stats->kernel_seconds *= (double)stats->batches / (double)dev->works_timed;
    pthread_mutex_unlock(&dev->lock);
}
