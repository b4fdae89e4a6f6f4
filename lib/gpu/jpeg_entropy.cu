/* SPDX-License-Identifier: Apache-2.0 */
/* GPU JPEG: compressed bytes to coefficients. prepare: a thread block for each picture builds its
 * tables, finds its restart markers and sorts its segments. huffman: a thread for each segment; its
 * warp's neighbours have segments of like length. */
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
        lut->fast[at] = fl_stage_fast(lut, at);
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

    if (prev != 255 && !(fl_any_ff(v.x) | fl_any_ff(v.y) | fl_any_ff(v.z) | fl_any_ff(v.w)))
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

    for (uint32_t number = blockIdx.x; number < d.n_pics; number += gridDim.x) {
        uint32_t bad = 0, found = 0;
        __syncthreads();
        for (uint32_t i = threadIdx.x; i < sizeof(p) / 4; i += FL_JPEG_SCAN)
            ((uint32_t *)&p)[i] = ((const uint32_t *)&d.pics[number])[i];
        __syncthreads();
        found = p.entries && !d.fetch ? 0 : scan(d, p, m, &bad);
        if (p.entries)
            bad = 0; // what looks like a marker is none of ours
        sort_segments(d, p, found, place, &bad);
        if (p.own_tables)
            build_tables(d, p);
        build_weights(d, p);
        if (bad)
            atomicOr(&d.flags[number], bad);
    }
}

/* ---- huffman ---------------------------------------------------------------------------------- */

constexpr uint32_t ring_words = 32; // of each thread: a whole L1 line of its segment
constexpr uint32_t burst = 8;       // symbols between two looks at the ring

/* A thread's bytes on their way: words of shared memory, in a column of its own, so that the threads
 * of a warp never meet in a bank. */
struct ring {
    const uint32_t *from; // 16-byte aligned
    uint32_t *words;      // + 32 for the next one
    uint32_t rd, wr, end; // words taken, fetched, and there
};

__device__ __forceinline__ uint32_t big_endian(uint32_t w)
{
    return __byte_perm(w, 0, 0x0123);
}

/* Fetch what there is room for; up to 4 loads are in flight at a time. */
__device__ __forceinline__ void ring_fill(ring &r)
{
    if ((int32_t)(r.wr - r.rd) < 0)
        r.wr = r.rd & ~3u;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        uint4 v[4];
#pragma unroll
        for (int g = 0; g < 4; g++)
            if (r.wr + 4 * g + 4 - r.rd <= ring_words && r.wr + 4 * g < r.end)
                v[g] = *(const uint4 *)(r.from + r.wr + 4 * g);
#pragma unroll
        for (int g = 0; g < 4; g++)
            if (r.wr + 4 - r.rd <= ring_words && r.wr < r.end) {
                uint32_t *const w = r.words;
                w[((r.wr + 0) % ring_words) * 32] = big_endian(v[g].x);
                w[((r.wr + 1) % ring_words) * 32] = big_endian(v[g].y);
                w[((r.wr + 2) % ring_words) * 32] = big_endian(v[g].z);
                w[((r.wr + 3) % ring_words) * 32] = big_endian(v[g].w);
                r.wr += 4;
            }
    }
}

__device__ __forceinline__ uint32_t ring_take(ring &r)
{
    const uint32_t at = r.rd++;

    if ((int32_t)(r.wr - at) > 0)
        return r.words[(at % ring_words) * 32];
    return at < r.end ? big_endian(r.from[at]) : 0; // a burst of stuffed bytes
}

__device__ __forceinline__ void refill(fl_bits &b, ring &r)
{
    while (b.n <= 32) {
        if (b.left > 0)
            fl_bits_word(&b, ring_take(r));
        else
            fl_bits_zeros(&b);
    }
}

/* Begin a segment: the first word may hold bytes and bits of its predecessor. */
__device__ void begin(const fl_jpeg_device &d, const fl_jpeg_pic &p, const fl_jpeg_segment &s,
                      fl_bits &b, ring &r)
{
    const uint32_t first = p.data + s.offset, aligned = first & ~15u;

    r.from = (const uint32_t *)(d.data + aligned);
    r.rd = (first - aligned) / 4;
    r.wr = 0;
    r.end = (first + s.length - aligned + 3) / 4;
    b.buf = 0;
    b.n = 0;
    b.zeros = 0;
    b.left = (int32_t)s.length;
    b.ff = 0;
    b.bad = 0;
    ring_fill(r);
    if (b.left > 0)
        fl_bits_bytes(&b, ring_take(r), (int)(first & 3));
    if (s.bit) {
        refill(b, r);
        b.buf <<= s.bit;
        b.n -= s.bit;
    }
}

__constant__ const uint8_t order[80] = FL_JPEG_ZIGZAG;

__global__ void __launch_bounds__(FL_JPEG_GROUP) huffman(const fl_jpeg_device d)
{
    __shared__ __align__(16) fl_jpeg_lut luts[4];
    __shared__ uint32_t words[FL_JPEG_GROUP * ring_words];
    __shared__ uint32_t info[FL_JPEG_BLOCKS];
    __shared__ uint8_t zigzag[80];

    if (threadIdx.x < 40)
        for (int i = 0; i < 2; i++)
            zigzag[threadIdx.x * 2 + i] = order[threadIdx.x * 2 + i];
    for (uint32_t item = blockIdx.x; item < d.n_items[0]; item += gridDim.x) {
        const fl_jpeg_item work = d.items[0][item];
        const fl_jpeg_pic &p = d.pics[work.pic];
        const uint32_t i = work.first + threadIdx.x;
        __syncthreads();
        for (uint32_t k = threadIdx.x; k < sizeof(luts) / 16; k += FL_JPEG_GROUP)
            ((uint4 *)luts)[k] = ((const uint4 *)(d.luts + 4 * (size_t)p.tables))[k];
        if (threadIdx.x < p.blocks)
            info[threadIdx.x] = fl_stage_info(&p, threadIdx.x);
        __syncthreads();

        fl_jpeg_segment s = {};
        if (i < p.n_segments)
            s = d.segments[p.segment + i];
        const uint32_t blocks = p.blocks;
        fl_walk walk;
        fl_bits bits;
        ring r;
        r.words = words + (threadIdx.x >> 5) * 32 * ring_words + (threadIdx.x & 31);
        fl_walk_begin(&walk, &p, &s, d.coefs, info[0]);
        begin(d, p, s, bits, r);
        while (__any_sync(all, walk.mcus)) {
            if (__any_sync(all, walk.mcus && r.wr - r.rd < burst + 2 && r.wr < r.end))
                ring_fill(r);
#pragma unroll 1
            for (uint32_t n = 0; n < burst; n++) {
                if (walk.mcus) {
                    refill(bits, r);
                    fl_walk_symbol(&walk, &bits, luts, info, zigzag, blocks);
                }
                __syncwarp();
            }
        }
        if (i < p.n_segments) {
            const uint32_t bad = bits.bad ? bits.bad : fl_bits_end(&bits, s.end_bit);
            if (bad)
                atomicOr(&d.flags[work.pic], bad);
        }
    }
}

uint32_t grid_of(const fl_jpeg_device *d, uint32_t n)
{
    return d->grid && d->grid < n ? d->grid : n;
}

} // namespace

int fl_jpeg_launch_prepare(const struct fl_jpeg_device *d, void *stream)
{
    if (d->n_pics)
        prepare<<<grid_of(d, d->n_pics), FL_JPEG_SCAN, 0, (cudaStream_t)stream>>>(*d);
    return (int)cudaPeekAtLastError();
}

int fl_jpeg_launch_huffman(const struct fl_jpeg_device *d, void *stream)
{
    if (d->n_items[0])
        huffman<<<grid_of(d, d->n_items[0]), FL_JPEG_GROUP, 0, (cudaStream_t)stream>>>(*d);
    return (int)cudaPeekAtLastError();
}
