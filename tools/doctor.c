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
#include "photos.h"

enum { BATCH = 16, GPU_BATCH = 256 };

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- decoding: through the loader, as a trainer would ------------------------------------------- */

/* Pictures a second; 0 after one sentence about what failed. */
static double rate(FlDataset *ds, struct doctor_decoding *d, int32_t workers, FlDevice device,
                   double seconds)
{
    FlConfig cfg = FL_CONFIG_DEFAULT;
    const bool gpu = device.type == FL_DEVICE_CUDA;
    const FlImage image = { .width = DOCTOR_SIDE,
                            .height = DOCTOR_SIDE,
                            .crop = FL_CROP_RANDOM_RESIZED,
                            .dtype = gpu ? FL_BF16 : FL_U8 };
    FlLoader *loader = NULL;
    FlBatch batch = { 0 };
    int64_t n = 0, batches = 0;
    int err = 0;

    cfg.batch_size = gpu ? GPU_BATCH : BATCH;
    cfg.device = device;
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

/* A folder for what is needed once. */
static int make_scratch(struct doctor *d)
{
    const char *tmp = getenv("TMPDIR");

    snprintf(d->scratch, sizeof(d->scratch), "%s/feedline-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    if (mkdtemp(d->scratch))
        return 0;
    const int code = errno;
    d->scratch[0] = '\0';
    return cli_failed("doctor", "cannot make a folder in %s: %s", tmp && *tmp ? tmp : "/tmp",
                      strerror(code));
}

/* Photos made for the occasion tell of the decoder alone. */
static int open_photos(struct doctor *d, FlDataset **ds)
{
    char folder[PATH_MAX + 16];
    struct cli_bar bar = { .quiet = true };
    struct photos p = { .dir = folder, .count = 128, .classes = 1, .seed = 1, .bar = &bar };
    int err;

    snprintf(folder, sizeof(folder), "%s/photos", d->scratch);
    if ((err = photos_write(&p, "doctor")))
        return err;
    d->made = true;
    return fl_dataset_open(ds, folder, NULL) ? cli_last_error("doctor") : 0;
}

/* What it holds is looked at and left as it is: an index that is missing goes to the scratch folder. */
static int open_data(struct doctor *d, FlDataset **ds)
{
    FlDatasetOptions opt = FL_DATASET_OPTIONS_DEFAULT;
    char index[PATH_MAX + 16];

    opt.log = cli_log;
    opt.log_cookie = (void *)"doctor";
    opt.index = FL_INDEX_REQUIRE;
    if (!fl_dataset_open(ds, d->data, &opt))
        return 0;
    snprintf(index, sizeof(index), "%s/index.fli", d->scratch);
    opt.index = FL_INDEX_AUTO;
    opt.index_path = index;
    if (!fl_dataset_open(ds, d->data, &opt))
        return 0;
    // Any folder will do for the drive's sake.
    snprintf(d->data_error, sizeof(d->data_error), "%s", fl_last_error()->message);
    return 1;
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

static void look_at_pictures(struct doctor *d, FlDataset *ds)
{
    struct doctor_decoding *j = &d->jpeg;

    j->one = rate(ds, j, 0, FL_CPU, d->seconds);
    if (d->gpu.cuda) {
        j->gpu = rate(ds, j, -1, FL_CUDA(d->device), d->seconds);
        const double all = (double)(j->stats.decoded_gpu + j->stats.decoded_cpu);
        j->share = all > 0 ? (double)j->stats.decoded_gpu / all : 0;
    }
    j->all = rate(ds, j, -1, FL_CPU, d->seconds);
    j->done = j->one > 0 && j->all > 0;
    const int64_t read = j->stats.stages[FL_STAGE_DECODE].items;
    j->bytes = read > 0 ? (double)j->stats.bytes_read / (double)read : 0;
}

/* Drive and decoder. */
static int look_at_data(struct doctor *d)
{
    FlDatasetInfo info;
    FlDataset *ds = NULL;
    int err = make_scratch(d);

    if (err)
        return err;
    if (d->data) {
        open_data(d, &ds);
        drive_measure(&d->drive, ds,
                      &(struct drive_options){ .root = d->data, .seconds = d->seconds });
        if (!ds && !d->drive.files)
            return cli_failed("doctor", "%s", d->data_error);
    }
    if (!ds && (err = open_photos(d, &ds)))
        return err;
    if (find_pictures(ds, d->jpeg.field)) {
        look_at_pictures(d, ds);
        err = d->jpeg.done ? 0 : 1;
    } else if (!fl_dataset_info(ds, &info) && info.n_samples > 0) {
        d->sample_bytes = (double)info.bytes / (double)info.n_samples;
    }
    fl_dataset_close(&ds);
    d->looked = true;
    return err;
}

int command_doctor(int argc, char **argv)
{
    struct doctor d = { .seconds = 1 };
    const char *device = "cuda:0";
    char rest;
    const struct cli_option options[] = {
        CLI_OPTION("data", CLI_STRING, &d.data, "the same as the argument", .arg = "DATASET"),
        CLI_OPTION("device", CLI_STRING, &device, "cuda or cuda:N (cuda:0)", .arg = "DEVICE"),
        CLI_OPTION("seconds", CLI_REAL, &d.seconds, "length of each measurement (1)", .min = 0.05,
                   .max = 600),
    };
    const struct cli cli = {
        .command = "doctor",
        .usage = "[DATASET] [OPTION ...]",
        .about =
            "Look at processors, memory, kernel, drive and GPU, and say what they can feed.\n"
            "With a dataset, also at its pictures and at the drive that it is on; any other folder "
            "will do\nfor the drive.",
        .options = options,
        .n_options = sizeof(options) / sizeof(options[0]),
        .args = &d.data,
        .max_args = 1,
    };
    const int parsed = cli_parse(&cli, argc, argv);

    if (parsed < 0)
        return cli_exit(parsed);
    if (strcmp(device, "cuda") &&
        (sscanf(device, "cuda:%d%c", &d.device, &rest) != 1 || d.device < 0))
        return cli_wrong("doctor", "--device wants cuda or cuda:N, not \"%s\"", device);
    doctor_look_at_host(&d.host);
    doctor_look_at_gpu(&d.gpu, d.device);
    const int err = look_at_data(&d);
    if (d.scratch[0])
        nftw(d.scratch, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    if (!d.looked)
        return err;
    doctor_print(&d);
    return err;
}
