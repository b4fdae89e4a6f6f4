/* SPDX-License-Identifier: Apache-2.0 */
/* Four inks to RGB or grey. Private to jpeg/. */
#ifndef FL_JPEG_INK_H
#define FL_JPEG_INK_H

#include <stdbool.h>
#include <stdint.h>

/* A row of CMYK pixels. With c, m, y, k as ink (0: none; 255 - stored value if `inverted`):
 * R = (255 - k) - round(c (255 - k) / 255), likewise G of m and B of y. channels 1: BT.601 luma of that,
 * (19595 R + 38470 G + 7471 B + 32768) >> 16. */
void fl_ink_convert(const uint8_t *cmyk, int pixels, bool inverted, int channels, uint8_t *out);

#endif
