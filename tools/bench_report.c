/* SPDX-License-Identifier: Apache-2.0 */
/* What was measured, for people and for machines. */
#include "bench.h"
#include "json.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static double per_second(double n, const struct bench_result *r)
{
    return r->seconds > 0 ? n / r->seconds : 0;
}

/* Step time by all the time there was; on a GPU by its own clock. */
static double utilisation(const struct bench_result *r)
{
    if (r->gpu.steps > 0)
        return r->gpu.span > 0 ? r->gpu.busy / r->gpu.span : 0;
    return r->seconds > 0 ? r->step_seconds / r->seconds : 0;
}

static double share(double part, const FlStageStats *s, const struct bench_result *r)
{
    const double all = r->seconds * (s->threads > 0 ? s->threads : 1);

    // A wait counts when it ends, also what of it lay before the measurement.
    return all > part ? part / all : all > 0;
}

/* Share of the time that the consumer waited for batches: on a GPU its stream, since the host is ahead of it. */
static double waiting(const struct bench *b, const struct bench_result *r)
{
    if (b->step_ms > 0 && r->gpu.span > 0)
        return r->gpu.idle / r->gpu.span;
    return r->seconds > 0 ? r->stats.stall_seconds / r->seconds : 0;
}

/* The stage that next() waited for most; the consumer if it hardly waited. */
static FlStage limiting(const struct bench *b, const struct bench_result *r)
{
    FlStage most = FL_STAGE_PLAN;

    for (int i = 0; i < FL_STAGE_CONSUMER; i++)
        if (r->stats.stages[i].stall > r->stats.stages[most].stall)
            most = (FlStage)i;
    return waiting(b, r) < 0.02 ? FL_STAGE_CONSUMER : most;
}

/* One plain sentence that names the limiting stage and what would help. */
static void sentence(const struct bench *b, const struct bench_result *r, char *out, size_t size)
{
    const FlLoaderStats *s = &r->stats;
    const FlStage stage = limiting(b, r);
    const FlStageStats *l = &s->stages[stage];
    const double stalled = 100 * waiting(b, r);
    const double busy = 100 * share(l->busy, l, r);
    char rate[16];

    switch (stage) {
    case FL_STAGE_READ:
        snprintf(out, size,
                 "Reading limits: the storage gave %s/s with %d reads in flight, and the consumer "
                 "waited for it %.0f%% of the time.",
                 cli_bytes(rate, per_second((double)s->bytes_read, r)), s->io_depth, stalled);
        break;
    case FL_STAGE_DECODE:
    case FL_STAGE_AUGMENT:
        snprintf(
            out, size,
            "Decoding limits: its %d worker%s busy %.0f%% of the time; more cores%s would help.",
            l->threads, l->threads == 1 ? " was" : "s were",
            100 * share(s->stages[FL_STAGE_DECODE].busy + s->stages[FL_STAGE_AUGMENT].busy, l, r),
            b->sliced + b->entered < b->info.n_samples
                ? ", or sliced shards made by `feedline shard`, or entry points,"
                : "");
        break;
    case FL_STAGE_DEVICE:
        if (s->decoded_gpu > 0) {
            snprintf(out, size,
                     "Decoding on the GPU limits: the loader's kernels ran %.0f%% of the time.",
                     r->seconds > 0 ? 100 * s->kernel_seconds / r->seconds : 0);
            break;
        }
        snprintf(out, size,
                 "The copy to the device limits: it was busy %.0f%% of the time, moving %s/s.",
                 busy, cli_bytes(rate, per_second((double)l->bytes, r)));
        break;
    case FL_STAGE_CONSUMER:
        snprintf(out, size,
                 "The consumer limits: a batch was ready nearly every time, and it waited %.1f%% "
                 "of the time.",
                 stalled);
        break;
    default:
        snprintf(out, size, "The %s stage limits: it was busy %.0f%% of the time.",
                 fl_stage_name(stage), busy);
        break;
    }
}

static void describe_batches(const struct bench *b, char *out, size_t size)
{
    static const char *const shuffles[] = { "dataset order", "global shuffle", "block shuffle" };
    static const char *const crops[] = { "stretched", "random crop", "centre crop" };
    const FlColumnConfig *c = &b->cfg.columns[0];

    if (c->kind == FL_COLUMN_IMAGE)
        snprintf(out, size, "%" PRId64 " x %d x %d %s %s, %s%s, %s", b->cfg.batch_size,
                 c->image.width, c->image.height, fl_dtype_name(c->image.dtype),
                 c->image.layout == FL_NHWC ? "NHWC" : "NCHW", crops[c->image.crop],
                 c->image.exact == FL_ON ? " (exact)" : "", shuffles[b->cfg.shuffle]);
    else
        snprintf(out, size, "%" PRId64 " x %s of field \"%s\", %s", b->cfg.batch_size,
                 c->kind == FL_COLUMN_RAW ? "raw records" : "bytes", c->field,
                 shuffles[b->cfg.shuffle]);
}

static void print_setting(const struct bench *b, const struct bench_result *r)
{
    static const char *const direct[] = { "buffered", "O_DIRECT", "partly O_DIRECT" };
    const FlLoaderStats *s = &r->stats;
    char text[256], n[32], bytes[16];

    describe_batches(b, text, sizeof(text));
    printf("dataset   %s: %s, %s samples, %s in \"%s\"", b->path, b->info.kind,
           cli_count(n, b->info.n_samples), cli_bytes(bytes, (double)b->field_bytes), b->field);
    if (b->sliced)
        printf(", %s sliced", cli_count(n, b->sliced));
    if (b->entered)
        printf(", %s with entry points", cli_count(n, b->entered));
    printf("\n");
    printf("batches   %s, on %s\n", text,
           b->cfg.device.type == FL_DEVICE_CUDA ? r->gpu_info.name : "the CPU");
    printf("loader    %d workers, %s (%s, depth %d), %s of memory\n", s->n_workers, s->io_backend,
           direct[s->io_direct >= 0 && s->io_direct <= 2 ? s->io_direct : 0], s->io_depth,
           cli_bytes(bytes, (double)s->memory_budget));
    if (s->io_reason[0] && strcmp(s->io_backend, "io_uring"))
        printf("          %s\n", s->io_reason);
    printf("storage   %s: ", b->cold ? "cold" : r->resident > 0.9 ? "page cache" : "not cold");
    if (r->resident >= 0)
        printf("%.0f%% of the data was in the page cache at the start", 100 * r->resident);
    else
        printf("the page cache could not be asked");
    if (r->drive_bytes >= 0)
        printf("; %s came from the drive", cli_bytes(bytes, (double)r->drive_bytes));
    if (s->cached_bytes)
        printf("\n          cached reads: by the workers, %.0f%% of all bytes, %.1f GB/s of each",
               s->bytes_read ? 100 * (double)s->cached_bytes / (double)s->bytes_read : 0,
               s->cached_seconds > 0 ? (double)s->cached_bytes * 1e-9 / s->cached_seconds : 0);
    printf("\n\n");
}

/* A step's mean length, beside the loader's own kernels. */
static double step_seconds(const struct bench_result *r)
{
    return r->gpu.steps > 0 ? r->gpu.busy / (double)r->gpu.steps : 0;
}

/* Compressed pictures travel among the decoder's kernels: there is no time that is the copies' alone. */
static bool copies_timed(const struct bench_result *r)
{
    return r->stats.decoded_gpu == 0 && r->stats.h2d_seconds > 0;
}

/* GB/s of the copies to the device while they ran, by the device's clock. */
static double copy_rate(const struct bench_result *r)
{
    const FlLoaderStats *s = &r->stats;

    return (double)s->stages[FL_STAGE_DEVICE].bytes * 1e-9 / s->h2d_seconds;
}

static void print_gpu(const struct bench *b, const struct bench_result *r)
{
    if (b->cfg.device.type != FL_DEVICE_CUDA)
        return;
    if (b->step_ms > 0 && r->gpu.steps > 0)
        printf("%-22s %.1f ms in all, %.2f ms at most; a step took %.2f ms, %.1f%% longer than "
               "alone\n",
               "waits between steps", r->gpu.idle * 1e3, r->gpu.longest * 1e3,
               step_seconds(r) * 1e3,
               r->gpu.step > 0 ? 100 * (step_seconds(r) / r->gpu.step - 1) : 0);
    if (copies_timed(r))
        printf("%-22s %.2f GB/s while they ran: %.3f of plain pinned copies as seldom (%.2f GB/s), "
               "%.3f of such back to back (%.2f)\n",
               "copies to the device", copy_rate(r),
               r->single_copy > 0 ? copy_rate(r) / r->single_copy : 0, r->single_copy,
               r->plain_copy > 0 ? copy_rate(r) / r->plain_copy : 0, r->plain_copy);
    else
        printf("%-22s %.2f GB/s on average, compressed pictures included\n", "bytes to the device",
               per_second((double)r->stats.stages[FL_STAGE_DEVICE].bytes, r) * 1e-9);
    printf("%-22s %.2f%% of the time\n", "our kernels on the GPU",
           r->seconds > 0 ? 100 * r->stats.kernel_seconds / r->seconds : 0);
}

static double cpu_per_gb(const struct bench_result *r)
{
    return r->stats.bytes_read ? r->cpu_seconds * 1e9 / (double)r->stats.bytes_read : 0;
}

static void print_drive(const struct bench_result *r)
{
    const double ours = per_second((double)r->stats.bytes_read, r);
    const struct drive *d = &r->drive;
    char rate[16], piece[16];

    if (!d->files)
        return;
    printf("%-22s %s/s: plain reads of %s at random, %d at once%s; feedline read at %.3f of it\n",
           "the drive alone", cli_bytes(rate, d->rate), cli_bytes(piece, (double)d->piece),
           d->threads, d->direct ? "" : ", through the page cache",
           d->rate > 0 ? ours / d->rate : 0);
}

static void print_figures(const struct bench *b, const struct bench_result *r)
{
    const FlLoaderStats *s = &r->stats;
    const double n = r->samples ? (double)r->samples : 1;
    char a[32], c[16], d[16];

    printf("%-22s %s\n", "samples/s",
           cli_count(a, (int64_t)(per_second((double)r->samples, r) + 0.5)));
    printf(
        "%-22s %.1f   %s a sample, of %s stored\n", "MB/s read",
        per_second((double)s->bytes_read, r) * 1e-6, cli_bytes(c, (double)s->bytes_read / n),
        cli_bytes(d, b->info.n_samples ? (double)b->field_bytes / (double)b->info.n_samples : 0));
    printf("%-22s %.1f\n", "MB/s delivered", per_second((double)r->delivered, r) * 1e-6);
    printf("%-22s %.3f\n", "CPU s/1,000 samples", r->cpu_seconds * 1000 / n);
    printf("%-22s %.1f%% of one core, %.4f s for each GB read\n", "processor time",
           100 * per_second(r->cpu_seconds, r), cpu_per_gb(r));
    print_drive(r);
    printf("%-22s %.3f s\n", "first batch", r->first_batch);
    if (b->step_ms > 0)
        printf("%-22s %.1f%%   steps of %.1f ms\n", "accelerator use", 100 * utilisation(r),
               b->step_ms);
    print_gpu(b, r);
    if (r->stats.bad_samples)
        printf("%-22s %s\n", "bad samples", cli_count(a, r->stats.bad_samples));
    if (r->samples != r->valid)
        printf("%-22s %s\n", "holes", cli_count(a, r->samples - r->valid));
    printf("%-22s %.2f s, %" PRId64 " batches, %s samples; %s\n\n", "measured", r->seconds,
           r->batches, cli_count(a, r->samples),
           r->warm ? "the warm-up is left out" : "with the warm-up");
}

void bench_print(const struct bench *b, const struct bench_result *r)
{
    char text[320];

    print_setting(b, r);
    print_figures(b, r);
    printf("%-9s %8s %8s %8s %9s %9s\n", "stage", "threads", "busy", "wait in", "wait out",
           "stalled");
    for (int i = 0; i < FL_N_STAGES; i++) {
        const FlStageStats *s = &r->stats.stages[i];
        if (s->threads == 0 && s->busy == 0)
            continue;
        printf("%-9s %8d %7.1f%% %7.1f%% %8.1f%% %7.2f s\n", fl_stage_name((FlStage)i), s->threads,
               100 * share(s->busy, s, r), 100 * share(s->wait_in, s, r),
               100 * share(s->wait_out, s, r), s->stall);
    }
    sentence(b, r, text, sizeof(text));
    printf("\n%s\n", text);
    if (r->interrupted)
        printf("(interrupted: the figures are of what had been measured)\n");
}

static void json_dataset(struct json *j, const struct bench *b, const struct bench_result *r)
{
    const FlLoaderStats *s = &r->stats;
    char text[256];

    json_string(j, "version", fl_version());
    json_string(j, "build", fl_build_info());
    json_string(j, "dataset", b->path);
    json_string(j, "kind", b->info.kind);
    json_int(j, "dataset_samples", b->info.n_samples);
    json_int(j, "dataset_bytes", (int64_t)b->field_bytes);
    json_int(j, "sliced", b->sliced);
    json_int(j, "entry_points", b->entered);
    describe_batches(b, text, sizeof(text));
    json_string(j, "batches_of", text);
    json_int(j, "batch_size", b->cfg.batch_size);
    json_string(j, "device", b->cfg.device.type == FL_DEVICE_CUDA ? r->gpu_info.name : "cpu");
    json_int(j, "workers", s->n_workers);
    json_string(j, "io", s->io_backend);
    json_string(j, "io_reason", s->io_reason);
    json_int(j, "io_direct", s->io_direct);
    json_int(j, "io_depth", s->io_depth);
    json_string(j, "codec", s->codec);
    json_int(j, "memory_budget", (int64_t)s->memory_budget);
    json_bool(j, "huge_pages", s->huge_pages > 0);
    json_int(j, "numa_node", s->numa_node);
    json_int(j, "pinned_bytes", (int64_t)s->pinned_bytes);
    json_int(j, "device_bytes", (int64_t)s->device_bytes);
    json_int(j, "memory_high_water", (int64_t)s->memory_high_water);
    json_bool(j, "cold", b->cold);
    json_real(j, "resident_at_start", r->resident);
    json_int(j, "drive_bytes", r->drive_bytes);
}

static void json_figures(struct json *j, const struct bench *b, const struct bench_result *r)
{
    const FlLoaderStats *s = &r->stats;

    json_bool(j, "warmup_left_out", r->warm);
    json_bool(j, "interrupted", r->interrupted);
    json_real(j, "seconds", r->seconds);
    json_int(j, "samples", r->samples);
    json_int(j, "valid", r->valid);
    json_int(j, "bad_samples", r->stats.bad_samples);
    json_int(j, "batches", r->batches);
    json_int(j, "epochs", r->epochs);
    json_real(j, "samples_per_second", per_second((double)r->samples, r));
    json_int(j, "bytes_read", (int64_t)s->bytes_read);
    json_int(j, "reads", s->reads);
    json_int(j, "bytes_wanted", (int64_t)s->bytes_wanted);
    json_int(j, "cached_reads", s->cached_reads);
    json_int(j, "cached_bytes", (int64_t)s->cached_bytes);
    json_real(j, "cached_seconds", s->cached_seconds);
    json_int(j, "bytes_delivered", (int64_t)r->delivered);
    json_int(j, "decoded_cpu", s->decoded_cpu);
    json_int(j, "decoded_gpu", s->decoded_gpu);
    json_int(j, "left_kind", s->left_kind);
    json_int(j, "left_balance", s->left_balance);
    json_int(j, "left_room", s->left_room);
    json_int(j, "left_again", s->left_again);
    json_real(j, "cpu_seconds", r->cpu_seconds);
    json_real(j, "cpu_seconds_per_gb_read", cpu_per_gb(r));
    if (r->drive.files) {
        json_bool(j, "drive_direct", r->drive.direct);
        json_int(j, "drive_piece", (int64_t)r->drive.piece);
        json_real(j, "drive_bytes_per_second", r->drive.rate);
        json_real(j, "drive_ratio",
                  r->drive.rate > 0 ? per_second((double)s->bytes_read, r) / r->drive.rate : 0);
    }
    json_real(j, "first_batch_seconds", r->first_batch);
    json_real(j, "step_ms", b->step_ms);
    json_real(j, "step_seconds", r->step_seconds);
    json_real(j, "stall_seconds", s->stall_seconds);
    json_real(j, "accelerator_utilisation", utilisation(r));
    if (r->gpu.steps > 0) {
        json_real(j, "gpu_idle_seconds", r->gpu.idle);
        json_real(j, "gpu_longest_wait_seconds", r->gpu.longest);
        json_real(j, "gpu_step_alone_seconds", r->gpu.step);
        json_real(j, "gpu_step_seconds", step_seconds(r));
    }
    if (b->cfg.device.type == FL_DEVICE_CUDA) {
        json_int(j, "bytes_to_device", (int64_t)s->stages[FL_STAGE_DEVICE].bytes);
        if (copies_timed(r))
            json_real(j, "copy_gb_per_second", copy_rate(r));
        json_real(j, "plain_copy_gb_per_second", r->plain_copy);
        json_real(j, "single_copy_gb_per_second", r->single_copy);
        json_real(j, "gpu_kernel_seconds", s->kernel_seconds);
        json_real(j, "gpu_kernel_share", r->seconds > 0 ? s->kernel_seconds / r->seconds : 0);
    }
}

void bench_print_json(const struct bench *b, const struct bench_result *r, FILE *to)
{
    struct json j = { .to = to };
    char text[320];

    json_open(&j, NULL, '{');
    json_dataset(&j, b, r);
    json_figures(&j, b, r);
    json_open(&j, "stages", '{');
    for (int i = 0; i < FL_N_STAGES; i++) {
        const FlStageStats *t = &r->stats.stages[i];
        json_open(&j, fl_stage_name((FlStage)i), '{');
        json_int(&j, "threads", t->threads);
        json_real(&j, "busy", t->busy);
        json_real(&j, "wait_in", t->wait_in);
        json_real(&j, "wait_out", t->wait_out);
        json_real(&j, "stall", t->stall);
        json_int(&j, "items", t->items);
        json_int(&j, "bytes", (int64_t)t->bytes);
        json_close(&j, '}');
    }
    json_close(&j, '}');
    json_string(&j, "limiting", fl_stage_name(limiting(b, r)));
    sentence(b, r, text, sizeof(text));
    json_string(&j, "sentence", text);
    json_close(&j, '}');
}
