/* SPDX-License-Identifier: Apache-2.0 */
/* A rectangle of pixels: columns x to x + w - 1, rows y to y + h - 1. */
#ifndef FL_RECT_H
#define FL_RECT_H

#include <stdint.h>

struct fl_rect {
    int32_t x, y, w, h; // pixels
};

#endif
