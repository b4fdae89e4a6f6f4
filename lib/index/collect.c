/* SPDX-License-Identifier: Apache-2.0 */
#include "index/collect.h"
#include "index/picture.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/hash.h"
#include "jpeg/direct.h"

#define WINDOW 16384u // bytes of a read: a member's header and the beginning of a picture
#define MAX_JPEG_HEADER (1u << 24) // bytes before the frame header: profiles, thumbnails
#define MAX_INT_BYTES 20u

/* One container on its way through fl_format.walk(). */
struct visit {
    struct fl_collector *c;
    struct fl_piece *p;
    uint32_t container;
    int64_t open;     // index in p->found of the open sample's first member, -1: none
    uint64_t done;    // bytes of it that the progress counter has
    const char *name; // path relative to the root
};

static struct fl_found *found_at(const struct fl_piece *p, size_t i)
{
    return (struct fl_found *)p->found.data + i;
}

static size_t n_found(const struct fl_piece *p)
{
    return p->found.len / sizeof(struct fl_found);
}

static int no_memory(const char *path)
{
    return fl_err(FL_ERR(ENOMEM), FL_STAGE_PLAN, "%s: out of memory while indexing", path);
}

static int bad_member(const struct visit *v, const struct fl_member *m, int code, const char *what)
{
    fl_err(code, FL_STAGE_READ, "%s: member \"%s\" at byte %" PRIu64 ": %s", v->c->src.path,
           m->name, m->header, what);
    fl_err_at(fl_err_slot(), v->name, m->header);
    return code;
}

/* Number of a field's name within the piece. */
static int field_of(struct fl_piece *p, const char *name)
{
    for (int i = 0; i < p->n_fields; i++)
        if (!strcmp(p->fields[i], name))
            return i;
    if (p->n_fields == (int)FL_INDEX_MAX_FIELDS)
        return FL_ERR(E2BIG);
    if (p->n_fields % 32 == 0) {
        void *more = realloc(p->fields, ((size_t)p->n_fields + 32) * sizeof(*p->fields));
        if (!more)
            return FL_ERR(ENOMEM);
        p->fields = more;
    }
    strcpy(p->fields[p->n_fields], name);
    return p->n_fields++;
}

/* ---- keys of a container ---- */

static bool same_key(const struct fl_piece *p, const struct fl_found *f, const char *key,
                     size_t len)
{
    return f->key_len == len && !memcmp(p->keys.data + f->key_at, key, len);
}

static uint32_t *slot_of(struct fl_collector *c, const struct fl_piece *p, const char *key,
                         size_t len)
{
    size_t i = fl_hash64(key, len, 0) & (c->slots - 1);

    while (c->table[i] && !same_key(p, found_at(p, c->table[i] - 1), key, len))
        i = (i + 1) & (c->slots - 1);
    return &c->table[i];
}

/* Keep the table at most half full. */
static int grow(struct fl_collector *c, const struct fl_piece *p)
{
    uint32_t *old = c->table;
    const size_t old_slots = c->slots;

    if (c->used * 2 < c->slots)
        return 0;
    c->slots = old_slots ? old_slots * 2 : 4096;
    c->table = calloc(c->slots, sizeof(*c->table));
    if (!c->table) {
        c->table = old;
        c->slots = old_slots;
        return -1;
    }
    for (size_t i = 0; i < old_slots; i++)
        if (old[i]) {
            const struct fl_found *f = found_at(p, old[i] - 1);
            *slot_of(c, p, (const char *)p->keys.data + f->key_at, f->key_len) = old[i];
        }
    free(old);
    return 0;
}

static void forget_keys(struct fl_collector *c)
{
    if (c->used)
        memset(c->table, 0, c->slots * sizeof(*c->table));
    c->used = 0;
}

/* ---- pictures ---- */

/* Header of a JPEG at [offset, offset + size) of the source; reads no more than needed. False if it is none,
 * or its header cannot be understood. */
static bool read_header(struct fl_source *src, uint64_t offset, uint64_t size,
                        struct fl_jpeg_header *h)
{
    size_t want = size < 1024 ? (size_t)size : 1024;

    if (size < 4)
        return false;
    for (;;) {
        size_t got;
        const uint8_t *bytes = fl_source_get(src, offset, want, &got);
        if (!bytes || bytes[0] != 0xFF || bytes[1] != 0xD8)
            return false;
        if (got > size)
            got = (size_t)size;
        const int err = fl_jpeg_parse(bytes, got, h, NULL);
        // Whether there are restart markers is only known at the scan.
        const bool more = err == FL_ERR(EAGAIN) || (!err && !h->sos_offset);
        if (!more || got == size || got >= MAX_JPEG_HEADER)
            return !err;
        want = got * 4 < size ? got * 4 : (size_t)size;
    }
}

/* Keep bytes in the piece. */
static int keep(struct fl_piece *p, const struct fl_slice_bytes *bytes, size_t *at, size_t *len)
{
    *at = p->blobs.len;
    *len = bytes->len;
    return fl_bytes_add(&p->blobs, bytes->data, bytes->len);
}

/* Keep a picture's slice table or entry points, as `flag` says. */
static int keep_parts(struct visit *v, const struct fl_slice_parts *parts, uint8_t flag,
                      struct fl_found *f)
{
    struct fl_piece *p = v->p;
    struct fl_found_picture s;
    int err = keep(p, &parts->blob, &s.blob, &s.blob_len);

    for (int i = 0; !err && i < FL_SLICE_HEADERS; i++)
        err = keep(p, &parts->headers[i], &s.headers[i], &s.header_len[i]);
    if (err || fl_bytes_add(&p->pictures, &s, sizeof(s)))
        return no_memory(v->c->src.path);
    f->blob = (uint32_t)(p->pictures.len / sizeof(s));
    f->image.flags |= flag;
    return 0;
}

/* A picture with restart markers may be a sliced one: then its table is made again, which takes all of it. */
static int slice_picture(struct visit *v, const struct fl_member *m, struct fl_found *f)
{
    struct fl_collector *c = v->c;
    struct fl_slice_parts parts;
    const uint8_t *bytes = fl_source_get(&c->src, m->offset, m->size, NULL);
    int err;

    if (!bytes)
        return fl_err_slot()->code;
    if (!c->slicer && !(c->slicer = fl_slicer_new()))
        return no_memory(c->src.path);
    if ((err = fl_slicer_table(c->slicer, bytes, m->size, &parts)))
        return err == FL_ERR(ENOMEM) ? no_memory(c->src.path) : 0;
    return keep_parts(v, &parts, FL_IMAGE_SLICED, f);
}

/* What the header says against entry points; FL_N_WITHOUT: nothing. */
static enum fl_without obstacle(const struct fl_jpeg_header *h)
{
    if (h->sof == FL_SOF_PROGRESSIVE)
        return FL_WITHOUT_PROGRESSIVE;
    if (h->sof > FL_SOF_EXTENDED || h->precision != 8)
        return FL_WITHOUT_CODING;
    return h->components == 1 || h->components == 3 ? FL_N_WITHOUT : FL_WITHOUT_COMPONENTS;
}

/* Entry points take a pass over all of the picture. */
static int enter_picture(struct visit *v, const struct fl_member *m, const struct fl_jpeg_header *h,
                         struct fl_found *f)
{
    struct fl_collector *c = v->c;
    enum fl_without why = obstacle(h);
    struct fl_slice_parts parts;
    const uint8_t *bytes;
    FlError err;

    if (why == FL_N_WITHOUT) {
        if (!(bytes = fl_source_get(&c->src, m->offset, m->size, NULL)))
            return fl_err_slot()->code;
        if (!c->direct && !(c->direct = fl_direct_new(1 << 20, 0, FL_CPU_BEST)))
            return no_memory(c->src.path);
        const int code = fl_direct_entries(c->direct, bytes, m->size, &parts, &err);
        if (code == FL_ERR(ENOMEM))
            return no_memory(c->src.path);
        if (!code)
            return keep_parts(v, &parts, FL_IMAGE_ENTRIES, f);
        why = code == FL_ERR(EBADMSG) ? FL_WITHOUT_DAMAGED : FL_WITHOUT_CODING;
    }
    v->p->without[why]++;
    return 0;
}

static int look_at_picture(struct visit *v, const struct fl_member *m, struct fl_found *f)
{
    struct fl_piece *p = v->p;
    struct fl_jpeg_header h;
    int err = 0;

    p->pictures_seen++;
    if (!read_header(&v->c->src, m->offset, m->size, &h) || !fl_picture_of_header(&h, &f->image)) {
        if (!p->unreadable++)
            snprintf(p->unreadable_name, sizeof(p->unreadable_name), "%s", m->name);
        return 0;
    }
    if (h.restart && h.sof == FL_SOF_BASELINE)
        err = slice_picture(v, m, f);
    if (!err && v->c->entry_points && !f->blob)
        err = enter_picture(v, m, &h, f);
    return err;
}

/* ---- members ---- */

/* Where the member's key and field come from. FL_ERR(ENOENT): it belongs to no sample. */
static int name_member(struct visit *v, const struct fl_member *m, size_t *key_len, int *field)
{
    char name[FL_FIELD_NAME_MAX];
    int err = fl_name_split(m->name, m->name_len, key_len, name);

    if (err == FL_ERR(E2BIG))
        return bad_member(v, m, err,
                          "what follows the first dot of its name is the field's name, and "
                          "longer than 63 bytes");
    if (err)
        return err;
    if (*key_len >= FL_INDEX_MAX_NAME - FL_FIELD_NAME_MAX)
        return bad_member(v, m, FL_ERR(E2BIG), "its key is too long");
    *field = field_of(v->p, name);
    if (*field == FL_ERR(E2BIG))
        return bad_member(v, m, *field,
                          "it would be the 257th field; is a part of the keys behind their "
                          "first dot?");
    return *field < 0 ? no_memory(v->c->src.path) : 0;
}

/* Is this member the first of its sample? A key that comes back, or a field that is there already, is a
 * damaged container: nobody could say which bytes are meant. */
static int place(struct visit *v, const struct fl_member *m, size_t key_len, int field, bool *first)
{
    struct fl_piece *p = v->p;
    char text[256];

    *first = v->open < 0 || !same_key(p, found_at(p, (size_t)v->open), m->name, key_len);
    if (!*first) {
        for (size_t i = (size_t)v->open; i < n_found(p); i++)
            if (found_at(p, i)->field == field) {
                snprintf(text, sizeof(text),
                         "its sample has a field \"%s\" already, at byte %" PRIu64,
                         p->fields[field], found_at(p, i)->offset);
                return bad_member(v, m, FL_ERR(EBADMSG), text);
            }
        return 0;
    }
    if (grow(v->c, p))
        return no_memory(v->c->src.path);
    const uint32_t *slot = slot_of(v->c, p, m->name, key_len);
    if (*slot) {
        snprintf(text, sizeof(text),
                 "other members stand between it and the rest of its sample, which begins at byte "
                 "%" PRIu64 ": pack the archive sorted by name",
                 found_at(p, *slot - 1)->offset);
        return bad_member(v, m, FL_ERR(EBADMSG), text);
    }
    return 0;
}

static int add(struct visit *v, const struct fl_member *m, struct fl_found *f, size_t key_len)
{
    struct fl_piece *p = v->p;

    f->offset = m->offset;
    f->size = m->size;
    f->container = v->container;
    if (f->first_of_sample) {
        if (p->keys.len > UINT32_MAX - key_len || n_found(p) >= UINT32_MAX - 1)
            return bad_member(v, m, FL_ERR(E2BIG), "more members than one archive may have");
        uint32_t *slot = slot_of(v->c, p, m->name, key_len);
        f->key_at = (uint32_t)p->keys.len;
        f->key_len = (uint32_t)key_len;
        if (fl_bytes_add(&p->keys, m->name, key_len))
            return no_memory(v->c->src.path);
        v->open = (int64_t)n_found(p);
        *slot = (uint32_t)v->open + 1;
        v->c->used++;
    }
    return fl_bytes_add(&p->found, f, sizeof(*f)) ? no_memory(v->c->src.path) : 0;
}

static void count(struct visit *v, const struct fl_member *m)
{
    const uint64_t at = m->offset + m->size;

    atomic_fetch_add_explicit(&v->c->progress->members, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&v->c->progress->bytes, at - v->done, memory_order_relaxed);
    v->done = at;
}

static int take_member(void *cookie, struct fl_source *src, const struct fl_member *m)
{
    struct visit *v = cookie;
    struct fl_found f = { 0 };
    size_t key_len = 0;
    int field = 0, err;

    if (atomic_load_explicit(v->c->stop, memory_order_relaxed))
        return fl_err(FL_ERR(ECANCELED), FL_STAGE_PLAN, "indexing was stopped");
    if ((err = name_member(v, m, &key_len, &field))) {
        if (err != FL_ERR(ENOENT))
            return err;
        v->p->skips.n[FL_SKIP_NAME]++;
        return 0;
    }
    if ((err = place(v, m, key_len, field, &f.first_of_sample)))
        return err;
    f.field = (uint16_t)field;
    if (fl_name_is_image(v->p->fields[field])) {
        if ((err = look_at_picture(v, m, &f)))
            return err;
    } else if (m->size <= MAX_INT_BYTES && fl_name_is_int(v->p->fields[field])) {
        const uint8_t *bytes = m->size ? fl_source_get(src, m->offset, m->size, NULL) : NULL;
        long long value = 0;
        f.is_int = bytes && fl_parse_int(bytes, m->size, &value);
        f.value = value;
    }
    count(v, m);
    return add(v, m, &f, key_len);
}

/* Class folders: the file is the sample, its class the label. */
static int take_file(void *cookie, struct fl_source *src, const struct fl_member *m)
{
    struct visit *v = cookie;
    struct fl_found f = { .first_of_sample = true, .size = src->size, .container = v->container };

    const int err = look_at_picture(v, m, &f);

    if (err)
        return err;
    count(v, m);
    return fl_bytes_add(&v->p->found, &f, sizeof(f)) ? no_memory(src->path) : 0;
}

static int visit_container(struct fl_collector *c, struct fl_piece *p, size_t i)
{
    const struct fl_listed *item = (const struct fl_listed *)c->listing->items.data + p->first + i;
    struct visit v = { .c = c,
                       .p = p,
                       .container = (uint32_t)i,
                       .open = -1,
                       .name = fl_listing_path(c->listing, item->path) };
    struct fl_walked walked = { 0 };
    const fl_member_fn fn = c->format == &fl_format_folder ? take_file : take_member;
    int err;

    c->path.len = 0;
    if (fl_bytes_add(&c->path, c->listing->root, strlen(c->listing->root)) ||
        fl_bytes_add(&c->path, "/", 1) || fl_bytes_add(&c->path, v.name, strlen(v.name) + 1))
        return no_memory(v.name);
    if ((err = fl_source_open(&c->src, (const char *)c->path.data, WINDOW)))
        return err;
    forget_keys(c);
    err = c->format->walk(&c->src, c->keep_sidecars, fn, &v, &p->skips, &walked.hash);
    walked.size = c->src.size;
    walked.mtime_ns = c->src.mtime_ns;
    fl_source_close(&c->src);
    if (!err && v.done < walked.size)
        atomic_fetch_add_explicit(&c->progress->bytes, walked.size - v.done, memory_order_relaxed);
    if (!err && fl_bytes_add(&p->walked, &walked, sizeof(walked)))
        err = no_memory(v.name);
    return err;
}

void fl_collect(struct fl_collector *c, struct fl_piece *p)
{
    for (size_t i = 0; i < p->n; i++) {
        const bool stop = atomic_load_explicit(c->stop, memory_order_relaxed);
        if (stop)
            fl_err(FL_ERR(ECANCELED), FL_STAGE_PLAN, "indexing was stopped");
        if (stop || visit_container(c, p, i)) {
            p->err = *fl_err_slot();
            return;
        }
    }
}

void fl_collector_free(struct fl_collector *c)
{
    fl_source_free(&c->src);
    fl_slicer_free(c->slicer);
    c->slicer = NULL;
    fl_direct_free(c->direct);
    c->direct = NULL;
    fl_bytes_free(&c->path);
    free(c->table);
    c->table = NULL;
}

void fl_piece_free(struct fl_piece *p)
{
    fl_bytes_free(&p->found);
    fl_bytes_free(&p->walked);
    fl_bytes_free(&p->keys);
    fl_bytes_free(&p->pictures);
    fl_bytes_free(&p->blobs);
    free(p->fields);
    p->fields = NULL;
}
