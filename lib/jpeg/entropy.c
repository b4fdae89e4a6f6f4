/* SPDX-License-Identifier: Apache-2.0 */
#include "jpeg/entropy.h"

#include <string.h>

#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)

/* Zigzag to natural order. An index beyond the block, which only damaged data and the end-of-block entry
 * reach, is its last coefficient, as in libjpeg. */
static const uint8_t natural[128] = {
    0,  1,  8,  16, 9,  2,  3,  10, 17, 24, 32, 25, 18, 11, 4,  5,  12, 19, 26, 33, 40, 48,
    41, 34, 27, 20, 13, 6,  7,  14, 21, 28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23,
    30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63, 63, 63,
    63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63,
    63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63,
    63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63,
};

size_t fl_unstuff(const uint8_t *src, size_t len, uint8_t *dst, size_t *used)
{
    const uint8_t *p = src, *const end = src + len;
    uint8_t *out = dst;

    for (;;) {
        const uint8_t *ff = memchr(p, 0xFF, (size_t)(end - p));
        const uint8_t *stop = ff ? ff + 1 : end;
        const bool stuffed = ff && stop < end && *stop == 0;
        const size_t n = (size_t)((stuffed || !ff ? stop : ff) - p);
        memcpy(out, p, n);
        out += n;
        p += n;
        if (!stuffed)
            break; // a marker, or all bytes are used
        p++;
    }
    memset(out, 0, FL_ENTROPY_PAD);
    *used = (size_t)(p - src);
    return (size_t)(out - dst);
}

static inline void refill(struct fl_bit_reader *b)
{
    uint64_t next;

    memcpy(&next, b->p, sizeof(next));
    b->bits |= __builtin_bswap64(next) >> b->n;
    b->p += (63 - b->n) >> 3;
    b->n |= 56;
}

static inline void take(struct fl_bit_reader *b, uint32_t total)
{
    b->bits <<= total;
    b->n -= total;
}

void fl_reader_start(struct fl_bit_reader *b, const uint8_t *bytes, size_t len, unsigned bit)
{
    *b = (struct fl_bit_reader){ .p = bytes, .end = bytes + len };
    refill(b);
    take(b, bit);
}

/* Value of the extra bits at the end of an entry's `total` bits. */
static inline int value(uint64_t bits, uint32_t e)
{
    const uint32_t extra = FL_HUFF_EXTRA(e);
    const int all = (int)(1u << extra);
    const int v = (int)(bits >> (64 - FL_HUFF_TOTAL(e))) & (all - 1);

    return v < all >> 1 ? v - all + 1 : v;
}

/* A code beyond the first level; one that does not exist fails and ends the block. */
static __attribute__((noinline)) uint32_t long_code(struct fl_bit_reader *b,
                                                    const struct fl_huff *h)
{
    const uint32_t e = fl_huff_long(h, b->bits);

    if (e)
        return e;
    b->failed = true;
    return FL_HUFF_END << 10 | 1;
}

static inline uint32_t ac_entry(struct fl_bit_reader *b, const struct fl_huff_ac *t)
{
    const uint32_t e = t->fast[b->bits >> (64 - FL_HUFF_AC_BITS)];

    return LIKELY(e) ? e : long_code(b, &t->code);
}

static inline int dc_difference(struct fl_bit_reader *b, const struct fl_huff_dc *t)
{
    uint32_t e = t->fast[b->bits >> (64 - FL_HUFF_DC_BITS)];
    int v;

    if (UNLIKELY(!e))
        e = long_code(b, &t->code);
    v = value(b->bits, e);
    take(b, FL_HUFF_TOTAL(e));
    return v;
}

bool fl_decode_block(struct fl_bit_reader *b, const struct fl_huff_dc *dc_table,
                     const struct fl_huff_ac *ac_table, int *dc, int16_t coefficients[64])
{
    struct fl_bit_reader s = *b; // in registers
    uint32_t k, e;

    memset(coefficients, 0, 64 * sizeof(*coefficients));
    refill(&s);
    // A refill holds two codes: at most 27 bits for DC, 26 for AC.
    *dc += dc_difference(&s, dc_table);
    coefficients[0] = (int16_t)*dc;
    e = ac_entry(&s, ac_table);
    k = FL_HUFF_STEP(e);
    if (k == FL_HUFF_END && !FL_HUFF_EXTRA(e)) {
        take(&s, FL_HUFF_TOTAL(e));
        *b = s;
        return false;
    }
    for (;;) {
        coefficients[natural[k]] = (int16_t)value(s.bits, e);
        take(&s, FL_HUFF_TOTAL(e));
        if (k >= 63)
            break;
        refill(&s);
        e = ac_entry(&s, ac_table);
        k += FL_HUFF_STEP(e);
        coefficients[natural[k]] = (int16_t)value(s.bits, e);
        take(&s, FL_HUFF_TOTAL(e));
        if (k >= 63)
            break;
        e = ac_entry(&s, ac_table);
        k += FL_HUFF_STEP(e);
    }
    *b = s;
    return true;
}

void fl_skip_block(struct fl_bit_reader *b, const struct fl_huff_dc *dc_table,
                   const struct fl_huff_ac *ac_table, int *dc)
{
    struct fl_bit_reader s = *b;
    uint32_t k = 0, e;

    refill(&s);
    *dc += dc_difference(&s, dc_table);
    for (;;) {
        e = ac_entry(&s, ac_table);
        k += FL_HUFF_STEP(e);
        take(&s, FL_HUFF_TOTAL(e));
        if (k >= 63)
            break;
        refill(&s);
        e = ac_entry(&s, ac_table);
        k += FL_HUFF_STEP(e);
        take(&s, FL_HUFF_TOTAL(e));
        if (k >= 63)
            break;
    }
    *b = s;
}

void fl_skip_mcus(struct fl_bit_reader *b, const struct fl_mcu *mcu, uint32_t n, int dc[4])
{
    for (uint32_t i = 0; i < n; i++)
        for (unsigned k = 0; k < mcu->n_blocks; k++) {
            if (UNLIKELY(b->p > b->end))
                if (fl_reader_overrun(b))
                    return;
            fl_skip_block(b, mcu->dc[k], mcu->ac[k], &dc[mcu->component[k]]);
        }
}
