/* SPDX-License-Identifier: Apache-2.0 */
/* The item that flows: one place of the epoch's order on its way from the plan to a row of a batch.
 * All samples are allocated at open, one for each row of each host slot; none is made or freed
 * later. */
#ifndef FL_SAMPLE_H
#define FL_SAMPLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <feedline/config.h>
#include <feedline/error.h>

#include "crop.h"
#include "jpeg/entry.h"
#include "jpeg/slice.h"
#include "rect.h"
#include "span.h"

struct fl_block;
struct fl_extent;

/* One contiguous range of one container. The plan fills the upper part, the read stage the lower.
 */
struct fl_read_req {
    uint32_t container;
    uint64_t offset;   // bytes
    uint64_t length;   // bytes; 0 is legal and needs no read
    void *dst;         // where the bytes must end up, or NULL: wherever the read stage likes
    uint64_t dst_size; // bytes that may be written from dst on, at least length

    const uint8_t
        *data; // the bytes, readable until fl_read_release(); dst itself if they are there already
    struct fl_block *block;   // read memory that holds them, NULL if they are at dst
    struct fl_sample *sample; // private to the read stage: whose request this is
    struct fl_read_req *next; // private to the read stage: served by the same read
};

/* What the plan found out about one column's field of a sample. */
struct fl_sample_field {
    bool present;        // the sample has the field
    int read;            // its request in reads[], -1: none
    bool whole;          // the request covers the whole span, so that its checksum can be compared
    int64_t value;       // of an integer field
    struct fl_span span; // of any other

    /* Pictures whose size the index knows; width 0: the decoder has to look. */
    uint16_t width, height; // pixels as stored
    uint8_t orientation;    // EXIF, 0 or 1: upright
    struct fl_crop_key key; // of the crop's draw
    struct fl_crop crop;    // upright frame; rw 0: not drawn yet, the size was unknown

    /* Sliced JPEG, or one with entry points: the request covers the row groups of the crop only. */
    bool sliced, points; // one of them or none
    int scale;           // DCT scale that the range was made for, in eighths
    struct fl_slice_table table;
    struct fl_slice_range range;
    struct fl_entry_table entries;
    struct fl_entry_range entry_range;
    struct fl_slice_bytes headers[FL_SLICE_HEADERS];
    uint8_t *blob; // memory of this field for the table and the header strings
    size_t blob_room;
};

struct fl_sample {
    int64_t position; // in the epoch's order
    int64_t epoch;
    int64_t id;       // in its dataset; -1: a padded row
    unsigned part;    // which dataset of a mixture
    uint32_t attempt; // 0, or the number of the stand-in for a bad sample
    uint32_t row;     // in its slot
    struct fl_slot *slot;

    unsigned n_reads;
    struct fl_read_req reads[FL_MAX_COLUMNS];
    unsigned reads_left; // private to the read stage
    struct fl_extent
        *unread;            // not NULL: its bytes are in the page cache, fl_read_copy() brings them
    struct fl_sample *next; // private to whoever holds the sample: queues link through it

    uint32_t on_gpu;  // columns, as bits, that the GPU decodes
    bool keeps_reads; // its read memory is released when the GPU is through with it
    unsigned n_fields;
    struct fl_sample_field *fields; // one for each column

    FlError err;    // err.code 0: good so far
    int err_column; // whose field err is about, -1: of no one column
};

#endif
