/* SPDX-License-Identifier: Apache-2.0 */
/* Entry points of an unmodified baseline JPEG: where the bits of every few MCUs of a row begin, and the
 * DC predictors there. With them any part of the file can be read and decoded without what is before it,
 * by the CPU (jpeg/direct.h) and by one GPU thread for each point. The bytes of the file stay as they
 * are; the points live in the index as a blob, which jpeg/entry_blob.h describes. A restart marker is
 * an entry point that needs no predictors.
 *
 *   while indexing    fl_direct_entries()    JPEG -> blob and header strings
 *   at plan time      fl_entry_unpack(), fl_entry_range(): which bytes of the file a crop needs
 *   at run time       fl_entry_check(), then fl_direct_points() or the GPU
 *
 * Bits are counted in the file as it lies, stuffed zeros and markers included, from the scan's first byte
 * on: byte = bit >> 3; bit & 7 = 0 is the byte's highest one. Neighbouring MCU rows make a row group of at
 * least 4 KiB; each has a checksum, so that what a crop reads can be verified. May use base/, rect.h and
 * jpeg/upsampling.h. */
#ifndef FL_JPEG_ENTRY_H
#define FL_JPEG_ENTRY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <feedline/error.h>

#include "jpeg/upsampling.h"
#include "rect.h"

#define FL_ENTRY_STRINGS 2 // header strings of a picture, as those of a slice (jpeg/slice.h)

/* A blob, unpacked and checked. Points into the blob. */
struct fl_entry_table {
    struct fl_frame frame; // 1x1 for one component, whatever is stored
    uint32_t header_ids[FL_ENTRY_STRINGS];
    uint32_t every;       // MCUs from one point to the next, within an MCU row
    uint32_t interval;    // restart interval of the file, MCUs; 0: none
    uint32_t data_offset; // of the first entropy-coded byte in the file
    uint32_t end;         // bit behind the last MCU
    uint32_t mcus;        // of an MCU row
    uint32_t mcu_rows;
    uint32_t points; // of an MCU row: point i belongs to MCU i * every
    uint32_t n_groups;

    // private
    const uint8_t *bases, *records, *groups;
    uint32_t base_bits, delta_bits, record_bits, dc_bits[3];
    int32_t dc_least[3];
};

/* Returns 0; FL_ERR(EBADMSG): not a blob, whatever the bytes are: nothing outside them is read, now or
 * later. What the points say may still be nonsense. */
int fl_entry_unpack(struct fl_entry_table *t, const uint8_t *blob, size_t len);

struct fl_entry_point {
    uint32_t bit;
    int16_t dc[3];
};

/* Bit at which MCU row y begins; y = mcu_rows: the end. */
uint32_t fl_entry_row(const struct fl_entry_table *t, uint32_t y);

/* Point i of MCU row y; i = points is the beginning of the next row, or the end, without predictors. */
struct fl_entry_point fl_entry_at(const struct fl_entry_table *t, uint32_t y, uint32_t i);

/* Which part of a file a crop needs. */
struct fl_entry_range {
    uint64_t offset, length; // bytes to read, from the first byte of the JPEG: whole row groups
    uint32_t first_group, n_groups;
    uint32_t first_row, n_rows;     // MCU rows to decode
    uint32_t first_point, n_points; // of each of these rows: the MCUs between them are needed
};

/* For the pixels of `box` at DCT scale `scale`/8 (8, 4, 2 or 1), with what upsampling looks at. Box in
 * source pixels, not empty, inside the picture. Returns 0; FL_ERR(EINVAL): the box or scale is not so;
 * FL_ERR(EBADMSG): the points are out of order. */
int fl_entry_range(const struct fl_entry_table *t, struct fl_rect box, int scale,
                   struct fl_entry_range *r);

/* Compare the bytes of the range's row groups with their checksums.
 * Returns 0; FL_ERR(EBADMSG), err names the group and its offset in the JPEG. */
int fl_entry_check(const struct fl_entry_table *t, const struct fl_entry_range *r,
                   const uint8_t *bytes, FlError *err);

#endif
