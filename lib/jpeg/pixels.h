/* SPDX-License-Identifier: Apache-2.0 */
/* From coefficients to pixels in the integer arithmetic of libjpeg-turbo's accurate path: inverse DCT
 * (islow and its reduced sizes), triangle-filter upsampling, ITU-R BT.601 to RGB. All versions give the
 * same bits for coefficients in an encoder's range; beyond it they stay inside their memory.
 * May use base/ and kernels/ (for enum fl_cpu). */
#ifndef FL_JPEG_PIXELS_H
#define FL_JPEG_PIXELS_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/kernels.h"

#define FL_PIXEL_PAD 64 // bytes that rows of samples must be readable and writable beyond their end

struct fl_pixel_ops {
    const char *name;

    /* 64 coefficients times their quantisation steps (natural order, both 32-byte aligned) to 8x8, 4x4,
     * 2x2, 1x1 samples at out. [i]: 1 << i samples a side. */
    void (*idct[4])(const int16_t *coefficients, const int16_t *quant, uint8_t *out,
                    ptrdiff_t stride);

    /* n pixels of three rows of samples to interleaved RGB. Writes 3 n bytes exactly. */
    void (*ycc_rgb)(const uint8_t *y, const uint8_t *cb, const uint8_t *cr, uint8_t *rgb, int n);

    /* Twice as many samples: out[2i], out[2i + 1] from in[i - 1], in[i], in[i + 1], for i in [0, n).
     * One row (h2v1), or sums 3 near + far of two (h2v2). */
    void (*h2v1)(const uint8_t *in, uint8_t *out, int n);
    void (*h2v2)(const int16_t *in, uint8_t *out, int n);
};

/* The table for this CPU, but no better than `most`. Static and constant. Any thread. */
const struct fl_pixel_ops *fl_pixel_ops_get(enum fl_cpu most);

/* Private to the pixels_*.c files. */
extern const struct fl_pixel_ops fl_pixel_ops_c;
extern const struct fl_pixel_ops fl_pixel_ops_avx2; // x86-64 builds only
void fl_idct2_c(const int16_t *c, const int16_t *q, uint8_t *out, ptrdiff_t stride);
void fl_idct1_c(const int16_t *c, const int16_t *q, uint8_t *out, ptrdiff_t stride);
void fl_ycc_rgb_c(const uint8_t *y, const uint8_t *cb, const uint8_t *cr, uint8_t *rgb, int n);

#endif
