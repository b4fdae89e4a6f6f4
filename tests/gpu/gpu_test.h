/* SPDX-License-Identifier: Apache-2.0 */
/* What tests on a real device share. They run where there is one, and skip (77) elsewhere. */
#ifndef FL_TESTS_GPU_TEST_H
#define FL_TESTS_GPU_TEST_H

#include <cuda_runtime_api.h>

#include "t.h"

/* kernels.cu */
void g_spin(double microseconds, cudaStream_t stream); // keeps one block busy
/* Sum over bytes of (byte + 1) * (index * 2654435761 + 12345) mod 2^64: depends on every byte and its place. */
void g_checksum(const void *data, size_t bytes, uint64_t *sum, cudaStream_t stream);

static inline uint64_t g_checksum_host(const void *data, size_t bytes)
{
    const uint8_t *p = data;
    uint64_t sum = 0;

    for (size_t i = 0; i < bytes; i++)
        sum += ((uint64_t)p[i] + 1) * ((uint64_t)i * 2654435761U + 12345);
    return sum;
}

#define G_CUDA(call)                                                                               \
    do {                                                                                           \
        const cudaError_t e_ = (call);                                                             \
        if (!t_report(e_ == cudaSuccess, __FILE__, __LINE__, #call))                               \
            fprintf(stderr, ": %s\n", cudaGetErrorString(e_));                                     \
    } while (0)

/* Fewer cases, for runs under compute-sanitizer: they take 10 to 50 times as long. */
static inline int g_short(void)
{
    const char *s = getenv("FL_TEST_SHORT");

    return s && *s;
}

static inline void g_require(void)
{
    int n = 0;

    if (cudaGetDeviceCount(&n) != cudaSuccess || n < 1)
        T_SKIP("no CUDA device here");
}

#endif
