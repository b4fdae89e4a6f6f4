/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FEEDLINE_TYPES_H
#define FEEDLINE_TYPES_H

#include <stddef.h>
#include <stdint.h>

#include <feedline/version.h>

/** Element types. Values are part of the ABI. */
typedef enum FlDtype {
    FL_U8 = 0,
    FL_I8,
    FL_I16,
    FL_U16,
    FL_I32,
    FL_U32,
    FL_I64,
    FL_U64,
    FL_F16,
    FL_BF16,
    FL_F32,
    FL_F64,
} FlDtype;

/** Order of an image batch's axes in memory. */
typedef enum FlLayout {
    FL_NHWC = 0, ///< {batch, height, width, channel}; "channels last"
    FL_NCHW,     ///< {batch, channel, height, width}
} FlLayout;

/** Where batches live. Make one with FL_CPU or FL_CUDA(n). */
typedef struct FlDevice {
    int32_t type;    ///< 0: host memory; 1: CUDA
    int32_t ordinal; ///< CUDA device number as the runtime counts, 0 for the host
} FlDevice;

#define FL_DEVICE_CPU 0
#define FL_DEVICE_CUDA 1
#ifdef __cplusplus
#define FL_CPU (FlDevice{ FL_DEVICE_CPU, 0 })
#define FL_CUDA(n) (FlDevice{ FL_DEVICE_CUDA, (n) })
#else
#define FL_CPU ((FlDevice){ FL_DEVICE_CPU, 0 })
#define FL_CUDA(n) ((FlDevice){ FL_DEVICE_CUDA, (n) })
#endif

#ifdef __cplusplus
extern "C" {
#endif

/** Bytes of one element, 0 for an unknown type. Any thread. */
FL_API size_t fl_dtype_bytes(FlDtype dtype);

/** "uint8", "bfloat16", ... as numpy and PyTorch write them. Static; "?" for an unknown type. */
FL_API const char *fl_dtype_name(FlDtype dtype);

#ifdef __cplusplus
}
#endif
#endif
