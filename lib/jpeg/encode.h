/* SPDX-License-Identifier: Apache-2.0 */
/* Pixels to JPEG; used where a dataset is made smaller with loss, never while training.
 * May use base/ and the codec. */
#ifndef FL_JPEG_ENCODE_H
#define FL_JPEG_ENCODE_H

#include <stddef.h>
#include <stdint.h>

#include <feedline/error.h>

#include "base/bytes.h"

struct fl_jpeg_encode {
    uint32_t width, height;
    int channels; // 3: RGB; 1: grey
    int quality;  // 1 to 100
    int h, v;     // luma sampling factors against chroma's 1x1: 2, 2 is 4:2:0; ignored for grey
    const uint8_t *icc; // profile to put in, NULL: none
    size_t icc_len;
};

/* Append a baseline JPEG with optimised Huffman tables to *out. The bytes depend on the arguments and the
 * codec's version alone. Returns 0; FL_ERR(EINVAL), FL_ERR(ENOMEM) with *err filled. */
int fl_jpeg_encode(const uint8_t *pixels, size_t stride, const struct fl_jpeg_encode *e,
                   struct fl_bytes *out, FlError *err);

#endif
