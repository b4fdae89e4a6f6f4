/* SPDX-License-Identifier: Apache-2.0 */
/* The workers: bytes become rows, rows become batches. */
#include "pipeline.h"

#include "base/clock.h"
#include "base/thread.h"
#include "request.h"

#define AHEAD_BYTES ((size_t)4 << 20) // populated ahead of the row that is written
#define AHEAD_ROW 65536               // shorter rows find their own pages
#define MAX_STAND_INS 16              // draws for one bad sample before it stays bad

void fl_work_complete(struct fl_pipeline *p, struct fl_slot *slot)
{
    struct fl_pool *pool = p->pool;

    fl_slot_finish(pool, slot);
    fl_meter_add(&p->meters[FL_STAGE_BATCH].items, slot->out.plan.samples);
    pthread_mutex_lock(&pool->lock);
    slot->out.decoded_at = slot->out.ready_at = fl_now_ns();
    slot->out.state = p->device ? FL_SLOT_FILLED : FL_SLOT_READY;
    pthread_cond_broadcast(&pool->ready);
    pthread_mutex_unlock(&pool->lock);
}

/* Ask the feeder for a stand-in. False: the sample stays bad. */
static bool replace(struct fl_pipeline *p, struct fl_sample *s)
{
    if (p->settings->cfg.bad_sample != FL_BAD_SUBSTITUTE || s->attempt >= MAX_STAND_INS)
        return false;
    pthread_mutex_lock(&p->pool->lock);
    s->next = p->retry;
    p->retry = s;
    pthread_mutex_unlock(&p->pool->lock);
    fl_read_wake(p->read);
    return true;
}

/* Pictures of a sample that were decoded here. */
static int pictures(const struct fl_settings *settings, const struct fl_sample *s)
{
    int n = 0;

    for (unsigned i = 0; i < settings->n_columns; i++)
        n += settings->columns[i].cfg.kind == FL_COLUMN_IMAGE && s->fields[i].present &&
             !(s->on_gpu & 1u << i);
    return n;
}

/* Memory for the rows that come next. */
static void populate(struct fl_pipeline *p, uint8_t *const rows[])
{
    const struct fl_settings *settings = p->settings;
    struct fl_slab *slab = &p->pool->columns;

    for (unsigned c = 0; c < settings->n_columns; c++)
        if (settings->columns[c].row_bytes >= AHEAD_ROW)
            fl_slab_ahead(slab, (size_t)(rows[c] - slab->base) + settings->columns[c].row_bytes +
                                    AHEAD_BYTES);
}

void fl_work_sample(struct fl_worker *w, struct fl_sample *s)
{
    struct fl_pipeline *p = w->pipeline;
    struct fl_slot *slot = s->slot;
    uint8_t *rows[FL_MAX_COLUMNS];
    int64_t *lengths[FL_MAX_COLUMNS];
    const int64_t t0 = fl_now_ns();

    if (s->unread && !fl_read_copy(p->read, s)) {
        // It has left the page cache: the feeder reads it, and it comes back.
        fl_meter_add(&p->meters[FL_STAGE_DECODE].busy, fl_now_ns() - t0);
        return;
    }
    for (unsigned c = 0; c < p->settings->n_columns; c++) {
        rows[c] = fl_slot_row(p->pool, slot, c, s->row);
        lengths[c] = slot->lengths[c] ? &slot->lengths[c][s->row] : NULL;
    }
    if (p->pool->lazy)
        populate(p, rows);
    for (unsigned i = 0; i < s->n_reads && !s->err.code; i++)
        fl_read_settle(&s->reads[i]);
    fl_gpu_decode_prepare(p, s);
    if (!s->err.code) {
        fl_decode_sample(&w->decode, s, rows, lengths);
        fl_meter_add(&p->decoded, pictures(p->settings, s));
    }
    s->keeps_reads = s->n_reads && s->on_gpu && !s->err.code;
    if (s->n_reads && !s->keeps_reads)
        fl_read_release(s);
    fl_meter_add(&p->meters[FL_STAGE_DECODE].busy, fl_now_ns() - t0);
    fl_meter_add(&p->meters[FL_STAGE_DECODE].items, 1);
    if (s->err.code) {
        fl_request_describe(p->settings, s);
        fl_meter_add(&p->bad, 1);
        fl_pool_note_bad(p->pool, s);
        fl_log(&p->log, FL_LOG_DEBUG, "bad sample: %s", s->err.message);
        if (replace(p, s))
            return;
    } else if (s->attempt) {
        fl_meter_add(&p->substituted, 1);
    }
    if (fl_batch_row_done(s))
        fl_work_complete(p, slot);
}

void *fl_work_run(void *arg)
{
    struct fl_worker *w = arg;
    struct fl_pipeline *p = w->pipeline;
    struct fl_sample *s;
    int64_t t0 = fl_now_ns();

    fl_thread_give_way();

    while ((s = fl_queue_pop(&p->queue))) {
        fl_meter_add(&p->meters[FL_STAGE_DECODE].wait_in, fl_now_ns() - t0);
        fl_work_sample(w, s);
        fl_queue_done(&p->queue);
        t0 = fl_now_ns();
    }
    return NULL;
}
