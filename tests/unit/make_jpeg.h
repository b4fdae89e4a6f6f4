/* SPDX-License-Identifier: Apache-2.0 */
/* JPEGs made by libjpeg for the tests, and libjpeg's own full decode of them as the oracle. */
#ifndef FL_TESTS_MAKE_JPEG_H
#define FL_TESTS_MAKE_JPEG_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>

struct mj_spec {
    const char *name;
    int w, h;
    int components; // 1, 3, 4
    int sh, sv;     // sampling factors of the first component (and of the fourth); 0: 1
    int quality;    // 0: 90; -1: so low that tables need 16 bits
    int restart;    // MCUs, 0: none
    bool progressive, arithmetic, optimize;
    bool rgb;        // stored as RGB, three components
    bool ycck;       // four components as YCCK
    bool no_markers; // neither JFIF nor Adobe
    bool separate;   // sequential with one scan per component
};

struct mj_bytes {
    uint8_t *data;
    size_t len;
};

static inline uint32_t mj_noise(uint32_t *s)
{
    *s ^= *s << 13;
    *s ^= *s >> 17;
    *s ^= *s << 5;
    return *s;
}

/* Something like a photo: slopes, edges in colour, and noise. */
static inline void mj_row(const struct mj_spec *spec, int y, uint8_t *row)
{
    uint32_t s = 12345u + (uint32_t)y * 7919u;

    for (int x = 0; x < spec->w; x++)
        for (int c = 0; c < spec->components; c++) {
            const int edge = ((x + 2 * y) / (9 + 4 * c)) % 2 ? 90 : 0;
            const int v = 40 + edge + (x * (2 + c) + y * (3 - c)) % 97 + (int)(mj_noise(&s) % 24);
            row[x * spec->components + c] = (uint8_t)(v > 255 ? 255 : v);
        }
}

static inline void mj_settings(struct jpeg_compress_struct *c, const struct mj_spec *spec)
{
    c->image_width = (JDIMENSION)spec->w;
    c->image_height = (JDIMENSION)spec->h;
    c->input_components = spec->components;
    c->in_color_space = spec->components == 1   ? JCS_GRAYSCALE
                        : spec->components == 3 ? JCS_RGB
                                                : JCS_CMYK;
    jpeg_set_defaults(c);
    if (spec->rgb)
        jpeg_set_colorspace(c, JCS_RGB);
    if (spec->ycck)
        jpeg_set_colorspace(c, JCS_YCCK);
    if (spec->quality < 0)
        jpeg_set_quality(c, 1, FALSE);
    else
        jpeg_set_quality(c, spec->quality ? spec->quality : 90, TRUE);
    c->comp_info[0].h_samp_factor = spec->sh ? spec->sh : 1;
    c->comp_info[0].v_samp_factor = spec->sv ? spec->sv : 1;
    if (spec->components == 4) {
        c->comp_info[3].h_samp_factor = c->comp_info[0].h_samp_factor;
        c->comp_info[3].v_samp_factor = c->comp_info[0].v_samp_factor;
    }
    if (spec->no_markers)
        c->write_JFIF_header = c->write_Adobe_marker = FALSE;
    c->restart_interval = (unsigned)spec->restart;
    c->arith_code = spec->arithmetic;
    c->optimize_coding = spec->optimize;
    if (spec->progressive)
        jpeg_simple_progression(c);
}

static inline void mj_silent(j_common_ptr cinfo, int level)
{
    (void)cinfo;
    (void)level;
}

static inline struct mj_bytes mj_make(const struct mj_spec *spec)
{
    struct jpeg_compress_struct c;
    struct jpeg_error_mgr err;
    unsigned char *out = NULL;
    unsigned long len = 0;
    uint8_t *row = malloc((size_t)spec->w * (size_t)spec->components);
    jpeg_scan_info scans[4] = { { 0 } };

    c.err = jpeg_std_error(&err);
    err.emit_message = mj_silent;
    jpeg_create_compress(&c);
    jpeg_mem_dest(&c, &out, &len);
    mj_settings(&c, spec);
    if (spec->separate) {
        for (int i = 0; i < spec->components; i++)
            scans[i] = (jpeg_scan_info){ 1, { i }, 0, 63, 0, 0 };
        c.scan_info = scans;
        c.num_scans = spec->components;
    }
    jpeg_start_compress(&c, TRUE);
    for (int y = 0; y < spec->h; y++) {
        JSAMPROW rows[1] = { row };
        mj_row(spec, y, row);
        jpeg_write_scanlines(&c, rows, 1);
    }
    jpeg_finish_compress(&c);
    jpeg_destroy_compress(&c);
    free(row);
    return (struct mj_bytes){ out, len };
}

/* The whole picture at scale s/8, as libjpeg gives it. The caller frees. */
static inline uint8_t *mj_decode(struct mj_bytes jpeg, int scale, J_COLOR_SPACE space, int *w,
                                 int *h)
{
    struct jpeg_decompress_struct d;
    struct jpeg_error_mgr err;

    d.err = jpeg_std_error(&err);
    jpeg_create_decompress(&d);
    jpeg_mem_src(&d, jpeg.data, jpeg.len);
    jpeg_read_header(&d, TRUE);
    d.scale_num = (unsigned)scale;
    d.scale_denom = 8;
    d.out_color_space = space;
    d.dct_method = JDCT_ISLOW;
    jpeg_start_decompress(&d);
    const size_t stride = (size_t)d.output_width * (size_t)d.out_color_components;
    uint8_t *pixels = malloc(stride * d.output_height);
    while (d.output_scanline < d.output_height) {
        JSAMPROW rows[1] = { pixels + stride * d.output_scanline };
        jpeg_read_scanlines(&d, rows, 1);
    }
    *w = (int)d.output_width;
    *h = (int)d.output_height;
    jpeg_finish_decompress(&d);
    jpeg_destroy_decompress(&d);
    return pixels;
}

#endif
