/* SPDX-License-Identifier: Apache-2.0 */
/* One folder's entries in byte order of their names, whatever the file system's order and the locale. */
#ifndef FL_FORMATS_SCAN_H
#define FL_FORMATS_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"

struct fl_scanned {
    const char *name;
    bool is_dir;     // links are followed
    bool is_regular; // likewise
};

struct fl_scan {
    struct fl_scanned *entries;
    size_t n;
    struct fl_bytes names;
    int64_t mtime_ns; // of the folder
    uint64_t dev, ino;
};

/* Errors have a sentence. Zero *scan before; free it after success. */
int fl_scan_dir(struct fl_scan *scan, const char *path);
void fl_scan_free(struct fl_scan *scan);

/* Hash of the names that matter, and whether they are folders. */
typedef bool (*fl_matters_fn)(const char *name, bool is_dir, bool keep_sidecars);
uint64_t fl_scan_hash(const struct fl_scan *scan, fl_matters_fn matters, bool keep_sidecars);

bool fl_is_directory(const char *path);

/* What matters to each format's listing. */
bool fl_tar_matters(const char *name, bool is_dir, bool keep_sidecars);
bool fl_folder_matters(const char *name, bool is_dir, bool keep_sidecars);

#endif
