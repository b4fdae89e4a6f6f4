/* SPDX-License-Identifier: Apache-2.0 */
/* uint8 pixels to floating point by one table per channel, so that host and device agree to the
 * bit. May use base/. */
#ifndef FL_KERNELS_NORMALIZE_H
#define FL_KERNELS_NORMALIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <feedline/types.h>

/* values[c][x] = (x / 255 - mean[c]) / std[c], each operation in float and rounded to nearest even,
 * then rounded to nearest even again to the output type. For FL_F16 and FL_BF16 the low 16 bits of
 * bits[] hold the value. */
struct fl_normalize {
    FlDtype dtype; // FL_F32, FL_F16, FL_BF16 or FL_U8 (identity: only the layout changes)
    FlLayout layout;
    int32_t channels; // 1 or 3
    float mean[3], std[3];
    uint32_t bits[3][256]; // the table, as the output type's bits
    // Multiplications in place of the divisions, for FL_F32, FL_F16, FL_BF16. Only where `arithmetic` says that all 256 values
    // of every channel come out as the table has them:
    // q = fma(x, r255, x * r255_low); d = q - mean; y = d * r_std; y = fma(fma(-y, std, d), r_std, y).
    bool arithmetic;
    float r255, r255_low, r_std[3];
};

/* std 0 stands for 1. channels 1 uses mean[0], std[0]. */
void fl_normalize_init(struct fl_normalize *n, FlDtype dtype, FlLayout layout, int32_t channels,
                       const float mean[3], const float std[3]);

/* float to half and to bfloat16, round to nearest even; NaN stays NaN, overflow becomes infinity.
 */
uint16_t fl_f32_to_f16(float x);
uint16_t fl_f32_to_bf16(float x);

#endif
