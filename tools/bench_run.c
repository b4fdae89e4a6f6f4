/* SPDX-License-Identifier: Apache-2.0 */
/* The measurement: one consumer that takes batches, spends a step on each, and gives them back. */
#define _DEFAULT_SOURCE // isatty, getrusage
#include "bench.h"

#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

struct run {
    const struct bench *b;
    struct bench_result *r;
    FlLoader *loader;
    struct bench_gpu *gpu;       // NULL for batches in host memory
    void *stream;                // the consumer's, NULL for the same
    FlLoaderStats begin;         // at the end of the warm-up
    double opened, first, began; // now() scale; first: the first batch was there
    double cpu_at_begin, shown_at;
    int64_t drive_at_begin;
    int64_t warmup_left;
};

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static double cpu_seconds(void)
{
    struct rusage u;

    if (getrusage(RUSAGE_SELF, &u))
        return 0;
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
}

/* The step that the batch is for: a wait that ends step_ms milliseconds after it began. */
static double step(double milliseconds)
{
    const double begin = now(), end = begin + milliseconds * 1e-3;
    struct timespec until = { (time_t)end, (long)((end - (double)(time_t)end) * 1e9) };

    if (milliseconds <= 0)
        return 0;
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) && !bench_interrupted())
        ;
    return now() - begin;
}

static uint64_t batch_bytes(const FlBatch *batch)
{
    uint64_t sum = 0;

    for (int32_t i = 0; i < batch->n_columns; i++) {
        const FlColumn *c = &batch->columns[i];
        uint64_t n = fl_dtype_bytes(c->dtype);
        for (int32_t k = 0; k < c->ndim; k++)
            n *= (uint64_t)c->shape[k];
        sum += n;
    }
    return sum;
}

static void start_measuring(struct run *run, bool warm)
{
    struct bench_result *r = run->r;

    r->samples = r->valid = r->batches = 0;
    r->delivered = 0;
    r->step_seconds = 0;
    r->warm = warm;
    run->began = now();
    run->cpu_at_begin = cpu_seconds();
    run->drive_at_begin = bench_drive_bytes();
    run->begin = (FlLoaderStats){ .struct_size = sizeof(FlLoaderStats) };
    fl_loader_stats(run->loader, &run->begin);
    if (run->gpu)
        bench_gpu_begin(run->gpu);
}

static void show(struct run *run)
{
    const double t = now();
    const struct bench_result *r = run->r;
    char rate[32];

    if (!run->b->live || t - run->shown_at < 0.2)
        return;
    run->shown_at = t;
    cli_count(rate, t > run->began ? (int64_t)((double)r->samples / (t - run->began)) : 0);
    fprintf(stderr, "\r\033[K%5.1f s  epoch %lld  %s samples/s%s", t - run->opened,
            (long long)r->epochs + 1, rate, run->warmup_left > 0 ? "  (warm-up)" : "");
    fflush(stderr);
}

/* A warm-up takes a quarter of a run of so many seconds at most: slow machines, large batches. */
static bool long_warmup(const struct run *run)
{
    return run->b->seconds > 0 && now() - run->first > run->b->seconds / 4;
}

/* Take one batch, use it, give it back. Returns 0, FL_EPOCH_END or an error. */
static int take(struct run *run)
{
    struct bench_result *r = run->r;
    FlBatch batch = { 0 };
    const int err = fl_loader_next(run->loader, &batch, run->stream);

    if (err)
        return err;
    if (r->first_batch == 0) {
        run->first = now();
        r->first_batch = run->first - run->opened;
    }
    if (run->gpu)
        bench_gpu_step(run->gpu); // put on the stream: only batches and the GPU can make it wait
    else
        r->step_seconds += step(run->b->step_ms);
    r->samples += batch.size;
    r->valid += batch.n_valid;
    r->delivered += batch_bytes(&batch);
    r->batches++;
    if (run->warmup_left > 0 && (--run->warmup_left == 0 || long_warmup(run))) {
        run->warmup_left = 0;
        start_measuring(run, true);
    }
    return fl_batch_release(&batch, run->stream);
}

static int drop_cache(const struct bench *b)
{
    const int err = b->cold ? bench_drop_cache(b) : 0;

    return err ? cli_failed("bench", "--cold: the page cache of %s cannot be dropped: %s", b->path,
                            strerror(err))
               : 0;
}

static int consume(struct run *run)
{
    const struct bench *b = run->b;
    const struct bench_result *r = run->r;
    int err = 0;

    // One batch at least, however slow the machine is.
    while (!bench_interrupted() &&
           (b->seconds == 0 || r->batches == 0 || now() - run->first < b->seconds)) {
        err = take(run);
        if (err < 0)
            return cli_last_error("bench");
        show(run);
        if (err != FL_EPOCH_END)
            continue;
        run->r->epochs++;
        if (b->cfg.epochs && run->r->epochs >= b->cfg.epochs)
            break;
        if (drop_cache(b))
            return 1;
    }
    return 0;
}

/* What the counters gained since the warm-up. */
static void subtract(FlLoaderStats *s, const FlLoaderStats *from)
{
    for (int i = 0; i < FL_N_STAGES; i++) {
        s->stages[i].busy -= from->stages[i].busy;
        s->stages[i].wait_in -= from->stages[i].wait_in;
        s->stages[i].wait_out -= from->stages[i].wait_out;
        s->stages[i].items -= from->stages[i].items;
        s->stages[i].bytes -= from->stages[i].bytes;
        s->stages[i].stall -= from->stages[i].stall;
    }
    s->stall_seconds -= from->stall_seconds;
    s->cpu_seconds -= from->cpu_seconds;
    s->bytes_read -= from->bytes_read;
    s->bytes_wanted -= from->bytes_wanted;
    s->reads -= from->reads;
    s->cached_reads -= from->cached_reads;
    s->cached_bytes -= from->cached_bytes;
    s->cached_seconds -= from->cached_seconds;
    s->retries -= from->retries;
    s->decoded_cpu -= from->decoded_cpu;
    s->decoded_gpu -= from->decoded_gpu;
    s->left_kind -= from->left_kind;
    s->left_balance -= from->left_balance;
    s->left_room -= from->left_room;
    s->left_again -= from->left_again;
    s->h2d_seconds -= from->h2d_seconds;
    s->kernel_seconds -= from->kernel_seconds;
}

/* The consumer's stream on the GPU, with steps of the length that was asked for. */
static int open_gpu(struct run *run)
{
    const struct bench *b = run->b;
    char why[256] = "";

    if (b->cfg.device.type != FL_DEVICE_CUDA)
        return 0;
    if (bench_gpu_open(&run->gpu, b->cfg.device.ordinal, b->step_ms, why, sizeof(why))) {
        // Why there is no GPU the library says best.
        if (fl_loader_open(&run->loader, b->ds, &b->cfg))
            return cli_last_error("bench");
        fl_loader_close(&run->loader);
        return cli_failed("bench", "%s", why);
    }
    run->stream = bench_gpu_stream(run->gpu);
    bench_gpu_info(run->gpu, &run->r->gpu_info);
    return 0;
}

static void finish(struct run *run)
{
    struct bench_result *r = run->r;

    if (run->gpu) { // waits for the steps under way, so before the clock is read
        bench_gpu_end(run->gpu, &r->gpu);
        r->step_seconds = r->gpu.busy;
    }
    r->seconds = now() - run->began;
    r->cpu_seconds = cpu_seconds() - run->cpu_at_begin;
    r->drive_bytes = run->drive_at_begin < 0 ? -1 : bench_drive_bytes() - run->drive_at_begin;
    r->interrupted = bench_interrupted();
    r->stats.struct_size = sizeof(r->stats);
    fl_loader_stats(run->loader, &r->stats);
    subtract(&r->stats, &run->begin);
}

/* What the same bytes would need without us, on the same machine a moment later: back to back, and as seldom as the
 * batches came, since a link that has slept begins slowly. */
static void compare_copy(struct run *run)
{
    struct bench_result *r = run->r;
    const FlStageStats *s = &r->stats.stages[FL_STAGE_DEVICE];

    if (!run->gpu || s->items <= 0)
        return;
    const size_t bytes = (size_t)(s->bytes / (uint64_t)s->items);
    const double idle = (r->seconds - r->stats.h2d_seconds) / (double)s->items;
    r->plain_copy = bench_gpu_copy(run->gpu, bytes, 1, 0);
    r->single_copy = r->plain_copy;
    if (idle > 0)
        r->single_copy = bench_gpu_copy(run->gpu, bytes, 1, idle < 0.04 ? idle : 0.04);
}

/* The drive a moment later, asked for as much at a time as the loader asked for. */
static void compare_drive(struct run *run)
{
    const struct bench *b = run->b;
    const FlLoaderStats *s = &run->r->stats;

    if (b->compare_drive && s->reads > 0)
        drive_measure(
            &run->r->drive, b->ds,
            &(struct drive_options){ .root = b->info.path,
                                     .piece = (size_t)(s->bytes_read / (uint64_t)s->reads),
                                     .threads = s->io_depth,
                                     .seconds = 1 });
}

int bench_run(const struct bench *b, struct bench_result *r)
{
    struct run run = { .b = b, .r = r, .warmup_left = b->warmup };
    int err;

    *r = (struct bench_result){ 0 };
    if ((err = drop_cache(b)))
        return err;
    if ((err = open_gpu(&run)))
        return err;
    r->resident = bench_resident(b);
    run.opened = now();
    if (fl_loader_open(&run.loader, b->ds, &b->cfg)) {
        err = cli_last_error("bench");
        bench_gpu_close(&run.gpu);
        return err;
    }
    start_measuring(&run, b->warmup == 0);
    run.began = run.opened; // what a run without a warm-up counts from
    err = consume(&run);
    if (b->live)
        fprintf(stderr, "\r\033[K");
    finish(&run);
    fl_loader_close(&run.loader);
    compare_copy(&run);
    compare_drive(&run);
    bench_gpu_close(&run.gpu);
    if (!err && r->batches == 0)
        return cli_failed("bench", "interrupted before the first batch");
    return err;
}
