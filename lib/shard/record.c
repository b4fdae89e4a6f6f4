/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "shard/record.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/file.h"
#include "base/hash.h"

#define MAGIC "FLSHARD1"

/* One call: this head, then `length` bytes. */
struct call {
    uint32_t op;    // enum op
    uint32_t field; // or kind of a new field
    uint64_t length;
};

enum op { OP_FIELD = 1, OP_HEADER, OP_SAMPLE, OP_SPAN, OP_INT, OP_IMAGE, OP_SLICES };

void fl_shard_counts_add(struct fl_shard_counts *to, const struct fl_shard_counts *from)
{
    to->samples += from->samples;
    to->bytes_in += from->bytes_in;
    to->bytes_out += from->bytes_out;
    to->sliced += from->sliced;
    to->kept += from->kept;
    to->damaged += from->damaged;
    to->shrunk += from->shrunk;
}

void fl_record_fini(struct fl_record *r)
{
    fl_bytes_free(&r->calls);
    fl_bytes_free(&r->headers);
    fl_bytes_free(&r->ends);
    free(r->table);
    *r = (struct fl_record){ 0 };
}

void fl_record_clear(struct fl_record *r)
{
    r->calls.len = r->headers.len = r->ends.len = 0;
    r->n_fields = r->n_headers = 0;
    if (r->table)
        memset(r->table, 0, r->table_cap * sizeof(*r->table));
}

static int no_memory(void)
{
    return fl_err(FL_ERR(ENOMEM), FL_STAGE_PLAN, "no memory for the record of a shard");
}

static int add(struct fl_record *r, enum op op, uint32_t field, const void *data, size_t len)
{
    const struct call call = { .op = op, .field = field, .length = len };

    return fl_bytes_add(&r->calls, &call, sizeof(call)) || fl_bytes_add(&r->calls, data, len)
               ? no_memory()
               : 0;
}

int fl_record_field(struct fl_record *r, const char *name, FlFieldKind kind)
{
    const size_t len = strlen(name);

    for (uint32_t i = 0; i < r->n_fields; i++)
        if (!strcmp(r->fields[i].name, name) && r->fields[i].kind == kind)
            return (int)i;
    if (r->n_fields == FL_INDEX_MAX_FIELDS || len >= sizeof(r->fields[0].name))
        return fl_err(FL_ERR(E2BIG), FL_STAGE_PLAN,
                      "field %.80s: more than %u fields, or a name of 64 bytes", name,
                      FL_INDEX_MAX_FIELDS);
    memcpy(r->fields[r->n_fields].name, name, len + 1);
    r->fields[r->n_fields].kind = kind;
    const int err = add(r, OP_FIELD, kind, name, len + 1);
    return err ? err : (int)r->n_fields++;
}

int fl_record_sample(struct fl_record *r, const char *key, size_t len)
{
    return add(r, OP_SAMPLE, 0, key, len);
}

int fl_record_span(struct fl_record *r, int field, const struct fl_span *span)
{
    return add(r, OP_SPAN, (uint32_t)field, span, sizeof(*span));
}

int fl_record_int(struct fl_record *r, int field, int64_t value)
{
    return add(r, OP_INT, (uint32_t)field, &value, sizeof(value));
}

int fl_record_image(struct fl_record *r, int field, const struct fl_index_image *image)
{
    return add(r, OP_IMAGE, (uint32_t)field, image, sizeof(*image));
}

static struct fl_slice_bytes header_of(const struct fl_record *r, uint32_t id)
{
    const uint64_t *ends = (const uint64_t *)r->ends.data;
    const uint64_t start = id ? ends[id - 1] : 0;

    return (struct fl_slice_bytes){ r->headers.data + start, ends[id] - start };
}

/* Place of a string in the table: its own, or the free one where it belongs. */
static size_t place(const struct fl_record *r, struct fl_slice_bytes s)
{
    size_t i = fl_hash64(s.data, s.len, 0) & (r->table_cap - 1);

    for (; r->table[i]; i = (i + 1) & (r->table_cap - 1)) {
        const struct fl_slice_bytes other = header_of(r, r->table[i] - 1);
        if (other.len == s.len && !memcmp(other.data, s.data, s.len))
            break;
    }
    return i;
}

static int grow_table(struct fl_record *r)
{
    const size_t cap = r->table_cap ? r->table_cap * 2 : 1024;
    uint32_t *table = calloc(cap, sizeof(*table));

    if (!table)
        return no_memory();
    free(r->table);
    r->table = table;
    r->table_cap = cap;
    for (uint32_t id = 0; id < r->n_headers; id++)
        r->table[place(r, header_of(r, id))] = id + 1;
    return 0;
}

static int header_id(struct fl_record *r, struct fl_slice_bytes s, uint32_t *id)
{
    int err;

    if (r->n_headers * (size_t)2 >= r->table_cap && (err = grow_table(r)))
        return err;
    const size_t at = place(r, s);
    if (!r->table[at]) {
        const uint64_t end = r->headers.len + s.len;
        if (fl_bytes_add(&r->headers, s.data, s.len) || fl_bytes_add(&r->ends, &end, sizeof(end)))
            return no_memory();
        if ((err = add(r, OP_HEADER, 0, s.data, s.len)))
            return err;
        r->table[at] = ++r->n_headers;
    }
    *id = r->table[at] - 1;
    return 0;
}

int fl_record_slices(struct fl_record *r, int field, const uint8_t *blob, size_t len,
                     const struct fl_slice_bytes headers[FL_SLICE_HEADERS])
{
    uint32_t ids[FL_SLICE_HEADERS];
    int err;

    for (int i = 0; i < FL_SLICE_HEADERS; i++)
        if ((err = header_id(r, headers[i], &ids[i])))
            return err;
    if ((err = add(r, OP_SLICES, (uint32_t)field, blob, len)))
        return err;
    return fl_slice_blob_set_ids(r->calls.data + r->calls.len - len, len, ids);
}

static uint64_t header_checksum(const struct fl_record_header *h)
{
    return fl_hash64(h, offsetof(struct fl_record_header, checksum), 0);
}

int fl_record_write(const struct fl_record *r, struct fl_record_header *h, const char *dir,
                    const char *name)
{
    struct fl_bytes file = { 0 };

    memcpy(h->magic, MAGIC, sizeof(h->magic));
    h->length = r->calls.len;
    h->calls = fl_hash64(r->calls.data, r->calls.len, 0);
    h->checksum = header_checksum(h);
    int err = fl_bytes_add(&file, h, sizeof(*h)) || fl_bytes_add(&file, r->calls.data, r->calls.len)
                  ? no_memory()
                  : 0;
    if (!err)
        err = fl_file_replace(dir, name, file.data, file.len);
    fl_bytes_free(&file);
    return err;
}

static int check_header(const struct fl_record_header *h, uint64_t plan, uint64_t shard)
{
    return !memcmp(h->magic, MAGIC, sizeof(h->magic)) && h->checksum == header_checksum(h) &&
                   h->plan == plan && h->shard == shard
               ? 0
               : FL_ERR(ENOENT);
}

int fl_record_peek(const char *path, uint64_t plan, uint64_t shard, struct fl_record_header *h)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return FL_ERR(ENOENT);
    const ssize_t n = read(fd, h, sizeof(*h));
    const off_t size = lseek(fd, 0, SEEK_END);
    close(fd);
    if (n != (ssize_t)sizeof(*h) || check_header(h, plan, shard))
        return FL_ERR(ENOENT);
    return (uint64_t)size == sizeof(*h) + h->length ? 0 : FL_ERR(ENOENT);
}

/* Where a replay stands. */
struct replay {
    struct fl_index_writer *w;
    uint32_t container;
    uint32_t n_fields;
    int fields[FL_INDEX_MAX_FIELDS]; // the record's number -> the writer's
    struct fl_bytes headers;         // uint32_t: likewise
    struct fl_bytes blob;
};

static int replay_field(struct replay *p, const struct call *c, const uint8_t *data)
{
    if (p->n_fields == FL_INDEX_MAX_FIELDS || !c->length || data[c->length - 1])
        return FL_ERR(EBADMSG);
    const FlFieldKind kind = (FlFieldKind)c->field;
    const int id = fl_index_writer_field(p->w, (const char *)data, kind);
    if (id < 0)
        return id;
    p->fields[p->n_fields++] = id;
    return kind == FL_FIELD_BYTES ? fl_index_writer_checksummed(p->w, id) : 0;
}

static int replay_header(struct replay *p, const struct call *c, const uint8_t *data)
{
    const int64_t id = fl_index_writer_header(p->w, data, c->length);
    const uint32_t n = (uint32_t)id;

    if (id < 0)
        return (int)id;
    return fl_bytes_add(&p->headers, &n, sizeof(n)) ? no_memory() : 0;
}

static int replay_slices(struct replay *p, const struct call *c, const uint8_t *data)
{
    const uint32_t *known = (const uint32_t *)p->headers.data;
    uint32_t ids[FL_SLICE_HEADERS];

    p->blob.len = 0;
    if (fl_bytes_add(&p->blob, data, c->length))
        return no_memory();
    if (fl_slice_blob_ids(p->blob.data, p->blob.len, ids))
        return FL_ERR(EBADMSG);
    for (int i = 0; i < FL_SLICE_HEADERS; i++) {
        if (!known || ids[i] >= p->headers.len / sizeof(*known))
            return FL_ERR(EBADMSG);
        ids[i] = known[ids[i]];
    }
    const int err = fl_slice_blob_set_ids(p->blob.data, p->blob.len, ids);
    return err ? err : fl_index_writer_slices(p->w, p->fields[c->field], p->blob.data, p->blob.len);
}

static int replay_span(struct replay *p, const struct call *c, const uint8_t *data)
{
    struct fl_span span;

    if (c->length != sizeof(span))
        return FL_ERR(EBADMSG);
    memcpy(&span, data, sizeof(span));
    span.container = p->container;
    return fl_index_writer_span(p->w, p->fields[c->field], &span);
}

static int replay_value(struct replay *p, const struct call *c, const uint8_t *data)
{
    int64_t value;
    struct fl_index_image image;

    if (c->op == OP_INT && c->length == sizeof(value)) {
        memcpy(&value, data, sizeof(value));
        return fl_index_writer_int(p->w, p->fields[c->field], value);
    }
    if (c->op == OP_IMAGE && c->length == sizeof(image)) {
        memcpy(&image, data, sizeof(image));
        return fl_index_writer_image(p->w, p->fields[c->field], &image);
    }
    return FL_ERR(EBADMSG);
}

static int replay_call(struct replay *p, const struct call *c, const uint8_t *data)
{
    if (c->op >= OP_SPAN && c->field >= p->n_fields)
        return FL_ERR(EBADMSG);
    switch (c->op) {
    case OP_FIELD:
        return replay_field(p, c, data);
    case OP_HEADER:
        return replay_header(p, c, data);
    case OP_SAMPLE: {
        const int64_t n = fl_index_writer_sample(p->w, (const char *)data, c->length);
        return n < 0 ? (int)n : 0;
    }
    case OP_SPAN:
        return replay_span(p, c, data);
    case OP_SLICES:
        return replay_slices(p, c, data);
    default:
        return replay_value(p, c, data);
    }
}

static int replay_calls(struct replay *p, const uint8_t *data, size_t len, const char *path)
{
    while (len) {
        struct call c;
        int err = FL_ERR(EBADMSG);
        if (len >= sizeof(c)) {
            memcpy(&c, data, sizeof(c));
            if (c.length <= len - sizeof(c))
                err = replay_call(p, &c, data + sizeof(c));
        }
        if (err == FL_ERR(EBADMSG))
            return fl_err(err, FL_STAGE_PLAN,
                          "%s is damaged; delete it and run `feedline shard` again", path);
        if (err)
            return err;
        data += sizeof(c) + c.length;
        len -= sizeof(c) + c.length;
    }
    return 0;
}

static int replay_file(const uint8_t *data, size_t len, const char *path, struct fl_index_writer *w,
                       const char *shard, uint64_t plan, uint64_t number,
                       struct fl_record_header *h)
{
    struct replay p = { .w = w };

    if (len >= sizeof(*h))
        memcpy(h, data, sizeof(*h));
    if (len < sizeof(*h) || check_header(h, plan, number) || len - sizeof(*h) != h->length ||
        fl_hash64(data + sizeof(*h), h->length, 0) != h->calls)
        return fl_err(FL_ERR(EBADMSG), FL_STAGE_PLAN,
                      "%s is damaged; delete it and run `feedline shard` again", path);
    const int64_t container =
        fl_index_writer_container(w, shard, h->counts.bytes_out, FL_MTIME_NONE, h->hash);
    if (container < 0)
        return (int)container;
    p.container = (uint32_t)container;
    const int err = replay_calls(&p, data + sizeof(*h), h->length, path);
    fl_bytes_free(&p.headers);
    fl_bytes_free(&p.blob);
    return err;
}

int fl_record_replay(const char *path, struct fl_index_writer *w, const char *shard, uint64_t plan,
                     uint64_t number, struct fl_record_header *header)
{
    void *data;
    size_t len;
    int err = fl_file_read(path, SIZE_MAX / 2, &data, &len);

    if (err)
        return err;
    err = replay_file(data, len, path, w, shard, plan, number, header);
    free(data);
    return err;
}
