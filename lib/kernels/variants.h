/* SPDX-License-Identifier: Apache-2.0 */
/* The versions that fl_kernels_get() chooses from, and what they fall back to. Private to kernels/. */
#ifndef FL_KERNELS_VARIANTS_H
#define FL_KERNELS_VARIANTS_H

#include "kernels/kernels.h"

extern const struct fl_kernels fl_kernels_c;
extern const struct fl_kernels fl_kernels_avx2;   // x86-64 builds only
extern const struct fl_kernels fl_kernels_avx512; // x86-64 builds only

void fl_vertical_c(const uint8_t *const *rows, const int16_t *weights, int taps, int bits, int n,
                   int16_t *out);
void fl_horizontal1_c(const int16_t *in0, const int16_t *in1, const struct fl_axis *axis,
                      bool mirror, uint8_t *out0, uint8_t *out1);
void fl_horizontal3_c(const int16_t *in0, const int16_t *in1, const struct fl_axis *axis,
                      bool mirror, uint8_t *out0, uint8_t *out1);
void fl_normalize_c(const struct fl_normalize *n, const uint8_t *src, size_t pixels, void *dst,
                    size_t plane, bool stream);

#endif
