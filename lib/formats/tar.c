/* SPDX-License-Identifier: Apache-2.0 */
/* Walking a tar archive. Every size is checked against the file before anything is read or allocated; an
 * extension header concerns exactly the next member. */
#define _GNU_SOURCE
#include "formats/format.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/err.h"
#include "base/hash.h"
#include "formats/name.h"
#include "formats/scan.h"
#include "formats/tar_header.h"

#define MAX_EXTENSION (1u << 20) // bytes of one extension header
#define MAX_PADDING (1u << 20)   // zeros behind the end mark that are looked at
#define SMALL_MEMBER 20u         // bytes: what an index may copy (labels)

struct walk {
    struct fl_source *src;
    bool keep_sidecars;
    fl_member_fn fn;
    void *cookie;
    struct fl_skips *skips;
    uint64_t hash;
    uint64_t at;    // offset of the next header block
    uint64_t first; // of the member's first header block
    struct fl_tar_header header;
    struct fl_tar_ext local, global; // pax
    bool has_long;                   // a GNU long name waits for its member
    struct fl_tar_ext gnu;           // its name
};

/* All failures name archive, offset and, if there is one, the member. */
static int bad(const struct walk *w, uint64_t at, const char *name, const char *what)
{
    const int err =
        *name ? fl_err(FL_ERR(EBADMSG), FL_STAGE_READ, "%s: member \"%s\" at byte %" PRIu64 ": %s",
                       w->src->path, name, at, what)
              : fl_err(FL_ERR(EBADMSG), FL_STAGE_READ, "%s: at byte %" PRIu64 ": %s", w->src->path,
                       at, what);

    fl_err_at(fl_err_slot(), w->src->path, at);
    return err;
}

static int unsupported(const struct walk *w, const char *name, const char *what)
{
    fl_err(FL_ERR(ENOTSUP), FL_STAGE_READ, "%s: member \"%s\" at byte %" PRIu64 " %s", w->src->path,
           name, w->first, what);
    fl_err_at(fl_err_slot(), w->src->path, w->first);
    return FL_ERR(ENOTSUP);
}

static const uint8_t *get(struct walk *w, uint64_t offset, size_t len)
{
    return fl_source_get(w->src, offset, len, NULL);
}

/* Contents of `size` bytes at `at` must lie in the file. *next gets the block behind them. */
static int check_extent(const struct walk *w, const char *name, uint64_t at, uint64_t size,
                        uint64_t *next)
{
    const uint64_t left = w->src->size - at;
    char text[160];

    *next = at;
    if (size > left) {
        snprintf(text, sizeof(text),
                 "the archive is cut: %" PRIu64 " bytes of content begin at byte %" PRIu64
                 ", but the file ends at byte %" PRIu64,
                 size, at, w->src->size);
        return bad(w, w->first, name, text);
    }
    // size <= left < 2^63, so rounding up cannot overflow.
    const uint64_t padded = (size + FL_TAR_BLOCK - 1) / FL_TAR_BLOCK * FL_TAR_BLOCK;
    if (padded > left) {
        snprintf(text, sizeof(text),
                 "the archive is cut: it ends at byte %" PRIu64 ", inside a block", w->src->size);
        return bad(w, w->first, name, text);
    }
    *next = at + padded;
    return 0;
}

/* GNU 'L' and 'K', pax 'x', 'X' and 'g': contents about the members that follow. */
static int take_extension(struct walk *w)
{
    const struct fl_tar_header *h = &w->header;
    const uint64_t body = w->at + FL_TAR_BLOCK;
    const char *why = "";
    uint64_t next;
    int err = check_extent(w, h->name, body, h->size, &next);

    if (err)
        return err;
    if (h->size > MAX_EXTENSION)
        return bad(w, w->at, h->name, "its extension header is longer than 1 MiB");
    const uint8_t *bytes = h->size ? get(w, body, h->size) : (const uint8_t *)"";
    if (!bytes)
        return fl_err_slot()->code;
    w->hash = fl_hash64(bytes, h->size, w->hash);
    if (h->type == 'L') {
        const uint8_t *end = h->size ? memchr(bytes, 0, h->size) : NULL;
        w->gnu.name_len = end ? (size_t)(end - bytes) : h->size;
        if (w->gnu.name_len >= sizeof(w->gnu.name))
            return bad(w, w->at, h->name, "its name is longer than 4,095 bytes");
        memcpy(w->gnu.name, bytes, w->gnu.name_len);
        w->gnu.name[w->gnu.name_len] = 0;
        w->has_long = true;
    } else if (h->type != 'K') {
        err = fl_tar_pax(bytes, h->size, h->type == 'g' ? &w->global : &w->local, &why);
        if (err)
            return bad(w, w->at, h->name, why);
    }
    w->at = next;
    return 0;
}

/* Name and size of the member after all that extension headers say. */
static void resolve(const struct walk *w, struct fl_member *m)
{
    const struct fl_tar_ext *from = w->local.has_name    ? &w->local
                                    : w->has_long        ? &w->gnu
                                    : w->global.has_name ? &w->global
                                                         : NULL;

    m->name = from ? from->name : w->header.name;
    m->name_len = from ? from->name_len : w->header.name_len;
    m->size = w->local.has_size    ? w->local.size
              : w->global.has_size ? w->global.size
                                   : w->header.size;
    m->header = w->first;
    m->offset = w->at + FL_TAR_BLOCK;
}

static int emit(struct walk *w, const struct fl_member *m)
{
    if (!w->keep_sidecars &&
        (fl_name_is_sidecar(m->name, m->name_len) || fl_name_is_meta(m->name, m->name_len))) {
        w->skips->n[FL_SKIP_SIDECAR]++;
        return 0;
    }
    if (m->size && m->size <= SMALL_MEMBER) {
        const uint8_t *bytes = get(w, m->offset, m->size);
        if (!bytes)
            return fl_err_slot()->code;
        w->hash = fl_hash64(bytes, m->size, w->hash);
    }
    return w->fn ? w->fn(w->cookie, w->src, m) : 0;
}

/* Entries without contents, whatever their size field says. */
static bool skip_of(char type, enum fl_skip *skip)
{
    switch (type) {
    case '1':
    case '2':
        *skip = FL_SKIP_LINK;
        return true;
    case '3':
    case '4':
    case '6':
        *skip = FL_SKIP_DEVICE;
        return true;
    case '5':
        *skip = FL_SKIP_DIRECTORY;
        return true;
    default:
        return false;
    }
}

static int take_member(struct walk *w)
{
    struct fl_member m;
    enum fl_skip skip;
    uint64_t next;
    int err;

    resolve(w, &m);
    if (w->header.type == 'S' || w->local.sparse || w->global.sparse)
        return unsupported(w, m.name, "is a sparse file: pack the archive without --sparse");
    if (w->header.type == 'M')
        return unsupported(w, m.name, "continues from another volume: join the volumes first");
    if (skip_of(w->header.type, &skip)) {
        w->skips->n[skip]++;
        w->at = m.offset;
    } else {
        if ((err = check_extent(w, m.name, m.offset, m.size, &next)))
            return err;
        if (w->header.type != '0')
            w->skips->n[FL_SKIP_TYPE]++; // volume labels, dumped directories, what vendors made up
        else if ((err = emit(w, &m)))
            return err;
        w->at = next;
    }
    w->local = (struct fl_tar_ext){ 0 };
    w->has_long = false;
    return 0;
}

static bool is_extension(char type)
{
    return type == 'L' || type == 'K' || type == 'x' || type == 'X' || type == 'g';
}

/* Behind the end mark lie zeros; anything else is a second archive that nobody would ever see. */
static int check_end(struct walk *w)
{
    uint64_t at = w->at;
    const uint64_t stop = w->src->size - at > MAX_PADDING ? at + MAX_PADDING : w->src->size;

    while (at < stop) {
        const size_t n = stop - at < 4096 ? (size_t)(stop - at) : 4096;
        const uint8_t *bytes = get(w, at, n);
        if (!bytes)
            return fl_err_slot()->code;
        for (size_t i = 0; i < n; i++)
            if (bytes[i])
                return bad(w, at + i, "",
                           "there is data behind the end of the archive: were archives "
                           "joined? pack them as one");
        at += n;
    }
    return 0;
}

/* Compressed archives begin with a signature. */
static int check_compressed(struct walk *w)
{
    static const struct {
        const char *name;
        uint8_t bytes[6];
        size_t n;
    } magics[] = {
        { "gzip", { 0x1F, 0x8B }, 2 },
        { "zstd", { 0x28, 0xB5, 0x2F, 0xFD }, 4 },
        { "xz", { 0xFD, '7', 'z', 'X', 'Z', 0 }, 6 },
        { "bzip2", { 'B', 'Z', 'h' }, 3 },
        { "lz4", { 0x04, 0x22, 0x4D, 0x18 }, 4 },
        { "zip", { 'P', 'K', 3, 4 }, 4 },
    };
    const size_t n = w->src->size < 6 ? (size_t)w->src->size : 6;
    const uint8_t *bytes = n ? get(w, 0, n) : NULL;

    if (n && !bytes)
        return fl_err_slot()->code;
    for (size_t i = 0; i < sizeof(magics) / sizeof(magics[0]); i++)
        if (n >= magics[i].n && !memcmp(bytes, magics[i].bytes, magics[i].n))
            return fl_err(
                FL_ERR(ENOTSUP), FL_STAGE_READ,
                "%s is no tar archive but a %s file: unpack it first, random reads need plain "
                "bytes",
                w->src->path, magics[i].name);
    return 0;
}

static int walk_blocks(struct walk *w)
{
    const uint8_t *block;
    const char *why;
    bool pending = false; // extension headers wait for their member
    int err;

    for (;;) {
        const uint64_t left = w->src->size - w->at;
        if (!left && !pending && w->at) {
            w->skips->no_end++; // every member is whole: readable, if unusual
            return 0;
        }
        if (left < FL_TAR_BLOCK)
            return bad(w, w->at, "", "the archive is cut: a header was expected here");
        if (!(block = get(w, w->at, FL_TAR_BLOCK)))
            return fl_err_slot()->code;
        if (fl_tar_is_zero(block)) {
            if (pending)
                return bad(w, w->at, "",
                           "the archive ends between an extension header and its member");
            return check_end(w);
        }
        if (fl_tar_parse(block, &w->header, &why))
            return bad(w, w->at, "", why);
        w->hash = fl_hash64(block, FL_TAR_BLOCK, w->hash);
        if (!pending)
            w->first = w->at;
        // A global header stands by itself; the others belong to the member that follows.
        const bool extension = is_extension(w->header.type);
        pending = extension && (pending || w->header.type != 'g');
        if ((err = extension ? take_extension(w) : take_member(w)))
            return err;
    }
}

static int walk_tar(struct fl_source *src, bool keep_sidecars, fl_member_fn fn, void *cookie,
                    struct fl_skips *skips, uint64_t *hash)
{
    struct walk *w = calloc(1, sizeof(*w));
    int err;

    if (!w)
        return fl_err(FL_ERR(ENOMEM), FL_STAGE_READ, "%s: out of memory", src->path);
    w->src = src;
    w->keep_sidecars = keep_sidecars;
    w->fn = fn;
    w->cookie = cookie;
    w->skips = skips;
    if (!(err = check_compressed(w)))
        err = walk_blocks(w);
    *hash = w->hash;
    free(w);
    return err;
}

static bool has_suffix(const char *name, const char *suffix)
{
    const size_t n = strlen(name), m = strlen(suffix);

    return n > m && !strcasecmp(name + n - m, suffix);
}

bool fl_tar_matters(const char *name, bool is_dir, bool keep_sidecars)
{
    return !is_dir && has_suffix(name, ".tar") && name[0] != '.' &&
           (keep_sidecars || !fl_name_is_sidecar(name, strlen(name)));
}

/* One archive: its folder is the root. */
static int list_one(struct fl_listing *l, const char *path)
{
    const char *slash = strrchr(path, '/');
    struct fl_listed item = { .label = -1 };

    if (slash == path)
        l->root = strdup("/");
    else
        l->root = slash ? strndup(path, (size_t)(slash - path)) : strdup(".");
    if (!l->root || fl_listing_add_path(l, slash ? slash + 1 : path, &item.path) ||
        fl_bytes_add(&l->items, &item, sizeof(item)))
        return fl_err(FL_ERR(ENOMEM), FL_STAGE_PLAN, "%s: out of memory", path);
    return 0;
}

static int list_tar(struct fl_listing *l, const char *path, const struct fl_list_options *opt)
{
    struct fl_scan scan = { 0 };
    struct fl_listed_dir dir = { 0 };
    int err;

    if (opt->n_classes)
        return fl_err(FL_ERR(EINVAL), FL_STAGE_PLAN,
                      "%s: a class list goes with class folders, but these are tar archives", path);
    if (!fl_is_directory(path))
        return list_one(l, path);
    if ((err = fl_scan_dir(&scan, path)))
        return err;
    dir.mtime_ns = scan.mtime_ns;
    dir.hash = fl_scan_hash(&scan, fl_tar_matters, opt->keep_sidecars);
    if (!(l->root = strdup(path)) || fl_listing_add_path(l, "", &dir.path) ||
        fl_bytes_add(&l->dirs, &dir, sizeof(dir)))
        err = fl_err(FL_ERR(ENOMEM), FL_STAGE_PLAN, "%s: out of memory", path);
    for (size_t i = 0; !err && i < scan.n; i++) {
        struct fl_listed item = { .label = -1 };
        const struct fl_scanned *e = &scan.entries[i];
        if (!fl_tar_matters(e->name, e->is_dir, opt->keep_sidecars)) {
            l->skips.n[FL_SKIP_NAME] += !e->is_dir && has_suffix(e->name, ".tar");
            continue;
        }
        if (fl_listing_add_path(l, e->name, &item.path) ||
            fl_bytes_add(&l->items, &item, sizeof(item)))
            err = fl_err(FL_ERR(ENOMEM), FL_STAGE_PLAN, "%s: out of memory", path);
    }
    fl_scan_free(&scan);
    return err;
}

const struct fl_format fl_format_tar = { .name = "tar", .list = list_tar, .walk = walk_tar };
