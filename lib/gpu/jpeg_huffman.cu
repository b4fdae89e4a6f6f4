/* SPDX-License-Identifier: Apache-2.0 */
/* GPU JPEG, Huffman stage: a thread for each restart segment, 64 of one picture to a thread block, which
 * holds the picture's tables in shared memory. The threads of a warp have segments of like length and
 * go on symbol by symbol, all in the same instructions: what differs between them is in predicates.
 * Clean words wait in a ring of shared memory, each thread's in a bank of its own. Each thread fills its
 * block in shared memory; finished blocks are written by the whole warp in lines of 128 bytes: single
 * coefficients scattered over device memory cost four times as much time. */
#include "gpu/jpeg_device.h"
#include "gpu/jpeg_stage.h"

#include <cuda_runtime.h>

namespace
{

constexpr uint32_t all = 0xffffffffu;
constexpr uint32_t ring_words = 16;
constexpr uint32_t burst = 4; // symbols between two looks at the ring; they take 4 words at most

__constant__ const uint8_t order[64] = FL_JPEG_ZIGZAG;

/* Shared memory by its 32-bit address: the compiler would work the address out again for each access. */
__device__ __forceinline__ uint32_t shared_address(const void *p)
{
    uint32_t a = (uint32_t)__cvta_generic_to_shared(p);

    asm volatile("" : "+r"(a));
    return a;
}

__device__ __forceinline__ uint32_t load32(uint32_t address)
{
    uint32_t v;

    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(address) : "memory");
    return v;
}

__device__ __forceinline__ uint32_t load16(uint32_t address)
{
    uint16_t v;

    asm volatile("ld.shared.u16 %0, [%1];" : "=h"(v) : "r"(address) : "memory");
    return v;
}

__device__ __forceinline__ uint32_t load8(uint32_t address)
{
    uint32_t v;

    asm volatile("ld.shared.u8 %0, [%1];" : "=r"(v) : "r"(address) : "memory");
    return v;
}

__device__ __forceinline__ void store32(uint32_t address, uint32_t v)
{
    asm volatile("st.shared.u32 [%0], %1;" : : "r"(address), "r"(v) : "memory");
}

__device__ __forceinline__ void store16(uint32_t address, int32_t v)
{
    asm volatile("st.shared.u16 [%0], %1;" : : "r"(address), "h"((int16_t)v) : "memory");
}

/* Take 16 bytes and leave zeros. */
__device__ __forceinline__ uint4 take128(uint32_t address)
{
    uint4 v;

    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(address)
                 : "memory");
    asm volatile("st.shared.v4.u32 [%0], {%1, %1, %1, %1};" : : "r"(address), "r"(0) : "memory");
    return v;
}

/* ---- bytes ------------------------------------------------------------------------------------ */

/* A thread's clean words. */
struct ring {
    const uint4 *from; // where `ahead` came from
    uint4 ahead;       // the next 16 bytes of the segment, loaded long before they are looked at
    uint32_t words;    // address of word 0; the next one is 128 bytes on
    uint32_t rd, wr;   // words taken and put; rd runs ahead only behind the end
};

__device__ __forceinline__ uint32_t big_endian(uint32_t w)
{
    return __byte_perm(w, 0, 0x0123);
}

__device__ __forceinline__ void put(ring &r, uint32_t w)
{
    store32(r.words + r.wr % ring_words * 128, w);
    r.wr++;
}

/* Put the words of 16 bytes, the first `skip` of which come before the segment: up to 4, and the rest
 * at the segment's end. */
__device__ __forceinline__ void put16(ring &r, fl_feed &f, int32_t skip)
{
    const uint32_t in[4] = { r.ahead.x, r.ahead.y, r.ahead.z, r.ahead.w };

    r.from++;
    if (f.left > 16 - skip)
        r.ahead = *r.from;
#pragma unroll
    for (int32_t i = 0; i < 4; i++) {
        const int32_t before = skip > 4 * i ? skip - 4 * i : 0;
        uint32_t out;
        if (before < 4 && fl_feed_word(&f, big_endian(in[i]) << (8 * before), 4 - before, &out))
            put(r, out);
    }
    if (f.left == 0)
        put(r, f.acc);
}

/* Fill the ring as far as there is room. */
__device__ __forceinline__ void fill(ring &r, fl_feed &f)
{
#pragma unroll 1
    while (f.left > 0 && r.wr - r.rd + 5 <= ring_words)
        put16(r, f, 0);
}

/* The next clean word. Behind the end it is an old one: who consumes bits of it is found short. */
__device__ __forceinline__ uint32_t take(ring &r)
{
    return load32(r.words + r.rd++ % ring_words * 128);
}

/* ---- segments --------------------------------------------------------------------------------- */

struct shared_memory {
    __align__(16) fl_jpeg_lut luts[4];
    __align__(
        16) int16_t blocks[FL_JPEG_GROUP][64]; // 16-byte parts are swapped by thread: swap_of()
    uint32_t words[FL_JPEG_GROUP * ring_words];
    uint32_t info[FL_JPEG_BLOCKS];
    uint8_t zigzag[128]; // times two
};

__device__ __forceinline__ void begin(const fl_jpeg_device &d, const fl_jpeg_pic &p,
                                      const fl_jpeg_segment &s, fl_walk &w, fl_feed &f, ring &r)
{
    const uint32_t first = p.data + s.offset;

    f = {};
    f.left = (int32_t)s.length;
    r.from = (const uint4 *)(d.data + (first & ~15u));
    r.ahead = *r.from;
    r.rd = r.wr = 0;
    if (f.left > 0)
        put16(r, f, (int32_t)(first & 15));
    fill(r, f);
    w.w0 = take(r);
    w.w1 = take(r);
    w.w2 = take(r);
    w.p = s.bit;
    w.k = 0;
    w.left = s.mcus * p.blocks;
}

/* Which tables the blocks of an MCU take: DC, AC << 16, as distances in shared memory; and the
 * component, in bits that a distance leaves free. */
__device__ uint32_t block_info(const fl_jpeg_pic &p, uint32_t b)
{
    const uint32_t info = fl_stage_info(&p, b);
    const uint32_t dc = (info >> 8 & 255) * (uint32_t)sizeof(fl_jpeg_lut);
    const uint32_t ac = (info >> 16) * (uint32_t)sizeof(fl_jpeg_lut);

    return (info & 3) | dc | ac << 16;
}

/* The entry of a code that is longer than the first lookup. */
__device__ __noinline__ uint32_t long_code(uint32_t table, uint32_t dc, uint32_t win)
{
    return fl_stage_long((const fl_jpeg_lut *)__cvta_shared_to_generic(table), dc, win);
}

/* What is added (exclusive or) to the place of a byte in the block of a thread, so that equal places
 * of different threads are in different banks. */
__device__ __forceinline__ uint32_t swap_of(uint32_t lane)
{
    return (lane & 7) << 4;
}

/* Write the finished blocks of the warp's threads in `mask`, four at a time, and leave zeros. block: of
 * this thread. blocks: address of the warp's 32. */
__device__ __forceinline__ void flush(uint32_t mask, uint32_t block, uint32_t blocks,
                                      int16_t *coefs)
{
    const uint32_t lane = threadIdx.x & 31, part = (lane & 7) << 4;

    do {
        const uint32_t m1 = mask & (mask - 1), m2 = m1 & (m1 - 1), m3 = m2 & (m2 - 1);
        const uint32_t low = lane & 8 ? m1 : mask, high = lane & 8 ? m3 : m2;
        const uint32_t mine = lane & 16 ? high : low;
        const uint32_t from = mine ? __ffs((int)mine) - 1 : 0;
        const uint32_t to = __shfl_sync(all, block, (int)from);
        if (mine)
            *(uint4 *)((uint8_t *)coefs + (uint64_t)to * 128 + part) =
                take128(blocks + from * 128 + (part ^ swap_of(from)));
        mask = m3 & (m3 - 1);
    } while (mask);
}

/* The block's predictor takes the difference. */
__device__ __forceinline__ int32_t predict(int32_t (&pred)[3], uint32_t c, int32_t diff)
{
    const int32_t dc = fl_add(c == 0 ? pred[0] : c == 1 ? pred[1] : pred[2], diff);

    pred[0] = c == 0 ? dc : pred[0];
    pred[1] = c == 1 ? dc : pred[1];
    pred[2] = c == 2 ? dc : pred[2];
    return dc;
}

/* Decode the warp's segments. block: the first one of this thread's. Returns flags. */
__device__ __forceinline__ uint32_t decode(int16_t *coefs, uint32_t block, const fl_jpeg_segment &s,
                                           uint32_t n_blocks, shared_memory &m, fl_walk &w,
                                           fl_feed &f, ring &r)
{
    const uint32_t luts = shared_address(m.luts), infos = shared_address(m.info);
    const uint32_t zigzag = shared_address(m.zigzag), last = infos + 4 * (n_blocks - 1);
    const uint32_t blocks = shared_address(m.blocks[threadIdx.x & ~31u]);
    const uint32_t own = shared_address(m.blocks[threadIdx.x]), swap = swap_of(threadIdx.x);
    uint32_t info = load32(infos), next = n_blocks > 1 ? infos + 4 : infos, bad = 0;
    uint32_t table = luts + (info & 0xfff0u), info_next = load32(next);
    int32_t pred[3] = { s.pred[0], s.pred[1], s.pred[2] };

    while (__any_sync(all, w.left)) {
        if (__any_sync(all, w.left && f.left > 0 && r.wr - r.rd < burst + 1))
            fill(r, f);
#pragma unroll
        for (uint32_t n = 0; n < burst; n++) {
            bool ended = false;
            if (w.left) {
                const uint32_t win = fl_window(w.w0, w.w1, w.p), dc = w.k == 0;
                uint32_t e = load16(table + (win >> (32 - FL_JPEG_LOOK)) * 2), place;
                if (e == 0) {
                    e = long_code(table, dc, win);
                    bad |= e ? 0 : FL_JPEG_BAD_CODE;
                }
                int32_t v = fl_walk_symbol(&w, win, e, &place);
                if (fl_walk_advance(&w))
                    w.w2 = take(r);
                if (dc)
                    v = predict(pred, info & 3, v);
                store16(own + (load8(zigzag + place) ^ swap), v);
                ended = w.k > 63;
                info = ended ? info_next : info;
                table = luts + (ended ? info & 0xfff0u : info >> 16);
                next = ended ? (next == last ? infos : next + 4) : next;
                w.k = ended ? 0 : w.k;
                w.left -= ended;
                info_next = load32(next);
            }
            const uint32_t mask = __ballot_sync(all, ended);
            if (mask) {
                __syncwarp(); // the blocks that other threads filled
                flush(mask, block, blocks, coefs);
                __syncwarp(); // the zeros that other threads left
            }
            block += ended;
        }
        if (bad)
            w.left = 0;
    }
    return bad ? bad | f.bad : fl_walk_end(&w, &f, r.rd, s.end_bit);
}

__global__ void __launch_bounds__(FL_JPEG_GROUP) huffman(const fl_jpeg_device d)
{
    __shared__ shared_memory m;

    for (uint32_t i = threadIdx.x; i < sizeof(m.zigzag); i += FL_JPEG_GROUP)
        m.zigzag[i] = 2 * (i < 64 ? order[i] : 63);
    for (uint32_t item = blockIdx.x; item < d.n_items[0]; item += gridDim.x) {
        const fl_jpeg_item work = d.items[0][item];
        const fl_jpeg_pic &p = d.pics[work.pic];
        const uint32_t i = work.first + threadIdx.x, blocks = p.blocks;
        fl_jpeg_segment s = {};
        fl_walk w;
        fl_feed f;
        ring r;

        __syncthreads();
        for (uint32_t k = threadIdx.x; k < sizeof(m.luts) / 16; k += FL_JPEG_GROUP)
            ((uint4 *)m.luts)[k] = ((const uint4 *)(d.luts + 4 * (size_t)p.tables))[k];
        if (threadIdx.x < blocks)
            m.info[threadIdx.x] = block_info(p, threadIdx.x);
        if (i < p.n_segments)
            s = d.segments[p.segment + i];
        r.words =
            shared_address(m.words + (threadIdx.x >> 5) * 32 * ring_words + (threadIdx.x & 31));
        for (uint32_t k = threadIdx.x; k < sizeof(m.blocks) / 16; k += FL_JPEG_GROUP)
            ((uint4 *)m.blocks)[k] = make_uint4(0, 0, 0, 0);
        begin(d, p, s, w, f, r);
        __syncthreads();

        const uint32_t bad = decode(d.coefs, p.coef + s.mcu * blocks, s, blocks, m, w, f, r);
        if (i < p.n_segments && bad)
            atomicOr(&d.flags[work.pic], bad);
    }
}

} // namespace

int fl_jpeg_launch_huffman(const struct fl_jpeg_device *d, void *stream)
{
    const uint32_t grid = fl_jpeg_grid(d, d->n_items[0]);

    if (grid)
        huffman<<<grid, FL_JPEG_GROUP, 0, (cudaStream_t)stream>>>(*d);
    return (int)cudaPeekAtLastError();
}
