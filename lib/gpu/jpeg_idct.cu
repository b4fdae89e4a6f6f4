/* SPDX-License-Identifier: Apache-2.0 */
/* GPU JPEG, inverse DCT: a thread for each block, all of it in registers. */
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

} // namespace

int fl_jpeg_launch_idct(const struct fl_jpeg_device *d, void *stream)
{
    const uint32_t grid = fl_jpeg_grid(d, d->n_items[1]);

    if (grid)
        idct<<<grid, FL_JPEG_IDCT, 0, (cudaStream_t)stream>>>(*d);
    return (int)cudaPeekAtLastError();
}
