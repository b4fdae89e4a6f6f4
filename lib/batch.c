/* SPDX-License-Identifier: Apache-2.0 */
#include "batch.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/rng.h"
#include "base/thread.h"

#define FIRST_BYTES ((size_t)2 << 20) // populated at open, enough to see what pages there are

/* Hands out pieces of the second slab; with base NULL it only counts. */
struct carve {
    uint8_t *base;
    uint64_t at;
};

static void *piece(struct carve *c, uint64_t n, uint64_t size)
{
    void *p = c->base ? c->base + c->at : NULL;

    c->at += (n * size + 63) / 64 * 64;
    return p;
}

static void carve_output(const struct fl_settings *s, struct fl_output *out, struct carve *c)
{
    const uint64_t rows = (uint64_t)s->cfg.batch_size;

    out->ids = piece(c, rows, sizeof(*out->ids));
    out->valid = piece(c, rows, 1);
    out->parts = piece(c, rows, 1);
    for (unsigned i = 0; i < s->n_columns; i++)
        if (s->columns[i].cfg.kind == FL_COLUMN_BYTES)
            out->offsets[i] = piece(c, rows + 1, sizeof(int64_t));
}

static void carve_slot(const struct fl_settings *s, struct fl_slot *slot, struct carve *c)
{
    const uint64_t rows = (uint64_t)s->cfg.batch_size;
    struct fl_sample_field *fields;
    uint8_t *blobs[FL_MAX_COLUMNS];

    carve_output(s, &slot->out, c);
    for (unsigned i = 0; i < s->n_columns; i++)
        if (s->columns[i].cfg.kind == FL_COLUMN_BYTES)
            slot->lengths[i] = piece(c, rows, sizeof(int64_t));
    slot->row_errors = piece(c, rows, 1);
    slot->samples = piece(c, rows, sizeof(*slot->samples));
    fields = piece(c, rows * s->n_columns, sizeof(*fields));
    for (unsigned i = 0; i < s->n_columns; i++)
        blobs[i] = s->columns[i].blob_room ? piece(c, rows, s->columns[i].blob_room) : NULL;
    if (!c->base)
        return;
    for (uint64_t r = 0; r < rows; r++) {
        slot->samples[r].fields = fields + r * s->n_columns;
        slot->samples[r].n_fields = s->n_columns;
        slot->samples[r].slot = slot;
        slot->samples[r].row = (uint32_t)r;
        for (unsigned i = 0; i < s->n_columns; i++) {
            const size_t room = s->columns[i].blob_room;
            fields[r * s->n_columns + i].blob = room ? blobs[i] + r * room : NULL;
            fields[r * s->n_columns + i].blob_room = room;
        }
    }
}

static void carve_all(struct fl_pool *p, struct carve *c)
{
    for (unsigned i = 0; i < p->n_slots; i++)
        carve_slot(p->settings, &p->slots[i], c);
    for (unsigned i = 0; p->outputs && i < p->n_outputs; i++)
        carve_output(p->settings, &p->outputs[i], c);
}

void fl_bad_free(struct fl_bad **list)
{
    for (struct fl_bad *b = *list, *next; b; b = next) {
        next = b->next;
        free(b);
    }
    *list = NULL;
}

void fl_bad_move(struct fl_bad **to, struct fl_bad **from)
{
    while (*to)
        to = &(*to)->next;
    *to = *from;
    *from = NULL;
}

void fl_pool_note_bad(struct fl_pool *p, const struct fl_sample *s)
{
    struct fl_bad *b = p->settings->reports ? malloc(sizeof(*b)) : NULL;

    if (!b)
        return;
    *b = (struct fl_bad){ .err = s->err,
                          .epoch = s->epoch,
                          .id = s->id,
                          .part = s->part,
                          .row = s->row,
                          .attempt = s->attempt,
                          .column = s->err_column };
    pthread_mutex_lock(&p->lock);
    b->next = s->slot->out.bad_rows;
    s->slot->out.bad_rows = b;
    pthread_mutex_unlock(&p->lock);
}

static void pool_free(struct fl_pool *p)
{
    if (p->close_device)
        p->close_device(p);
    for (unsigned i = 0; p->slots && i < p->n_slots; i++)
        fl_bad_free(&p->slots[i].out.bad_rows);
    for (unsigned i = 0; p->outputs && i < p->n_outputs; i++)
        fl_bad_free(&p->outputs[i].bad_rows);
    if (!p->poisoned) {
        fl_slab_close(&p->columns);
        fl_slab_close(&p->rest);
    }
    free(p->slots);
    free(p->outputs);
    pthread_cond_destroy(&p->ready);
    pthread_mutex_destroy(&p->lock);
    free(p);
}

static int pool_memory(struct fl_pool *p)
{
    const struct fl_settings *s = p->settings;
    struct carve c = { 0 };
    int err;

    p->slots = calloc(p->n_slots, sizeof(*p->slots));
    p->outputs =
        s->cfg.device.type == FL_DEVICE_CPU ? NULL : calloc(p->n_outputs, sizeof(*p->outputs));
    if (!p->slots || (s->cfg.device.type != FL_DEVICE_CPU && !p->outputs))
        return fl_err(FL_ERR(ENOMEM), FL_STAGE_BATCH, "no memory for %u slots", p->n_slots);
    carve_all(p, &c);
    // Pinning populates everything anyway, and without threads nobody could do it later.
    p->lazy = s->cfg.device.type == FL_DEVICE_CPU && s->n_workers > 0;
    const size_t first = p->lazy ? FIRST_BYTES : SIZE_MAX;
    if ((err = fl_slab_open_lazy(&p->columns, p->n_slots * s->slot_bytes, first, s->numa_node,
                                 &p->budget, "batch slots")) ||
        (err = fl_slab_open_lazy(&p->rest, c.at, first, s->numa_node, &p->budget, "samples")))
        return err;
    c = (struct carve){ .base = p->rest.base };
    carve_all(p, &c);
    for (unsigned i = 0; i < p->n_slots; i++) {
        struct fl_output *out = &p->slots[i].out;
        out->index = i;
        out->pool = p;
        for (unsigned k = 0; k < s->n_columns; k++)
            out->columns[k] = p->columns.base + i * s->slot_bytes + s->columns[k].offset;
    }
    for (unsigned i = 0; p->outputs && i < p->n_outputs; i++) {
        p->outputs[i].index = i;
        p->outputs[i].pool = p;
        p->outputs[i].device = true;
        p->outputs[i].seq = -1;
    }
    return 0;
}

void fl_pool_balance(struct fl_pool *p)
{
    const uint32_t share = atomic_load_explicit(&p->cpu_share, memory_order_relaxed);
    bool waits = false, ready = false;

    for (unsigned i = 0; i < p->n_slots; i++)
        waits |= p->slots[i].out.state == FL_SLOT_FILLED;
    for (unsigned i = 0; p->outputs && i < p->n_outputs; i++)
        ready |= p->outputs[i].state == FL_SLOT_READY;
    if (p->device_busy && waits && !ready)
        atomic_store_explicit(&p->cpu_share,
                              share + FL_SHARE_STEP < FL_SHARE_MOST ? share + FL_SHARE_STEP
                                                                    : FL_SHARE_MOST,
                              memory_order_relaxed);
    else if (share)
        atomic_store_explicit(&p->cpu_share, share - FL_SHARE_STEP, memory_order_relaxed);
}

int fl_pool_open(struct fl_pool **out, const struct fl_settings *settings)
{
    struct fl_pool *p = calloc(1, sizeof(*p));
    int err;

    if (!p)
        return fl_err(FL_ERR(ENOMEM), FL_STAGE_BATCH, "no memory for the batch slots");
    p->own = *settings;
    p->settings = &p->own;
    p->budget.limit = settings->cfg.memory_limit;
    p->n_slots = settings->n_slots;
    p->n_outputs = settings->cfg.device.type == FL_DEVICE_CPU
                       ? p->n_slots
                       : (unsigned)settings->cfg.device_slots;
    p->pid = getpid();
    atomic_init(&p->refs, 1);
    pthread_mutex_init(&p->lock, NULL);
    if ((err = fl_cond_init(&p->ready)) || (err = pool_memory(p))) {
        pool_free(p);
        return err;
    }
    *out = p;
    return 0;
}

void fl_pool_put(struct fl_pool *p)
{
    // Release: what this holder did to the slots comes before the free; acquire: for who frees.
    if (p && atomic_fetch_sub_explicit(&p->refs, 1, memory_order_acq_rel) == 1)
        pool_free(p);
}

static void reset_slot(const struct fl_pool *p, struct fl_slot *s, int64_t seq,
                       const struct fl_plan_batch *plan)
{
    const uint64_t rows = (uint64_t)plan->rows;
    struct fl_output *out = &s->out;

    out->state = FL_SLOT_FILLING;
    out->seq = seq;
    out->plan = *plan;
    out->err.code = 0;
    fl_bad_free(&out->bad_rows); // of a batch that a seek dropped
    memset(out->valid, 0, rows);
    memset(s->row_errors, 0, rows);
    for (int64_t i = plan->samples; i < plan->rows; i++)
        out->ids[i] = -1;
    memset(out->parts, 0, rows);
    for (unsigned c = 0; c < p->settings->n_columns; c++)
        if (s->lengths[c])
            memset(s->lengths[c], 0, rows * sizeof(int64_t));
    atomic_store_explicit(&s->rows_left, plan->samples + 1, memory_order_relaxed);
    atomic_store_explicit(&s->read_at, 0, memory_order_relaxed);
    atomic_store_explicit(&s->bad, 0, memory_order_relaxed);
    atomic_store_explicit(&s->replaced, 0, memory_order_relaxed);
}

struct fl_slot *fl_pool_take(struct fl_pool *p, int64_t seq, const struct fl_plan_batch *plan)
{
    struct fl_slot *s = NULL;

    pthread_mutex_lock(&p->lock);
    unsigned busy = 0;
    for (unsigned i = 0; i < p->n_slots; i++)
        if (p->slots[i].out.state != FL_SLOT_FREE)
            busy++;
        else if (!s)
            s = &p->slots[i];
    if (s) {
        p->busy = busy + 1;
        reset_slot(p, s, seq, plan);
    }
    pthread_mutex_unlock(&p->lock);
    return s;
}

uint8_t *fl_slot_row(const struct fl_pool *p, const struct fl_slot *s, unsigned column, int64_t row)
{
    return (uint8_t *)s->out.columns[column] + (uint64_t)row * p->settings->columns[column].max_row;
}

bool fl_slot_planned(struct fl_slot *s)
{
    // Acquire and release: whoever counts to zero sees what every other row's worker wrote.
    return atomic_fetch_sub_explicit(&s->rows_left, 1, memory_order_acq_rel) == 1;
}

bool fl_batch_row_done(struct fl_sample *sample)
{
    struct fl_slot *s = sample->slot;

    s->out.ids[sample->row] = sample->id;
    s->out.parts[sample->row] = (uint8_t)sample->part;
    s->out.valid[sample->row] = !sample->err.code;
    s->row_errors[sample->row] = sample->err.code != 0;
    if (sample->err.code)
        atomic_fetch_add_explicit(&s->bad, 1, memory_order_relaxed);
    else if (sample->attempt)
        atomic_fetch_add_explicit(&s->replaced, 1, memory_order_relaxed);
    return fl_slot_planned(s);
}

/* Values stand max_row apart, as the workers wrote them; move them together and write the offsets. */
static void pack_values(const struct fl_pool *p, struct fl_slot *s, unsigned column)
{
    uint8_t *base = s->out.columns[column];
    int64_t *offsets = s->out.offsets[column], at = 0;

    for (int64_t row = 0; row < s->out.plan.rows; row++) {
        const int64_t len = s->lengths[column][row];
        const uint8_t *from = fl_slot_row(p, s, column, row);
        if (len && from != base + at)
            memmove(base + at, from, (size_t)len);
        offsets[row] = at;
        at += len;
    }
    offsets[s->out.plan.rows] = at;
}

void fl_slot_finish(struct fl_pool *p, struct fl_slot *s)
{
    struct fl_output *out = &s->out;

    for (int64_t row = 0; row < out->plan.rows; row++) {
        if (out->valid[row])
            continue;
        for (unsigned c = 0; c < p->settings->n_columns; c++) {
            if (s->lengths[c])
                s->lengths[c][row] = 0;
            else
                memset(fl_slot_row(p, s, c, row), 0, p->settings->columns[c].row_bytes);
        }
        if (s->row_errors[row] && !out->err.code)
            out->err = s->samples[row].err;
    }
    for (unsigned c = 0; c < p->settings->n_columns; c++)
        if (s->lengths[c])
            pack_values(p, s, c);
    out->bad = atomic_load_explicit(&s->bad, memory_order_relaxed);
    out->replaced = atomic_load_explicit(&s->replaced, memory_order_relaxed);
    out->read_at = atomic_load_explicit(&s->read_at, memory_order_relaxed);
}

static void view_column(const struct fl_column *c, struct fl_output *out, FlColumn *v)
{
    const FlImage *im = &c->cfg.image;
    const bool nhwc = im->layout == FL_NHWC;

    *v = (FlColumn){ .field = c->cfg.field,
                     .data = out->columns[c->index],
                     .ndim = 1,
                     .dtype = c->dtype,
                     .offsets = out->offsets[c->index] };
    v->shape[0] = out->plan.rows;
    if (c->cfg.kind == FL_COLUMN_IMAGE) {
        v->dtype = im->dtype;
        v->ndim = 4;
        v->shape[1] = nhwc ? im->height : im->channels;
        v->shape[2] = nhwc ? im->width : im->height;
        v->shape[3] = nhwc ? im->channels : im->width;
    } else if (c->cfg.kind == FL_COLUMN_RAW) {
        v->ndim = 1 + c->cfg.ndim;
        memcpy(&v->shape[1], c->cfg.shape, (size_t)c->cfg.ndim * sizeof(int64_t));
    } else if (c->cfg.kind == FL_COLUMN_BYTES) {
        v->shape[0] = v->offsets[out->plan.rows];
    }
}

void fl_output_view(const struct fl_pool *p, struct fl_output *out, FlBatch *batch)
{
    const struct fl_settings *s = p->settings;

    *batch = (FlBatch){ .size = out->plan.rows,
                        .n_columns = (int32_t)s->n_columns,
                        .ids = out->ids,
                        .valid = out->valid,
                        .parts = s->n_parts > 1 ? out->parts : NULL,
                        .device_valid = out->device_valid,
                        .epoch = out->plan.epoch,
                        .position = out->plan.position,
                        .device = s->cfg.device,
                        .slot = out };
    for (int64_t i = 0; i < out->plan.rows; i++)
        batch->n_valid += out->valid[i];
    for (unsigned c = 0; c < s->n_columns; c++)
        view_column(&s->columns[c], out, &batch->columns[c]);
}

static int check_process(const struct fl_pool *p, const char *what)
{
    return getpid() == p->pid
               ? 0
               : fl_err(FL_ERR(ECHILD), FL_STAGE_CONSUMER,
                        "this batch was loaded by process %d, and a forked child cannot %s it",
                        (int)p->pid, what);
}

int fl_batch_acquire(const FlBatch *batch, void *stream)
{
    struct fl_output *out = batch ? batch->slot : NULL;

    if (!out)
        return fl_err(FL_ERR(EINVAL), FL_STAGE_CONSUMER, "the batch is not held");
    const int err = check_process(out->pool, "use");
    return err || !out->device ? err : out->pool->acquire_output(out, stream);
}

int fl_batch_record(const FlBatch *batch, void *stream)
{
    struct fl_output *out = batch ? batch->slot : NULL;

    if (!out)
        return fl_err(FL_ERR(EINVAL), FL_STAGE_CONSUMER, "the batch is not held");
    const int err = check_process(out->pool, "use");
    return err || !out->device ? err : out->pool->record_output(out, stream);
}

int fl_batch_seeds(const FlBatch *batch, uint64_t *seeds)
{
    const struct fl_output *out = batch ? batch->slot : NULL;
    struct fl_rng r;

    if (!out || !seeds)
        return fl_err(FL_ERR(EINVAL), FL_STAGE_CONSUMER, "the batch is not held, or seeds is NULL");
    for (int64_t i = 0; i < batch->size; i++) {
        fl_rng_init(&r, out->pool->settings->cfg.seed, (uint32_t)batch->epoch,
                    (uint64_t)(batch->position + i), FL_RNG_USER, 0);
        seeds[i] = fl_rng_u64(&r);
    }
    return 0;
}

int fl_batch_release(FlBatch *batch, void *stream)
{
    struct fl_output *out = batch ? batch->slot : NULL;
    int err;

    if (!out)
        return 0;
    struct fl_pool *p = out->pool;
    if ((err = check_process(p, "release")) ||
        (out->device && (err = p->release_output(out, stream))))
        return err;
    pthread_mutex_lock(&p->lock);
    out->state = FL_SLOT_FREE;
    p->held--;
    if (p->room)
        p->room(p->room_ctx);
    pthread_cond_broadcast(&p->ready); // the device thread waits for device slots
    pthread_mutex_unlock(&p->lock);
    fl_pool_put(p);
    memset(batch, 0, sizeof(*batch));
    return 0;
}
