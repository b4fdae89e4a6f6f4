/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/normalize.h"

#include <math.h>
#include <string.h>

static uint32_t bits_of(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof(u));
    return u;
}

uint16_t fl_f32_to_bf16(float x)
{
    const uint32_t u = bits_of(x);

    if ((u & 0x7FFFFFFF) > 0x7F800000) // NaN: keep it one
        return (uint16_t)(u >> 16 | 0x40);
    return (uint16_t)((u + 0x7FFF + (u >> 16 & 1)) >> 16);
}

uint16_t fl_f32_to_f16(float x)
{
    const uint32_t u = bits_of(x), sign = u >> 16 & 0x8000, a = u & 0x7FFFFFFF;

    if (a >= 0x7F800000)
        return (uint16_t)(sign | 0x7C00 | (a > 0x7F800000 ? 0x200 | (a >> 13 & 0x3FF) : 0));
    if (a >= 0x477FF000) // rounds to 65536 or more
        return (uint16_t)(sign | 0x7C00);
    if (a < 0x33000001) // at most half of the smallest subnormal: even is zero
        return (uint16_t)sign;
    // Drop `drop` bits of the significand, to nearest even; a carry runs into the exponent as it should.
    const uint32_t e = a >> 23;
    const uint32_t drop = e < 113 ? 126 - e : 13;
    const uint32_t m = e < 113 ? (a & 0x7FFFFF) | 0x800000 : a - (112u << 23);
    const uint32_t low = m & ((1u << drop) - 1), half = 1u << (drop - 1);
    uint32_t r = m >> drop;
    r += low > half || (low == half && (r & 1));
    return (uint16_t)(sign | r);
}

static uint32_t convert(FlDtype dtype, float v)
{
    switch (dtype) {
    case FL_F16:
        return fl_f32_to_f16(v);
    case FL_BF16:
        return fl_f32_to_bf16(v);
    default:
        return bits_of(v);
    }
}

/* Whether the form without divisions gives all of the table. */
static bool check_arithmetic(struct fl_normalize *n)
{
    n->r255 = (float)(1.0 / 255);
    n->r255_low = (float)(1.0 / 255 - (double)n->r255);
    for (int c = 0; c < n->channels; c++) {
        n->r_std[c] = 1.0f / n->std[c];
        for (int x = 0; x < 256; x++) {
            const float q = fmaf((float)x, n->r255, (float)x * n->r255_low);
            const float d = q - n->mean[c], y = d * n->r_std[c];
            const float z = fmaf(fmaf(-y, n->std[c], d), n->r_std[c], y);
            if (convert(n->dtype, z) != n->bits[c][x])
                return false;
        }
    }
    return true;
}

void fl_normalize_init(struct fl_normalize *n, FlDtype dtype, FlLayout layout, int32_t channels,
                       const float mean[3], const float std[3])
{
    memset(n, 0, sizeof(*n));
    n->dtype = dtype;
    n->layout = layout;
    n->channels = channels;
    for (int c = 0; c < channels; c++) {
        n->mean[c] = mean[c];
        n->std[c] = std[c] != 0 ? std[c] : 1;
        for (int x = 0; x < 256; x++) {
            const float v = ((float)x / 255.0f - n->mean[c]) / n->std[c];
            n->bits[c][x] = dtype == FL_U8 ? (uint32_t)x : convert(dtype, v);
        }
    }
    n->arithmetic = dtype != FL_U8 && check_arithmetic(n);
}
