// SPDX-License-Identifier: Apache-2.0
// Kernels of a pretended consumer.
#include <stdint.h>

#include <cuda_runtime.h>

namespace
{

__global__ void spin(uint64_t ns)
{
    uint64_t start, now;

    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
    do
        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    while (now - start < ns);
}

__global__ void checksum(const uint8_t *data, size_t bytes, unsigned long long *sum)
{
    unsigned long long mine = 0;

    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < bytes;
         i += (size_t)gridDim.x * blockDim.x)
        mine += ((unsigned long long)data[i] + 1) * ((unsigned long long)i * 2654435761U + 12345);
    atomicAdd(sum, mine);
}

} // namespace

extern "C" void g_spin(double microseconds, cudaStream_t stream)
{
    spin<<<1, 1, 0, stream>>>((uint64_t)(microseconds * 1e3));
}

extern "C" void g_checksum(const void *data, size_t bytes, uint64_t *sum, cudaStream_t stream)
{
    cudaMemsetAsync(sum, 0, sizeof(*sum), stream);
    checksum<<<64, 256, 0, stream>>>((const uint8_t *)data, bytes, (unsigned long long *)sum);
}
