/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "formats/scan.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/err.h"
#include "base/file.h"
#include "base/hash.h"
#include "formats/format.h"

bool fl_is_directory(const char *path)
{
    struct stat st;

    return !stat(path, &st) && S_ISDIR(st.st_mode);
}

static int by_name(const void *a, const void *b)
{
    const struct fl_scanned *x = a, *y = b;

    return strcmp(x->name, y->name); // bytes, as unsigned char
}

/* What an entry is; links are followed, dangling ones are neither. */
static void kind_of(int dir, const struct dirent *d, struct fl_scanned *e)
{
    struct stat st;

    e->is_dir = d->d_type == DT_DIR;
    e->is_regular = d->d_type == DT_REG;
    if ((d->d_type == DT_LNK || d->d_type == DT_UNKNOWN) && !fstatat(dir, d->d_name, &st, 0)) {
        e->is_dir = S_ISDIR(st.st_mode);
        e->is_regular = S_ISREG(st.st_mode);
    }
}

/* Names go into one array that moves while it grows: entries hold offsets until the end. */
static int read_entries(struct fl_scan *scan, DIR *dir, struct fl_bytes *entries)
{
    const struct dirent *d;

    while ((errno = 0, d = readdir(dir))) {
        struct fl_scanned e = { 0 };
        if (!strcmp(d->d_name, ".") || !strcmp(d->d_name, ".."))
            continue;
        kind_of(dirfd(dir), d, &e);
        e.name = (const char *)scan->names.len;
        if (fl_bytes_add(&scan->names, d->d_name, strlen(d->d_name) + 1) ||
            fl_bytes_add(entries, &e, sizeof(e)))
            return ENOMEM;
    }
    return errno;
}

int fl_scan_dir(struct fl_scan *scan, const char *path)
{
    DIR *dir = opendir(path);
    struct fl_bytes entries = { 0 };
    struct stat st;

    if (!dir)
        return fl_err_file(errno, "read folder", path);
    int error = fstat(dirfd(dir), &st) ? errno : read_entries(scan, dir, &entries);
    closedir(dir);
    if (error) {
        fl_bytes_free(&entries);
        fl_scan_free(scan);
        return fl_err_file(error, "read folder", path);
    }
    scan->entries = (struct fl_scanned *)entries.data;
    scan->n = entries.len / sizeof(*scan->entries);
    scan->mtime_ns = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
    scan->dev = (uint64_t)st.st_dev;
    scan->ino = (uint64_t)st.st_ino;
    for (size_t i = 0; i < scan->n; i++)
        scan->entries[i].name = (const char *)scan->names.data + (size_t)scan->entries[i].name;
    if (scan->n)
        qsort(scan->entries, scan->n, sizeof(*scan->entries), by_name);
    return 0;
}

void fl_scan_free(struct fl_scan *scan)
{
    free(scan->entries);
    fl_bytes_free(&scan->names);
    *scan = (struct fl_scan){ 0 };
}

uint64_t fl_scan_hash(const struct fl_scan *scan, fl_matters_fn matters, bool keep_sidecars)
{
    uint64_t h = 0;

    for (size_t i = 0; i < scan->n; i++) {
        const struct fl_scanned *e = &scan->entries[i];
        if (matters(e->name, e->is_dir, keep_sidecars))
            h = fl_hash64(e->name, strlen(e->name) + 1, h + e->is_dir);
    }
    return h;
}

int fl_listing_dir(const struct fl_format *format, const char *root, const char *path,
                   bool keep_sidecars, int64_t *mtime_ns, uint64_t *hash)
{
    struct fl_scan scan = { 0 };
    char *full = *path ? fl_path_join(root, path) : strdup(root);
    int err = full ? fl_scan_dir(&scan, full)
                   : fl_err(FL_ERR(ENOMEM), FL_STAGE_PLAN, "%s: out of memory", path);

    if (!err) {
        *mtime_ns = scan.mtime_ns;
        *hash = fl_scan_hash(&scan, format == &fl_format_tar ? fl_tar_matters : fl_folder_matters,
                             keep_sidecars);
        fl_scan_free(&scan);
    }
    free(full);
    return err;
}
