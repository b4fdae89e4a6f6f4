/* SPDX-License-Identifier: Apache-2.0 */
/* What the slice_*.c files share. */
#ifndef FL_JPEG_SLICE_INTERNAL_H
#define FL_JPEG_SLICE_INTERNAL_H

#include "jpeg/codec.h"
#include "jpeg/slice.h"

struct fl_slice_memory {
    uint8_t *data;
    size_t len, cap;
};

/* Room for at least `size` bytes; what is there stays. 0 or FL_ERR(ENOMEM). */
int fl_slice_memory_reserve(struct fl_slice_memory *m, size_t size);

struct fl_slicer {
    struct fl_codec codec;
    struct jpeg_decompress_struct src;
    struct jpeg_compress_struct dst;
    struct jpeg_destination_mgr dest;
    bool writing;                 // the source has been read without a warning
    struct fl_slice_memory out;   // the rewritten file
    struct fl_slice_memory table; // header strings and blob
};

enum {
    FL_M_SOF0 = 0xC0,
    FL_M_SOF1 = 0xC1,
    FL_M_DHT = 0xC4,
    FL_M_RST0 = 0xD0,
    FL_M_SOI = 0xD8,
    FL_M_EOI = 0xD9,
    FL_M_SOS = 0xDA,
    FL_M_DQT = 0xDB,
    FL_M_DRI = 0xDD,
    FL_M_APP0 = 0xE0,
    FL_M_APP14 = 0xEE,
};

#define FL_SLICE_DRI_BYTES 6u // the DRI segment that goes between the two header strings

/* Bytes of a SOF segment with n components, marker included. */
static inline size_t fl_slice_sof_bytes(unsigned n)
{
    return 10 + 3 * (size_t)n;
}

static inline uint32_t fl_be16(const uint8_t *p)
{
    return (uint32_t)p[0] << 8 | p[1];
}

static inline void fl_put_be16(uint8_t *p, uint32_t v)
{
    p[0] = (uint8_t)(v >> 8);
    p[1] = (uint8_t)v;
}

static inline uint32_t fl_le32(const uint8_t *p)
{
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static inline void fl_put_le32(uint8_t *p, uint32_t v)
{
    p[0] = (uint8_t)v;
    p[1] = (uint8_t)(v >> 8);
    p[2] = (uint8_t)(v >> 16);
    p[3] = (uint8_t)(v >> 24);
}

/* Walks the restart segments of a range and stops at those that the slice needs. */
struct fl_slice_cursor {
    const uint8_t *bytes, *p, *end;
    uint64_t offset;        // of the range in the JPEG, for messages
    uint32_t index;         // of the segment at p, counted from the picture's first one
    bool last;              // the range ends with the picture: no marker behind its last segment
    const uint8_t *segment; // the one that was found
    size_t length;
    uint64_t i;      // segments passed, of
    uint64_t skip;   // segments before the slice's first one, and
    uint64_t total;  // from there to its last one
    uint32_t stride; // segments of an MCU row, of which
    uint32_t wanted; // belong to the slice
};

struct fl_slice_cursor fl_slice_start(const struct fl_slice_table *t,
                                      const struct fl_slice_range *r, const uint8_t *bytes);

/* Next segment that the slice needs: 1 and the segment, 0 after the last one, or FL_ERR(EBADMSG). */
int fl_slice_next(struct fl_slice_cursor *c, FlError *err);

/* A JPEG header of this size and restart interval (0: none) from the two strings, as
 * fl_slice_header() makes one. 0; FL_ERR(EBADMSG): the strings are no header of n components. */
int fl_slice_join(const struct fl_slice_bytes headers[FL_SLICE_HEADERS], unsigned n, uint32_t width,
                  uint32_t height, uint32_t interval, uint8_t *out, FlError *err);

/* Header strings of a baseline file, no longer than its header and 32 bytes. False: not a file of plain
 * structure with one scan. */
bool fl_slice_strings(const uint8_t *jpeg, size_t len, uint8_t *out,
                      struct fl_slice_bytes headers[FL_SLICE_HEADERS]);

/* Next marker (0xFF and a byte that is neither 0 nor 0xFF) in [p, end): its 0xFF, or end. */
const uint8_t *fl_slice_next_marker(const uint8_t *p, const uint8_t *end);

/* Seven bits a byte, low ones first. */
uint8_t *fl_slice_put_varint(uint8_t *p, uint64_t v);

/* The reading side: NULL stays NULL, so that one check at the end of a chain is enough. */
const uint8_t *fl_slice_get_varint(const uint8_t *p, const uint8_t *end, uint64_t *v);

#endif
