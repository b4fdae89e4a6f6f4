/* SPDX-License-Identifier: Apache-2.0 */
/* Antialiased resampling in fixed point. THE DEFINITION: every implementation (C, AVX2, AVX-512,
 * CUDA) gives these bits. May use base/.
 *
 * Geometry, one axis. The picture has been decoded at scale s/8, s = 1, 2, 4 or 8. Its box [b, b +
 * n) in full-scale pixels is [b8, b8 + n8) in eighths of a decoded pixel, b8 = b * s, n8 = n * s.
 * The box becomes R pixels. Output pixel X has its centre at (b8 + (2X + 1) n8 / 2R) / 8 decoded
 * pixels. The filter is a triangle that reaches max(n8, 8R) / 8R decoded pixels to both sides
 * (Pillow's BILINEAR). Only decoded pixels p with floor(b8 / 8) <= p < ceil((b8 + n8) / 8)
 * contribute. Multiplied by 2 max(n8, 8R), the weight of p is an integer:
 *
 *     raw(p) = max(0, 2 max(n8, 8R) - | 8R (2p + 1) - 2 R b8 - (2X + 1) n8 |)            (64-bit)
 *
 * start is the first p with raw(p) > 0, the taps are all p with raw(p) > 0 (they are neighbours).
 *
 * Weights. bits = 14, 15 where n8 >= 16R, 16 where n8 >= 32R. With C(i) the sum of the first i raw
 * weights, S the sum of all,
 *
 *     round(i)  = floor((C(i) << bits) + (S >> 1)) / S)
 *     weight(i) = round(i + 1) - round(i)
 *
 * so that weights are >= 0, <= 32767, and add up to exactly 1 << bits: a flat picture stays flat,
 * nothing needs clamping.
 *
 * Passes: vertical first, then horizontal, on 8-bit samples v of each channel:
 *
 *     t(y, p) = (sum_i wy(i) v(starty + i, p) + (1 << (bits_y - 8))) >> (bits_y - 7)     0..32640,
 * Q7 o(y, x) = (sum_i wx(i) t(y, startx + i) + (1 << (bits_x + 6))) >> (bits_x + 7)     0..255
 *
 * All sums fit in 32 signed bits. Mirroring only changes where o is stored. EXIF orientation, where
 * honoured, is applied to the result: the passes run in the stored frame. */
#ifndef FL_KERNELS_RESIZE_H
#define FL_KERNELS_RESIZE_H

#include <stddef.h>
#include <stdint.h>

#include "rect.h"

/* Samples that a row of t must be readable beyond the last pixel's last tap: kernels load whole vectors. */
#define FL_RESIZE_PAD 64

/* One axis of one resize. Plain data in memory of the caller. */
struct fl_axis {
    int32_t n;        // output pixels
    int32_t taps;     // weights kept for each, even; zeros behind the last one that counts
    int32_t bits;     // they add up to 1 << bits
    int32_t lo, hi;   // decoded pixels that any output pixel reads: [lo, hi)
    int32_t *start;   // [n] first tap, decoded pixels, ascending; start + taps may exceed hi
    int16_t *weights; // [n][taps]
};

/* What an axis is made from. */
struct fl_axis_spec {
    int32_t box, size; // box, full-scale pixels: 0 <= box, 1 <= size, box + size <= 65535
    int32_t scale;     // s: 1, 2, 4, 8
    int32_t resized;   // R: 1..65535
    int32_t first, n;  // output window [first, first + n) of the R pixels
};

/* The smallest s of 1, 2, 4, 8 at which a box of w x h still has at least rw x rh decoded pixels; 8
 * if none or if `exact`. */
int fl_resize_scale(int32_t w, int32_t h, int32_t rw, int32_t rh, int exact);

/* The source pixels that a view needs at scale s/8, all taps of its window counted: what a slice must
 * hold (fl_slice_range()). Inside crop->box. */
struct fl_rect fl_resize_reach(const struct fl_crop *crop, int scale);

/* The decoded pixels [*lo, *hi) that the window needs. No memory, no loop: usable at plan time. */
void fl_axis_reach(const struct fl_axis_spec *spec, int32_t *lo, int32_t *hi);

/* Bytes that fl_axis_make() needs at `mem`, 64-byte aligned. At most 4 (2 size + 6 n) + 192. */
size_t fl_axis_bytes(const struct fl_axis_spec *spec);

/* Fill *axis; its arrays are placed in mem. */
void fl_axis_make(struct fl_axis *axis, const struct fl_axis_spec *spec, void *mem);

#endif
