/* SPDX-License-Identifier: Apache-2.0 */
#include "jpeg/pixels.h"

const struct fl_pixel_ops *fl_pixel_ops_get(enum fl_cpu most)
{
    return most >= FL_CPU_AVX2 && __builtin_cpu_supports("avx2") ? &fl_pixel_ops_avx2
                                                                 : &fl_pixel_ops_c;
}
