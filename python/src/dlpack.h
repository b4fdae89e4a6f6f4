/* SPDX-License-Identifier: Apache-2.0 */
/* The tensor exchange structures of DLPack 1.1 (https://dmlc.github.io/dlpack/latest/c_api.html), written
 * from its published layout: both the unversioned structure and the versioned one. */
#ifndef FL_PYTHON_DLPACK_H
#define FL_PYTHON_DLPACK_H

#include <stdint.h>

enum { DL_CPU = 1, DL_CUDA = 2 };                              // device types
enum { DL_INT = 0, DL_UINT = 1, DL_FLOAT = 2, DL_BFLOAT = 4 }; // type codes

#define DL_MAJOR 1
#define DL_MINOR 0
#define DL_FLAG_READ_ONLY 1u

struct dl_device {
    int32_t type, id;
};

struct dl_dtype {
    uint8_t code, bits;
    uint16_t lanes;
};

struct dl_tensor {
    void *data;
    struct dl_device device;
    int32_t ndim;
    struct dl_dtype dtype;
    int64_t *shape, *strides; // strides in elements; NULL: C order
    uint64_t byte_offset;
};

struct dl_managed { // "dltensor"
    struct dl_tensor tensor;
    void *ctx;
    void (*deleter)(struct dl_managed *self);
};

struct dl_managed_versioned { // "dltensor_versioned"
    uint32_t major, minor;
    void *ctx;
    void (*deleter)(struct dl_managed_versioned *self);
    uint64_t flags;
    struct dl_tensor tensor;
};

#endif
