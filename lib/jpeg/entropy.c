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

/* Is one of eight bytes 0xFF? */
static inline bool has_ff(uint64_t v)
{
    return (v & ~(v + 0x0101010101010101u) & 0x8080808080808080u) != 0;
}

size_t fl_unstuff(const uint8_t *src, size_t len, uint8_t *dst, size_t *used)
{
    const uint8_t *p = src, *const end = src + len;
    uint8_t *out = dst;

    for (;;) {
        uint64_t v;
        while (end - p >= 8 && (memcpy(&v, p, 8), !has_ff(v))) {
            memcpy(out, p, 8);
            out += 8;
            p += 8;
        }
        // Up to eight bytes one by one: the vector had an 0xFF, or the end is near.
        const uint8_t *const stop = end - p >= 8 ? p + 8 : end;
        while (p < stop && (*p != 0xFF || (end - p >= 2 && p[1] == 0))) {
            *out++ = *p;
            p += *p == 0xFF ? 2 : 1;
        }
        if (p >= end || (p < stop && *p == 0xFF))
            break; // all bytes are used, or a marker
    }
    memset(out, 0, FL_ENTROPY_PAD);
    *used = (size_t)(p - src);
    return (size_t)(out - dst);
}

/* Load bytes until at least 56 bits are there. */
#define REFILL(s)                                                                                  \
    do {                                                                                           \
        uint64_t next_;                                                                            \
        memcpy(&next_, (s).p, sizeof(next_));                                                      \
        (s).n &= 63;                                                                               \
        (s).bits |= __builtin_bswap64(next_) >> (s).n;                                             \
        (s).p += (63 - (s).n) >> 3;                                                                \
        (s).n |= 56;                                                                               \
    } while (0)

/* Leave an entry's bits behind. The counts are right modulo 64, which is what shifts look at, and what
 * REFILL() needs: there are never more than 63 bits. */
#define TAKE(s, e)                                                                                 \
    do {                                                                                           \
        (s).bits <<= (e)&63;                                                                       \
        (s).n -= (e);                                                                              \
    } while (0)

void fl_reader_start(struct fl_bit_reader *b, const uint8_t *bytes, size_t len, unsigned bit)
{
    *b = (struct fl_bit_reader){ .p = bytes, .end = bytes + len };
    REFILL(*b);
    TAKE(*b, bit);
    b->n &= 63;
}

/* By number of extra bits: the least value with a leading one, and what makes the others negative. */
static const int16_t half[16] = { 0,   1,   2,   4,    8,    16,   32,   64,
                                  128, 256, 512, 1024, 2048, 4096, 8192, 16384 };
static const int16_t bias[16] = { 0,    -1,   -3,    -7,    -15,   -31,   -63,    -127,
                                  -255, -511, -1023, -2047, -4095, -8191, -16383, -32767 };

/* Value of a raw entry's extra bits, which are the last of its bits. */
static inline int value(uint64_t bits, uint32_t e)
{
    const uint32_t extra = FL_HUFF_EXTRA(e);
    const int v = (int)(bits >> (-e & 63)) & ((1 << extra) - 1);

    return v + (bias[extra] & (v - half[extra]) >> 31); // never a branch: signs are random
}

#define NO_CODE (FL_HUFF_END << 8 | 1) // stands for a code that does not exist: it ends the block

/* A code longer than the first level: its raw entry. *failed is set where there is none. */
static __attribute__((noinline)) uint32_t long_code(const struct fl_huff *h, uint64_t bits,
                                                    bool *failed)
{
    const uint32_t e = fl_huff_long(h, bits);

    *failed = *failed || !e;
    return e ? e : NO_CODE;
}

/* The rest of an AC entry without a value: the entry with one. */
static __attribute__((noinline)) uint32_t finish(const struct fl_huff_ac *t, uint64_t bits,
                                                 uint32_t e, bool *failed)
{
    if (e == FL_HUFF_LONG)
        e = long_code(&t->code, bits, failed);
    return (e & 0xFF3F) | (e & FL_HUFF_RAW ? (uint32_t)value(bits, e) << 16 : 0);
}

#define AC_ENTRY(e, s, t, failed)                                                                  \
    do {                                                                                           \
        (e) = (t)->fast[(s).bits >> (64 - FL_HUFF_AC_BITS)];                                       \
        if (UNLIKELY((e)&FL_HUFF_RAW)) {                                                           \
            bool failed_ = false;                                                                  \
            (e) = finish(t, (s).bits, e, &failed_);                                                \
            (failed) |= failed_;                                                                   \
        }                                                                                          \
    } while (0)

static inline int dc_difference(struct fl_bit_reader *s, const struct fl_huff_dc *t)
{
    uint32_t e = t->fast[s->bits >> (64 - FL_HUFF_DC_BITS)];
    int v;

    if (UNLIKELY(e == FL_HUFF_LONG))
        e = long_code(&t->code, s->bits, &s->failed);
    v = e & FL_HUFF_RAW ? value(s->bits, e) : 0;
    TAKE(*s, e);
    return v;
}

/* In pieces that compilers turn into plain stores; a string instruction takes longer to begin than that. */
static inline void clear(int16_t *coefficients, int blocks)
{
    for (int i = 0; i < 64 * blocks; i += 32)
        memset(coefficients + i, 0, 32 * sizeof(*coefficients));
}

/* The part of a reader that the inner loops keep in registers. */
struct lane {
    uint64_t bits;
    const uint8_t *p;
    uint32_t n;
};

static inline struct lane lane_of(const struct fl_bit_reader *b)
{
    return (struct lane){ b->bits, b->p, b->n };
}

static inline void put_back(struct fl_bit_reader *b, struct lane s, bool failed)
{
    b->bits = s.bits;
    b->p = s.p;
    b->n = s.n & 63;
    b->failed |= failed;
}

/* The entry that says: no coefficient besides DC. */
static inline bool ends(uint32_t e)
{
    return FL_HUFF_STEP(e) == FL_HUFF_END && !(e >> 16);
}

/* Next coefficient's entry and place. */
#define NEXT(e, k, s, t, failed)                                                                   \
    do {                                                                                           \
        AC_ENTRY(e, s, t, failed);                                                                 \
        (k) += FL_HUFF_STEP(e);                                                                    \
    } while (0)

/* Store it and leave its bits behind. */
#define STORE(e, k, s, coefficients)                                                               \
    do {                                                                                           \
        (coefficients)[natural[k]] = (int16_t)((e) >> 16);                                         \
        TAKE(s, e);                                                                                \
    } while (0)

/* Coefficients up to the end of a block of which those up to k are stored. */
static inline void rest_of_block(struct lane *lane, const struct fl_huff_ac *t, uint32_t k,
                                 int16_t *coefficients, bool *failed)
{
    struct lane s = *lane;
    bool bad = false;
    uint32_t e;

    while (k < 63) {
        REFILL(s);
        NEXT(e, k, s, t, bad);
        STORE(e, k, s, coefficients);
        if (k >= 63)
            break;
        NEXT(e, k, s, t, bad);
        STORE(e, k, s, coefficients);
    }
    *lane = s;
    *failed |= bad;
}

bool fl_decode_block(struct fl_bit_reader *b, const struct fl_huff_dc *dc_table,
                     const struct fl_huff_ac *ac_table, int *dc, int16_t coefficients[64])
{
    bool failed = false, more;
    uint32_t k = 0, e;

    clear(coefficients, 1);
    REFILL(*b);
    // A refill holds two codes: at most 27 bits for DC, 26 for AC.
    *dc += dc_difference(b, dc_table);
    coefficients[0] = (int16_t)*dc;
    struct lane s = lane_of(b);
    NEXT(e, k, s, ac_table, failed);
    more = !ends(e);
    STORE(e, k, s, coefficients);
    rest_of_block(&s, ac_table, k, coefficients, &failed);
    put_back(b, s, failed);
    return more;
}

unsigned fl_decode_blocks(struct fl_bit_reader *const b[2], const struct fl_huff_dc *dc_table,
                          const struct fl_huff_ac *ac_table, int *const dc[2],
                          int16_t coefficients[2][64])
{
    int16_t *const c0 = coefficients[0], *const c1 = coefficients[1];
    bool failed0 = false, failed1 = false;
    uint32_t k0 = 0, k1 = 0, e0, e1;
    unsigned more;

    clear(c0, 2);
    REFILL(*b[0]);
    REFILL(*b[1]);
    *dc[0] += dc_difference(b[0], dc_table);
    *dc[1] += dc_difference(b[1], dc_table);
    c0[0] = (int16_t)*dc[0];
    c1[0] = (int16_t)*dc[1];
    struct lane s0 = lane_of(b[0]), s1 = lane_of(b[1]);
    NEXT(e0, k0, s0, ac_table, failed0);
    NEXT(e1, k1, s1, ac_table, failed1);
    more = (ends(e0) ? 0 : 1) | (ends(e1) ? 0 : 2);
    for (;;) { // two codes to a refill here too, and the end looked for after each
        STORE(e0, k0, s0, c0);
        STORE(e1, k1, s1, c1);
        if (k0 >= 63 || k1 >= 63)
            break;
        REFILL(s0);
        REFILL(s1);
        NEXT(e0, k0, s0, ac_table, failed0);
        NEXT(e1, k1, s1, ac_table, failed1);
        STORE(e0, k0, s0, c0);
        STORE(e1, k1, s1, c1);
        if (k0 >= 63 || k1 >= 63)
            break;
        NEXT(e0, k0, s0, ac_table, failed0);
        NEXT(e1, k1, s1, ac_table, failed1);
    }
    rest_of_block(&s0, ac_table, k0, c0, &failed0);
    rest_of_block(&s1, ac_table, k1, c1, &failed1);
    put_back(b[0], s0, failed0);
    put_back(b[1], s1, failed1);
    return more;
}

void fl_skip_block(struct fl_bit_reader *b, const struct fl_huff_dc *dc_table,
                   const struct fl_huff_ac *ac_table, int *dc)
{
    bool failed = false;
    uint32_t k = 0, e;

    REFILL(*b);
    *dc += dc_difference(b, dc_table);
    struct lane s = lane_of(b);
    for (;;) {
        NEXT(e, k, s, ac_table, failed);
        TAKE(s, e);
        if (k >= 63)
            break;
        REFILL(s);
        NEXT(e, k, s, ac_table, failed);
        TAKE(s, e);
        if (k >= 63)
            break;
    }
    put_back(b, s, failed);
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
