/* SPDX-License-Identifier: Apache-2.0 */
/* The consumer's side: the next batch in the planned order, and what it had to wait for. */
#include "pipeline.h"

#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/thread.h"

static unsigned n_outputs(const struct fl_pool *pool)
{
    return pool->outputs ? pool->n_outputs : pool->n_slots;
}

static struct fl_output *output(struct fl_pool *pool, unsigned i)
{
    return pool->outputs ? &pool->outputs[i] : &pool->slots[i].out;
}

static struct fl_output *find_ready(struct fl_pipeline *p)
{
    for (unsigned i = 0; i < n_outputs(p->pool); i++) {
        struct fl_output *out = output(p->pool, i);
        if (out->state == FL_SLOT_READY && out->seq == p->want)
            return out;
    }
    return NULL;
}

/* The stage that the wanted batch stands in, for the text of a time-out. */
static FlStage where_is(const struct fl_pipeline *p)
{
    for (unsigned i = 0; i < p->pool->n_slots; i++) {
        const struct fl_slot *s = &p->pool->slots[i];
        if (s->out.seq != p->want || s->out.state == FL_SLOT_FREE || s->out.state == FL_SLOT_HELD)
            continue;
        if (s->out.state != FL_SLOT_FILLING)
            return FL_STAGE_DEVICE;
        return p->queue.busy || p->queue.head ? FL_STAGE_DECODE : FL_STAGE_READ;
    }
    return FL_STAGE_PLAN;
}

/* Put the time waited, [from, to), down to the stages that the batch was in meanwhile. */
static void blame(struct fl_pipeline *p, const struct fl_output *out, int64_t from, int64_t to)
{
    const int64_t ends[] = { out->read_at, out->decoded_at, to };
    static const FlStage stages[] = { FL_STAGE_READ, FL_STAGE_DECODE, FL_STAGE_DEVICE };

    for (int i = 0; i < 3; i++) {
        int64_t end = ends[i] < to ? ends[i] : to;
        if (i == 1 && !p->device)
            end = to; // host batches are ready when they are decoded
        if (end <= from)
            continue;
        fl_meter_add(&p->meters[stages[i]].stall, end - from);
        from = end;
    }
}

/* What is to be said of a batch that is ready: its first bad sample, or too many of them. */
static int judge(struct fl_pipeline *p, const struct fl_output *out)
{
    const FlConfig *cfg = &p->settings->cfg;

    p->epoch_bad += out->bad + out->replaced; // a stand-in does not make a sample good
    p->epoch_seen += out->plan.samples;
    if (out->err.code && (cfg->bad_sample != FL_BAD_SKIP)) {
        FlError e = out->err;
        e.code = FL_ERR(EBADMSG);
        return fl_err_raise(&e);
    }
    if (cfg->max_bad && p->epoch_bad > cfg->max_bad)
        return fl_err(FL_ERR(EBADMSG), FL_STAGE_BATCH,
                      "%lld bad samples in epoch %lld, more than max_bad = %lld%s%.300s",
                      (long long)p->epoch_bad, (long long)out->plan.epoch, (long long)cfg->max_bad,
                      out->err.code ? "; one of them: " : "",
                      out->err.code ? out->err.message : "");
    if (cfg->max_bad_rate > 0 && p->epoch_seen >= 1000 &&
        (double)p->epoch_bad > cfg->max_bad_rate * (double)p->epoch_seen)
        return fl_err(FL_ERR(EBADMSG), FL_STAGE_BATCH,
                      "%lld of %lld samples of epoch %lld are bad, more than max_bad_rate = %g",
                      (long long)p->epoch_bad, (long long)p->epoch_seen, (long long)out->plan.epoch,
                      cfg->max_bad_rate);
    return 0;
}

/* Inline: one turn of the feeder's and the worker's part. The pool's lock is not held. False: there was
 * nothing to do. */
static bool pump(struct fl_pipeline *p)
{
    struct fl_sample *s = fl_queue_try_pop(&p->queue);
    int err = 0;

    if (!s) {
        err = fl_feed_turn(p, INT64_MAX);
        s = fl_queue_try_pop(&p->queue);
    }
    if (s) {
        fl_work_sample(&p->workers[0], s);
        fl_queue_done(&p->queue);
    }
    if (err && err != FL_ERR(ETIMEDOUT)) {
        pthread_mutex_lock(&p->pool->lock);
        p->fatal = *fl_last_error();
        pthread_mutex_unlock(&p->pool->lock);
    }
    return s != NULL || fl_read_pending(p->read);
}

/* No batch for too long, and the read stage has not said why: it cannot while it opens a file. */
static int stalled(struct fl_pipeline *p, int64_t waited)
{
    const int64_t limit = p->settings->cfg.stall_timeout_ms, opening = fl_read_opening(p->read);
    const FlStage stage = opening >= 0 ? FL_STAGE_READ : where_is(p);
    char path[4096];

    if (opening < 0 || fl_feed_path(p, (uint32_t)opening, path, sizeof(path)) < 0)
        return fl_err(FL_ERR(ETIMEDOUT), stage,
                      "no batch for %lld ms (stall_timeout_ms is %lld): it is in stage %s",
                      (long long)(waited / 1000000), (long long)limit, fl_stage_name(stage));
    const int code = fl_err(FL_ERR(ETIMEDOUT), stage,
                            "%.300s: opening it has not returned, no batch for %lld ms "
                            "(stall_timeout_ms is %lld)",
                            path, (long long)(waited / 1000000), (long long)limit);
    fl_err_at(fl_err_slot(), path, 0);
    return code;
}

/* Reasons not to go on waiting. Under the lock. */
static int give_up(struct fl_pipeline *p, int64_t waited, int64_t deadline)
{
    const int64_t limit = p->settings->cfg.stall_timeout_ms;

    if (atomic_load_explicit(&p->stop, memory_order_relaxed))
        return fl_err(FL_ERR(ECANCELED), FL_STAGE_CONSUMER, "the loader is being closed");
    if (p->fatal.code)
        return fl_err_raise(&p->fatal);
    if (p->stalled.code) {
        const FlError e = p->stalled;
        p->stalled.code = 0;
        return fl_err_raise(&e);
    }
    if (p->pool->held == n_outputs(p->pool))
        return fl_err(FL_ERR(EBUSY), FL_STAGE_CONSUMER,
                      "%u batches are held; release one, or raise %s (now %u)", p->pool->held,
                      p->device ? "device_slots" : "host_slots", n_outputs(p->pool));
    if (limit > 0 &&
        waited > 2 * limit * 1000000) // twice: the read stage knows more, it speaks first
        return stalled(p, waited);
    if (fl_now_ns() >= deadline)
        return FL_ERR(EAGAIN);
    return 0;
}

/* Wait for the wanted batch. Under the lock. */
static int wait_ready(struct fl_pipeline *p, int64_t deadline, struct fl_output **out)
{
    const int64_t t0 = fl_now_ns(), limit = p->settings->cfg.stall_timeout_ms;
    int err;

    while (!(*out = find_ready(p))) {
        if ((err = give_up(p, fl_now_ns() - t0, deadline)))
            return err;
        if (!p->n_workers) {
            pthread_mutex_unlock(&p->pool->lock);
            const bool idle = !pump(p);
            pthread_mutex_lock(&p->pool->lock);
            // With a device the batch may be on its way there already.
            if (idle && p->device && !find_ready(p))
                fl_cond_wait_until(&p->pool->ready, &p->pool->lock, fl_now_ns() + 1000000);
            continue;
        }
        int64_t until = deadline;
        if (limit > 0 && t0 + 2 * limit * 1000000 < until)
            until = t0 + 2 * limit * 1000000 + 1;
        fl_cond_wait_until(&p->pool->ready, &p->pool->lock, until);
    }
    const int64_t t1 = fl_now_ns();
    if (atomic_load_explicit(&p->first_batch_at, memory_order_relaxed))
        blame(p, *out, t0, t1);
    else
        atomic_store_explicit(&p->first_batch_at, t1, memory_order_relaxed);
    return 0;
}

static void recycle(struct fl_pipeline *p, struct fl_output *out)
{
    out->state = FL_SLOT_FREE;
    fl_read_wake(p->read);
    pthread_cond_broadcast(&p->pool->ready); // the device thread waits for device slots
}

/* Under the lock. *bad: the bad samples of the batch that was handed out, or raised; the caller's. */
static int take_next(struct fl_pipeline *p, FlBatch *batch, void *stream, int64_t deadline,
                     struct fl_bad **bad)
{
    const int64_t epochs = p->settings->cfg.epochs;
    struct fl_plan_batch plan;
    struct fl_output *out;
    struct fl_cursor c = p->next;
    int err;

    if (epochs && c.epoch >= epochs)
        return FL_EPOCH_END;
    if (!fl_plan_next(&p->plan, &c, &plan)) {
        p->next = c;
        p->epoch_bad = p->epoch_seen = 0;
        return FL_EPOCH_END;
    }
    if ((err = wait_ready(p, deadline, &out)))
        return err;
    if (out->device && !out->err.code && (err = fl_device_acquire(p->device, out->index, stream)))
        return err; // still ready: the caller may come again with another stream
    p->next = c;
    p->want++;
    err = judge(p, out);
    fl_bad_move(bad, &out->bad_rows);
    if (err) {
        if (out->device && !out->err.code)
            fl_device_release(p->device, out->index, stream);
        recycle(p, out);
        return err;
    }
    out->state = FL_SLOT_HELD;
    p->pool->held++;
    atomic_fetch_add_explicit(&p->pool->refs, 1,
                              memory_order_relaxed); // ours keeps it alive meanwhile
    fl_output_view(p->pool, out, batch);
    fl_meter_add(&p->meters[FL_STAGE_CONSUMER].items, 1);
    fl_meter_add(&p->meters[FL_STAGE_AUGMENT].items, out->plan.samples);
    return 0;
}

/* Bad samples of a batch (NULL: it was raised) into the report. The lock is not held; the error slot stays. */
static void report(struct fl_pipeline *p, struct fl_bad *bad, const FlBatch *batch)
{
    const FlError before = *fl_last_error();

    fl_report_batch(&p->report, &bad, batch);
    fl_err_raise(&before);
}

int fl_pipeline_next(struct fl_pipeline *p, FlBatch *batch, void *stream, int64_t deadline)
{
    struct fl_bad *bad = NULL;

    pthread_mutex_lock(&p->pool->lock);
    p->inside++;
    const int err = take_next(p, batch, stream, deadline, &bad);
    if (bad) {
        pthread_mutex_unlock(&p->pool->lock);
        report(p, bad, err ? NULL : batch);
        pthread_mutex_lock(&p->pool->lock);
    }
    if (--p->inside == 0)
        pthread_cond_broadcast(&p->pool->ready); // fl_pipeline_close() may wait for it
    pthread_mutex_unlock(&p->pool->lock);
    return err;
}

int fl_pipeline_seek(struct fl_pipeline *p, const struct fl_cursor *to)
{
    if (!p->n_workers) {
        fl_feed_seek(p, to);
        return 0;
    }
    pthread_mutex_lock(&p->pool->lock);
    p->seek = true;
    p->seek_to = *to;
    fl_read_wake(p->read);
    while (p->seek && !p->fatal.code)
        pthread_cond_wait(&p->pool->ready, &p->pool->lock);
    const int err = p->fatal.code ? fl_err_raise(&p->fatal) : 0;
    pthread_mutex_unlock(&p->pool->lock);
    return err;
}
