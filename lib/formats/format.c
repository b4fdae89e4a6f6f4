/* SPDX-License-Identifier: Apache-2.0 */
/* Which format lies at a path, and the listings that all of them fill. */
#define _GNU_SOURCE
#include "formats/format.h"

#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "base/err.h"
#include "base/file.h"
#include "formats/scan.h"

const char *fl_listing_path(const struct fl_listing *l, size_t path)
{
    return (const char *)l->paths.data + path;
}

size_t fl_listing_count(const struct fl_listing *l)
{
    return l->items.len / sizeof(struct fl_listed);
}

void fl_listing_free(struct fl_listing *l)
{
    free(l->root);
    fl_bytes_free(&l->paths);
    fl_bytes_free(&l->items);
    fl_bytes_free(&l->dirs);
    fl_bytes_free(&l->classes);
    *l = (struct fl_listing){ 0 };
}

int fl_listing_add_path(struct fl_listing *l, const char *path, size_t *at)
{
    *at = l->paths.len;
    return fl_bytes_add(&l->paths, path, strlen(path) + 1) ? FL_ERR(ENOMEM) : 0;
}

/* "x.tar.gz", "x.tgz", ... */
static bool is_compressed(const char *name)
{
    static const char *const suffixes[] = { ".tar.gz", ".tgz",     ".tar.zst",
                                            ".tar.xz", ".tar.bz2", ".tar.lz4" };
    const size_t n = strlen(name);

    for (size_t i = 0; i < sizeof(suffixes) / sizeof(suffixes[0]); i++) {
        const size_t m = strlen(suffixes[i]);
        if (n > m && !strcasecmp(name + n - m, suffixes[i]))
            return true;
    }
    return false;
}

int fl_format_of(const char *path, const struct fl_format **out)
{
    struct fl_scan scan = { 0 };
    struct stat st;
    const char *compressed = NULL;
    int err;

    if (stat(path, &st))
        return fl_err_file(errno, "open dataset", path);
    if (S_ISREG(st.st_mode)) {
        *out = &fl_format_tar; // whatever its name; the walk says what is wrong if it is none
        return 0;
    }
    if (!S_ISDIR(st.st_mode))
        return fl_err(FL_ERR(EINVAL), FL_STAGE_PLAN, "%s is neither a folder nor a tar archive",
                      path);
    if ((err = fl_scan_dir(&scan, path)))
        return err;
    *out = &fl_format_folder;
    bool folders = false;
    for (size_t i = 0; i < scan.n; i++) {
        const struct fl_scanned *e = &scan.entries[i];
        if (fl_tar_matters(e->name, e->is_dir, false))
            *out = &fl_format_tar;
        folders |= fl_folder_matters(e->name, e->is_dir, false);
        if (!e->is_dir && is_compressed(e->name) && !compressed)
            compressed = e->name;
    }
    if (*out == &fl_format_folder && !folders && compressed)
        err = fl_err(FL_ERR(ENOTSUP), FL_STAGE_PLAN,
                     "%s/%s is compressed: unpack it first, random reads need plain tar archives",
                     path, compressed);
    fl_scan_free(&scan);
    return err;
}
