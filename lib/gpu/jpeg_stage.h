/* SPDX-License-Identifier: Apache-2.0 */
/* GPU JPEG: what one thread does in each stage, on memory that jpeg_desc.h describes. The kernels
 * call these functions, and so do the host tests, which thereby run the whole decoder without a
 * device. */
#ifndef FL_GPU_JPEG_STAGE_H
#define FL_GPU_JPEG_STAGE_H

#include "gpu/jpeg_arith.h"

/* Zigzag order to natural order. What lies behind place 63, the ends of blocks and what a damaged
 * segment makes, goes to place 63: 128 bytes, of which these are the first. */
#define FL_JPEG_ZIGZAG                                                                             \
    {                                                                                              \
        0, 1, 8, 16, 9, 2, 3, 10, 17, 24, 32, 25, 18, 11, 4, 5, 12, 19, 26, 33, 40, 48, 41, 34,    \
            27, 20, 13, 6, 7, 14, 21, 28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37,  \
            44, 51, 58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63                 \
    }

/* ---- tables ----------------------------------------------------------------------------------- */

/* Entry `i` of the first lookup of table t. limit and first are in place. */
FL_HD uint32_t fl_stage_fast(const struct fl_jpeg_lut *lut, uint32_t t, uint32_t i)
{
    return fl_huff_find(lut->limit, lut->first, lut->vals, i << (16 - FL_JPEG_LOOK), 1,
                        FL_JPEG_LOOK, t < 2);
}

/* Entry of the code at the front of win, if it is longer than the first lookup; 0: none is. */
FL_HD uint32_t fl_stage_long(const struct fl_jpeg_lut *lut, uint32_t dc, uint32_t win)
{
    return fl_huff_find(lut->limit, lut->first, lut->vals, win >> 16, FL_JPEG_LOOK + 1, 16, dc);
}

/* The source of table t of a picture: 0, 1: DC; 2, 3: AC. */
FL_HD const struct fl_jpeg_huff *fl_stage_huff(const struct fl_jpeg_tables *tables, uint32_t t)
{
    return t < 2 ? &tables->dc[t] : &tables->ac[t - 2];
}

/* ---- segments --------------------------------------------------------------------------------- */

/* Is byte x, after a 0xFF, a restart marker? */
FL_HD uint32_t fl_is_rst(uint32_t x)
{
    return (x & 0xf8) == 0xd0;
}

/* Record of wanted segment i, from the places of the markers. Returns flags. */
FL_HD uint32_t fl_stage_segment(const struct fl_jpeg_pic *p, const uint32_t *marks, uint32_t found,
                                uint32_t i, struct fl_jpeg_segment *s)
{
    const uint32_t row = i / p->row_take, col = i % p->row_take;
    const uint32_t j = p->skip + row * p->row_step + col;
    uint32_t start = 0, end = 0, bad = 0;

    if (j > found) {
        bad = FL_JPEG_BAD_MARKER;
    } else {
        start = j ? marks[j - 1] + 2 : 0;
        end = j < found ? marks[j] : p->length;
    }
    if (start > end || end > p->length) {
        bad |= FL_JPEG_BAD_LAYOUT;
        start = end = 0;
    }
    s->offset = start;
    s->length = end - start;
    s->mcu = row * p->row_mcus + col * p->interval;
    s->mcus = (uint16_t)p->interval;
    s->bit = 0;
    s->pred[0] = s->pred[1] = s->pred[2] = 0;
    s->end_bit = 0;
    return bad;
}

/* A record that came from the host, made safe. Returns flags. */
FL_HD uint32_t fl_stage_entry(const struct fl_jpeg_pic *p, struct fl_jpeg_segment *s)
{
    if (s->offset <= p->length && s->length <= p->length - s->offset && s->mcu < p->mcus &&
        s->mcus <= p->mcus - s->mcu && s->bit < 8)
        return 0;
    s->offset = s->length = s->mcu = 0;
    s->mcus = 0;
    s->bit = 0;
    return FL_JPEG_BAD_LAYOUT;
}

/* Sorting key: like lengths together, long ones first. */
#define FL_JPEG_BUCKETS 128
FL_HD uint32_t fl_stage_bucket(uint32_t length)
{
    const uint32_t b = length / 16;

    return FL_JPEG_BUCKETS - 1 - (b < FL_JPEG_BUCKETS ? b : FL_JPEG_BUCKETS - 1);
}

/* Component | DC table << 8 | AC table << 16 of block b of an MCU. */
FL_HD uint32_t fl_stage_info(const struct fl_jpeg_pic *p, uint32_t b)
{
    const uint32_t c = p->block_comp >> (2 * b) & 3;

    return c | (uint32_t)p->comp[c].dc << 8 | (uint32_t)p->comp[c].ac << 16;
}

/* ---- blocks ----------------------------------------------------------------------------------- */

/* Transform block j of a component, counted along the rows of those that are wanted. */
FL_HD void fl_stage_idct(const struct fl_jpeg_pic *p, uint32_t ci, uint32_t j, const int16_t *coefs,
                         const struct fl_jpeg_tables *tables, uint8_t *planes)
{
    const struct fl_jpeg_comp *const c = &p->comp[ci];
    const uint32_t x = j % c->bw, y = j / c->bw;
    const uint32_t bx = c->bx + x, by = c->by + y;
    const uint32_t mcu = by / c->v * p->row_mcus + bx / c->h;
    const uint32_t block = c->first + by % c->v * c->h + bx % c->h;
    const int16_t *const coef =
        coefs + ((uint64_t)p->coef + (uint64_t)mcu * p->blocks + block) * 64;
    const uint16_t *const quant = tables->quant[ci];
    uint8_t *const out =
        planes + (uint64_t)c->plane * 16 + (uint64_t)y * c->size * c->pitch + (uint64_t)x * c->size;

    if (c->size == 8)
        fl_idct8(coef, quant, out, c->pitch);
    else if (c->size == 4)
        fl_idct4(coef, quant, out, c->pitch);
    else if (c->size == 2)
        fl_idct2(coef, quant, out, c->pitch);
    else
        fl_idct1(coef, quant, out);
}

/* ---- pixels ----------------------------------------------------------------------------------- */

/* A pixel between the two passes: 16 bits each of R, G; B. */
struct fl_between_passes {
    uint32_t rg, b;
};

/* Vertical pass: the pixels of a column, `stride` apart; weights `step` apart. */
FL_HD struct fl_between_passes fl_stage_vertical(const uint32_t *rgb, uint32_t stride,
                                                 const int16_t *w, int32_t step, int32_t taps,
                                                 int32_t bits)
{
    const int32_t half = 1 << (bits - 8), shift = bits - 7;
    int32_t r = half, g = half, b = half;
    struct fl_between_passes t;

    for (int32_t k = 0; k < taps; k++) {
        const uint32_t v = rgb[(uint32_t)k * stride];
        const int32_t wk = w[k * step];
        r += wk * (int32_t)(v & 255);
        g += wk * (int32_t)(v >> 8 & 255);
        b += wk * (int32_t)(v >> 16 & 255);
    }
    t.rg = (uint32_t)(r >> shift) | (uint32_t)(g >> shift) << 16;
    t.b = (uint32_t)(b >> shift);
    return t;
}

/* Horizontal pass: R | G << 8 | B << 16. */
FL_HD uint32_t fl_stage_horizontal(const struct fl_between_passes *t, const int16_t *w,
                                   int32_t step, int32_t taps, int32_t bits)
{
    const int32_t half = 1 << (bits + 6), shift = bits + 7;
    int32_t r = half, g = half, b = half;

    for (int32_t k = 0; k < taps; k++) {
        const struct fl_between_passes v = t[k];
        const int32_t wk = w[k * step];
        r += wk * (int32_t)(v.rg & 0xffff);
        g += wk * (int32_t)(v.rg >> 16);
        b += wk * (int32_t)v.b;
    }
    return (uint32_t)(r >> shift) | (uint32_t)(g >> shift) << 8 | (uint32_t)(b >> shift) << 16;
}

#endif
