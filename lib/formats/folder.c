/* SPDX-License-Identifier: Apache-2.0 */
/* Class folders: ROOT/CLASS/.../picture, by the rules of torchvision's ImageFolder, with every order made
 * by bytes. Pictures directly under ROOT, without any class folder, are a dataset without labels. */
#define _GNU_SOURCE
#include "formats/format.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/err.h"
#include "base/file.h"
#include "base/hash.h"
#include "formats/name.h"
#include "formats/scan.h"

#define HASHED_BYTES 4096u
#define MAX_DEPTH 64

/* A folder on the way down, to see loops made by links. */
struct ancestor {
    const struct ancestor *up;
    uint64_t dev, ino;
    int depth;
};

struct lister {
    struct fl_listing *l;
    const struct fl_list_options *opt;
    int32_t label; // of the class folder we are in, -1: none
    int64_t files; // in it
    bool any_jpg;  // some file is called .jpg or .jpeg
};

static int no_memory(const char *path)
{
    return fl_err(FL_ERR(ENOMEM), FL_STAGE_PLAN, "%s: out of memory while listing", path);
}

static const char *extension_of(const char *name)
{
    const char *dot = strrchr(name, '.');

    return dot && dot > name ? dot + 1 : "";
}

static bool is_picture(const char *name)
{
    const char *ext = extension_of(name);

    return *ext && fl_name_is_image(ext);
}

bool fl_folder_matters(const char *name, bool is_dir, bool keep_sidecars)
{
    if (!keep_sidecars && fl_name_is_sidecar(name, strlen(name)))
        return false;
    return name[0] != '.' && (is_dir || is_picture(name));
}

/* Count an entry that is left out. */
static void skip(struct lister *s, const struct fl_scanned *e)
{
    enum fl_skip why = FL_SKIP_NAME;

    if (fl_name_is_sidecar(e->name, strlen(e->name)))
        why = FL_SKIP_SIDECAR;
    else if (e->is_dir)
        why = FL_SKIP_DIRECTORY;
    else if (!e->is_regular)
        why = FL_SKIP_DEVICE;
    s->l->skips.n[why]++;
}

/* The field's name: "jpg" if there is any such file, else the first file's extension. */
static void note_field(struct lister *s, const char *name)
{
    const char *ext = extension_of(name);

    if (!strcasecmp(ext, "jpg") || !strcasecmp(ext, "jpeg") || !strcasecmp(ext, "jpe") ||
        !strcasecmp(ext, "jfif")) {
        strcpy(s->l->field, "jpg");
        s->any_jpg = true;
    } else if (!s->any_jpg && !s->l->field[0]) {
        snprintf(s->l->field, sizeof(s->l->field), "%s", ext);
        for (char *c = s->l->field; *c; c++)
            if (*c >= 'A' && *c <= 'Z')
                *c = (char)(*c - 'A' + 'a');
    }
}

/* "a" and "b" -> "a/b"; "" and "b" -> "b". Malloced. */
static char *join(const char *dir, const char *name)
{
    return *dir ? fl_path_join(dir, name) : strdup(name);
}

static int add_dir(struct lister *s, const char *path, const struct fl_scan *scan)
{
    struct fl_listed_dir dir = { .mtime_ns = scan->mtime_ns,
                                 .hash =
                                     fl_scan_hash(scan, fl_folder_matters, s->opt->keep_sidecars) };

    if (fl_listing_add_path(s->l, path, &dir.path) || fl_bytes_add(&s->l->dirs, &dir, sizeof(dir)))
        return no_memory(path);
    return 0;
}

static int add_file(struct lister *s, const char *path, const char *name)
{
    struct fl_listed item = { .label = s->label };

    if (fl_listing_add_path(s->l, path, &item.path) ||
        fl_bytes_add(&s->l->items, &item, sizeof(item)))
        return no_memory(path);
    s->files++;
    note_field(s, name);
    return 0;
}

static int scan_at(struct lister *s, const char *path, struct fl_scan *scan)
{
    char *full = join(s->l->root, path);
    int err;

    *scan = (struct fl_scan){ 0 };
    if (!full)
        return no_memory(path);
    err = fl_scan_dir(scan, full);
    free(full);
    return err;
}

/* Is the folder one of those that we came through? */
static bool is_loop(const struct ancestor *up, const struct fl_scan *scan)
{
    for (; up; up = up->up)
        if (up->dev == scan->dev && up->ino == scan->ino)
            return true;
    return false;
}

/* Everything below a class folder. */
static int list_below(struct lister *s, const char *path, const struct ancestor *up)
{
    struct fl_scan scan;
    int err = scan_at(s, path, &scan);

    if (err)
        return err;
    const struct ancestor here = { up, scan.dev, scan.ino, up->depth + 1 };
    if (is_loop(up, &scan) || here.depth > MAX_DEPTH) {
        fl_log(s->opt->log, FL_LOG_WARNING, "%s/%s leads back to a folder above it: left out",
               s->l->root, path);
        s->l->skips.n[FL_SKIP_LINK]++;
        fl_scan_free(&scan);
        return 0;
    }
    err = add_dir(s, path, &scan);
    for (size_t i = 0; !err && i < scan.n; i++) {
        const struct fl_scanned *e = &scan.entries[i];
        if (!fl_folder_matters(e->name, e->is_dir, s->opt->keep_sidecars) ||
            !(e->is_dir || e->is_regular)) {
            skip(s, e);
            continue;
        }
        char *child = join(path, e->name);
        if (!child)
            err = no_memory(path);
        else
            err = e->is_dir ? list_below(s, child, &here) : add_file(s, child, e->name);
        free(child);
    }
    fl_scan_free(&scan);
    return err;
}

/* Label of a class folder: its place in the caller's list, or the next number. -1: not in the list. */
static int32_t label_of(const struct lister *s, const char *name)
{
    for (size_t i = 0; i < s->opt->n_classes; i++)
        if (!strcmp(s->opt->classes[i], name))
            return (int32_t)i;
    return s->opt->n_classes ? -1 : (int32_t)(s->l->classes.len / sizeof(size_t));
}

static int add_class(struct lister *s, const char *name)
{
    size_t at;

    if (fl_listing_add_path(s->l, name, &at) || fl_bytes_add(&s->l->classes, &at, sizeof(at)))
        return no_memory(name);
    return 0;
}

static int list_class(struct lister *s, const char *name, const struct ancestor *root)
{
    int err;

    s->label = label_of(s, name);
    s->files = 0;
    if (s->label < 0) {
        fl_log(s->opt->log, FL_LOG_WARNING, "%s/%s is not in the class list: left out", s->l->root,
               name);
        s->l->skips.n[FL_SKIP_DIRECTORY]++;
        return 0;
    }
    if (!s->opt->n_classes && (err = add_class(s, name)))
        return err;
    if ((err = list_below(s, name, root)))
        return err;
    if (!s->files && !s->opt->allow_empty_classes)
        return fl_err(
            FL_ERR(EINVAL), FL_STAGE_PLAN,
            "class folder %s/%s holds no pictures; allow_empty_classes (--allow-empty) keeps its "
            "label for it",
            s->l->root, name);
    return 0;
}

/* The classes that the caller named must be there. */
static int check_classes(struct lister *s, const struct fl_scan *scan)
{
    for (size_t i = 0; i < s->opt->n_classes; i++) {
        const char *name = s->opt->classes[i];
        bool there = false;
        int err;
        for (size_t k = 0; k < i; k++)
            if (!strcmp(s->opt->classes[k], name))
                return fl_err(FL_ERR(EINVAL), FL_STAGE_PLAN,
                              "class \"%s\" is twice in the class list", name);
        for (size_t k = 0; k < scan->n; k++)
            there |= scan->entries[k].is_dir && !strcmp(scan->entries[k].name, name);
        if (!there && !s->opt->allow_empty_classes)
            return fl_err(FL_ERR(ENOENT), FL_STAGE_PLAN,
                          "%s has no folder for class \"%s\" of the class list", s->l->root, name);
        if ((err = add_class(s, name)))
            return err;
    }
    return 0;
}

static int no_layout(const char *path)
{
    return fl_err(
        FL_ERR(EINVAL), FL_STAGE_PLAN,
        "%s holds no dataset: expected tar archives (%s/*.tar) or class folders with pictures "
        "(%s/CLASS/*.jpg)",
        path, path, path);
}

static bool is_class(const struct lister *s, const struct fl_scanned *e)
{
    return e->is_dir && fl_folder_matters(e->name, true, s->opt->keep_sidecars);
}

static int list_classes(struct lister *s, const struct fl_scan *scan, const struct ancestor *root)
{
    int err = 0;

    for (size_t i = 0; !err && i < scan->n; i++) {
        const struct fl_scanned *e = &scan->entries[i];
        if (is_class(s, e)) {
            err = list_class(s, e->name, root);
        } else if (e->is_dir) {
            fl_log(s->opt->log, FL_LOG_WARNING, "%s/%s is hidden: not taken for a class",
                   s->l->root, e->name);
            skip(s, e);
        } else if (!e->is_dir && e->is_regular && is_picture(e->name) &&
                   fl_folder_matters(e->name, false, s->opt->keep_sidecars)) {
            return fl_err(FL_ERR(EINVAL), FL_STAGE_PLAN,
                          "%s has both class folders and pictures outside of them (%s): expected "
                          "%s/CLASS/*.jpg",
                          s->l->root, e->name, s->l->root);
        }
    }
    return err;
}

/* Pictures directly in the folder: no classes. */
static int list_flat(struct lister *s, const struct fl_scan *scan)
{
    int err = 0;

    s->label = -1;
    for (size_t i = 0; !err && i < scan->n; i++) {
        const struct fl_scanned *e = &scan->entries[i];
        if (e->is_regular && fl_folder_matters(e->name, false, s->opt->keep_sidecars))
            err = add_file(s, e->name, e->name);
        else if (strncmp(e->name, "index.fli", 9)) // our own file and what a killed run left of it
            skip(s, e);
    }
    return err;
}

/* A smaller label number may come with a later folder, but dataset order is that of the paths. */
static int by_path(const void *a, const void *b, void *paths)
{
    const struct fl_listed *x = a, *y = b;

    return strcmp((const char *)paths + x->path, (const char *)paths + y->path);
}

static int list_folder(struct fl_listing *l, const char *path, const struct fl_list_options *opt)
{
    struct lister s = { .l = l, .opt = opt };
    struct fl_scan scan;
    int err;

    if (!(l->root = strdup(path)))
        return no_memory(path);
    if ((err = scan_at(&s, "", &scan)))
        return err;
    const struct ancestor root = { NULL, scan.dev, scan.ino, 0 };
    bool classes = opt->n_classes > 0;
    for (size_t i = 0; i < scan.n; i++)
        classes |= is_class(&s, &scan.entries[i]);
    if (!(err = add_dir(&s, "", &scan)) && !(err = check_classes(&s, &scan)))
        err = classes ? list_classes(&s, &scan, &root) : list_flat(&s, &scan);
    fl_scan_free(&scan);
    if (!err && !l->items.len)
        err = no_layout(path);
    if (!err)
        qsort_r(l->items.data, l->items.len / sizeof(struct fl_listed), sizeof(struct fl_listed),
                by_path, l->paths.data);
    return err;
}

/* The whole file is one member. */
static int walk_file(struct fl_source *src, bool keep_sidecars, fl_member_fn fn, void *cookie,
                     struct fl_skips *skips, uint64_t *hash)
{
    const struct fl_member m = { .name = src->path,
                                 .name_len = strlen(src->path),
                                 .size = src->size };
    const size_t n = src->size < HASHED_BYTES ? (size_t)src->size : HASHED_BYTES;
    const uint8_t *bytes = n ? fl_source_get(src, 0, n, NULL) : (const uint8_t *)"";

    (void)keep_sidecars;
    (void)skips;
    if (!bytes)
        return fl_err_slot()->code;
    *hash = fl_hash64(bytes, n, 0);
    return fn ? fn(cookie, src, &m) : 0;
}

const struct fl_format fl_format_folder = { .name = "folder",
                                            .list = list_folder,
                                            .walk = walk_file };
