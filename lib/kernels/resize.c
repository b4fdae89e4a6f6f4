/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/resize.h"

#include <string.h>

int fl_resize_scale(int32_t w, int32_t h, int32_t rw, int32_t rh, int exact)
{
    for (int s = exact ? 8 : 1; s < 8; s *= 2)
        if ((int64_t)w * s >= (int64_t)rw * 8 && (int64_t)h * s >= (int64_t)rh * 8)
            return s;
    return 8;
}

/* The integers of the definition in resize.h. */
struct geometry {
    int64_t m2;          // 2 max(n8, 8R)
    int64_t unit;        // 16R: what one decoded pixel is worth
    int64_t offset;      // raw(p) = m2 - |unit p + offset - step X|
    int64_t step;        // 2 n8
    int32_t first, last; // decoded pixels that touch the box, [first, last)
};

static struct geometry geometry_of(const struct fl_axis_spec *spec)
{
    const int64_t b8 = (int64_t)spec->box * spec->scale, n8 = (int64_t)spec->size * spec->scale;
    const int64_t r = spec->resized;

    return (struct geometry){
        .m2 = 2 * (n8 > 8 * r ? n8 : 8 * r),
        .unit = 16 * r,
        .offset = 8 * r - 2 * r * b8 - n8,
        .step = 2 * n8,
        .first = (int32_t)(b8 / 8),
        .last = (int32_t)((b8 + n8 + 7) / 8),
    };
}

static int64_t floor_div(int64_t a, int64_t b)
{
    return a / b - (a % b < 0);
}

/* First p with raw(p) > 0 for output x. */
static int32_t first_tap(const struct geometry *g, int64_t x)
{
    const int64_t p = floor_div(g->step * x - g->offset - g->m2, g->unit) + 1;
    return p > g->first ? (int32_t)p : g->first;
}

/* One past the last p with raw(p) > 0. */
static int32_t end_tap(const struct geometry *g, int64_t x)
{
    const int64_t p = -floor_div(-(g->step * x - g->offset + g->m2), g->unit);
    return p < g->last ? (int32_t)p : g->last;
}

void fl_axis_reach(const struct fl_axis_spec *spec, int32_t *lo, int32_t *hi)
{
    const struct geometry g = geometry_of(spec);

    *lo = first_tap(&g, spec->first);
    *hi = end_tap(&g, (int64_t)spec->first + spec->n - 1);
}

static void reach(int32_t box, int32_t size, int scale, int32_t resized, int32_t first, int32_t n,
                  int32_t *at, int32_t *length)
{
    const struct fl_axis_spec spec = { box, size, scale, resized, first, n };
    int32_t lo, hi;

    fl_axis_reach(&spec, &lo, &hi);
    // Decoded pixels that stick out of the box still begin or end with it.
    const int32_t begin = lo * (8 / scale) > box ? lo * (8 / scale) : box;
    const int32_t end = hi * (8 / scale) < box + size ? hi * (8 / scale) : box + size;
    *at = begin;
    *length = end - begin;
}

struct fl_rect fl_resize_reach(const struct fl_crop *crop, int scale)
{
    struct fl_rect r;

    reach(crop->box.x, crop->box.w, scale, crop->rw, crop->window.x, crop->window.w, &r.x, &r.w);
    reach(crop->box.y, crop->box.h, scale, crop->rh, crop->window.y, crop->window.h, &r.y, &r.h);
    return r;
}

/* Weights kept for each output pixel: an open interval of 2 m2 holds at most ceil(2 m2 / unit) multiples of
 * unit, and none outside [lo, hi) counts. */
static int32_t taps_of(const struct geometry *g, int32_t lo, int32_t hi)
{
    const int64_t most = (2 * g->m2 + g->unit - 1) / g->unit, all = hi - lo;
    const int32_t taps = (int32_t)(most < all ? most : all);
    return (taps + 1) & ~1;
}

static size_t round64(size_t n)
{
    return (n + 63) & ~(size_t)63;
}

size_t fl_axis_bytes(const struct fl_axis_spec *spec)
{
    const struct geometry g = geometry_of(spec);
    const size_t n = (size_t)spec->n;
    int32_t lo, hi;

    fl_axis_reach(spec, &lo, &hi);
    return round64(n * sizeof(int32_t)) +
           round64(n * (size_t)taps_of(&g, lo, hi) * sizeof(int16_t));
}

static int bits_of(const struct fl_axis_spec *spec)
{
    const int64_t n8 = (int64_t)spec->size * spec->scale, r = spec->resized;
    return n8 >= 32 * r ? 16 : n8 >= 16 * r ? 15 : 14;
}

/* floor(a / b) of whole numbers below 2^53 by one division of doubles, which may run several at a time: the
 * quotient lies at least 1 / b below the next whole number, and rounding moves it by less, as a < 2^53. */
static int32_t floor_quotient(double a, double b)
{
    return (int32_t)(a / b);
}

static int64_t raw(const struct geometry *g, int64_t centre, int32_t p)
{
    const int64_t d = g->unit * p - centre;
    return g->m2 - (d < 0 ? -d : d);
}

/* The weights of one output pixel, whose first tap is start. C << bits stays below 2^53: at
 * most 65535 taps of 2 x 524280 each, times 65536. */
static void weigh(const struct geometry *g, int64_t centre, int32_t start, int bits, int16_t *w)
{
    int64_t sum = 0, c = 0, v;
    int32_t count = 0, before = 0;

    while (start + count < g->last && (v = raw(g, centre, start + count)) > 0) {
        sum += v;
        count++;
    }
    const double divisor = (double)sum;
    const int64_t half = sum >> 1;
    for (int32_t i = 0; i < count; i++) {
        c += raw(g, centre, start + i);
        const int32_t upto = floor_quotient((double)((c << bits) + half), divisor);
        w[i] = (int16_t)(upto - before);
        before = upto;
    }
}

void fl_axis_make(struct fl_axis *axis, const struct fl_axis_spec *spec, void *mem)
{
    const struct geometry g = geometry_of(spec);

    fl_axis_reach(spec, &axis->lo, &axis->hi);
    axis->n = spec->n;
    axis->taps = taps_of(&g, axis->lo, axis->hi);
    axis->bits = bits_of(spec);
    axis->start = mem;
    axis->weights = (int16_t *)((char *)mem + round64((size_t)spec->n * sizeof(axis->start[0])));

    int64_t centre = g.step * spec->first - g.offset;
    int32_t start = axis->lo;
    int16_t *w = axis->weights;
    memset(w, 0, (size_t)axis->n * (size_t)axis->taps * sizeof(*w));
    for (int32_t i = 0; i < spec->n; i++, centre += g.step, w += axis->taps) {
        while (raw(&g, centre, start) <= 0)
            start++;
        axis->start[i] = start;
        weigh(&g, centre, start, axis->bits, w);
    }
}
