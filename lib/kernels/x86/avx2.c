/* SPDX-License-Identifier: Apache-2.0 */
/* AVX2, FMA, F16C. Same bits as kernels/reference.c. */
#include <immintrin.h>
#include <string.h>

#include "kernels/variants.h"
#include "kernels/x86/avx2.h"

/* ---- vertical ---- */

/* Two rows as 16-bit pairs, times a pair of weights: four vectors of eight 32-bit sums, whose pixels are
 * 0-3|16-19, 4-7|20-23, 8-11|24-27, 12-15|28-31. */
static inline void add_pair(const uint8_t *a, const uint8_t *b, __m256i w, __m256i sum[4])
{
    const __m256i zero = _mm256_setzero_si256();
    const __m256i va = _mm256_loadu_si256((const __m256i *)a);
    const __m256i vb = _mm256_loadu_si256((const __m256i *)b);
    const __m256i low = _mm256_unpacklo_epi8(va, vb), high = _mm256_unpackhi_epi8(va, vb);

    sum[0] = _mm256_add_epi32(sum[0], _mm256_madd_epi16(_mm256_unpacklo_epi8(low, zero), w));
    sum[1] = _mm256_add_epi32(sum[1], _mm256_madd_epi16(_mm256_unpackhi_epi8(low, zero), w));
    sum[2] = _mm256_add_epi32(sum[2], _mm256_madd_epi16(_mm256_unpacklo_epi8(high, zero), w));
    sum[3] = _mm256_add_epi32(sum[3], _mm256_madd_epi16(_mm256_unpackhi_epi8(high, zero), w));
}

static inline __m256i weight_pair(const int16_t *w)
{
    int32_t pair;

    memcpy(&pair, w, sizeof(pair)); // one broadcast from memory
    return _mm256_set1_epi32(pair);
}

static inline __attribute__((always_inline)) void vertical_pairs(const uint8_t *const *rows,
                                                                 const int16_t *weights, int pairs,
                                                                 int bits, int n, int16_t *out)
{
    const __m256i half = _mm256_set1_epi32(1 << (bits - 8));
    const __m128i shift = _mm_cvtsi32_si128(bits - 7);

    for (int i = 0; i < n; i += 32) {
        __m256i sum[4] = { half, half, half, half };
        for (int k = 0; k < pairs; k++)
            add_pair(rows[2 * k] + i, rows[2 * k + 1] + i, weight_pair(weights + 2 * k), sum);
        for (int j = 0; j < 4; j++)
            sum[j] = _mm256_srl_epi32(sum[j], shift);
        const __m256i a = _mm256_packs_epi32(sum[0], sum[1]);
        const __m256i b = _mm256_packs_epi32(sum[2], sum[3]);
        _mm256_store_si256((__m256i *)(out + i), _mm256_permute2x128_si256(a, b, 0x20));
        _mm256_store_si256((__m256i *)(out + i + 16), _mm256_permute2x128_si256(a, b, 0x31));
    }
}

static void vertical(const uint8_t *const *rows, const int16_t *weights, int taps, int bits, int n,
                     int16_t *out)
{
    switch (taps) {
    case 2:
        vertical_pairs(rows, weights, 1, bits, n, out);
        break;
    case 4:
        vertical_pairs(rows, weights, 2, bits, n, out);
        break;
    default:
        vertical_pairs(rows, weights, taps / 2, bits, n, out);
    }
}

/* ---- horizontal, three channels ---- */

/* Sums r, g, b, 0 of one output pixel for two rows, one row in each half. */
static inline __attribute__((always_inline)) __m256i pixel3(const int16_t *in0, const int16_t *in1,
                                                            int32_t start, const int16_t *w,
                                                            int pairs, __m256i half)
{
    // r0 g0 b0 r1 g1 b1 -> r0 r1 g0 g1 b0 b1 0 0
    const __m256i order = _mm256_setr_epi8(0, 1, 6, 7, 2, 3, 8, 9, 4, 5, 10, 11, -1, -1, -1, -1, 0,
                                           1, 6, 7, 2, 3, 8, 9, 4, 5, 10, 11, -1, -1, -1, -1);
    __m256i sum = half;

    in0 += (ptrdiff_t)3 * start;
    in1 += (ptrdiff_t)3 * start;
    for (int k = 0; k < pairs; k++, in0 += 6, in1 += 6) {
        const __m128i v0 = _mm_loadu_si128((const __m128i *)in0);
        const __m128i v1 = _mm_loadu_si128((const __m128i *)in1);
        const __m256i v = _mm256_inserti128_si256(_mm256_castsi128_si256(v0), v1, 1);
        sum = _mm256_add_epi32(
            sum, _mm256_madd_epi16(_mm256_shuffle_epi8(v, order), weight_pair(w + 2 * k)));
    }
    return sum;
}

static inline void store12(uint8_t *out, __m128i v)
{
    const int32_t last = _mm_extract_epi32(v, 2);

    _mm_storel_epi64((__m128i *)out, v);
    memcpy(out + 8, &last, 4);
}

static inline __attribute__((always_inline)) void
horizontal3_pairs(const int16_t *in0, const int16_t *in1, const struct fl_axis *axis, int pairs,
                  bool mirror, uint8_t *out0, uint8_t *out1)
{
    const __m256i half = _mm256_set1_epi32(1 << (axis->bits + 6));
    const __m128i shift = _mm_cvtsi32_si128(axis->bits + 7);
    const __m256i forward =
        _mm256_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1, 0, 1, 2, 4, 5, 6,
                         8, 9, 10, 12, 13, 14, -1, -1, -1, -1);
    const __m256i backward =
        _mm256_setr_epi8(12, 13, 14, 8, 9, 10, 4, 5, 6, 0, 1, 2, -1, -1, -1, -1, 12, 13, 14, 8, 9,
                         10, 4, 5, 6, 0, 1, 2, -1, -1, -1, -1);
    const __m256i order = mirror ? backward : forward;
    const ptrdiff_t n = axis->n, taps = 2 * (ptrdiff_t)pairs;
    const int32_t *start = axis->start;
    const int16_t *weights = axis->weights;

    in0 -= (ptrdiff_t)3 * axis->lo;
    in1 -= (ptrdiff_t)3 * axis->lo;
    for (ptrdiff_t x = 0; x < n; x += 4) {
        // The last group begins earlier where n is no multiple of four: it writes some pixels again.
        const ptrdiff_t first = x + 4 <= n ? x : n - 4;
        const int32_t *at = start + first;
        const int16_t *w = weights + first * taps;
        const __m256i s0 = pixel3(in0, in1, at[0], w, pairs, half);
        const __m256i s1 = pixel3(in0, in1, at[1], w + taps, pairs, half);
        const __m256i s2 = pixel3(in0, in1, at[2], w + 2 * taps, pairs, half);
        const __m256i s3 = pixel3(in0, in1, at[3], w + 3 * taps, pairs, half);
        const __m256i a =
            _mm256_packs_epi32(_mm256_srl_epi32(s0, shift), _mm256_srl_epi32(s1, shift));
        const __m256i b =
            _mm256_packs_epi32(_mm256_srl_epi32(s2, shift), _mm256_srl_epi32(s3, shift));
        const __m256i v = _mm256_shuffle_epi8(_mm256_packus_epi16(a, b), order);
        const ptrdiff_t to = 3 * (mirror ? n - 4 - first : first);
        store12(out0 + to, _mm256_castsi256_si128(v));
        store12(out1 + to, _mm256_extracti128_si256(v, 1));
    }
}

void fl_horizontal3_avx2(const int16_t *in0, const int16_t *in1, const struct fl_axis *axis,
                         bool mirror, uint8_t *out0, uint8_t *out1)
{
    if (axis->n < 4) {
        fl_horizontal3_c(in0, in1, axis, mirror, out0, out1);
        return;
    }
    switch (axis->taps) {
    case 2:
        horizontal3_pairs(in0, in1, axis, 1, mirror, out0, out1);
        break;
    case 4:
        horizontal3_pairs(in0, in1, axis, 2, mirror, out0, out1);
        break;
    default:
        horizontal3_pairs(in0, in1, axis, axis->taps / 2, mirror, out0, out1);
    }
}

/* ---- horizontal, one channel ---- */

static inline int32_t sum1(const int16_t *in, const int16_t *w, int taps)
{
    __m128i sum = _mm_setzero_si128();
    int k = 0;

    for (; k + 8 <= taps; k += 8)
        sum = _mm_add_epi32(sum, _mm_madd_epi16(_mm_loadu_si128((const __m128i *)(in + k)),
                                                _mm_loadu_si128((const __m128i *)(w + k))));
    sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0x4E));
    sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0xB1));
    int32_t s = _mm_cvtsi128_si32(sum);
    for (; k < taps; k++)
        s += in[k] * w[k];
    return s;
}

void fl_horizontal1_avx2(const int16_t *in0, const int16_t *in1, const struct fl_axis *axis,
                         bool mirror, uint8_t *out0, uint8_t *out1)
{
    const int32_t half = 1 << (axis->bits + 6);
    const int shift = axis->bits + 7, n = axis->n, taps = axis->taps;

    if (taps < 8) { // nothing to gain
        fl_horizontal1_c(in0, in1, axis, mirror, out0, out1);
        return;
    }
    for (int x = 0; x < n; x++) {
        const int16_t *w = axis->weights + (ptrdiff_t)x * taps;
        const ptrdiff_t at = axis->start[x] - axis->lo;
        const int to = mirror ? n - 1 - x : x;
        out0[to] = (uint8_t)((sum1(in0 + at, w, taps) + half) >> shift);
        out1[to] = (uint8_t)((sum1(in1 + at, w, taps) + half) >> shift);
    }
}

/* ---- table ---- */

const struct fl_kernels fl_kernels_avx2 = {
    .name = "avx2",
    .vertical = vertical,
    .horizontal = { [1] = fl_horizontal1_avx2, [3] = fl_horizontal3_avx2 },
    .normalize = fl_normalize_avx2,
};
