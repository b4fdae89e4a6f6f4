/* SPDX-License-Identifier: Apache-2.0 */
/* GPU JPEG: coefficients to pixels. idct: a thread for each block, all of it in registers. pixels: a
 * thread block for each tile of the output: upsampling and colour into shared memory, the vertical and
 * the horizontal pass from there, then the table and the store. */
#include "gpu/jpeg_device.h"
#include "gpu/jpeg_stage.h"

#include <cuda_runtime.h>

namespace
{

__global__ void __launch_bounds__(FL_JPEG_IDCT) idct(const fl_jpeg_device d)
{
    for (uint32_t item = blockIdx.x; item < d.n_items[1]; item += gridDim.x) {
        const fl_jpeg_item work = d.items[1][item];
        const fl_jpeg_pic &p = d.pics[work.pic];
        const fl_jpeg_comp &c = p.comp[work.comp];
        const uint32_t j = work.first + threadIdx.x;

        if (j < c.bw * c.bh)
            fl_stage_idct(&p, work.comp, j, d.coefs, &d.tables[p.tables], d.planes);
    }
}

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

template <typename T>
__device__ __forceinline__ void store(const fl_jpeg_device &d, T *row, const T *table, int32_t at,
                                      uint32_t pixel)
{
    T *const to = row + (uint64_t)(uint32_t)at * d.step;

    for (uint32_t c = 0; c < d.channels; c++) {
        const uint32_t v = pixel >> (8 * c) & 255;
        to[(uint64_t)c * d.plane] = d.table ? table[c * 256 + v] : (T)v;
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
            row[(uint64_t)(uint32_t)at * d.step + (uint64_t)c * d.plane] = 0;
    }
}

template <typename T>
__device__ void resample(const fl_jpeg_device &d, const fl_jpeg_pic &p, const tile &t,
                         uint32_t *shared, const T *table, T *row)
{
    const int32_t *const xs = (const int32_t *)d.axis + p.x.starts;
    const int32_t *const ys = (const int32_t *)d.axis + p.y.starts;
    const int16_t *const xw = (const int16_t *)d.axis + p.x.weights;
    const int16_t *const yw = (const int16_t *)d.axis + p.y.weights;
    const uint32_t lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    uint32_t *const rgb = shared;
    fl_between_passes *const between =
        (fl_between_passes *)(shared + ((t.rows * t.cols + 1) & ~1u));

    for (uint32_t y = warp; y < t.rows; y += FL_JPEG_PIXELS / 32)
        for (uint32_t x = lane; x < t.cols; x += 32)
            rgb[y * t.cols + x] =
                fl_jpeg_pixel(&p, d.planes, t.left + (int32_t)x, t.top + (int32_t)y);
    __syncthreads();
    for (int32_t y = t.y0 + (int32_t)warp; y < t.y1; y += FL_JPEG_PIXELS / 32) {
        const int32_t start = ys[y], taps = min(p.y.taps, p.y.hi - start);
        for (uint32_t x = lane; x < t.cols; x += 32)
            between[(uint32_t)(y - t.y0) * t.cols + x] =
                fl_stage_vertical(rgb + (uint32_t)(start - t.top) * t.cols + x, t.cols, yw + y,
                                  p.y.n, taps, p.y.bits);
    }
    __syncthreads();
    for (int32_t x = t.x0 + (int32_t)lane; x < t.x1; x += 32) {
        const int32_t start = xs[x], taps = min(p.x.taps, p.x.hi - start);
        for (int32_t y = t.y0 + (int32_t)warp; y < t.y1; y += FL_JPEG_PIXELS / 32) {
            const fl_between_passes *const from =
                between + (uint32_t)(y - t.y0) * t.cols + (uint32_t)(start - t.left);
            store(d, row, table, p.o + x * p.ox + y * p.oy,
                  fl_stage_horizontal(from, xw + x, p.x.n, taps, p.x.bits));
        }
    }
}

template <typename T>
__global__ void __launch_bounds__(FL_JPEG_PIXELS) pixels(const fl_jpeg_device d)
{
    extern __shared__ __align__(16) uint32_t shared[];
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
        const tile t = tile_of(p, work.first, (const int32_t *)d.axis + p.x.starts,
                               (const int32_t *)d.axis + p.y.starts);
        T *const row = (T *)d.out + (uint64_t)p.row * d.row;
        if (d.flags[work.pic])
            store_zeros(d, p, t, row);
        else
            resample(d, p, t, shared, table, row);
    }
}

uint32_t grid_of(const fl_jpeg_device *d, uint32_t n)
{
    return d->grid && d->grid < n ? d->grid : n;
}

} // namespace

int fl_jpeg_launch_idct(const struct fl_jpeg_device *d, void *stream)
{
    if (d->n_items[1])
        idct<<<grid_of(d, d->n_items[1]), FL_JPEG_IDCT, 0, (cudaStream_t)stream>>>(*d);
    return (int)cudaPeekAtLastError();
}

int fl_jpeg_launch_pixels(const struct fl_jpeg_device *d, uint32_t shared, void *stream)
{
    const uint32_t grid = grid_of(d, d->n_items[2]);
    cudaStream_t const s = (cudaStream_t)stream;

    if (!grid)
        return 0;
    if (d->size == 1)
        pixels<uint8_t><<<grid, FL_JPEG_PIXELS, shared, s>>>(*d);
    else if (d->size == 2)
        pixels<uint16_t><<<grid, FL_JPEG_PIXELS, shared, s>>>(*d);
    else
        pixels<uint32_t><<<grid, FL_JPEG_PIXELS, shared, s>>>(*d);
    return (int)cudaPeekAtLastError();
}

int fl_jpeg_allow_tiles(uint32_t shared)
{
    const cudaFuncAttribute most = cudaFuncAttributeMaxDynamicSharedMemorySize;
    cudaError_t rc = cudaFuncSetAttribute(pixels<uint8_t>, most, (int)shared);

    if (rc == cudaSuccess)
        rc = cudaFuncSetAttribute(pixels<uint16_t>, most, (int)shared);
    if (rc == cudaSuccess)
        rc = cudaFuncSetAttribute(pixels<uint32_t>, most, (int)shared);
    return (int)rc;
}
