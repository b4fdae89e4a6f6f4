/* SPDX-License-Identifier: Apache-2.0 */
/* `feedline bench`: reads the line, makes the dataset ready, runs, prints. */
#define _GNU_SOURCE // nftw, mkdtemp
#include "bench.h"

#include <errno.h>
#include <ftw.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "commands.h"
#include "photos.h"

static volatile sig_atomic_t interrupted;

bool bench_interrupted(void)
{
    return interrupted != 0;
}

static void on_signal(int number)
{
    (void)number;
    interrupted = 1;
}

/* --verbose: what the loader decided, too. */
static void log_all(void *cookie, FlLogLevel level, const char *text)
{
    (void)cookie;
    if (level <= FL_LOG_INFO)
        fprintf(stderr, "feedline bench: %s\n", text);
}

static int progress(void *cookie, const FlProgress *p)
{
    return bench_interrupted() ? 1 : cli_progress(cookie, p);
}

/* As the user wrote it, where FlConfig wants something else. */
struct wishes {
    int64_t batch_size, epochs, photos;
    int32_t size;
    int shuffle, io, direct, checksum, decode, priority, dtype, layout, crop, bad;
    bool exact, evaluation, no_slice, no_flip, verbose;
    const char *device, *field;
    struct cli_bar bar;
    char scratch[PATH_MAX]; // folder of the synthetic dataset, "" if there is none
};

static const struct cli_choice shuffles[] = { { "none", FL_SHUFFLE_NONE },
                                              { "global", FL_SHUFFLE_GLOBAL },
                                              { "block", FL_SHUFFLE_BLOCK },
                                              { NULL, 0 } };
static const struct cli_choice ios[] = {
    { "auto", FL_IO_AUTO }, { "uring", FL_IO_URING }, { "pread", FL_IO_PREAD }, { NULL, 0 }
};
static const struct cli_choice switches[] = {
    { "auto", FL_AUTO }, { "on", FL_ON }, { "off", FL_OFF }, { NULL, 0 }
};
static const struct cli_choice decodes[] = {
    { "auto", FL_DECODE_AUTO }, { "cpu", FL_DECODE_CPU }, { "gpu", FL_DECODE_GPU }, { NULL, 0 }
};
static const struct cli_choice priorities[] = { { "low", FL_PRIORITY_LOW },
                                                { "high", FL_PRIORITY_HIGH },
                                                { NULL, 0 } };
static const struct cli_choice dtypes[] = {
    { "u8", FL_U8 }, { "f32", FL_F32 }, { "f16", FL_F16 }, { "bf16", FL_BF16 }, { NULL, 0 }
};
static const struct cli_choice layouts[] = { { "nhwc", FL_NHWC },
                                             { "nchw", FL_NCHW },
                                             { NULL, 0 } };
static const struct cli_choice crops[] = { { "random", FL_CROP_RANDOM_RESIZED },
                                           { "center", FL_CROP_CENTER },
                                           { "none", FL_CROP_NONE },
                                           { NULL, 0 } };
static const struct cli_choice bads[] = { { "raise", FL_BAD_RAISE },
                                          { "skip", FL_BAD_SKIP },
                                          { "substitute", FL_BAD_SUBSTITUTE },
                                          { NULL, 0 } };

static int parse(struct bench *b, struct wishes *w, int argc, char **argv, const char **path)
{
    const struct cli_option options[] = {
        CLI_OPTION("synthetic", CLI_FLAG, &b->synthetic,
                   "make photo-like JPEGs, shard them, and use those"),
        CLI_OPTION("photos", CLI_LONG, &w->photos, "how many --synthetic makes (1000)", .min = 1,
                   .max = 1e9),
        CLI_OPTION("no-slice", CLI_FLAG, &w->no_slice, "--synthetic: keep the JPEGs as they are"),
        CLI_OPTION(NULL, CLI_LABEL, NULL, "How long:"),
        CLI_OPTION("epochs", CLI_LONG, &w->epochs, "stop after so many epochs", .min = 1,
                   .max = 1e15),
        CLI_OPTION("seconds", CLI_REAL, &b->seconds,
                   "stop so many seconds after the first batch (10, if --epochs is not given)",
                   .min = 0.001, .max = 1e9),
        CLI_OPTION("warmup", CLI_INT, &b->warmup, "batches that are not measured (8)", .min = 0,
                   .max = 1e9),
        CLI_OPTION("step-ms", CLI_REAL, &b->step_ms,
                   "milliseconds that each batch's step takes, on a GPU as kernels (0)",
                   .arg = "MS", .min = 0, .max = 1e6),
        CLI_OPTION("consume", CLI_REAL, &b->step_ms, "the same", .arg = "MS", .min = 0, .max = 1e6),
        CLI_OPTION(NULL, CLI_LABEL, NULL, "Batches:"),
        CLI_OPTION("batch-size", CLI_LONG, &w->batch_size, "samples (256)", .min = 1, .max = 1e9),
        CLI_OPTION("field", CLI_STRING, &w->field, "field to load (the first with pictures)",
                   .arg = "NAME"),
        CLI_OPTION("size", CLI_INT, &w->size, "width and height of the output (224)", .min = 1,
                   .max = 16384),
        CLI_OPTION("crop", CLI_CHOICE, &w->crop, "(random)", .choices = crops),
        CLI_OPTION("no-flip", CLI_FLAG, &w->no_flip, "do not flip half of the pictures"),
        CLI_OPTION("exact", CLI_FLAG, &w->exact, "decode at full scale, as for evaluation"),
        CLI_OPTION("dtype", CLI_CHOICE, &w->dtype, "(u8)", .choices = dtypes),
        CLI_OPTION("layout", CLI_CHOICE, &w->layout, "(nhwc)", .choices = layouts),
        CLI_OPTION("shuffle", CLI_CHOICE, &w->shuffle, "(global)", .choices = shuffles),
        CLI_OPTION("seed", CLI_SEED, &b->cfg.seed, "of shuffle, crops and flips (0)"),
        CLI_OPTION("evaluation", CLI_FLAG, &w->evaluation,
                   "as for evaluation: in order, centre crop, exact, bad samples are errors"),
        CLI_OPTION(NULL, CLI_LABEL, NULL, "Bad samples:"),
        CLI_OPTION("bad", CLI_CHOICE, &w->bad, "samples that cannot be decoded (raise)",
                   .choices = bads),
        CLI_OPTION("exclude", CLI_STRING, &b->cfg.exclude_file,
                   "leave out the samples of a list that --bad-report or verify wrote",
                   .arg = "FILE"),
        CLI_OPTION("bad-report", CLI_STRING, &b->cfg.bad_report,
                   "append a line of JSON for each bad sample", .arg = "FILE"),
        CLI_OPTION(NULL, CLI_LABEL, NULL, "Resources:"),
        CLI_OPTION("workers", CLI_INT, &b->cfg.n_workers,
                   "decoding threads; 0: the caller's; -1: all processors (-1)", .min = -1,
                   .max = 4096),
        CLI_OPTION("memory", CLI_SIZE, &b->cfg.memory_limit,
                   "limit of all buffers (what is needed)"),
        CLI_OPTION("slots", CLI_INT, &b->cfg.host_slots, "batches in the making (automatic)",
                   .min = 0, .max = 1024),
        CLI_OPTION("device", CLI_STRING, &w->device, "cpu, cuda or cuda:N (cpu)", .arg = "DEVICE"),
        CLI_OPTION("decode", CLI_CHOICE, &w->decode, "where JPEGs are decoded (auto)",
                   .choices = decodes),
        CLI_OPTION("gpu-priority", CLI_CHOICE, &w->priority, "of the loader's kernels (high)",
                   .choices = priorities),
        CLI_OPTION("gpu-blocks", CLI_INT, &b->cfg.gpu_blocks,
                   "most thread blocks of a decoding kernel (no limit)", .min = 0, .max = 65535),
        CLI_OPTION(NULL, CLI_LABEL, NULL, "Reading:"),
        CLI_OPTION("io", CLI_CHOICE, &w->io, "(auto)", .choices = ios),
        CLI_OPTION("direct", CLI_CHOICE, &w->direct, "O_DIRECT (auto)", .choices = switches),
        CLI_OPTION("depth", CLI_INT, &b->cfg.depth, "reads in flight (automatic)", .min = 0,
                   .max = 65536),
        CLI_OPTION("cold", CLI_FLAG, &b->cold,
                   "drop the data from the page cache before each epoch"),
        CLI_OPTION("checksum", CLI_CHOICE, &w->checksum, "compare checksums (auto: on)",
                   .choices = switches),
        CLI_OPTION("drive", CLI_FLAG, &b->compare_drive,
                   "measure plain O_DIRECT reads of the same size too"),
        CLI_OPTION(NULL, CLI_LABEL, NULL, "Output:"),
        CLI_OPTION("json", CLI_FLAG, &b->json, "one JSON object in place of the table"),
        CLI_OPTION("save", CLI_STRING, &b->save, "write that object to FILE, beside the table",
                   .arg = "FILE"),
        CLI_OPTION("verbose", CLI_FLAG, &w->verbose, "say what the loader decided"),
    };
    const struct cli cli = {
        .command = "bench",
        .usage = "DATASET|--synthetic [OPTION ...]",
        .about = "Measure how fast batches come out of a dataset, and say which stage limits.",
        .options = options,
        .n_options = sizeof(options) / sizeof(options[0]),
        .args = path,
        .max_args = 1,
    };
    return cli_parse(&cli, argc, argv);
}

/* "cpu", "cuda", "cuda:N". */
static int parse_device(const char *text, FlDevice *device)
{
    char *end;
    long n = 0;

    *device = FL_CPU;
    if (!strcmp(text, "cpu"))
        return 0;
    if (!strncmp(text, "cuda", 4) && text[4] == ':' && text[5]) {
        n = strtol(text + 5, &end, 10);
        if (*end || n < 0 || n > 1023)
            return cli_wrong("bench", "--device wants cpu, cuda or cuda:N, not \"%s\"", text);
    } else if (strcmp(text, "cuda")) {
        return cli_wrong("bench", "--device wants cpu, cuda or cuda:N, not \"%s\"", text);
    }
    *device = FL_CUDA((int32_t)n);
    return 0;
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

/* Photos, and shards of them, in a folder that is removed in the end. */
static int make_synthetic(struct bench *b, struct wishes *w, char *shards, size_t size)
{
    const char *tmp = getenv("TMPDIR");
    char photos[PATH_MAX + 16];
    struct photos p = {
        .dir = photos, .count = w->photos, .classes = 8, .seed = 1, .bar = &w->bar
    };
    FlShardOptions opt = { .struct_size = sizeof(opt),
                           .no_slice = w->no_slice,
                           .progress = progress,
                           .progress_cookie = &w->bar };
    FlDataset *source = NULL;
    int err;

    snprintf(w->scratch, sizeof(w->scratch), "%s/feedline-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    if (!mkdtemp(w->scratch)) {
        const int code = errno;
        w->scratch[0] = '\0';
        return cli_failed("bench", "cannot make a folder in %s: %s", tmp && *tmp ? tmp : "/tmp",
                          strerror(code));
    }
    snprintf(photos, sizeof(photos), "%s/photos", w->scratch);
    snprintf(shards, size, "%s/shards", w->scratch);
    if (photos_write(&p, "bench"))
        return 1;
    err = fl_dataset_open(&source, photos, NULL);
    if (!err)
        err = fl_shard(source, shards, &opt, NULL);
    cli_bar_end(&w->bar);
    fl_dataset_close(&source);
    b->path = "synthetic photos";
    return err ? cli_last_error("bench") : 0;
}

/* The field to measure: the one asked for, else the first with pictures, else the first of bytes. */
static int choose_field(struct bench *b, const struct wishes *w)
{
    FlFieldInfo f, chosen = { 0 };

    for (int32_t i = 0; i < b->info.n_fields; i++) {
        if (fl_dataset_field(b->ds, i, &f))
            return cli_last_error("bench");
        if (w->field
                ? !strcmp(f.name, w->field)
                : f.kind == FL_FIELD_BYTES && (!chosen.name || (f.is_image && !chosen.is_image)))
            chosen = f;
    }
    if (!chosen.name && w->field)
        return cli_wrong("bench", "--field: %s has no field \"%s\"", b->path, w->field);
    if (!chosen.name || chosen.kind != FL_FIELD_BYTES)
        return cli_failed("bench", "%s has no field with bytes to load", b->path);
    b->field = chosen.name;
    b->field_bytes = chosen.bytes;
    b->sliced = chosen.sliced;
    b->entered = chosen.entry_points;
    return 0;
}

/* Are all samples' values of one length? Then they are read straight into the batch. */
static bool is_raw(const FlFieldInfo *f, int64_t samples)
{
    const size_t n = f->name ? strlen(f->name) : 0; // no name: there is no such field

    return n && f->count == samples && f->max_bytes > 0 &&
           f->bytes == f->max_bytes * (uint64_t)f->count &&
           (n < 3 || strcmp(f->name + n - 3, "zst"));
}

static int add_columns(struct bench *b, const struct wishes *w)
{
    const FlImage image = {
        .width = w->size,
        .height = w->size,
        .crop = (FlCrop)w->crop,
        .flip = w->no_flip || w->crop != FL_CROP_RANDOM_RESIZED ? 0 : 0.5F,
        .mean = FL_IMAGENET_MEAN,
        .std = FL_IMAGENET_STD,
        .dtype = (FlDtype)w->dtype,
        .layout = (FlLayout)w->layout,
        .exact = w->exact ? FL_ON : FL_AUTO,
    };
    FlFieldInfo f, chosen = { 0 };
    bool label = false;
    int err;

    for (int32_t i = 0; i < b->info.n_fields && !fl_dataset_field(b->ds, i, &f); i++) {
        if (!strcmp(f.name, b->field))
            chosen = f;
        label |= f.kind == FL_FIELD_INT && !strcmp(f.name, "cls");
    }
    const int64_t length = (int64_t)chosen.max_bytes;
    if (chosen.is_image)
        err = fl_config_image(&b->cfg, b->field, &image);
    else if (is_raw(&chosen, b->info.n_samples))
        err = fl_config_raw(&b->cfg, b->field, FL_U8, 1, &length);
    else
        err = fl_config_bytes(&b->cfg, b->field, 0);
    if (err >= 0 && label)
        err = fl_config_label(&b->cfg, "cls");
    if (err >= 0 && w->evaluation)
        fl_config_evaluation(&b->cfg);
    return err < 0 ? cli_last_error("bench") : 0;
}

static int prepare(struct bench *b, struct wishes *w, const char *path)
{
    char made[PATH_MAX + 16];
    FlDatasetOptions opt = FL_DATASET_OPTIONS_DEFAULT;
    int err;

    opt.progress = progress;
    opt.progress_cookie = &w->bar;
    opt.log = w->verbose ? log_all : cli_log;
    opt.log_cookie = "bench";
    b->path = path;
    if (b->synthetic && (err = make_synthetic(b, w, made, sizeof(made))))
        return err;
    err = fl_dataset_open(&b->ds, b->synthetic ? made : path, &opt);
    cli_bar_end(&w->bar);
    if (err || fl_dataset_info(b->ds, &b->info))
        return cli_last_error("bench");
    if ((err = choose_field(b, w)))
        return err;
    return add_columns(b, w);
}

static int save(const struct bench *b, const struct bench_result *r)
{
    FILE *f = fopen(b->save, "we");

    if (f)
        bench_print_json(b, r, f);
    if (!f || fclose(f))
        return cli_failed("bench", "--save %s: %s", b->save, strerror(errno));
    return 0;
}

static int measure(struct bench *b, struct wishes *w, const char *path)
{
    struct bench_result r;
    int err = prepare(b, w, path);

    if (!err)
        err = bench_run(b, &r);
    if (!err && b->json)
        bench_print_json(b, &r, stdout);
    else if (!err)
        bench_print(b, &r);
    if (!err && b->save)
        err = save(b, &r);
    fl_dataset_close(&b->ds);
    if (w->scratch[0])
        nftw(w->scratch, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    return err;
}

int command_bench(int argc, char **argv)
{
    struct bench b = { .cfg = FL_CONFIG_DEFAULT, .warmup = 8 };
    struct wishes w = { .batch_size = 256,
                        .photos = 1000,
                        .size = 224,
                        .shuffle = FL_SHUFFLE_GLOBAL,
                        .crop = FL_CROP_RANDOM_RESIZED,
                        .device = "cpu" };
    const char *path = NULL;
    const int parsed = parse(&b, &w, argc, argv, &path);
    const struct sigaction action = { .sa_handler = on_signal, .sa_flags = SA_RESETHAND };

    if (parsed < 0)
        return cli_exit(parsed);
    if ((parsed == 1) == b.synthetic)
        return cli_wrong("bench", parsed ? "give a dataset or --synthetic, not both"
                                         : "give a dataset, or --synthetic to have one made");
    if (parse_device(w.device, &b.cfg.device))
        return 2;
    if (!w.epochs && b.seconds == 0)
        b.seconds = 10;
    b.live = isatty(STDERR_FILENO);
    b.cfg.batch_size = w.batch_size;
    b.cfg.epochs = w.epochs;
    b.cfg.shuffle = (FlShuffle)w.shuffle;
    b.cfg.io = (FlIo)w.io;
    b.cfg.direct = (FlSwitch)w.direct;
    b.cfg.checksum = (FlSwitch)w.checksum;
    b.cfg.decode = (FlDecode)w.decode;
    b.cfg.gpu_priority = (FlPriority)w.priority;
    b.cfg.bad_sample = (FlBadSample)w.bad;
    b.cfg.log = w.verbose ? log_all : cli_log;
    b.cfg.log_cookie = "bench";
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    return measure(&b, &w, path);
}
