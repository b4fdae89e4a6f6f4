/* SPDX-License-Identifier: Apache-2.0 */
/* A build without CUDA. */
#include "gpu/gpu.h"

const struct fl_gpu_ops *fl_gpu_ops(void)
{
    return NULL;
}
