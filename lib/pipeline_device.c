/* SPDX-License-Identifier: Apache-2.0 */
/* The device thread: filled host slots become device slots, in the planned order. */
#include "pipeline.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"

#define POLL_NS 100000000   // a wait for the device looks at `stop` this often
#define MEASURE_NS 50000000 // over so long a time it is looked at how busy the device is

/* A batch between its host slot and its device slot. */
struct trip {
    struct fl_slot *slot;
    struct fl_output *out;
    unsigned lane; // of the GPU decoder
};

static int acquire_output(struct fl_output *out, void *stream)
{
    return fl_device_acquire(out->pool->device, out->index, stream);
}

static int record_output(struct fl_output *out, void *stream)
{
    return fl_device_record(out->pool->device, out->index, stream);
}

static int release_output(struct fl_output *out, void *stream)
{
    return fl_device_release(out->pool->device, out->index, stream);
}

static void close_device(struct fl_pool *pool)
{
    fl_device_close(&pool->device);
}

/* The table of a column's normalising kernel, packed as the device stage wants it. */
static const void *pack_table(const struct fl_column *c, struct fl_normalize *n, uint32_t *out)
{
    const FlImage *im = &c->cfg.image;
    uint16_t *half = (uint16_t *)out;

    if (im->dtype == FL_U8)
        return NULL;
    fl_normalize_init(n, im->dtype, im->layout, im->channels, im->mean, im->std);
    for (int ch = 0; ch < im->channels; ch++)
        for (int x = 0; x < 256; x++) {
            if (im->dtype == FL_F32)
                out[ch * 256 + x] = n->bits[ch][x];
            else
                half[ch * 256 + x] = (uint16_t)n->bits[ch][x];
        }
    return out;
}

static int open_device(struct fl_pipeline *p)
{
    const struct fl_settings *s = p->settings;
    struct fl_device_cfg cfg = { .device = s->cfg.device,
                                 .n_slots = p->pool->n_outputs,
                                 .n_host_slots = p->pool->n_slots,
                                 .max_rows = s->cfg.batch_size,
                                 .high_priority = s->cfg.gpu_priority == FL_PRIORITY_HIGH,
                                 .n_columns = s->n_columns,
                                 .budget = s->cfg.memory_limit,
                                 .host_bytes = atomic_load(&p->pool->budget.used),
                                 .log = p->log };
    uint32_t(*tables)[3 * 256] = calloc(FL_MAX_COLUMNS, sizeof(*tables)); // copied by open
    struct fl_normalize n = { 0 };

    if (!tables)
        return fl_err(FL_ERR(ENOMEM), FL_STAGE_DEVICE, "no memory for the normalising tables");

    for (unsigned i = 0; i < s->n_columns; i++) {
        const struct fl_column *c = &s->columns[i];
        const FlImage *im = &c->cfg.image;
        cfg.columns[i] = (struct fl_device_column){ .op = FL_DEVICE_COPY, .capacity = c->bytes };
        if (c->cfg.kind == FL_COLUMN_IMAGE)
            cfg.columns[i] = (struct fl_device_column){ .op = FL_DEVICE_IMAGE,
                                                        .height = im->height,
                                                        .width = im->width,
                                                        .channels = im->channels,
                                                        .dtype = im->dtype,
                                                        .layout = im->layout,
                                                        .table = pack_table(c, &n, tables[i]) };
        memcpy(cfg.columns[i].mean, n.mean, sizeof(n.mean));
        memcpy(cfg.columns[i].std, n.std, sizeof(n.std));
    }
    const int err = fl_device_open(&p->device, &cfg);
    free(tables);
    return err;
}

int fl_upload_open(struct fl_pipeline *p)
{
    struct fl_pool *pool = p->pool;
    struct fl_device_view view;
    int err = open_device(p);

    if (err)
        return err;
    pool->device = p->device;
    pool->acquire_output = acquire_output;
    pool->record_output = record_output;
    pool->release_output = release_output;
    pool->close_device = close_device;
    // The masks too: a copy out of pageable memory waits, on the host, for all that its stream holds.
    if ((err = fl_device_pin(p->device, pool->columns.base, pool->columns.bytes)) ||
        (err = fl_device_pin(p->device, pool->rest.base, pool->rest.bytes)))
        return err;
    for (unsigned i = 0; i < pool->n_outputs; i++) {
        fl_device_view(p->device, i, &view);
        for (unsigned c = 0; c < p->settings->n_columns; c++)
            pool->outputs[i].columns[c] = view.column[c];
        pool->outputs[i].device_valid = view.valid;
    }
    return fl_gpu_decode_open(p);
}

/* What the consumer is told of a batch stays on the host. */
static void copy_notes(const struct fl_settings *s, struct fl_output *to, struct fl_output *from)
{
    const size_t rows = (size_t)from->plan.rows;

    to->seq = from->seq;
    to->plan = from->plan;
    to->bad = from->bad;
    to->replaced = from->replaced;
    to->err = from->err;
    fl_bad_move(&to->bad_rows, &from->bad_rows);
    to->read_at = from->read_at;
    to->decoded_at = from->decoded_at;
    memcpy(to->ids, from->ids, rows * sizeof(*to->ids));
    memcpy(to->valid, from->valid, rows);
    memcpy(to->parts, from->parts, rows);
    for (unsigned c = 0; c < s->n_columns; c++)
        if (to->offsets[c])
            memcpy(to->offsets[c], from->offsets[c], (rows + 1) * sizeof(int64_t));
}

/* An optional field that a good sample does not have. */
static bool absent(const void *cookie, unsigned column, int64_t row)
{
    const struct fl_slot *slot = cookie;

    return !slot->samples[row].fields[column].present;
}

static int copy_slot(struct fl_pipeline *p, const struct trip *t)
{
    const struct fl_settings *s = p->settings;
    struct fl_slot *slot = t->slot;
    struct fl_device_job job = { .host_slot = slot->out.index,
                                 .device_slot = t->out->index,
                                 .rows = slot->out.plan.rows,
                                 .valid = slot->out.valid,
                                 .cookie = slot };

    for (unsigned c = 0; c < s->n_columns; c++) {
        if (s->columns[c].cfg.optional)
            job.absent = absent;
        const int64_t *offsets = slot->out.offsets[c];
        job.src[c] = slot->out.columns[c];
        job.bytes[c] =
            offsets ? (uint64_t)offsets[job.rows] : (uint64_t)job.rows * s->columns[c].row_bytes;
    }
    return p->gpu ? fl_gpu_decode_submit(p, slot, &job, t->lane) : fl_device_copy(p->device, &job);
}

/* The next batch in order, if it is filled, and a free device slot: the one that has been free for longest, for
 * free is what the host has released, and the step that used it last may still be to come on the device.
 * Under the lock. */
static bool find_work(struct fl_pipeline *p, struct fl_slot **slot, struct fl_output **out)
{
    struct fl_pool *pool = p->pool;

    *slot = NULL;
    *out = NULL;
    for (unsigned i = 0; i < pool->n_slots; i++)
        if (pool->slots[i].out.state == FL_SLOT_FILLED && pool->slots[i].out.seq == p->upload_seq)
            *slot = &pool->slots[i];
    for (unsigned i = 0; i < pool->n_outputs; i++)
        if (pool->outputs[i].state == FL_SLOT_FREE && (!*out || pool->outputs[i].seq < (*out)->seq))
            *out = &pool->outputs[i];
    return *slot && *out;
}

/* Wait on the device, looking at `stop` now and then. Returns 0, FL_ERR(ECANCELED), or its failure. */
static int wait_device(struct fl_pipeline *p, int (*wait)(struct fl_device *, unsigned, int64_t),
                       unsigned i)
{
    int err;

    while ((err = wait(p->device, i, fl_now_ns() + POLL_NS)) == FL_ERR(ETIMEDOUT))
        if (atomic_load_explicit(&p->stop, memory_order_acquire))
            return FL_ERR(ECANCELED);
    return err;
}

/* Hand a batch to the consumer; under the lock. */
static void publish(struct fl_pipeline *p, const struct trip *t, int err)
{
    t->out->ready_at = fl_now_ns();
    t->out->state = err ? FL_SLOT_FREE : FL_SLOT_READY;
    pthread_cond_broadcast(&p->pool->ready);
}

/* The host slot may be filled again; under the lock. */
static void free_slot(struct fl_pipeline *p, struct fl_slot *slot)
{
    slot->out.state = FL_SLOT_FREE;
    fl_read_wake(p->read);
    pthread_cond_broadcast(&p->pool->ready); // a seek waits for copies to end
}

/* Send one batch on its way. The lock is held at entry and at return, not in between. */
static int begin_trip(struct fl_pipeline *p, struct trip *t)
{
    t->slot->out.state = FL_SLOT_COPYING;
    t->out->state = FL_SLOT_FILLING;
    fl_bad_free(&t->out->bad_rows); // of a batch that a seek dropped
    p->upload_seq++;
    pthread_mutex_unlock(&p->pool->lock);
    const int64_t t0 = fl_now_ns();
    const int err = copy_slot(p, t);
    copy_notes(p->settings, t->out, &t->slot->out);
    fl_meter_add(&p->meters[FL_STAGE_DEVICE].busy, fl_now_ns() - t0);
    pthread_mutex_lock(&p->pool->lock);
    // A batch whose pictures the GPU decodes is handed out when their errors are known.
    if (!p->gpu || err)
        publish(p, t, err);
    return err;
}

/* Is the device busy nearly all the time? By what its own clocks say of copies and of kernels, whichever takes
 * longer; waiting for the consumer is not among it. Under the lock. */
static void measure(struct fl_pipeline *p)
{
    struct fl_device_stats dev;
    const int64_t now = fl_now_ns();

    if (!p->gpu || now - p->measured_at < MEASURE_NS)
        return;
    fl_device_stats(p->device, &dev);
    const double copy = dev.h2d_seconds - p->measured_copy,
                 work = dev.kernel_seconds - p->measured_work;
    const double busy = (copy > work ? copy : work) / ((double)(now - p->measured_at) * 1e-9);
    if (p->measured_at)
        p->pool->device_busy = busy > (p->pool->device_busy ? 0.75 : 0.9);
    p->measured_at = now;
    p->measured_copy = dev.h2d_seconds;
    p->measured_work = dev.kernel_seconds;
}

/* See a batch through: its host slot is free when the bytes have left it, or when the GPU decoder is
 * through with its pictures. The lock as above. */
static int end_trip(struct fl_pipeline *p, struct trip *t)
{
    int err;

    pthread_mutex_unlock(&p->pool->lock);
    const int64_t t0 = fl_now_ns();
    if (p->gpu) {
        err = wait_device(p, fl_device_wait_ready, t->out->index);
        if (!err && fl_gpu_decode_settle(p, t->slot, t->lane) && !(err = copy_slot(p, t))) {
            copy_notes(p->settings, t->out, &t->slot->out);
            err = wait_device(p, fl_device_wait_ready, t->out->index);
        }
        if (err != FL_ERR(ECANCELED)) // else the device may still be reading: closing frees it all
            fl_gpu_decode_release(p, t->slot);
    } else {
        err = wait_device(p, fl_device_wait_copied, t->slot->out.index);
    }
    // The device is at work, or waits for the consumer to let go of the slot.
    fl_meter_add(&p->meters[FL_STAGE_DEVICE].wait_out, fl_now_ns() - t0);
    fl_meter_add(&p->meters[FL_STAGE_DEVICE].items, 1);
    pthread_mutex_lock(&p->pool->lock);
    measure(p);
    if (p->gpu) {
        fl_pool_balance(p->pool);
        publish(p, t, err);
    }
    free_slot(p, t->slot);
    return err == FL_ERR(ECANCELED) ? 0 : err;
}

/* One turn of the device thread, under the lock. Returns the device's failure. */
static int turn(struct fl_pipeline *p, struct trip trips[FL_GPU_LANES], unsigned *first,
                unsigned *n)
{
    struct trip next = { .lane = (*first + *n) % FL_GPU_LANES };
    const unsigned most = p->gpu ? FL_GPU_LANES : 1;
    int err = 0;

    if (*n < most && find_work(p, &next.slot, &next.out)) {
        err = begin_trip(p, &next);
        trips[(*first + (*n)++) % FL_GPU_LANES] = next;
        if (err || *n < most)
            return err; // is there one more that can go along?
    }
    if (*n) {
        err = end_trip(p, &trips[*first]);
        *first = (*first + 1) % FL_GPU_LANES;
        (*n)--;
        return err;
    }
    const int64_t t0 = fl_now_ns();
    pthread_cond_wait(&p->pool->ready, &p->pool->lock);
    fl_meter_add(next.slot ? &p->meters[FL_STAGE_DEVICE].wait_out
                           : &p->meters[FL_STAGE_DEVICE].wait_in,
                 fl_now_ns() - t0);
    return 0;
}

void *fl_upload_run(void *arg)
{
    struct fl_pipeline *p = arg;
    struct trip trips[FL_GPU_LANES] = { { 0 } };
    unsigned first = 0, n = 0;

    pthread_mutex_lock(&p->pool->lock);
    while (!atomic_load_explicit(&p->stop, memory_order_acquire)) {
        if (turn(p, trips, &first, &n)) {
            p->fatal = *fl_last_error();
            pthread_cond_broadcast(&p->pool->ready);
            break;
        }
    }
    for (; n; n--, first = (first + 1) % FL_GPU_LANES)
        free_slot(p, trips[first].slot); // a seek must not wait for what will never end
    pthread_mutex_unlock(&p->pool->lock);
    return NULL;
}
