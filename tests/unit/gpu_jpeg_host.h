/* SPDX-License-Identifier: Apache-2.0 */
/* The GPU decoder without a GPU: a plan is carried out by the functions that the kernels call, one
 * "thread" after the other. Memory is malloced to the byte, so that sanitizers see every slip. */
#ifndef FL_TESTS_GPU_JPEG_HOST_H
#define FL_TESTS_GPU_JPEG_HOST_H

#include <stdlib.h>
#include <string.h>

#include "gpu/jpeg.h"
#include "gpu/jpeg_stage.h"

static inline void *host_alloc(size_t n)
{
    void *const p = aligned_alloc(64, (n + 64 + 63) / 64 * 64);

    if (!p)
        abort();
    memset(p, 0xa5, n + 64);
    return p;
}

static inline struct fl_jpeg_plan *host_plan(struct fl_gpu_jpeg_room room, int32_t width,
                                             int32_t height, bool luma)
{
    struct fl_jpeg_plan *const plan = host_alloc(sizeof(*plan));

    memset(plan, 0, sizeof(*plan));
    plan->room = room;
    plan->width = width;
    plan->height = height;
    plan->luma = luma;
    plan->tile_bytes = FL_GPU_JPEG_TILE_BYTES;
    plan->pics = host_alloc(room.pics * sizeof(*plan->pics));
    plan->tables = host_alloc(room.pics * sizeof(*plan->tables));
    plan->entries = host_alloc(room.segments * sizeof(*plan->entries));
    for (int i = 0; i < 3; i++)
        plan->items[i] = host_alloc(room.items[i] * sizeof(*plan->items[i]));
    plan->groups = host_alloc(room.items[0] * sizeof(*plan->groups));
    fl_jpeg_plan_clear(plan);
    return plan;
}

static inline void host_plan_free(struct fl_jpeg_plan *plan)
{
    free(plan->pics);
    free(plan->tables);
    free(plan->entries);
    for (int i = 0; i < 3; i++)
        free(plan->items[i]);
    free(plan->groups);
    free(plan);
}

/* Find the picture's markers. Returns how many of the first n_marks there are. */
static inline uint32_t host_marks(const struct fl_jpeg_pic *p, const uint8_t *bytes,
                                  uint32_t *marks, uint32_t *flags)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i + 1 < p->length && n < p->n_marks; i++)
        if (bytes[i] == 0xff && fl_is_rst(bytes[i + 1])) {
            if ((bytes[i + 1] & 7) != ((p->phase + n) & 7))
                *flags |= FL_JPEG_BAD_MARKER;
            marks[n++] = i;
        }
    return n;
}

static inline void host_lut(struct fl_jpeg_lut *lut, uint32_t t, const struct fl_jpeg_huff *h)
{
    fl_huff_limits(h, lut->limit, lut->first);
    memcpy(lut->vals, h->vals, sizeof(lut->vals));
    for (uint32_t i = 0; i < 1u << FL_JPEG_LOOK; i++)
        lut->fast[i] = (uint16_t)fl_stage_fast(lut, t, i);
}

static inline uint32_t host_word(const uint8_t *p, uint32_t at, uint32_t end)
{
    uint32_t w = 0;

    for (uint32_t i = 0; i < 4; i++)
        w = w << 8 | (at + i < end ? p[at + i] : 0);
    return w;
}

/* The bytes of a segment as clean words. */
struct host_source {
    const uint8_t *bytes;
    uint32_t at, end, skip, taken;
    struct fl_feed feed;
};

static inline uint32_t host_next(struct host_source *s)
{
    uint32_t out = 0;

    s->taken++;
    while (s->feed.left > 0) {
        const uint32_t w = host_word(s->bytes, s->at, s->end) << (8 * s->skip);
        const int32_t have = 4 - (int32_t)s->skip;
        s->at += 4;
        s->skip = 0;
        if (fl_feed_word(&s->feed, w, have, &out))
            return out;
    }
    out = s->feed.acc; // what is left, once; then zeros
    s->feed.acc = 0;
    return out;
}

/* The DC coefficients are differences until now. */
static inline void host_dc(const struct fl_jpeg_pic *p, const struct fl_jpeg_segment *s,
                           int16_t *out)
{
    int32_t pred[3] = { s->pred[0], s->pred[1], s->pred[2] };

    for (uint32_t i = 0; i < s->mcus * p->blocks; i++, out += 64) {
        int32_t *const dc = &pred[fl_stage_info(p, i % p->blocks) & 3];
        *dc = fl_add(*dc, out[0]);
        out[0] = (int16_t)*dc;
    }
}

static inline uint32_t host_segment(const struct fl_jpeg_pic *p, const struct fl_jpeg_segment *s,
                                    const uint8_t *bytes, const struct fl_jpeg_lut *luts,
                                    int16_t *coefs)
{
    static const uint8_t zigzag[64] = FL_JPEG_ZIGZAG;
    struct host_source src = { .bytes = bytes,
                               .at = s->offset & ~3u,
                               .end = s->offset + s->length,
                               .skip = s->offset & 3,
                               .feed = { .left = (int32_t)s->length } };
    struct fl_walk w = { .left = s->mcus * p->blocks, .p = s->bit };
    int16_t *const first = coefs + ((uint64_t)p->coef + (uint64_t)s->mcu * p->blocks) * 64;
    int16_t *out = first;
    uint32_t block = 0, place;

    w.w0 = host_next(&src);
    w.w1 = host_next(&src);
    w.w2 = host_next(&src);
    while (w.left) {
        const uint32_t info = fl_stage_info(p, block), win = fl_window(w.w0, w.w1, w.p);
        const uint32_t t = w.k ? info >> 16 : info >> 8 & 255;
        uint32_t e = luts[t].fast[win >> (32 - FL_JPEG_LOOK)];
        if (!e && !(e = fl_stage_long(&luts[t], t < 2, win)))
            return FL_JPEG_BAD_CODE | src.feed.bad;
        const int32_t v = fl_walk_symbol(&w, win, e, &place);
        out[place < 64 ? zigzag[place] : 63] = (int16_t)v;
        if (fl_walk_advance(&w))
            w.w2 = host_next(&src);
        if (w.k > 63) {
            w.k = 0;
            w.left--;
            out += 64;
            block = block + 1 == p->blocks ? 0 : block + 1;
        }
    }
    host_dc(p, s, first);
    return fl_walk_end(&w, &src.feed, src.taken, s->end_bit);
}

/* Huffman stage of a picture: coefficients of its slice. */
static inline uint32_t host_entropy(const struct fl_jpeg_plan *plan, const struct fl_jpeg_pic *p,
                                    int16_t *coefs)
{
    const uint8_t *const bytes = (const uint8_t *)(uintptr_t)p->src;
    uint32_t *const marks = host_alloc(p->n_marks * sizeof(*marks));
    struct fl_jpeg_lut *const luts = host_alloc(4 * sizeof(*luts));
    uint32_t flags = 0;
    const uint32_t found = p->entries ? 0 : host_marks(p, bytes, marks, &flags);

    for (uint32_t t = 0; t < 4; t++)
        host_lut(&luts[t], t, fl_stage_huff(&plan->tables[p->tables], t));
    for (uint32_t i = 0; i < p->n_segments; i++) {
        struct fl_jpeg_segment s;
        if (p->entries) {
            s = plan->entries[p->entries - 1 + i];
            flags |= fl_stage_entry(p, &s);
        } else {
            flags |= fl_stage_segment(p, marks, found, i, &s);
        }
        flags |= host_segment(p, &s, bytes, luts, coefs);
    }
    free(marks);
    free(luts);
    return flags;
}

/* One tile of the output. out: {height, width, 3 or 1} bytes. */
static inline void host_tile(const struct fl_jpeg_plan *plan, const struct fl_jpeg_pic *p,
                             uint32_t tile, const uint8_t *planes, const uint8_t *axis,
                             uint8_t *out)
{
    const int32_t *const xs = (const int32_t *)axis + p->x.starts;
    const int32_t *const ys = (const int32_t *)axis + p->y.starts;
    const int16_t *const xw = (const int16_t *)axis + p->x.weights;
    const int16_t *const yw = (const int16_t *)axis + p->y.weights;
    const int32_t x0 = (int32_t)(tile % p->tiles_x * p->tile_w);
    const int32_t y0 = (int32_t)(tile / p->tiles_x * p->tile_h);
    const int32_t x1 = x0 + (int32_t)p->tile_w < p->x.n ? x0 + (int32_t)p->tile_w : p->x.n;
    const int32_t y1 = y0 + (int32_t)p->tile_h < p->y.n ? y0 + (int32_t)p->tile_h : p->y.n;
    const int32_t left = xs[x0], top = ys[y0];
    const int32_t right = fl_between(xs[x1 - 1] + p->x.taps, left, p->x.hi);
    const int32_t bottom = fl_between(ys[y1 - 1] + p->y.taps, top, p->y.hi);
    const uint32_t cols = (uint32_t)(right - left), rows = (uint32_t)(bottom - top);
    const int step = plan->luma ? 1 : 3;
    uint32_t *const rgb = host_alloc(4 * (size_t)p->rows_max * p->cols_max);
    struct fl_between_passes *const t = host_alloc(p->cols_max * sizeof(*t));

    if (cols > p->cols_max || rows > p->rows_max)
        abort();
    for (uint32_t y = 0; y < rows; y++)
        for (uint32_t x = 0; x < cols; x++)
            rgb[y * cols + x] = fl_jpeg_pixel(p, planes, left + (int32_t)x, top + (int32_t)y);
    for (int32_t y = y0; y < y1; y++) {
        const int32_t ny = fl_between(p->y.taps, 0, p->y.hi - ys[y]);
        for (uint32_t x = 0; x < cols; x++)
            t[x] = fl_stage_vertical(rgb + (uint32_t)(ys[y] - top) * cols + x, cols, yw + y, p->y.n,
                                     ny, p->y.bits);
        for (int32_t x = x0; x < x1; x++) {
            const int32_t nx = fl_between(p->x.taps, 0, p->x.hi - xs[x]);
            const uint32_t o =
                fl_stage_horizontal(t + (xs[x] - left), xw + x, p->x.n, nx, p->x.bits);
            for (int c = 0; c < step; c++)
                out[(p->o + x * p->ox + y * p->oy) * step + c] = (uint8_t)(o >> 8 * c);
        }
    }
    free(rgb);
    free(t);
}

/* Decode picture `number` of the plan to out, and return its flag word. */
static inline uint32_t host_decode(const struct fl_jpeg_plan *plan, uint32_t number, uint8_t *out)
{
    struct fl_jpeg_pic p = plan->pics[number];
    const size_t blocks = (size_t)p.mcus * p.blocks;
    int16_t *const coefs = host_alloc(blocks * 128);
    uint8_t *const planes = host_alloc((size_t)plan->used.planes * 16);
    uint8_t *const axis = host_alloc(plan->used.axis);

    memset(coefs, 0, blocks * 128);
    p.coef = 0;
    const uint32_t flags = host_entropy(plan, &p, coefs);
    for (uint32_t c = 0; c < p.n_comp; c++)
        for (uint32_t j = 0; j < p.comp[c].bw * p.comp[c].bh; j++)
            fl_stage_idct(&p, c, j, coefs, &plan->tables[p.tables], planes);
    for (int32_t i = 0; i < p.x.n; i++)
        ((int32_t *)axis)[p.x.starts + (uint32_t)i] =
            fl_jpeg_weights(&p.x, i, (int16_t *)axis + p.x.weights + i, p.x.n);
    for (int32_t i = 0; i < p.y.n; i++)
        ((int32_t *)axis)[p.y.starts + (uint32_t)i] =
            fl_jpeg_weights(&p.y, i, (int16_t *)axis + p.y.weights + i, p.y.n);
    for (uint32_t i = 0; i < p.tiles; i++)
        host_tile(plan, &p, i, planes, axis, out);
    free(coefs);
    free(planes);
    free(axis);
    return flags;
}

#endif
