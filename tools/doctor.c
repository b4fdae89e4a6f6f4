/* SPDX-License-Identifier: Apache-2.0 */
/* `feedline doctor`: one page on what this machine can do, and what stands in the way. */
#define _GNU_SOURCE // nftw, mkdtemp
#include "doctor.h"

#include <errno.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli.h"
#include "commands.h"
#include "drive.h"
#include "photos.h"

enum { SIDE = 224, BATCH = 16 };

struct decoding {
    bool done;
    char field[64];
    double one, all;     // pictures a second: in the caller's thread, with all workers
    double bytes;        // read for each picture
    FlLoaderStats stats; // of the run with all workers
};

struct doctor {
    const char *data;
    int32_t device;
    double seconds;
    char scratch[PATH_MAX]; // photos of our own, "" if there are none
    bool opened;            // the dataset: without it there is no page
    struct doctor_host host;
    struct drive drive;
    struct doctor_gpu gpu;
    struct decoding jpeg;
};

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- decoding: through the loader, as a trainer would ------------------------------------------- */

/* Pictures a second; 0 after one sentence about what failed. */
static double rate(FlDataset *ds, struct decoding *d, int32_t workers, double seconds)
{
    FlConfig cfg = FL_CONFIG_DEFAULT;
    const FlImage image = { .width = SIDE, .height = SIDE, .crop = FL_CROP_RANDOM_RESIZED };
    FlLoader *loader = NULL;
    FlBatch batch = { 0 };
    int64_t n = 0, batches = 0;
    int err = 0;

    cfg.batch_size = BATCH;
    cfg.shuffle = FL_SHUFFLE_GLOBAL;
    cfg.n_workers = workers;
    cfg.bad_sample = FL_BAD_SKIP;
    if (fl_config_image(&cfg, d->field, &image) < 0 || fl_loader_open(&loader, ds, &cfg)) {
        cli_last_error("doctor");
        return 0;
    }
    double begin = now(), t = begin;
    const double warm = begin + seconds / 4, end = begin + seconds;
    bool measuring = false;
    while (t < end || !batches) {
        err = fl_loader_next(loader, &batch, NULL);
        if (err < 0)
            break;
        t = now();
        if (measuring && !err) {
            n += batch.n_valid;
            batches++;
        }
        fl_batch_release(&batch, NULL);
        if (!measuring && t >= warm) { // from the end of a batch to the end of a batch
            measuring = true;
            begin = t;
        }
    }
    if (err < 0)
        cli_last_error("doctor");
    d->stats = (FlLoaderStats){ .struct_size = sizeof(d->stats) };
    fl_loader_stats(loader, &d->stats);
    fl_loader_close(&loader);
    return err < 0 || t <= begin ? 0 : (double)n / (t - begin);
}

/* The first field with pictures. */
static bool find_pictures(const FlDataset *ds, char field[64])
{
    FlDatasetInfo info;
    FlFieldInfo f;

    if (fl_dataset_info(ds, &info))
        return false;
    for (int32_t i = 0; i < info.n_fields; i++)
        if (!fl_dataset_field(ds, i, &f) && f.is_image) {
            snprintf(field, 64, "%s", f.name);
            return true;
        }
    return false;
}

static int make_photos(struct doctor *d)
{
    const char *tmp = getenv("TMPDIR");
    struct cli_bar bar = { .quiet = true };
    struct photos p = { .dir = d->scratch, .count = 128, .classes = 1, .seed = 1, .bar = &bar };

    snprintf(d->scratch, sizeof(d->scratch), "%s/feedline-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    if (!mkdtemp(d->scratch)) {
        const int code = errno;
        d->scratch[0] = '\0';
        return cli_failed("doctor", "cannot make a folder in %s: %s", tmp && *tmp ? tmp : "/tmp",
                          strerror(code));
    }
    return photos_write(&p, "doctor");
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

/* Drive and decoder; without data, photos made for the occasion tell of the decoder alone. */
static int look_at_data(struct doctor *d)
{
    FlDatasetOptions opt = FL_DATASET_OPTIONS_DEFAULT;
    FlDataset *ds = NULL;
    int err = d->data ? 0 : make_photos(d);

    if (err)
        return err;
    opt.log = cli_log;
    opt.log_cookie = (void *)"doctor";
    if (fl_dataset_open(&ds, d->data ? d->data : d->scratch, &opt))
        return cli_last_error("doctor");
    d->opened = true;
    if (d->data)
        drive_measure(&d->drive, ds,
                      &(struct drive_options){ .root = d->data, .seconds = d->seconds });
    if (find_pictures(ds, d->jpeg.field)) {
        d->jpeg.one = rate(ds, &d->jpeg, 0, d->seconds);
        d->jpeg.all = rate(ds, &d->jpeg, -1, d->seconds);
        d->jpeg.done = d->jpeg.one > 0 && d->jpeg.all > 0;
        const int64_t read = d->jpeg.stats.stages[FL_STAGE_DECODE].items;
        d->jpeg.bytes = read > 0 ? (double)d->jpeg.stats.bytes_read / (double)read : 0;
        err = d->jpeg.done ? 0 : 1;
    }
    fl_dataset_close(&ds);
    return err;
}

/* ---- the page ------------------------------------------------------------------------------------ */

static void print_host(const struct doctor *d)
{
    const struct doctor_host *h = &d->host;
    char a[16], b[16], quota[48] = "no cgroup quota";

    if (h->quota > 0)
        snprintf(quota, sizeof(quota), "cgroup quota of %.1f", h->quota);
    printf("build       feedline %s (%s)\n", fl_version(), fl_build_info());
    printf("processors  %d online, %d by affinity, %s", h->online, h->affinity, quota);
    if (d->jpeg.done)
        printf(": %d workers", d->jpeg.stats.n_workers);
    printf("\nmemory      %s available, %s may be locked, %d NUMA node%s\n",
           cli_bytes(a, (double)h->available),
           h->memlock == UINT64_MAX ? "any amount" : cli_bytes(b, (double)h->memlock), h->nodes,
           h->nodes == 1 ? "" : "s");
}

static void print_uring(const struct doctor *d)
{
    const struct doctor_host *h = &d->host;

    if (!h->uring_error)
        printf("io_uring    allowed");
    else
        printf("io_uring    refused: %s%s", strerror(h->uring_error),
               h->uring_disabled > 0 ? " (the setting kernel.io_uring_disabled is on)"
               : h->uring_error == EPERM || h->uring_error == ENOSYS
                   ? " (a container's seccomp profile, or an old kernel)"
                   : "");
    if (d->jpeg.done)
        printf("; the loader reads with %s: %s", d->jpeg.stats.io_backend, d->jpeg.stats.io_reason);
    printf("\n");
}

static void print_drive(const struct doctor *d)
{
    const struct drive *v = &d->drive;
    char a[16];

    if (!d->data)
        printf("storage     not looked at: give --data DATASET\n");
    else if (!v->files)
        printf("storage     %s: no file could be opened\n", d->data);
    else
        printf("storage     %s: %s/s at random, 128 KiB each, 32 at once, %s%s%s\n", d->data,
               cli_bytes(a, v->rate),
               v->direct ? "O_DIRECT" : "through the page cache, for O_DIRECT is refused (",
               v->direct ? "" : strerror(v->direct_error), v->direct ? "" : ")");
}

static void print_gpu(const struct doctor *d)
{
    const struct doctor_gpu *g = &d->gpu;
    char a[16], b[16];

    if (!g->cuda) {
        printf("GPU         %s", g->seen > 0 ? g->name : "none");
        if (g->seen > 0)
            printf(" (driver %s sees %d), but CUDA does not work", g->driver, g->seen);
        printf(": %s\n", g->why);
        return;
    }
    printf("GPU         %s, driver %s, %s of %s free, ", g->name,
           g->driver[0] ? g->driver : "of unknown version", cli_bytes(a, (double)g->memory_free),
           cli_bytes(b, (double)g->memory));
    printf(g->numa_node < 0 ? "NUMA node not known\n" : "NUMA node %d\n", g->numa_node);
    printf("            CUDA %d.%d by the driver, %d.%d by this build%s\n", g->cuda_driver / 1000,
           g->cuda_driver % 1000 / 10, g->cuda_runtime / 1000, g->cuda_runtime % 1000 / 10,
           g->cuda_driver < g->cuda_runtime ? ": the driver is older, which works within one major "
                                              "version"
                                            : "");
    printf("            copies to it: %.1f GB/s pinned, %.1f GB/s pageable\n", g->pinned,
           g->pageable);
}

static void print_jpeg(const struct doctor *d)
{
    if (!d->jpeg.done) {
        printf("JPEG        not looked at: the dataset has no pictures\n");
        return;
    }
    printf(
        "JPEG        %.0f images/s on one core, %.0f on %d (random crops to %d x %d of %s, %s)\n",
        d->jpeg.one, d->jpeg.all, d->jpeg.stats.n_workers, SIDE, SIDE,
        d->data ? "the dataset" : "made photos", d->jpeg.stats.codec);
}

/* The slowest of what every picture has to go through. */
static void print_sentence(const struct doctor *d)
{
    double most = d->jpeg.all;
    char by[96];

    if (!d->jpeg.done) {
        printf("\nWithout pictures there is no rate to tell; `feedline bench` measures any "
               "dataset.\n");
        return;
    }
    snprintf(by, sizeof(by), "decoding on %d core%s", d->jpeg.stats.n_workers,
             d->jpeg.stats.n_workers == 1 ? "" : "s");
    if (d->drive.rate > 0 && d->jpeg.bytes > 0 && d->drive.rate / d->jpeg.bytes < most) {
        most = d->drive.rate / d->jpeg.bytes;
        snprintf(by, sizeof(by), "the drive, when the data is not in memory");
    }
    if (d->gpu.cuda && d->gpu.pinned > 0 && d->gpu.pinned * 1e9 / (SIDE * SIDE * 3) < most) {
        most = d->gpu.pinned * 1e9 / (SIDE * SIDE * 3);
        snprintf(by, sizeof(by), "copies to the GPU");
    }
    // Two digits: the third would be another one tomorrow.
    double unit = 1;
    while (most / unit >= 100)
        unit *= 10;
    char rate_text[32];
    printf("\nThis machine can feed about %s images/s, limited by %s.\n",
           cli_count(rate_text, (int64_t)((most / unit + 0.5)) * (int64_t)unit), by);
}

int command_doctor(int argc, char **argv)
{
    struct doctor d = { .seconds = 1 };
    const char *device = "cuda:0";
    char rest;
    const struct cli_option options[] = {
        CLI_OPTION("data", CLI_STRING, &d.data, "look at this dataset, and at the drive it is on",
                   .arg = "DATASET"),
        CLI_OPTION("device", CLI_STRING, &device, "cuda or cuda:N (cuda:0)", .arg = "DEVICE"),
        CLI_OPTION("seconds", CLI_REAL, &d.seconds, "length of each measurement (1)", .min = 0.05,
                   .max = 600),
    };
    const struct cli cli = {
        .command = "doctor",
        .usage = "[OPTION ...]",
        .about = "Look at processors, memory, kernel, drive and GPU, and say what they can feed.",
        .options = options,
        .n_options = sizeof(options) / sizeof(options[0]),
    };
    const int parsed = cli_parse(&cli, argc, argv);

    if (parsed < 0)
        return cli_exit(parsed);
    if (strcmp(device, "cuda") &&
        (sscanf(device, "cuda:%d%c", &d.device, &rest) != 1 || d.device < 0))
        return cli_wrong("doctor", "--device wants cuda or cuda:N, not \"%s\"", device);
    doctor_look_at_host(&d.host);
    const int err = look_at_data(&d);
    if (d.scratch[0])
        nftw(d.scratch, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    if (!d.opened)
        return err;
    doctor_look_at_gpu(&d.gpu, d.device);
    print_host(&d);
    print_uring(&d);
    print_drive(&d);
    print_jpeg(&d);
    print_gpu(&d);
    print_sentence(&d);
    return err;
}
