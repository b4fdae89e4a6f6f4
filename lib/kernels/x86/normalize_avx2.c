/* SPDX-License-Identifier: Apache-2.0 */
/* AVX2, FMA, F16C. uint8 to floating point without divisions, where fl_normalize_init() found that to give the
 * table's bits; else the table. */
#include <immintrin.h>

#include "kernels/variants.h"
#include "kernels/x86/avx2.h"

/* The constants of eight neighbouring elements. */
struct eight {
    __m256 mean, std, r_std;
};

struct constants {
    __m256 r255, r255_low;
};

static inline __m256 normal(__m256i x, const struct constants *k, const struct eight *e)
{
    const __m256 f = _mm256_cvtepi32_ps(x);
    const __m256 q = _mm256_fmadd_ps(f, k->r255, _mm256_mul_ps(f, k->r255_low));
    const __m256 d = _mm256_sub_ps(q, e->mean), y = _mm256_mul_ps(d, e->r_std);

    return _mm256_fmadd_ps(_mm256_fnmadd_ps(y, e->std, d), e->r_std, y);
}

/* Round to nearest even; the table holds no NaN, or `arithmetic` would be false (NaN differs from itself only in
 * bits, which are compared). */
static inline __m128i to_bf16(__m256 v)
{
    const __m256i u = _mm256_castps_si256(v);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
    const __m256i r = _mm256_srli_epi32(
        _mm256_add_epi32(_mm256_add_epi32(u, _mm256_set1_epi32(0x7FFF)), odd), 16);
    const __m256i p = _mm256_permute4x64_epi64(_mm256_packus_epi32(r, r), 0x08);

    return _mm256_castsi256_si128(p);
}

/* Eight values to element i of dst. */
static inline __attribute__((always_inline)) void put(FlDtype dtype, void *dst, size_t i, __m256 v,
                                                      bool stream)
{
    if (dtype == FL_F32 && stream)
        _mm256_stream_ps((float *)dst + i, v);
    else if (dtype == FL_F32)
        _mm256_storeu_ps((float *)dst + i, v);
    else {
        const __m128i h =
            dtype == FL_F16 ? _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT) : to_bf16(v);
        __m128i *to = (__m128i *)((uint16_t *)dst + i);
        if (stream)
            _mm_stream_si128(to, h);
        else
            _mm_storeu_si128(to, h);
    }
}

/* The elements that fill no vector, by the table. */
static inline void rest(const struct fl_normalize *n, const uint8_t *src, size_t from,
                        size_t pixels, void *dst, size_t plane)
{
    const size_t bytes = n->dtype == FL_F32 ? 4 : 2;
    const size_t to = n->layout == FL_NHWC ? from * (size_t)n->channels : from;

    if (from < pixels)
        fl_normalize_c(n, src + from * (size_t)n->channels, pixels - from,
                       (uint8_t *)dst + to * bytes, plane, false);
}

static inline struct eight eight_of(const struct fl_normalize *n, int first, int step)
{
    float mean[8], std[8], r_std[8];

    for (int i = 0; i < 8; i++) {
        const int c = (first + i * step) % n->channels;
        mean[i] = n->mean[c];
        std[i] = n->std[c];
        r_std[i] = n->r_std[c];
    }
    return (struct eight){ _mm256_loadu_ps(mean), _mm256_loadu_ps(std), _mm256_loadu_ps(r_std) };
}

/* Elements in the order in which they stand. The channels repeat after three vectors. */
static inline __attribute__((always_inline)) void interleaved(const struct fl_normalize *n,
                                                              FlDtype dtype, const uint8_t *src,
                                                              size_t pixels, void *dst, bool stream)
{
    const struct constants k = { _mm256_set1_ps(n->r255), _mm256_set1_ps(n->r255_low) };
    const struct eight e[3] = { eight_of(n, 0, 1), eight_of(n, 8, 1), eight_of(n, 16, 1) };
    const size_t elements = pixels * (size_t)n->channels, all = elements / 24 * 24;

    for (size_t i = 0; i < all; i += 24)
        for (size_t j = 0; j < 3; j++) {
            const __m128i b = _mm_loadl_epi64((const __m128i *)(src + i + 8 * j));
            put(dtype, dst, i + 8 * j, normal(_mm256_cvtepu8_epi32(b), &k, &e[j]), stream);
        }
    rest(n, src, all / (size_t)n->channels, pixels, dst, 0);
}

/* Eight pixels of three channels to three planes. */
static inline __attribute__((always_inline)) void planes3(const struct fl_normalize *n,
                                                          FlDtype dtype, const uint8_t *src,
                                                          size_t pixels, void *dst, size_t plane,
                                                          bool stream)
{
    // Byte c of pixels 0-3 lies in the bytes from 0 on, that of pixels 4-7 in those from 8 on.
    const __m256i red =
        _mm256_setr_epi8(0, -1, -1, -1, 3, -1, -1, -1, 6, -1, -1, -1, 9, -1, -1, -1, 4, -1, -1, -1,
                         7, -1, -1, -1, 10, -1, -1, -1, 13, -1, -1, -1);
    const struct constants k = { _mm256_set1_ps(n->r255), _mm256_set1_ps(n->r255_low) };
    const struct eight e[3] = { eight_of(n, 0, 0), eight_of(n, 1, 0), eight_of(n, 2, 0) };
    const size_t all = pixels / 8 * 8;
    __m256i pick[3];

    for (int c = 0; c < 3; c++) // a byte of -1 stays negative: it clears
        pick[c] =
            _mm256_add_epi8(red, _mm256_and_si256(_mm256_cmpgt_epi8(red, _mm256_set1_epi8(-1)),
                                                  _mm256_set1_epi8((char)c)));
    for (size_t i = 0; i < all; i += 8) {
        const uint8_t *s = src + 3 * i;
        const __m256i v =
            _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)s)),
                                    _mm_loadu_si128((const __m128i *)(s + 8)), 1);
        for (size_t c = 0; c < 3; c++)
            put(dtype, dst, c * plane + i, normal(_mm256_shuffle_epi8(v, pick[c]), &k, &e[c]),
                stream);
    }
    rest(n, src, all, pixels, dst, plane);
}

static inline __attribute__((always_inline)) void typed(const struct fl_normalize *n, FlDtype dtype,
                                                        const uint8_t *src, size_t pixels,
                                                        void *dst, size_t plane, bool stream)
{
    if (n->layout == FL_NHWC || n->channels == 1)
        interleaved(n, dtype, src, pixels, dst, stream);
    else
        planes3(n, dtype, src, pixels, dst, plane, stream);
}

/* Bytes to planes, 16 pixels at a time. */
static void split_bytes(const struct fl_normalize *n, const uint8_t *src, size_t pixels,
                        uint8_t *dst, size_t plane)
{
    static const int8_t from[3][3][16] = {
        // [channel][which of the three vectors]
        { { 0, 3, 6, 9, 12, 15, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1 },
          { -1, -1, -1, -1, -1, -1, 2, 5, 8, 11, 14, -1, -1, -1, -1, -1 },
          { -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 1, 4, 7, 10, 13 } },
        { { 1, 4, 7, 10, 13, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1 },
          { -1, -1, -1, -1, -1, 0, 3, 6, 9, 12, 15, -1, -1, -1, -1, -1 },
          { -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 2, 5, 8, 11, 14 } },
        { { 2, 5, 8, 11, 14, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1 },
          { -1, -1, -1, -1, -1, 1, 4, 7, 10, 13, -1, -1, -1, -1, -1, -1 },
          { -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 0, 3, 6, 9, 12, 15 } },
    };
    const size_t all = pixels / 16 * 16;

    for (size_t i = 0; i < all; i += 16)
        for (size_t c = 0; c < 3; c++) {
            __m128i v = _mm_setzero_si128();
            for (size_t j = 0; j < 3; j++)
                v = _mm_or_si128(
                    v, _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(src + 3 * i + 16 * j)),
                                        _mm_loadu_si128((const __m128i *)from[c][j])));
            _mm_storeu_si128((__m128i *)(dst + c * plane + i), v);
        }
    if (all < pixels)
        fl_normalize_c(n, src + 3 * all, pixels - all, dst + all, plane, false);
}

void fl_normalize_avx2(const struct fl_normalize *n, const uint8_t *src, size_t pixels, void *dst,
                       size_t plane, bool stream)
{
    const size_t bytes = n->dtype == FL_F32 ? 4 : 2, align = n->dtype == FL_F32 ? 32 : 16;
    const bool one = n->layout == FL_NHWC || n->channels == 1;

    if (n->dtype == FL_U8 && !one) {
        split_bytes(n, src, pixels, dst, plane);
        return;
    }
    if (n->dtype == FL_U8 || !n->arithmetic) {
        fl_normalize_c(n, src, pixels, dst, plane, stream);
        return;
    }
    stream &= (uintptr_t)dst % align == 0 && (one || plane * bytes % align == 0);
    if (n->dtype == FL_F32 && stream)
        typed(n, FL_F32, src, pixels, dst, plane, true);
    else if (n->dtype == FL_F32)
        typed(n, FL_F32, src, pixels, dst, plane, false);
    else if (n->dtype == FL_F16)
        typed(n, FL_F16, src, pixels, dst, plane, stream);
    else
        typed(n, FL_BF16, src, pixels, dst, plane, stream);
    if (stream)
        _mm_sfence(); // streamed stores are seen before whatever says that the row is done
}
