/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE // O_DIRECT, MADV_HUGEPAGE, nftw
#include "drive.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { FILES = 256, THREADS = 64, PAGE = 4096, HUGE = 2 << 20 };

struct files {
    int n, fd[FILES];
    int64_t size[FILES];
};

struct reader {
    const struct files *files;
    uint8_t *buf;
    size_t piece;
    double end; // now() scale
    uint64_t bytes;
    double cpu_seconds;
    unsigned random;
    pthread_t thread;
    bool started;
};

static double clock_of(clockid_t id)
{
    struct timespec t;

    clock_gettime(id, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static double now(void)
{
    return clock_of(CLOCK_MONOTONIC);
}

static void *read_on(void *arg)
{
    struct reader *r = arg;
    const struct files *f = r->files;

    while (now() < r->end) {
        const int i = (int)(rand_r(&r->random) % (unsigned)f->n);
        const int64_t room = f->size[i] > (int64_t)r->piece ? f->size[i] - (int64_t)r->piece : 0;
        const uint64_t draw = (uint64_t)rand_r(&r->random) << 20 ^ (uint64_t)rand_r(&r->random);
        const int64_t at = (int64_t)(draw % ((uint64_t)room / PAGE + 1)) * PAGE;
        const ssize_t n = pread(f->fd[i], r->buf, r->piece, at);
        if (n < 0)
            break;
        r->bytes += (uint64_t)n;
    }
    r->cpu_seconds = clock_of(CLOCK_THREAD_CPUTIME_ID);
    return NULL;
}

/* Open a file as the reading stage would. */
static void add_file(struct drive *out, struct files *f, const char *path)
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
    f->fd[f->n] = fd;
    f->size[f->n++] = st.st_size;
}

/* nftw() hands nothing to its callback. The command has one thread at this time. */
static struct {
    struct drive *out;
    struct files *files;
} walk;

static int visit(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)ftw;
    if (type == FTW_F && S_ISREG(st->st_mode) && st->st_size >= (off_t)walk.out->piece)
        add_file(walk.out, walk.files, path);
    return walk.files->n == FILES;
}

/* Any files that a read fits into. */
static void find_files(struct drive *out, struct files *f, const char *root)
{
    walk.out = out;
    walk.files = f;
    nftw(root, visit, 16, FTW_PHYS | FTW_MOUNT);
    walk.out = NULL;
    walk.files = NULL;
}

static void open_files(struct drive *out, struct files *f, const FlDataset *ds, const char *root)
{
    char path[2 * PATH_MAX], last[2 * PATH_MAX] = "";
    FlDatasetInfo info;
    FlFieldSpan span;
    struct stat st;

    if (fl_dataset_info(ds, &info))
        return;
    const int64_t step = info.n_samples / FILES + 1;
    const bool file = !stat(root, &st) && S_ISREG(st.st_mode);
    for (int64_t s = 0; s < info.n_samples && f->n < FILES; s += step)
        for (int32_t i = 0; i < info.n_fields; i++) {
            if (fl_dataset_span(ds, s, i, &span) || !span.present || !span.container)
                continue;
            if (file)
                snprintf(path, sizeof(path), "%s", root);
            else
                snprintf(path, sizeof(path), "%s/%s", root, span.container);
            if (strcmp(path, last))
                add_file(out, f, path);
            memcpy(last, path, sizeof(last));
            break;
        }
}

/* Memory for all readers, in huge pages where there are any: each small page would be a piece of its own for
 * the drive. */
static uint8_t *map_buffers(size_t bytes)
{
    uint8_t *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (p == MAP_FAILED)
        return NULL;
    (void)madvise(p, bytes, MADV_HUGEPAGE);
    memset(p, 0, bytes);
    return p;
}

static void read_all(struct drive *out, const struct files *f, uint8_t *memory, double seconds)
{
    struct reader readers[THREADS];
    const double begin = now();
    uint64_t bytes = 0;
    double cpu = 0;

    for (int i = 0; i < out->threads; i++) {
        readers[i] = (struct reader){ .files = f,
                                      .buf = memory + (size_t)i * out->piece,
                                      .piece = out->piece,
                                      .end = begin + seconds,
                                      .random = (unsigned)i + 1 };
        readers[i].started = !pthread_create(&readers[i].thread, NULL, read_on, &readers[i]);
    }
    for (int i = 0; i < out->threads; i++)
        if (readers[i].started) {
            pthread_join(readers[i].thread, NULL);
            bytes += readers[i].bytes;
            cpu += readers[i].cpu_seconds;
        }
    out->rate = (double)bytes / (now() - begin);
    out->cpu_seconds = bytes ? cpu * 1e9 / (double)bytes : 0;
}

void drive_measure(struct drive *out, const FlDataset *ds, const struct drive_options *opt)
{
    const size_t piece = opt->piece ? opt->piece : (size_t)128 << 10;
    struct files f = { 0 };

    *out = (struct drive){ .direct = true,
                           .piece = (piece + PAGE / 2) / PAGE * PAGE,
                           .threads = opt->threads > THREADS ? THREADS : opt->threads };
    out->piece = out->piece ? out->piece : PAGE;
    out->threads = out->threads > 0 ? out->threads : 32;
    if (ds)
        open_files(out, &f, ds, opt->root);
    else
        find_files(out, &f, opt->root);
    out->files = f.n;
    const size_t bytes = (out->piece * (size_t)out->threads + HUGE - 1) / HUGE * HUGE;
    uint8_t *memory = f.n ? map_buffers(bytes) : NULL;
    if (memory) {
        read_all(out, &f, memory, opt->seconds);
        munmap(memory, bytes);
    }
    for (int i = 0; i < f.n; i++)
        close(f.fd[i]);
}
