/* SPDX-License-Identifier: Apache-2.0 */
/* Pictures: the part of a JPEG that the crop needs, resampled, flipped and normalised into the row. */
#include "decoders/decoder.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "crop.h"
#include "jpeg/decode.h"
#include "jpeg/exif.h"
#include "kernels/kernels.h"

struct jpeg_context {
    const struct fl_kernels *kernels;
    struct fl_jpeg_decoder *decoder;
    uint8_t *pixels; // one picture of the row's size, where the row is not uint8 NHWC
    uint8_t *slice;  // a slice as a JPEG of its own
    size_t slice_room;
};

static void close_context(void *ctx)
{
    struct jpeg_context *c = ctx;

    fl_jpeg_decoder_free(c->decoder);
    free(c->pixels);
    free(c->slice);
    free(c);
}

static int open_context(void **ctx, const struct fl_column *column,
                        const struct fl_settings *settings, uint64_t *bytes)
{
    const FlImage *im = &column->cfg.image;
    const struct fl_jpeg_limits limits = { .max_pixels = settings->cfg.max_pixels,
                                           .max_scans = settings->cfg.max_scans };
    struct jpeg_context *c = calloc(1, sizeof(*c));
    int err = FL_ERR(ENOMEM);

    if (!c)
        return fl_err(err, FL_STAGE_DECODE, "no memory for the JPEG decoder");
    c->kernels = fl_kernels_get(FL_CPU_BEST);
    const size_t pixels = (size_t)im->width * (size_t)im->height * (size_t)im->channels;
    c->pixels = malloc(pixels);
    c->slice_room = column->sliced ? (size_t)column->largest + 65536 : 0;
    c->slice = c->slice_room ? malloc(c->slice_room) : NULL;
    if (!c->pixels || (c->slice_room && !c->slice)) {
        fl_err(err, FL_STAGE_DECODE, "no memory for the JPEG decoder");
        goto fail;
    }
    if ((err = fl_jpeg_decoder_new(&c->decoder, &limits, c->kernels)))
        goto fail;
    *bytes = fl_jpeg_decoder_bytes(c->decoder) + pixels + c->slice_room;
    *ctx = c;
    return 0;
fail:
    close_context(c);
    return err;
}

/* The view of a picture whose size the index did not know. */
static int look(const struct fl_decode_job *job, FlError *err, struct fl_crop *crop,
                struct fl_jpeg_header *h)
{
    const FlImage *im = &job->column->cfg.image;
    int code = fl_jpeg_parse(job->data, job->len, h, err);

    if (code == FL_ERR(EAGAIN))
        return fl_err_set(err, FL_ERR(EBADMSG), FL_STAGE_DECODE,
                          "the JPEG ends before its frame header, after %zu bytes", job->len);
    if (code)
        return code;
    int32_t w = (int32_t)h->width, hh = (int32_t)h->height;
    if (im->orient)
        fl_orient_size(h->orientation, &w, &hh);
    *crop = fl_crop_draw(im, &job->field->key, w, hh);
    return 0;
}

static int prepare(const struct fl_decode_job *job, FlError *err, struct fl_jpeg_request *req)
{
    const struct fl_sample_field *f = job->field;
    const FlImage *im = &job->column->cfg.image;
    struct fl_jpeg_header h = { .width = f->width,
                                .height = f->height,
                                .orientation = f->orientation };
    struct fl_crop crop = f->crop;
    int code;

    if (!crop.rw && (code = look(job, err, &crop, &h)))
        return code;
    const int orientation = im->orient && h.orientation ? h.orientation : 1;
    *req = (struct fl_jpeg_request){
        .crop = fl_orient_crop(orientation, (int32_t)h.width, (int32_t)h.height, crop),
        .exact = im->exact == FL_ON,
        .tolerate = im->tolerate,
        .channels = (uint8_t)im->channels,
        .orientation = (uint8_t)orientation,
        .stride = (ptrdiff_t)im->width * im->channels,
    };
    return 0;
}

/* A sliced JPEG: straight from the row groups that were read, or as a smaller JPEG. */
static int decode_slice(struct jpeg_context *c, struct fl_decode_job *job,
                        struct fl_jpeg_request *req, FlError *err)
{
    const struct fl_sample_field *f = job->field;
    const struct fl_jpeg_slice slice = { &f->table, &f->range, f->headers, job->data };
    FlError first;
    size_t len;
    int code;

    if (job->column->from[job->sample->part].checksums &&
        (code = fl_slice_check_groups(&f->table, &f->range, job->data, err)))
        return code;
    code = fl_jpeg_decode_slice(c->decoder, &slice, req, &first);
    if (code != FL_ERR(ENOTSUP)) {
        if (code)
            *err = first;
        return code;
    }
    code = fl_slice_cut(&f->table, &f->range, f->headers, job->data, c->slice, c->slice_room, &len,
                        err);
    if (code)
        return code;
    req->origin_x = f->range.rect.x;
    req->origin_y = f->range.rect.y;
    return fl_jpeg_decode(c->decoder, c->slice, len, req, err, NULL);
}

/* By entry points, from the row groups that were read. */
static int decode_points(struct jpeg_context *c, const struct fl_decode_job *job,
                         const struct fl_jpeg_request *req, FlError *err)
{
    const struct fl_sample_field *f = job->field;
    const struct fl_jpeg_points points = { &f->entries, &f->entry_range, f->headers, job->data };

    if (job->column->from[job->sample->part].row_sums &&
        fl_entry_check(&f->entries, &f->entry_range, job->data, err))
        return err->code;
    return fl_jpeg_decode_points(c->decoder, &points, req, err);
}

/* What was read, as the plan asked for it. */
static int decode_part(struct jpeg_context *c, struct fl_decode_job *job,
                       struct fl_jpeg_request *req, FlError *err)
{
    if (job->field->sliced)
        return decode_slice(c, job, req, err);
    if (job->field->points)
        return decode_points(c, job, req, err);
    return fl_jpeg_decode(c->decoder, job->data, job->len, req, err, NULL);
}

static int decode(void *ctx, struct fl_decode_job *job, FlError *err)
{
    struct jpeg_context *c = ctx;
    const struct fl_normalize *n = &job->column->normalize;
    const FlImage *im = &job->column->cfg.image;
    const size_t pixels = (size_t)im->width * (size_t)im->height;
    const bool direct = n->dtype == FL_U8 && (n->layout == FL_NHWC || im->channels == 1);
    struct fl_jpeg_request req;
    int code = prepare(job, err, &req);

    if (code)
        return code;
    req.dst = direct ? job->row : c->pixels;
    if ((code = decode_part(c, job, &req, err)))
        return code;
    if (!direct)
        c->kernels->normalize(n, c->pixels, pixels, job->row, pixels, true);
    job->row_len = job->column->row_bytes;
    return 0;
}

const struct fl_decoder fl_decoder_jpeg = {
    .name = "jpeg", .open = open_context, .decode = decode, .close = close_context
};
