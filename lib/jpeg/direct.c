/* SPDX-License-Identifier: Apache-2.0 */
/* MCU rows to rows of pixels. */
#include "jpeg/direct_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"

struct fl_direct *fl_direct_new(size_t reserve, size_t max_memory, enum fl_cpu most)
{
    struct fl_direct *d = aligned_alloc(64, (sizeof(*d) + 63) / 64 * 64);

    if (!d)
        return NULL;
    memset(d, 0, sizeof(*d));
    d->ops = fl_pixel_ops_get(most);
    d->max_memory = max_memory;
    if (reserve && fl_slice_memory_reserve(&d->memory, reserve)) {
        free(d);
        return NULL;
    }
    return d;
}

bool fl_direct_is_fast(void)
{
    return fl_pixel_ops_get(FL_CPU_BEST) != &fl_pixel_ops_c;
}

void fl_direct_free(struct fl_direct *d)
{
    if (!d)
        return;
    free(d->memory.data);
    free(d);
}

size_t fl_direct_bytes(const struct fl_direct *d)
{
    return sizeof(*d) + d->memory.cap;
}

int fl_direct_width(const struct fl_direct *d)
{
    return (int)(d->x1 - d->x0);
}

int fl_direct_height(const struct fl_direct *d)
{
    return (int)(d->y1 - d->y0);
}

/* ---- the view ------------------------------------------------------------------------------------- */

static uint32_t ceil_div(uint64_t a, uint64_t b)
{
    return (uint32_t)((a + b - 1) / b);
}

static bool set_view(struct fl_direct *d, const struct fl_direct_view *v)
{
    const struct fl_frame *f = &d->frame;
    const struct fl_rect b = v->box;
    const uint32_t s = (uint32_t)v->scale, mw = 8u * f->h_max, mh = 8u * f->v_max;
    struct fl_rect need;

    if ((s != 8 && s != 4 && s != 2 && s != 1) || (v->channels != 1 && v->channels != 3) ||
        b.x < 0 || b.y < 0 || b.w < 1 || b.h < 1 || (uint64_t)b.x + (uint64_t)b.w > f->width ||
        (uint64_t)b.y + (uint64_t)b.h > f->height)
        return false;
    d->scale = v->scale;
    d->channels = v->channels;
    d->x0 = (uint32_t)b.x * s / 8;
    d->y0 = (uint32_t)b.y * s / 8;
    d->x1 = ceil_div((uint64_t)(b.x + b.w) * s, 8);
    d->y1 = ceil_div((uint64_t)(b.y + b.h) * s, 8);
    need = fl_upsampling_reach(f, b, s);
    d->mx0 = (uint32_t)need.x / mw;
    d->my0 = (uint32_t)need.y / mh;
    d->mx1 = ceil_div((uint64_t)(need.x + need.w), mw);
    d->my1 = ceil_div((uint64_t)(need.y + need.h), mh);
    d->y = d->y0;
    d->row = d->my0;
    return true;
}

/* Fills the planes but for their memory; returns its size, 0 where no decoder has such sampling. */
static size_t lay_out(struct fl_direct *d, size_t bits_room)
{
    const struct fl_frame *f = &d->frame;
    const size_t width = d->x1 - d->x0 + 2 * FL_PIXEL_PAD;
    size_t total = bits_room + 64 + 7 * (width + 64);

    for (int c = 0; c < f->n_components; c++) {
        struct fl_plane *p = &d->planes[c];
        p->up = fl_upsampling_of(f, c, (uint32_t)d->scale);
        if (!p->up.whole)
            return 0;
        p->side = (uint32_t)__builtin_ctz(p->up.block);
        p->wanted = c == 0 || d->channels == 3 || d->colour == FL_JPEG_RGB;
        p->dw = ceil_div((uint64_t)f->width * f->h[c] * p->up.block, 8u * f->h_max);
        p->dh = ceil_div((uint64_t)f->height * f->v[c] * p->up.block, 8u * f->v_max);
        p->x0 = d->mx0 * f->h[c] * p->up.block;
        p->rows = f->v[c] * p->up.block;
        p->ring = 2 * d->ahead * p->rows;
        p->stride =
            ((size_t)(d->mx1 - d->mx0) * f->h[c] * p->up.block + 2 * FL_PIXEL_PAD + 63) / 64 * 64;
        total += p->stride * p->ring + 64;
    }
    return total;
}

static uint8_t *carve(uint8_t **at, size_t size)
{
    uint8_t *p = (uint8_t *)(((uintptr_t)*at + 63) & ~(uintptr_t)63);

    *at = p + size;
    return p;
}

int fl_direct_view(struct fl_direct *d, const struct fl_direct_view *view, uint32_t ahead,
                   size_t bits_room, FlError *err)
{
    uint8_t *at;
    size_t size, width;

    if (!set_view(d, view))
        return fl_err_set(err, FL_ERR(EINVAL), FL_STAGE_DECODE,
                          "a box of %dx%d at %d,%d at scale %d/8 of a picture of %ux%u",
                          view->box.w, view->box.h, view->box.x, view->box.y, view->scale,
                          d->frame.width, d->frame.height);
    d->ahead = ahead;
    size = lay_out(d, bits_room);
    if (!size)
        return fl_err_set(err, FL_ERR(ENOTSUP), FL_STAGE_DECODE,
                          "unsupported: sampling factors that do not divide each other");
    if (d->max_memory && size > d->max_memory)
        return fl_err_set(err, FL_ERR(E2BIG), FL_STAGE_DECODE,
                          "a picture needs %zu bytes to decode, the limit is %zu", size,
                          d->max_memory);
    if (fl_slice_memory_reserve(&d->memory, size))
        return fl_err_set(err, FL_ERR(ENOMEM), FL_STAGE_DECODE, "no memory to decode a picture");
    at = d->memory.data;
    width = d->x1 - d->x0 + 2 * FL_PIXEL_PAD;
    for (int c = 0; c < d->frame.n_components; c++) {
        d->planes[c].plane = carve(&at, d->planes[c].stride * d->planes[c].ring) + FL_PIXEL_PAD;
        d->up[c] = carve(&at, width) + FL_PIXEL_PAD;
    }
    d->sums = (int16_t *)(void *)carve(&at, 2 * width) + FL_PIXEL_PAD / 2;
    d->bits = carve(&at, bits_room);
    d->bits_room = bits_room;
    return 0;
}

/* ---- MCUs into planes ----------------------------------------------------------------------------- */

static inline void flat(uint8_t *out, size_t stride, uint32_t block, int v)
{
    const uint8_t sample = (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);

    for (uint32_t y = 0; y < block; y++, out += stride)
        memset(out, sample, block);
}

static inline void flat8(uint8_t *out, size_t stride, int v)
{
    const uint64_t samples = (uint64_t)(v < 0 ? 0 : v > 255 ? 255 : v) * 0x0101010101010101u;

    for (int y = 0; y < 8; y++, out += stride)
        memcpy(out, &samples, 8);
}

/* One block's samples: block k of MCU i of those that are kept, in MCU row `row`. */
static inline void put_block(struct fl_direct *d, const int16_t *block, bool more, uint32_t row,
                             uint32_t i, unsigned k)
{
    const unsigned c = d->mcu.component[k];
    const struct fl_plane *p = &d->planes[c];
    uint8_t *out = p->plane +
                   (row % (2 * d->ahead) * p->rows + d->place_y[k] * p->up.block) * p->stride +
                   ((size_t)i * d->frame.h[c] + d->place_x[k]) * p->up.block;

    if (more) {
        d->ops->idct[p->side](block, d->quant[c], out, (ptrdiff_t)p->stride);
        return;
    }
    const int v = (int16_t)((uint16_t)block[0] * (uint32_t)(uint16_t)d->quant[c][0]);
    if (p->side == 3)
        flat8(out, p->stride, ((v + 4) >> 3) + 128);
    else
        flat(out, p->stride, p->up.block, ((v + 4) >> 3) + 128);
}

bool fl_direct_mcus(struct fl_direct *d, struct fl_bit_reader *b, uint32_t x, uint32_t n, int dc[4])
{
    for (uint32_t i = x - d->mx0; n; n--, i++)
        for (unsigned k = 0; k < d->mcu.n_blocks; k++) {
            const unsigned c = d->mcu.component[k];
            if (fl_reader_overrun(b))
                return false;
            if (!d->planes[c].wanted) {
                fl_skip_block(b, d->mcu.dc[k], d->mcu.ac[k], &dc[c]);
                continue;
            }
            const bool more = fl_decode_block(b, d->mcu.dc[k], d->mcu.ac[k], &dc[c], d->block[0]);
            put_block(d, d->block[0], more, d->row, i, k);
        }
    return !b->failed && !fl_reader_overrun(b);
}

bool fl_direct_two_rows(struct fl_direct *d, struct fl_bit_reader b[2], uint32_t x, uint32_t n,
                        int dc[2][4])
{
    struct fl_bit_reader *const both[2] = { &b[0], &b[1] };

    for (uint32_t i = x - d->mx0; n; n--, i++)
        for (unsigned k = 0; k < d->mcu.n_blocks; k++) {
            const unsigned c = d->mcu.component[k];
            int *const predictors[2] = { &dc[0][c], &dc[1][c] };
            if (fl_reader_overrun(&b[0]) || fl_reader_overrun(&b[1]))
                return false;
            if (!d->planes[c].wanted) {
                for (int r = 0; r < 2; r++)
                    fl_skip_block(&b[r], d->mcu.dc[k], d->mcu.ac[k], predictors[r]);
                continue;
            }
            const unsigned more =
                fl_decode_blocks(both, d->mcu.dc[k], d->mcu.ac[k], predictors, d->block);
            put_block(d, d->block[0], more & 1, d->row, i, k);
            put_block(d, d->block[1], more & 2, d->row + 1, i, k);
        }
    return !b[0].failed && !b[1].failed && !fl_reader_overrun(&b[0]) && !fl_reader_overrun(&b[1]);
}

/* ---- planes to pixels ----------------------------------------------------------------------------- */

static uint8_t *plane_row(const struct fl_plane *p, uint32_t r)
{
    return p->plane + (r % p->ring) * p->stride;
}

/* Sample row that is mixed into row r for output row y, inside the picture. */
static uint32_t far_row(const struct fl_plane *p, uint32_t r, uint32_t y)
{
    if (y & 1)
        return r + 1 < p->dh ? r + 1 : r;
    return r ? r - 1 : 0;
}

/* MCU row that must have been decoded before output row y can be made. */
static uint32_t last_mcu_row(const struct fl_direct *d, uint32_t y)
{
    uint32_t last = 0;

    for (int c = 0; c < d->frame.n_components; c++) {
        const struct fl_plane *p = &d->planes[c];
        uint32_t r = y / p->up.v;
        if (!p->wanted)
            continue;
        if (p->up.fancy && p->up.v == 2 && (y & 1) && r + 1 < p->dh)
            r++;
        if (r / p->rows > last)
            last = r / p->rows;
    }
    return last;
}

/* Beyond the picture's first and last columns stand these again. t[0] is sample column c0. */
#define EXTEND(t, p, c0, n)                                                                        \
    do {                                                                                           \
        if ((c0) == 0)                                                                             \
            (t)[-1] = (t)[0];                                                                      \
        if ((c0) + (n) >= (p)->dw)                                                                 \
            (t)[(p)->dw - (c0)] = (t)[(p)->dw - 1 - (c0)];                                         \
    } while (0)

/* Samples of one component for columns x0 to x1 of row y, as wide as the picture. */
static const uint8_t *full_row(struct fl_direct *d, int c, uint32_t y)
{
    struct fl_plane *p = &d->planes[c];
    const uint32_t r = y / p->up.v, c0 = d->x0 / p->up.h, n = (d->x1 - 1) / p->up.h + 1 - c0;
    uint8_t *near = plane_row(p, r) + (c0 - p->x0);
    const bool fancy = p->up.fancy && (p->up.h == 1 || p->dw > 2);

    if (p->up.h == 1 && (p->up.v == 1 || !fancy))
        return near;
    if (fancy && p->up.v == 1) {
        EXTEND(near, p, c0, n);
        d->ops->h2v1(near, d->up[c], (int)n);
        return d->up[c] + (d->x0 & 1);
    }
    if (!fancy) {
        for (uint32_t x = d->x0; x < d->x1; x++)
            d->up[c][x - d->x0] = near[x / p->up.h - c0];
        return d->up[c];
    }
    const uint8_t *far = plane_row(p, far_row(p, r, y)) + (c0 - p->x0);
    if (p->up.h == 1) {
        const int bias = 1 + (int)(y & 1);
        for (uint32_t i = 0; i < n; i++)
            d->up[c][i] = (uint8_t)((3 * near[i] + far[i] + bias) >> 2);
        return d->up[c];
    }
    for (int i = -1; i <= (int)n; i++)
        d->sums[i] = (int16_t)(3 * near[i] + far[i]);
    EXTEND(d->sums, p, c0, n);
    d->ops->h2v2(d->sums, d->up[c], (int)n);
    return d->up[c] + (d->x0 & 1);
}

static void emit(struct fl_direct *d, uint32_t y, uint8_t *out)
{
    const int n = (int)(d->x1 - d->x0);
    const uint8_t *s[3] = { full_row(d, 0, y), NULL, NULL };
    const bool luma = d->channels == 1;

    if (luma && d->colour != FL_JPEG_RGB) {
        memcpy(out, s[0], (size_t)n);
        return;
    }
    if (d->frame.n_components == 1) {
        for (int i = 0; i < n; i++)
            out[3 * i] = out[3 * i + 1] = out[3 * i + 2] = s[0][i];
        return;
    }
    s[1] = full_row(d, 1, y);
    s[2] = full_row(d, 2, y);
    if (d->colour == FL_JPEG_YCBCR) {
        d->ops->ycc_rgb(s[0], s[1], s[2], out, n);
        return;
    }
    for (int i = 0; i < n && luma; i++)
        out[i] = (uint8_t)((19595 * s[0][i] + 38470 * s[1][i] + 7471 * s[2][i] + 32768) >> 16);
    for (int i = 0; i < n && !luma; i++)
        for (int c = 0; c < 3; c++)
            out[3 * i + c] = s[c][i];
}

int fl_direct_row(struct fl_direct *d, uint8_t *row, FlError *err)
{
    if (d->y >= d->y1)
        return fl_err_set(err, FL_ERR(EINVAL), FL_STAGE_DECODE, "row %u of a view of %u rows",
                          d->y - d->y0, d->y1 - d->y0);
    while (d->row <= last_mcu_row(d, d->y)) {
        const int code = d->source(d, err);
        if (code)
            return code;
    }
    emit(d, d->y++, row);
    return 0;
}
