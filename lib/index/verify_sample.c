/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "index/verify.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/file.h"
#include "base/hash.h"
#include "formats/source.h"
#include "index/stale.h"
#include "jpeg/decode.h"
#include "jpeg/direct.h"
#include "jpeg/slice.h"
#include "shard/key.h"

#define PATH_BYTES (FL_INDEX_MAX_NAME + 1024)

struct fl_checker {
    const FlDataset *ds;
    const struct fl_index *ix;
    struct fl_origin *origin;
    struct fl_jpeg_decoder *decoder; // NULL: do not decode
    struct fl_direct *direct;        // made when the first picture with entry points comes
    uint32_t open_id;                // container that fd belongs to, FL_NO_CONTAINER: none
    int fd, open_err;                // what came of opening it
    char path[PATH_BYTES];           // of it
    char key[FL_INDEX_MAX_NAME];     // of the sample at hand
    struct fl_bytes bytes, other, pixels, blob;
};

void fl_finding(struct fl_findings *f, struct fl_finding_head head, const char *format, ...)
{
    char text[1024];
    va_list ap;

    va_start(ap, format);
    vsnprintf(text, sizeof(text), format, ap);
    va_end(ap);
    const size_t before = f->items.len;
    if (head.sample < 0)
        f->structure++;
    if (fl_bytes_add(&f->items, &head, sizeof(head)) ||
        fl_bytes_add(&f->items, text, strlen(text) + 1))
        f->items.len = before;
}

struct fl_checker *fl_checker_new(const FlDataset *ds, struct fl_origin *origin, bool decode)
{
    struct fl_checker *c = calloc(1, sizeof(*c));

    if (!c) {
        fl_err(FL_ERR(ENOMEM), FL_STAGE_PLAN, "out of memory");
        return NULL;
    }
    c->ds = ds;
    c->ix = fl_dataset_index(ds);
    c->origin = origin;
    c->open_id = FL_NO_CONTAINER;
    c->fd = -1;
    if (decode && fl_jpeg_decoder_new(&c->decoder, NULL, fl_kernels_get(FL_CPU_BEST))) {
        fl_checker_free(c);
        c = NULL;
    }
    return c;
}

void fl_checker_free(struct fl_checker *c)
{
    if (!c)
        return;
    if (c->fd >= 0)
        close(c->fd);
    fl_jpeg_decoder_free(c->decoder);
    fl_direct_free(c->direct);
    fl_bytes_free(&c->bytes);
    fl_bytes_free(&c->other);
    fl_bytes_free(&c->pixels);
    fl_bytes_free(&c->blob);
    free(c);
}

/* Have the container open; an error that was found stays until another one is asked for. */
static int open_container(struct fl_checker *c, uint32_t id)
{
    FlError why;
    int err;

    if (c->open_id == id)
        return c->open_err;
    if (c->fd >= 0)
        close(c->fd);
    c->open_id = id;
    c->fd = -1;
    if ((err = fl_dataset_container_path(c->ds, id, c->path, sizeof(c->path))) < 0)
        return c->open_err = err;
    c->fd = open(c->path, O_RDONLY | O_CLOEXEC);
    if (c->fd < 0)
        return c->open_err = fl_err_file(errno, "open", c->path);
    (void)posix_fadvise(c->fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    if ((err = fl_dataset_check_container(c->ds, id, c->fd, &why)))
        fl_err_raise(&why);
    return c->open_err = err;
}

/* Where a finding is: sample, key, field, place. */
static void bad_field(const struct fl_checker *c, struct fl_findings *f, int64_t sample,
                      int32_t field, const struct fl_span *span, int code, const char *what)
{
    const char *name = fl_index_field(c->ix, field)->name;
    const struct fl_finding_head head = { sample, field, code };

    if (span)
        fl_finding(f, head,
                   "sample %" PRId64 " (%s), field %s, bytes %" PRIu64 " to %" PRIu64 " of %s: %s",
                   sample, c->key, name, span->offset, span->offset + span->length, c->path, what);
    else
        fl_finding(f, head, "sample %" PRId64 " (%s), field %s: %s", sample, c->key, name, what);
}

static int read_span(struct fl_checker *c, const struct fl_span *span)
{
    int err = open_container(c, span->container);
    uint64_t done = 0;

    if (err) // the message of an earlier sample is gone
        return fl_last_error()->code == err
                   ? err
                   : fl_err(err, FL_STAGE_READ, "%s cannot be used", c->path);
    c->bytes.len = 0;
    if (span->length && !fl_bytes_room(&c->bytes, span->length))
        return fl_err(FL_ERR(ENOMEM), FL_STAGE_READ, "no memory for %" PRIu64 " bytes",
                      span->length);
    while (done < span->length) {
        const ssize_t n =
            pread(c->fd, c->bytes.data + done, span->length - done, (off_t)(span->offset + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return fl_err_file(errno, "read", c->path);
        if (!n)
            return fl_err(FL_ERR(ESTALE), FL_STAGE_READ, "the file ends at byte %" PRIu64,
                          span->offset + done);
        done += (uint64_t)n;
    }
    c->bytes.len = span->length;
    return 0;
}

/* ---- pictures ---- */

static bool decode(struct fl_checker *c, const uint8_t *data, size_t len, FlError *why)
{
    struct fl_jpeg_header h;
    struct fl_jpeg_request req = { .exact = true, .channels = 3 };

    if (fl_jpeg_parse(data, len, &h, why))
        return false;
    req.crop.box = req.crop.window = (struct fl_rect){ 0, 0, (int32_t)h.width, (int32_t)h.height };
    req.crop.rw = (int32_t)h.width;
    req.crop.rh = (int32_t)h.height;
    req.stride = (ptrdiff_t)h.width * 3;
    c->pixels.len = 0;
    // 65,535 x 65,535 at most, and refused by the decoder beyond its limit; ask it first with no memory at stake.
    const uint64_t need = (uint64_t)h.width * h.height * 3;
    if (need > UINT64_C(3) * 178956970) {
        fl_err_set(why, FL_ERR(E2BIG), FL_STAGE_DECODE,
                   "%u x %u pixels are more than the limit of 178956970", h.width, h.height);
        return false;
    }
    if (!(req.dst = fl_bytes_room(&c->pixels, need + 64))) {
        fl_err_set(why, FL_ERR(ENOMEM), FL_STAGE_DECODE,
                   "no memory for %" PRIu64 " bytes of pixels", need);
        return false;
    }
    return !fl_jpeg_decode(c->decoder, data, len, &req, why, NULL);
}

typedef int blob_fn(const struct fl_index *ix, int32_t field, int64_t sample, void *buf, size_t cap,
                    size_t *len);

/* A picture's slice table or entry points in c->blob. False: there are none to be had, *why says why. */
static bool read_blob(struct fl_checker *c, blob_fn *get, int64_t sample, int32_t field,
                      const char **why)
{
    size_t len;
    int err = get(c->ix, field, sample, c->blob.data, c->blob.cap, &len);

    if (err == FL_ERR(E2BIG)) {
        c->blob.len = 0;
        if (fl_bytes_room(&c->blob, len))
            err = get(c->ix, field, sample, c->blob.data, c->blob.cap, &len);
    }
    c->blob.len = err ? 0 : len;
    *why = err == FL_ERR(E2BIG) ? "no memory" : err ? fl_last_error()->message : "";
    return !err;
}

/* Is string `id` of the dictionary this one? */
static bool same_string(struct fl_checker *c, uint32_t id, struct fl_slice_bytes want)
{
    size_t len;

    c->other.len = 0;
    return fl_bytes_room(&c->other, want.len + 1) &&
           !fl_index_header(c->ix, id, c->other.data, want.len, &len) && len == want.len &&
           !memcmp(c->other.data, want.data, len);
}

/* Entry points and header strings must be what the bytes give. */
static void check_entries(struct fl_checker *c, int64_t sample, int32_t field,
                          const struct fl_span *span, struct fl_findings *f)
{
    uint32_t ids[FL_SLICE_HEADERS];
    struct fl_slice_parts parts;
    const char *what;
    FlError why = { 0 };

    if (!read_blob(c, fl_index_entries, sample, field, &what)) {
        bad_field(c, f, sample, field, span, FL_ERR(EBADMSG), what);
        return;
    }
    if (!c->direct)
        c->direct = fl_direct_new(1 << 20, 0, FL_CPU_BEST);
    if (!c->direct || fl_direct_entries(c->direct, c->bytes.data, c->bytes.len, &parts, &why)) {
        bad_field(c, f, sample, field, span, FL_ERR(EBADMSG),
                  c->direct ? why.message : "no memory");
        return;
    }
    const size_t ids_end = sizeof(ids); // which the maker of the points left at zero
    if (fl_slice_blob_ids(c->blob.data, c->blob.len, ids) || c->blob.len != parts.blob.len ||
        memcmp(c->blob.data + ids_end, parts.blob.data + ids_end, parts.blob.len - ids_end) != 0 ||
        !same_string(c, ids[0], parts.headers[0]) || !same_string(c, ids[1], parts.headers[1]))
        bad_field(c, f, sample, field, span, FL_ERR(EBADMSG),
                  "its entry points in the index are not those of its bytes");
}

/* The slice table must be one, and every row group must be what it says. */
static void check_slices(struct fl_checker *c, int64_t sample, int32_t field,
                         const struct fl_span *span, struct fl_findings *f)
{
    struct fl_slice_table t;
    struct fl_slice_range r;
    const char *what;
    FlError why = { 0 };

    if (!read_blob(c, fl_index_slices, sample, field, &what)) {
        bad_field(c, f, sample, field, span, FL_ERR(EBADMSG), what);
        return;
    }
    if (!c->blob.len || fl_slice_table_unpack(&t, c->blob.data, c->blob.len)) {
        bad_field(c, f, sample, field, span, FL_ERR(EBADMSG), "its slice table is damaged");
        return;
    }
    const struct fl_rect all = { 0, 0, (int32_t)t.frame.width, (int32_t)t.frame.height };
    if (fl_slice_range(&t, all, 8, &r) || r.offset > c->bytes.len ||
        r.length > c->bytes.len - r.offset)
        bad_field(c, f, sample, field, span, FL_ERR(EBADMSG),
                  "its slice table does not fit its bytes");
    else if (fl_slice_check_groups(&t, &r, c->bytes.data + r.offset, &why))
        bad_field(c, f, sample, field, span, FL_ERR(EBADMSG), why.message);
}

static void check_picture(struct fl_checker *c, int64_t sample, int32_t field,
                          const struct fl_span *span, struct fl_findings *f)
{
    struct fl_index_image image;
    struct fl_jpeg_header h;
    FlError why = { 0 };

    if (fl_index_image(c->ix, field, sample, &image)) {
        bad_field(c, f, sample, field, span, FL_ERR(EBADMSG), fl_last_error()->message);
        return;
    }
    if (image.width) {
        if (fl_jpeg_parse(c->bytes.data, c->bytes.len, &h, &why))
            bad_field(c, f, sample, field, span, FL_ERR(EBADMSG), why.message);
        else if (h.width != image.width || h.height != image.height ||
                 h.components != image.components)
            bad_field(c, f, sample, field, span, FL_ERR(EBADMSG),
                      "its size is not the one in the index");
        if (image.flags & FL_IMAGE_SLICED)
            check_slices(c, sample, field, span, f);
        if (image.flags & FL_IMAGE_ENTRIES)
            check_entries(c, sample, field, span, f);
    }
    if (c->decoder && !decode(c, c->bytes.data, c->bytes.len, &why))
        bad_field(c, f, sample, field, span, FL_ERR(EBADMSG), why.message);
}

/* ---- the origin ---- */

/* The origin's bytes of this field in c->other. false: it has none, or they cannot be read. */
static bool read_origin(struct fl_checker *c, int64_t origin, int32_t field)
{
    size_t len = 0;

    if (field < 0 || fl_dataset_read(c->origin->ds, origin, field, NULL, 0, &len))
        return false;
    c->other.len = 0;
    if (!fl_bytes_room(&c->other, len + 1) ||
        fl_dataset_read(c->origin->ds, origin, field, c->other.data, len, &len))
        return false;
    c->other.len = len;
    return true;
}

/* This sample's bytes of a field in c->bytes; integers as their digits. */
static bool read_own(struct fl_checker *c, int64_t sample, int32_t field)
{
    struct fl_span span;
    int64_t value;

    if (fl_index_field(c->ix, field)->kind == FL_FIELD_INT) {
        c->bytes.len = 0;
        if (fl_index_int(c->ix, field, sample, &value) || !fl_bytes_room(&c->bytes, 24))
            return false;
        c->bytes.len = (size_t)snprintf((char *)c->bytes.data, 24, "%" PRId64, value);
        return true;
    }
    return !fl_index_span(c->ix, field, sample, &span) && span.container != FL_NO_CONTAINER &&
           !read_span(c, &span);
}

/* Do both samples hold the same in every field of either? Bytes, or at least the same pixels. */
static bool same_sample(struct fl_checker *c, int64_t sample, int64_t origin, char *why,
                        size_t size)
{
    const struct fl_index *from = fl_dataset_index(c->origin->ds);
    const int32_t n = fl_index_info(c->ix)->n_fields, n_from = fl_index_info(from)->n_fields;
    FlError err = { 0 };

    for (int32_t i = 0; i < n; i++) {
        const char *name = fl_index_field(c->ix, i)->name;
        const bool own = read_own(c, sample, i),
                   other = read_origin(c, origin, fl_index_find(from, name));
        if (!own && !other)
            continue;
        if (own != other)
            snprintf(why, size, "field %s is %s", name,
                     own ? "not in the origin, or unreadable there" : "missing");
        else if (c->bytes.len == c->other.len &&
                 !memcmp(c->bytes.data, c->other.data, c->bytes.len))
            continue;
        else if (!fl_index_field(c->ix, i)->is_image)
            snprintf(why, size, "field %s has other bytes than its origin", name);
        else if (fl_slice_compare(c->other.data, c->other.len, c->bytes.data, c->bytes.len, &err))
            snprintf(why, size, "field %s has other pixels than its origin: %s", name, err.message);
        else
            continue;
        return false;
    }
    for (int32_t i = 0; i < n_from; i++) {
        const char *name = fl_index_field(from, i)->name;
        if (fl_index_find(c->ix, name) < 0 && read_origin(c, origin, i)) {
            snprintf(why, size, "field %s of its origin is missing", name);
            return false;
        }
    }
    return true;
}

/* Find the sample among the origin's samples of this key that nothing else came from. *why gets what
 * differs, and stays as it is if there is none of this key. */
static bool found_in_origin(struct fl_checker *c, int64_t sample, const char *key, char *why,
                            size_t size)
{
    struct fl_origin *o = c->origin;

    while (key[0] == '.' && key[1] == '/')
        key += 2; // as in fl_origin_open()
    const uint64_t h = fl_hash64(key, strlen(key), 0);
    for (size_t i = h & (o->slots - 1); o->sample[i] >= 0; i = (i + 1) & (o->slots - 1)) {
        if (o->hash[i] != h || atomic_load(&o->seen[o->sample[i]]))
            continue;
        const bool same = same_sample(c, sample, o->sample[i], why, size);
        // One that differs in its bytes alone is there, if not the same.
        if (same || strstr(why, "other pixels") || strstr(why, "other bytes"))
            atomic_store(&o->seen[o->sample[i]], 1);
        if (same)
            return true;
    }
    return false;
}

static void check_origin(struct fl_checker *c, int64_t sample, struct fl_findings *f)
{
    char source[FL_INDEX_MAX_NAME], why[600] = "";

    if (found_in_origin(c, sample, c->key, why, sizeof(why)))
        return;
    // The sharder writes some keys in another way; this is the way back.
    if (!*why && fl_shard_key_source(c->key, strlen(c->key), source, sizeof(source)) >= 0 &&
        strcmp(source, c->key) && found_in_origin(c, sample, source, why, sizeof(why)))
        return;
    fl_finding(f, (struct fl_finding_head){ sample, -1, FL_ERR(EBADMSG) },
               "sample %" PRId64 " (%s): %s", sample, c->key,
               *why ? why : "the origin has no sample of this key, or fewer than this dataset");
}

/* ---- one sample, one archive ---- */

static void check_field(struct fl_checker *c, int64_t sample, int32_t i, struct fl_findings *f)
{
    const struct fl_index_field *field = fl_index_field(c->ix, i);
    struct fl_span span;
    int64_t value;
    char text[96];

    if (field->kind == FL_FIELD_INT) {
        const int err = fl_index_int(c->ix, i, sample, &value);
        if (err && err != FL_ERR(ENOENT))
            bad_field(c, f, sample, i, NULL, fl_last_error()->code, fl_last_error()->message);
        return;
    }
    if (fl_index_span(c->ix, i, sample, &span)) {
        bad_field(c, f, sample, i, NULL, fl_last_error()->code, fl_last_error()->message);
        return;
    }
    if (span.container == FL_NO_CONTAINER)
        return;
    if (read_span(c, &span)) {
        bad_field(c, f, sample, i, &span, fl_last_error()->code, fl_last_error()->message);
        return;
    }
    f->bytes += span.length;
    f->unchecked += !field->has_checksum;
    if (field->has_checksum && fl_checksum32(c->bytes.data, span.length) != span.checksum) {
        snprintf(text, sizeof(text), "checksum %08" PRIx32 ", but %08" PRIx32 " in the index",
                 fl_checksum32(c->bytes.data, span.length), span.checksum);
        bad_field(c, f, sample, i, &span, FL_ERR(EBADMSG), text);
        return; // whatever else is wrong follows from it
    }
    if (field->is_image)
        check_picture(c, sample, i, &span, f);
}

void fl_check_sample(struct fl_checker *c, int64_t sample, struct fl_findings *f)
{
    const size_t before = f->items.len;

    f->samples++;
    if (fl_index_key(c->ix, sample, c->key, sizeof(c->key)) < 0) {
        strcpy(c->key, "?");
        fl_finding(f, (struct fl_finding_head){ sample, -1, FL_ERR(EBADMSG) },
                   "sample %" PRId64 ": %s", sample, fl_last_error()->message);
    }
    for (int32_t i = 0; i < fl_index_info(c->ix)->n_fields; i++)
        check_field(c, sample, i, f);
    if (c->origin->ds && f->items.len == before)
        check_origin(c, sample, f);
    f->bad += f->items.len != before;
}

void fl_check_archive(struct fl_checker *c, uint32_t id, struct fl_findings *f)
{
    struct fl_index_container info;
    uint64_t hash = 0;

    if (open_container(c, id) || fl_index_container(c->ix, id, &info) ||
        fl_container_hash(c->ix, c->fd, c->path, &hash))
        fl_finding(f, FL_FINDING_NONE, "%s", fl_last_error()->message);
    else if (hash != info.hash)
        fl_finding(f, FL_FINDING_NONE,
                   "%s: its member headers or labels are not those that were indexed", c->path);
}
