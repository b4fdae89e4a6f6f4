/* SPDX-License-Identifier: Apache-2.0 */
/* Entropy decoding of baseline JPEG: runs of MCUs from any point where a restart segment or an entry
 * point begins. Blocks that nobody asked for are parsed, not stored. May use base/. */
#ifndef FL_JPEG_ENTROPY_H
#define FL_JPEG_ENTROPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "jpeg/huffman.h"

#define FL_ENTROPY_PAD 320 // zero bytes that must follow the bits: more than one block can swallow
#define FL_MAX_MCU_BLOCKS 10

/* Bits, first one on top. `bits` may hold more of them than `n` says; they are the right ones. */
struct fl_bit_reader {
    uint64_t bits;
    const uint8_t *p;   // next byte to load
    const uint8_t *end; // of the bytes; FL_ENTROPY_PAD zeros follow
    uint32_t n;
    bool failed; // a code that does not exist
};

/* What one MCU is made of, in the order of its blocks. */
struct fl_mcu {
    uint8_t n_blocks;
    uint8_t component[FL_MAX_MCU_BLOCKS];
    const struct fl_huff_dc *dc[FL_MAX_MCU_BLOCKS];
    const struct fl_huff_ac *ac[FL_MAX_MCU_BLOCKS];
};

/* Copy entropy-coded bytes without their stuffing: from `src` to the next marker, but no more than
 * `len` bytes; FL_ENTROPY_PAD zeros are added. dst has room for len + FL_ENTROPY_PAD bytes.
 * Returns the bytes written, zeros not counted; *used: bytes of src. */
size_t fl_unstuff(const uint8_t *src, size_t len, uint8_t *dst, size_t *used);

/* Begin at bit `bit` (0 to 7, 0 the first) of the bytes. */
void fl_reader_start(struct fl_bit_reader *b, const uint8_t *bytes, size_t len, unsigned bit);

/* Have the MCUs so far needed more bits than there are? */
static inline bool fl_reader_overrun(const struct fl_bit_reader *b)
{
    return b->p > b->end && (uint64_t)(b->p - b->end) * 8 > b->n;
}

/* Bits that are left. */
static inline uint64_t fl_reader_left(const struct fl_bit_reader *b)
{
    return fl_reader_overrun(b) ? 0 : (uint64_t)(b->end - b->p) * 8 + b->n;
}

/* Decode one block into coefficients[64] (zeroed here, natural order, not dequantised). *dc is the
 * component's predictor. Returns true if a coefficient besides DC was coded. */
bool fl_decode_block(struct fl_bit_reader *b, const struct fl_huff_dc *dc_table,
                     const struct fl_huff_ac *ac_table, int *dc, int16_t coefficients[64]);

/* The same for two independent readers that stand before a block of one and the same component. One's
 * look-ups wait for the last; the other's fill the time. Returns bit i: coefficients besides DC in i. */
unsigned fl_decode_blocks(struct fl_bit_reader *const b[2], const struct fl_huff_dc *dc_table,
                          const struct fl_huff_ac *ac_table, int *const dc[2],
                          int16_t coefficients[2][64]);

/* The same without storing anything but the predictor. */
void fl_skip_block(struct fl_bit_reader *b, const struct fl_huff_dc *dc_table,
                   const struct fl_huff_ac *ac_table, int *dc);

/* Go over n MCUs, keeping the DC predictors up to date. Stops when the bits are used up. */
void fl_skip_mcus(struct fl_bit_reader *b, const struct fl_mcu *mcu, uint32_t n, int dc[4]);

#endif
