/* SPDX-License-Identifier: Apache-2.0 */
/* The loops that take the time, as a table of functions: plain C first, overridden by what the CPU
 * has. Every version gives the same bits; tests/unit/test_kernels.c compares and times them. May
 * use base/. */
#ifndef FL_KERNELS_KERNELS_H
#define FL_KERNELS_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/normalize.h"
#include "kernels/resize.h"

enum fl_cpu {
    FL_CPU_C = 0,
    FL_CPU_AVX2,   // and FMA, F16C
    FL_CPU_AVX512, // F, BW, VL, VBMI, VNNI
    FL_CPU_BEST,   // the best that this CPU runs
};

struct fl_kernels {
    const char *name; // "c", "avx2", "avx512"

    /* Vertical pass: out[i] = t for i in [0, n) from axis row y. rows[k] is the row of tap k, k <
     * axis->taps; readable for n + 32 bytes. out is writable for n + 32 samples, 64-byte aligned.
     */
    void (*vertical)(const uint8_t *const *rows, const int16_t *weights, int taps, int bits, int n,
                     int16_t *out);

    /* Horizontal pass on two rows at once, one pixel per output of axis: in0, in1 are rows of t whose
     * first sample is decoded pixel axis->lo, readable up to that of pixel axis->hi + axis->taps and
     * FL_RESIZE_PAD samples more (whatever stands there). out0, out1 take axis->n pixels, mirrored if `mirror`.
     * Nothing beyond them is written. in1 == in0 and out1 == out0 is fine. */
    void (*horizontal[4])(const int16_t *in0, const int16_t *in1, const struct fl_axis *axis,
                          bool mirror, uint8_t *out0,
                          uint8_t *out1); // by channels: [1] and [3]; others NULL

    /* n pixels of n->channels interleaved bytes to dst. plane: elements between the planes of
     * FL_NCHW (ignored for FL_NHWC). Stores past the cache where dst is aligned and `stream` is
     * set. */
    void (*normalize)(const struct fl_normalize *n, const uint8_t *src, size_t pixels, void *dst,
                      size_t plane, bool stream);
};

/* The table for this CPU, but no better than `most`. Static and constant. Any thread. */
const struct fl_kernels *fl_kernels_get(enum fl_cpu most);

#endif
