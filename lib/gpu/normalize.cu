/* SPDX-License-Identifier: Apache-2.0 */
/* u8 pixels to floats, bit for bit the host's: by the table of 256 values for each channel, in shared memory,
 * or by arithmetic that was tried against all of the table. Each thread stores 16 bytes at a time, side by side
 * with its neighbours'. */
#include "gpu/gpu.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

namespace
{

typedef struct fl_gpu_normalize args;

constexpr int threads = 256;
constexpr int blocks_per_processor = 6; // a multiple of 3: see flat()

/* Output types: how wide, and two floats as two of them. */
struct to_u8 {
    typedef uint8_t type;
};
struct to_f32 {
    typedef uint32_t type;
};
struct to_f16 {
    typedef uint16_t type;
    static __device__ __forceinline__ uint32_t pair(float a, float b)
    {
        const __half2 h = __floats2half2_rn(a, b);
        return *reinterpret_cast<const uint32_t *>(&h);
    }
};
struct to_bf16 {
    typedef uint16_t type;
    static __device__ __forceinline__ uint32_t pair(float a, float b)
    {
        const __nv_bfloat162 h = __floats2bfloat162_rn(a, b);
        return *reinterpret_cast<const uint32_t *>(&h);
    }
};

/* Of one channel. */
struct law {
    float mean, std, recip;
};

/* fl_gpu_normalize_compute() tries these very steps on the host. */
__device__ __forceinline__ float compute(float x, const law &l)
{
    const float r255 = 1.0F / 255.0F;
    const float q = __fmul_rn(x, r255);
    const float t = __fsub_rn(__fmaf_rn(__fmaf_rn(-q, 255.0F, x), r255, q), l.mean);
    const float p = __fmul_rn(t, l.recip);

    return __fmaf_rn(__fmaf_rn(-p, l.std, t), l.recip, p);
}

/* Byte k of a word as a float: put under the exponent of 2^23, which is then taken away. Exact. */
template <int k> __device__ __forceinline__ float byte_float(uint32_t word)
{
    return __fsub_rn(__uint_as_float(__byte_perm(word, 0x4B000000, 0x7440 | k)), 8388608.0F);
}

/* 4 pixels' values of one word of bytes to 4 outputs, by arithmetic. */
template <typename To>
__device__ __forceinline__ void compute4(uint32_t w, const law &a, const law &b, const law &c,
                                         const law &d, typename To::type *out)
{
    const float f0 = compute(byte_float<0>(w), a), f1 = compute(byte_float<1>(w), b);
    const float f2 = compute(byte_float<2>(w), c), f3 = compute(byte_float<3>(w), d);

    if constexpr (sizeof(typename To::type) == 4) {
        out[0] = __float_as_uint(f0);
        out[1] = __float_as_uint(f1);
        out[2] = __float_as_uint(f2);
        out[3] = __float_as_uint(f3);
    } else {
        reinterpret_cast<uint32_t *>(out)[0] = To::pair(f0, f1);
        reinterpret_cast<uint32_t *>(out)[1] = To::pair(f2, f3);
    }
}

/* An element of a kernel parameter by selection: an index would send the array through memory. */
__device__ __forceinline__ float pick(const float *v, int i)
{
    return i == 0 ? v[0] : i == 1 ? v[1] : v[2];
}

template <typename T>
__device__ __forceinline__ void load_table(T *shared, const T *table, int channels)
{
    for (int i = threadIdx.x; i < channels * 256; i += threads)
        shared[i] = table[i];
    __syncthreads();
}

/* n bytes from an address that is a multiple of n. */
template <int n> struct bytes;
template <> struct bytes<4> {
    typedef uint32_t type;
};
template <> struct bytes<8> {
    typedef uint2 type;
};
template <> struct bytes<16> {
    typedef uint4 type;
};

/* Same order of axes on both sides: one run of n values. A pack is 16 bytes of output. The stride is a multiple of
 * 3 packs, so a thread meets the same channels in the same places each time. */
template <typename To, int channels, bool math>
__global__ void __launch_bounds__(threads) flat(const args a, int64_t n)
{
    typedef typename To::type T;
    constexpr int width = 16 / sizeof(T), unroll = 4;
    typedef typename bytes<width>::type load;
    __shared__ T shared[math ? 1 : channels * 256];
    const int64_t n_packs = n / width, stride = (int64_t)gridDim.x * threads;
    const int64_t first = (int64_t)blockIdx.x * threads + threadIdx.x;
    const load *in = reinterpret_cast<const load *>(a.src);
    uint4 *out = reinterpret_cast<uint4 *>(a.dst);
    int channel[3]; // of the first three values of this thread's packs
    law laws[3];

    if (!math)
        load_table(shared, (const T *)a.table, channels);
    for (int k = 0; k < 3; k++) {
        channel[k] = channels == 1 ? 0 : (int)((first * width + k) % 3);
        laws[k] = { pick(a.mean, channel[k]), pick(a.std, channel[k]), pick(a.recip, channel[k]) };
    }
    for (int64_t i = first; i < n_packs; i += unroll * stride) {
        load x[unroll];
#pragma unroll
        for (int u = 0; u < unroll; u++)
            if (i + u * stride < n_packs)
                x[u] = __ldg(in + i + u * stride);
#pragma unroll
        for (int u = 0; u < unroll; u++) {
            const uint32_t *words = reinterpret_cast<const uint32_t *>(&x[u]);
            uint4 y;
            T *v = reinterpret_cast<T *>(&y);
            if (i + u * stride >= n_packs)
                break;
            if constexpr (math) {
#pragma unroll
                for (int w = 0; w < width / 4; w++)
                    compute4<To>(words[w], laws[4 * w % 3], laws[(4 * w + 1) % 3],
                                 laws[(4 * w + 2) % 3], laws[(4 * w + 3) % 3], v + 4 * w);
            } else {
#pragma unroll
                for (int k = 0; k < width; k++)
                    v[k] = shared[channel[k % 3] * 256 + (words[k / 4] >> 8 * (k % 4) & 255)];
            }
            out[i + u * stride] = y;
        }
    }
    // What is left over is shorter than one pack.
    if (blockIdx.x == 0 && threadIdx.x < n % width) {
        const int64_t at = n_packs * width + threadIdx.x;
        ((T *)a.dst)[at] = ((const T *)a.table)[(at % channels) * 256 + a.src[at]];
    }
}

/* Pixels to planes: from 16 bytes of each plane's output at a time, all three of them. groups: of these in a
 * picture, which must be made of whole ones. */
template <typename To, bool math>
__global__ void __launch_bounds__(threads) planar(const args a, uint32_t groups, uint32_t total)
{
    typedef typename To::type T;
    constexpr int width = 16 / sizeof(T), unroll = 2; // pixels of a group
    typedef typename bytes<width>::type load;
    constexpr bool look = !math && sizeof(T) > 1;
    __shared__ T shared[look ? 3 * 256 : 1];
    const uint32_t stride = gridDim.x * threads;
    const load *in = reinterpret_cast<const load *>(a.src);
    uint4 *out = reinterpret_cast<uint4 *>(a.dst);
    law laws[3];

    if (look)
        load_table(shared, (const T *)a.table, 3);
    for (int k = 0; k < 3; k++)
        laws[k] = { a.mean[k], a.std[k], a.recip[k] };
    for (uint32_t i = blockIdx.x * threads + threadIdx.x; i < total; i += unroll * stride) {
        alignas(16) load x[unroll][3];
#pragma unroll
        for (int u = 0; u < unroll; u++)
#pragma unroll
            for (int k = 0; k < 3; k++)
                if (i + u * stride < total)
                    x[u][k] = __ldg(in + (size_t)(i + u * stride) * 3 + k);
#pragma unroll
        for (int u = 0; u < unroll; u++) {
            const uint32_t g = i + u * stride, row = g / groups;
            const uint32_t *words = reinterpret_cast<const uint32_t *>(x[u]);
            uint4 y[3];
            if (g >= total)
                break;
#pragma unroll
            for (int c = 0; c < 3; c++) {
                T *v = reinterpret_cast<T *>(&y[c]);
#pragma unroll
                for (int p = 0; p < width; p += 4) {
                    // The four bytes of this channel, brought together.
                    uint32_t w = 0;
#pragma unroll
                    for (int k = 0; k < 4; k++) {
                        const int at = (p + k) * 3 + c;
                        w |= (words[at / 4] >> 8 * (at % 4) & 255) << 8 * k;
                    }
                    if constexpr (math) {
                        compute4<To>(w, laws[c], laws[c], laws[c], laws[c], v + p);
                    } else if constexpr (sizeof(T) == 1) {
                        reinterpret_cast<uint32_t *>(v)[p / 4] = w;
                    } else {
#pragma unroll
                        for (int k = 0; k < 4; k++)
                            v[p + k] = shared[c * 256 + (w >> 8 * k & 255)];
                    }
                }
                out[(size_t)row * 3 * groups + (size_t)c * groups + (g - row * groups)] = y[c];
            }
        }
    }
}

/* The same for pictures of any size, a pixel at a time. blockIdx.y counts rows. */
template <typename To> __global__ void __launch_bounds__(threads) planar1(const args a)
{
    typedef typename To::type T;
    __shared__ T shared[sizeof(T) == 1 ? 1 : 3 * 256];
    const int64_t stride = (int64_t)gridDim.x * threads;

    if (sizeof(T) > 1)
        load_table(shared, (const T *)a.table, 3);
    for (int64_t row = blockIdx.y; row < a.rows; row += gridDim.y) {
        const uint8_t *in = a.src + row * a.pixels * 3;
        T *out = (T *)a.dst + row * a.pixels * 3;
        for (int64_t p = (int64_t)blockIdx.x * threads + threadIdx.x; p < a.pixels; p += stride)
#pragma unroll
            for (int c = 0; c < 3; c++) {
                const uint8_t x = in[3 * p + c];
                out[c * a.pixels + p] = sizeof(T) == 1 ? (T)x : shared[c * 256 + x];
            }
    }
}

unsigned at_most(int64_t n, int64_t most)
{
    return (unsigned)(n < 1 ? 1 : n < most ? n : most);
}

template <typename To> cudaError_t launch_flat(const args &a, cudaStream_t stream)
{
    const int64_t n = a.rows * a.pixels * a.channels, packs = n / (16 / sizeof(typename To::type));
    const unsigned most = (unsigned)a.processors * blocks_per_processor;
    const unsigned grid = (at_most(packs / (threads * 4) + 1, most) + 2) / 3 * 3;

    if (a.channels == 1 && a.compute)
        flat<To, 1, true><<<grid, threads, 0, stream>>>(a, n);
    else if (a.channels == 1)
        flat<To, 1, false><<<grid, threads, 0, stream>>>(a, n);
    else if (a.compute)
        flat<To, 3, true><<<grid, threads, 0, stream>>>(a, n);
    else
        flat<To, 3, false><<<grid, threads, 0, stream>>>(a, n);
    return cudaGetLastError();
}

/* A launch for as many rows as a 32-bit count of groups can hold. */
template <typename To> cudaError_t launch_groups(args a, int64_t groups, cudaStream_t stream)
{
    typedef typename To::type T;
    const int64_t most_rows = ((int64_t)1 << 30) / groups;
    const unsigned most = (unsigned)a.processors * blocks_per_processor;
    int64_t left = a.rows;

    for (; left > 0; left -= a.rows) {
        a.rows = left < most_rows ? left : most_rows;
        const int64_t total = a.rows * groups;
        const unsigned grid = at_most(total / (threads * 2) + 1, most);

        if constexpr (sizeof(T) > 1) {
            if (a.compute)
                planar<To, true>
                    <<<grid, threads, 0, stream>>>(a, (uint32_t)groups, (uint32_t)total);
            else
                planar<To, false>
                    <<<grid, threads, 0, stream>>>(a, (uint32_t)groups, (uint32_t)total);
        } else {
            planar<To, false><<<grid, threads, 0, stream>>>(a, (uint32_t)groups, (uint32_t)total);
        }
        a.src += a.rows * a.pixels * 3;
        a.dst = (T *)a.dst + a.rows * a.pixels * 3;
    }
    return cudaGetLastError();
}

template <typename To> cudaError_t launch_planar(const args &a, cudaStream_t stream)
{
    const int64_t width = 16 / sizeof(typename To::type);

    if (a.pixels % width == 0 && a.pixels / width < ((int64_t)1 << 30))
        return launch_groups<To>(a, a.pixels / width, stream);
    const dim3 grid(at_most(a.pixels / (threads * 4) + 1, 1 << 20), at_most(a.rows, 65535));
    planar1<To><<<grid, threads, 0, stream>>>(a);
    return cudaGetLastError();
}

} // namespace

extern "C" int fl_gpu_normalize(const struct fl_gpu_normalize *a, void *stream)
{
    cudaStream_t s = (cudaStream_t)stream;
    const bool planes = a->layout == FL_NCHW && a->channels > 1;
    const size_t n = (size_t)(a->rows * a->pixels * a->channels);

    if (n == 0)
        return cudaSuccess;
    switch (a->dtype) {
    case FL_U8:
        return planes ? launch_planar<to_u8>(*a, s)
                      : cudaMemcpyAsync(a->dst, a->src, n, cudaMemcpyDeviceToDevice, s);
    case FL_F16:
        return planes ? launch_planar<to_f16>(*a, s) : launch_flat<to_f16>(*a, s);
    case FL_BF16:
        return planes ? launch_planar<to_bf16>(*a, s) : launch_flat<to_bf16>(*a, s);
    case FL_F32:
        return planes ? launch_planar<to_f32>(*a, s) : launch_flat<to_f32>(*a, s);
    default:
        return cudaErrorInvalidValue;
    }
}
