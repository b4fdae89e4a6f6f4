/* SPDX-License-Identifier: Apache-2.0 */
/* What the drive gives: 128 KiB at a time, anywhere in the dataset's files, many reads at once. */
#define _GNU_SOURCE // O_DIRECT
#include "doctor.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { FILES = 256, THREADS = 32, PIECE = 128 << 10 };

struct drive {
    int n, fd[FILES];
    int64_t size[FILES];
    double end; // now() scale
};

struct reader {
    const struct drive *drive;
    uint64_t bytes;
    unsigned random;
    pthread_t thread;
    bool started;
};

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void *read_on(void *arg)
{
    struct reader *r = arg;
    const struct drive *d = r->drive;
    void *buf = NULL;

    if (posix_memalign(&buf, 4096, PIECE))
        return NULL;
    while (now() < d->end) {
        const int i = (int)(rand_r(&r->random) % (unsigned)d->n);
        const int64_t pieces = d->size[i] / PIECE;
        const uint64_t draw = (uint64_t)rand_r(&r->random) << 20 ^ (uint64_t)rand_r(&r->random);
        const int64_t at = pieces > 1 ? (int64_t)(draw % (uint64_t)pieces) * PIECE : 0;
        const ssize_t n = pread(d->fd[i], buf, PIECE, at);
        if (n < 0)
            break;
        r->bytes += (uint64_t)n;
    }
    free(buf);
    return NULL;
}

/* Open a file as the reading stage would. */
static void add_file(struct doctor_drive *out, struct drive *d, const char *path)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_DIRECT);

    if (fd < 0) {
        out->direct = false;
        out->direct_error = errno;
        fd = open(path, O_RDONLY | O_CLOEXEC);
    }
    if (fd < 0)
        return;
    if (fstat(fd, &st) || st.st_size == 0) {
        close(fd);
        return;
    }
    d->fd[d->n] = fd;
    d->size[d->n++] = st.st_size;
}

/* Files of samples that are spread over the dataset. */
static void open_files(struct doctor_drive *out, struct drive *d, const FlDataset *ds,
                       const char *root)
{
    char path[PATH_MAX], last[PATH_MAX] = "";
    FlDatasetInfo info;
    FlFieldSpan span;
    struct stat st;

    if (fl_dataset_info(ds, &info))
        return;
    const int64_t step = info.n_samples / FILES + 1;
    const bool file = !stat(root, &st) && S_ISREG(st.st_mode);
    for (int64_t s = 0; s < info.n_samples && d->n < FILES; s += step)
        for (int32_t f = 0; f < info.n_fields; f++) {
            if (fl_dataset_span(ds, s, f, &span) || !span.present || !span.container)
                continue;
            if (file)
                snprintf(path, sizeof(path), "%s", root);
            else
                snprintf(path, sizeof(path), "%s/%s", root, span.container);
            if (strcmp(path, last))
                add_file(out, d, path);
            memcpy(last, path, sizeof(last));
            break;
        }
}

void doctor_look_at_drive(struct doctor_drive *out, const FlDataset *ds, const char *root,
                          double seconds)
{
    static struct drive d; // too large for the stack of a tool
    struct reader readers[THREADS];
    uint64_t bytes = 0;

    out->direct = true;
    open_files(out, &d, ds, root);
    out->files = d.n;
    if (!d.n)
        return;
    const double begin = now();
    d.end = begin + seconds;
    for (unsigned i = 0; i < THREADS; i++) {
        readers[i] = (struct reader){ .drive = &d, .random = i + 1 };
        readers[i].started = !pthread_create(&readers[i].thread, NULL, read_on, &readers[i]);
    }
    for (int i = 0; i < THREADS; i++)
        if (readers[i].started) {
            pthread_join(readers[i].thread, NULL);
            bytes += readers[i].bytes;
        }
    out->rate = (double)bytes / (now() - begin);
    for (int i = 0; i < d.n; i++)
        close(d.fd[i]);
}
