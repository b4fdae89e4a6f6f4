/* SPDX-License-Identifier: Apache-2.0 */
/* One JPEG, or a slice of one, to the pixels of one view: region decode at a DCT scale, resample,
 * mirror, orient. libjpeg-turbo does the decoding behind an error, source and memory manager of
 * ours: it never prints, exits or allocates beyond the bound. May use base/ and kernels/. */
#ifndef FL_JPEG_DECODE_H
#define FL_JPEG_DECODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <feedline/error.h>

#include "rect.h"
#include "jpeg/entry.h"
#include "jpeg/header.h"
#include "jpeg/slice.h"
#include "kernels/kernels.h"

struct fl_jpeg_limits {
    int64_t max_pixels; // width x height of a picture; 0: 178,956,970
    int32_t max_scans;  // 0: 100
    size_t max_memory; // all that a decoder may hold at once; 0: as much as a picture of max_pixels
                       // needs
    size_t reserve;    // taken at open, enough for usual pictures; 0: 4 MiB
    bool codec_alone;  // libjpeg-turbo does all the work; for tests and comparisons: same pixels
};

/* One for each worker; one thread at a time. Memory beyond the reserve is taken when a picture
 * needs it, up to max_memory, and kept for the next one. */
struct fl_jpeg_decoder;

int fl_jpeg_decoder_new(struct fl_jpeg_decoder **out, const struct fl_jpeg_limits *limits,
                        const struct fl_kernels *kernels);
void fl_jpeg_decoder_free(struct fl_jpeg_decoder *dec); // NULL is fine

/* Bytes held now. */
size_t fl_jpeg_decoder_bytes(const struct fl_jpeg_decoder *dec);

struct fl_jpeg_request {
    struct fl_crop crop; // the view, in the stored frame of the whole picture (fl_orient_crop())
    int32_t origin_x, origin_y; // where the first pixel of `data` stands in the picture: 0, 0 for a
                                // whole file; a slice begins at multiples of the MCU
    bool exact;                 // full scale; else the smallest DCT scale that covers rw x rh
    bool tolerate;              // a codec warning is no error
    uint8_t channels;           // 3: RGB; 1: grey
    uint8_t orientation;        // 1..8: turn the result upright; 0 is 1
    uint8_t *
        dst; // first pixel of the result: window.w x window.h, or the reverse from orientation 5 on
    ptrdiff_t stride; // bytes from one row of the result to the next
};

/* What was read of a sliced JPEG: the row groups of a range that covers the view at its scale. */
struct fl_jpeg_slice {
    const struct fl_slice_table *table;
    const struct fl_slice_range *range;
    const struct fl_slice_bytes *headers; // FL_SLICE_HEADERS of them
    const uint8_t *bytes;                 // range->length, their checksums compared
};

/* What was read of a file with entry points, likewise. */
struct fl_jpeg_points {
    const struct fl_entry_table *table;
    const struct fl_entry_range *range;
    const struct fl_slice_bytes *headers; // FL_ENTRY_STRINGS of them
    const uint8_t *bytes;                 // range->length, their checksums compared
};

struct fl_jpeg_info {
    struct fl_jpeg_header header;
    int scale;         // s of s/8
    int warnings;      // of the codec, in the part that was decoded
    char warning[200]; // text of the first
};

/* Decode. Colours: RGB from grey (replicated), YCbCr, RGB-stored, CMYK and YCCK; channels = 1 is
 * BT.601 luma (Y as stored, where it is). Four components carry ink: stored inverted if the file
 * has an Adobe marker, else as they are; R = (255 - C)(255 - K) / 255 rounded, likewise G and B.
 *
 * 0; FL_ERR(EBADMSG): damaged (the codec's words; a warning counts unless `tolerate`);
 * FL_ERR(ENOTSUP): a kind of JPEG that the codec cannot decode; FL_ERR(E2BIG): a limit, by name;
 * FL_ERR(ENOMEM). *err is filled on failure only, offset relative to `data`. dst is undefined after
 * a failure. info may be NULL. `data` is read only. */
int fl_jpeg_decode(struct fl_jpeg_decoder *dec, const uint8_t *data, size_t len,
                   const struct fl_jpeg_request *req, FlError *err, struct fl_jpeg_info *info);

/* The same from a slice, straight from its row groups: crop is in the frame of the whole picture, origin
 * and tolerate are not looked at. FL_ERR(ENOTSUP): take the slice's JPEG, fl_slice_cut(), to
 * fl_jpeg_decode(); it gives the same pixels. */
int fl_jpeg_decode_slice(struct fl_jpeg_decoder *dec, const struct fl_jpeg_slice *slice,
                         const struct fl_jpeg_request *req, FlError *err);

/* The same with entry points. */
int fl_jpeg_decode_points(struct fl_jpeg_decoder *dec, const struct fl_jpeg_points *points,
                          const struct fl_jpeg_request *req, FlError *err);

/* Name and version of the codec for the statistics, "libjpeg-turbo 2.1.5". Static string. */
const char *fl_jpeg_codec(void);

#endif
