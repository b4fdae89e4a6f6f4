/* SPDX-License-Identifier: Apache-2.0 */
/* What the direct_*.c files share. */
#ifndef FL_JPEG_DIRECT_INTERNAL_H
#define FL_JPEG_DIRECT_INTERNAL_H

#include "jpeg/direct.h"
#include "jpeg/entry.h"
#include "jpeg/entropy.h"
#include "jpeg/pixels.h"
#include "jpeg/slice_internal.h"
#include "jpeg/upsampling.h"

/* Samples of one component: a ring of MCU rows, twice as many as are decoded at once. Row r of the picture's samples is at
 * plane + (r % ring) * stride, its column x0 first. */
struct fl_plane {
    struct fl_upsampling up;
    uint32_t dw, dh;     // samples of the whole picture
    uint32_t x0;         // column of the first sample kept
    uint32_t rows, ring; // of an MCU row, and of all that are kept
    size_t stride;
    uint8_t *plane;
    uint32_t side; // log2 of up.block
    bool wanted;   // not so: chroma of a luma-only view
};

struct fl_direct {
    const struct fl_pixel_ops *ops;
    size_t max_memory;

    /* of the picture's header */
    struct fl_frame frame;
    enum fl_jpeg_colour colour;
    struct fl_mcu mcu;
    uint8_t place_x[FL_MAX_MCU_BLOCKS], place_y[FL_MAX_MCU_BLOCKS]; // of a block in its MCU
    struct fl_huff_set huff;
    const int16_t *quant[3];
    _Alignas(32) int16_t quants[4][64];
    _Alignas(32) int16_t block[2][64];

    /* of the view */
    int scale, channels;
    uint32_t x0, x1, y0, y1;     // decoded pixels
    uint32_t mx0, mx1, my0, my1; // MCUs that are needed, the last ones not included
    uint32_t y;                  // next row to hand out
    uint32_t row;                // next MCU row to decode
    uint32_t ahead;              // MCU rows that the source may decode at once
    struct fl_plane planes[3];
    uint8_t *up[3]; // a row of each component at full width
    int16_t *sums;  // of two chroma rows

    /* where MCU rows come from: decodes MCUs mx0 to mx1 of MCU row `row`, or of `ahead` rows from there on,
     * and moves row on */
    int (*source)(struct fl_direct *d, FlError *err);
    struct fl_slice_cursor cursor;
    uint32_t interval;      // slices: MCUs of a segment
    uint32_t first_segment; // slices: the range's first segment, n_segments
    uint32_t n_segments;
    struct fl_slice_bytes *parts; // slices: the segments of two MCU rows
    uint64_t offset;              // of the range, for messages
    struct fl_file_source {
        const uint8_t *scan, *end; // stuffed bytes of the file
        uint64_t scan_offset;
        uint32_t mcus_per_row, interval;
        const uint8_t *segment; // where the unstuffed bytes were
        uint64_t at;            // MCU that comes next
        int dc[4];
        struct fl_bit_reader bits;
        bool open;           // bits are in the middle of a segment
        const uint8_t *data; // the scan's first byte
    } file;
    const struct fl_entry_table *entries;
    const struct fl_entry_range *range; // of entry points
    const uint8_t *range_bytes;

    struct fl_slice_memory memory; // planes, rows and
    uint8_t *bits;                 // bytes without stuffing, with room for
    size_t bits_room;
};

/* Header up to its scan: tables and components. 0; FL_ERR(ENOTSUP); FL_ERR(EBADMSG). *sos: offset of the
 * first entropy-coded byte. h: filled. */
int fl_direct_header(struct fl_direct *d, const uint8_t *jpeg, size_t len, struct fl_jpeg_header *h,
                     FlError *err);

/* View, planes, memory; `bits_room` bytes for unstuffed data. After the header. ahead: 1 or 2. */
int fl_direct_view(struct fl_direct *d, const struct fl_direct_view *view, uint32_t ahead,
                   size_t bits_room, FlError *err);

/* A file's scan, from its first byte on: its header was read. */
void fl_file_start(struct fl_direct *d, const uint8_t *jpeg, size_t len,
                   const struct fl_jpeg_header *h);

/* Bits from `bit` of d->file.scan on, up to the next marker. */
void fl_file_bits(struct fl_direct *d, unsigned bit);

/* Begin the restart segment (or the only one) at d->file.scan. False: the file ends, or the marker
 * between is missing or the wrong one. */
bool fl_file_open(struct fl_direct *d);

/* Go over MCUs until `to`, storing those that come if `store`. False: damaged. */
bool fl_file_advance(struct fl_direct *d, uint64_t to, bool store);

/* Decode n MCUs into the planes, the first at column x (in MCUs of the picture) of MCU row d->row.
 * False: the bits were used up, or are no code. */
bool fl_direct_mcus(struct fl_direct *d, struct fl_bit_reader *b, uint32_t x, uint32_t n,
                    int dc[4]);

/* The same for two readers, the second in MCU row d->row + 1: faster than one after the other. */
bool fl_direct_two_rows(struct fl_direct *d, struct fl_bit_reader b[2], uint32_t x, uint32_t n,
                        int dc[2][4]);

#endif
