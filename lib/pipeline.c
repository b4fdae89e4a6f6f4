/* SPDX-License-Identifier: Apache-2.0 */
/* Opening and closing the stages, and their statistics. */
#include "pipeline.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "balance.h"
#include "base/thread.h"
#include "index/badlist.h"
#include "index/dataset.h"
#include "jpeg/decode.h"

/* Two ascending lists of samples become one. */
static int join(struct fl_bad_ids *list, const int64_t *more, int64_t n)
{
    struct fl_bad_ids out = { .ids = malloc((size_t)(list->n + n) * sizeof(int64_t) + 1) };
    int64_t a = 0, b = 0;

    if (!out.ids)
        return fl_err(FL_ERR(ENOMEM), FL_STAGE_PLAN, "no memory for the exclusion list");
    while (a < list->n || b < n) {
        const bool first = b == n || (a < list->n && list->ids[a] <= more[b]);
        b += first && b < n && list->ids[a] == more[b];
        out.ids[out.n++] = first ? list->ids[a++] : more[b++];
    }
    free(list->ids);
    *list = out;
    return 0;
}

/* The samples that exclude_file names, by part. */
static int read_exclusions(const struct fl_settings *s, struct fl_bad_ids ids[FL_MIXTURE_PARTS])
{
    const FlDataset *sets[FL_MIXTURE_PARTS];

    if (!s->cfg.exclude_file)
        return 0;
    for (unsigned k = 0; k < s->n_parts; k++)
        sets[k] = s->parts[k].ds;
    return fl_bad_list_read(s->cfg.exclude_file, sets, s->n_parts, ids);
}

/* The order of one part, with the weights of a balanced draw made from the labels. */
static int part_order(const struct fl_settings *s, const struct fl_part *part,
                      struct fl_bad_ids *excluded, struct fl_order_cfg *cfg, double **balanced)
{
    const FlConfig *c = &s->cfg;
    const bool alone = s->n_parts == 1;
    int err = 0;

    *cfg =
        (struct fl_order_cfg){ .shuffle = c->shuffle,
                               .n = part->n,
                               .exclude = part->cfg.exclude ? part->cfg.exclude : c->exclude,
                               .n_exclude = part->cfg.exclude ? part->cfg.n_exclude : c->n_exclude,
                               .subset = part->cfg.subset ? part->cfg.subset : c->subset,
                               .n_subset = part->cfg.subset ? part->cfg.n_subset : c->n_subset,
                               .weights = c->weights,
                               .length = alone ? c->epoch_samples : 0,
                               .block = s->block,
                               .window = c->window };
    if (excluded->n) {
        if (cfg->n_exclude && (err = join(excluded, cfg->exclude, cfg->n_exclude)))
            return err;
        cfg->exclude = excluded->ids;
        cfg->n_exclude = excluded->n;
    }
    if (!c->balance[0])
        return 0;
    err = fl_balance_weights(part->ds, cfg, c->balance, balanced);
    cfg->weights = *balanced;
    return err;
}

static int open_sequence(struct fl_pipeline *p)
{
    const struct fl_settings *s = p->settings;
    const FlConfig *c = &s->cfg;
    struct fl_order_cfg orders[FL_MIXTURE_PARTS];
    struct fl_bad_ids excluded[FL_MIXTURE_PARTS] = { { 0 } };
    double weights[FL_MIXTURE_PARTS], *balanced = NULL; // balance: one part only
    int err = read_exclusions(s, excluded);

    for (unsigned k = 0; k < s->n_parts && !err; k++) {
        weights[k] = s->parts[k].cfg.weight;
        err = part_order(s, &s->parts[k], &excluded[k], &orders[k], &balanced);
    }
    if (!err)
        err =
            fl_sequence_init(&p->sequence, s->n_parts, orders, weights, c->epoch_samples, c->seed);
    free(balanced);
    for (unsigned k = 0; k < s->n_parts; k++)
        free(excluded[k].ids);
    return err;
}

static int open_order(struct fl_pipeline *p)
{
    const FlConfig *c = &p->settings->cfg;
    const int err = open_sequence(p);

    if (err)
        return err;
    p->plan = (struct fl_plan){ .n = p->sequence.n,
                                .batch = c->batch_size,
                                .rank = c->rank,
                                .world = c->world_size,
                                .tail = c->tail };
    if (c->tail == FL_TAIL_DROP && !fl_plan_batches(&p->plan, 0))
        return fl_err(
            FL_ERR(EINVAL), FL_STAGE_PLAN,
            "tail = drop leaves no batch: %lld samples are fewer than batch_size %lld times "
            "world_size %d",
            (long long)p->plan.n, (long long)c->batch_size, c->world_size);
    return 0;
}

static int open_read(struct fl_pipeline *p)
{
    const FlConfig *c = &p->settings->cfg;
    const struct fl_io_region region = { p->pool->columns.base, p->pool->columns.bytes,
                                         &p->pool->columns.touched };
    const struct fl_read_cfg cfg = {
        .io = c->io,
        .direct = c->direct,
        .depth = (unsigned)c->depth,
        .bytes = p->settings->read_bytes,
        .around = c->shuffle == FL_SHUFFLE_BLOCK
                      ? (uint64_t)c->block_bytes / 4
                      : 0, // of a block that two pieces share, less is read twice
        .inline_reads =
            p->settings->inline_all, // io = uring: the ring is the callers', one at a time
        .lend = p->n_workers > 1,    // one worker alone gains more from a thread that reads ahead
        .lazy = p->pool->lazy,
        .numa_node = p->settings->numa_node,
        .faults = p->settings->faults,
        .stall_timeout_ns = c->stall_timeout_ms * 1000000,
        .budget = &p->pool->budget,
        .regions = &region,
        .n_regions = 1,
        .source = fl_feed_source(p),
        .log = p->log
    };
    return fl_read_open(&p->read, &cfg);
}

static int open_workers(struct fl_pipeline *p)
{
    const unsigned n = p->n_workers ? p->n_workers : 1;
    uint64_t bytes = 0;
    int err;

    p->workers = calloc(n, sizeof(*p->workers));
    if (!p->workers)
        return fl_err(FL_ERR(ENOMEM), FL_STAGE_DECODE, "no memory for %u workers", n);
    for (unsigned i = 0; i < n; i++) {
        p->workers[i].pipeline = p;
        if ((err = fl_decode_open(&p->workers[i].decode, p->settings, &bytes)) ||
            (err = fl_budget_take(&p->pool->budget, bytes, "the workers' scratch")))
            return err;
    }
    return 0;
}

static int start_threads(struct fl_pipeline *p)
{
    char name[20]; // cut to 15 by the kernel
    int err = 0;

    for (; p->n_started < p->n_workers && !err; p->n_started += !err) {
        snprintf(name, sizeof(name), "fl-work-%u", p->n_started);
        err = fl_thread_start(&p->workers[p->n_started].thread, name, fl_work_run,
                              &p->workers[p->n_started]);
    }
    if (!err && p->device) {
        err = fl_thread_start(&p->device_thread, "fl-device", fl_upload_run, p);
        p->device_started = !err;
    }
    if (!err && p->n_workers) {
        err = fl_thread_start(&p->feeder, "fl-feed", fl_feed_run, p);
        p->feeder_started = !err;
    }
    if (!err)
        err = fl_touch_start(p);
    return err ? fl_err(err, FL_STAGE_PLAN, "cannot start a thread: %s", strerror(-err)) : 0;
}

static void say_hello(struct fl_pipeline *p)
{
    FlLoaderStats st = { .struct_size = sizeof(st) };

    fl_pipeline_stats(p, &st);
    fl_log(&p->log, FL_LOG_INFO,
           "%u workers, %u slots of %.1f MB, %.1f MB for reading, %.1f MB in all; rank %d of %d: "
           "%lld batches an epoch",
           p->n_workers, p->pool->n_slots, (double)p->settings->slot_bytes * 1e-6,
           (double)p->settings->read_bytes * 1e-6, (double)st.memory_budget * 1e-6,
           (int)p->plan.rank, (int)p->plan.world, (long long)fl_plan_batches(&p->plan, 0));
}

int fl_pipeline_open(struct fl_pipeline *p, const struct fl_settings *settings)
{
    int err;

    memset(p, 0, sizeof(*p));
    p->opened_at = fl_now_ns();
    pthread_mutex_init(&p->log_lock, NULL);
    p->log = (struct fl_log){ settings->cfg.log, settings->cfg.log_cookie, &p->log_lock };
    if ((err = fl_queue_init(&p->queue)) || (err = fl_pool_open(&p->pool, settings)))
        goto fail;
    p->settings = p->pool->settings;
    for (unsigned k = 0; k < p->settings->n_parts; k++)
        fl_dataset_retain(p->settings->parts[k].ds);
    p->n_workers = p->settings->n_workers;
    if ((err = open_order(p)) || (err = fl_report_open(&p->report, p->settings, &p->log)) ||
        (err = open_workers(p)) || (err = open_read(p)) ||
        (p->settings->cfg.device.type != FL_DEVICE_CPU && (err = fl_upload_open(p))))
        goto fail;
    p->pool->room = (void (*)(void *))fl_read_wake;
    p->pool->room_ctx = p->read;
    if ((err = start_threads(p)))
        goto fail;
    say_hello(p);
    return 0;
fail:;
    const FlError first = *fl_last_error(); // closing may make calls that fail
    fl_pipeline_close(p);
    fl_err_raise(&first);
    return err;
}

/* Workers first, since they hold read memory; the feeder closes the reader at the end. */
static void stop_threads(struct fl_pipeline *p)
{
    struct fl_pool *pool = p->pool;

    // Release: pairs with the threads' loads; a thread that sees it sees the loader as it is now.
    atomic_store_explicit(&p->stop, true, memory_order_release);
    fl_queue_close(&p->queue);
    if (!pool)
        return;
    pthread_mutex_lock(&pool->lock);
    pthread_cond_broadcast(&pool->ready);
    while (p->inside) // a consumer in another thread: it leaves with FL_ERR(ECANCELED)
        pthread_cond_wait(&pool->ready, &pool->lock);
    pool->room = NULL;
    pthread_mutex_unlock(&pool->lock);
    for (unsigned i = 0; i < p->n_started; i++)
        pthread_join(p->workers[i].thread, NULL);
    if (p->device_started)
        pthread_join(p->device_thread, NULL);
    if (p->toucher_started)
        pthread_join(p->toucher, NULL);
    if (!p->feeder_started)
        return;
    pthread_mutex_lock(&pool->lock);
    p->feeder_stop = true;
    fl_read_wake(p->read); // before the lock goes: then the feeder may close the reader
    pthread_cond_broadcast(&pool->ready);
    pthread_mutex_unlock(&pool->lock);
    pthread_join(p->feeder, NULL);
}

void fl_pipeline_close(struct fl_pipeline *p)
{
    stop_threads(p);
    if (p->read && !fl_read_close(&p->read)) // inline, or the threads never started
        p->pool->poisoned = true;
    if (p->device)
        fl_device_stop(p->device); // waits for what was issued
    fl_gpu_decode_close(p);
    for (unsigned i = 0; p->workers && i < (p->n_workers ? p->n_workers : 1); i++)
        fl_decode_close(&p->workers[i].decode);
    free(p->workers);
    fl_report_close(&p->report);
    fl_sequence_fini(&p->sequence);
    fl_queue_fini(&p->queue);
    for (unsigned k = 0; p->settings && k < p->settings->n_parts; k++)
        fl_dataset_release(p->settings->parts[k].ds);
    fl_pool_put(p->pool);
    pthread_mutex_destroy(&p->log_lock);
}

/* ---- statistics ---------------------------------------------------------------------------------- */

static int64_t cpu_of(pthread_t thread)
{
    struct timespec t;
    clockid_t clock;

    if (pthread_getcpuclockid(thread, &clock) || clock_gettime(clock, &t))
        return 0;
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void stage_stats(const struct fl_meter *m, FlStageStats *s)
{
    s->busy += (double)atomic_load_explicit(&m->busy, memory_order_relaxed) * 1e-9;
    s->wait_in += (double)atomic_load_explicit(&m->wait_in, memory_order_relaxed) * 1e-9;
    s->wait_out += (double)atomic_load_explicit(&m->wait_out, memory_order_relaxed) * 1e-9;
    s->stall = (double)atomic_load_explicit(&m->stall, memory_order_relaxed) * 1e-9;
    if (!s->items)
        s->items = atomic_load_explicit(&m->items, memory_order_relaxed);
}

static void limiting(FlLoaderStats *out)
{
    double most = 0;

    out->limiting = FL_STAGE_CONSUMER;
    for (int i = 0; i < FL_STAGE_CONSUMER; i++) {
        out->stall_seconds += out->stages[i].stall;
        if (out->stages[i].stall > most) {
            most = out->stages[i].stall;
            out->limiting = (FlStage)i;
        }
    }
}

static void memory_stats(const struct fl_pipeline *p, FlLoaderStats *out)
{
    const struct fl_budget *b = &p->pool->budget;
    struct fl_device_stats dev;

    out->memory_budget = atomic_load_explicit(&b->used, memory_order_relaxed);
    out->memory_limit = b->limit;
    // Slots and read memory count by what is in use of them, the rest as it was allocated.
    out->memory_high_water = atomic_load_explicit(&b->high_water, memory_order_relaxed) -
                             p->pool->columns.bytes - fl_read_arena(p->read).bytes +
                             atomic_load_explicit(&p->peak, memory_order_relaxed);
    out->huge_pages = p->pool->columns.huge;
    out->numa_node = p->pool->columns.node;
    if (!p->device)
        return;
    fl_device_stats(p->device, &dev);
    out->pinned_bytes = dev.pinned_bytes;
    out->device_bytes = dev.device_bytes + fl_gpu_decode_device_bytes(p);
    out->h2d_seconds = dev.h2d_seconds;
    out->kernel_seconds = dev.kernel_seconds;
    out->stages[FL_STAGE_DEVICE].bytes = dev.h2d_bytes + fl_gpu_decode_bytes(p);
}

void fl_pipeline_stats(struct fl_pipeline *p, FlLoaderStats *out)
{
    const size_t size = out->struct_size;
    const int64_t now = fl_now_ns(),
                  first = atomic_load_explicit(&p->first_batch_at, memory_order_relaxed);

    memset(out, 0, sizeof(*out));
    out->struct_size = size;
    fl_read_stats(p->read, out);
    for (int i = 0; i < FL_N_STAGES; i++)
        stage_stats(&p->meters[i], &out->stages[i]);
    out->batches = out->stages[FL_STAGE_CONSUMER].items;
    out->samples = out->stages[FL_STAGE_AUGMENT].items;
    out->bad_samples = atomic_load_explicit(&p->bad, memory_order_relaxed);
    out->substituted = atomic_load_explicit(&p->substituted, memory_order_relaxed);
    out->seconds = (double)(now - p->opened_at) * 1e-9;
    out->first_batch_seconds = first ? (double)(first - p->opened_at) * 1e-9 : 0;
    for (unsigned i = 0; i < p->n_started; i++)
        out->cpu_seconds += (double)cpu_of(p->workers[i].thread) * 1e-9;
    if (p->feeder_started)
        out->cpu_seconds += (double)cpu_of(p->feeder) * 1e-9;
    if (p->device_started)
        out->cpu_seconds += (double)cpu_of(p->device_thread) * 1e-9;
    out->stages[FL_STAGE_PLAN].threads = out->stages[FL_STAGE_READ].threads = p->feeder_started;
    out->stages[FL_STAGE_DECODE].threads = (int32_t)p->n_started;
    out->stages[FL_STAGE_DEVICE].threads = p->device_started;
    out->n_workers = (int32_t)p->n_workers;
    out->decoded_gpu = fl_gpu_decode_count(p);
    out->left_kind = fl_gpu_decode_left(p, FL_GPU_LEFT_KIND);
    out->left_balance = fl_gpu_decode_left(p, FL_GPU_LEFT_BALANCE);
    out->left_room = fl_gpu_decode_left(p, FL_GPU_LEFT_ROOM);
    out->left_again = fl_gpu_decode_left(p, FL_GPU_LEFT_AGAIN);
    out->decoded_cpu = atomic_load_explicit(&p->decoded, memory_order_relaxed);
    snprintf(out->codec, sizeof(out->codec), "%s", fl_jpeg_codec());
    memory_stats(p, out);
    limiting(out);
}
