/* SPDX-License-Identifier: Apache-2.0 */
/* Entry points of an unmodified baseline JPEG: where the bits of every eighth MCU of a row begin, and
 * the DC predictors there. With them any part of the file can be decoded without what is before it, by
 * the CPU (jpeg/direct.h) and by one GPU thread for each point. The bytes of the file stay as they are;
 * the points live in the index as a blob:
 *
 *   u8  version 1, n_components, every, wide (0: u16 deltas, 1: u32)
 *   u8  h << 4 | v of each component, zeros up to 4
 *   u32 width, height, interval (restart, MCUs; 0: none), data_offset, end
 *   u32 base[mcu_rows]                bit at which each MCU row begins
 *   i16 dc[mcu_rows][points][n_components]
 *   u16 or u32 delta[mcu_rows][points] bits from the row's base
 *
 * Bits are counted in the file as it lies, stuffed zeros and markers included, from data_offset on:
 * byte = bit >> 3; bit & 7 = 0 is the byte's highest one. A point behind a restart marker has predictors
 * of zero. May use base/ and jpeg/upsampling.h. */
#ifndef FL_JPEG_ENTRY_H
#define FL_JPEG_ENTRY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "jpeg/upsampling.h"

#define FL_ENTRY_EVERY 8u // MCUs from one point to the next, within an MCU row

/* A blob, unpacked and checked. Points into the blob. */
struct fl_entry_table {
    struct fl_frame frame;
    uint32_t every;
    uint32_t interval;    // restart interval of the file, MCUs; 0: none
    uint32_t data_offset; // of the first entropy-coded byte in the file
    uint32_t end;         // bit behind the last MCU
    uint32_t mcus;        // of an MCU row
    uint32_t mcu_rows;
    uint32_t points; // of an MCU row: point i belongs to MCU i * every
    bool wide;
    const uint8_t *bases, *dcs, *deltas; // private
};

/* Returns 0; FL_ERR(EBADMSG): not a blob, whatever the bytes are. */
int fl_entry_unpack(struct fl_entry_table *t, const uint8_t *blob, size_t len);

struct fl_entry_point {
    uint32_t bit;
    int16_t dc[3];
};

/* Point i of MCU row y; i = points is the beginning of the next row, or the end, without predictors. */
struct fl_entry_point fl_entry_at(const struct fl_entry_table *t, uint32_t y, uint32_t i);

#endif
