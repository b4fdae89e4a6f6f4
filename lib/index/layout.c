/* SPDX-License-Identifier: Apache-2.0 */
/* Writing the collected columns as a file: sections end to end, cut into checked blocks. */
#include "index/writing.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/newfile.h"
#include "index/blocks.h"

#define MAX_PIECES (FL_INDEX_MAX_FIELDS * 6 + 16)

/* What is being written: a file, or memory that is large enough. */
struct sink {
    int fd; // -1: memory
    uint8_t *memory;
    const char *path;
    uint64_t at;
    uint8_t block[FL_INDEX_BLOCK];
    size_t fill;
    uint64_t number;
};

/* All sections in file order, and what was made for them. */
struct layout {
    struct fl_index_header header;
    struct fl_index_section table[MAX_PIECES];
    const void *data[MAX_PIECES];
    const struct fl_writer_blobs
        *spilled[MAX_PIECES]; // whose first bytes are in a file; NULL: nobody's
    struct fl_index_schema schema[FL_INDEX_MAX_FIELDS];
    struct fl_bytes field_names;
    int n_fields;                         // that are written
    int order[FL_INDEX_MAX_FIELDS];       // field numbers of the file -> of the writer
    int32_t *narrow[FL_INDEX_MAX_FIELDS]; // 32-bit columns
};

static int no_memory(void)
{
    return fl_err(FL_ERR(ENOMEM), FL_STAGE_PLAN, "out of memory while writing the index");
}

static int put(struct sink *s, const void *bytes, size_t len)
{
    int err = 0;

    if (s->fd < 0)
        memcpy(s->memory + s->at, bytes, len);
    else
        err = fl_write_all(s->fd, bytes, len);
    s->at += len;
    return err ? fl_err_file(-err, "write", s->path) : 0;
}

static int flush_block(struct sink *s)
{
    const uint64_t sum = fl_hash64(s->block, s->fill, s->number);

    if (!s->fill)
        return 0;
    memcpy(s->block + s->fill, &sum, sizeof(sum));
    const int err = put(s, s->block, s->fill + sizeof(sum));
    s->number++;
    s->fill = 0;
    return err;
}

static int put_payload(struct sink *s, const void *bytes, size_t len)
{
    while (len) {
        const size_t room = FL_INDEX_PAYLOAD - s->fill, n = len < room ? len : room;
        memcpy(s->block + s->fill, bytes, n);
        s->fill += n;
        bytes = (const char *)bytes + n;
        len -= n;
        if (s->fill == FL_INDEX_PAYLOAD) {
            const int err = flush_block(s);
            if (err)
                return err;
        }
    }
    return 0;
}

static void add(struct layout *l, uint32_t type, uint32_t field, uint32_t item, const void *data,
                size_t bytes)
{
    const uint32_t i = l->header.n_sections++;

    l->data[i] = data;
    l->table[i] = (struct fl_index_section){ .type = type,
                                             .field = field,
                                             .version = 1,
                                             .item = item,
                                             .count = bytes / item,
                                             .offset = l->header.payload,
                                             .length = bytes };
    l->header.payload += bytes;
}

static void add_blobs(struct layout *l, uint32_t type, uint32_t field,
                      const struct fl_writer_blobs *b)
{
    add(l, type, field, 8, b->offsets.data, b->offsets.len);
    add(l, type + 1, field, 1, b->bytes.data, b->spilled + b->bytes.len);
    l->spilled[l->header.n_sections - 1] = b->spilled ? b : NULL;
}

static int pad(struct fl_bytes *column, const void *none, size_t size, int64_t n)
{
    return fl_bytes_fill(column, none, size, (size_t)n - column->len / size) ? no_memory() : 0;
}

static int pad_blobs(struct fl_writer_blobs *b, int64_t n)
{
    const uint64_t end = b->spilled + b->bytes.len;

    return b->offsets.len ? pad(&b->offsets, &end, sizeof(end), n + 1) : 0;
}

static int pad_field(struct fl_writer_field *f, int64_t n)
{
    int err;

    if (f->kind == FL_FIELD_INT)
        return pad(&f->ints, &fl_writer_no_int, sizeof(int64_t), n);
    if ((err = pad(&f->spans, &fl_writer_no_span, sizeof(fl_writer_no_span), n)))
        return err;
    if (f->images.len &&
        (err = pad(&f->images, &fl_writer_no_image, sizeof(fl_writer_no_image), n)))
        return err;
    if ((err = pad_blobs(&f->slices, n)))
        return err;
    return pad_blobs(&f->entries, n);
}

/* Field numbers in name order: what a field is called must not depend on which sample came first. */
static int sort_fields(const struct fl_index_writer *w, struct layout *l)
{
    for (int i = 0; i < w->n_fields; i++) {
        int at = l->n_fields;
        if (w->fields[i].dropped)
            continue;
        for (; at > 0 && strcmp(w->fields[l->order[at - 1]].name, w->fields[i].name) > 0; at--)
            l->order[at] = l->order[at - 1];
        l->order[at] = i;
        l->n_fields++;
        if (at && !strcmp(w->fields[l->order[at - 1]].name, w->fields[i].name))
            return fl_err(FL_ERR(EINVAL), FL_STAGE_PLAN,
                          "index: field \"%s\" has both bytes and integers", w->fields[i].name);
    }
    return 0;
}

static int add_ints(struct layout *l, const struct fl_writer_field *f, int number)
{
    const size_t n = f->ints.len / sizeof(int64_t);
    const int64_t *wide = (const int64_t *)f->ints.data;

    if (f->wide) {
        add(l, FL_SEC_INTS, (uint32_t)number, 8, wide, f->ints.len);
        return 0;
    }
    int32_t *narrow = l->narrow[number] = malloc((n ? n : 1) * sizeof(int32_t));
    if (!narrow)
        return no_memory();
    for (size_t i = 0; i < n; i++)
        narrow[i] = wide[i] == INT64_MIN ? INT32_MIN : (int32_t)wide[i];
    add(l, FL_SEC_INTS, (uint32_t)number, 4, narrow, n * sizeof(int32_t));
    return 0;
}

static int add_field(struct layout *l, const struct fl_writer_field *f, int number)
{
    const uint32_t i = (uint32_t)number;

    if (f->kind == FL_FIELD_INT)
        return add_ints(l, f, number);
    add(l, FL_SEC_SPANS, i, sizeof(struct fl_span), f->spans.data, f->spans.len);
    if (f->images.len)
        add(l, FL_SEC_IMAGE, i, sizeof(struct fl_index_image), f->images.data, f->images.len);
    if (f->slices.offsets.len)
        add_blobs(l, FL_SEC_SLICE_OFFSETS, i, &f->slices);
    if (f->entries.offsets.len) {
        add_blobs(l, FL_SEC_ENTRY_OFFSETS, i, &f->entries);
        l->table[l->header.n_sections - 2].note = f->entries.n;
        l->table[l->header.n_sections - 1].note = f->entries.longest;
    }
    return 0;
}

static int lay_out(struct layout *l, struct fl_index_writer *w)
{
    int err;

    if ((err = sort_fields(w, l)))
        return err;
    for (int i = 0; i < l->n_fields; i++) {
        struct fl_writer_field *f = &w->fields[l->order[i]];
        l->schema[i] = (struct fl_index_schema){
            .name = (uint32_t)l->field_names.len,
            .kind = (uint16_t)f->kind,
            .flags = (uint16_t)((f->checksummed ? FL_SCHEMA_CHECKSUM : 0) |
                                (f->images.len ? FL_SCHEMA_IMAGE : 0)),
            .count = f->count,
            .bytes = f->bytes,
            .max_bytes = f->max_bytes,
            .sliced = f->sliced,
        };
        if (fl_bytes_add(&l->field_names, f->name, strlen(f->name)))
            return no_memory();
        if ((err = pad_field(f, w->n_samples)))
            return err;
    }
    add(l, FL_SEC_SCHEMA, FL_SECTION_NO_FIELD, sizeof(l->schema[0]), l->schema,
        (size_t)l->n_fields * sizeof(l->schema[0]));
    add(l, FL_SEC_SCHEMA_NAMES, FL_SECTION_NO_FIELD, 1, l->field_names.data, l->field_names.len);
    if (w->classes.offsets.len)
        add_blobs(l, FL_SEC_CLASS_OFFSETS, FL_SECTION_NO_FIELD, &w->classes);
    for (int i = 0; i < l->n_fields; i++)
        if ((err = add_field(l, &w->fields[l->order[i]], i)))
            return err;
    add(l, FL_SEC_CONTAINERS, FL_SECTION_NO_FIELD, sizeof(struct fl_index_file), w->containers.data,
        w->containers.len);
    add(l, FL_SEC_CONTAINER_NAMES, FL_SECTION_NO_FIELD, 1, w->container_names.data,
        w->container_names.len);
    if (w->dirs.len) {
        add(l, FL_SEC_DIRECTORIES, FL_SECTION_NO_FIELD, sizeof(struct fl_index_dir), w->dirs.data,
            w->dirs.len);
        add(l, FL_SEC_DIRECTORY_NAMES, FL_SECTION_NO_FIELD, 1, w->dir_names.data, w->dir_names.len);
    }
    if (w->headers.offsets.len)
        add_blobs(l, FL_SEC_HEADER_OFFSETS, FL_SECTION_NO_FIELD, &w->headers);
    if (!w->keys_are_paths) {
        // An index without samples has a key table of one entry.
        static const uint64_t zero;
        add(l, FL_SEC_KEY_OFFSETS, FL_SECTION_NO_FIELD, 8,
            w->keys.offsets.len ? w->keys.offsets.data : (const void *)&zero,
            w->keys.offsets.len ? w->keys.offsets.len : sizeof(zero));
        add(l, FL_SEC_KEYS, FL_SECTION_NO_FIELD, 1, w->keys.bytes.data, w->keys.bytes.len);
    }
    return 0;
}

/* What makes two datasets the same to a loader that resumes: keys, fields, containers by name and size, spans,
 * integers. Neither times nor what was found out about pictures. */
static uint64_t fingerprint(const struct fl_index_writer *w, const struct layout *l)
{
    const struct fl_index_file *file = (const struct fl_index_file *)w->containers.data;
    const uint64_t head[3] = { (uint64_t)w->kind, (uint64_t)w->n_samples, (uint64_t)l->n_fields };
    uint64_t h = fl_hash64(head, sizeof(head), 0);

    for (int i = 0; i < l->n_fields; i++) {
        const struct fl_writer_field *f = &w->fields[l->order[i]];
        h = fl_hash64(f->name, sizeof(f->name), h + (uint64_t)f->kind);
        h = fl_hash64(f->spans.data, f->spans.len, h);
        h = fl_hash64(f->ints.data, f->ints.len, h);
    }
    for (uint32_t i = 0; i < w->n_containers; i++) {
        const uint64_t place[2] = { file[i].name, file[i].size };
        h = fl_hash64(place, sizeof(place), h);
    }
    h = fl_hash64(w->container_names.data, w->container_names.len, h);
    h = fl_hash64(w->keys.offsets.data, w->keys.offsets.len, h);
    return fl_hash64(w->keys.bytes.data, w->keys.bytes.len, h);
}

/* Header and table as they lie in the file; the checksum goes in. */
static void seal_header(struct layout *l, const struct fl_index_writer *w)
{
    struct fl_index_header *h = &l->header;
    const size_t bytes = sizeof(*h) + h->n_sections * sizeof(l->table[0]);

    memcpy(h->magic, FL_INDEX_MAGIC, sizeof(h->magic));
    h->major = FL_INDEX_MAJOR;
    h->minor = FL_INDEX_MINOR;
    h->n_samples = (uint64_t)w->n_samples;
    h->fingerprint = fingerprint(w, l);
    h->data = (bytes + FL_INDEX_DATA_ALIGN - 1) / FL_INDEX_DATA_ALIGN * FL_INDEX_DATA_ALIGN;
    h->kind = (uint32_t)w->kind;
    h->flags = (w->keys_are_paths ? FL_INDEX_KEYS_ARE_PATHS : 0) |
               (w->keep_sidecars ? FL_INDEX_KEEP_SIDECARS : 0) |
               (w->entry_points ? FL_INDEX_ENTRY_POINTS : 0);
    h->skipped = (uint64_t)w->skipped;
    h->options = w->options;
    // Header and table are neighbours in struct layout, as in the file.
    _Static_assert(offsetof(struct layout, table) == sizeof(*h), "header and table must touch");
    h->checksum = fl_hash64(l, bytes, 0);
}

static uint64_t file_bytes(const struct layout *l)
{
    const uint64_t blocks = (l->header.payload + FL_INDEX_PAYLOAD - 1) / FL_INDEX_PAYLOAD;

    return l->header.data + l->header.payload + blocks * 8;
}

/* What a scratch file holds. */
static int put_spilled(struct sink *s, const struct fl_writer_blobs *b)
{
    uint8_t bytes[16384];
    int err = 0;

    for (uint64_t at = 0; !err && at < b->spilled;) {
        const uint64_t left = b->spilled - at;
        const size_t n = left < sizeof(bytes) ? (size_t)left : sizeof(bytes);
        if (!(err = fl_pread_all(b->spill - 1, bytes, n, at, "the scratch file of an index")))
            err = put_payload(s, bytes, n);
        at += n;
    }
    return err;
}

static int put_piece(struct sink *s, const struct layout *l, uint32_t i)
{
    const struct fl_writer_blobs *b = l->spilled[i];
    const int err = b ? put_spilled(s, b) : 0;

    return err ? err : put_payload(s, l->data[i], l->table[i].length - (b ? b->spilled : 0));
}

static int put_all(struct sink *s, const struct layout *l)
{
    static const uint8_t zeros[FL_INDEX_DATA_ALIGN];
    const size_t head = sizeof(l->header) + l->header.n_sections * sizeof(l->table[0]);
    int err = put(s, l, head);

    if (!err)
        err = put(s, zeros, l->header.data - head);
    for (uint32_t i = 0; !err && i < l->header.n_sections; i++)
        err = put_piece(s, l, i);
    return err ? err : flush_block(s);
}

static void free_layout(struct layout *l)
{
    for (size_t i = 0; i < FL_INDEX_MAX_FIELDS; i++)
        free(l->narrow[i]);
    fl_bytes_free(&l->field_names);
    free(l);
}

/* NULL on error. */
static struct layout *make_layout(struct fl_index_writer *w)
{
    struct layout *l = calloc(1, sizeof(*l));

    if (!l) {
        no_memory();
    } else if (lay_out(l, w)) {
        free_layout(l);
        l = NULL;
    } else {
        seal_header(l, w);
    }
    return l;
}

int fl_index_writer_write(struct fl_index_writer *w, const char *path, uint64_t *fingerprint_out)
{
    struct layout *l = make_layout(w);
    struct sink *s = calloc(1, sizeof(*s));
    struct fl_new_file file;
    int err;

    if (!l || !s) {
        err = l ? no_memory() : fl_last_error()->code;
        goto out;
    }
    if ((err = fl_new_file_open(&file, path)))
        goto out;
    s->fd = file.fd;
    s->path = path;
    err = put_all(s, l);
    if (err)
        fl_new_file_discard(&file);
    else
        err = fl_new_file_commit(&file);
    if (!err && fingerprint_out)
        *fingerprint_out = l->header.fingerprint;
out:
    if (l)
        free_layout(l);
    free(s);
    return err;
}

int fl_index_writer_memory(struct fl_index_writer *w, void **bytes, size_t *size)
{
    struct layout *l = make_layout(w);
    struct sink *s = calloc(1, sizeof(*s));
    int err = 0;

    if (!l) {
        err = fl_last_error()->code;
    } else if (!s || !(s->memory = malloc(file_bytes(l)))) {
        err = no_memory();
    } else {
        s->fd = -1;
        err = put_all(s, l);
        *size = file_bytes(l);
        *bytes = err ? NULL : s->memory;
        if (err)
            free(s->memory);
    }
    if (l)
        free_layout(l);
    free(s);
    return err;
}
