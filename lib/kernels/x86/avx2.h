/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of the AVX2 version that the AVX-512 one shares. Private to kernels/x86/. */
#ifndef FL_KERNELS_X86_AVX2_H
#define FL_KERNELS_X86_AVX2_H

#include "kernels/kernels.h"

void fl_horizontal1_avx2(const int16_t *in0, const int16_t *in1, const struct fl_axis *axis,
                         bool mirror, uint8_t *out0, uint8_t *out1);
void fl_horizontal3_avx2(const int16_t *in0, const int16_t *in1, const struct fl_axis *axis,
                         bool mirror, uint8_t *out0, uint8_t *out1);
void fl_normalize_avx2(const struct fl_normalize *n, const uint8_t *src, size_t pixels, void *dst,
                       size_t plane, bool stream);

#endif
