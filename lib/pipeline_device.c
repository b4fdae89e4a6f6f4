/* SPDX-License-Identifier: Apache-2.0 */
/* The device thread: filled host slots become device slots, in the planned order. */
#include "pipeline.h"

#include <string.h>

#include "base/clock.h"
#include "base/err.h"

#define POLL_NS 100000000 // a wait for the device looks at `stop` this often

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
                                 .n_columns = s->n_columns,
                                 .budget = s->cfg.memory_limit,
                                 .host_bytes = atomic_load(&p->pool->budget.used),
                                 .log = p->log };
    static _Thread_local uint32_t tables[FL_MAX_COLUMNS][3 * 256]; // copied by open
    struct fl_normalize n = { 0 };

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
    return fl_device_open(&p->device, &cfg);
}

int fl_upload_open(struct fl_pipeline *p)
{
    const struct fl_io_region arena = fl_read_arena(p->read);
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
    (void)arena; // compressed bytes do not travel: only slots are pinned
    if ((err = fl_device_pin(p->device, pool->columns.base, pool->columns.bytes)))
        return err;
    for (unsigned i = 0; i < pool->n_outputs; i++) {
        fl_device_view(p->device, i, &view);
        for (unsigned c = 0; c < p->settings->n_columns; c++)
            pool->outputs[i].columns[c] = view.column[c];
        pool->outputs[i].device_valid = view.valid;
    }
    return 0;
}

/* What the consumer is told of a batch stays on the host. */
static void copy_notes(const struct fl_settings *s, struct fl_output *to,
                       const struct fl_output *from)
{
    const size_t rows = (size_t)from->plan.rows;

    to->seq = from->seq;
    to->plan = from->plan;
    to->bad = from->bad;
    to->replaced = from->replaced;
    to->err = from->err;
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

static int copy_slot(struct fl_pipeline *p, struct fl_slot *slot, struct fl_output *out)
{
    const struct fl_settings *s = p->settings;
    struct fl_device_job job = { .host_slot = slot->out.index,
                                 .device_slot = out->index,
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
    copy_notes(s, out, &slot->out);
    return fl_device_copy(p->device, &job);
}

/* The next batch in order, if it is filled, and a free device slot. Under the lock. */
static bool find_work(struct fl_pipeline *p, struct fl_slot **slot, struct fl_output **out)
{
    struct fl_pool *pool = p->pool;

    *slot = NULL;
    *out = NULL;
    for (unsigned i = 0; i < pool->n_slots; i++)
        if (pool->slots[i].out.state == FL_SLOT_FILLED && pool->slots[i].out.seq == p->upload_seq)
            *slot = &pool->slots[i];
    for (unsigned i = 0; i < pool->n_outputs; i++)
        if (pool->outputs[i].state == FL_SLOT_FREE)
            *out = &pool->outputs[i];
    return *slot && *out;
}

/* Copy one batch. The lock is held at entry and at return, not in between. */
static int upload(struct fl_pipeline *p, struct fl_slot *slot, struct fl_output *out)
{
    struct fl_pool *pool = p->pool;
    int err;

    slot->out.state = FL_SLOT_COPYING;
    out->state = FL_SLOT_FILLING;
    p->upload_seq++;
    pthread_mutex_unlock(&pool->lock);
    const int64_t t0 = fl_now_ns();
    err = copy_slot(p, slot, out);
    pthread_mutex_lock(&pool->lock);
    out->ready_at = fl_now_ns();
    out->state = err ? FL_SLOT_FREE : FL_SLOT_READY;
    pthread_cond_broadcast(&pool->ready);
    pthread_mutex_unlock(&pool->lock);
    // The host slot is free once its bytes have left it.
    while (!err && (err = fl_device_wait_copied(p->device, slot->out.index,
                                                fl_now_ns() + POLL_NS)) == FL_ERR(ETIMEDOUT))
        err = atomic_load_explicit(&p->stop, memory_order_acquire) ? FL_ERR(ECANCELED) : 0;
    fl_meter_add(&p->meters[FL_STAGE_DEVICE].busy, fl_now_ns() - t0);
    fl_meter_add(&p->meters[FL_STAGE_DEVICE].items, 1);
    pthread_mutex_lock(&pool->lock);
    slot->out.state = FL_SLOT_FREE;
    fl_read_wake(p->read);
    pthread_cond_broadcast(&pool->ready); // a seek waits for copies to end
    return err == FL_ERR(ECANCELED) ? 0 : err;
}

void *fl_upload_run(void *arg)
{
    struct fl_pipeline *p = arg;
    struct fl_pool *pool = p->pool;
    struct fl_slot *slot;
    struct fl_output *out;

    pthread_mutex_lock(&pool->lock);
    while (!atomic_load_explicit(&p->stop, memory_order_acquire)) {
        if (find_work(p, &slot, &out)) {
            if (upload(p, slot, out)) {
                p->fatal = *fl_last_error();
                pthread_cond_broadcast(&pool->ready);
                break;
            }
            continue;
        }
        const int64_t t0 = fl_now_ns();
        pthread_cond_wait(&pool->ready, &pool->lock);
        fl_meter_add(slot ? &p->meters[FL_STAGE_DEVICE].wait_out
                          : &p->meters[FL_STAGE_DEVICE].wait_in,
                     fl_now_ns() - t0);
    }
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}
