/* SPDX-License-Identifier: Apache-2.0 */
/* GPU JPEG: what jpeg.c (host) and the kernels agree on. */
#ifndef FL_GPU_JPEG_DEVICE_H
#define FL_GPU_JPEG_DEVICE_H

#include <stdint.h>

#include "gpu/jpeg_desc.h"

#define FL_JPEG_SCAN 512   // threads of a picture's preparation
#define FL_JPEG_PIXELS 256 // threads of a tile

/* One batch: device memory of a lane, and where the pixels go. Passed to kernels by value. */
struct fl_jpeg_device {
    const struct fl_jpeg_pic *pics;
    const struct fl_jpeg_tables *tables;
    const struct fl_jpeg_segment *entries;
    const struct fl_jpeg_item *items[3];
    uint32_t n_pics, n_items[3];
    uint32_t fetch; // 1: prepare copies the compressed bytes from pics[].src
    uint32_t grid;  // most thread blocks of a kernel; 0: no limit

    uint8_t *data;
    struct fl_jpeg_segment *segments;
    uint32_t *marks;
    struct fl_jpeg_lut *luts; // four for each place in tables
    int16_t *coefs;
    uint8_t *planes;
    uint8_t *axis;
    uint32_t *flags; // of each picture

    void *out;
    const void *table;    // {channels, 256} elements; NULL: bytes as they are
    uint64_t row;         // elements of a row of the batch
    uint32_t step, plane; // elements from a pixel to the next, and from a channel to the next
    uint32_t channels;    // 1 or 3
    uint32_t size;        // bytes of an element
};

/* Thread blocks for n pieces of work. */
static inline uint32_t fl_jpeg_grid(const struct fl_jpeg_device *d, uint32_t n)
{
    return d->grid && d->grid < n ? d->grid : n;
}

#ifdef __cplusplus
extern "C" {
#endif

/* Tables, weights, markers and sorted segments of all pictures. Each returns a cudaError_t. */
int fl_jpeg_launch_prepare(const struct fl_jpeg_device *d, void *stream);

/* Segments to coefficients, whose memory is zeroed by then. */
int fl_jpeg_launch_huffman(const struct fl_jpeg_device *d, void *stream);

/* Coefficients to samples. */
int fl_jpeg_launch_idct(const struct fl_jpeg_device *d, void *stream);

/* Samples to the batch. shared: bytes of the largest tile. */
int fl_jpeg_launch_pixels(const struct fl_jpeg_device *d, uint32_t shared, void *stream);

/* Once for the current device: allow tiles of that size. */
int fl_jpeg_allow_tiles(uint32_t shared);

#ifdef __cplusplus
}
#endif
#endif
