/* SPDX-License-Identifier: Apache-2.0 */
#include "jpeg/decode.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "jpeg/direct.h"
#include "jpeg/engine.h"
#include "jpeg/exif.h"
#include "jpeg/ink.h"
#include "jpeg/limits.h"

enum { BATCH = 8 }; // rows asked of the codec at once

struct fl_jpeg_decoder {
    struct fl_engine engine;
    struct fl_direct *direct; // NULL: codec_alone
    bool fast;                // else this CPU is better off with libjpeg-turbo where it will do
    const struct fl_kernels *kernels;
    struct fl_jpeg_limits limits; // resolved: no zeros
};

/* One picture on its way. Everything that must survive a longjmp lives here. */
struct job {
    struct fl_jpeg_decoder *dec;
    const struct fl_jpeg_request *req;
    const struct fl_jpeg_slice *slice;   // NULL: not a slice
    const struct fl_jpeg_points *points; // NULL: no entry points
    const uint8_t *data;
    size_t len;
    bool own;     // decoded by dec->direct, not by libjpeg
    FlError *err; // own: what it has to say
    struct fl_jpeg_header header;
    int scale;
    int channels;        // of the result
    int stored_channels; // of a row from the codec: 1, 3, or 4 for ink
    bool whole;          // neither columns nor rows may be left out

    struct fl_axis v, h;
    int first_row;  // of the file, decoded pixels: what v.lo is in the picture
    int first_col;  // of the file: what h.lo is in the picture
    int crop_col;   // first column that the codec hands out
    int crop_width; // columns that it hands out

    // Rows [next_row - ring_rows, next_row) of the file, row r at ring[r % ring_rows].
    uint8_t **ring;
    int ring_rows, next_row;
    uint8_t *ink[BATCH];  // stored_channels 4: rows as the codec gives them
    const uint8_t **taps; // rows of one output row
    int16_t *t[2];        // vertical pass of two output rows
    uint8_t *turned[2];   // two output rows that become columns
};

/* ---- life ---- */

int fl_jpeg_decoder_new(struct fl_jpeg_decoder **out, const struct fl_jpeg_limits *limits,
                        const struct fl_kernels *kernels)
{
    struct fl_jpeg_decoder *dec = calloc(1, sizeof(*dec));

    if (!dec)
        return FL_ERR(ENOMEM);
    dec->kernels = kernels ? kernels : fl_kernels_get(FL_CPU_BEST);
    dec->limits = fl_jpeg_limits_of(limits);
    const int err = fl_engine_init(&dec->engine, dec->limits.reserve, dec->limits.max_memory);
    const bool direct = !dec->limits.codec_alone;
    dec->fast = direct && fl_direct_is_fast();
    if (!err && direct)
        dec->direct = fl_direct_new(dec->limits.reserve / 4, dec->limits.max_memory, FL_CPU_BEST);
    if (err || (direct && !dec->direct)) {
        fl_jpeg_decoder_free(dec);
        return err ? err : FL_ERR(ENOMEM);
    }
    *out = dec;
    return 0;
}

void fl_jpeg_decoder_free(struct fl_jpeg_decoder *dec)
{
    if (!dec)
        return;
    fl_engine_fini(&dec->engine);
    fl_direct_free(dec->direct);
    free(dec);
}

size_t fl_jpeg_decoder_bytes(const struct fl_jpeg_decoder *dec)
{
    return sizeof(*dec) + dec->engine.arena.held + dec->engine.permanent.held +
           (dec->direct ? fl_direct_bytes(dec->direct) : 0);
}

#define TEXT2(x) #x
#define TEXT(x) TEXT2(x)

const char *fl_jpeg_codec(void)
{
    return "libjpeg-turbo " TEXT(LIBJPEG_TURBO_VERSION);
}

static bool valid_request(const struct fl_jpeg_request *r, int scale)
{
    const struct fl_crop *c = &r->crop;
    const int32_t most = 65535;

    return (r->channels == 1 || r->channels == 3) && r->dst && r->orientation <= 8 &&
           c->box.x >= 0 && c->box.y >= 0 && c->box.w >= 1 && c->box.h >= 1 &&
           c->box.x <= most - c->box.w && c->box.y <= most - c->box.h && c->rw >= 1 && c->rh >= 1 &&
           c->rw <= most && c->rh <= most && c->window.w >= 1 && c->window.h >= 1 &&
           c->window.x >= 0 && c->window.y >= 0 && c->window.x <= c->rw - c->window.w &&
           c->window.y <= c->rh - c->window.h && r->origin_x >= 0 && r->origin_y >= 0 &&
           (int64_t)r->origin_x * scale % 8 == 0 && (int64_t)r->origin_y * scale % 8 == 0;
}

/* ---- region ---- */

static void *take(struct job *j, size_t size)
{
    return fl_engine_alloc(&j->dec->engine, size);
}

static void make_axis(struct job *j, struct fl_axis *axis, const struct fl_axis_spec *spec)
{
    fl_axis_make(axis, spec, take(j, fl_axis_bytes(spec)));
}

static void make_axes(struct job *j)
{
    const struct fl_jpeg_request *r = j->req;
    const struct fl_crop *c = &r->crop;
    const struct jpeg_decompress_struct *cinfo = &j->dec->engine.cinfo;
    const struct fl_axis_spec v = { c->box.y, c->box.h, j->scale, c->rh, c->window.y, c->window.h };
    const struct fl_axis_spec h = { c->box.x, c->box.w, j->scale, c->rw, c->window.x, c->window.w };
    const int ox = (int)((int64_t)r->origin_x * j->scale / 8);
    const int oy = (int)((int64_t)r->origin_y * j->scale / 8);

    int32_t left, right, top, bottom;
    fl_axis_reach(&h, &left, &right);
    fl_axis_reach(&v, &top, &bottom);
    if (left < ox || top < oy || right - ox > (int)cinfo->output_width ||
        bottom - oy > (int)cinfo->output_height)
        fl_codec_fail(&j->dec->engine.codec, FL_ERR(EINVAL),
                      "the view (box %d,%d %dx%d) reaches outside the file (%dx%d at %d,%d)",
                      c->box.x, c->box.y, c->box.w, c->box.h, (int)j->header.width,
                      (int)j->header.height, r->origin_x, r->origin_y);
    make_axis(j, &j->v, &v);
    make_axis(j, &j->h, &h);
    j->first_row = top - oy;
    j->first_col = left - ox;
}

/* libjpeg smooths the blocks of a progressive file whose scans have not brought all bits; that looks at
 * neighbours, so such a file is decoded whole. */
static bool is_incomplete(const struct jpeg_decompress_struct *cinfo)
{
    for (int c = 0; cinfo->coef_bits && c < cinfo->num_components; c++)
        for (int i = 0; i < DCTSIZE2; i++)
            if (cinfo->coef_bits[c][i])
                return true;
    return false;
}

/* jpeg_crop_scanline() takes all chroma to be reduced like luma. At reduced scales the codec may keep more of
 * it and still have to upsample (4:1:0): the width it then upsamples would be too small. */
static bool can_crop_columns(const struct jpeg_decompress_struct *cinfo)
{
    const int out = cinfo->max_h_samp_factor * cinfo->min_DCT_scaled_size;

    for (int i = 0; i < cinfo->num_components; i++) {
        const jpeg_component_info *c = &cinfo->comp_info[i];
        if (c->DCT_scaled_size != cinfo->min_DCT_scaled_size &&
            c->h_samp_factor * c->DCT_scaled_size != out)
            return false;
    }
    return true;
}

/* Leave out the columns and rows that no pixel of the view depends on. Upsampling blends chroma with its neighbours and
 * treats the cut as the picture's edge: two columns of margin, and never fewer than three chroma samples, below which it
 * does not blend at all. The codec itself cuts at multiples of the MCU. */
static void start_region(struct job *j)
{
    struct jpeg_decompress_struct *cinfo = &j->dec->engine.cinfo;
    const int width = (int)cinfo->output_width, cols = j->h.hi - j->h.lo;
    const int margin = 2, least = 6 * cinfo->max_h_samp_factor;

    j->crop_col = 0;
    j->crop_width = width;
    j->next_row = 0;
    if (j->whole)
        return;
    int from = j->first_col - margin, to = j->first_col + cols + margin;
    if (to - from < least)
        from = to - least;
    from = from < 0 ? 0 : from;
    to = to - from < least ? from + least : to;
    to = to > width ? width : to;
    if ((from > 0 || to < width) && can_crop_columns(cinfo)) {
        JDIMENSION x = (JDIMENSION)from, w = (JDIMENSION)(to - from);
        jpeg_crop_scanline(cinfo, &x, &w);
        j->crop_col = (int)x;
        j->crop_width = (int)w;
    }
    const int imcu = cinfo->max_v_samp_factor * cinfo->min_DCT_scaled_size;
    const int skip = (j->first_row - margin) / imcu * imcu;
    if (skip > 0)
        j->next_row = (int)jpeg_skip_scanlines(cinfo, (JDIMENSION)skip);
}

static void make_buffers(struct job *j)
{
    // To rows aligned to a vector libjpeg-turbo stores past the cache, whence the resampler would have to fetch
    // them back (a third of all resampling time): begin them elsewhere.
    const size_t off_align = 16;
    const size_t row = off_align + (size_t)j->crop_width * (size_t)j->channels + 64;
    const size_t cols = (size_t)(j->h.hi - j->h.lo + j->h.taps);
    const size_t t = (cols * (size_t)j->channels + FL_RESIZE_PAD) * 2;
    const size_t out = (size_t)j->h.n * (size_t)j->channels;

    j->ring_rows = j->v.taps + BATCH;
    j->ring = take(j, (size_t)j->ring_rows * sizeof(*j->ring));
    j->taps = take(j, (size_t)j->v.taps * sizeof(*j->taps));
    for (int i = 0; i < j->ring_rows; i++) {
        uint8_t *mem = take(j, row);
        memset(mem + row - 64, 0, 64);
        j->ring[i] = mem + off_align;
    }
    for (int i = 0; i < BATCH && j->stored_channels == 4; i++)
        j->ink[i] = take(j, (size_t)j->crop_width * 4);
    for (int i = 0; i < 2; i++) {
        j->t[i] = take(j, t);
        memset(j->t[i], 0, t);
        j->turned[i] = fl_orient_of(j->req->orientation).transpose ? take(j, out) : NULL;
    }
}

/* ---- rows ---- */

/* Rows up to, not including, `end`, of which those before `start` are no longer needed. */
static void read_rows(struct job *j, int start, int end)
{
    struct fl_engine *engine = &j->dec->engine;

    for (; j->own && j->next_row < end; j->next_row++)
        if (fl_direct_row(j->dec->direct, j->ring[j->next_row % j->ring_rows], j->err))
            fl_codec_fail(&engine->codec, j->err->code, "damaged");
    while (j->next_row < end) {
        // Rows ahead are welcome, but none that a tap still needs may be overwritten.
        const int last = j->first_row + (j->v.hi - j->v.lo);
        int n = start + j->ring_rows - j->next_row;
        n = j->next_row < start ? BATCH : n < BATCH ? n : BATCH;
        n = n < last - j->next_row ? n : last - j->next_row;

        JSAMPROW rows[BATCH];
        for (int i = 0; i < n; i++)
            rows[i] =
                j->stored_channels == 4 ? j->ink[i] : j->ring[(j->next_row + i) % j->ring_rows];
        const int got = (int)jpeg_read_scanlines(&engine->cinfo, rows, (JDIMENSION)n);
        if (got <= 0)
            fl_codec_fail(&engine->codec, FL_ERR(EBADMSG), "the codec ended before the picture");
        for (int i = 0; i < got && j->stored_channels == 4; i++)
            fl_ink_convert(j->ink[i], j->crop_width, j->header.adobe >= 0, j->channels,
                           j->ring[(j->next_row + i) % j->ring_rows]);
        j->next_row += got;
    }
}

static void vertical(struct job *j, int y, int16_t *t)
{
    const struct fl_axis *v = &j->v;
    const int start = v->start[y] - v->lo + j->first_row;
    const int last = j->first_row + (v->hi - v->lo) - 1;
    const size_t skip = (size_t)(j->first_col - j->crop_col) * (size_t)j->channels;
    const int end = start + v->taps <= last + 1 ? start + v->taps : last + 1;

    read_rows(j, start, end);
    // Weights beyond the last row are zero: any row will do there.
    for (int k = 0; k < v->taps; k++)
        j->taps[k] = j->ring[(start + k < end ? start + k : end - 1) % j->ring_rows] + skip;
    j->dec->kernels->vertical(j->taps, v->weights + (size_t)y * (size_t)v->taps, v->taps, v->bits,
                              (j->h.hi - j->h.lo) * j->channels, t);
}

/* An output row of the stored frame becomes a column of the upright one. */
static void store_column(const struct job *j, const uint8_t *row, int column)
{
    uint8_t *d = j->req->dst + (size_t)column * (size_t)j->channels;

    for (int i = 0; i < j->h.n; i++)
        memcpy(d + (ptrdiff_t)i * j->req->stride, row + (size_t)i * (size_t)j->channels,
               (size_t)j->channels);
}

static void resample(struct job *j)
{
    const struct fl_orient o = fl_orient_of(j->req->orientation);
    const bool flip = j->req->crop.flip;
    const int n = j->v.n;
    // What becomes of a row: its own mirroring, and its place among the others.
    const bool mirror_row = o.transpose ? o.mirror_u : o.mirror_u != flip;
    const bool mirror_place = o.transpose ? o.mirror_v != flip : o.mirror_v;

    for (int y = 0; y < n; y += 2) {
        const int pair = y + 1 < n ? 2 : 1;
        uint8_t *out[2] = { NULL, NULL };
        int place[2] = { 0, 0 };
        for (int i = 0; i < pair; i++) {
            vertical(j, y + i, j->t[i]);
            place[i] = mirror_place ? n - 1 - (y + i) : y + i;
            out[i] = o.transpose ? j->turned[i] : j->req->dst + place[i] * j->req->stride;
        }
        if (pair == 1)
            out[1] = out[0];
        j->dec->kernels->horizontal[j->channels](j->t[0], pair == 2 ? j->t[1] : j->t[0], &j->h,
                                                 mirror_row, out[0], out[1]);
        for (int i = 0; i < pair && o.transpose; i++)
            store_column(j, j->turned[i], place[i]);
    }
}

/* ---- one picture ---- */

static void set_output(struct job *j)
{
    struct jpeg_decompress_struct *cinfo = &j->dec->engine.cinfo;

    j->channels = j->req->channels;
    j->stored_channels = j->channels;
    if (j->header.components == 4) {
        cinfo->out_color_space = JCS_CMYK;
        j->stored_channels = 4;
    } else {
        cinfo->out_color_space = j->channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    }
    cinfo->scale_num = (unsigned)j->scale;
    cinfo->scale_denom = 8;
    cinfo->dct_method = JDCT_ISLOW;
    cinfo->do_fancy_upsampling = TRUE;
    cinfo->do_block_smoothing = TRUE;
}

/* Behind setjmp: any failure jumps. */
static void decode(struct job *j)
{
    struct fl_codec *codec = &j->dec->engine.codec;
    struct jpeg_decompress_struct *cinfo = &j->dec->engine.cinfo;

    jpeg_read_header(cinfo, TRUE);
    if (cinfo->image_width != j->header.width || cinfo->image_height != j->header.height ||
        cinfo->num_components != j->header.components)
        fl_codec_fail(codec, FL_ERR(EBADMSG), "the header says two things at once");
    set_output(j);
    jpeg_start_decompress(cinfo);
    make_axes(j);
    j->whole = is_incomplete(cinfo);
    start_region(j);
    make_buffers(j);
    resample(j);
}

/* The view's part of the picture, decoded by us. Behind setjmp, too: memory comes from the engine. */
static void decode_own(struct job *j)
{
    const struct fl_crop *c = &j->req->crop;
    const struct fl_axis_spec v = { c->box.y, c->box.h, j->scale, c->rh, c->window.y, c->window.h };
    const struct fl_axis_spec h = { c->box.x, c->box.w, j->scale, c->rw, c->window.x, c->window.w };
    const int32_t width = (int32_t)j->header.width, height = (int32_t)j->header.height;
    struct fl_direct_view view = { .scale = j->scale, .channels = j->req->channels };
    int32_t left, right, top, bottom;
    int code;

    fl_axis_reach(&h, &left, &right);
    fl_axis_reach(&v, &top, &bottom);
    view.box.x = left * 8 / j->scale;
    view.box.y = top * 8 / j->scale;
    right = right * 8 / j->scale;
    bottom = bottom * 8 / j->scale;
    view.box.w = (right < width ? right : width) - view.box.x;
    view.box.h = (bottom < height ? bottom : height) - view.box.y;
    struct fl_direct *const d = j->dec->direct;
    if (j->slice)
        code = fl_direct_slice(d, j->slice->table, j->slice->range, j->slice->headers,
                               j->slice->bytes, &view, j->err);
    else if (j->points)
        code = fl_direct_points(d, j->points->table, j->points->range, j->points->headers,
                                j->points->bytes, &view, j->err);
    else
        code = fl_direct_file(d, j->data, j->len, &view, j->err);
    if (code)
        fl_codec_fail(&j->dec->engine.codec, code, "refused");
    j->own = true;
    j->channels = j->stored_channels = j->req->channels;
    make_axis(j, &j->v, &v);
    make_axis(j, &j->h, &h);
    j->first_row = j->first_col = j->crop_col = j->next_row = 0;
    j->crop_width = fl_direct_width(j->dec->direct);
    make_buffers(j);
    resample(j);
}

/* Decode without libjpeg. Returns 0, or FL_ERR(...) with *err filled. */
static int run_own(struct job *j, FlError *err)
{
    struct fl_engine *engine = &j->dec->engine;

    j->err = err;
    fl_engine_begin(engine, NULL, 0, false, 0);
    if (!setjmp(engine->codec.jump)) {
        decode_own(j);
        fl_engine_end(engine);
        return 0;
    }
    fl_engine_end(engine);
    j->own = false;
    if (engine->codec.code == FL_ERR(ENOMEM) || engine->codec.code == FL_ERR(E2BIG))
        return fl_jpeg_refuse(err, engine->codec.code, engine->codec.message, UINT64_MAX);
    return engine->codec.code;
}

static int run(struct job *j, FlError *err)
{
    struct fl_engine *engine = &j->dec->engine;

    fl_engine_begin(engine, j->data, j->len, j->req->tolerate, j->dec->limits.max_scans);
    if (!setjmp(engine->codec.jump)) {
        decode(j);
        fl_engine_end(engine);
        return 0;
    }
    const size_t offset = fl_engine_offset(engine, j->len);
    fl_engine_end(engine);
    return fl_jpeg_refuse(err, engine->codec.code, engine->codec.message, offset);
}

/* A file that our decoder takes: what it refuses, and what it finds damaged, libjpeg-turbo is asked about,
 * so that the same files are good, in the same words, whoever decodes. */
static bool is_ours(const struct job *j)
{
    return j->dec->fast && j->header.sof <= FL_SOF_EXTENDED && j->req->origin_x == 0 &&
           j->req->origin_y == 0 && (j->header.components == 3 || j->header.components == 1);
}

static bool inside(const struct job *j)
{
    const struct fl_rect *b = &j->req->crop.box;

    return b->x + b->w <= (int32_t)j->header.width && b->y + b->h <= (int32_t)j->header.height;
}

/* A part of a picture of this frame. */
static int run_part(struct job *j, const struct fl_frame *f, FlError *err)
{
    const struct fl_jpeg_request *req = j->req;
    const struct fl_crop *c = &req->crop;

    j->header.width = f->width;
    j->header.height = f->height;
    j->scale = fl_resize_scale(c->box.w, c->box.h, c->rw, c->rh, req->exact);
    if (!valid_request(req, j->scale) || !inside(j))
        return fl_jpeg_refuse(err, FL_ERR(EINVAL), "the view asked for is not one", UINT64_MAX);
    return run_own(j, err);
}

int fl_jpeg_decode_slice(struct fl_jpeg_decoder *dec, const struct fl_jpeg_slice *slice,
                         const struct fl_jpeg_request *req, FlError *err)
{
    struct job j = { .dec = dec, .req = req, .slice = slice };

    if (!dec->fast)
        return fl_jpeg_refuse(err, FL_ERR(ENOTSUP), "slices go through libjpeg-turbo here",
                              UINT64_MAX);
    return run_part(&j, &slice->table->frame, err);
}

int fl_jpeg_decode_points(struct fl_jpeg_decoder *dec, const struct fl_jpeg_points *points,
                          const struct fl_jpeg_request *req, FlError *err)
{
    struct job j = { .dec = dec, .req = req, .points = points };

    if (!dec->direct)
        return fl_jpeg_refuse(err, FL_ERR(ENOTSUP), "libjpeg-turbo cannot begin at entry points",
                              UINT64_MAX);
    return run_part(&j, &points->table->frame, err);
}

int fl_jpeg_decode(struct fl_jpeg_decoder *dec, const uint8_t *data, size_t len,
                   const struct fl_jpeg_request *req, FlError *err, struct fl_jpeg_info *info)
{
    struct job j = { .dec = dec, .req = req, .data = data, .len = len };
    const struct fl_crop *c = &req->crop;
    FlError own; // of our decoder: not the caller's, if libjpeg-turbo takes the file
    int r = fl_jpeg_parse(data, len, &j.header, err);

    if (r == FL_ERR(EAGAIN) || (!r && !j.header.scan_offset))
        return fl_jpeg_refuse(err, FL_ERR(EBADMSG), "the file ends inside its header", len);
    if (r)
        return r;
    j.scale = fl_resize_scale(c->box.w, c->box.h, c->rw, c->rh, req->exact);
    if (!valid_request(req, j.scale))
        return fl_jpeg_refuse(err, FL_ERR(EINVAL), "the view asked for is not one", UINT64_MAX);
    r = fl_jpeg_check(data, len, &j.header, &dec->limits, req->tolerate, err);
    if (!r && (!is_ours(&j) || !inside(&j) || run_own(&j, &own)))
        r = run(&j, err);
    if (r || !info)
        return r;
    info->header = j.header;
    info->scale = j.scale;
    info->warnings = j.own ? 0 : (int)dec->engine.codec.mgr.num_warnings;
    snprintf(info->warning, sizeof(info->warning), "%s", j.own ? "" : dec->engine.codec.message);
    return 0;
}
