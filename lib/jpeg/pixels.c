/* SPDX-License-Identifier: Apache-2.0 */
/* The reference: constants are cosines times 2^13, as in the Loeffler-Ligtenberg-Moschytz transform that
 * the accurate path uses; the first pass keeps two bits of fraction. */
#include "jpeg/pixels.h"

#include <string.h>

#define PASS1 2 // bits of fraction between the passes
#define CONST 13

static inline uint8_t clamp(int32_t v)
{
    return (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
}

/* Sums and products wrap in 32 bits, as vector instructions do. */
static inline int32_t descale(uint32_t v, int bits)
{
    return (int32_t)(v + (1u << (bits - 1))) >> bits;
}

static inline uint32_t mul(uint32_t v, int factor)
{
    return v * (uint32_t)factor;
}

/* Eight values, `step` apart, each with 13 bits of fraction more, descaled by `bits`. */
static void line8(int32_t *v, int step, int bits)
{
    const uint32_t v0 = (uint32_t)v[0], v1 = (uint32_t)v[step], v2 = (uint32_t)v[2 * step];
    const uint32_t v3 = (uint32_t)v[3 * step], v4 = (uint32_t)v[4 * step];
    const uint32_t v5 = (uint32_t)v[5 * step], v6 = (uint32_t)v[6 * step];
    const uint32_t v7 = (uint32_t)v[7 * step];
    const uint32_t even = mul(v2 + v6, 4433);
    const uint32_t e2 = even - mul(v6, 15137), e3 = even + mul(v2, 6270);
    const uint32_t e0 = (v0 + v4) << CONST, e1 = (v0 - v4) << CONST;
    const uint32_t a0 = e0 + e3, a3 = e0 - e3, a1 = e1 + e2, a2 = e1 - e2;
    const uint32_t odd = mul(v1 + v3 + v5 + v7, 9633);
    const uint32_t z1 = mul(v1 + v7, -7373), z2 = mul(v3 + v5, -20995);
    const uint32_t z3 = mul(v3 + v7, -16069) + odd, z4 = mul(v1 + v5, -3196) + odd;
    const uint32_t o0 = mul(v7, 2446) + z1 + z3, o1 = mul(v5, 16819) + z2 + z4;
    const uint32_t o2 = mul(v3, 25172) + z2 + z3, o3 = mul(v1, 12299) + z1 + z4;

    v[0] = descale(a0 + o3, bits);
    v[step] = descale(a1 + o2, bits);
    v[2 * step] = descale(a2 + o1, bits);
    v[3 * step] = descale(a3 + o0, bits);
    v[4 * step] = descale(a3 - o0, bits);
    v[5 * step] = descale(a2 - o1, bits);
    v[6 * step] = descale(a1 - o2, bits);
    v[7 * step] = descale(a0 - o3, bits);
}

/* What is beyond 16 bits is beyond an encoder's range. */
static void dequantise(const int16_t *c, const int16_t *q, int32_t v[64])
{
    for (int i = 0; i < 64; i++)
        v[i] = (int16_t)((uint16_t)c[i] * (uint32_t)(uint16_t)q[i]);
}

static inline int32_t saturate(int32_t v)
{
    return v < INT16_MIN ? INT16_MIN : v > INT16_MAX ? INT16_MAX : v;
}

static void idct8(const int16_t *c, const int16_t *q, uint8_t *out, ptrdiff_t stride)
{
    int32_t v[64];

    dequantise(c, q, v);
    for (int x = 0; x < 8; x++)
        line8(v + x, 8, CONST - PASS1);
    for (int i = 0; i < 64; i++)
        v[i] = saturate(v[i]);
    for (int y = 0; y < 8; y++, out += stride) {
        line8(v + 8 * y, 1, CONST + PASS1 + 3);
        for (int x = 0; x < 8; x++)
            out[x] = clamp(v[8 * y + x] + 128);
    }
}

/* Reduced to four: the first four and the last three of eight values. */
static void line4(int32_t *v, int step, int bits)
{
    const uint32_t v1 = (uint32_t)v[step], v2 = (uint32_t)v[2 * step];
    const uint32_t v3 = (uint32_t)v[3 * step], v5 = (uint32_t)v[5 * step];
    const uint32_t v6 = (uint32_t)v[6 * step], v7 = (uint32_t)v[7 * step];
    const uint32_t even = (uint32_t)v[0] << (CONST + 1), e2 = mul(v2, 15137) - mul(v6, 6270);
    const uint32_t o0 = mul(v7, -1730) + mul(v5, 11893) - mul(v3, 17799) + mul(v1, 8697);
    const uint32_t o1 = mul(v7, -4176) - mul(v5, 4926) + mul(v3, 7373) + mul(v1, 20995);

    v[0] = descale(even + e2 + o1, bits);
    v[step] = descale(even - e2 + o0, bits);
    v[2 * step] = descale(even - e2 - o0, bits);
    v[3 * step] = descale(even + e2 - o1, bits);
}

static void idct4(const int16_t *c, const int16_t *q, uint8_t *out, ptrdiff_t stride)
{
    int32_t v[64];

    dequantise(c, q, v);
    for (int x = 0; x < 8; x++)
        if (x != 4) // its weight in the second pass is zero
            line4(v + x, 8, CONST - PASS1 + 1);
    for (int y = 0; y < 4; y++, out += stride) {
        for (int x = 0; x < 8; x++)
            v[8 * y + x] = saturate(v[8 * y + x]);
        line4(v + 8 * y, 1, CONST + PASS1 + 3 + 1);
        for (int x = 0; x < 4; x++)
            out[x] = clamp(v[8 * y + x] + 128);
    }
}

/* Reduced to two: the first and the odd ones. */
static void line2(int32_t *v, int step, int bits)
{
    const uint32_t even = (uint32_t)v[0] << (CONST + 2);
    const uint32_t odd = mul((uint32_t)v[7 * step], -5906) + mul((uint32_t)v[5 * step], 6967) -
                         mul((uint32_t)v[3 * step], 10426) + mul((uint32_t)v[step], 29692);

    v[0] = descale(even + odd, bits);
    v[step] = descale(even - odd, bits);
}

void fl_idct2_c(const int16_t *c, const int16_t *q, uint8_t *out, ptrdiff_t stride)
{
    int32_t v[64];

    dequantise(c, q, v);
    for (int x = 0; x < 8; x++)
        if (x == 0 || (x & 1))
            line2(v + x, 8, CONST - PASS1 + 2);
    for (int y = 0; y < 2; y++, out += stride) {
        for (int x = 0; x < 8; x++)
            v[8 * y + x] = saturate(v[8 * y + x]);
        line2(v + 8 * y, 1, CONST + PASS1 + 3 + 2);
        out[0] = clamp(v[8 * y] + 128);
        out[1] = clamp(v[8 * y + 1] + 128);
    }
}

void fl_idct1_c(const int16_t *c, const int16_t *q, uint8_t *out, ptrdiff_t stride)
{
    (void)stride;
    out[0] =
        clamp(descale((uint32_t)(int16_t)((uint16_t)c[0] * (uint32_t)(uint16_t)q[0]), 3) + 128);
}

void fl_ycc_rgb_c(const uint8_t *y, const uint8_t *cb, const uint8_t *cr, uint8_t *rgb, int n)
{
    for (int i = 0; i < n; i++, rgb += 3) {
        const int32_t b = cb[i] - 128, r = cr[i] - 128;
        rgb[0] = clamp(y[i] + ((91881 * r + 32768) >> 16));
        rgb[1] = clamp(y[i] + ((-22554 * b - 46802 * r + 32768) >> 16));
        rgb[2] = clamp(y[i] + ((116130 * b + 32768) >> 16));
    }
}

static void h2v1(const uint8_t *in, uint8_t *out, int n)
{
    for (int i = 0; i < n; i++) {
        out[2 * i] = (uint8_t)((3 * in[i] + in[i - 1] + 1) >> 2);
        out[2 * i + 1] = (uint8_t)((3 * in[i] + in[i + 1] + 2) >> 2);
    }
}

static void h2v2(const int16_t *in, uint8_t *out, int n)
{
    for (int i = 0; i < n; i++) {
        out[2 * i] = (uint8_t)((3 * in[i] + in[i - 1] + 8) >> 4);
        out[2 * i + 1] = (uint8_t)((3 * in[i] + in[i + 1] + 7) >> 4);
    }
}

const struct fl_pixel_ops fl_pixel_ops_c = {
    .name = "c",
    .idct = { fl_idct1_c, fl_idct2_c, idct4, idct8 },
    .ycc_rgb = fl_ycc_rgb_c,
    .h2v1 = h2v1,
    .h2v2 = h2v2,
};
