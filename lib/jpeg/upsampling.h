/* SPDX-License-Identifier: Apache-2.0 */
/* How a component reaches the size of the picture at a DCT scale, as libjpeg-turbo decides it in
 * jpeg_calc_output_dimensions() and jinit_upsampler(); and which MCUs a box needs because of it. */
#ifndef FL_JPEG_UPSAMPLING_H
#define FL_JPEG_UPSAMPLING_H

#include <stdbool.h>
#include <stdint.h>

#include "rect.h"

/* Size and sampling of a picture. */
struct fl_frame {
    uint32_t width, height; // pixels
    uint8_t n_components;   // 1 or 3
    uint8_t h[3], v[3]; // sampling factors, without a common divisor where they come from a table
    uint8_t h_max, v_max;
};

struct fl_upsampling {
    uint32_t block; // samples of a block's side after the inverse DCT: 1, 2, 4 or 8
    uint32_t h, v;  // factors that are left for the upsampler
    bool whole;     // they are whole numbers; no decoder has others
    bool fancy;     // the triangle filter: needs a neighbour on every side
};

static inline struct fl_upsampling fl_upsampling_of(const struct fl_frame *f, int c, uint32_t scale)
{
    struct fl_upsampling u = { .block = scale };

    while (u.block < 8 && (f->h_max * scale) % (f->h[c] * u.block * 2) == 0 &&
           (f->v_max * scale) % (f->v[c] * u.block * 2) == 0)
        u.block *= 2;
    u.h = f->h_max * scale / (f->h[c] * u.block);
    u.v = f->v_max * scale / (f->v[c] * u.block);
    u.whole =
        u.h * f->h[c] * u.block == f->h_max * scale && u.v * f->v[c] * u.block == f->v_max * scale;
    u.fancy = scale > 1 && u.h <= 2 && u.v <= 2 && u.h * u.v > 1;
    return u;
}

/* Pixels of the whole picture that decoding `box` at scale/8 looks at: box widened to whole scaled
 * pixels, and by the neighbours of the triangle filter. */
static inline struct fl_rect fl_upsampling_reach(const struct fl_frame *f, struct fl_rect box,
                                                 uint32_t scale)
{
    const int32_t step = 8 / (int32_t)scale;
    int32_t margin_x = 0, margin_y = 0, x0, y0, x1, y1;

    for (int c = 0; c < f->n_components; c++) {
        const struct fl_upsampling u = fl_upsampling_of(f, c, scale);
        if (u.fancy && u.h == 2)
            margin_x = 2 * step;
        if (u.fancy && u.v == 2)
            margin_y = 2 * step;
    }
    x0 = box.x / step * step - margin_x;
    y0 = box.y / step * step - margin_y;
    x1 = (box.x + box.w + step - 1) / step * step + margin_x;
    y1 = (box.y + box.h + step - 1) / step * step + margin_y;
    x0 = x0 < 0 ? 0 : x0;
    y0 = y0 < 0 ? 0 : y0;
    x1 = x1 > (int32_t)f->width ? (int32_t)f->width : x1;
    y1 = y1 > (int32_t)f->height ? (int32_t)f->height : y1;
    return (struct fl_rect){ x0, y0, x1 - x0, y1 - y0 };
}

#endif
