/* SPDX-License-Identifier: Apache-2.0 */
/* u8 pixels to floats by a table of 256 values for each channel: no arithmetic, so what the host's kernels
 * write and what these write cannot differ. The table sits in shared memory; loads are 8 (flat) or 3 x 8
 * (planar) bytes, stores 16 bytes of neighbouring lanes side by side. */
#include "gpu/gpu.h"

#include <cuda_runtime.h>

namespace
{

constexpr int threads = 256;
constexpr int blocks_per_processor = 8; // 2048 threads: a full multiprocessor on every target

template <typename T, int n> struct alignas(sizeof(T) * n) pack {
    T v[n];
};

template <typename T>
__device__ __forceinline__ void load_table(T *shared, const T *table, int channels)
{
    for (int i = threadIdx.x; i < channels * 256; i += threads)
        shared[i] = table[i];
    __syncthreads();
}

/* Same order of axes on both sides: one run of rows * pixels * channels values. Each thread takes 16 bytes
 * of output at a time; 4 loads are in flight before the first is used. */
template <typename T, int channels>
__global__ void __launch_bounds__(threads)
    flat(const uint8_t *__restrict__ src, T *__restrict__ dst, const T *__restrict__ table,
         int64_t n)
{
    constexpr int width = 16 / sizeof(T), unroll = 4;
    __shared__ T shared[channels * 256];
    const int64_t n_packs = n / width, stride = (int64_t)gridDim.x * threads;
    const pack<uint8_t, width> *in = reinterpret_cast<const pack<uint8_t, width> *>(src);
    pack<T, width> *out = reinterpret_cast<pack<T, width> *>(dst);

    load_table(shared, table, channels);
    for (int64_t i = (int64_t)blockIdx.x * threads + threadIdx.x; i < n_packs;
         i += unroll * stride) {
        pack<uint8_t, width> x[unroll];
#pragma unroll
        for (int u = 0; u < unroll; u++)
            if (i + u * stride < n_packs)
                x[u] = in[i + u * stride];
#pragma unroll
        for (int u = 0; u < unroll; u++) {
            const int64_t at = i + u * stride;
            if (at >= n_packs)
                break;
            int c = channels == 1 ? 0 : (int)((uint64_t)at * width % channels) * 256;
            pack<T, width> y;
#pragma unroll
            for (int k = 0; k < width; k++) {
                y.v[k] = shared[c + x[u].v[k]];
                if (channels > 1)
                    c = c == (channels - 1) * 256 ? 0 : c + 256;
            }
            out[at] = y;
        }
    }
    // What is left over is shorter than one pack.
    if (blockIdx.x == 0 && threadIdx.x < n % width) {
        const int64_t at = n_packs * width + threadIdx.x;
        dst[at] = shared[(at % channels) * 256 + src[at]];
    }
}

/* T of a pixel: by the table, or the pixel itself. */
template <typename T> __device__ __forceinline__ T value(const T *shared, int channel, uint8_t x)
{
    return shared[channel * 256 + x];
}
template <> __device__ __forceinline__ uint8_t value(const uint8_t *, int, uint8_t x)
{
    return x;
}

/* Pixels to planes, 8 pixels of one row of the batch at a time; pixels % 8 == 0 keeps loads and stores
 * aligned. blockIdx.y counts rows. */
template <typename T>
__global__ void __launch_bounds__(threads)
    planar8(const uint8_t *__restrict__ src, T *__restrict__ dst, const T *__restrict__ table,
            int64_t rows, int64_t pixels)
{
    __shared__ T shared[sizeof(T) == 1 ? 1 : 3 * 256];
    const int64_t groups = pixels / 8, stride = (int64_t)gridDim.x * threads;

    if (sizeof(T) > 1)
        load_table(shared, table, 3);
    for (int64_t row = blockIdx.y; row < rows; row += gridDim.y) {
        const uint2 *in = reinterpret_cast<const uint2 *>(src + row * pixels * 3);
        T *out = dst + row * pixels * 3;
        for (int64_t g = (int64_t)blockIdx.x * threads + threadIdx.x; g < groups; g += stride) {
            alignas(8) uint8_t x[24];
            pack<T, 8> y[3];
#pragma unroll
            for (int k = 0; k < 3; k++)
                *reinterpret_cast<uint2 *>(x + 8 * k) = __ldg(in + 3 * g + k);
#pragma unroll
            for (int k = 0; k < 24; k++)
                y[k % 3].v[k / 3] = value<T>(shared, k % 3, x[k]);
#pragma unroll
            for (int c = 0; c < 3; c++)
                *reinterpret_cast<pack<T, 8> *>(out + c * pixels + 8 * g) = y[c];
        }
    }
}

/* The same for any number of pixels, one at a time. */
template <typename T>
__global__ void __launch_bounds__(threads)
    planar1(const uint8_t *__restrict__ src, T *__restrict__ dst, const T *__restrict__ table,
            int64_t rows, int64_t pixels)
{
    __shared__ T shared[sizeof(T) == 1 ? 1 : 3 * 256];
    const int64_t stride = (int64_t)gridDim.x * threads;

    if (sizeof(T) > 1)
        load_table(shared, table, 3);
    for (int64_t row = blockIdx.y; row < rows; row += gridDim.y) {
        const uint8_t *in = src + row * pixels * 3;
        T *out = dst + row * pixels * 3;
        for (int64_t p = (int64_t)blockIdx.x * threads + threadIdx.x; p < pixels; p += stride)
#pragma unroll
            for (int c = 0; c < 3; c++)
                out[c * pixels + p] = value<T>(shared, c, in[3 * p + c]);
    }
}

unsigned at_most(int64_t n, int64_t most)
{
    return (unsigned)(n < 1 ? 1 : n < most ? n : most);
}

template <typename T> int launch_flat(const struct fl_gpu_normalize *a, cudaStream_t stream)
{
    const int64_t n = a->rows * a->pixels * a->channels;
    const unsigned grid = at_most((n + threads * 16 - 1) / (threads * 16),
                                  (int64_t)a->processors * blocks_per_processor);

    if (a->channels == 1)
        flat<T, 1><<<grid, threads, 0, stream>>>(a->src, (T *)a->dst, (const T *)a->table, n);
    else
        flat<T, 3><<<grid, threads, 0, stream>>>(a->src, (T *)a->dst, (const T *)a->table, n);
    return cudaGetLastError();
}

template <typename T> int launch_planar(const struct fl_gpu_normalize *a, cudaStream_t stream)
{
    const bool wide = a->pixels % 8 == 0;
    const int64_t work = wide ? a->pixels / 8 : a->pixels;
    const dim3 grid(at_most((work + threads * 4 - 1) / (threads * 4), 1 << 20),
                    at_most(a->rows, 65535));

    if (wide)
        planar8<T><<<grid, threads, 0, stream>>>(a->src, (T *)a->dst, (const T *)a->table, a->rows,
                                                 a->pixels);
    else
        planar1<T><<<grid, threads, 0, stream>>>(a->src, (T *)a->dst, (const T *)a->table, a->rows,
                                                 a->pixels);
    return cudaGetLastError();
}

} // namespace

extern "C" int fl_gpu_normalize(const struct fl_gpu_normalize *a, void *stream)
{
    cudaStream_t s = (cudaStream_t)stream;
    const bool planar = a->layout == FL_NCHW && a->channels > 1;
    const int64_t n = a->rows * a->pixels * a->channels;

    if (n == 0)
        return cudaSuccess;
    switch (a->dtype) {
    case FL_U8:
        return planar ? launch_planar<uint8_t>(a, s)
                      : cudaMemcpyAsync(a->dst, a->src, (size_t)n, cudaMemcpyDeviceToDevice, s);
    case FL_F16:
    case FL_BF16:
        return planar ? launch_planar<uint16_t>(a, s) : launch_flat<uint16_t>(a, s);
    case FL_F32:
        return planar ? launch_planar<uint32_t>(a, s) : launch_flat<uint32_t>(a, s);
    default:
        return cudaErrorInvalidValue;
    }
}
