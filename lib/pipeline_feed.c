/* SPDX-License-Identifier: Apache-2.0 */
/* The feeder: positions become samples, samples become reads, and what is read goes to the workers. */
#include "pipeline.h"

#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/rng.h"
#include "index/dataset.h"
#include "request.h"

#define TURN 64 // samples passed on at a time

/* ---- the dataset, as the read stage sees it ---------------------------------------------------- */

/* The part that a container of the read stage belongs to; *id becomes its number there. */
static const struct fl_part *part_of(const struct fl_pipeline *p, uint32_t *id)
{
    unsigned k = p->settings->n_parts - 1;

    while (*id < p->settings->parts[k].container_base)
        k--;
    *id -= p->settings->parts[k].container_base;
    return &p->settings->parts[k];
}

static int container(void *ctx, uint32_t id, struct fl_container *out, FlError *err)
{
    struct fl_pipeline *p = ctx;
    const struct fl_part *part = part_of(p, &id);
    struct fl_index_container c;

    if (fl_index_container(fl_dataset_index(part->ds), id, &c) ||
        fl_dataset_container_path(part->ds, id, p->container_path, sizeof(p->container_path)) < 0) {
        *err = *fl_last_error();
        return err->code;
    }
    *out = (struct fl_container){ p->container_path, c.size, c.mtime_ns };
    return 0;
}

static int check(void *ctx, uint32_t id, int fd, FlError *err)
{
    const struct fl_part *part = part_of(ctx, &id);
    return fl_dataset_check_container(part->ds, id, fd, err);
}

int fl_feed_path(const struct fl_pipeline *p, uint32_t id, char *path, size_t size)
{
    const struct fl_part *part = part_of(p, &id);

    return (int)fl_dataset_container_path(part->ds, id, path, size);
}

struct fl_read_source fl_feed_source(struct fl_pipeline *p)
{
    const struct fl_part *last = &p->settings->parts[p->settings->n_parts - 1];

    return (struct fl_read_source){ .ctx = p,
                                    .n_containers = last->container_base + last->n_containers,
                                    .container = container,
                                    .check = check };
}

/* ---- planning ------------------------------------------------------------------------------------ */

/* Give s the sample that stands at `place` of its epoch: its own position, but for a stand-in. */
static void plan_sample(struct fl_pipeline *p, struct fl_sample *s, int64_t place)
{
    const struct fl_sequence_place at = fl_sequence_at(&p->sequence, s->epoch, place);
    uint8_t *rows[FL_MAX_COLUMNS];

    s->part = at.part;
    s->id = at.sample;

    for (unsigned c = 0; c < p->settings->n_columns; c++)
        rows[c] = fl_slot_row(p->pool, s->slot, c, s->row);
    fl_request_sample(p->settings, s, rows);
    fl_meter_add(&p->meters[FL_STAGE_PLAN].items, 1);
}

/* A slot for the next batch. False: no slot is free, or all epochs are planned. */
static bool begin_batch(struct fl_pipeline *p)
{
    const int64_t epochs = p->settings->cfg.epochs;
    struct fl_plan_batch plan;

    for (;;) {
        struct fl_cursor c = p->feed;
        if (p->feed_ended)
            return false;
        if (fl_plan_next(&p->plan, &c, &plan)) {
            p->filling = fl_pool_take(p->pool, p->feed_seq, &plan);
            if (!p->filling)
                return false;
            p->feed = c;
            p->feed_seq++;
            p->next_row = 0;
            return true;
        }
        p->feed = c;
        p->feed_ended = (epochs && c.epoch >= epochs) || !fl_plan_batches(&p->plan, 0);
    }
}

/* A batch has all its rows planned, or none to plan (padding alone). */
static void end_batch(struct fl_pipeline *p)
{
    struct fl_slot *slot = p->filling;

    p->filling = NULL;
    if (fl_slot_planned(slot))
        fl_work_complete(p, slot);
}

/* A stand-in for a bad sample: drawn by (seed, epoch, position, attempt). */
static struct fl_sample *next_retry(struct fl_pipeline *p)
{
    struct fl_rng r;

    pthread_mutex_lock(&p->pool->lock);
    struct fl_sample *s = p->retry;
    if (s)
        p->retry = s->next;
    pthread_mutex_unlock(&p->pool->lock);
    if (!s)
        return NULL;
    s->attempt++;
    fl_rng_init(&r, p->settings->cfg.seed, (uint32_t)s->epoch, (uint64_t)s->position,
                FL_RNG_SUBSTITUTE, s->attempt);
    plan_sample(p, s, (int64_t)fl_rng_below(&r, (uint64_t)p->plan.n));
    return s;
}

static struct fl_sample *next_sample(struct fl_pipeline *p)
{
    struct fl_sample *s = p->pending;

    p->pending = NULL;
    if (s || (s = next_retry(p)))
        return s;
    while (!p->filling || p->next_row == p->filling->out.plan.samples) {
        if (p->filling)
            end_batch(p);
        if (!begin_batch(p))
            return NULL;
    }
    const struct fl_plan_batch *plan = &p->filling->out.plan;
    s = &p->filling->samples[p->next_row];
    s->epoch = plan->epoch;
    s->position = plan->position + p->next_row;
    s->attempt = 0;
    p->next_row++;
    plan_sample(p, s, s->position);
    return s;
}

/* ---- reading ------------------------------------------------------------------------------------- */

static void pass_on(struct fl_pipeline *p, struct fl_sample **done, unsigned n)
{
    const int64_t now = fl_now_ns();

    for (unsigned i = 0; i < n; i++)
        atomic_store_explicit(&done[i]->slot->read_at, now, memory_order_relaxed);
    fl_queue_push(&p->queue, done, n);
}

/* fl_read_submit(), its time added to *ns. */
static int submit(struct fl_pipeline *p, struct fl_sample *s, int64_t *ns)
{
    const int64_t t0 = fl_now_ns();
    const int err = fl_read_submit(p->read, s);

    *ns += fl_now_ns() - t0;
    return err;
}

/* Why fill() ended. */
enum fill { ALL_PLANNED, NO_ROOM, READS_WAIT };

/* Submit all there is room for, in turns if reads may have ended meanwhile. *read_ns: what of the time
 * was the read stage's. */
static enum fill fill(struct fl_pipeline *p, int64_t *read_ns)
{
    struct fl_sample *ready[TURN], *s;
    unsigned n = 0;
    int err = 0;

    while ((s = next_sample(p))) {
        if (s->n_reads && (err = submit(p, s, read_ns)) == FL_ERR(EAGAIN)) {
            p->pending = s;
            break;
        }
        if (err == 1) { // cached: the worker that takes it copies it
            ready[n++] = s;
        } else if (err) { // too large for the arena: the sample's own failure
            s->err = *fl_last_error();
            s->n_reads = 0;
        }
        err = 0;
        if (!s->n_reads)
            ready[n++] = s;
        if (n == TURN) {
            pass_on(p, ready, n);
            n = 0;
            if (!p->n_workers)
                break; // inline: the caller works on them first
            if (fl_read_pending(p->read))
                return READS_WAIT; // of batches that are wanted sooner than what would be planned now
        }
    }
    if (n)
        pass_on(p, ready, n);
    return p->pending ? NO_ROOM : ALL_PLANNED;
}

/* Memory in use is at its most when all that finds room has been submitted. */
static void note_peak(struct fl_pipeline *p)
{
    const uint64_t used = p->pool->busy * p->settings->slot_bytes + fl_read_used(p->read);

    if (used > atomic_load_explicit(&p->peak, memory_order_relaxed))
        atomic_store_explicit(&p->peak, used, memory_order_relaxed);
}

int fl_feed_turn(struct fl_pipeline *p, int64_t deadline)
{
    struct fl_meter *plan = &p->meters[FL_STAGE_PLAN], *read = &p->meters[FL_STAGE_READ];
    struct fl_sample *done[TURN];

    int64_t read_ns = 0;
    const int64_t t0 = fl_now_ns();
    const enum fill why = fill(p, &read_ns);
    const int64_t t1 = fl_now_ns();
    note_peak(p);
    if (why == ALL_PLANNED) // else more follows as soon as there is room, and may share a read
        fl_read_flush(p->read);
    const bool idle = !fl_read_pending(p->read);
    if (why == READS_WAIT)
        deadline = 0;
    else if (idle && !p->n_workers)
        deadline = 0; // inline: nobody else would end the wait
    const int n = fl_read_wait(p->read, done, TURN, deadline);
    const int64_t t2 = fl_now_ns();
    fl_meter_add(&plan->busy, t1 - t0 - read_ns);
    fl_meter_add(&read->busy, read_ns);
    if (idle && why == ALL_PLANNED) // nothing to read: the plan waits for a slot
        fl_meter_add(&plan->wait_out, t2 - t1);
    // What the read stage did and waited for in its own wait, it counts itself.
    if (n > 0) {
        fl_meter_add(&read->items, n);
        pass_on(p, done, (unsigned)n);
    }
    return n < 0 ? n : 0;
}

/* ---- seeking and running ------------------------------------------------------------------------- */

static void drop_reads(struct fl_pipeline *p)
{
    struct fl_sample *done[TURN], *s;

    while (fl_read_pending(p->read)) {
        fl_read_flush(p->read);
        const int n = fl_read_wait(p->read, done, TURN, INT64_MAX);
        for (int i = 0; i < n; i++)
            fl_read_release(done[i]);
        if (n < 0 && n != FL_ERR(ETIMEDOUT))
            break; // the backend is broken: close will deal with what is in flight
    }
    while ((s = fl_queue_try_pop(&p->queue))) {
        if (s->n_reads)
            fl_read_release(s);
        fl_queue_done(&p->queue);
    }
    fl_queue_wait_idle(&p->queue);
}

static bool copying(const struct fl_pool *pool)
{
    for (unsigned i = 0; i < pool->n_slots; i++)
        if (pool->slots[i].out.state == FL_SLOT_COPYING)
            return true;
    return false;
}

void fl_feed_seek(struct fl_pipeline *p, const struct fl_cursor *to)
{
    struct fl_pool *pool = p->pool;

    p->pending = NULL;
    p->filling = NULL;
    do { // a worker may ask for a stand-in until the last of them is idle
        drop_reads(p);
        pthread_mutex_lock(&pool->lock);
        p->retry = NULL;
        pthread_mutex_unlock(&pool->lock);
    } while (fl_read_pending(p->read));
    pthread_mutex_lock(&pool->lock);
    while (copying(pool))
        pthread_cond_wait(&pool->ready, &pool->lock);
    for (unsigned i = 0; i < pool->n_slots; i++)
        if (pool->slots[i].out.state != FL_SLOT_HELD) {
            if (pool->slots[i].out.state != FL_SLOT_FREE)
                fl_gpu_decode_release(p, &pool->slots[i]);
            pool->slots[i].out.state = FL_SLOT_FREE;
        }
    for (unsigned i = 0; pool->outputs && i < pool->n_outputs; i++)
        if (pool->outputs[i].state == FL_SLOT_READY)
            pool->outputs[i].state = FL_SLOT_FREE;
    p->feed = p->next = *to;
    p->want = p->upload_seq = p->feed_seq;
    p->feed_ended = p->settings->cfg.epochs && to->epoch >= p->settings->cfg.epochs;
    p->epoch_bad = p->epoch_seen = 0;
    p->stalled.code = 0;
    p->seek = false;
    pthread_cond_broadcast(&pool->ready);
    pthread_mutex_unlock(&pool->lock);
}

static void report(struct fl_pipeline *p, int err)
{
    pthread_mutex_lock(&p->pool->lock);
    if (err == FL_ERR(ETIMEDOUT))
        p->stalled = *fl_last_error();
    else
        p->fatal = *fl_last_error();
    pthread_cond_broadcast(&p->pool->ready);
    pthread_mutex_unlock(&p->pool->lock);
}

/* The ring is closed by the thread that opened it, when the workers have let go of its memory. */
static void wait_for_end(struct fl_pipeline *p)
{
    pthread_mutex_lock(&p->pool->lock);
    while (!p->feeder_stop)
        pthread_cond_wait(&p->pool->ready, &p->pool->lock);
    pthread_mutex_unlock(&p->pool->lock);
    if (!fl_read_close(&p->read))
        p->pool->poisoned = true;
}

void *fl_feed_run(void *arg)
{
    struct fl_pipeline *p = arg;
    int err = 0;

    while (!atomic_load_explicit(&p->stop, memory_order_acquire)) {
        pthread_mutex_lock(&p->pool->lock);
        const bool seek = p->seek;
        const struct fl_cursor to = p->seek_to;
        pthread_mutex_unlock(&p->pool->lock);
        if (seek)
            fl_feed_seek(p, &to);
        err = fl_feed_turn(p, INT64_MAX);
        if (err)
            report(p, err);
        if (err && err != FL_ERR(ETIMEDOUT))
            break;
    }
    wait_for_end(p);
    return NULL;
}
