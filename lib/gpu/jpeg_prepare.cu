/* SPDX-License-Identifier: Apache-2.0 */
/* GPU JPEG, before the Huffman stage: one thread block for each picture finds its restart markers and
 * sorts its segments, another one builds its tables and resampling weights. */
#include "gpu/jpeg_device.h"
#include "gpu/jpeg_stage.h"

#include <cuda_runtime.h>

namespace
{

constexpr uint32_t scan_warps = FL_JPEG_SCAN / 32;
constexpr uint32_t all = 0xffffffffu;

/* ---- prepare ---------------------------------------------------------------------------------- */

__device__ void build_tables(const fl_jpeg_device &d, const fl_jpeg_pic &p)
{
    fl_jpeg_lut *const luts = d.luts + 4 * (size_t)p.tables;
    const fl_jpeg_tables *const tables = &d.tables[p.tables];

    if (threadIdx.x < 4)
        fl_huff_limits(fl_stage_huff(tables, threadIdx.x), luts[threadIdx.x].limit,
                       luts[threadIdx.x].first);
    for (uint32_t i = threadIdx.x; i < 4 * 256; i += FL_JPEG_SCAN)
        luts[i >> 8].vals[i & 255] = fl_stage_huff(tables, i >> 8)->vals[i & 255];
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < 4u << FL_JPEG_LOOK; i += FL_JPEG_SCAN) {
        fl_jpeg_lut *const lut = &luts[i >> FL_JPEG_LOOK];
        const uint32_t at = i & ((1u << FL_JPEG_LOOK) - 1);
        lut->fast[at] = (uint16_t)fl_stage_fast(lut, i >> FL_JPEG_LOOK, at);
    }
}

__device__ void build_weights(const fl_jpeg_device &d, const fl_jpeg_pic &p)
{
    int32_t *const starts = (int32_t *)d.axis;
    int16_t *const weights = (int16_t *)d.axis;

    for (int32_t i = threadIdx.x; i < p.x.n + p.y.n; i += FL_JPEG_SCAN) {
        const fl_jpeg_axis &a = i < p.x.n ? p.x : p.y;
        const int32_t k = i < p.x.n ? i : i - p.x.n;
        starts[a.starts + k] = fl_jpeg_weights(&a, k, weights + a.weights + k, a.n);
    }
}

/* Which of a thread's 16 bytes are the second byte of a restart marker; prev: the byte before. */
__device__ uint32_t find_marks(const uint4 &v, uint32_t prev)
{
    const uint32_t w[4] = { v.x, v.y, v.z, v.w };
    uint32_t mask = 0;

    if (prev != 255 && !(fl_find_ff(v.x) | fl_find_ff(v.y) | fl_find_ff(v.z) | fl_find_ff(v.w)))
        return 0;
#pragma unroll
    for (uint32_t i = 0; i < 16; i++) {
        const uint32_t byte = w[i / 4] >> (8 * (i & 3)) & 255;
        mask |= (prev == 255 && fl_is_rst(byte) ? 1u : 0u) << i;
        prev = byte;
    }
    return mask;
}

struct scan_memory {
    uint32_t last[2][scan_warps];  // last byte of each warp's part
    uint32_t count[2][scan_warps]; // markers of each warp's part
    uint32_t tail[2];
};

/* Places of the first n_marks markers. With d.fetch the bytes are copied on the way. Returns how many
 * markers were seen. */
__device__ uint32_t scan(const fl_jpeg_device &d, const fl_jpeg_pic &p, scan_memory &m,
                         uint32_t *bad)
{
    const uint32_t lane = threadIdx.x & 31, warp = threadIdx.x >> 5, skew = p.data & 15;
    const uint4 *const from =
        d.fetch ? (const uint4 *)(p.src - skew) : (const uint4 *)(d.data + (p.data - skew));
    uint4 *const to = (uint4 *)(d.data + (p.data - skew));
    const uint32_t chunks = (skew + p.length + 15) / 16;
    uint32_t found = 0, parity = 0;
    uint4 next = make_uint4(0, 0, 0, 0);

    if (threadIdx.x < chunks)
        next = from[threadIdx.x];
    for (uint32_t base = 0; base < chunks && (p.entries || found < p.n_marks);
         base += FL_JPEG_SCAN) {
        const uint32_t chunk = base + threadIdx.x;
        const uint4 v = next;
        if (chunk + FL_JPEG_SCAN < chunks)
            next = from[chunk + FL_JPEG_SCAN];
        if (d.fetch && chunk < chunks)
            to[chunk] = v;

        const uint32_t own = v.w >> 24;
        if (lane == 31)
            m.last[parity][warp] = own;
        if (threadIdx.x == FL_JPEG_SCAN - 1)
            m.tail[parity] = own;
        __syncthreads();
        uint32_t prev = __shfl_up_sync(all, own, 1);
        if (lane == 0)
            prev = warp ? m.last[parity][warp - 1] : base ? m.tail[parity ^ 1] : 0;
        uint32_t mask = chunk < chunks ? find_marks(v, prev) : 0;
        if (chunk == 0)
            mask &= ~((2u << skew) - 1); // the marker's first byte would lie before the range
        if (chunk + 1 == chunks)
            mask &= 0xffffu >> (15 - ((skew + p.length - 1) & 15));

        const uint32_t mine = __popc(mask);
        uint32_t upto = mine;
#pragma unroll
        for (int s = 1; s < 32; s *= 2) {
            const uint32_t other = __shfl_up_sync(all, upto, s);
            upto += lane >= s ? other : 0;
        }
        if (lane == 31)
            m.count[parity][warp] = upto;
        __syncthreads();
        uint32_t at = found + upto - mine;
        for (uint32_t i = 0; i < scan_warps; i++) {
            at += i < warp ? m.count[parity][i] : 0;
            found += m.count[parity][i];
        }
        const uint8_t *const bytes = d.data + p.data;
        for (; mask; mask &= mask - 1, at++) {
            const uint32_t second = chunk * 16 + __ffs(mask) - 1 - skew;
            if (at >= p.n_marks)
                break;
            d.marks[p.marks + at] = second - 1;
            if ((bytes[second] & 7u) != ((p.phase + at) & 7u))
                *bad |= FL_JPEG_BAD_MARKER;
        }
        parity ^= 1;
    }
    __syncthreads();
    return found;
}

__device__ uint32_t segment_of(const fl_jpeg_device &d, const fl_jpeg_pic &p, uint32_t found,
                               uint32_t i, fl_jpeg_segment *s)
{
    if (p.entries) {
        *s = d.entries[p.entries - 1 + i];
        return fl_stage_entry(&p, s);
    }
    return fl_stage_segment(&p, d.marks + p.marks, found, i, s);
}

/* Put the segments' records in order of length, the longest first. */
__device__ void sort_segments(const fl_jpeg_device &d, const fl_jpeg_pic &p, uint32_t found,
                              uint32_t *place, uint32_t *bad)
{
    fl_jpeg_segment s;

    for (uint32_t i = threadIdx.x; i < FL_JPEG_BUCKETS; i += FL_JPEG_SCAN)
        place[i] = 0;
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < p.n_segments; i += FL_JPEG_SCAN) {
        *bad |= segment_of(d, p, found, i, &s);
        atomicAdd(&place[fl_stage_bucket(s.length)], 1u);
    }
    __syncthreads();
    if (threadIdx.x < 32) {
        uint32_t mine[FL_JPEG_BUCKETS / 32], sum = 0;
#pragma unroll
        for (int k = 0; k < FL_JPEG_BUCKETS / 32; k++) {
            mine[k] = sum;
            sum += place[threadIdx.x * (FL_JPEG_BUCKETS / 32) + k];
        }
        uint32_t upto = sum;
#pragma unroll
        for (int k = 1; k < 32; k *= 2) {
            const uint32_t other = __shfl_up_sync(all, upto, k);
            upto += threadIdx.x >= k ? other : 0;
        }
#pragma unroll
        for (int k = 0; k < FL_JPEG_BUCKETS / 32; k++)
            place[threadIdx.x * (FL_JPEG_BUCKETS / 32) + k] = upto - sum + mine[k];
    }
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < p.n_segments; i += FL_JPEG_SCAN) {
        segment_of(d, p, found, i, &s);
        d.segments[p.segment + atomicAdd(&place[fl_stage_bucket(s.length)], 1u)] = s;
    }
}

__global__ void __launch_bounds__(FL_JPEG_SCAN) prepare(const fl_jpeg_device d)
{
    __shared__ scan_memory m;
    __shared__ uint32_t place[FL_JPEG_BUCKETS];
    __shared__ fl_jpeg_pic p;

    for (uint32_t work = blockIdx.x; work < 2 * d.n_pics; work += gridDim.x) {
        const uint32_t number = work < d.n_pics ? work : work - d.n_pics;
        uint32_t bad = 0, found = 0;
        __syncthreads();
        for (uint32_t i = threadIdx.x; i < sizeof(p) / 4; i += FL_JPEG_SCAN)
            ((uint32_t *)&p)[i] = ((const uint32_t *)&d.pics[number])[i];
        __syncthreads();
        if (work >= d.n_pics) {
            if (p.own_tables)
                build_tables(d, p);
            build_weights(d, p);
            continue;
        }
        found = p.entries && !d.fetch ? 0 : scan(d, p, m, &bad);
        if (p.entries)
            bad = 0; // what looks like a marker is none of ours
        sort_segments(d, p, found, place, &bad);
        if (bad)
            atomicOr(&d.flags[number], bad);
    }
}

} // namespace

int fl_jpeg_launch_prepare(const struct fl_jpeg_device *d, void *stream)
{
    const uint32_t grid = fl_jpeg_grid(d, 2 * d->n_pics);

    if (grid)
        prepare<<<grid, FL_JPEG_SCAN, 0, (cudaStream_t)stream>>>(*d);
    return (int)cudaPeekAtLastError();
}
