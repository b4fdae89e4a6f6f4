/* SPDX-License-Identifier: Apache-2.0 */
/* Opening an index: header, section table, schema, class names. Everything read is checked before
 * use. */
#define _GNU_SOURCE
#include "index/reader.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/hash.h"

static int damaged(const struct fl_index *ix, const char *what)
{
    return fl_err(FL_ERR(EBADMSG), FL_STAGE_PLAN, "%s is damaged: %s", ix->path, what);
}

static int no_memory(const struct fl_index *ix)
{
    return fl_err(FL_ERR(ENOMEM), FL_STAGE_PLAN, "%s: out of memory while opening the index",
                  ix->path);
}

static int read_raw(const struct fl_index *ix, uint64_t file_bytes, void *to, size_t len,
                    uint64_t offset)
{
    if (offset > file_bytes || len > file_bytes - offset)
        return fl_err(FL_ERR(EBADMSG), FL_STAGE_PLAN, "%s is cut: it ends at byte %" PRIu64,
                      ix->path, file_bytes);
    if (!ix->memory)
        return fl_pread_all(ix->fd, to, len, offset, ix->path);
    memcpy(to, ix->memory + offset, len);
    return 0;
}

static int check_header(const struct fl_index *ix, const struct fl_index_header *h,
                        uint64_t file_bytes)
{
    if (memcmp(h->magic, FL_INDEX_MAGIC, sizeof(h->magic)))
        return damaged(ix, "it does not begin like an index");
    if (h->major != FL_INDEX_MAJOR)
        return fl_err(FL_ERR(ENOTSUP), FL_STAGE_PLAN,
                      "%s has index format %u.%u, this feedline reads %d.x: build the index again",
                      ix->path, h->major, h->minor, FL_INDEX_MAJOR);
    const uint64_t table = (uint64_t)h->n_sections * sizeof(struct fl_index_section);
    if (h->n_sections > FL_INDEX_MAX_SECTIONS || h->data % FL_INDEX_DATA_ALIGN ||
        h->data < sizeof(*h) + table || h->n_samples > INT64_MAX / 64 ||
        (h->kind != FL_KIND_TAR && h->kind != FL_KIND_FOLDER))
        return damaged(ix, "its header does not make sense");
    // A file as long as it says cannot be cut; compare without overflow.
    const uint64_t blocks = h->payload / FL_INDEX_PAYLOAD + (h->payload % FL_INDEX_PAYLOAD != 0);
    if (h->data > file_bytes || h->payload > file_bytes - h->data ||
        blocks * 8 != file_bytes - h->data - h->payload)
        return fl_err(FL_ERR(EBADMSG), FL_STAGE_PLAN,
                      "%s is cut or damaged: it has %" PRIu64
                      " bytes, its header tells of another length",
                      ix->path, file_bytes);
    return 0;
}

/* Header and section table; *table is malloced. */
static int read_header(const struct fl_index *ix, uint64_t file_bytes, struct fl_index_header *h,
                       struct fl_index_section **table)
{
    uint8_t *all;
    int err = read_raw(ix, file_bytes, h, sizeof(*h), 0);

    if (err || (err = check_header(ix, h, file_bytes)))
        return err;
    const size_t bytes = h->n_sections * sizeof(**table);
    if (!(all = malloc(sizeof(*h) + bytes + 1)) || !(*table = malloc(bytes + 1))) {
        free(all);
        return no_memory(ix);
    }
    if (!(err = read_raw(ix, file_bytes, all, sizeof(*h) + bytes, 0))) {
        struct fl_index_header zeroed;
        memcpy(&zeroed, all, sizeof(zeroed)); // again, so that checksum and use see the same bytes
        zeroed.checksum = 0;
        memcpy(all, &zeroed, sizeof(zeroed));
        if (fl_hash64(all, sizeof(*h) + bytes, 0) != h->checksum)
            err = damaged(ix, "checksum of the header does not fit");
        memcpy(*table, all + sizeof(*h), bytes);
    }
    free(all);
    return err;
}

/* Where a section of this type belongs, and what it must look like. NULL: unknown type or field. */
static struct fl_section *place_of(struct fl_index *ix, const struct fl_index_section *s,
                                   uint32_t *item, uint64_t *count)
{
    const uint64_t n = (uint64_t)ix->info.n_samples;
    struct fl_reader_field *f = NULL;

    *count = UINT64_MAX; // any
    *item = 1;
    if (s->field != FL_SECTION_NO_FIELD) {
        if (s->field >= (uint32_t)ix->info.n_fields)
            return NULL;
        f = &ix->fields[s->field];
    }
#define AT(where, size, number) (*item = (size), *count = (number), &(where))
    switch (s->type) {
    case FL_SEC_CONTAINERS:
        return AT(ix->containers, sizeof(struct fl_index_file), UINT64_MAX);
    case FL_SEC_CONTAINER_NAMES:
        return &ix->container_names;
    case FL_SEC_SCHEMA:
        return AT(ix->schema, sizeof(struct fl_index_schema), UINT64_MAX);
    case FL_SEC_SCHEMA_NAMES:
        return &ix->schema_names;
    case FL_SEC_SPANS:
        return f ? AT(f->spans, sizeof(struct fl_span), n) : NULL;
    case FL_SEC_INTS:
        return f ? AT(f->ints, s->item == 4 ? 4 : 8, n) : NULL;
    case FL_SEC_IMAGE:
        return f ? AT(f->image, sizeof(struct fl_index_image), n) : NULL;
    case FL_SEC_SLICE_OFFSETS:
        return f ? AT(f->slices.offsets, 8, n + 1) : NULL;
    case FL_SEC_SLICES:
        return f ? &f->slices.bytes : NULL;
    case FL_SEC_ENTRY_OFFSETS:
        return f ? AT(f->entries.offsets, 8, n + 1) : NULL;
    case FL_SEC_ENTRIES:
        return f ? &f->entries.bytes : NULL;
    case FL_SEC_HEADER_OFFSETS:
        return AT(ix->headers.offsets, 8, UINT64_MAX);
    case FL_SEC_HEADERS:
        return &ix->headers.bytes;
    case FL_SEC_KEY_OFFSETS:
        return AT(ix->keys.offsets, 8, n + 1);
    case FL_SEC_KEYS:
        return &ix->keys.bytes;
    case FL_SEC_CLASS_OFFSETS:
        return AT(ix->classes.offsets, 8, UINT64_MAX);
    case FL_SEC_CLASSES:
        return &ix->classes.bytes;
    case FL_SEC_DIRECTORIES:
        return AT(ix->dirs, sizeof(struct fl_index_dir), UINT64_MAX);
    case FL_SEC_DIRECTORY_NAMES:
        return &ix->dir_names;
    default:
        return NULL;
    }
#undef AT
}

static int take_section(struct fl_index *ix, const struct fl_index_section *s, uint64_t payload)
{
    uint32_t item;
    uint64_t count;
    struct fl_section *to = place_of(ix, s, &item, &count);

    if (!to || s->version != 1) {
        if (s->flags & FL_SECTION_REQUIRED)
            return fl_err(
                FL_ERR(ENOTSUP), FL_STAGE_PLAN,
                "%s needs a newer feedline: section type %u, version %u is not known here",
                ix->path, s->type, s->version);
        return 0;
    }
    if (to->there)
        return damaged(ix, "a section is there twice");
    if (s->item != item || (count != UINT64_MAX && s->count != count) ||
        s->count > INT64_MAX / 64 || s->count * s->item != s->length || s->offset > payload ||
        s->length > payload - s->offset)
        return damaged(ix, "the section table does not make sense");
    *to = (struct fl_section){ s->offset, s->count, s->length, s->note, s->item, true };
    return 0;
}

/* The bytes of a whole section with a NUL behind; they cannot be longer than the file. */
static char *load_section(const struct fl_index *ix, const struct fl_section *s)
{
    char *bytes = malloc(s->length + 1);

    if (!bytes) {
        no_memory(ix);
        return NULL;
    }
    if (fl_blocks_read(ix->blocks, s->offset, bytes, s->length)) {
        free(bytes);
        return NULL;
    }
    bytes[s->length] = 0;
    return bytes;
}

static int take_field(struct fl_index *ix, int32_t i, const struct fl_index_schema *s,
                      const char *name, size_t len, char *to)
{
    struct fl_reader_field *f = &ix->fields[i];

    memcpy(to, name, len);
    to[len] = 0;
    f->pub.name = to;
    if (!len || strlen(to) != len || (i && strcmp(ix->fields[i - 1].pub.name, to) >= 0))
        return damaged(ix, "field names are not in order");
    if (s->kind != FL_FIELD_BYTES && s->kind != FL_FIELD_INT)
        return fl_err(FL_ERR(ENOTSUP), FL_STAGE_PLAN,
                      "%s needs a newer feedline: field \"%s\" is of an "
                      "unknown kind",
                      ix->path, to);
    if (s->count > (uint64_t)ix->info.n_samples)
        return damaged(ix, "a field has more values than there are samples");
    f->pub.kind = (FlFieldKind)s->kind;
    f->pub.has_checksum = s->flags & FL_SCHEMA_CHECKSUM;
    f->pub.is_image = s->flags & FL_SCHEMA_IMAGE;
    f->pub.count = (int64_t)s->count;
    f->pub.bytes = s->bytes;
    f->pub.max_bytes = s->max_bytes;
    f->pub.sliced = (int64_t)s->sliced;
    return 0;
}

static int read_schema(struct fl_index *ix)
{
    const uint64_t n = ix->schema.count, bytes = ix->schema_names.length;
    struct fl_index_schema *s = NULL;
    char *names = NULL;
    int err = 0;

    if (n != (uint64_t)ix->info.n_fields || bytes > n * FL_INDEX_MAX_NAME)
        return damaged(ix, "its schema does not make sense");
    if (!(s = (void *)load_section(ix, &ix->schema)) ||
        !(names = load_section(ix, &ix->schema_names))) {
        err = fl_last_error()->code;
        goto out;
    }
    if (!(ix->names = malloc(bytes + n + 1))) {
        err = no_memory(ix);
        goto out;
    }
    for (uint64_t i = 0; !err && i < n; i++) {
        const uint64_t end = i + 1 < n ? s[i + 1].name : bytes;
        if (s[i].name > end || end > bytes)
            err = damaged(ix, "a field name lies outside its section");
        else
            err = take_field(ix, (int32_t)i, &s[i], names + s[i].name, end - s[i].name,
                             ix->names + s[i].name + i);
    }
out:
    free(s);
    free(names);
    return err;
}

static int read_classes(struct fl_index *ix)
{
    const uint64_t n = ix->classes.offsets.count, bytes = ix->classes.bytes.length;
    uint64_t *at = NULL;
    char *names = NULL;
    int err = 0;

    if (!n)
        return 0;
    if (n - 1 > FL_INDEX_MAX_CLASSES)
        return damaged(ix, "too many classes");
    if (!(at = (void *)load_section(ix, &ix->classes.offsets)) ||
        !(names = load_section(ix, &ix->classes.bytes))) {
        err = fl_last_error()->code;
        goto out;
    }
    ix->class_names = malloc(bytes + n);
    ix->class_table = malloc(n * sizeof(*ix->class_table));
    if (!ix->class_names || !ix->class_table) {
        err = no_memory(ix);
        goto out;
    }
    for (uint64_t i = 0; i + 1 < n; i++) {
        if (at[i] > at[i + 1] || at[i + 1] > bytes) {
            err = damaged(ix, "class names lie outside their section");
            goto out;
        }
        char *to = ix->class_table[i] = ix->class_names + at[i] + i;
        memcpy(to, names + at[i], at[i + 1] - at[i]);
        to[at[i + 1] - at[i]] = 0;
    }
    ix->info.n_classes = (int32_t)(n - 1);
out:
    free(at);
    free(names);
    return err;
}

/* What each field's kind promises must be there. */
static int check_fields(struct fl_index *ix)
{
    for (int32_t i = 0; i < ix->info.n_fields; i++) {
        struct fl_reader_field *f = &ix->fields[i];
        f->pub.has_slices = f->slices.offsets.there && f->slices.bytes.there;
        f->pub.has_entries = f->entries.offsets.there && f->entries.bytes.there;
        if (f->pub.has_entries) {
            const uint64_t n = f->entries.offsets.note, most = f->entries.bytes.length;
            f->pub.entries = n < (uint64_t)ix->info.n_samples ? (int64_t)n : ix->info.n_samples;
            f->pub.entry_bytes = most;
            f->pub.longest_entries = f->entries.bytes.note < most ? f->entries.bytes.note : most;
        }
        if (f->pub.kind == FL_FIELD_BYTES ? !f->spans.there : !f->ints.there)
            return damaged(ix, "a field has no table");
        if (f->pub.is_image && !f->image.there)
            return damaged(ix, "a table of picture sizes is missing");
    }
    if (!ix->keys_are_paths && !(ix->keys.offsets.there && ix->keys.bytes.there))
        return damaged(ix, "its keys are missing");
    if (!ix->containers.there || !ix->container_names.there || ix->containers.count >= UINT32_MAX)
        return damaged(ix, "its list of containers does not make sense");
    if (ix->keys_are_paths && ix->containers.count != (uint64_t)ix->info.n_samples)
        return damaged(ix, "samples and containers differ in number");
    return 0;
}

static int64_t items(const struct fl_section *offsets)
{
    return offsets->count ? (int64_t)offsets->count - 1 : 0;
}

static int take_sections(struct fl_index *ix, const struct fl_index_header *h,
                         const struct fl_index_section *table)
{
    uint64_t n_fields = 0;
    int err;

    for (uint32_t i = 0; i < h->n_sections; i++)
        if (table[i].type == FL_SEC_SCHEMA)
            n_fields = table[i].count;
    if (n_fields > FL_INDEX_MAX_FIELDS)
        return damaged(ix, "too many fields");
    ix->info.n_fields = (int32_t)n_fields;
    if (!(ix->fields = calloc(n_fields + 1, sizeof(*ix->fields))))
        return no_memory(ix);
    for (uint32_t i = 0; i < h->n_sections; i++)
        if ((err = take_section(ix, &table[i], h->payload)))
            return err;
    if ((err = read_schema(ix)) || (err = read_classes(ix)) || (err = check_fields(ix)))
        return err;
    ix->info.n_containers = (int64_t)ix->containers.count;
    ix->info.n_headers = items(&ix->headers.offsets);
    ix->info.n_dirs = (int64_t)ix->dirs.count;
    return 0;
}

static int open_index(struct fl_index *ix, uint64_t file_bytes, uint64_t cache_bytes)
{
    struct fl_index_header h;
    struct fl_index_section *table = NULL;
    int err = read_header(ix, file_bytes, &h, &table);

    if (err)
        goto out;
    ix->info = (struct fl_index_info){ .n_samples = (int64_t)h.n_samples,
                                       .fingerprint = h.fingerprint,
                                       .file_bytes = file_bytes,
                                       .skipped = (int64_t)h.skipped,
                                       .options = h.options,
                                       .kind = (enum fl_index_kind)h.kind };
    ix->keys_are_paths = h.flags & FL_INDEX_KEYS_ARE_PATHS;
    ix->info.keep_sidecars = h.flags & FL_INDEX_KEEP_SIDECARS;
    ix->info.entry_points = h.flags & FL_INDEX_ENTRY_POINTS;
    if (!(ix->blocks = calloc(1, sizeof(*ix->blocks)))) {
        err = no_memory(ix);
        goto out;
    }
    err = fl_blocks_init(ix->blocks, ix->fd, ix->memory, ix->path, h.data, h.payload, cache_bytes);
    ix->info.cache_bytes = ix->blocks->n_frames * FL_INDEX_BLOCK;
    if (!err)
        err = take_sections(ix, &h, table);
out:
    free(table);
    return err;
}

int fl_index_open(struct fl_index **out, const char *path, uint64_t cache_bytes)
{
    struct fl_index *ix = calloc(1, sizeof(*ix));
    struct stat st;
    int err;

    if (!ix || !(ix->path = strdup(path))) {
        free(ix);
        return fl_err(FL_ERR(ENOMEM), FL_STAGE_PLAN, "%s: out of memory while opening the index",
                      path);
    }
    ix->fd = open(path, O_RDONLY | O_CLOEXEC);
    if (ix->fd < 0)
        err = fl_err(-errno, FL_STAGE_PLAN, "%s: the index cannot be opened: %s", path,
                     strerror(errno));
    else if (fstat(ix->fd, &st))
        err = fl_err(FL_ERR(EIO), FL_STAGE_PLAN, "%s: no file status: %s", path, strerror(errno));
    else if (!S_ISREG(st.st_mode))
        err = fl_err(FL_ERR(EINVAL), FL_STAGE_PLAN, "%s is no regular file, an index must be one",
                     path);
    else
        err = open_index(ix, (uint64_t)st.st_size, cache_bytes);
    if (err) {
        fl_index_close(&ix);
        return err;
    }
    *out = ix;
    return 0;
}

int fl_index_open_memory(struct fl_index **out, void *bytes, size_t size, const char *name)
{
    struct fl_index *ix = calloc(1, sizeof(*ix));
    int err;

    if (!ix || !(ix->path = strdup(name))) {
        free(ix);
        free(bytes);
        return fl_err(FL_ERR(ENOMEM), FL_STAGE_PLAN, "%s: out of memory while opening the index",
                      name);
    }
    ix->fd = -1;
    ix->memory = bytes;
    if ((err = open_index(ix, size, 0))) {
        fl_index_close(&ix);
        return err;
    }
    *out = ix;
    return 0;
}

void fl_index_close(struct fl_index **ixp)
{
    struct fl_index *ix = *ixp;

    *ixp = NULL;
    if (!ix)
        return;
    if (ix->blocks)
        fl_blocks_fini(ix->blocks);
    free(ix->blocks);
    if (ix->fd >= 0)
        close(ix->fd);
    free(ix->memory);
    free(ix->fields);
    free(ix->names);
    free(ix->class_names);
    free(ix->class_table);
    free(ix->path);
    free(ix);
}
