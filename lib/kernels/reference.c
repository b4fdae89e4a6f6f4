/* SPDX-License-Identifier: Apache-2.0 */
/* The plain C version: the definition as code. Written so that a compiler can vectorise it. */
#include <string.h>

#include "kernels/variants.h"

void fl_vertical_c(const uint8_t *const *rows, const int16_t *weights, int taps, int bits, int n,
                   int16_t *out)
{
    const int32_t half = 1 << (bits - 8);
    const int shift = bits - 7;
    enum { block = 256 };
    int32_t sum[block];

    for (int i = 0; i < n; i += block) {
        const int m = n - i < block ? n - i : block;
        for (int j = 0; j < m; j++)
            sum[j] = half;
        for (int k = 0; k < taps; k++) {
            const uint8_t *row = rows[k] + i;
            const int32_t w = weights[k];
            for (int j = 0; j < m; j++)
                sum[j] += w * row[j];
        }
        for (int j = 0; j < m; j++)
            out[i + j] = (int16_t)(sum[j] >> shift);
    }
}

static inline void horizontal(const int16_t *in, const struct fl_axis *axis, bool mirror,
                              int channels, uint8_t *out)
{
    const int32_t half = 1 << (axis->bits + 6);
    const int shift = axis->bits + 7;

    for (int32_t x = 0; x < axis->n; x++) {
        const int16_t *w = axis->weights + (size_t)x * (size_t)axis->taps;
        const int16_t *p = in + (size_t)(axis->start[x] - axis->lo) * (size_t)channels;
        uint8_t *o = out + (size_t)(mirror ? axis->n - 1 - x : x) * (size_t)channels;
        for (int c = 0; c < channels; c++) {
            int32_t sum = half;
            for (int32_t k = 0; k < axis->taps; k++)
                sum += w[k] * p[k * channels + c];
            o[c] = (uint8_t)(sum >> shift);
        }
    }
}

void fl_horizontal1_c(const int16_t *in0, const int16_t *in1, const struct fl_axis *axis,
                      bool mirror, uint8_t *out0, uint8_t *out1)
{
    horizontal(in0, axis, mirror, 1, out0);
    if (out1 != out0)
        horizontal(in1, axis, mirror, 1, out1);
}

void fl_horizontal3_c(const int16_t *in0, const int16_t *in1, const struct fl_axis *axis,
                      bool mirror, uint8_t *out0, uint8_t *out1)
{
    horizontal(in0, axis, mirror, 3, out0);
    if (out1 != out0)
        horizontal(in1, axis, mirror, 3, out1);
}

static void normalize_bytes(const struct fl_normalize *n, const uint8_t *src, size_t pixels,
                            uint8_t *dst, size_t plane)
{
    const size_t channels = (size_t)n->channels;

    if (n->layout == FL_NHWC) {
        memcpy(dst, src, pixels * channels);
        return;
    }
    for (size_t c = 0; c < channels; c++)
        for (size_t i = 0; i < pixels; i++)
            dst[c * plane + i] = src[i * channels + c];
}

static void normalize16(const struct fl_normalize *n, const uint8_t *src, size_t pixels,
                        uint16_t *dst, size_t plane)
{
    const size_t channels = (size_t)n->channels;
    const size_t step = n->layout == FL_NHWC ? channels : 1;

    for (size_t c = 0; c < channels; c++) {
        uint16_t *d = dst + c * (n->layout == FL_NHWC ? 1 : plane);
        for (size_t i = 0; i < pixels; i++)
            d[i * step] = (uint16_t)n->bits[c][src[i * channels + c]];
    }
}

static void normalize32(const struct fl_normalize *n, const uint8_t *src, size_t pixels,
                        uint32_t *dst, size_t plane)
{
    const size_t channels = (size_t)n->channels;
    const size_t step = n->layout == FL_NHWC ? channels : 1;

    for (size_t c = 0; c < channels; c++) {
        uint32_t *d = dst + c * (n->layout == FL_NHWC ? 1 : plane);
        for (size_t i = 0; i < pixels; i++)
            d[i * step] = n->bits[c][src[i * channels + c]];
    }
}

void fl_normalize_c(const struct fl_normalize *n, const uint8_t *src, size_t pixels, void *dst,
                    size_t plane, bool stream)
{
    (void)stream;
    if (n->dtype == FL_U8)
        normalize_bytes(n, src, pixels, dst, plane);
    else if (n->dtype == FL_F32)
        normalize32(n, src, pixels, dst, plane);
    else
        normalize16(n, src, pixels, dst, plane);
}

const struct fl_kernels fl_kernels_c = {
    .name = "c",
    .vertical = fl_vertical_c,
    .horizontal = { [1] = fl_horizontal1_c, [3] = fl_horizontal3_c },
    .normalize = fl_normalize_c,
};
