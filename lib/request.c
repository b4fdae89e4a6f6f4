/* SPDX-License-Identifier: Apache-2.0 */
#include "request.h"

#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "crop.h"
#include "index/dataset.h"
#include "jpeg/exif.h"
#include "kernels/resize.h"

/* The source rectangle that the crop needs, and the DCT scale for it. */
static struct fl_rect needed(const struct fl_column *c, const struct fl_sample_field *f, int *scale)
{
    const FlImage *im = &c->cfg.image;
    const int orientation = im->orient && f->orientation ? f->orientation : 1;
    const struct fl_crop crop = fl_orient_crop(orientation, f->width, f->height, f->crop);

    *scale = fl_resize_scale(crop.box.w, crop.box.h, crop.rw, crop.rh, im->exact == FL_ON);
    return fl_resize_reach(&crop, *scale);
}

/* The header strings of these ids, behind the first `len` bytes of the field's blob. */
static bool header_strings(const struct fl_index *ix, const uint32_t ids[FL_SLICE_HEADERS],
                           size_t len, struct fl_sample_field *f)
{
    size_t at = (len + 7) / 8 * 8, n;

    for (int i = 0; i < FL_SLICE_HEADERS; i++) {
        if (at >= f->blob_room || fl_index_header(ix, ids[i], f->blob + at, f->blob_room - at, &n))
            return false;
        f->headers[i] = (struct fl_slice_bytes){ f->blob + at, n };
        at += n;
    }
    return true;
}

/* Is this part of the field's bytes? Then ask for it alone. */
static bool ask(const struct fl_sample_field *f, uint64_t offset, uint64_t length,
                struct fl_read_req *req)
{
    if (offset > f->span.length || length > f->span.length - offset)
        return false;
    req->offset = f->span.offset + offset;
    req->length = length;
    return true;
}

static bool same_size(const struct fl_frame *frame, const struct fl_sample_field *f)
{
    return frame->width == f->width && frame->height == f->height;
}

/* A sliced JPEG: ask for the row groups of the crop only. False: read all of it, which is an ordinary
 * JPEG too (no table in the index, or one that is too large for the room). */
static bool slice_request(const struct fl_index *ix, const struct fl_column *c, struct fl_sample *s,
                          struct fl_sample_field *f, struct fl_read_req *req)
{
    const struct fl_rect box = needed(c, f, &f->scale);
    size_t len;

    return f->blob_room &&
           !fl_index_slices(ix, c->from[s->part].field, s->id, f->blob, f->blob_room, &len) &&
           len && !fl_slice_table_unpack(&f->table, f->blob, len) &&
           same_size(&f->table.frame, f) && header_strings(ix, f->table.header_ids, len, f) &&
           !fl_slice_range(&f->table, box, f->scale, &f->range) &&
           ask(f, f->range.offset, f->range.length, req);
}

/* The same by entry points. Pictures beyond max_pixels, and damage that is to be tolerated, are matters for
 * whoever decodes the whole file. */
static bool points_request(const struct fl_settings *settings, const struct fl_index *ix,
                           const struct fl_column *c, struct fl_sample *s,
                           struct fl_sample_field *f, struct fl_read_req *req)
{
    const struct fl_rect box = needed(c, f, &f->scale);
    size_t len;

    return f->blob_room && !c->cfg.image.tolerate &&
           (int64_t)f->width * f->height <= settings->cfg.max_pixels &&
           !fl_index_entries(ix, c->from[s->part].field, s->id, f->blob, f->blob_room, &len) &&
           len && !fl_entry_unpack(&f->entries, f->blob, len) && same_size(&f->entries.frame, f) &&
           header_strings(ix, f->entries.header_ids, len, f) &&
           !fl_entry_range(&f->entries, box, f->scale, &f->entry_range) &&
           ask(f, f->entry_range.offset, f->entry_range.length, req);
}

static int picture(const struct fl_settings *settings, const struct fl_index *ix,
                   const struct fl_column *c, struct fl_sample *s, struct fl_sample_field *f,
                   struct fl_read_req *req)
{
    struct fl_index_image image;
    int err;

    f->width = 0;
    f->crop.rw = 0;
    f->sliced = f->points = false;
    f->key = (struct fl_crop_key){ .seed = settings->cfg.seed,
                                   .epoch = (uint32_t)s->epoch,
                                   .position = (uint64_t)s->position,
                                   .column = c->index };
    if (!c->from[s->part].is_image)
        return 0;
    if ((err = fl_index_image(ix, c->from[s->part].field, s->id, &image)))
        return err;
    if (!image.width || !image.height)
        return 0; // unknown: the decoder will see
    f->width = image.width;
    f->height = image.height;
    f->orientation = image.orientation;
    int32_t w = image.width, h = image.height;
    if (c->cfg.image.orient && image.orientation)
        fl_orient_size(image.orientation, &w, &h);
    f->crop = fl_crop_draw(&c->cfg.image, &f->key, w, h);
    f->sliced = (image.flags & FL_IMAGE_SLICED) && slice_request(ix, c, s, f, req);
    f->points = (image.flags & FL_IMAGE_ENTRIES) && points_request(settings, ix, c, s, f, req);
    f->whole = !f->sliced && !f->points;
    return 0;
}

/* Bytes: where they lie, how long they may be, where they go. */
static int bytes_field(const struct fl_settings *settings, const struct fl_index *ix,
                       const struct fl_column *c, struct fl_sample *s, struct fl_sample_field *f,
                       uint8_t *row)
{
    struct fl_read_req *req = &s->reads[s->n_reads];
    int err = fl_index_span(ix, c->from[s->part].field, s->id, &f->span);

    if (err)
        return err;
    if (f->span.container == FL_NO_CONTAINER)
        return FL_ERR(ENOENT);
    f->present = true;
    f->whole = true;
    *req = (struct fl_read_req){ .container =
                                     settings->parts[s->part].container_base + f->span.container,
                                 .offset = f->span.offset,
                                 .length = f->span.length };
    if (c->cfg.kind == FL_COLUMN_IMAGE && (err = picture(settings, ix, c, s, f, req)))
        return err;
    if (c->cfg.kind == FL_COLUMN_RAW && !c->zstd) {
        if (f->span.length != c->row_bytes)
            return fl_err(FL_ERR(EBADMSG), FL_STAGE_PLAN,
                          "field \"%s\" has %llu bytes, but the column's shape needs %llu",
                          c->cfg.field, (unsigned long long)f->span.length,
                          (unsigned long long)c->row_bytes);
        req->dst = row;
        req->dst_size = c->row_bytes;
    }
    if (c->cfg.kind == FL_COLUMN_BYTES && !c->zstd && f->span.length > c->max_row)
        return fl_err(FL_ERR(E2BIG), FL_STAGE_PLAN,
                      "field \"%s\" has %llu bytes, more than the column's max_bytes %llu",
                      c->cfg.field, (unsigned long long)f->span.length,
                      (unsigned long long)c->max_row);
    f->read = (int)s->n_reads++;
    return 0;
}

static int lookup_field(const struct fl_settings *settings, const struct fl_index *ix,
                        const struct fl_column *c, struct fl_sample *s, uint8_t *row)
{
    struct fl_sample_field *f = &s->fields[c->index];
    int err;

    if (c->from[s->part].kind == FL_FIELD_INT) {
        err = fl_index_int(ix, c->from[s->part].field, s->id, &f->value);
        f->present = !err;
    } else {
        err = bytes_field(settings, ix, c, s, f, row);
    }
    if (err != FL_ERR(ENOENT))
        return err;
    return c->cfg.optional
               ? 0
               : fl_err(FL_ERR(EBADMSG), FL_STAGE_PLAN,
                        "the sample has no field \"%s\"; make the column optional to get "
                        "zeros",
                        c->cfg.field);
}

void fl_request_sample(const struct fl_settings *settings, struct fl_sample *s,
                       uint8_t *const rows[FL_MAX_COLUMNS])
{
    const struct fl_index *ix = fl_dataset_index(settings->parts[s->part].ds);

    s->n_reads = 0;
    s->err.code = 0;
    s->err_column = -1;
    for (unsigned i = 0; i < settings->n_columns; i++) { // of the row's last sample
        s->fields[i].present = false;
        s->fields[i].read = -1;
        s->fields[i].span.container = FL_NO_CONTAINER;
    }
    for (unsigned i = 0; i < settings->n_columns; i++)
        if (lookup_field(settings, ix, &settings->columns[i], s, rows[i])) {
            s->err = *fl_last_error();
            s->err_column = (int)i;
            s->n_reads = 0;
            return;
        }
}

/* Where the trouble lies: the field at fault, else another one that was asked for, else any of the sample. */
static bool find_place(const struct fl_settings *settings, const struct fl_sample *s,
                       struct fl_span *span)
{
    const struct fl_index *ix = fl_dataset_index(settings->parts[s->part].ds);

    if (s->err_column >= 0 && s->fields[s->err_column].span.container != FL_NO_CONTAINER) {
        *span = s->fields[s->err_column].span;
        return true;
    }
    for (unsigned i = 0; i < s->n_fields; i++)
        if (s->fields[i].span.container != FL_NO_CONTAINER) {
            *span = s->fields[i].span;
            return true;
        }
    return fl_index_place(ix, -1, s->id, span);
}

void fl_request_describe(const struct fl_settings *settings, struct fl_sample *s)
{
    const FlDataset *ds = settings->parts[s->part].ds;
    FlError *e = &s->err;
    char text[sizeof(e->message)], path[FL_INDEX_MAX_NAME + 1024];
    struct fl_span span;
    int n = 0;

    e->sample = s->id;
    e->position = s->position;
    if (fl_index_key(fl_dataset_index(ds), s->id, e->key, sizeof(e->key)) < 0)
        e->key[0] = 0;
    const bool found = find_place(settings, s, &span);
    if (found && e->offset == UINT64_MAX)
        e->offset = span.offset;
    if (found && !e->container[0] &&
        fl_dataset_container_path(ds, span.container, path, sizeof(path)) >= 0)
        fl_err_at(e, path, e->offset);
    if (e->container[0])
        n = snprintf(text, sizeof(text), "%s at byte %llu: ", e->container,
                     (unsigned long long)e->offset);
    n += snprintf(text + n, sizeof(text) - (size_t)n, "sample %lld \"%s\": ", (long long)s->id,
                  e->key);
    if (!strncmp(e->message, text, (size_t)n < sizeof(text) ? (size_t)n : sizeof(text)))
        return;
    snprintf(text + n, sizeof(text) - (size_t)n, "%s: %.200s", fl_stage_name(e->stage), e->message);
    memcpy(e->message, text, sizeof(text));
}
