/* SPDX-License-Identifier: Apache-2.0 */
/* Collecting what goes into an index: columns that grow with the samples. write.c lays them out. */
#include "index/writing.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "base/err.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/newfile.h"

#define SPILL_BYTES (8u << 20) // of entry points that stay in memory

static int no_memory(const struct fl_index_writer *w)
{
    return fl_err(FL_ERR(ENOMEM), FL_STAGE_PLAN,
                  "out of memory while indexing, after %" PRId64 " samples", w->n_samples);
}

static int invalid(const char *what, const char *name)
{
    return fl_err(FL_ERR(EINVAL), FL_STAGE_PLAN, "index: %s \"%s\"", what, name);
}

int fl_index_writer_new(struct fl_index_writer **out, enum fl_index_kind kind)
{
    struct fl_index_writer *w = calloc(1, sizeof(*w));

    if (!w)
        return fl_err(FL_ERR(ENOMEM), FL_STAGE_PLAN, "out of memory while indexing");
    w->kind = kind;
    *out = w;
    return 0;
}

void fl_index_writer_free(struct fl_index_writer **wp)
{
    struct fl_index_writer *w = *wp;

    *wp = NULL;
    if (!w)
        return;
    for (int i = 0; i < w->n_fields; i++) {
        struct fl_writer_field *f = &w->fields[i];
        fl_bytes_free(&f->spans);
        fl_bytes_free(&f->ints);
        fl_bytes_free(&f->images);
        fl_bytes_free(&f->slices.offsets);
        fl_bytes_free(&f->slices.bytes);
        fl_bytes_free(&f->entries.offsets);
        fl_bytes_free(&f->entries.bytes);
        if (f->entries.spill)
            close(f->entries.spill - 1);
    }
    struct fl_bytes *all[] = { &w->containers,      &w->container_names, &w->dirs,
                               &w->dir_names,       &w->keys.offsets,    &w->keys.bytes,
                               &w->classes.offsets, &w->classes.bytes,   &w->headers.offsets,
                               &w->headers.bytes };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        fl_bytes_free(all[i]);
    free(w->header_table);
    free(w->spill_path);
    free(w);
}

int fl_index_writer_field(struct fl_index_writer *w, const char *name, FlFieldKind kind)
{
    for (int i = 0; i < w->n_fields; i++)
        if (!strcmp(w->fields[i].name, name) && w->fields[i].kind == kind)
            return i;
    if (!*name || strlen(name) >= sizeof(w->fields[0].name))
        return invalid("a field's name must have 1 to 63 bytes, not", name);
    if (w->n_fields == FL_INDEX_MAX_FIELDS)
        return fl_err(
            FL_ERR(E2BIG), FL_STAGE_PLAN,
            "field \"%s\" is one too many: a dataset has at most %u fields; is a part of the "
            "keys behind their first dot?",
            name, FL_INDEX_MAX_FIELDS);
    struct fl_writer_field *f = &w->fields[w->n_fields];
    strcpy(f->name, name);
    f->kind = kind;
    return w->n_fields++;
}

void fl_index_writer_drop(struct fl_index_writer *w, int field)
{
    struct fl_writer_field *f = &w->fields[field];

    f->dropped = true;
    fl_bytes_free(&f->spans);
    fl_bytes_free(&f->ints);
}

int fl_index_writer_checksummed(struct fl_index_writer *w, int field)
{
    if (field >= 0 && field < w->n_fields && w->fields[field].checksummed)
        return 0;
    if (field < 0 || field >= w->n_fields || w->fields[field].count)
        return fl_err(FL_ERR(EINVAL), FL_STAGE_PLAN,
                      "index: checksums must be announced before the first span of field %d",
                      field);
    w->fields[field].checksummed = true;
    return 0;
}

static int add_name(struct fl_index_writer *w, struct fl_bytes *names, const char *name,
                    uint64_t *at)
{
    const size_t len = strlen(name);

    if (len >= FL_INDEX_MAX_NAME)
        return invalid("a path is longer than 4,095 bytes:", name);
    *at = names->len;
    return fl_bytes_add(names, name, len) ? no_memory(w) : 0;
}

int64_t fl_index_writer_container(struct fl_index_writer *w, const char *path, uint64_t size,
                                  int64_t mtime_ns, uint64_t hash)
{
    struct fl_index_file file = { .size = size, .mtime_ns = mtime_ns, .hash = hash };
    int err;

    if (w->n_containers == FL_NO_CONTAINER - 1)
        return fl_err(FL_ERR(E2BIG), FL_STAGE_PLAN, "index: more than %u containers",
                      FL_NO_CONTAINER - 1);
    if ((err = add_name(w, &w->container_names, path, &file.name)))
        return err;
    if (fl_bytes_add(&w->containers, &file, sizeof(file)))
        return no_memory(w);
    return w->n_containers++;
}

int fl_index_writer_container_done(struct fl_index_writer *w, uint32_t id, uint64_t size,
                                   int64_t mtime_ns, uint64_t hash)
{
    if (id >= w->n_containers)
        return fl_err(FL_ERR(EINVAL), FL_STAGE_PLAN, "index: there is no container %u", id);
    struct fl_index_file *file = (struct fl_index_file *)w->containers.data + id;
    file->size = size;
    file->mtime_ns = mtime_ns;
    file->hash = hash;
    return 0;
}

int fl_index_writer_dir(struct fl_index_writer *w, const char *path, int64_t mtime_ns,
                        uint64_t hash)
{
    struct fl_index_dir dir = { .mtime_ns = mtime_ns, .hash = hash };
    const int err = add_name(w, &w->dir_names, path, &dir.name);

    if (err)
        return err;
    return fl_bytes_add(&w->dirs, &dir, sizeof(dir)) ? no_memory(w) : 0;
}

/* One more blob; the offset table begins with a 0. */
static int add_blob(struct fl_writer_blobs *b, const void *bytes, size_t len)
{
    uint64_t at = 0;

    if (!b->offsets.len && fl_bytes_add(&b->offsets, &at, sizeof(at)))
        return -1;
    at = b->spilled + b->bytes.len + len;
    b->n += len != 0;
    b->longest = len > b->longest ? len : b->longest;
    // The table last: it alone says what is there.
    return fl_bytes_add(&b->bytes, bytes, len) || fl_bytes_add(&b->offsets, &at, sizeof(at)) ? -1
                                                                                             : 0;
}

/* Move what has gathered in memory to a file. If there can be none, it stays where it is. */
static int spill(struct fl_index_writer *w, struct fl_writer_blobs *b)
{
    int err;

    if (b->bytes.len < SPILL_BYTES || !w->spill_path)
        return 0;
    if (!b->spill)
        b->spill = fl_scratch_file(w->spill_path) + 1;
    if (!b->spill) {
        free(w->spill_path);
        w->spill_path = NULL;
        return 0;
    }
    if ((err = fl_write_all(b->spill - 1, b->bytes.data, b->bytes.len)))
        return fl_err_file(-err, "write a scratch file beside", w->spill_path);
    b->spilled += b->bytes.len;
    b->bytes.len = 0;
    return 0;
}

static int64_t n_blobs(const struct fl_writer_blobs *b)
{
    return b->offsets.len ? (int64_t)(b->offsets.len / sizeof(uint64_t)) - 1 : 0;
}

int fl_index_writer_class(struct fl_index_writer *w, const char *name)
{
    const int64_t n = n_blobs(&w->classes);

    if (n == FL_INDEX_MAX_CLASSES)
        return fl_err(FL_ERR(E2BIG), FL_STAGE_PLAN, "index: more than %u classes",
                      FL_INDEX_MAX_CLASSES);
    return add_blob(&w->classes, name, strlen(name)) ? no_memory(w) : (int)n;
}

/* Slot of these bytes in the dictionary's hash table, which is at most half full. */
static uint32_t *header_slot(struct fl_index_writer *w, uint64_t hash, const void *bytes,
                             size_t len)
{
    const uint64_t *at = (const uint64_t *)w->headers.offsets.data;
    size_t i = hash & (w->header_slots - 1);

    for (;; i = (i + 1) & (w->header_slots - 1)) {
        uint32_t *slot = &w->header_table[i];
        if (!*slot)
            return slot;
        const uint64_t begin = at[*slot - 1], end = at[*slot];
        if (end - begin == len && !memcmp(w->headers.bytes.data + begin, bytes, len))
            return slot;
    }
}

static int grow_headers(struct fl_index_writer *w)
{
    const size_t slots = w->header_slots ? w->header_slots * 2 : 1024;
    uint32_t *old = w->header_table;

    w->header_table = calloc(slots, sizeof(*w->header_table));
    if (!w->header_table) {
        w->header_table = old;
        return no_memory(w);
    }
    w->header_slots = slots;
    const uint64_t *at = (const uint64_t *)w->headers.offsets.data;
    for (int64_t id = 0; id < n_blobs(&w->headers); id++) {
        const uint8_t *bytes = w->headers.bytes.data + at[id];
        const size_t len = at[id + 1] - at[id];
        *header_slot(w, fl_hash64(bytes, len, 0), bytes, len) = (uint32_t)id + 1;
    }
    free(old);
    return 0;
}

int64_t fl_index_writer_header(struct fl_index_writer *w, const void *bytes, size_t len)
{
    const int64_t n = n_blobs(&w->headers);
    int err;

    if (n == INT32_MAX)
        return fl_err(FL_ERR(E2BIG), FL_STAGE_PLAN, "index: the header dictionary is full");
    if ((size_t)n * 2 >= w->header_slots && (err = grow_headers(w)))
        return err;
    uint32_t *slot = header_slot(w, fl_hash64(bytes, len, 0), bytes, len);
    if (*slot)
        return *slot - 1;
    if (add_blob(&w->headers, bytes, len))
        return no_memory(w);
    *slot = (uint32_t)n + 1;
    return n;
}

int64_t fl_index_writer_sample(struct fl_index_writer *w, const char *key, size_t key_len)
{
    if (key_len >= FL_INDEX_MAX_NAME)
        return fl_err(FL_ERR(E2BIG), FL_STAGE_PLAN,
                      "the key of sample %" PRId64 " has %zu bytes, the limit is %u", w->n_samples,
                      key_len, FL_INDEX_MAX_NAME - 1);
    if (!w->keys_are_paths && add_blob(&w->keys, key, key_len))
        return no_memory(w);
    return w->n_samples++;
}

void fl_index_writer_path_keys(struct fl_index_writer *w)
{
    w->keys_are_paths = true;
}

/* Bring a column up to the last sample with `none`, then set that sample's item. */
static int set_item(struct fl_index_writer *w, int field, struct fl_bytes *column, const void *none,
                    const void *item, size_t size)
{
    const uint64_t want = (uint64_t)w->n_samples - 1, have = column->len / size;

    if (!w->n_samples || field < 0 || field >= w->n_fields || have > want)
        return fl_err(FL_ERR(EINVAL), FL_STAGE_PLAN,
                      "index: field %d of sample %" PRId64
                      " is set twice, or there is no such field",
                      field, w->n_samples - 1);
    if (fl_bytes_fill(column, none, size, want - have) || fl_bytes_add(column, item, size))
        return no_memory(w);
    return 0;
}

const struct fl_span fl_writer_no_span = { .container = FL_NO_CONTAINER };
const struct fl_index_image fl_writer_no_image;
const int64_t fl_writer_no_int = INT64_MIN;

static struct fl_writer_field *field_of(struct fl_index_writer *w, int field, FlFieldKind kind)
{
    if (field >= 0 && field < w->n_fields && w->fields[field].kind == kind)
        return &w->fields[field];
    fl_err(FL_ERR(EINVAL), FL_STAGE_PLAN, "index: there is no field %d of this kind", field);
    return NULL;
}

int fl_index_writer_span(struct fl_index_writer *w, int field, const struct fl_span *span)
{
    struct fl_writer_field *f = field_of(w, field, FL_FIELD_BYTES);
    int err;

    if (!f)
        return FL_ERR(EINVAL);
    if (span->container >= w->n_containers)
        return fl_err(FL_ERR(EINVAL), FL_STAGE_PLAN, "index: there is no container %u",
                      span->container);
    if ((err = set_item(w, field, &f->spans, &fl_writer_no_span, span, sizeof(*span))))
        return err;
    f->count++;
    f->bytes += span->length;
    if (span->length > f->max_bytes)
        f->max_bytes = span->length;
    return 0;
}

int fl_index_writer_int(struct fl_index_writer *w, int field, int64_t value)
{
    struct fl_writer_field *f = field_of(w, field, FL_FIELD_INT);
    int err;

    if (!f || value == INT64_MIN)
        return f ? invalid("the least 64-bit integer cannot be stored in field", f->name)
                 : FL_ERR(EINVAL);
    if ((err = set_item(w, field, &f->ints, &fl_writer_no_int, &value, sizeof(value))))
        return err;
    f->count++;
    f->wide |= value <= INT32_MIN || value > INT32_MAX;
    return 0;
}

int fl_index_writer_image(struct fl_index_writer *w, int field, const struct fl_index_image *image)
{
    struct fl_writer_field *f = field_of(w, field, FL_FIELD_BYTES);

    if (!f)
        return FL_ERR(EINVAL);
    f->sliced += (image->flags & FL_IMAGE_SLICED) != 0;
    return set_item(w, field, &f->images, &fl_writer_no_image, image, sizeof(*image));
}

/* The samples since the last one with a blob get empty ones. */
static int set_blob(struct fl_index_writer *w, struct fl_writer_blobs *b, const void *bytes,
                    size_t len)
{
    if (n_blobs(b) >= w->n_samples)
        return fl_err(FL_ERR(EINVAL), FL_STAGE_PLAN,
                      "index: a blob of sample %" PRId64 " is set twice", w->n_samples - 1);
    while (n_blobs(b) < w->n_samples - 1)
        if (add_blob(b, NULL, 0))
            return no_memory(w);
    return add_blob(b, bytes, len) ? no_memory(w) : 0;
}

int fl_index_writer_slices(struct fl_index_writer *w, int field, const void *blob, size_t len)
{
    struct fl_writer_field *f = field_of(w, field, FL_FIELD_BYTES);

    return f ? set_blob(w, &f->slices, blob, len) : FL_ERR(EINVAL);
}

int fl_index_writer_entries(struct fl_index_writer *w, int field, const void *blob, size_t len)
{
    struct fl_writer_field *f = field_of(w, field, FL_FIELD_BYTES);

    const int err = f ? set_blob(w, &f->entries, blob, len) : FL_ERR(EINVAL);

    return err ? err : spill(w, &f->entries);
}

void fl_index_writer_skipped(struct fl_index_writer *w, int64_t n)
{
    w->skipped += n;
}

void fl_index_writer_options(struct fl_index_writer *w, uint64_t hash, bool keep_sidecars)
{
    w->options = hash;
    w->keep_sidecars = keep_sidecars;
}

void fl_index_writer_entry_points(struct fl_index_writer *w, const char *path)
{
    w->entry_points = true;
    w->spill_path = strdup(path); // NULL: then they stay in memory
}

int64_t fl_index_writer_count(const struct fl_index_writer *w)
{
    return w->n_samples;
}
