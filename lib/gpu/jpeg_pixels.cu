/* SPDX-License-Identifier: Apache-2.0 */
/* GPU JPEG, last stage: a thread block for each tile of the output. Upsampling and colour conversion
 * go into shared memory, four rows to a word; the vertical pass takes two of them in each instruction;
 * then the horizontal pass, the table and the store. */
#include "gpu/jpeg_device.h"
#include "gpu/jpeg_stage.h"

#include <cuda_runtime.h>

namespace
{

constexpr uint32_t warps = FL_JPEG_PIXELS / 32;

/* A tile: outputs [x0, x1) x [y0, y1) from decoded pixels left, top, cols, rows. */
struct tile {
    int32_t x0, x1, y0, y1;
    int32_t left, top;
    uint32_t cols, rows;
};

__device__ tile tile_of(const fl_jpeg_pic &p, uint32_t number, const int32_t *xs, const int32_t *ys)
{
    tile t;

    t.x0 = (int32_t)(number % p.tiles_x * p.tile_w);
    t.y0 = (int32_t)(number / p.tiles_x * p.tile_h);
    t.x1 = min(t.x0 + (int32_t)p.tile_w, p.x.n);
    t.y1 = min(t.y0 + (int32_t)p.tile_h, p.y.n);
    t.left = xs[t.x0];
    t.top = ys[t.y0];
    t.cols = (uint32_t)(min(xs[t.x1 - 1] + p.x.taps, p.x.hi) - t.left);
    t.rows = (uint32_t)(min(ys[t.y1 - 1] + p.y.taps, p.y.hi) - t.top);
    // What the plan made room for; never less than what is needed, but this is shared memory.
    t.cols = min(t.cols, p.cols_max);
    t.rows = min(t.rows, p.rows_max);
    return t;
}

/* ---- colour ----------------------------------------------------------------------------------- */

/* Four pixels of a column, by channel. */
struct quad {
    uint32_t c[3];
};

__device__ __forceinline__ void put_pixel(quad &q, int i, uint32_t rgb)
{
    q.c[0] |= (rgb & 255) << (8 * i);
    q.c[1] |= (rgb >> 8 & 255) << (8 * i);
    q.c[2] |= (rgb >> 16 & 255) << (8 * i);
}

/* The first sample that a tile needs of component c, were it full size. */
__device__ __forceinline__ const uint8_t *corner(const fl_jpeg_device &d, const fl_jpeg_comp &c,
                                                 const tile &t)
{
    return d.planes + (uint64_t)c.plane * 16 + (int64_t)(t.top - c.y0) * c.pitch + (t.left - c.x0);
}

/* All components at full size. */
struct colour_full {
    const uint8_t *p[3];
    uint32_t pitch[3];

    __device__ colour_full(const fl_jpeg_device &d, const fl_jpeg_pic &pic, const tile &t)
    {
        for (int c = 0; c < 3; c++) {
            p[c] = corner(d, pic.comp[c], t);
            pitch[c] = pic.comp[c].pitch;
        }
    }
    __device__ __forceinline__ quad operator()(const uint32_t row[4], uint32_t x) const
    {
        quad q = {};

#pragma unroll
        for (int i = 0; i < 4; i++)
            put_pixel(q, i,
                      fl_ycc_rgb(p[0][row[i] * pitch[0] + x], p[1][row[i] * pitch[1] + x],
                                 p[2][row[i] * pitch[2] + x]));
        return q;
    }
};

struct colour_grey {
    const uint8_t *p;
    uint32_t pitch;

    __device__ colour_grey(const fl_jpeg_device &d, const fl_jpeg_pic &pic, const tile &t)
        : p(corner(d, pic.comp[0], t)), pitch(pic.comp[0].pitch)
    {
    }
    __device__ __forceinline__ quad operator()(const uint32_t row[4], uint32_t x) const
    {
        uint32_t w = 0;

#pragma unroll
        for (int i = 0; i < 4; i++)
            w |= (uint32_t)p[row[i] * pitch + x] << (8 * i);
        return quad{ { w, w, w } };
    }
};

/* Chroma of half size both ways. The triangle filter is separable before it is rounded: first along
 * the row, 3 near + far, for the four rows of chroma around four rows of pixels. */
struct colour_h2v2 {
    const uint8_t *luma, *p[2];
    uint32_t pitch, chroma_pitch[2];
    int32_t left, top, x0[2], y0[2], dw, dh;

    __device__ colour_h2v2(const fl_jpeg_device &d, const fl_jpeg_pic &pic, const tile &t)
        : luma(corner(d, pic.comp[0], t)), pitch(pic.comp[0].pitch), left(t.left), top(t.top),
          dw(pic.comp[1].dw), dh(pic.comp[1].dh)
    {
        for (int c = 0; c < 2; c++) {
            p[c] = d.planes + (uint64_t)pic.comp[c + 1].plane * 16;
            chroma_pitch[c] = pic.comp[c + 1].pitch;
            x0[c] = pic.comp[c + 1].x0;
            y0[c] = pic.comp[c + 1].y0;
        }
    }
    __device__ __forceinline__ quad operator()(const uint32_t row[4], uint32_t x) const
    {
        const int32_t px = left + (int32_t)x, cx = px >> 1, y = top + (int32_t)row[0];
        const int32_t nx = fl_between(px & 1 ? cx + 1 : cx - 1, 0, dw - 1);
        const int32_t first = (y - 1) >> 1, bias = 8 - (px & 1);
        const int32_t last = (top + (int32_t)row[3] + 1) >> 1; // no more is there
        int32_t chroma[2][4];
        quad q = {};

#pragma unroll
        for (int c = 0; c < 2; c++) {
            int32_t along[4];
#pragma unroll
            for (int k = 0; k < 4; k++) {
                const int32_t cy = fl_between(min(first + k, last), 0, dh - 1);
                const uint8_t *const line = p[c] + (uint32_t)(cy - y0[c]) * chroma_pitch[c];
                along[k] = 3 * line[cx - x0[c]] + line[nx - x0[c]];
            }
            if (y & 1) {
                chroma[c][0] = (3 * along[0] + along[1] + bias) >> 4;
                chroma[c][1] = (3 * along[1] + along[0] + bias) >> 4;
                chroma[c][2] = (3 * along[1] + along[2] + bias) >> 4;
                chroma[c][3] = (3 * along[2] + along[1] + bias) >> 4;
            } else {
                chroma[c][0] = (3 * along[1] + along[0] + bias) >> 4;
                chroma[c][1] = (3 * along[1] + along[2] + bias) >> 4;
                chroma[c][2] = (3 * along[2] + along[1] + bias) >> 4;
                chroma[c][3] = (3 * along[2] + along[3] + bias) >> 4;
            }
        }
#pragma unroll
        for (int i = 0; i < 4; i++)
            put_pixel(q, i, fl_ycc_rgb(luma[row[i] * pitch + x], chroma[0][i], chroma[1][i]));
        return q;
    }
};

struct colour_any {
    const fl_jpeg_pic &pic;
    const uint8_t *planes;
    int32_t left, top;

    __device__ colour_any(const fl_jpeg_device &d, const fl_jpeg_pic &picture, const tile &t)
        : pic(picture), planes(d.planes), left(t.left), top(t.top)
    {
    }
    __device__ __forceinline__ quad operator()(const uint32_t row[4], uint32_t x) const
    {
        quad q = {};

#pragma unroll 1
        for (int i = 0; i < 4; i++)
            put_pixel(q, i, fl_jpeg_pixel(&pic, planes, left + (int32_t)x, top + (int32_t)row[i]));
        return q;
    }
};

/* Decoded pixels to shared memory: word (channel * quads + q) * cols + x has rows 4 q .. 4 q + 3. */
template <typename Colour>
__device__ void convert(const Colour &colour, const tile &t, uint32_t *rgb)
{
    const uint32_t lane = threadIdx.x & 31, warp = threadIdx.x >> 5, quads = (t.rows + 3) / 4;

    for (uint32_t q = warp; q < quads; q += warps) {
        uint32_t row[4];
#pragma unroll
        for (uint32_t i = 0; i < 4; i++)
            row[i] = min(4 * q + i, t.rows - 1);
        for (uint32_t x = lane; x < t.cols; x += 32) {
            const quad v = colour(row, x);
#pragma unroll
            for (uint32_t c = 0; c < 3; c++)
                rgb[(c * quads + q) * t.cols + x] = v.c[c];
        }
    }
}

__device__ void convert_tile(const fl_jpeg_device &d, const fl_jpeg_pic &p, const tile &t,
                             uint32_t *rgb)
{
    const uint32_t m0 = p.comp[0].mode, m1 = p.comp[1].mode, m2 = p.comp[2].mode;

    if (p.n_comp == 1)
        convert(colour_grey(d, p, t), t, rgb);
    else if (p.colour == 2 && m0 == FL_JPEG_FULL && m1 == FL_JPEG_FULL && m2 == FL_JPEG_FULL)
        convert(colour_full(d, p, t), t, rgb);
    else if (p.colour == 2 && m0 == FL_JPEG_FULL && m1 == FL_JPEG_H2V2 && m2 == FL_JPEG_H2V2)
        convert(colour_h2v2(d, p, t), t, rgb);
    else
        convert(colour_any(d, p, t), t, rgb);
}

/* ---- resampling ------------------------------------------------------------------------------- */

/* The vertical weights of the tile's rows, two to a word, lined up with the fours of rows. */
__device__ void line_up_weights(const fl_jpeg_pic &p, const tile &t, const int32_t *ys,
                                const int16_t *yw, uint32_t *weights)
{
    const uint32_t n = (uint32_t)(t.y1 - t.y0) * p.spans * 2;

    for (uint32_t i = threadIdx.x; i < n; i += FL_JPEG_PIXELS) {
        const int32_t y = t.y0 + (int32_t)(i / (2 * p.spans)), start = ys[y];
        const int32_t k = (int32_t)(i % (2 * p.spans)) * 2 - ((start - t.top) & 3);
        const int32_t taps = min(p.y.taps, p.y.hi - start);
        const uint32_t a = k >= 0 && k < taps ? (uint16_t)yw[k * p.y.n + y] : 0;
        const uint32_t b = k + 1 >= 0 && k + 1 < taps ? (uint16_t)yw[(k + 1) * p.y.n + y] : 0;
        weights[i] = a | b << 16;
    }
}

/* One row of the vertical pass whose taps touch N fours of rows; rgb: the first of them, in this
 * thread's first column. */
template <uint32_t N>
__device__ __forceinline__ void vertical_row(const uint32_t *rgb, uint32_t cols, uint32_t plane,
                                             const uint32_t *weights, int32_t bits,
                                             fl_between_passes *out, uint32_t lane)
{
    const uint32_t half = 1u << (bits - 8), shift = (uint32_t)bits - 7;
    uint2 w[N];

#pragma unroll
    for (uint32_t s = 0; s < N; s++)
        w[s] = *(const uint2 *)(weights + 2 * s);
    for (uint32_t x = lane; x < cols; x += 32, rgb += 32) {
        uint32_t sum[3];
#pragma unroll
        for (uint32_t c = 0; c < 3; c++) {
            sum[c] = half;
#pragma unroll
            for (uint32_t s = 0; s < N; s++) {
                const uint32_t v = rgb[c * plane + s * cols];
                sum[c] = __dp2a_hi(w[s].y, v, __dp2a_lo(w[s].x, v, sum[c]));
            }
        }
        out[x] = fl_between_passes{ sum[0] >> shift | sum[1] >> shift << 16, sum[2] >> shift };
    }
}

/* Any number of fours. */
__device__ __forceinline__ void vertical_rows(const uint32_t *rgb, uint32_t cols, uint32_t plane,
                                              const uint32_t *weights, uint32_t n, int32_t bits,
                                              fl_between_passes *out, uint32_t lane)
{
    const uint32_t half = 1u << (bits - 8), shift = (uint32_t)bits - 7;

    for (uint32_t x = lane; x < cols; x += 32, rgb += 32) {
        uint32_t sum[3] = { half, half, half };
        for (uint32_t s = 0; s < n; s++) {
            const uint2 w = *(const uint2 *)(weights + 2 * s);
#pragma unroll
            for (uint32_t c = 0; c < 3; c++) {
                const uint32_t v = rgb[c * plane + s * cols];
                sum[c] = __dp2a_hi(w.y, v, __dp2a_lo(w.x, v, sum[c]));
            }
        }
        out[x] = fl_between_passes{ sum[0] >> shift | sum[1] >> shift << 16, sum[2] >> shift };
    }
}

__device__ void vertical(const fl_jpeg_pic &p, const tile &t, const int32_t *ys,
                         const uint32_t *rgb, const uint32_t *weights, fl_between_passes *out)
{
    const uint32_t lane = threadIdx.x & 31, warp = threadIdx.x >> 5, cols = t.cols;
    const uint32_t quads = (t.rows + 3) / 4, plane = quads * cols;

    for (uint32_t y = warp; y < (uint32_t)(t.y1 - t.y0); y += warps) {
        const int32_t start = ys[t.y0 + (int32_t)y], end = min(start + p.y.taps, p.y.hi);
        const uint32_t first = (uint32_t)(start - t.top) / 4;
        const uint32_t n = min((uint32_t)(end - t.top + 3) / 4 - first, quads - first);
        const uint32_t *const from = rgb + first * cols + lane;
        const uint32_t *const w = weights + y * p.spans * 2;
        if (n == 1)
            vertical_row<1>(from, cols, plane, w, p.y.bits, out + y * cols, lane);
        else if (n == 2)
            vertical_row<2>(from, cols, plane, w, p.y.bits, out + y * cols, lane);
        else
            vertical_rows(from, cols, plane, w, n, p.y.bits, out + y * cols, lane);
    }
}

/* One pixel to the batch. to: where its first channel goes. */
template <typename T, bool nhwc>
__device__ __forceinline__ void store(const fl_jpeg_device &d, T *to, const T *table, uint32_t r,
                                      uint32_t g, uint32_t b)
{
    const bool plain = sizeof(T) == 1;

    to[0] = plain ? (T)r : table[r];
    if (d.channels == 3) {
        to[nhwc ? 1 : d.plane] = plain ? (T)g : table[256 + g];
        to[nhwc ? 2 : 2 * (uint64_t)d.plane] = plain ? (T)b : table[512 + b];
    }
}

/* Four rows of a column at a time, so that its weights are loaded once for them. */
template <typename T, bool nhwc>
__device__ void horizontal(const fl_jpeg_device &d, const fl_jpeg_pic &p, const tile &t,
                           const int32_t *xs, const int16_t *xw, const fl_between_passes *in,
                           const T *table, T *row)
{
    const uint32_t lane = threadIdx.x & 31, cols = t.cols;
    const uint32_t chunks = (uint32_t)(t.x1 - t.x0 + 31) / 32, lines = (uint32_t)(t.y1 - t.y0);
    const uint32_t half = 1u << (p.x.bits + 6), shift = (uint32_t)p.x.bits + 7;
    const int32_t n = p.x.n, hi = p.x.hi, most = p.x.taps, down = p.oy * (int32_t)d.step;
    uint32_t chunk = threadIdx.x >> 5, y = 0;

    for (;; chunk += warps) {
        while (chunk >= chunks) {
            chunk -= chunks;
            y += 4;
        }
        if (y >= lines)
            break;
        const int32_t x = t.x0 + (int32_t)(chunk * 32 + lane);
        if (x >= t.x1)
            continue;
        const int32_t start = xs[x], taps = min(most, hi - start);
        const fl_between_passes *from = in + y * cols + (uint32_t)(start - t.left);
        const int16_t *weight = xw + x;
        uint32_t sum[4][3];
#pragma unroll
        for (int i = 0; i < 4; i++)
            sum[i][0] = sum[i][1] = sum[i][2] = half;
        for (int32_t k = 0; k < taps; k++, from++, weight += n) {
            const uint32_t w = (uint16_t)*weight;
#pragma unroll
            for (uint32_t i = 0; i < 4; i++) {
                const fl_between_passes v = from[i * cols];
                sum[i][0] += w * (v.rg & 0xffff);
                sum[i][1] += w * (v.rg >> 16);
                sum[i][2] += w * v.b;
            }
        }
        const int32_t at = p.o + x * p.ox + (t.y0 + (int32_t)y) * p.oy;
        T *to = row + (int64_t)at * d.step;
#pragma unroll
        for (uint32_t i = 0; i < 4; i++, to += down)
            if (y + i < lines)
                store<T, nhwc>(d, to, table, sum[i][0] >> shift, sum[i][1] >> shift,
                               sum[i][2] >> shift);
    }
}

/* The row of a damaged picture is zeros. */
template <typename T>
__device__ void store_zeros(const fl_jpeg_device &d, const fl_jpeg_pic &p, const tile &t, T *row)
{
    const int32_t w = t.x1 - t.x0, n = w * (t.y1 - t.y0);

    for (int32_t i = threadIdx.x; i < n; i += FL_JPEG_PIXELS) {
        const int32_t at = p.o + (t.x0 + i % w) * p.ox + (t.y0 + i / w) * p.oy;
        for (uint32_t c = 0; c < d.channels; c++)
            row[(uint64_t)((uint32_t)at * d.step + c * d.plane)] = 0;
    }
}

template <typename T, bool nhwc>
__global__ void __launch_bounds__(FL_JPEG_PIXELS, 4) pixels(const fl_jpeg_device d)
{
    extern __shared__ __align__(16) uint8_t shared[];
    __shared__ T table[3 * 256];
    __shared__ fl_jpeg_pic p;

    if (d.table)
        for (uint32_t i = threadIdx.x; i < d.channels * 256; i += FL_JPEG_PIXELS)
            table[i] = ((const T *)d.table)[i];
    for (uint32_t item = blockIdx.x; item < d.n_items[2]; item += gridDim.x) {
        const fl_jpeg_item work = d.items[2][item];
        __syncthreads();
        for (uint32_t i = threadIdx.x; i < sizeof(p) / 4; i += FL_JPEG_PIXELS)
            ((uint32_t *)&p)[i] = ((const uint32_t *)&d.pics[work.pic])[i];
        __syncthreads();

        const int32_t *const xs = (const int32_t *)d.axis + p.x.starts;
        const int32_t *const ys = (const int32_t *)d.axis + p.y.starts;
        uint32_t *const weights = (uint32_t *)(shared + p.weights);
        fl_between_passes *const between = (fl_between_passes *)(shared + p.between);
        T *const row = (T *)d.out + (uint64_t)p.row * d.row;
        const tile t = tile_of(p, work.first, xs, ys);
        if (d.flags[work.pic]) {
            store_zeros(d, p, t, row);
            continue;
        }
        line_up_weights(p, t, ys, (const int16_t *)d.axis + p.y.weights, weights);
        convert_tile(d, p, t, (uint32_t *)shared);
        __syncthreads();
        vertical(p, t, ys, (const uint32_t *)shared, weights, between);
        __syncthreads();
        horizontal<T, nhwc>(d, p, t, xs, (const int16_t *)d.axis + p.x.weights, between, table,
                            row);
    }
}

template <typename T> int launch(const fl_jpeg_device *d, uint32_t shared, cudaStream_t stream)
{
    const uint32_t grid = fl_jpeg_grid(d, d->n_items[2]);

    if (grid && d->plane == 1)
        pixels<T, true><<<grid, FL_JPEG_PIXELS, shared, stream>>>(*d);
    else if (grid)
        pixels<T, false><<<grid, FL_JPEG_PIXELS, shared, stream>>>(*d);
    return (int)cudaPeekAtLastError();
}

template <typename T> cudaError_t allow(uint32_t shared)
{
    const cudaFuncAttribute most = cudaFuncAttributeMaxDynamicSharedMemorySize;
    const cudaError_t rc = cudaFuncSetAttribute(pixels<T, true>, most, (int)shared);

    return rc == cudaSuccess ? cudaFuncSetAttribute(pixels<T, false>, most, (int)shared) : rc;
}

} // namespace

int fl_jpeg_launch_pixels(const struct fl_jpeg_device *d, uint32_t shared, void *stream)
{
    cudaStream_t const s = (cudaStream_t)stream;

    return d->size == 1   ? launch<uint8_t>(d, shared, s)
           : d->size == 2 ? launch<uint16_t>(d, shared, s)
                          : launch<uint32_t>(d, shared, s);
}

int fl_jpeg_allow_tiles(uint32_t shared)
{
    cudaError_t rc = allow<uint8_t>(shared);

    rc = rc == cudaSuccess ? allow<uint16_t>(shared) : rc;
    return (int)(rc == cudaSuccess ? allow<uint32_t>(shared) : rc);
}
