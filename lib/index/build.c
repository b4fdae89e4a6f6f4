/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "index/build.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <feedline/index.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/ordered.h"
#include "base/thread.h"
#include "formats/format.h"
#include "formats/scan.h"
#include "index/collect.h"
#include "index/dataset.h"

#define FILES_PER_PIECE 256
#define MAX_THREADS 64

/* One build. */
struct build {
    const char *path;
    const FlDatasetOptions *opt;
    const struct fl_log *log;
    const struct fl_format *format;
    struct fl_listing listing;
    struct fl_index_writer *w;
    struct fl_collect_progress progress;
    uint64_t total_bytes;
    int64_t begun; // fl_now_ns()
    struct fl_skips skips;
    int64_t pictures, unreadable;
    char unreadable_name[256];
    int64_t with, without[FL_N_WITHOUT]; // pictures with entry points, and those that got none
    uint64_t with_bytes;
    int jpg, cls;                      // class folders: fields
    bool not_int[FL_INDEX_MAX_FIELDS]; // by the writer's number of the integer field
    int int_of[FL_INDEX_MAX_FIELDS];   // likewise: number of the same field as bytes, plus 1
    size_t n_pieces, per_piece, n_containers;
    struct fl_piece *pieces;
    struct fl_ordered ordered;
};

static int no_memory(const struct build *b)
{
    return fl_err(FL_ERR(ENOMEM), FL_STAGE_PLAN, "%s: out of memory while indexing", b->path);
}

/* ---- options ---- */

int fl_dataset_options(FlDatasetOptions *to, const FlDatasetOptions *from)
{
    *to = (FlDatasetOptions)FL_DATASET_OPTIONS_DEFAULT;
    if (!from)
        return 0;
    if (from->struct_size < offsetof(FlDatasetOptions, n_threads) ||
        from->struct_size > sizeof(*to))
        return fl_err(
            FL_ERR(EINVAL), FL_STAGE_PLAN,
            "FlDatasetOptions.struct_size is %zu: begin with FL_DATASET_OPTIONS_DEFAULT of the "
            "headers that go with this library",
            from->struct_size);
    memcpy(to, from, from->struct_size);
    to->struct_size = sizeof(*to);
    if (to->index != FL_INDEX_AUTO && to->index != FL_INDEX_REQUIRE)
        return fl_err(FL_ERR(EINVAL), FL_STAGE_PLAN, "FlDatasetOptions.index is %d, no FlIndexMode",
                      (int)to->index);
    if (to->n_threads < 0)
        return fl_err(FL_ERR(EINVAL), FL_STAGE_PLAN,
                      "FlDatasetOptions.n_threads is %d, less than 0", to->n_threads);
    if (!to->classes != !to->n_classes || to->n_classes > FL_INDEX_MAX_CLASSES)
        return fl_err(FL_ERR(EINVAL), FL_STAGE_PLAN,
                      "FlDatasetOptions.classes and n_classes (%zu) do not go together",
                      to->n_classes);
    for (size_t i = 0; i < to->n_classes; i++)
        if (!to->classes[i] || !*to->classes[i])
            return fl_err(FL_ERR(EINVAL), FL_STAGE_PLAN,
                          "FlDatasetOptions.classes[%zu] has no name", i);
    return 0;
}

uint64_t fl_options_hash(const FlDatasetOptions *opt)
{
    const uint8_t flags[2] = { opt->allow_empty_classes, opt->keep_sidecars };
    uint64_t h = fl_hash64(flags, sizeof(flags), opt->n_classes);

    for (size_t i = 0; i < opt->n_classes; i++)
        h = fl_hash64(opt->classes[i], strlen(opt->classes[i]) + 1, h);
    return h ? h : 1;
}

char *fl_index_path(const char *path, const FlDatasetOptions *opt)
{
    char *out;

    if (opt->index_path)
        return strdup(opt->index_path);
    if (fl_is_directory(path))
        return fl_path_join(path, FL_INDEX_NAME);
    if ((out = malloc(strlen(path) + 5)))
        strcpy(stpcpy(out, path), ".fli");
    return out;
}

/* ---- joining ---- */

/* What was found out about a picture. */
static int join_picture(struct build *b, int field, const struct fl_piece *p,
                        const struct fl_found *f)
{
    uint32_t ids[FL_SLICE_HEADERS];
    int err = f->image.width ? fl_index_writer_image(b->w, field, &f->image) : 0;

    if (err || !f->blob)
        return err;
    const struct fl_found_picture *s =
        (const struct fl_found_picture *)p->pictures.data + f->blob - 1;
    uint8_t *const blob = p->blobs.data + s->blob;
    for (int i = 0; i < FL_SLICE_HEADERS; i++) {
        const int64_t id =
            fl_index_writer_header(b->w, p->blobs.data + s->headers[i], s->header_len[i]);
        if (id < 0)
            return (int)id;
        ids[i] = (uint32_t)id;
    }
    fl_slice_blob_set_ids(blob, s->blob_len, ids);
    if (f->image.flags & FL_IMAGE_SLICED)
        return fl_index_writer_slices(b->w, field, blob, s->blob_len);
    b->with++;
    b->with_bytes += s->blob_len;
    return fl_index_writer_entries(b->w, field, blob, s->blob_len);
}

/* The writer's number of a member's field; may-be integers have two. */
static int join_member(struct build *b, const struct fl_piece *p, const struct fl_found *f,
                       const struct fl_span *span)
{
    const char *name = p->fields[f->field];
    int field = fl_index_writer_field(b->w, name, FL_FIELD_BYTES), number, err;

    if (field < 0 || (err = fl_index_writer_span(b->w, field, span)))
        return field < 0 ? field : err;
    if (f->image.width)
        return join_picture(b, field, p, f);
    if (!fl_name_is_int(name))
        return 0;
    if ((number = fl_index_writer_field(b->w, name, FL_FIELD_INT)) < 0)
        return number;
    b->int_of[number] = field + 1;
    b->not_int[number] |= !f->is_int;
    return f->is_int ? fl_index_writer_int(b->w, number, f->value) : 0;
}

static int join_file(struct build *b, const struct fl_piece *p, const struct fl_found *f,
                     const struct fl_span *span, int32_t label)
{
    int err = fl_index_writer_span(b->w, b->jpg, span);

    if (!err)
        err = join_picture(b, b->jpg, p, f);
    if (!err && label >= 0)
        err = fl_index_writer_int(b->w, b->cls, label);
    return err;
}

static int join_found(struct build *b, const struct fl_piece *p)
{
    const struct fl_found *f = (const struct fl_found *)p->found.data;
    const struct fl_listed *items = (const struct fl_listed *)b->listing.items.data + p->first;
    const size_t n = p->found.len / sizeof(*f);
    int64_t id;
    int err = 0;

    for (size_t i = 0; !err && i < n; i++, f++) {
        const struct fl_span span = { .offset = f->offset,
                                      .length = f->size,
                                      .container = (uint32_t)(p->first + f->container) };
        if (f->first_of_sample &&
            (id = fl_index_writer_sample(b->w, (const char *)p->keys.data + f->key_at,
                                         f->key_len)) < 0)
            return (int)id;
        err = b->format == &fl_format_folder ? join_file(b, p, f, &span, items[f->container].label)
                                             : join_member(b, p, f, &span);
    }
    return err;
}

static int join_piece(struct build *b, const struct fl_piece *p)
{
    const struct fl_walked *walked = (const struct fl_walked *)p->walked.data;
    const struct fl_listed *items = (const struct fl_listed *)b->listing.items.data + p->first;

    if (p->err.code)
        return fl_err_raise(&p->err);
    for (size_t i = 0; i < p->n; i++) {
        const int64_t id =
            fl_index_writer_container(b->w, fl_listing_path(&b->listing, items[i].path),
                                      walked[i].size, walked[i].mtime_ns, walked[i].hash);
        if (id < 0)
            return (int)id;
    }
    for (int i = 0; i < FL_N_SKIPS; i++)
        b->skips.n[i] += p->skips.n[i];
    b->skips.no_end += p->skips.no_end;
    b->pictures += p->pictures_seen;
    for (int i = 0; i < FL_N_WITHOUT; i++)
        b->without[i] += p->without[i];
    if (p->unreadable && !b->unreadable)
        memcpy(b->unreadable_name, p->unreadable_name, sizeof(b->unreadable_name));
    b->unreadable += p->unreadable;
    return join_found(b, p);
}

/* A field is integers only if all its values are. */
static void settle_fields(struct build *b)
{
    for (int i = 0; i < (int)FL_INDEX_MAX_FIELDS; i++)
        if (b->int_of[i])
            fl_index_writer_drop(b->w, b->not_int[i] ? i : b->int_of[i] - 1);
}

/* ---- threads ---- */

static void *begin_thread(void *cookie)
{
    struct build *b = cookie;
    struct fl_collector *c = calloc(1, sizeof(*c));

    if (!c)
        return NULL;
    c->format = b->format;
    c->listing = &b->listing;
    c->keep_sidecars = b->opt->keep_sidecars;
    c->entry_points = b->opt->entry_points;
    c->progress = &b->progress;
    c->stop = &b->ordered.stop;
    return c;
}

static void end_thread(void *cookie, void *state)
{
    (void)cookie;
    fl_collector_free(state);
    free(state);
}

static void collect_piece(void *cookie, void *state, size_t i)
{
    struct build *b = cookie;

    fl_collect(state, &b->pieces[i]);
}

static int report(struct build *b, bool end)
{
    const bool folder = b->format == &fl_format_folder;
    const FlProgress p = {
        .what = "indexing",
        .done = folder ? (int64_t)atomic_load(&b->progress.members) : fl_index_writer_count(b->w),
        .total = folder ? (int64_t)b->n_containers
                 : end  ? fl_index_writer_count(b->w)
                        : -1,
        .bytes = atomic_load(&b->progress.bytes),
        .total_bytes = b->total_bytes,
        .bad = b->unreadable,
        .seconds = (double)(fl_now_ns() - b->begun) * 1e-9,
    };

    if (b->opt->progress && b->opt->progress(b->opt->progress_cookie, &p) && !end)
        return fl_err(FL_ERR(ECANCELED), FL_STAGE_PLAN, "%s: indexing was stopped by the caller",
                      b->path);
    return 0;
}

static int idle(void *cookie)
{
    return report(cookie, false);
}

static int join(void *cookie, size_t i)
{
    struct build *b = cookie;
    const int err = join_piece(b, &b->pieces[i]);

    fl_piece_free(&b->pieces[i]);
    return err;
}

/* Walk every container with several threads, join here. Walking waits for the drive more than it computes. */
static int walk_all(struct build *b)
{
    int n = b->opt->n_threads ? b->opt->n_threads : 4 * fl_cpu_count();

    n = n > MAX_THREADS ? MAX_THREADS : n;
    b->ordered = (struct fl_ordered){ .n = b->n_pieces,
                                      .n_threads = n,
                                      .window = 4 * (size_t)n,
                                      .name = "fl-index",
                                      .begin = begin_thread,
                                      .end = end_thread,
                                      .work = collect_piece,
                                      .join = join,
                                      .idle = idle };
    return fl_ordered_run(&b->ordered, b);
}

/* ---- the whole ---- */

static int prepare(struct build *b)
{
    struct fl_list_options opt = { .classes = b->opt->classes,
                                   .n_classes = b->opt->n_classes,
                                   .allow_empty_classes = b->opt->allow_empty_classes,
                                   .keep_sidecars = b->opt->keep_sidecars,
                                   .log = b->log };
    int err = b->format->list(&b->listing, b->path, &opt);

    if (err)
        return err;
    b->n_containers = fl_listing_count(&b->listing);
    if (b->n_containers >= FL_NO_CONTAINER)
        return fl_err(FL_ERR(E2BIG), FL_STAGE_PLAN, "%s: more than %u containers", b->path,
                      FL_NO_CONTAINER);
    b->per_piece = b->format == &fl_format_folder ? FILES_PER_PIECE : 1;
    b->n_pieces = (b->n_containers + b->per_piece - 1) / b->per_piece;
    b->pieces = calloc(b->n_pieces + 1, sizeof(*b->pieces));
    if (!b->pieces)
        return no_memory(b);
    for (size_t i = 0; i < b->n_pieces; i++) {
        b->pieces[i].first = i * b->per_piece;
        b->pieces[i].n = b->per_piece;
    }
    if (b->n_pieces)
        b->pieces[b->n_pieces - 1].n = b->n_containers - (b->n_pieces - 1) * b->per_piece;
    return 0;
}

/* Sizes of the archives: what the progress bar counts towards. */
static void sum_sizes(struct build *b)
{
    const struct fl_listed *items = (const struct fl_listed *)b->listing.items.data;

    for (size_t i = 0; b->format == &fl_format_tar && i < b->n_containers; i++) {
        struct stat st;
        char *path = fl_path_join(b->listing.root, fl_listing_path(&b->listing, items[i].path));
        if (path && !stat(path, &st))
            b->total_bytes += (uint64_t)st.st_size;
        free(path);
    }
}

/* Classes, folders and fields that are known from the listing. */
static int begin_writer(struct build *b)
{
    const size_t *classes = (const size_t *)b->listing.classes.data;
    const struct fl_listed_dir *dirs = (const struct fl_listed_dir *)b->listing.dirs.data;
    int err;

    if ((err = fl_index_writer_new(&b->w,
                                   b->format == &fl_format_folder ? FL_KIND_FOLDER : FL_KIND_TAR)))
        return err;
    fl_index_writer_options(b->w, fl_options_hash(b->opt), b->opt->keep_sidecars);
    if (b->opt->entry_points) {
        char *path = fl_index_path(b->path, b->opt);
        if (!path)
            return no_memory(b);
        fl_index_writer_entry_points(b->w, path);
        free(path);
    }
    for (size_t i = 0; i < b->listing.dirs.len / sizeof(*dirs); i++)
        if ((err = fl_index_writer_dir(b->w, fl_listing_path(&b->listing, dirs[i].path),
                                       dirs[i].mtime_ns, dirs[i].hash)))
            return err;
    for (size_t i = 0; i < b->listing.classes.len / sizeof(*classes); i++)
        if ((err = fl_index_writer_class(b->w, fl_listing_path(&b->listing, classes[i]))) < 0)
            return err;
    if (b->format == &fl_format_folder) {
        fl_index_writer_path_keys(b->w);
        b->jpg = fl_index_writer_field(b->w, b->listing.field, FL_FIELD_BYTES);
        if (b->listing.classes.len)
            b->cls = fl_index_writer_field(b->w, "cls", FL_FIELD_INT);
    }
    return 0;
}

static void say_entries(const struct build *b)
{
    const int64_t *n = b->without;

    fl_log(b->log, FL_LOG_INFO,
           "%s: entry points for %" PRId64 " of %" PRId64
           " pictures, %.0f bytes each; none for %" PRId64 " progressive ones, %" PRId64
           " of two or four components, %" PRId64 " of other coding, %" PRId64 " damaged",
           b->path, b->with, b->pictures, (double)b->with_bytes / (double)(b->with ? b->with : 1),
           n[FL_WITHOUT_PROGRESSIVE], n[FL_WITHOUT_COMPONENTS], n[FL_WITHOUT_CODING],
           n[FL_WITHOUT_DAMAGED]);
}

/* Say once what was left out and what looks odd. */
static void say_what_was_seen(const struct build *b, int64_t skipped)
{
    const int64_t *n = b->skips.n;

    if (skipped)
        fl_log(b->log, FL_LOG_INFO,
               "%s: left out %" PRId64 " entries: %" PRId64 " folders, %" PRId64 " links, %" PRId64
               " devices, %" PRId64 " sidecar files, %" PRId64
               " without a field in their name, %" PRId64 " of other types",
               b->path, skipped, n[FL_SKIP_DIRECTORY], n[FL_SKIP_LINK], n[FL_SKIP_DEVICE],
               n[FL_SKIP_SIDECAR], n[FL_SKIP_NAME], n[FL_SKIP_TYPE]);
    if (b->opt->entry_points)
        say_entries(b);
    if (b->skips.no_end)
        fl_log(b->log, FL_LOG_WARNING,
               "%s: %" PRId64
               " archives have no end mark, but every member is whole: were they cut between "
               "two members?",
               b->path, b->skips.no_end);
    if (b->unreadable)
        fl_log(b->log, FL_LOG_WARNING,
               "%s: %" PRId64 " of %" PRId64
               " pictures have no JPEG header that can be understood, the first is %s",
               b->path, b->unreadable, b->pictures, b->unreadable_name);
}

static int finish_writer(struct build *b)
{
    int64_t skipped = 0;

    for (int i = 0; i < FL_N_SKIPS; i++)
        skipped += (b->skips.n[i] += b->listing.skips.n[i]);
    settle_fields(b);
    fl_index_writer_skipped(b->w, skipped);
    say_what_was_seen(b, skipped);
    if (!fl_index_writer_count(b->w))
        return fl_err(FL_ERR(EINVAL), FL_STAGE_PLAN,
                      "%s holds no samples: %" PRId64
                      " entries were left out; a member must be called "
                      "KEY.FIELD, as in 000001.jpg",
                      b->path, skipped);
    return report(b, true);
}

int fl_build(struct fl_index_writer **out, const char *path, const FlDatasetOptions *opt,
             const struct fl_log *log)
{
    struct build *b = calloc(1, sizeof(*b));
    int err;

    if (!b)
        return fl_err(FL_ERR(ENOMEM), FL_STAGE_PLAN, "%s: out of memory while indexing", path);
    b->path = path;
    b->opt = opt;
    b->log = log;
    b->begun = fl_now_ns();
    if (!(err = fl_format_of(path, &b->format)) && !(err = prepare(b)) &&
        !(err = begin_writer(b))) {
        sum_sizes(b);
        if (!(err = walk_all(b)))
            err = finish_writer(b);
    }
    if (!err) {
        *out = b->w;
        b->w = NULL;
    }
    const FlError why = *fl_err_slot();
    for (size_t i = 0; b->pieces && i < b->n_pieces; i++)
        fl_piece_free(&b->pieces[i]);
    free(b->pieces);
    fl_listing_free(&b->listing);
    fl_index_writer_free(&b->w);
    free(b);
    return err ? fl_err_raise(&why) : 0;
}

int fl_index_build(const char *path, const FlDatasetOptions *options)
{
    struct fl_index_writer *w = NULL;
    FlDatasetOptions opt;
    int err;

    if (!path)
        return fl_err(FL_ERR(EINVAL), FL_STAGE_PLAN, "fl_index_build: path is NULL");
    if ((err = fl_dataset_options(&opt, options)))
        return err;
    const struct fl_log log = { opt.log, opt.log_cookie, NULL };
    char *to = fl_index_path(path, &opt);
    if (!to)
        return fl_err(FL_ERR(ENOMEM), FL_STAGE_PLAN, "%s: out of memory", path);
    if (!(err = fl_dataset_check_finished(path)) && !(err = fl_build(&w, path, &opt, &log)))
        err = fl_index_writer_write(w, to, NULL);
    fl_index_writer_free(&w);
    free(to);
    return err;
}
