/* SPDX-License-Identifier: Apache-2.0 */
/* Rectangles, and what is taken from a picture: plain values that the crop law draws, the slicer cuts
 * and the decoders (CPU and GPU) produce. */
#ifndef FL_RECT_H
#define FL_RECT_H

#include <stdbool.h>
#include <stdint.h>

/* A rectangle of pixels: columns x to x + w - 1, rows y to y + h - 1. */
struct fl_rect {
    int32_t x, y, w, h; // pixels
};

/* One view of a picture: `box` of it is resized to rw x rh, of which the rectangle `window` is
 * produced, then mirrored left to right if `flip`. A random-resized crop has the whole rw x rh as its
 * window; a centre crop has the whole picture as its box and a window in the middle. */
struct fl_crop {
    struct fl_rect box;
    int32_t rw, rh;
    struct fl_rect window; // 0 <= x, x + w <= rw; 0 <= y, y + h <= rh
    bool flip;             // in the upright frame: after EXIF orientation, where that is honoured
};

#endif
