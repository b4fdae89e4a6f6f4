/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels give the bits of the host's, for every type and layout, at sizes that fit no vector, and write
 * nothing beyond their output. */
#include "gpu_test.h"

#include <feedline/config.h>

#include "base/rng.h"
#include "gpu/gpu.h"
#include "kernels/kernels.h"

#define GUARD 256

static const struct {
    const char *name;
    int64_t rows;
    int32_t height, width;
} sizes[] = {
    { "one pixel", 1, 1, 1 },
    { "prime", 7, 13, 11 },
    { "odd batch", 3, 224, 224 },
    { "of 4", 5, 6, 6 },
    { "of 16", 3, 20, 20 },
    { "5 wide", 5, 8, 5 },
    { "no rows", 0, 8, 8 },
    { "one row of 8", 1, 1, 8 },
    { "large odd", 2, 333, 517 },
    { "many", 1030, 4, 4 },
    { "more rows than a grid has", 70000, 2, 1 },
};

static void host(const struct fl_normalize *n, const uint8_t *src, int64_t rows, int64_t pixels,
                 uint8_t *dst)
{
    const struct fl_kernels *k = fl_kernels_get(FL_CPU_C);
    const size_t row = (size_t)pixels * (size_t)n->channels;

    for (int64_t r = 0; r < rows; r++)
        k->normalize(n, src + (size_t)r * row, (size_t)pixels,
                     dst + (size_t)r * row * fl_dtype_bytes(n->dtype), (size_t)pixels, false);
}

/* What the device is given: {channels, 256} elements of the output type. */
static void *device_table(const struct fl_normalize *n, struct fl_gpu_normalize *job, bool compute)
{
    uint16_t half[768];
    void *table = NULL;

    if (n->dtype == FL_U8)
        return NULL;
    for (int i = 0; i < 768; i++)
        half[i] = (uint16_t)n->bits[i / 256][i % 256];
    const void *from = n->dtype == FL_F32 ? (const void *)n->bits : half;
    if (compute) {
        fl_gpu_normalize_compute(job, from, n->mean, n->std);
        T_OK(job->compute);
    }
    G_CUDA(cudaMalloc(&table, sizeof(n->bits)));
    G_CUDA(cudaMemcpy(table, from, 768 * fl_dtype_bytes(n->dtype), cudaMemcpyHostToDevice));
    return table;
}

static void check(size_t s, FlDtype dtype, FlLayout layout, int32_t channels, bool compute,
                  struct fl_rng *rng)
{
    static const float mean[] = FL_IMAGENET_MEAN, std[] = FL_IMAGENET_STD;
    const int64_t pixels = (int64_t)sizes[s].height * sizes[s].width, rows = sizes[s].rows;
    const size_t in = (size_t)(rows * pixels * channels), out = in * fl_dtype_bytes(dtype);
    struct fl_normalize n;
    uint8_t *src = malloc(in + 64), *want = malloc(out + 64), *got = malloc(out + GUARD);
    uint8_t *dsrc = NULL, *ddst = NULL;
    int processors = 0;

    fl_normalize_init(&n, dtype, layout, channels, mean, std);
    for (size_t i = 0; i < in; i++)
        src[i] = (uint8_t)fl_rng_u32(rng);
    host(&n, src, rows, pixels, want);
    G_CUDA(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0));
    G_CUDA(cudaMalloc((void **)&dsrc, in + 1));
    G_CUDA(cudaMalloc((void **)&ddst, out + GUARD));
    G_CUDA(cudaMemset(ddst, 0xC3, out + GUARD));
    G_CUDA(cudaMemcpy(dsrc, src, in, cudaMemcpyHostToDevice));
    struct fl_gpu_normalize job = { .src = dsrc,
                                    .dst = ddst,
                                    .rows = rows,
                                    .pixels = pixels,
                                    .channels = channels,
                                    .dtype = dtype,
                                    .layout = layout,
                                    .processors = processors };
    void *table = device_table(&n, &job, compute);
    job.table = table;
    T_EQ(fl_gpu_normalize(&job, NULL), 0);
    G_CUDA(cudaMemcpy(got, ddst, out + GUARD, cudaMemcpyDeviceToHost));
    T_EQ(memcmp(got, want, out), 0);
    int touched = 0;
    for (size_t i = out; i < out + GUARD; i++)
        touched += got[i] != 0xC3;
    T_EQ(touched, 0);
    cudaFree(table);
    cudaFree(dsrc);
    cudaFree(ddst);
    free(src);
    free(want);
    free(got);
}

/* "one": the least that launches a kernel, to learn whether a tool works here. */
int main(int argc, char **argv)
{
    static const FlDtype dtypes[] = { FL_U8, FL_F16, FL_BF16, FL_F32 };
    struct fl_rng rng;

    g_require();
    fl_rng_init(&rng, 5, 0, 0, FL_RNG_USER, 0);
    if (argc > 1 && !strcmp(argv[1], "one")) {
        check(0, FL_F32, FL_NHWC, 3, false, &rng);
        return t_done();
    }
    for (size_t s = 0; s < T_LEN(sizes); s++)
        for (size_t d = 0; d < T_LEN(dtypes); d++)
            for (int layout = FL_NHWC; layout <= FL_NCHW; layout++)
                for (int channels = 1; channels <= 3; channels += 2) {
                    char name[96];
                    snprintf(name, sizeof(name), "%s %s %s %d", sizes[s].name,
                             fl_dtype_name(dtypes[d]), layout == FL_NHWC ? "NHWC" : "NCHW",
                             channels);
                    t_case(name);
                    check(s, dtypes[d], (FlLayout)layout, channels, false, &rng);
                    check(s, dtypes[d], (FlLayout)layout, channels, true, &rng);
                }
    return t_done();
}
