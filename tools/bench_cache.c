/* SPDX-License-Identifier: Apache-2.0 */
/* Cold or warm: what of the dataset is in the page cache, and how to make it leave. */
#define _DEFAULT_SOURCE // mincore
#include "bench.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* The folder that containers are relative to: the dataset itself, or where its one tar file lies. */
static void base_folder(const struct bench *b, char *folder, size_t size)
{
    struct stat st;
    char *slash;

    snprintf(folder, size, "%s", b->info.path);
    if (stat(folder, &st) || S_ISDIR(st.st_mode))
        return;
    slash = strrchr(folder, '/');
    if (slash)
        *slash = '\0';
    else
        snprintf(folder, size, ".");
}

/* Calls fn for the container of every step-th sample, leaving out repeated neighbours. Stops at the
 * first value other than 0 and returns it. */
static int each_container(const struct bench *b, int64_t step, int (*fn)(void *, const char *),
                          void *cookie)
{
    char folder[PATH_MAX], path[2 * PATH_MAX], last[PATH_MAX] = "";
    int32_t field = 0;
    int err = 0;

    for (FlFieldInfo f; field < b->info.n_fields && !fl_dataset_field(b->ds, field, &f); field++)
        if (!strcmp(f.name, b->field))
            break;
    base_folder(b, folder, sizeof(folder));
    for (int64_t i = 0; i < b->info.n_samples && !err; i += step) {
        FlFieldSpan span;
        if (fl_dataset_span(b->ds, i, field, &span) || !span.present ||
            span.kind != FL_FIELD_BYTES || !strcmp(span.container, last))
            continue;
        snprintf(last, sizeof(last), "%s", span.container);
        snprintf(path, sizeof(path), "%s/%s", folder, span.container);
        err = fn(cookie, path);
    }
    return err;
}

struct pages {
    size_t resident, all;
};

static int count_pages(void *cookie, const char *path)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    struct pages *pages = cookie;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    unsigned char *flags = NULL;
    void *map = MAP_FAILED;
    struct stat st;
    size_t n = 0;

    if (fd >= 0 && !fstat(fd, &st) && st.st_size > 0) {
        n = ((size_t)st.st_size + page - 1) / page;
        flags = malloc(n);
        map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd,
                   0); // never touched, only asked about
    }
    if (flags && map != MAP_FAILED && !mincore(map, (size_t)st.st_size, flags)) {
        for (size_t i = 0; i < n; i++)
            pages->resident += flags[i] & 1;
        pages->all += n;
    }
    if (map != MAP_FAILED)
        munmap(map, (size_t)st.st_size);
    free(flags);
    if (fd >= 0)
        close(fd);
    return 0;
}

double bench_resident(const struct bench *b)
{
    const int64_t step = b->info.n_samples / 512;
    struct pages pages = { 0 };

    each_container(b, step ? step : 1, count_pages, &pages);
    return pages.all ? (double)pages.resident / (double)pages.all : -1;
}

static int drop_file(void *cookie, const char *path)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    int err;

    (void)cookie;
    if (fd < 0)
        return errno;
    (void)fdatasync(fd); // pages that were never written out cannot be dropped
    err = posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    close(fd);
    return err;
}

int bench_drop_cache(const struct bench *b)
{
    return each_container(b, 1, drop_file, NULL);
}

int64_t bench_drive_bytes(void)
{
    FILE *f = fopen("/proc/self/io", "r");
    char line[128];
    long long n = -1;

    if (!f)
        return -1;
    while (fgets(line, sizeof(line), f) && sscanf(line, "read_bytes: %lld", &n) != 1)
        ;
    fclose(f);
    return n;
}
