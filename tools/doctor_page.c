/* SPDX-License-Identifier: Apache-2.0 */
/* What was found, for people. */
#include "doctor.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cli.h"

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
        printf("storage     not looked at: give a dataset or a folder\n");
    else if (!v->files)
        printf("storage     %s: no file could be opened\n", d->data);
    else
        printf("storage     %s: %s/s at random, 128 KiB each, 32 at once, %s%s%s\n", d->data,
               cli_bytes(a, v->rate),
               v->direct ? "O_DIRECT" : "through the page cache, for O_DIRECT is refused (",
               v->direct ? "" : strerror(v->direct_error), v->direct ? "" : ")");
    if (d->data_error[0])
        printf("            it is no dataset: %s\n", d->data_error);
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
    if (d->jpeg.gpu > 0)
        printf("            %.0f images/s to it as bfloat16, %.0f%% of them decoded there\n",
               d->jpeg.gpu, 100 * d->jpeg.share);
}

static void print_jpeg(const struct doctor *d)
{
    if (!d->jpeg.done) {
        printf("JPEG        not looked at: the dataset has no pictures\n");
        return;
    }
    printf(
        "JPEG        %.0f images/s on one core, %.0f on %d (random crops to %d x %d of %s, %s)\n",
        d->jpeg.one, d->jpeg.all, d->jpeg.stats.n_workers, DOCTOR_SIDE, DOCTOR_SIDE,
        d->made ? "made photos" : "the dataset", d->jpeg.stats.codec);
}

/* Two digits: the third would be another one tomorrow. */
static const char *roughly(char text[32], double rate)
{
    double unit = 1;

    while (rate / unit >= 100)
        unit *= 10;
    return cli_count(text, (int64_t)(rate / unit + 0.5) * (int64_t)unit);
}

/* Without pictures: reading, and copying to the GPU if there is one. */
static void print_samples(const struct doctor *d)
{
    const double copies = d->gpu.cuda ? d->gpu.pinned * 1e9 : 0;
    const bool drive = copies <= 0 || d->drive.rate < copies;
    char text[32], bytes[16];

    if (d->sample_bytes <= 0 || d->drive.rate <= 0)
        printf("\n`feedline bench` measures any dataset.\n");
    else
        printf("\nThis machine can feed about %s samples/s of %s each, limited by %s.\n",
               roughly(text, (drive ? d->drive.rate : copies) / d->sample_bytes),
               cli_bytes(bytes, d->sample_bytes),
               drive ? "the drive, when the data is not in memory" : "copies to the GPU");
}

/* The slowest of what every picture has to go through. */
static void print_sentence(const struct doctor *d)
{
    double most = d->jpeg.all;
    char by[96];

    if (!d->jpeg.done) {
        print_samples(d);
        return;
    }
    snprintf(by, sizeof(by), "decoding on %d core%s", d->jpeg.stats.n_workers,
             d->jpeg.stats.n_workers == 1 ? "" : "s");
    if (d->jpeg.gpu > most) {
        most = d->jpeg.gpu;
        snprintf(by, sizeof(by), "%s",
                 d->jpeg.share > 0.5 ? "what goes before and into decoding on the GPU"
                                     : "decoding on the processors and the GPU");
    }
    if (d->gpu.cuda && d->gpu.pinned > 0 &&
        d->gpu.pinned * 1e9 / (DOCTOR_SIDE * DOCTOR_SIDE * 3) < most && d->jpeg.share <= 0.5) {
        most = d->gpu.pinned * 1e9 / (DOCTOR_SIDE * DOCTOR_SIDE * 3);
        snprintf(by, sizeof(by), "copies to the GPU");
    }
    char text[32], cold[32];
    printf("\nThis machine can feed about %s images/s, limited by %s", roughly(text, most), by);
    if (d->drive.rate > 0 && d->jpeg.bytes > 0 && d->drive.rate / d->jpeg.bytes < most)
        printf(" when the data is in memory; from the drive about %s",
               roughly(cold, d->drive.rate / d->jpeg.bytes));
    printf(".\n");
}

void doctor_print(const struct doctor *d)
{
    print_host(d);
    print_uring(d);
    print_drive(d);
    print_jpeg(d);
    print_gpu(d);
    print_sentence(d);
}
