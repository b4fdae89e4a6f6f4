/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels' arithmetic, on the host, to find out whether it is good enough. */
#include "gpu/gpu.h"

#include <math.h>
#include <string.h>

#include "kernels/normalize.h"

/* Quotients by a reciprocal and one correction: right for most divisors, not for all, hence the trial. Step by
 * step what normalize.cu does; fmaf rounds once on both sides. */
static float compute(const struct fl_gpu_normalize *n, int c, int x)
{
    const float r255 = 1.0F / 255.0F, v = (float)x;
    const float q = v * r255;
    const float t = fmaf(fmaf(-q, 255.0F, v), r255, q) - n->mean[c];
    const float p = t * n->recip[c];

    return fmaf(fmaf(-p, n->std[c], t), n->recip[c], p);
}

static bool equal(const struct fl_gpu_normalize *n, const void *table, int c, int x)
{
    const float v = compute(n, c, x);
    const size_t at = (size_t)c * 256 + (size_t)x;
    uint32_t want = 0, got;
    uint16_t half;

    if (!isfinite(v))
        return false;
    if (n->dtype == FL_F32) {
        memcpy(&want, (const uint8_t *)table + at * 4, 4);
        memcpy(&got, &v, 4);
        return want == got;
    }
    memcpy(&half, (const uint8_t *)table + at * 2, 2);
    return half == (n->dtype == FL_F16 ? fl_f32_to_f16(v) : fl_f32_to_bf16(v));
}

void fl_gpu_normalize_compute(struct fl_gpu_normalize *n, const void *table, const float mean[3],
                              const float std[3])
{
    n->compute = n->dtype == FL_F16 || n->dtype == FL_BF16 || n->dtype == FL_F32;
    for (int c = 0; c < n->channels && n->compute; c++) {
        n->mean[c] = mean[c];
        n->std[c] = std[c] != 0 ? std[c] : 1;
        n->recip[c] = 1.0F / n->std[c];
        for (int x = 0; x < 256 && n->compute; x++)
            n->compute = equal(n, table, c, x);
    }
}
