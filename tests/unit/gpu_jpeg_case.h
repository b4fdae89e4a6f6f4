/* SPDX-License-Identifier: Apache-2.0 */
/* Pictures for the GPU decoder's tests and benchmark: made up or from files, sliced, planned, and
 * decoded by libjpeg-turbo for comparison. */
#ifndef FL_TESTS_GPU_JPEG_CASE_H
#define FL_TESTS_GPU_JPEG_CASE_H

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "gpu/jpeg.h"
#include "jpeg/codec.h"
#include "jpeg/slice.h"
#include "kernels/resize.h"

/* Sampling factors and what they are called. n: components. */
struct case_sampling {
    const char *name;
    int n;
    int h[3], v[3];
};

static inline uint32_t case_hash(uint32_t x)
{
    x ^= x >> 16;
    x *= 0x7feb352dU;
    x ^= x >> 15;
    x *= 0x846ca68bU;
    return x ^ x >> 16;
}

/* Waves, edges and noise, so that blocks of every kind occur. */
static inline uint8_t case_pixel(uint32_t x, uint32_t y, uint32_t c, uint32_t seed)
{
    const uint32_t noise = case_hash(x * 3 + y * 65537u + c * 17 + seed * 977) & 31;
    const uint32_t wave = (x * (3 + c) + y * (5 - c) + seed * 11) & 127;
    const uint32_t edge = ((x + seed) / 13 + y / 7 + c) & 1 ? 70 : 0;
    const uint32_t v = wave + edge + noise;

    return (uint8_t)(v > 255 ? 255 : v);
}

/* Compress a made-up picture. Returns malloced bytes. */
static inline uint8_t *case_compress(const struct case_sampling *s, uint32_t w, uint32_t h,
                                     int quality, uint32_t seed, bool rgb, uint32_t restart,
                                     size_t *len)
{
    struct jpeg_compress_struct c;
    struct fl_codec codec;
    unsigned char *out = NULL;
    unsigned long size = 0;
    uint8_t *const line = malloc((size_t)w * 3);
    JSAMPROW row = line;

    c.err = fl_codec_init(&codec);
    if (!line || setjmp(codec.jump))
        abort();
    jpeg_create_compress(&c);
    jpeg_mem_dest(&c, &out, &size);
    c.image_width = w;
    c.image_height = h;
    c.input_components = s->n;
    c.in_color_space = s->n == 1 ? JCS_GRAYSCALE : JCS_RGB;
    jpeg_set_defaults(&c);
    if (rgb)
        jpeg_set_colorspace(&c, JCS_RGB);
    jpeg_set_quality(&c, quality, TRUE);
    for (int i = 0; i < s->n; i++) {
        c.comp_info[i].h_samp_factor = s->h[i];
        c.comp_info[i].v_samp_factor = s->v[i];
    }
    c.restart_interval = restart;
    jpeg_start_compress(&c, TRUE);
    for (uint32_t y = 0; y < h; y++) {
        for (uint32_t x = 0; x < w; x++)
            for (uint32_t k = 0; k < (uint32_t)s->n; k++)
                line[x * (uint32_t)s->n + k] = case_pixel(x, y, k, seed);
        jpeg_write_scanlines(&c, &row, 1);
    }
    jpeg_finish_compress(&c);
    jpeg_destroy_compress(&c);
    free(line);
    *len = size;
    return out;
}

static inline uint8_t *case_jpeg(const struct case_sampling *s, uint32_t w, uint32_t h, int quality,
                                 uint32_t seed, bool rgb, size_t *len)
{
    return case_compress(s, w, h, quality, seed, rgb, 0, len);
}

/* With a restart marker after so many MCUs. */
static inline uint8_t *case_jpeg_restart(const struct case_sampling *s, uint32_t w, uint32_t h,
                                         int quality, uint32_t seed, uint32_t restart, size_t *len)
{
    return case_compress(s, w, h, quality, seed, false, restart, len);
}

/* Decode a whole JPEG at scale s/8 to RGB (channels 3) or luma (1). Returns malloced pixels. */
static inline uint8_t *case_decode(const uint8_t *data, size_t len, int scale, int channels,
                                   uint32_t *w, uint32_t *h)
{
    struct jpeg_decompress_struct d;
    struct fl_codec codec;

    d.err = fl_codec_init(&codec);
    if (setjmp(codec.jump)) {
        fprintf(stderr, "libjpeg: %s\n", codec.message);
        abort();
    }
    jpeg_create_decompress(&d);
    jpeg_mem_src(&d, data, (unsigned long)len);
    jpeg_read_header(&d, TRUE);
    d.out_color_space = channels == 3 ? JCS_RGB : JCS_GRAYSCALE;
    d.dct_method = JDCT_ISLOW;
    d.scale_num = (unsigned)scale;
    d.scale_denom = 8;
    jpeg_start_decompress(&d);
    uint8_t *const out = malloc((size_t)d.output_width * d.output_height * (size_t)channels);
    if (!out)
        abort();
    while (d.output_scanline < d.output_height) {
        JSAMPROW row = out + (size_t)d.output_scanline * d.output_width * (size_t)channels;
        jpeg_read_scanlines(&d, &row, 1);
    }
    *w = d.output_width;
    *h = d.output_height;
    jpeg_finish_decompress(&d);
    jpeg_destroy_decompress(&d);
    return out;
}

static inline void case_axis(struct fl_axis *axis, int box, int size, int scale, int resized,
                             int first, int n)
{
    const struct fl_axis_spec spec = { box, size, scale, resized, first, n };
    void *const mem = aligned_alloc(64, (fl_axis_bytes(&spec) + 63) / 64 * 64);

    if (!mem)
        abort();
    fl_axis_make(axis, &spec, mem);
}

/* Where pixel X, Y of a w x h window goes after EXIF orientation and mirroring, in words of the
 * standard: row and column of the upright picture. */
static inline size_t case_place(int x, int y, int w, int h, int orientation, bool flip)
{
    static const struct {
        bool swap, right, bottom; // swap axes; first row is at the right or bottom of them
    } to[9] = { { 0 },       { 0 },       { 0, 1, 0 }, { 0, 1, 1 }, { 0, 0, 1 },
                { 1, 0, 0 }, { 1, 1, 0 }, { 1, 1, 1 }, { 1, 0, 1 } };
    const int uw = to[orientation].swap ? h : w, uh = to[orientation].swap ? w : h;
    int u = to[orientation].swap ? y : x, v = to[orientation].swap ? x : y;

    u = to[orientation].right ? uw - 1 - u : u;
    v = to[orientation].bottom ? uh - 1 - v : v;
    u = flip ? uw - 1 - u : u;
    return (size_t)v * (size_t)uw + (size_t)u;
}

/* The definition of kernels/resize.h, word for word, on a whole decoded picture. */
static inline void case_resize(const uint8_t *pixels, uint32_t width, int channels, int scale,
                               const struct fl_crop *c, int orientation, uint8_t *out)
{
    struct fl_axis ax, ay;

    case_axis(&ax, c->box.x, c->box.w, scale, c->rw, c->window.x, c->window.w);
    case_axis(&ay, c->box.y, c->box.h, scale, c->rh, c->window.y, c->window.h);
    const size_t cols = (size_t)(ax.hi - ax.lo);
    int32_t *const t = malloc(cols * sizeof(*t));
    if (!t)
        abort();
    for (int y = 0; y < ay.n; y++)
        for (int k = 0; k < channels; k++) {
            for (size_t x = 0; x < cols; x++) {
                int32_t sum = 1 << (ay.bits - 8);
                for (int i = 0; i < ay.taps && ay.start[y] + i < ay.hi; i++)
                    sum += ay.weights[y * ay.taps + i] *
                           pixels[((size_t)(ay.start[y] + i) * width + x + (size_t)ax.lo) *
                                      (size_t)channels +
                                  (size_t)k];
                t[x] = sum >> (ay.bits - 7);
            }
            for (int x = 0; x < ax.n; x++) {
                int32_t sum = 1 << (ax.bits + 6);
                for (int i = 0; i < ax.taps && ax.start[x] + i < ax.hi; i++)
                    sum += ax.weights[x * ax.taps + i] * t[ax.start[x] + i - ax.lo];
                out[case_place(x, y, ax.n, ay.n, orientation, c->flip) * (size_t)channels +
                    (size_t)k] = (uint8_t)(sum >> (ax.bits + 7));
            }
        }
    free(t);
    free(ax.start);
    free(ay.start);
}

/* A sliced picture, ready to be planned. */
struct case_picture {
    uint8_t *jpeg;
    size_t len;
    uint8_t *blob;
    struct fl_slice_table table;
    struct fl_gpu_jpeg_header header;
};

/* Slice a JPEG. Returns false if the slicer keeps it as it is, or the GPU cannot decode it. */
static inline bool case_slice(struct case_picture *p, struct fl_slicer *slicer, const uint8_t *jpeg,
                              size_t len)
{
    struct fl_slice_result result;
    struct fl_slice_parts parts;
    FlError err;

    memset(p, 0, sizeof(*p));
    if (fl_slicer_rewrite(slicer, jpeg, len, NULL, &result) ||
        (result.status != FL_SLICE_SLICED && result.status != FL_SLICE_ALREADY))
        return false;
    p->jpeg = malloc(result.len);
    if (!p->jpeg)
        abort();
    memcpy(p->jpeg, result.data, result.len);
    p->len = result.len;
    if (fl_slicer_table(slicer, p->jpeg, p->len, &parts))
        return false;
    p->blob = malloc(parts.blob.len);
    if (!p->blob)
        abort();
    memcpy(p->blob, parts.blob.data, parts.blob.len);
    if (fl_slice_table_unpack(&p->table, p->blob, parts.blob.len))
        return false;
    for (int i = 0; i < FL_SLICE_HEADERS; i++)
        if (fl_gpu_jpeg_header_add(&p->header, parts.headers[i].data, parts.headers[i].len, &err)) {
            fprintf(stderr, "header %d: %s\n", i, err.message);
            return false;
        }
    if (fl_gpu_jpeg_header_finish(&p->header, p->table.frame.width, p->table.frame.height,
                                  p->table.interval, &err)) {
        fprintf(stderr, "header: %s\n", err.message);
        return false;
    }
    return true;
}

static inline void case_free(struct case_picture *p)
{
    free(p->jpeg);
    free(p->blob);
    memset(p, 0, sizeof(*p));
}

/* What a crop of it needs; bytes point into p->jpeg. */
static inline int case_request(const struct case_picture *p, const struct fl_crop *crop, bool exact,
                               struct fl_gpu_jpeg_picture *in)
{
    const int scale = fl_resize_scale(crop->box.w, crop->box.h, crop->rw, crop->rh, exact);
    struct fl_slice_range r;
    const int rc = fl_slice_range(&p->table, crop->box, scale, &r);

    if (rc)
        return rc;
    *in = (struct fl_gpu_jpeg_picture){
        .header = &p->header,
        .bytes = p->jpeg + r.offset,
        .length = (uint32_t)r.length,
        .group_row = r.group_row,
        .first_row = r.first_row,
        .n_rows = r.n_rows,
        .first_segment = r.first_segment,
        .n_segments = r.n_segments,
        .crop = *crop,
        .exact = exact,
    };
    return 0;
}

#endif
