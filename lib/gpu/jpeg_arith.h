/* SPDX-License-Identifier: Apache-2.0 */
/* GPU JPEG: the arithmetic, as C11 that nvcc takes too, so that the host tests of every build hold
 * it against libjpeg-turbo. Integer arithmetic of libjpeg-turbo's accurate path: the islow inverse
 * DCT and its reduced sizes (constants: cosines times 2^13), triangle-filter upsampling, ITU-R
 * BT.601 with 16 fractional bits. Results are clamped, as its SIMD code does; they are equal for
 * coefficients in an encoder's range. Sums wrap in 32 bits, whatever the bytes are. */
#ifndef FL_GPU_JPEG_ARITH_H
#define FL_GPU_JPEG_ARITH_H

#include <stdint.h>

#include "gpu/jpeg_desc.h"

#ifdef __CUDACC__
#define FL_HD static __host__ __device__ __forceinline__
#else
#define FL_HD static inline
#endif
#if defined(__CUDA_ARCH__)
#define FL_UNROLL _Pragma("unroll")
#else
#define FL_UNROLL
#endif

/* Products and left shifts that wrap. */
FL_HD int32_t fl_mul(int32_t a, int32_t b)
{
    return (int32_t)((uint32_t)a * (uint32_t)b);
}

FL_HD int32_t fl_add(int32_t a, int32_t b)
{
    return (int32_t)((uint32_t)a + (uint32_t)b);
}

FL_HD int32_t fl_sub(int32_t a, int32_t b)
{
    return (int32_t)((uint32_t)a - (uint32_t)b);
}

FL_HD uint8_t fl_clamp8(int32_t x)
{
    return (uint8_t)(x < 0 ? 0 : x > 255 ? 255 : x);
}

/* Divide by 2^shift, rounded. */
FL_HD int32_t fl_descale(int32_t x, int shift)
{
    return fl_add(x, 1 << (shift - 1)) >> shift;
}

/* ---- inverse DCT ------------------------------------------------------------------------------ */

/* One row or column of 8, in place: v becomes the transform times 2^13, descaled by `shift`. */
FL_HD void fl_idct8_line(int32_t v[8], int shift)
{
    const int32_t e = fl_mul(fl_add(v[2], v[6]), 4433); // 0.541196100
    const int32_t e2 = fl_sub(e, fl_mul(v[6], 15137));  // 1.847759065
    const int32_t e3 = fl_add(e, fl_mul(v[2], 6270));   // 0.765366865
    const int32_t e0 = fl_mul(fl_add(v[0], v[4]), 8192), e1 = fl_mul(fl_sub(v[0], v[4]), 8192);
    const int32_t a0 = fl_add(e0, e3), a3 = fl_sub(e0, e3), a1 = fl_add(e1, e2),
                  a2 = fl_sub(e1, e2);

    const int32_t z5 = fl_mul(fl_add(fl_add(v[7], v[3]), fl_add(v[5], v[1])), 9633); // 1.175875602
    const int32_t z1 = fl_mul(fl_add(v[7], v[1]), -7373);                            // 0.899976223
    const int32_t z2 = fl_mul(fl_add(v[5], v[3]), -20995);                           // 2.562915447
    const int32_t z3 = fl_add(fl_mul(fl_add(v[7], v[3]), -16069), z5);               // 1.961570560
    const int32_t z4 = fl_add(fl_mul(fl_add(v[5], v[1]), -3196), z5);                // 0.390180644
    const int32_t o0 = fl_add(fl_mul(v[7], 2446), fl_add(z1, z3));                   // 0.298631336
    const int32_t o1 = fl_add(fl_mul(v[5], 16819), fl_add(z2, z4));                  // 2.053119869
    const int32_t o2 = fl_add(fl_mul(v[3], 25172), fl_add(z2, z3));                  // 3.072711026
    const int32_t o3 = fl_add(fl_mul(v[1], 12299), fl_add(z1, z4));                  // 1.501321110

    v[0] = fl_descale(fl_add(a0, o3), shift);
    v[7] = fl_descale(fl_sub(a0, o3), shift);
    v[1] = fl_descale(fl_add(a1, o2), shift);
    v[6] = fl_descale(fl_sub(a1, o2), shift);
    v[2] = fl_descale(fl_add(a2, o1), shift);
    v[5] = fl_descale(fl_sub(a2, o1), shift);
    v[3] = fl_descale(fl_add(a3, o0), shift);
    v[4] = fl_descale(fl_sub(a3, o0), shift);
}

/* Reduced to 4: reads v[0..3] and v[5..7], writes v[0..3]. */
FL_HD void fl_idct4_line(int32_t v[8], int shift)
{
    const int32_t e = fl_mul(v[0], 16384);
    const int32_t e2 = fl_sub(fl_mul(v[2], 15137), fl_mul(v[6], 6270));
    const int32_t a0 = fl_add(e, e2), a1 = fl_sub(e, e2);
    const int32_t o0 = fl_add(fl_add(fl_mul(v[7], -1730), fl_mul(v[5], 11893)),
                              fl_add(fl_mul(v[3], -17799), fl_mul(v[1], 8697)));
    const int32_t o1 = fl_add(fl_add(fl_mul(v[7], -4176), fl_mul(v[5], -4926)),
                              fl_add(fl_mul(v[3], 7373), fl_mul(v[1], 20995)));

    v[0] = fl_descale(fl_add(a0, o1), shift);
    v[3] = fl_descale(fl_sub(a0, o1), shift);
    v[1] = fl_descale(fl_add(a1, o0), shift);
    v[2] = fl_descale(fl_sub(a1, o0), shift);
}

/* Reduced to 2: reads v[0] and the odd ones, writes v[0] and v[1]. */
FL_HD void fl_idct2_line(int32_t v[8], int shift)
{
    const int32_t e = fl_mul(v[0], 32768);
    const int32_t o = fl_add(fl_add(fl_mul(v[7], -5906), fl_mul(v[5], 6967)),
                             fl_add(fl_mul(v[3], -10426), fl_mul(v[1], 29692)));

    v[0] = fl_descale(fl_add(e, o), shift);
    v[1] = fl_descale(fl_sub(e, o), shift);
}

/* Eight 16-bit values with one 16-byte access; p is 16-byte aligned. */
FL_HD void fl_load8(const void *p, uint32_t w[4])
{
#ifdef __CUDA_ARCH__
    const uint4 x = *(const uint4 *)p;
    w[0] = x.x, w[1] = x.y, w[2] = x.z, w[3] = x.w;
#else
    for (int i = 0; i < 4; i++)
        w[i] = ((const uint32_t *)p)[i]; // both machines are little-endian
#endif
}

/* Row r of a block, dequantised. */
FL_HD void fl_dequant_row(const int16_t *coef, const uint16_t *quant, int r, int32_t v[8])
{
    uint32_t c[4], q[4];

    fl_load8(coef + 8 * r, c);
    fl_load8(quant + 8 * r, q);
    FL_UNROLL
    for (int i = 0; i < 4; i++) {
        v[2 * i] = fl_mul((int16_t)(c[i] & 0xffff), (int32_t)(q[i] & 0xffff));
        v[2 * i + 1] = fl_mul((int16_t)(c[i] >> 16), (int32_t)(q[i] >> 16));
    }
}

FL_HD uint32_t fl_pack4(int32_t a, int32_t b, int32_t c, int32_t d)
{
    return (uint32_t)fl_clamp8(fl_add(a, 128)) | (uint32_t)fl_clamp8(fl_add(b, 128)) << 8 |
           (uint32_t)fl_clamp8(fl_add(c, 128)) << 16 | (uint32_t)fl_clamp8(fl_add(d, 128)) << 24;
}

/* Block of 64 coefficients to 8 x 8 samples. out is 8-byte aligned, pitch a multiple of 8. */
FL_HD void fl_idct8(const int16_t *coef, const uint16_t *quant, uint8_t *out, uint32_t pitch)
{
    int32_t w[8][8];

    FL_UNROLL
    for (int r = 0; r < 8; r++)
        fl_dequant_row(coef, quant, r, w[r]);
    FL_UNROLL
    for (int c = 0; c < 8; c++) {
        int32_t v[8];
        FL_UNROLL
        for (int r = 0; r < 8; r++)
            v[r] = w[r][c];
        fl_idct8_line(v, 11);
        FL_UNROLL
        for (int r = 0; r < 8; r++)
            w[r][c] = v[r];
    }
    FL_UNROLL
    for (int r = 0; r < 8; r++) {
        int32_t *const v = w[r];
        uint32_t *const o = (uint32_t *)(out + (uint64_t)r * pitch);
        fl_idct8_line(v, 18);
        o[0] = fl_pack4(v[0], v[1], v[2], v[3]);
        o[1] = fl_pack4(v[4], v[5], v[6], v[7]);
    }
}

FL_HD void fl_idct4(const int16_t *coef, const uint16_t *quant, uint8_t *out, uint32_t pitch)
{
    int32_t w[8][8];

    FL_UNROLL
    for (int r = 0; r < 8; r++)
        if (r != 4)
            fl_dequant_row(coef, quant, r, w[r]);
    FL_UNROLL
    for (int c = 0; c < 8; c++) {
        int32_t v[8];
        if (c == 4)
            continue;
        FL_UNROLL
        for (int r = 0; r < 8; r++)
            if (r != 4)
                v[r] = w[r][c];
        fl_idct4_line(v, 12);
        FL_UNROLL
        for (int r = 0; r < 4; r++)
            w[r][c] = v[r];
    }
    FL_UNROLL
    for (int r = 0; r < 4; r++) {
        fl_idct4_line(w[r], 19);
        *(uint32_t *)(out + (uint64_t)r * pitch) = fl_pack4(w[r][0], w[r][1], w[r][2], w[r][3]);
    }
}

FL_HD void fl_idct2(const int16_t *coef, const uint16_t *quant, uint8_t *out, uint32_t pitch)
{
    int32_t w[8][8];

    FL_UNROLL
    for (int r = 0; r < 8; r++)
        if (r == 0 || (r & 1))
            fl_dequant_row(coef, quant, r, w[r]);
    FL_UNROLL
    for (int c = 0; c < 8; c++) {
        int32_t v[8];
        if (c && !(c & 1))
            continue;
        FL_UNROLL
        for (int r = 0; r < 8; r++)
            if (r == 0 || (r & 1))
                v[r] = w[r][c];
        fl_idct2_line(v, 13);
        w[0][c] = v[0];
        w[1][c] = v[1];
    }
    FL_UNROLL
    for (int r = 0; r < 2; r++) {
        fl_idct2_line(w[r], 20);
        out[(uint64_t)r * pitch] = fl_clamp8(fl_add(w[r][0], 128));
        out[(uint64_t)r * pitch + 1] = fl_clamp8(fl_add(w[r][1], 128));
    }
}

FL_HD void fl_idct1(const int16_t *coef, const uint16_t *quant, uint8_t *out)
{
    out[0] = fl_clamp8(fl_add(fl_descale(fl_mul(coef[0], quant[0]), 3), 128));
}

/* ---- Huffman ---------------------------------------------------------------------------------- */

/* Fill limit, first (17 entries are used) from a table's counts. They describe a prefix code: the
 * plan has checked that. */
FL_HD void fl_huff_limits(const struct fl_jpeg_huff *h, uint32_t limit[18], int32_t first[18])
{
    uint32_t code = 0;
    int32_t place = 0;

    limit[0] = 0;
    first[0] = 0;
    for (int l = 1; l <= 16; l++) {
        first[l] = place - (int32_t)code;
        code += h->bits[l - 1];
        place += h->bits[l - 1];
        limit[l] = code << (16 - l);
        code <<= 1;
    }
    limit[17] = 0xffffffff;
    first[17] = 0;
}

/* Entry of a code of `len` bits with value `sym`; see FL_JPEG_EOB. */
FL_HD uint32_t fl_huff_entry(uint32_t len, uint32_t sym, uint32_t dc)
{
    const uint32_t size = sym & 15, zeros = sym >> 4;
    const uint32_t run = dc ? 0 : size || zeros == 15 ? zeros : FL_JPEG_EOB;

    return (len + size) | size << 5 | run << 10;
}

/* Entry of the code at the front of 16 bits, trying lengths from..to; 0 if there is none. */
FL_HD uint32_t fl_huff_find(const uint32_t limit[18], const int32_t first[18], const uint8_t *vals,
                            uint32_t bits16, uint32_t from, uint32_t to, uint32_t dc)
{
    for (uint32_t l = from; l <= to; l++)
        if (bits16 < limit[l]) {
            const uint32_t at = (uint32_t)first[l] + (bits16 >> (16 - l));
            return fl_huff_entry(l, vals[at & 255], dc);
        }
    return 0;
}

/* Shifts that look at the lower five bits of n, which is one instruction on the device. */
FL_HD uint32_t fl_shift_left(uint32_t x, uint32_t n) // x << n
{
#ifdef __CUDA_ARCH__
    return __funnelshift_l(0, x, n);
#else
    return x << (n & 31);
#endif
}

FL_HD uint32_t fl_top_bits(uint32_t x, uint32_t n) // the first n bits of x
{
#ifdef __CUDA_ARCH__
    return __funnelshift_l(x, 0, n);
#else
    return (uint32_t)((uint64_t)x << (n & 31) >> 32);
#endif
}

FL_HD uint32_t fl_window(uint32_t a, uint32_t b, uint32_t n) // 32 bits of a, b from bit n on
{
#ifdef __CUDA_ARCH__
    return __funnelshift_l(b, a, n);
#else
    return (uint32_t)((((uint64_t)a << 32 | b) << (n & 31)) >> 32);
#endif
}

FL_HD uint32_t fl_leading_zeros(uint32_t x) // x is not 0
{
#ifdef __CUDA_ARCH__
    return (uint32_t)__clz((int)x);
#else
    return (uint32_t)__builtin_clz(x);
#endif
}

/* The highest bits of those bytes of w that are 0xFF. */
FL_HD uint32_t fl_find_ff(uint32_t w)
{
    return ((w & 0x7f7f7f7fu) + 0x01010101u) & w & 0x80808080u;
}

/* The bytes of one segment on their way to clean words: without the zero that is stuffed behind each
 * 0xFF. */
struct fl_feed {
    uint32_t acc;  // clean bytes that do not fill a word yet, at its upper end
    uint32_t n;    // bits of them: 0, 8, 16, 24
    uint32_t ff;   // the byte before was 0xFF
    uint32_t bad;  // flags
    int32_t left;  // bytes still to come
    uint32_t bits; // clean bits so far
};

/* Take the first `have` bytes, 1 to 4, of a big-endian word, or as many as are left.
 * Returns 1 if they complete *out. */
FL_HD uint32_t fl_feed_word(struct fl_feed *f, uint32_t w, int32_t have, uint32_t *out)
{
    if (have > f->left) {
        have = f->left;
        w &= ~(uint32_t)(0xffffffffu >> (8 * have)); // have is less than 4 here
    }
    f->left -= have;

    const uint32_t ffs = fl_find_ff(w);
    uint32_t drop = ffs >> 8 | f->ff << 31, bits = 8 * (uint32_t)have;

    f->ff = have ? ffs >> (39 - bits) & 1 : f->ff;
    while (drop) { // the byte behind a 0xFF
        const uint32_t at = fl_leading_zeros(drop);
        if (at >= bits)
            break; // it is in the next word
        f->bad |= w << at >> 24 ? FL_JPEG_BAD_STRAY : 0;
        w = (w & ~(0xffffffffu >> at)) | (w << 8 & 0xffffffffu >> at);
        drop = (drop ^ 0x80000000u >> at) << 8;
        bits -= 8;
    }
    f->bits += bits;

    const uint32_t word = f->acc | w >> f->n, sum = f->n + bits, full = sum >= 32;
    *out = word;
    f->acc = full ? (uint32_t)((uint64_t)w << 32 >> f->n) : word;
    f->n = sum & 31;
    return full;
}

/* The decoder of a segment, between two symbols. */
struct fl_walk {
    uint32_t w0, w1, w2; // three clean words; the next bit is bit p of w0
    uint32_t p;          // less than 32 before each symbol
    uint32_t k;          // place of the next coefficient in zigzag order; 0: the DC one
    uint32_t left;       // blocks still to come, this one included
};

/* Take the symbol of entry e, where win is the window at p. Returns the coefficient, of the DC one the
 * difference; *place is its place. */
FL_HD int32_t fl_walk_symbol(struct fl_walk *w, uint32_t win, uint32_t e, uint32_t *place)
{
    const uint32_t mask = fl_shift_left(1, e >> 5) - 1;
    int32_t v = (int32_t)(fl_top_bits(win, e) & mask);

    v -= 2 * v <= (int32_t)mask ? (int32_t)mask : 0; // no bits: stays 0
    *place = w->k + (e >> 10);
    w->k = *place + 1;
    w->p += e & 31;
    return v;
}

/* After a symbol: drop the word that is used up. Returns 1 if the caller is to fetch w2 anew. */
FL_HD uint32_t fl_walk_advance(struct fl_walk *w)
{
    const uint32_t over = w->p >= 32;

    w->w0 = over ? w->w1 : w->w0;
    w->w1 = over ? w->w2 : w->w1;
    w->p &= 31;
    return over;
}

/* What is wrong after the last MCU? taken: words that were fetched, three of which are in *w. end_bit
 * 0: up to 7 bits of padding are fine; else exactly 8 - end_bit bits must be left. */
FL_HD uint32_t fl_walk_end(const struct fl_walk *w, const struct fl_feed *f, uint32_t taken,
                           uint32_t end_bit)
{
    const int32_t rest = (int32_t)(f->bits - (32 * (taken - 3) + w->p)) + 8 * f->left;

    if (rest < 0)
        return f->bad | FL_JPEG_BAD_SHORT;
    if (end_bit ? rest != 8 - (int32_t)end_bit : rest >= 8)
        return f->bad | FL_JPEG_BAD_EXTRA;
    return f->bad;
}

/* ---- upsampling and colour -------------------------------------------------------------------- */

FL_HD int32_t fl_between(int32_t x, int32_t low, int32_t high)
{
    return x < low ? low : x > high ? high : x;
}

/* Place of sample x, y of a component in its plane. */
FL_HD uint32_t fl_jpeg_at(const struct fl_jpeg_comp *c, int32_t x, int32_t y)
{
    return (uint32_t)(y - c->y0) * c->pitch + (uint32_t)(x - c->x0);
}

/* Sample of component c at full-size pixel x, y. p: the first byte of its plane. */
FL_HD int32_t fl_jpeg_sample(const struct fl_jpeg_comp *c, const uint8_t *p, int32_t x, int32_t y)
{
    if (c->mode == FL_JPEG_FULL)
        return p[fl_jpeg_at(c, x, y)];
    if (c->mode == FL_JPEG_BOX)
        return p[fl_jpeg_at(c, x / c->hx, y / c->vx)];

    const int hor = c->mode != FL_JPEG_H1V2, ver = c->mode != FL_JPEG_H2V1;
    const int32_t cx = hor ? x >> 1 : x, cy = ver ? y >> 1 : y;
    const int32_t nx = fl_between(x & 1 ? cx + 1 : cx - 1, 0, c->dw - 1);
    const int32_t ny = fl_between(y & 1 ? cy + 1 : cy - 1, 0, c->dh - 1);
    const int32_t a = p[fl_jpeg_at(c, cx, cy)];

    if (!ver)
        return (3 * a + p[fl_jpeg_at(c, nx, cy)] + 1 + (x & 1)) >> 2;
    if (!hor)
        return (3 * a + p[fl_jpeg_at(c, cx, ny)] + 1 + (y & 1)) >> 2;
    return (3 * (3 * a + p[fl_jpeg_at(c, cx, ny)]) + 3 * p[fl_jpeg_at(c, nx, cy)] +
            p[fl_jpeg_at(c, nx, ny)] + 8 - (x & 1)) >>
           4;
}

/* Y, Cb, Cr to R | G << 8 | B << 16. */
FL_HD uint32_t fl_ycc_rgb(int32_t y, int32_t cb, int32_t cr)
{
    cb -= 128;
    cr -= 128;
    const int32_t r = y + ((91881 * cr + 32768) >> 16);
    const int32_t g = y + ((-22554 * cb - 46802 * cr + 32768) >> 16);
    const int32_t b = y + ((116130 * cb + 32768) >> 16);

    return (uint32_t)fl_clamp8(r) | (uint32_t)fl_clamp8(g) << 8 | (uint32_t)fl_clamp8(b) << 16;
}

/* Pixel x, y of the decoded picture. planes: the plane memory. */
FL_HD uint32_t fl_jpeg_pixel(const struct fl_jpeg_pic *p, const uint8_t *planes, int32_t x,
                             int32_t y)
{
    const struct fl_jpeg_comp *const c = p->comp;
    const int32_t s0 = fl_jpeg_sample(&c[0], planes + (uint64_t)c[0].plane * 16, x, y);

    if (p->n_comp == 1)
        return (uint32_t)s0 * 0x010101u;

    const int32_t s1 = fl_jpeg_sample(&c[1], planes + (uint64_t)c[1].plane * 16, x, y);
    const int32_t s2 = fl_jpeg_sample(&c[2], planes + (uint64_t)c[2].plane * 16, x, y);

    return p->colour == 2 ? fl_ycc_rgb(s0, s1, s2)
                          : (uint32_t)s0 | (uint32_t)s1 << 8 | (uint32_t)s2 << 16;
}

/* ---- resampling: the definition is in kernels/resize.h ------------------------------------------ */

/* Weight of decoded pixel p before it is scaled, not yet cut at zero. */
FL_HD int64_t fl_jpeg_raw(int64_t reach, int64_t unit, int64_t centre, int64_t p)
{
    const int64_t d = unit * p + unit / 2 - centre;

    return reach - (d < 0 ? -d : d);
}

/* First tap of output pixel i of the window; its weights go to w[0], w[step], ... */
FL_HD int32_t fl_jpeg_weights(const struct fl_jpeg_axis *a, int32_t i, int16_t *w, int32_t step)
{
    const int64_t reach = 2 * (int64_t)(a->n8 > 8 * a->r ? a->n8 : 8 * a->r);
    const int64_t unit = 16 * (int64_t)a->r;
    const int64_t centre =
        2 * (int64_t)a->r * a->b8 + (2 * ((int64_t)a->first + i) + 1) * (int64_t)a->n8;
    const int64_t low = a->b8 >> 3, high = ((int64_t)a->b8 + a->n8 + 7) >> 3;
    const int64_t before_first = centre - reach - unit / 2;
    int64_t start = before_first < 0 ? 0 : before_first / unit + 1;
    int64_t sum = 0, upto = 0, last = 0;

    if (start < low)
        start = low;
    for (int32_t k = 0; k < a->taps && start + k < high; k++) {
        const int64_t raw = fl_jpeg_raw(reach, unit, centre, start + k);
        sum += raw > 0 ? raw : 0;
    }
    for (int32_t k = 0; k < a->taps; k++) {
        const int64_t raw = fl_jpeg_raw(reach, unit, centre, start + k);
        upto += raw > 0 && start + k < high ? raw : 0;
        const int64_t now =
            (int64_t)((((uint64_t)upto << a->bits) + ((uint64_t)sum >> 1)) / (uint64_t)sum);
        w[(int64_t)k * step] = (int16_t)(now - last);
        last = now;
    }
    return (int32_t)start;
}

#endif
