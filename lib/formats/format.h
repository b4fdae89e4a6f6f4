/* SPDX-License-Identifier: Apache-2.0 */
/* A format reader: which files are the containers of a dataset, and which members lie in one. Used while
 * an index is made and when a dataset is checked; the pipeline knows spans alone. */
#ifndef FL_FORMATS_FORMAT_H
#define FL_FORMATS_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/log.h"
#include "formats/source.h"

/* What was left out, and why. */
enum fl_skip {
    FL_SKIP_DIRECTORY,
    FL_SKIP_LINK,
    FL_SKIP_DEVICE,
    FL_SKIP_SIDECAR, // fl_name_is_sidecar(), fl_name_is_meta()
    FL_SKIP_NAME,    // no field part in its name, hidden, or (class folders) no picture's extension
    FL_SKIP_TYPE,    // tar entries of a type that holds no file
    FL_N_SKIPS
};

struct fl_skips {
    int64_t n[FL_N_SKIPS];
    int64_t no_end; // archives without end mark, but with every member whole
};

/* One container of a listing. */
struct fl_listed {
    size_t path;   // offset in fl_listing.paths, NUL-terminated, relative to the root
    int32_t label; // class folders: number of its class; -1: none
};

/* A folder that was looked into. */
struct fl_listed_dir {
    size_t path;
    int64_t mtime_ns;
    uint64_t hash; // of the names in it that matter, in order
};

struct fl_listing {
    char *root;              // folder that paths are relative to
    struct fl_bytes paths;   // NUL-terminated strings
    struct fl_bytes items;   // struct fl_listed, in dataset order
    struct fl_bytes dirs;    // struct fl_listed_dir
    struct fl_bytes classes; // size_t each: offset in paths
    char field[16];          // class folders: name of the pictures' field
    struct fl_skips skips;
};

struct fl_list_options {
    const char *const *classes; // see FlDatasetOptions
    size_t n_classes;
    bool allow_empty_classes;
    bool keep_sidecars;
    const struct fl_log *log;
};

/* One member of a container. */
struct fl_member {
    const char *name; // raw bytes with a NUL behind; valid during the call
    size_t name_len;
    uint64_t header; // offset of its first header byte
    uint64_t offset, size;
};

/* 0 goes on; an error (with a sentence) ends the walk. */
typedef int (*fl_member_fn)(void *cookie, struct fl_source *src, const struct fl_member *m);

struct fl_format {
    const char *name; // "tar", "folder"

    /* List the containers of the dataset at `path`. *l is zeroed; the caller frees it also on error. */
    int (*list)(struct fl_listing *l, const char *path, const struct fl_list_options *opt);

    /* Emit the members of an open container in file order; fn may be NULL. *hash gets a hash of all header
     * bytes and of what an index copies (small members); it decides whether a container whose time has
     * changed is still the one that was indexed. */
    int (*walk)(struct fl_source *src, bool keep_sidecars, fl_member_fn fn, void *cookie,
                struct fl_skips *skips, uint64_t *hash);
};

extern const struct fl_format fl_format_tar;
extern const struct fl_format fl_format_folder;

/* The format of what lies at `path`. 0; FL_ERR(ENOENT): nothing there; FL_ERR(EINVAL): no layout that is
 * known, the sentence says which are; FL_ERR(ENOTSUP): compressed archives. */
int fl_format_of(const char *path, const struct fl_format **out);

/* Helpers of the listings. */
const char *fl_listing_path(const struct fl_listing *l, size_t path);
size_t fl_listing_count(const struct fl_listing *l);
void fl_listing_free(struct fl_listing *l);
int fl_listing_add_path(struct fl_listing *l, const char *path, size_t *at); // FL_ERR(ENOMEM)

/* Hash of a folder's names and its time, as the listing of `format` sees it: has something come or gone?
 * `path` is relative to root, "" the root itself. FL_ERR(ENOENT) if it is gone. */
int fl_listing_dir(const struct fl_format *format, const char *root, const char *path,
                   bool keep_sidecars, int64_t *mtime_ns, uint64_t *hash);

#endif
