/* SPDX-License-Identifier: Apache-2.0 */
/* Pictures made on the spot, and decoding them the plain way. */
#ifndef FL_TESTS_JPEG_FIXTURE_H
#define FL_TESTS_JPEG_FIXTURE_H

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "jpeg/codec.h"

static const struct {
    const char *name;
    int components, h[3], v[3];
} samplings[] = {
    { "4:4:4", 3, { 1, 1, 1 }, { 1, 1, 1 } }, { "4:2:2", 3, { 2, 1, 1 }, { 1, 1, 1 } },
    { "4:2:0", 3, { 2, 1, 1 }, { 2, 1, 1 } }, { "4:4:0", 3, { 1, 1, 1 }, { 2, 1, 1 } },
    { "4:1:1", 3, { 4, 1, 1 }, { 1, 1, 1 } }, { "grey", 1, { 1, 1, 1 }, { 1, 1, 1 } },
    { "4:1:0", 3, { 4, 1, 1 }, { 2, 1, 1 } }, { "mixed", 3, { 2, 1, 2 }, { 2, 2, 1 } },
    { "1x4", 3, { 1, 1, 1 }, { 4, 1, 1 } },   { "2x2 each", 3, { 2, 2, 2 }, { 1, 1, 1 } },
};

enum {
    ENCODE_PROGRESSIVE = 1,
    ENCODE_RGB = 2,
    ENCODE_CMYK = 4,
    ENCODE_ICC = 8,
    ENCODE_COMMENT = 16,
    ENCODE_NOISE = 32,   // large coefficients, long codes
    ENCODE_RESTART = 64, // an odd restart interval
};

#define ICC_BYTES 500u

/* A pixel of a picture with edges, gradients and noise in every channel. */
static inline int picture_sample(int x, int y, int c, int flags)
{
    unsigned n = (unsigned)(x * 7919 + y * 104729 + c * 1299709);

    n = (n ^ n >> 13) * 1274126177u;
    n ^= n >> 16;
    if (flags & ENCODE_NOISE)
        return (int)(n & 255);
    return (128 + (x * (c + 1) / 2) % 97 - (y * (3 - c) / 2) % 83 + ((x / 9 + y / 5 + c) % 3) * 30 +
            (int)(n & 15)) &
           255;
}

/* A JPEG; free() it. */
static inline uint8_t *encode(int w, int h, int sampling, int flags, size_t *len)
{
    struct jpeg_compress_struct c;
    struct fl_codec codec;
    unsigned char *out = NULL;
    unsigned long size = 0;
    const int n = flags & ENCODE_CMYK ? 4 : samplings[sampling].components;
    uint8_t *row = malloc((size_t)w * 4), icc[ICC_BYTES] = "ICC_PROFILE\0\1\1";
    JSAMPROW rows[1] = { row };

    c.err = fl_codec_init(&codec);
    if (setjmp(codec.jump)) {
        fprintf(stderr, "cannot encode: %s\n", codec.message);
        abort();
    }
    jpeg_create_compress(&c);
    jpeg_mem_dest(&c, &out, &size);
    c.image_width = (JDIMENSION)w;
    c.image_height = (JDIMENSION)h;
    c.input_components = n;
    c.in_color_space = n == 1 ? JCS_GRAYSCALE : n == 4 ? JCS_CMYK : JCS_RGB;
    jpeg_set_defaults(&c);
    if (flags & ENCODE_RGB)
        jpeg_set_colorspace(&c, JCS_RGB);
    jpeg_set_quality(&c, flags & ENCODE_NOISE ? 100 : 90, TRUE);
    for (int i = 0; i < n && n < 4; i++) {
        c.comp_info[i].h_samp_factor = samplings[sampling].h[i];
        c.comp_info[i].v_samp_factor = samplings[sampling].v[i];
    }
    if (flags & ENCODE_PROGRESSIVE)
        jpeg_simple_progression(&c);
    if (flags & ENCODE_RESTART)
        c.restart_interval = 5;
    jpeg_start_compress(&c, TRUE);
    if (flags & ENCODE_ICC)
        jpeg_write_marker(&c, JPEG_APP0 + 2, icc, ICC_BYTES);
    if (flags & ENCODE_COMMENT)
        jpeg_write_marker(&c, JPEG_COM, (const JOCTET *)"a comment", 9);
    for (int y = 0; y < h; y++) {
        for (int i = 0; i < w * n; i++)
            row[i] = (uint8_t)picture_sample(i / n, y, i % n, flags);
        jpeg_write_scanlines(&c, rows, 1);
    }
    jpeg_finish_compress(&c);
    jpeg_destroy_compress(&c);
    free(row);
    *len = size;
    return out;
}

struct pixels {
    int w, h, channels;
    long warnings;
    uint8_t *data; // free() it
};

static inline bool decode_as(const uint8_t *jpeg, size_t len, int scale, bool luma,
                             struct pixels *out)
{
    struct jpeg_decompress_struct d;
    struct fl_codec codec;
    uint8_t *volatile data = NULL;

    d.err = fl_codec_init(&codec);
    if (setjmp(codec.jump)) {
        jpeg_destroy_decompress(&d);
        free(data);
        return false;
    }
    jpeg_create_decompress(&d);
    jpeg_mem_src(&d, jpeg, (unsigned long)len);
    jpeg_read_header(&d, TRUE);
    d.scale_num = (unsigned)scale;
    d.scale_denom = 8;
    if (luma)
        d.out_color_space = JCS_GRAYSCALE;
    jpeg_start_decompress(&d);
    out->w = (int)d.output_width;
    out->h = (int)d.output_height;
    out->channels = d.output_components;
    data = malloc((size_t)out->w * (size_t)out->h * (size_t)out->channels);
    while (d.output_scanline < d.output_height) {
        JSAMPROW rows[1] = { data +
                             (size_t)d.output_scanline * (size_t)out->w * (size_t)out->channels };
        jpeg_read_scanlines(&d, rows, 1);
    }
    out->warnings = codec.mgr.num_warnings;
    out->data = data;
    jpeg_destroy_decompress(&d);
    return true;
}

/* The whole file at scale s/8: RGB, or grey for one component. False: the codec gave up. */
static inline bool decode(const uint8_t *jpeg, size_t len, int scale, struct pixels *out)
{
    return decode_as(jpeg, len, scale, false, out);
}

/* Its Y at full size. */
static inline bool decode_luma(const uint8_t *jpeg, size_t len, struct pixels *out)
{
    return decode_as(jpeg, len, 8, true, out);
}

static inline uint8_t *read_file(const char *path, size_t *len)
{
    FILE *f = fopen(path, "rb");
    uint8_t *data = NULL;
    long size;

    if (!f)
        return NULL;
    if (!fseek(f, 0, SEEK_END) && (size = ftell(f)) >= 0 && !fseek(f, 0, SEEK_SET) &&
        (data = malloc((size_t)size + 1)) && fread(data, 1, (size_t)size, f) != (size_t)size) {
        free(data);
        data = NULL;
    }
    *len = data ? (size_t)size : 0;
    fclose(f);
    return data;
}

#endif
