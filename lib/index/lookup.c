/* SPDX-License-Identifier: Apache-2.0 */
/* Look-ups in an open index. Called for every sample: no allocation, no lock on a hit. */
#include "index/reader.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

static int damaged(const struct fl_index *ix, const char *what, int64_t i)
{
    return fl_err(FL_ERR(EBADMSG), FL_STAGE_PLAN,
                  "%s is damaged: %s %" PRId64 " does not make sense", ix->path, what, i);
}

static int outside(const struct fl_index *ix, const char *what, int64_t i, int64_t n)
{
    return fl_err(FL_ERR(EINVAL), FL_STAGE_PLAN, "%s: %s %" PRId64 " is outside 0 to %" PRId64,
                  ix->path, what, i, n - 1);
}

/* The field's tables if field and sample are in range, else NULL with the failure in the thread's slot. */
static const struct fl_reader_field *field_of(const struct fl_index *ix, int32_t field,
                                              int64_t sample)
{
    if (field < 0 || field >= ix->info.n_fields)
        outside(ix, "field", field, ix->info.n_fields);
    else if (sample < 0 || sample >= ix->info.n_samples)
        outside(ix, "sample", sample, ix->info.n_samples);
    else
        return &ix->fields[field];
    return NULL;
}

static int item(const struct fl_index *ix, const struct fl_section *s, uint64_t i, void *to)
{
    return fl_blocks_read(ix->blocks, s->offset + i * s->item, to, s->item);
}

const struct fl_index_info *fl_index_info(const struct fl_index *ix)
{
    return &ix->info;
}

const struct fl_index_field *fl_index_field(const struct fl_index *ix, int32_t i)
{
    return i >= 0 && i < ix->info.n_fields ? &ix->fields[i].pub : NULL;
}

int32_t fl_index_find(const struct fl_index *ix, const char *name)
{
    for (int32_t i = 0; i < ix->info.n_fields; i++)
        if (!strcmp(ix->fields[i].pub.name, name))
            return i;
    return FL_ERR(ENOENT);
}

const char *fl_index_class(const struct fl_index *ix, int32_t i)
{
    return i >= 0 && i < ix->info.n_classes ? ix->class_table[i] : NULL;
}

int fl_index_span(const struct fl_index *ix, int32_t field, int64_t sample, struct fl_span *span)
{
    const struct fl_reader_field *f = field_of(ix, field, sample);
    struct fl_index_file file;
    int err;

    if (!f)
        return FL_ERR(EINVAL);
    if (f->pub.kind != FL_FIELD_BYTES)
        return fl_err(FL_ERR(EINVAL), FL_STAGE_PLAN, "field \"%s\" is an integer: it has no span",
                      f->pub.name);
    if ((err = item(ix, &f->spans, (uint64_t)sample, span)) || span->container == FL_NO_CONTAINER)
        return err;
    if (span->container >= ix->containers.count)
        return damaged(ix, "the container of sample", sample);
    if ((err = item(ix, &ix->containers, span->container, &file)))
        return err;
    if (span->offset > file.size || span->length > file.size - span->offset)
        return damaged(ix, "the span of sample", sample);
    return 0;
}

static bool has_place(const struct fl_index *ix, int32_t field, int64_t sample,
                      struct fl_span *span)
{
    return ix->fields[field].pub.kind == FL_FIELD_BYTES &&
           !fl_index_span(ix, field, sample, span) && span->container != FL_NO_CONTAINER;
}

bool fl_index_place(const struct fl_index *ix, int32_t field, int64_t sample, struct fl_span *span)
{
    if (field >= 0 && has_place(ix, field, sample, span))
        return true;
    for (int32_t i = 0; i < ix->info.n_fields; i++)
        if (has_place(ix, i, sample, span))
            return true;
    return false;
}

int fl_index_int(const struct fl_index *ix, int32_t field, int64_t sample, int64_t *value)
{
    const struct fl_reader_field *f = field_of(ix, field, sample);
    int32_t narrow;
    int64_t wide;
    int err;

    if (!f)
        return FL_ERR(EINVAL);
    if (f->pub.kind != FL_FIELD_INT)
        return fl_err(FL_ERR(EINVAL), FL_STAGE_PLAN, "field \"%s\" is no integer", f->pub.name);
    if (f->ints.item == 4) {
        if ((err = item(ix, &f->ints, (uint64_t)sample, &narrow)))
            return err;
        wide = narrow == INT32_MIN ? INT64_MIN : narrow;
    } else if ((err = item(ix, &f->ints, (uint64_t)sample, &wide))) {
        return err;
    }
    if (wide == INT64_MIN)
        return FL_ERR(ENOENT);
    *value = wide;
    return 0;
}

int fl_index_image(const struct fl_index *ix, int32_t field, int64_t sample,
                   struct fl_index_image *image)
{
    const struct fl_reader_field *f = field_of(ix, field, sample);

    if (!f)
        return FL_ERR(EINVAL);
    if (f->image.there)
        return item(ix, &f->image, (uint64_t)sample, image);
    memset(image, 0, sizeof(*image));
    return 0;
}

int fl_index_blob(const struct fl_index *ix, const struct fl_blobs *s, uint64_t i, void *buf,
                  size_t cap, size_t *len)
{
    uint64_t at[2];
    const int err = fl_blocks_read(ix->blocks, s->offsets.offset + i * 8, at, sizeof(at));

    *len = 0;
    if (err)
        return err;
    if (at[0] > at[1] || at[1] > s->bytes.length)
        return damaged(ix, "offset table entry", (int64_t)i);
    *len = at[1] - at[0];
    if (*len > cap)
        return FL_ERR(E2BIG);
    return fl_blocks_read(ix->blocks, s->bytes.offset + at[0], buf, *len);
}

int fl_index_slices(const struct fl_index *ix, int32_t field, int64_t sample, void *buf, size_t cap,
                    size_t *len)
{
    const struct fl_reader_field *f = field_of(ix, field, sample);

    *len = 0;
    if (!f)
        return FL_ERR(EINVAL);
    if (!f->pub.has_slices)
        return 0;
    return fl_index_blob(ix, &f->slices, (uint64_t)sample, buf, cap, len);
}

int fl_index_entries(const struct fl_index *ix, int32_t field, int64_t sample, void *buf,
                     size_t cap, size_t *len)
{
    const struct fl_reader_field *f = field_of(ix, field, sample);

    *len = 0;
    if (!f)
        return FL_ERR(EINVAL);
    if (!f->pub.has_entries)
        return 0;
    return fl_index_blob(ix, &f->entries, (uint64_t)sample, buf, cap, len);
}

int fl_index_header(const struct fl_index *ix, uint32_t id, void *buf, size_t cap, size_t *len)
{
    *len = 0;
    if (id >= (uint64_t)ix->info.n_headers)
        return outside(ix, "header", id, ix->info.n_headers);
    return fl_index_blob(ix, &ix->headers, id, buf, cap, len);
}

/* A name of `names`, which ends where the next item's begins; NUL-terminated and cut to `size`. */
static int64_t name_at(const struct fl_index *ix, const struct fl_section *table,
                       const struct fl_section *names, uint64_t i, char *buf, size_t size)
{
    uint64_t begin, end = names->length;
    int err = fl_blocks_read(ix->blocks, table->offset + i * table->item, &begin, 8);

    if (!err && i + 1 < table->count)
        err = fl_blocks_read(ix->blocks, table->offset + (i + 1) * table->item, &end, 8);
    if (err)
        return err;
    if (begin > end || end > names->length || end - begin >= FL_INDEX_MAX_NAME)
        return damaged(ix, "name", (int64_t)i);
    const size_t len = end - begin, n = len < size ? len : size ? size - 1 : 0;
    if ((err = fl_blocks_read(ix->blocks, names->offset + begin, buf, n)))
        return err;
    if (size)
        buf[n] = 0;
    return (int64_t)len;
}

int fl_index_container(const struct fl_index *ix, uint32_t id, struct fl_index_container *out)
{
    struct fl_index_file file;
    int err;

    if (id >= ix->containers.count)
        return outside(ix, "container", id, ix->info.n_containers);
    if ((err = item(ix, &ix->containers, id, &file)))
        return err;
    *out = (struct fl_index_container){ file.size, file.mtime_ns, file.hash };
    return 0;
}

int fl_index_container_path(const struct fl_index *ix, uint32_t id, char *buf, size_t size)
{
    if (id >= ix->containers.count)
        return outside(ix, "container", id, ix->info.n_containers);
    const int64_t len = name_at(ix, &ix->containers, &ix->container_names, id, buf, size);
    if (len >= 0 && (uint64_t)len >= size)
        return fl_err(FL_ERR(E2BIG), FL_STAGE_PLAN,
                      "%s: the path of container %u has %" PRId64 " bytes", ix->path, id, len);
    return (int)len;
}

int fl_index_dir(const struct fl_index *ix, int64_t i, struct fl_index_dir *dir, char *buf,
                 size_t size)
{
    int err;

    if (i < 0 || i >= ix->info.n_dirs)
        return outside(ix, "folder", i, ix->info.n_dirs);
    if ((err = item(ix, &ix->dirs, (uint64_t)i, dir)))
        return err;
    const int64_t len = name_at(ix, &ix->dirs, &ix->dir_names, (uint64_t)i, buf, size);
    if (len >= 0 && (uint64_t)len >= size)
        return damaged(ix, "the path of folder", i);
    return (int)len;
}

/* Class folders: the path of the sample's file without its extension. */
static int64_t key_from_path(const struct fl_index *ix, int64_t sample, char *buf, size_t size)
{
    char path[FL_INDEX_MAX_NAME];
    const int len = fl_index_container_path(ix, (uint32_t)sample, path, sizeof(path));

    if (len < 0)
        return len;
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
    const char *dot = strrchr(base, '.');
    const size_t key = dot && dot > base ? (size_t)(dot - path) : (size_t)len;
    if (size) {
        const size_t n = key < size ? key : size - 1;
        memcpy(buf, path, n);
        buf[n] = 0;
    }
    return (int64_t)key;
}

int64_t fl_index_key(const struct fl_index *ix, int64_t sample, char *buf, size_t size)
{
    uint64_t at[2];
    int err;

    if (sample < 0 || sample >= ix->info.n_samples)
        return outside(ix, "sample", sample, ix->info.n_samples);
    if (ix->keys_are_paths)
        return key_from_path(ix, sample, buf, size);
    if ((err = fl_blocks_read(ix->blocks, ix->keys.offsets.offset + (uint64_t)sample * 8, at,
                              sizeof(at))))
        return err;
    if (at[0] > at[1] || at[1] > ix->keys.bytes.length || at[1] - at[0] >= FL_INDEX_MAX_NAME)
        return damaged(ix, "the key of sample", sample);
    const size_t len = at[1] - at[0], n = len < size ? len : size ? size - 1 : 0;
    if ((err = fl_blocks_read(ix->blocks, ix->keys.bytes.offset + at[0], buf, n)))
        return err;
    if (size)
        buf[n] = 0;
    return (int64_t)len;
}

int fl_index_check(const struct fl_index *ix, int64_t *bad)
{
    uint8_t *frame = malloc(FL_INDEX_BLOCK);
    int first = 0;
    FlError why;

    *bad = 0;
    if (!frame)
        return fl_err(FL_ERR(ENOMEM), FL_STAGE_PLAN, "%s: out of memory", ix->path);
    for (uint64_t i = 0; i < ix->blocks->n_blocks; i++) {
        const int err = fl_blocks_check(ix->blocks, i, frame);
        if (err && !first) {
            first = err;
            why = *fl_last_error();
        }
        *bad += err != 0;
    }
    free(frame);
    return first ? fl_err_raise(&why) : 0;
}
