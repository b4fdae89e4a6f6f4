/* SPDX-License-Identifier: Apache-2.0 */
/* AVX-512 F, BW, VL, VBMI, VNNI. Same bits as kernels/reference.c. */
#include <immintrin.h>
#include <string.h>

#include "kernels/variants.h"
#include "kernels/x86/avx2.h"

/* ---- vertical ---- */

/* Two rows as 16-bit pairs, times a pair of weights: sum[k] has pixels 4k to 4k + 3 of each run of 16. */
static inline void add_pair(__m512i a, __m512i b, __m512i w, __m512i sum[4])
{
    const __m512i zero = _mm512_setzero_si512();
    const __m512i low = _mm512_unpacklo_epi8(a, b), high = _mm512_unpackhi_epi8(a, b);

    sum[0] = _mm512_dpwssd_epi32(sum[0], _mm512_unpacklo_epi8(low, zero), w);
    sum[1] = _mm512_dpwssd_epi32(sum[1], _mm512_unpackhi_epi8(low, zero), w);
    sum[2] = _mm512_dpwssd_epi32(sum[2], _mm512_unpacklo_epi8(high, zero), w);
    sum[3] = _mm512_dpwssd_epi32(sum[3], _mm512_unpackhi_epi8(high, zero), w);
}

static inline __m512i weight_pair(const int16_t *w)
{
    int32_t pair;

    memcpy(&pair, w, sizeof(pair));
    return _mm512_set1_epi32(pair);
}

static inline __attribute__((always_inline)) void vertical_pairs(const uint8_t *const *rows,
                                                                 const int16_t *weights, int pairs,
                                                                 int bits, int n, int16_t *out)
{
    const __m512i half = _mm512_set1_epi32(1 << (bits - 8));
    const __m128i shift = _mm_cvtsi32_si128(bits - 7);
    const __m512i first = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11);
    const __m512i second = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);

    for (int i = 0; i < n; i += 64) {
        const __mmask64 m = n - i < 64 ? ((__mmask64)1 << (n - i)) - 1 : ~(__mmask64)0;
        __m512i sum[4] = { half, half, half, half };
        for (int k = 0; k < pairs; k++)
            add_pair(_mm512_maskz_loadu_epi8(m, rows[2 * k] + i),
                     _mm512_maskz_loadu_epi8(m, rows[2 * k + 1] + i), weight_pair(weights + 2 * k),
                     sum);
        for (int j = 0; j < 4; j++)
            sum[j] = _mm512_srl_epi32(sum[j], shift);
        const __m512i a = _mm512_packs_epi32(sum[0], sum[1]);
        const __m512i b = _mm512_packs_epi32(sum[2], sum[3]);
        _mm512_mask_storeu_epi16(out + i, (__mmask32)m, _mm512_permutex2var_epi64(a, first, b));
        _mm512_mask_storeu_epi16(out + i + 32, (__mmask32)(m >> 32),
                                 _mm512_permutex2var_epi64(a, second, b));
    }
}

static void vertical(const uint8_t *const *rows, const int16_t *weights, int taps, int bits, int n,
                     int16_t *out)
{
    if (taps == 2)
        vertical_pairs(rows, weights, 1, bits, n, out);
    else if (taps == 4)
        vertical_pairs(rows, weights, 2, bits, n, out);
    else
        vertical_pairs(rows, weights, taps / 2, bits, n, out);
}

/* ---- horizontal, three channels ---- */

/* Where the taps of four output pixels lie in the 32 samples from the first tap of the first on, and their weights.
 * Up to a ratio of 2 four starts span 6 pixels, the taps 4 more: 30 samples. */
struct group {
    __m512i index[2], weights[2]; // for each pair of taps
};

static inline __attribute__((always_inline)) struct group group_of(const int32_t *start,
                                                                   const int16_t *w, int pairs)
{
    const __m512i each = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
    // r0 r1 g0 g1 b0 b1 and twice anything, for each of four pixels
    const __m512i order = _mm512_set4_epi32(0, 5 << 16 | 2, 4 << 16 | 1, 3 << 16);
    const __m128i s = _mm_loadu_si128((const __m128i *)start);
    const __m128i from =
        _mm_mullo_epi32(_mm_sub_epi32(s, _mm_broadcastd_epi32(s)), _mm_set1_epi32(3 << 16 | 3));
    struct group g;

    g.index[0] =
        _mm512_add_epi16(order, _mm512_permutexvar_epi32(each, _mm512_castsi128_si512(from)));
    if (pairs == 1) {
        const __m128i v = _mm_loadu_si128((const __m128i *)w);
        g.weights[0] = _mm512_permutexvar_epi32(each, _mm512_castsi128_si512(v));
        g.index[1] = g.weights[1] = _mm512_setzero_si512();
        return g;
    }
    const __m512i v = _mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)w));
    const __m512i even = _mm512_slli_epi32(each, 1);
    g.index[1] = _mm512_add_epi16(g.index[0], _mm512_set1_epi16(6));
    g.weights[0] = _mm512_permutexvar_epi32(even, v);
    g.weights[1] = _mm512_permutexvar_epi32(_mm512_add_epi32(even, _mm512_set1_epi32(1)), v);
    return g;
}

static inline __attribute__((always_inline)) __m512i
pixels3(const int16_t *in, const struct group *g, int pairs, __m512i half, __m128i shift)
{
    const __m512i v = _mm512_loadu_si512(in);
    __m512i sum =
        _mm512_dpwssd_epi32(half, _mm512_permutexvar_epi16(g->index[0], v), g->weights[0]);

    if (pairs == 2)
        sum = _mm512_dpwssd_epi32(sum, _mm512_permutexvar_epi16(g->index[1], v), g->weights[1]);
    return _mm512_srl_epi32(sum, shift);
}

static inline __attribute__((always_inline)) void
horizontal3_pairs(const int16_t *in0, const int16_t *in1, const struct fl_axis *axis, int pairs,
                  bool mirror, uint8_t *out0, uint8_t *out1)
{
    const __m512i half = _mm512_set1_epi32(1 << (axis->bits + 6));
    const __m128i shift = _mm_cvtsi32_si128(axis->bits + 7);
    // Lane j has r g b 0 of pixel j of the first row in bytes 0-3, of the second row in bytes 4-7.
    static const uint8_t forward[32] = { 0, 1, 2, 16, 17, 18, 32, 33, 34, 48, 49, 50, 0, 0, 0, 0,
                                         4, 5, 6, 20, 21, 22, 36, 37, 38, 52, 53, 54, 0, 0, 0, 0 };
    static const uint8_t backward[32] = { 48, 49, 50, 32, 33, 34, 16, 17, 18, 0, 1, 2, 0, 0, 0, 0,
                                          52, 53, 54, 36, 37, 38, 20, 21, 22, 4, 5, 6, 0, 0, 0, 0 };
    const __m512i order =
        _mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)(mirror ? backward : forward)));
    const ptrdiff_t n = axis->n;

    in0 -= (ptrdiff_t)3 * axis->lo;
    in1 -= (ptrdiff_t)3 * axis->lo;
    for (ptrdiff_t x = 0; x < n; x += 4) {
        // The last group begins earlier where n is no multiple of four: it writes some pixels again.
        const ptrdiff_t first = x + 4 <= n ? x : n - 4, at = (ptrdiff_t)3 * axis->start[first];
        const struct group g =
            group_of(axis->start + first, axis->weights + first * 2 * pairs, pairs);
        const __m512i a = pixels3(in0 + at, &g, pairs, half, shift);
        const __m512i b = pixels3(in1 + at, &g, pairs, half, shift);
        const __m512i words = _mm512_packs_epi32(a, b);
        const __m512i bytes = _mm512_permutexvar_epi8(order, _mm512_packus_epi16(words, words));
        const ptrdiff_t to = 3 * (mirror ? n - 4 - first : first);
        _mm_mask_storeu_epi8(out0 + to, 0xFFF, _mm512_castsi512_si128(bytes));
        _mm_mask_storeu_epi8(out1 + to, 0xFFF,
                             _mm256_extracti128_si256(_mm512_castsi512_si256(bytes), 1));
    }
}

static void horizontal3(const int16_t *in0, const int16_t *in1, const struct fl_axis *axis,
                        bool mirror, uint8_t *out0, uint8_t *out1)
{
    if (axis->n < 4 || axis->taps > 4)
        fl_horizontal3_avx2(in0, in1, axis, mirror, out0, out1);
    else if (axis->taps == 2)
        horizontal3_pairs(in0, in1, axis, 1, mirror, out0, out1);
    else
        horizontal3_pairs(in0, in1, axis, 2, mirror, out0, out1);
}

/* ---- table ---- */

const struct fl_kernels fl_kernels_avx512 = {
    .name = "avx512",
    .vertical = vertical,
    .horizontal = { [1] = fl_horizontal1_avx2, [3] = horizontal3 },
    .normalize = fl_normalize_avx2, // waits for memory
};
