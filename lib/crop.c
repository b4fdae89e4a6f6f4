/* SPDX-License-Identifier: Apache-2.0 */
#include "crop.h"

#include <math.h>
#include <string.h>

#include "base/rng.h"

/* libm's exp and log may differ in the last bit from host to host; these are sums and products alone
 * (the build forbids fused multiply-add), so they cannot. sqrt is exact by IEEE 754. */

static const double ln2_hi = 0x1.62e42fee00000p-1, ln2_lo = 0x1.a39ef35793c76p-33;

double fl_crop_exp(double x)
{
    // x = k ln 2 + r with |r| <= ln 2 / 2; a Taylor series of 14 terms leaves less than 1e-17.
    const double k = floor(x * 0x1.71547652b82fep+0 + 0.5);
    const double r = (x - k * ln2_hi) - k * ln2_lo;
    double sum = 1;

    for (int i = 14; i >= 1; i--)
        sum = 1 + sum * r / i;
    return ldexp(sum, (int)k);
}

double fl_crop_log(double x)
{
    // x = m 2^k with m in [sqrt(1/2), sqrt(2)); log m = 2 atanh((m - 1) / (m + 1)), |s| < 0.1716.
    int k;
    double m = frexp(x, &k);

    if (m < 0x1.6a09e667f3bcdp-1) {
        m *= 2;
        k--;
    }
    const double s = (m - 1) / (m + 1), s2 = s * s;
    double sum = 0;
    for (int i = 21; i >= 3; i -= 2)
        sum = (sum + 1.0 / i) * s2;
    return k * ln2_hi + (2 * s + (2 * s * sum + k * ln2_lo));
}

/* Python's round(): to nearest, half to even. Exact for 0 <= x < 2^31. */
static int64_t round_even(double x)
{
    const double low = floor(x), rest = x - low;
    const int64_t n = (int64_t)low;

    return rest > 0.5 || (rest == 0.5 && (n & 1)) ? n + 1 : n;
}

static double uniform(struct fl_rng *r, double a, double b)
{
    return a + (b - a) * fl_rng_double(r);
}

static int32_t clamp1(int64_t v, int32_t most)
{
    return v < 1 ? 1 : v > most ? most : (int32_t)v;
}

/* After ten misses: the largest box in the middle with a ratio inside the bounds. */
static struct fl_rect fallback(int32_t w, int32_t h, const float ratio[2])
{
    const double in = (double)w / h;
    const double low = ratio[0] < ratio[1] ? ratio[0] : ratio[1];
    const double high = ratio[0] < ratio[1] ? ratio[1] : ratio[0];
    struct fl_rect b = { 0, 0, w, h };

    if (in < low)
        b.h = clamp1(round_even(w / low), h);
    else if (in > high)
        b.w = clamp1(round_even(h * high), w);
    b.x = (w - b.w) / 2;
    b.y = (h - b.h) / 2;
    return b;
}

struct fl_rect fl_crop_random_resized(const struct fl_crop_key *key, int32_t w, int32_t h,
                                      const float scale[2], const float ratio[2])
{
    const double area = (double)w * h;
    const double log_low = fl_crop_log(ratio[0]), log_high = fl_crop_log(ratio[1]);
    struct fl_rng r;

    fl_rng_init(&r, key->seed, key->epoch, key->position, FL_RNG_CROP, key->column);
    for (int attempt = 0; attempt < 10; attempt++) {
        const double target = area * uniform(&r, scale[0], scale[1]);
        const double aspect = fl_crop_exp(uniform(&r, log_low, log_high));
        const int64_t bw = round_even(sqrt(target * aspect));
        const int64_t bh = round_even(sqrt(target / aspect));
        if (bw < 1 || bw > w || bh < 1 || bh > h)
            continue;
        const int32_t y = (int32_t)fl_rng_below(&r, (uint64_t)(h - bh + 1));
        const int32_t x = (int32_t)fl_rng_below(&r, (uint64_t)(w - bw + 1));
        return (struct fl_rect){ x, y, (int32_t)bw, (int32_t)bh };
    }
    return fallback(w, h, ratio);
}

/* round(d / 2.0) of Python: half to even. */
static int32_t half_even(int32_t d)
{
    return d % 2 == 0 ? d / 2 : d / 2 + (d / 2) % 2;
}

struct fl_crop fl_crop_center(int32_t w, int32_t h, int32_t resize, int32_t out_w, int32_t out_h)
{
    const int32_t least = out_w > out_h ? out_w : out_h;
    const int32_t side = resize > least ? resize : least;
    const int32_t limit = 65535;
    const int32_t shorter = w < h ? w : h, longer = w < h ? h : w;
    const int64_t exact = (int64_t)side * longer / shorter;
    const int32_t other = exact > limit ? limit : (int32_t)exact;
    struct fl_crop c = { .box = { 0, 0, w, h } };

    c.rw = w <= h ? side : other;
    c.rh = w <= h ? other : side;
    c.window = (struct fl_rect){ half_even(c.rw - out_w), half_even(c.rh - out_h), out_w, out_h };
    return c;
}

bool fl_crop_flip(const struct fl_crop_key *key, float p)
{
    struct fl_rng r;

    fl_rng_init(&r, key->seed, key->epoch, key->position, FL_RNG_FLIP, key->column);
    return fl_rng_double(&r) < p;
}

struct fl_crop fl_crop_draw(const FlImage *image, const struct fl_crop_key *key, int32_t w,
                            int32_t h)
{
    static const float default_scale[2] = { 0.08f, 1 }, default_ratio[2] = { 3.0f / 4, 4.0f / 3 };
    const int32_t ow = image->width, oh = image->height;
    const int64_t larger = ow > oh ? ow : oh;
    struct fl_crop c = { .box = { 0, 0, w, h }, .rw = ow, .rh = oh, .window = { 0, 0, ow, oh } };

    if (image->crop == FL_CROP_RANDOM_RESIZED) {
        const bool no_scale = image->scale[0] == 0 && image->scale[1] == 0;
        const bool no_ratio = image->ratio[0] == 0 && image->ratio[1] == 0;
        c.box = fl_crop_random_resized(key, w, h, no_scale ? default_scale : image->scale,
                                       no_ratio ? default_ratio : image->ratio);
    } else if (image->crop == FL_CROP_CENTER) {
        const int32_t resize =
            image->resize ? image->resize : (int32_t)((larger * 256 + 112) / 224);
        c = fl_crop_center(w, h, resize, ow, oh);
    }
    c.flip = image->flip > 0 && fl_crop_flip(key, image->flip);
    return c;
}
