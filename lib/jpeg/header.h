/* SPDX-License-Identifier: Apache-2.0 */
/* What a JPEG says of itself before its first scan. A bounds-checked parser of its own, without
 * libjpeg, so that an index can be built from the first kilobytes of a file. May use base/. */
#ifndef FL_JPEG_HEADER_H
#define FL_JPEG_HEADER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <feedline/error.h>

/* The SOF marker's low nibble, ITU-T T.81 table B.1. */
enum fl_jpeg_sof {
    FL_SOF_BASELINE = 0,
    FL_SOF_EXTENDED = 1,
    FL_SOF_PROGRESSIVE = 2,
    FL_SOF_LOSSLESS = 3,
    FL_SOF_ARITHMETIC = 9,
    FL_SOF_ARITHMETIC_PROGRESSIVE = 10,
    // 5, 6, 7: hierarchical; 11: arithmetic lossless; 13, 14, 15: arithmetic hierarchical
};

enum fl_jpeg_colour {
    FL_JPEG_GREY = 1, // one component
    FL_JPEG_YCBCR,
    FL_JPEG_RGB,
    FL_JPEG_CMYK,
    FL_JPEG_YCCK,
    FL_JPEG_UNKNOWN, // 2 components, or more than 4: nothing decodes it to RGB
};

struct fl_jpeg_component {
    uint8_t id, h, v, quant; // identifier, sampling factors 1..4, quantisation table
};

struct fl_jpeg_header {
    uint32_t width, height; // stored pixels; height 0 is refused (DNL)
    uint8_t components;     // 1..4; a frame with more is refused
    uint8_t precision;      // bits of a sample
    uint8_t sof;            // enum fl_jpeg_sof
    uint8_t max_h, max_v;   // largest sampling factors
    struct fl_jpeg_component comp[4];
    uint8_t
        colour; // enum fl_jpeg_colour, by the decision table of libjpeg: JFIF, Adobe transform, ids
    bool jfif;  // APP0 "JFIF"
    int8_t adobe;        // transform of APP14 "Adobe": 0, 1, 2; -1: no such marker
    uint8_t orientation; // EXIF 1..8; 1 where the file says nothing or nonsense
    uint16_t restart;    // DRI before the frame's first scan, MCUs; 0: none
    size_t sof_offset;   // of the SOF marker's 0xFF
    size_t sos_offset;   // of the first SOS marker's 0xFF; 0: `data` ends before it
    size_t scan_offset;  // of the first entropy-coded byte; 0: `data` ends before it
};

/* Parse the beginning of a file, up to the first scan or the end of the bytes, whichever is first.
 * Fill bytes and stray bytes between segments are passed over; a broken EXIF block never fails a
 * picture.
 *
 * 0: size and colour are known (sos_offset is 0 if the bytes end before the scan).
 * FL_ERR(EAGAIN): the bytes end before the frame header: come again with more.
 * FL_ERR(EBADMSG): not a JPEG, or its structure is broken; FL_ERR(ENOTSUP): a frame that says
 * neither height nor a usable layout. err, which may be NULL, has a sentence; its offset is the
 * byte's in `data`. */
int fl_jpeg_parse(const uint8_t *data, size_t len, struct fl_jpeg_header *h, FlError *err);

/* Scans of a whole file, counted by their markers; stops at `most` + 1. Costs one pass of memchr.
 */
int fl_jpeg_count_scans(const uint8_t *data, size_t len, const struct fl_jpeg_header *h, int most);

/* "4:2:0", "grey", "CMYK 4:4:4:4", ... for people. Static string. */
const char *fl_jpeg_layout_name(const struct fl_jpeg_header *h);

#endif
