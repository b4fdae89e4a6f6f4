/* SPDX-License-Identifier: Apache-2.0 */
/* x86-64: what the CPU has decides. */
#include "kernels/kernels.h"

#include <cpuid.h>

#include "kernels/variants.h"

/* __builtin_cpu_supports() of clang 14 does not know the name. */
static bool has_f16c(void)
{
    unsigned a, b, c, d;

    return __get_cpuid(1, &a, &b, &c, &d) && c & bit_F16C;
}

static bool has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
}

static bool has_avx512(void)
{
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vbmi") &&
           __builtin_cpu_supports("avx512vnni");
}

const struct fl_kernels *fl_kernels_get(enum fl_cpu most)
{
    if (most >= FL_CPU_AVX512 && has_avx512())
        return &fl_kernels_avx512;
    if (most >= FL_CPU_AVX2 && has_avx2())
        return &fl_kernels_avx2;
    return &fl_kernels_c;
}
