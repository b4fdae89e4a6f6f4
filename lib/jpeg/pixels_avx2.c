/* SPDX-License-Identifier: Apache-2.0 */
/* AVX2. Sums of products are taken in pairs by one multiply-add each; the sums are those of the
 * reference, in another order, so the bits are the same. */
#include "jpeg/pixels.h"

#include <immintrin.h>
#include <string.h>

#define AVX2 __attribute__((target("avx2")))

/* Pairs of 16-bit factors: a for even, b for odd places. */
static inline AVX2 __m256i pair(int a, int b)
{
    return _mm256_set1_epi32((int)((uint32_t)(uint16_t)a | (uint32_t)b << 16));
}

/* a0 b0 a1 b1 ... a7 b7 */
static inline AVX2 __m256i zip(__m128i a, __m128i b)
{
    return _mm256_set_m128i(_mm_unpackhi_epi16(a, b), _mm_unpacklo_epi16(a, b));
}

static inline AVX2 __m128i narrow(__m256i v)
{
    return _mm_packs_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
}

/* One pass over eight columns: r[i] is row i, in and out. */
static inline AVX2 void pass(__m128i r[8], const int bits)
{
    const __m256i p26 = zip(r[2], r[6]), p71 = zip(r[7], r[1]), p53 = zip(r[5], r[3]);
    const __m256i p04 = zip(r[0], r[4]);
    const __m256i half = _mm256_set1_epi32(1 << (bits - 1));
    const __m256i e2 = _mm256_madd_epi16(p26, pair(4433, 4433 - 15137));
    const __m256i e3 = _mm256_madd_epi16(p26, pair(4433 + 6270, 4433));
    const __m256i e0 = _mm256_add_epi32(_mm256_madd_epi16(p04, pair(8192, 8192)), half);
    const __m256i e1 = _mm256_add_epi32(_mm256_madd_epi16(p04, pair(8192, -8192)), half);
    const __m256i a0 = _mm256_add_epi32(e0, e3), a3 = _mm256_sub_epi32(e0, e3);
    const __m256i a1 = _mm256_add_epi32(e1, e2), a2 = _mm256_sub_epi32(e1, e2);
    // Each odd output is a sum over all four odd inputs.
    const __m256i o0 =
        _mm256_add_epi32(_mm256_madd_epi16(p71, pair(2446 - 7373 - 16069 + 9633, -7373 + 9633)),
                         _mm256_madd_epi16(p53, pair(9633, 9633 - 16069)));
    const __m256i o1 =
        _mm256_add_epi32(_mm256_madd_epi16(p71, pair(9633, 9633 - 3196)),
                         _mm256_madd_epi16(p53, pair(16819 - 20995 - 3196 + 9633, -20995 + 9633)));
    const __m256i o2 =
        _mm256_add_epi32(_mm256_madd_epi16(p71, pair(9633 - 16069, 9633)),
                         _mm256_madd_epi16(p53, pair(9633 - 20995, 25172 - 20995 - 16069 + 9633)));
    const __m256i o3 =
        _mm256_add_epi32(_mm256_madd_epi16(p71, pair(-7373 + 9633, 12299 - 7373 - 3196 + 9633)),
                         _mm256_madd_epi16(p53, pair(9633 - 3196, 9633)));

    r[0] = narrow(_mm256_srai_epi32(_mm256_add_epi32(a0, o3), bits));
    r[7] = narrow(_mm256_srai_epi32(_mm256_sub_epi32(a0, o3), bits));
    r[1] = narrow(_mm256_srai_epi32(_mm256_add_epi32(a1, o2), bits));
    r[6] = narrow(_mm256_srai_epi32(_mm256_sub_epi32(a1, o2), bits));
    r[2] = narrow(_mm256_srai_epi32(_mm256_add_epi32(a2, o1), bits));
    r[5] = narrow(_mm256_srai_epi32(_mm256_sub_epi32(a2, o1), bits));
    r[3] = narrow(_mm256_srai_epi32(_mm256_add_epi32(a3, o0), bits));
    r[4] = narrow(_mm256_srai_epi32(_mm256_sub_epi32(a3, o0), bits));
}

static inline AVX2 void transpose(__m128i r[8])
{
    const __m128i a0 = _mm_unpacklo_epi16(r[0], r[1]), a1 = _mm_unpackhi_epi16(r[0], r[1]);
    const __m128i a2 = _mm_unpacklo_epi16(r[2], r[3]), a3 = _mm_unpackhi_epi16(r[2], r[3]);
    const __m128i a4 = _mm_unpacklo_epi16(r[4], r[5]), a5 = _mm_unpackhi_epi16(r[4], r[5]);
    const __m128i a6 = _mm_unpacklo_epi16(r[6], r[7]), a7 = _mm_unpackhi_epi16(r[6], r[7]);
    const __m128i b0 = _mm_unpacklo_epi32(a0, a2), b1 = _mm_unpackhi_epi32(a0, a2);
    const __m128i b2 = _mm_unpacklo_epi32(a1, a3), b3 = _mm_unpackhi_epi32(a1, a3);
    const __m128i b4 = _mm_unpacklo_epi32(a4, a6), b5 = _mm_unpackhi_epi32(a4, a6);
    const __m128i b6 = _mm_unpacklo_epi32(a5, a7), b7 = _mm_unpackhi_epi32(a5, a7);

    r[0] = _mm_unpacklo_epi64(b0, b4);
    r[1] = _mm_unpackhi_epi64(b0, b4);
    r[2] = _mm_unpacklo_epi64(b1, b5);
    r[3] = _mm_unpackhi_epi64(b1, b5);
    r[4] = _mm_unpacklo_epi64(b2, b6);
    r[5] = _mm_unpackhi_epi64(b2, b6);
    r[6] = _mm_unpacklo_epi64(b3, b7);
    r[7] = _mm_unpackhi_epi64(b3, b7);
}

/* Columns of 16-bit results to rows of bytes. */
static inline AVX2 void store8(const __m128i r[8], uint8_t *out, ptrdiff_t stride)
{
    const __m128i middle = _mm_set1_epi8((char)0x80); // signed bytes to unsigned: + 128
    const __m128i p0 = _mm_packs_epi16(r[0], r[4]), p1 = _mm_packs_epi16(r[1], r[5]);
    const __m128i p2 = _mm_packs_epi16(r[2], r[6]), p3 = _mm_packs_epi16(r[3], r[7]);
    // Columns 0 2 | 1 3 and 4 6 | 5 7, byte by byte, then by two and by four.
    const __m128i c02 = _mm_unpacklo_epi8(p0, p2), c13 = _mm_unpacklo_epi8(p1, p3);
    const __m128i c46 = _mm_unpackhi_epi8(p0, p2), c57 = _mm_unpackhi_epi8(p1, p3);
    const __m128i l0 = _mm_unpacklo_epi8(c02, c13), l1 = _mm_unpackhi_epi8(c02, c13);
    const __m128i h0 = _mm_unpacklo_epi8(c46, c57), h1 = _mm_unpackhi_epi8(c46, c57);
    const __m128i rows[4] = { _mm_xor_si128(_mm_unpacklo_epi32(l0, h0), middle),
                              _mm_xor_si128(_mm_unpackhi_epi32(l0, h0), middle),
                              _mm_xor_si128(_mm_unpacklo_epi32(l1, h1), middle),
                              _mm_xor_si128(_mm_unpackhi_epi32(l1, h1), middle) };

    for (int i = 0; i < 4; i++, out += 2 * stride) {
        _mm_storel_epi64((__m128i *)out, rows[i]);
        _mm_storeh_pd((double *)(void *)(out + stride), _mm_castsi128_pd(rows[i]));
    }
}

static AVX2 void idct8(const int16_t *c, const int16_t *q, uint8_t *out, ptrdiff_t stride)
{
    __m128i r[8];

    for (int i = 0; i < 8; i++)
        r[i] = _mm_mullo_epi16(_mm_load_si128((const __m128i *)c + i),
                               _mm_load_si128((const __m128i *)q + i));
    pass(r, 11);
    transpose(r);
    pass(r, 18);
    store8(r, out, stride);
}

/* Reduced to four: one pass over eight columns, of which r[4] is not looked at; r[0] to r[3] come out. */
static inline AVX2 void pass4(__m128i r[8], const int bits)
{
    const __m256i p26 = zip(r[2], r[6]), p71 = zip(r[7], r[1]), p53 = zip(r[5], r[3]);
    const __m256i half = _mm256_set1_epi32(1 << (bits - 1));
    const __m256i even =
        _mm256_add_epi32(_mm256_madd_epi16(zip(r[0], _mm_setzero_si128()), pair(16384, 0)), half);
    const __m256i e2 = _mm256_madd_epi16(p26, pair(15137, -6270));
    const __m256i a0 = _mm256_add_epi32(even, e2), a1 = _mm256_sub_epi32(even, e2);
    const __m256i o0 = _mm256_add_epi32(_mm256_madd_epi16(p71, pair(-1730, 8697)),
                                        _mm256_madd_epi16(p53, pair(11893, -17799)));
    const __m256i o1 = _mm256_add_epi32(_mm256_madd_epi16(p71, pair(-4176, 20995)),
                                        _mm256_madd_epi16(p53, pair(-4926, 7373)));

    r[0] = narrow(_mm256_srai_epi32(_mm256_add_epi32(a0, o1), bits));
    r[3] = narrow(_mm256_srai_epi32(_mm256_sub_epi32(a0, o1), bits));
    r[1] = narrow(_mm256_srai_epi32(_mm256_add_epi32(a1, o0), bits));
    r[2] = narrow(_mm256_srai_epi32(_mm256_sub_epi32(a1, o0), bits));
}

static AVX2 void idct4(const int16_t *c, const int16_t *q, uint8_t *out, ptrdiff_t stride)
{
    const __m128i middle = _mm_set1_epi8((char)0x80);
    __m128i r[8];
    uint8_t samples[16];

    for (int i = 0; i < 8; i++)
        r[i] = _mm_mullo_epi16(_mm_load_si128((const __m128i *)c + i),
                               _mm_load_si128((const __m128i *)q + i));
    pass4(r, 12);
    for (int i = 4; i < 8; i++)
        r[i] = _mm_setzero_si128();
    transpose(r);
    pass4(r, 19);
    const __m128i a = _mm_packs_epi16(r[0], r[2]), b = _mm_packs_epi16(r[1], r[3]);
    const __m128i rows = _mm_unpacklo_epi16(_mm_unpacklo_epi8(a, b), _mm_unpackhi_epi8(a, b));
    _mm_storeu_si128((__m128i *)samples, _mm_xor_si128(rows, middle));
    for (int y = 0; y < 4; y++, out += stride)
        memcpy(out, samples + 4 * y, 4);
}

/* ---- colour --------------------------------------------------------------------------------------- */

/* (f a + g b + 32768) >> 16 for sixteen pairs. */
static inline AVX2 __m256i scaled(__m256i lo, __m256i hi, __m256i factors)
{
    const __m256i half = _mm256_set1_epi32(32768);

    return _mm256_packs_epi32(
        _mm256_srai_epi32(_mm256_add_epi32(_mm256_madd_epi16(lo, factors), half), 16),
        _mm256_srai_epi32(_mm256_add_epi32(_mm256_madd_epi16(hi, factors), half), 16));
}

/* Sixteen 16-bit values, saturated to bytes, in order. */
static inline AVX2 __m128i bytes(__m256i v)
{
    return _mm_packus_epi16(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
}

static inline AVX2 __m128i gather3(__m128i r, __m128i g, __m128i b, __m128i ri, __m128i gi,
                                   __m128i bi)
{
    return _mm_or_si128(_mm_or_si128(_mm_shuffle_epi8(r, ri), _mm_shuffle_epi8(g, gi)),
                        _mm_shuffle_epi8(b, bi));
}

static inline AVX2 void interleave(__m128i r, __m128i g, __m128i b, uint8_t *out)
{
    const __m128i r0 = _mm_setr_epi8(0, -1, -1, 1, -1, -1, 2, -1, -1, 3, -1, -1, 4, -1, -1, 5);
    const __m128i g0 = _mm_setr_epi8(-1, 0, -1, -1, 1, -1, -1, 2, -1, -1, 3, -1, -1, 4, -1, -1);
    const __m128i b0 = _mm_setr_epi8(-1, -1, 0, -1, -1, 1, -1, -1, 2, -1, -1, 3, -1, -1, 4, -1);
    const __m128i r1 = _mm_setr_epi8(-1, -1, 6, -1, -1, 7, -1, -1, 8, -1, -1, 9, -1, -1, 10, -1);
    const __m128i g1 = _mm_setr_epi8(5, -1, -1, 6, -1, -1, 7, -1, -1, 8, -1, -1, 9, -1, -1, 10);
    const __m128i b1 = _mm_setr_epi8(-1, 5, -1, -1, 6, -1, -1, 7, -1, -1, 8, -1, -1, 9, -1, -1);
    const __m128i r2 =
        _mm_setr_epi8(-1, 11, -1, -1, 12, -1, -1, 13, -1, -1, 14, -1, -1, 15, -1, -1);
    const __m128i g2 =
        _mm_setr_epi8(-1, -1, 11, -1, -1, 12, -1, -1, 13, -1, -1, 14, -1, -1, 15, -1);
    const __m128i b2 =
        _mm_setr_epi8(10, -1, -1, 11, -1, -1, 12, -1, -1, 13, -1, -1, 14, -1, -1, 15);

    _mm_storeu_si128((__m128i *)out, gather3(r, g, b, r0, g0, b0));
    _mm_storeu_si128((__m128i *)(out + 16), gather3(r, g, b, r1, g1, b1));
    _mm_storeu_si128((__m128i *)(out + 32), gather3(r, g, b, r2, g2, b2));
}

static AVX2 void ycc_rgb(const uint8_t *y, const uint8_t *cb, const uint8_t *cr, uint8_t *rgb,
                         int n)
{
    const __m256i middle = _mm256_set1_epi16(128);
    int i = 0;

    for (; i + 16 <= n; i += 16, rgb += 48) {
        const __m256i yy = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(y + i)));
        const __m256i b = _mm256_sub_epi16(
            _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(cb + i))), middle);
        const __m256i r = _mm256_sub_epi16(
            _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(cr + i))), middle);
        const __m256i lo = _mm256_unpacklo_epi16(b, r), hi = _mm256_unpackhi_epi16(b, r);
        // 91881 = 65536 + 26345, -46802 = 18734 - 65536, 116130 = 131072 - 14942
        const __m256i red = _mm256_add_epi16(r, scaled(lo, hi, pair(0, 26345)));
        const __m256i green = _mm256_sub_epi16(scaled(lo, hi, pair(-22554, 18734)), r);
        const __m256i blue =
            _mm256_add_epi16(_mm256_add_epi16(b, b), scaled(lo, hi, pair(-14942, 0)));
        interleave(bytes(_mm256_add_epi16(yy, red)), bytes(_mm256_add_epi16(yy, green)),
                   bytes(_mm256_add_epi16(yy, blue)), rgb);
    }
    fl_ycc_rgb_c(y + i, cb + i, cr + i, rgb, n - i);
}

/* ---- upsampling ----------------------------------------------------------------------------------- */

static AVX2 void h2v1(const uint8_t *in, uint8_t *out, int n)
{
    const __m256i one = _mm256_set1_epi16(1), two = _mm256_set1_epi16(2);

    for (int i = 0; i < n; i += 16) { // rows are padded
        const __m256i v = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(in + i)));
        const __m256i l = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(in + i - 1)));
        const __m256i r = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(in + i + 1)));
        const __m256i v3 = _mm256_add_epi16(_mm256_add_epi16(v, v), v);
        const __m256i even = _mm256_srli_epi16(_mm256_add_epi16(_mm256_add_epi16(v3, l), one), 2);
        const __m256i odd = _mm256_srli_epi16(_mm256_add_epi16(_mm256_add_epi16(v3, r), two), 2);
        _mm256_storeu_si256((__m256i *)(out + 2 * i),
                            _mm256_or_si256(even, _mm256_slli_epi16(odd, 8)));
    }
}

static AVX2 void h2v2(const int16_t *in, uint8_t *out, int n)
{
    const __m256i eight = _mm256_set1_epi16(8), seven = _mm256_set1_epi16(7);

    for (int i = 0; i < n; i += 16) {
        const __m256i v = _mm256_loadu_si256((const __m256i *)(in + i));
        const __m256i l = _mm256_loadu_si256((const __m256i *)(in + i - 1));
        const __m256i r = _mm256_loadu_si256((const __m256i *)(in + i + 1));
        const __m256i v3 = _mm256_add_epi16(_mm256_add_epi16(v, v), v);
        const __m256i even = _mm256_srli_epi16(_mm256_add_epi16(_mm256_add_epi16(v3, l), eight), 4);
        const __m256i odd = _mm256_srli_epi16(_mm256_add_epi16(_mm256_add_epi16(v3, r), seven), 4);
        _mm256_storeu_si256((__m256i *)(out + 2 * i),
                            _mm256_or_si256(even, _mm256_slli_epi16(odd, 8)));
    }
}

const struct fl_pixel_ops fl_pixel_ops_avx2 = {
    .name = "avx2",
    .idct = { fl_idct1_c, fl_idct2_c, idct4, idct8 },
    .ycc_rgb = ycc_rgb,
    .h2v1 = h2v1,
    .h2v2 = h2v2,
};
