/* SPDX-License-Identifier: Apache-2.0 */
/* EXIF orientation: reading it, and the geometry that follows from it. May use base/ and rect.h. */
#ifndef FL_JPEG_EXIF_H
#define FL_JPEG_EXIF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rect.h"

/* Orientation tag of an APP1 payload that begins with "Exif\0\0". 1 if there is none or the block
 * is broken in any way. Reads nothing outside [data, data + len). */
int fl_exif_orientation(const uint8_t *data, size_t len);

/* Orientations 1..8 as the EXIF standard has them (what must be done to the stored picture so that
 * it stands upright). 2: mirrored left to right; 3: turned by half; 4: mirrored top to bottom; 5 to
 * 8: rows and columns change places, then as 1, 2 (6 and 7 in another order), see fl_orient_of().
 */
struct fl_orient {
    // Upright pixel (x, y) of a W x H picture is the stored pixel (u, v):
    // (u, v) = transpose ? (y, x) : (x, y); then u = U - 1 - u if mirror_u, v = V - 1 - v if
    // mirror_v.
    bool transpose, mirror_u, mirror_v;
};

struct fl_orient fl_orient_of(int orientation);

/* Size of the upright picture from that of the stored one, and the reverse: the two are the same
 * swap. */
void fl_orient_size(int orientation, int32_t *w, int32_t *h);

/* A box of the upright picture as a box of the stored one. stored_w, stored_h: size of the stored
 * frame. */
struct fl_rect fl_orient_box(int orientation, int32_t stored_w, int32_t stored_h,
                             struct fl_rect upright);

/* The same for a whole view: box, resized size and window. stored_w, stored_h: stored picture. */
struct fl_crop fl_orient_crop(int orientation, int32_t stored_w, int32_t stored_h,
                              struct fl_crop upright);

#endif
