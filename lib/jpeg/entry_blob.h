/* SPDX-License-Identifier: Apache-2.0 */
/* The blob of a picture's entry points, little endian:
 *
 *    0  u32 id[2]        dictionary ids of the header strings, where a slice blob has them
 *    8  u8  version 1, n_components, every, base_bits
 *   12  u8  delta_bits, dc_bits[3]
 *   16  u8  h << 4 | v   of each component, then zeros: 4 bytes
 *   20  i16 dc_least[3]
 *   26  u16 interval, width, height
 *   32  u32 data_offset, end, n_groups
 *   44  base[mcu_rows]           base_bits each: bit at which the row begins
 *       point[mcu_rows][points]  bits from the row's base, then DC predictors less dc_least
 *       { u16 rows, u32 checksum }[n_groups]
 *       u16 0
 *
 * Bases and points are packed without gaps, low bits first, each array from a byte of its own on: every
 * picture has the widths that its largest values need, and any point can be had without those before it. */
#ifndef FL_JPEG_ENTRY_BLOB_H
#define FL_JPEG_ENTRY_BLOB_H

#include <string.h>

#include "jpeg/entry.h"

#define FL_ENTRY_VERSION 1
#define FL_ENTRY_FIXED 44u
#define FL_ENTRY_GROUP 6u
#define FL_ENTRY_TAIL                                                                              \
    2u // behind the groups: whoever loads 8 bytes of a packed value stays in the blob
#define FL_ENTRY_GROUP_BYTES 4096 // least bytes of a row group, but for the last one of a picture
#define FL_ENTRY_PIXELS 64u       // about so many pixels of an MCU row between two points

/* `width` bits, 32 at most, from bit `at` on. 8 bytes from there are readable. */
static inline uint32_t fl_entry_bits(const uint8_t *p, uint64_t at, uint32_t width)
{
    uint64_t v;

    memcpy(&v, p + (at >> 3), sizeof(v));
    return (uint32_t)(v >> (at & 7) & ((UINT64_C(1) << width) - 1));
}

/* The same for writing, into zeros. */
static inline void fl_entry_put_bits(uint8_t *p, uint64_t at, uint32_t v)
{
    uint64_t all;

    memcpy(&all, p + (at >> 3), sizeof(all));
    all |= (uint64_t)v << (at & 7);
    memcpy(p + (at >> 3), &all, sizeof(all));
}

/* Points of an MCU row, one after the other: the same as fl_entry_at() for each, but a look at the table for a
 * point in place of one for each of its values. */
struct fl_entry_walk {
    const struct fl_entry_table *t;
    uint32_t y, i, base;
    bool narrow; // a point's values are in one load
};

static inline struct fl_entry_walk fl_entry_walk(const struct fl_entry_table *t, uint32_t y,
                                                 uint32_t i)
{
    return (struct fl_entry_walk){ t, y, i, fl_entry_row(t, y), t->record_bits <= 57 };
}

static inline struct fl_entry_point fl_entry_step(struct fl_entry_walk *w)
{
    const struct fl_entry_table *const t = w->t;
    const uint64_t at = ((uint64_t)w->y * t->points + w->i) * t->record_bits;
    struct fl_entry_point p = { 0 };
    uint64_t v;

    if (!w->narrow || w->i >= t->points)
        return fl_entry_at(t, w->y, w->i++);
    memcpy(&v, t->records + (at >> 3), sizeof(v));
    v >>= at & 7;
    p.bit = w->base + (uint32_t)(v & ((UINT64_C(1) << t->delta_bits) - 1));
    v >>= t->delta_bits;
    for (int c = 0; c < t->frame.n_components; c++) {
        const uint32_t dc = (uint32_t)v & ((1u << t->dc_bits[c]) - 1);
        p.dc[c] = (int16_t)(uint16_t)((uint32_t)t->dc_least[c] + dc);
        v >>= t->dc_bits[c];
    }
    w->i++;
    return p;
}

/* Bytes of the file that a row group takes, [*begin, *end), from the scan's first one on: with the byte in
 * which its last MCU ends and that one's stuffing, which its successor has too. */
static inline void fl_entry_span(uint32_t from, uint32_t to, uint64_t *begin, uint64_t *end)
{
    *begin = from >> 3;
    *end = ((uint64_t)to >> 3) + 2;
}

#endif
