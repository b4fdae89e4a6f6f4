/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels may compute only what the table holds, to the bit. */
#include "t.h"

#include <feedline/config.h>

#include "gpu/gpu.h"
#include "kernels/normalize.h"

static const struct {
    const char *name;
    float mean[3], std[3];
} laws[] = {
    { "ImageNet", FL_IMAGENET_MEAN, FL_IMAGENET_STD },
    { "half", { 0.5F, 0.5F, 0.5F }, { 0.5F, 0.5F, 0.5F } },
    { "none", { 0, 0, 0 }, { 1, 1, 1 } },
    { "CIFAR", { 0.4914F, 0.4822F, 0.4465F }, { 0.2470F, 0.2435F, 0.2616F } },
    { "CLIP", { 0.48145466F, 0.4578275F, 0.40821073F }, { 0.26862954F, 0.26130258F, 0.27577711F } },
};

static void pack(const struct fl_normalize *n, uint32_t *out)
{
    for (int i = 0; i < 768; i++) {
        if (n->dtype == FL_F32)
            out[i] = n->bits[i / 256][i % 256];
        else
            ((uint16_t *)out)[i] = (uint16_t)n->bits[i / 256][i % 256];
    }
}

int main(void)
{
    static const FlDtype dtypes[] = { FL_F32, FL_F16, FL_BF16 };
    static uint32_t table[768];
    struct fl_normalize n;

    for (size_t d = 0; d < T_LEN(dtypes); d++)
        for (size_t i = 0; i < T_LEN(laws); i++) {
            struct fl_gpu_normalize g = { .channels = 3, .dtype = dtypes[d] };

            t_case(laws[i].name);
            fl_normalize_init(&n, dtypes[d], FL_NHWC, 3, laws[i].mean, laws[i].std);
            pack(&n, table);
            fl_gpu_normalize_compute(&g, table, laws[i].mean, laws[i].std);
            T_OK(g.compute);
            // One bit of one entry elsewhere: look it up.
            ((uint8_t *)table)[(size_t)(700) * fl_dtype_bytes(dtypes[d])] ^= 1;
            fl_gpu_normalize_compute(&g, table, laws[i].mean, laws[i].std);
            T_OK(!g.compute);
        }
    t_case("not finite");
    const float zero[3] = { 0, 0, 0 }, tiny[3] = { 1e-44F, 1, 1 };
    struct fl_gpu_normalize g = { .channels = 3, .dtype = FL_F32 };
    fl_normalize_init(&n, FL_F32, FL_NHWC, 3, zero, tiny);
    pack(&n, table);
    fl_gpu_normalize_compute(&g, table, zero, tiny);
    T_OK(!g.compute);
    t_case("u8");
    g.dtype = FL_U8;
    fl_gpu_normalize_compute(&g, NULL, zero, zero);
    T_OK(!g.compute);
    return t_done();
}
