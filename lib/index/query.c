/* SPDX-License-Identifier: Apache-2.0 */
/* What a user may ask of an open dataset. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/file.h"
#include "base/hash.h"
#include "index/dataset.h"

static int check(const FlDataset *ds, const char *function)
{
    if (!ds)
        return fl_err(FL_ERR(EINVAL), FL_STAGE_PLAN, "%s: the dataset is NULL", function);
    return fl_dataset_check_process(ds);
}

int fl_dataset_info(const FlDataset *ds, FlDatasetInfo *info)
{
    int err = check(ds, "fl_dataset_info");

    if (err)
        return err;
    const struct fl_index *ix = fl_dataset_index(ds);
    const struct fl_index_info *x = fl_index_info(ix);
    *info = (FlDatasetInfo){
        .n_samples = x->n_samples,
        .n_fields = x->n_fields,
        .n_classes = x->n_classes,
        .n_containers = x->n_containers,
        .index_bytes = x->file_bytes,
        .fingerprint = x->fingerprint,
        .skipped = x->skipped,
        .path = fl_dataset_path(ds),
        .kind = x->kind == FL_KIND_FOLDER ? "folder" : "tar",
    };
    for (int32_t i = 0; i < x->n_fields; i++)
        info->bytes += fl_index_field(ix, i)->bytes;
    return 0;
}

int fl_dataset_field(const FlDataset *ds, int32_t i, FlFieldInfo *info)
{
    int err = check(ds, "fl_dataset_field");

    if (err)
        return err;
    const struct fl_index_field *f = fl_index_field(fl_dataset_index(ds), i);
    if (!f)
        return fl_err(FL_ERR(EINVAL), FL_STAGE_PLAN, "%s: there is no field %d",
                      fl_dataset_path(ds), i);
    *info = (FlFieldInfo){ .name = f->name,
                           .kind = f->kind,
                           .count = f->count,
                           .bytes = f->bytes,
                           .max_bytes = f->max_bytes,
                           .is_image = f->is_image,
                           .sliced = f->sliced,
                           .entry_points = f->entries,
                           .entry_bytes = f->entry_bytes };
    return 0;
}

const char *fl_dataset_class_name(const FlDataset *ds, int32_t i)
{
    return check(ds, "fl_dataset_class_name") ? NULL : fl_index_class(fl_dataset_index(ds), i);
}

int64_t fl_dataset_key(const FlDataset *ds, int64_t sample, char *buf, size_t size)
{
    const int err = check(ds, "fl_dataset_key");

    return err ? err : fl_index_key(fl_dataset_index(ds), sample, buf, size);
}

static int fill_int(const struct fl_index *ix, int64_t sample, int32_t field, FlFieldSpan *out)
{
    const int err = fl_index_int(ix, field, sample, &out->value);

    out->present = !err;
    return err == FL_ERR(ENOENT) ? 0 : err;
}

static int fill_span(const struct fl_index *ix, int64_t sample, int32_t field, FlFieldSpan *out)
{
    static _Thread_local char path[FL_INDEX_MAX_NAME];
    struct fl_index_image image;
    struct fl_span span;
    int err = fl_index_span(ix, field, sample, &span);

    if (err || span.container == FL_NO_CONTAINER)
        return err;
    if ((err = fl_index_container_path(ix, span.container, path, sizeof(path))) < 0 ||
        (err = fl_index_image(ix, field, sample, &image)))
        return err;
    out->present = true;
    out->container = path;
    out->offset = span.offset;
    out->length = span.length;
    out->has_checksum = fl_index_field(ix, field)->has_checksum;
    out->checksum = out->has_checksum ? span.checksum : 0;
    out->width = image.width;
    out->height = image.height;
    out->orientation = image.orientation ? image.orientation : 1;
    out->components = image.components;
    out->sliced = image.flags & FL_IMAGE_SLICED;
    out->damaged = image.flags & FL_IMAGE_DAMAGED;
    out->entry_points = image.flags & FL_IMAGE_ENTRIES;
    return 0;
}

int fl_dataset_span(const FlDataset *ds, int64_t sample, int32_t field, FlFieldSpan *span)
{
    int err = check(ds, "fl_dataset_span");

    if (err)
        return err;
    const struct fl_index *ix = fl_dataset_index(ds);
    const struct fl_index_field *f = fl_index_field(ix, field);
    if (!f)
        return fl_err(FL_ERR(EINVAL), FL_STAGE_PLAN, "%s: there is no field %d",
                      fl_dataset_path(ds), field);
    FlFieldSpan out = { .name = f->name, .kind = f->kind, .orientation = 1 };
    err = f->kind == FL_FIELD_INT ? fill_int(ix, sample, field, &out)
                                  : fill_span(ix, sample, field, &out);
    if (!err)
        *span = out;
    return err;
}

/* Sample, key and place of a failure, for the thread's slot. */
static int at_sample(const FlDataset *ds, int64_t sample, uint32_t container, uint64_t offset)
{
    FlError *e = fl_err_slot();
    const int code = e->code;
    char path[FL_INDEX_MAX_NAME + 1024];
    FlError keep = *e;

    if (fl_dataset_container_path(ds, container, path, sizeof(path)) < 0)
        path[0] = 0;
    keep.sample = sample;
    fl_index_key(fl_dataset_index(ds), sample, keep.key, sizeof(keep.key));
    fl_err_at(&keep, path, offset);
    fl_err_raise(&keep);
    return code;
}

static int lacks(const FlDataset *ds, int64_t sample, const char *field)
{
    char key[128] = "";

    fl_index_key(fl_dataset_index(ds), sample, key, sizeof(key));
    fl_err(FL_ERR(ENOENT), FL_STAGE_READ, "sample %" PRId64 " (%s) has no field \"%s\"", sample,
           key, field);
    fl_err_slot()->sample = sample;
    memcpy(fl_err_slot()->key, key, sizeof(key));
    return FL_ERR(ENOENT);
}

static int too_small(const char *field, size_t size, uint64_t need)
{
    return fl_err(FL_ERR(E2BIG), FL_STAGE_READ,
                  "field \"%s\" has %" PRIu64 " bytes, the buffer has %zu", field, need, size);
}

static int read_int(const FlDataset *ds, int64_t sample, int32_t field, void *buf, size_t size,
                    size_t *len)
{
    const struct fl_index *ix = fl_dataset_index(ds);
    const char *name = fl_index_field(ix, field)->name;
    int64_t value;
    char text[24];
    const int err = fl_index_int(ix, field, sample, &value);

    if (err)
        return err == FL_ERR(ENOENT) ? lacks(ds, sample, name) : err;
    *len = (size_t)snprintf(text, sizeof(text), "%" PRId64, value);
    if (!buf)
        return 0;
    if (*len > size)
        return too_small(name, size, *len);
    memcpy(buf, text, *len);
    return 0;
}

static int pread_span(const struct fl_span *span, int fd, void *buf, const char *path)
{
    uint64_t done = 0;

    while (done < span->length) {
        const ssize_t n =
            pread(fd, (char *)buf + done, span->length - done, (off_t)(span->offset + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return fl_err_file(errno, "read", path);
        if (!n)
            return fl_err(FL_ERR(ESTALE), FL_STAGE_READ,
                          "%s ends at byte %" PRIu64 ": it was cut since it was indexed", path,
                          span->offset + done);
        done += (uint64_t)n;
    }
    return 0;
}

static int read_span(const FlDataset *ds, const struct fl_span *span, bool checked, void *buf)
{
    char path[FL_INDEX_MAX_NAME + 1024];
    FlError why;
    int fd, err = fl_dataset_container_path(ds, span->container, path, sizeof(path));

    if (err < 0)
        return err;
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return fl_err_file(errno, "open", path);
    err = fl_dataset_check_container(ds, span->container, fd, &why);
    if (err)
        fl_err_raise(&why);
    else
        err = pread_span(span, fd, buf, path);
    close(fd);
    if (!err && checked && fl_checksum32(buf, span->length) != span->checksum)
        err = fl_err(FL_ERR(EBADMSG), FL_STAGE_READ,
                     "%s: the checksum of bytes %" PRIu64 " to %" PRIu64 " does not fit", path,
                     span->offset, span->offset + span->length);
    return err;
}

int fl_dataset_read(const FlDataset *ds, int64_t sample, int32_t field, void *buf, size_t size,
                    size_t *len)
{
    struct fl_span span;
    int err = check(ds, "fl_dataset_read");

    if (err)
        return err;
    const struct fl_index *ix = fl_dataset_index(ds);
    const struct fl_index_field *f = fl_index_field(ix, field);
    if (!f || !len)
        return fl_err(FL_ERR(EINVAL), FL_STAGE_PLAN,
                      f ? "fl_dataset_read: len is NULL"
                        : "fl_dataset_read: there is no such field");
    *len = 0;
    if (f->kind == FL_FIELD_INT)
        return read_int(ds, sample, field, buf, size, len);
    if ((err = fl_index_span(ix, field, sample, &span)))
        return err;
    if (span.container == FL_NO_CONTAINER)
        return lacks(ds, sample, f->name);
    *len = span.length;
    if (!buf)
        return 0;
    if (span.length > size)
        return too_small(f->name, size, span.length);
    err = read_span(ds, &span, f->has_checksum, buf);
    return err ? at_sample(ds, sample, span.container, span.offset) : 0;
}
