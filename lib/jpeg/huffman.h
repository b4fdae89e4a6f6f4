/* SPDX-License-Identifier: Apache-2.0 */
/* Huffman tables of baseline JPEG, made for decoding: one look-up gives the length of code and extra
 * bits together, so that the next look-up waits for one load and one shift only. May use base/. */
#ifndef FL_JPEG_HUFFMAN_H
#define FL_JPEG_HUFFMAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FL_HUFF_DC_BITS 9  // of code that the first level looks at
#define FL_HUFF_AC_BITS 11 // measured: docs/performance.md, "Sliced JPEG"

/* An entry: bits 0 to 5: code and extra bits together. Bit 6, FL_HUFF_RAW: the value is still to be made
 * from the extra bits. Bits 8 to 15 (AC): by how much the coefficient's index grows: run + 1; 16 for a run
 * of sixteen zeros; 63 for the end of the block, which leaves the loop and writes a zero where one is.
 * Bits 16 to 31: the value, or with FL_HUFF_RAW the number of extra bits. AC entries have the value where
 * code and extra bits fit the first level, DC entries never do. A code longer than the first level has
 * FL_HUFF_RAW and no bits. */
#define FL_HUFF_TOTAL(e) ((e)&63u)
#define FL_HUFF_STEP(e) ((e) >> 8 & 255u)
#define FL_HUFF_EXTRA(e) ((e) >> 16)
#define FL_HUFF_RAW 64u
#define FL_HUFF_LONG FL_HUFF_RAW
#define FL_HUFF_END 63u // step of the end of the block

struct fl_huff {
    bool defined;
    uint32_t limit[18];    // [l]: first 16-bit window that is no code of up to l bits; [17]: all
    int32_t first[17];     // [l]: symbol of code c of l bits is symbols[first[l] + c]
    uint32_t symbols[256]; // raw entries, complete but for the code's length
};

struct fl_huff_dc {
    struct fl_huff code;
    uint32_t fast[1 << FL_HUFF_DC_BITS];
};

struct fl_huff_ac {
    struct fl_huff code;
    uint32_t fast[1 << FL_HUFF_AC_BITS];
};

/* The tables of a picture. */
struct fl_huff_set {
    struct fl_huff_dc dc[4];
    struct fl_huff_ac ac[4];
};

/* Forget all tables. */
void fl_huff_reset(struct fl_huff_set *set);

/* Take in one DHT segment, from its length bytes on. Returns 0; FL_ERR(EBADMSG): no such tables;
 * FL_ERR(ENOTSUP): codes for more extra bits than 8-bit samples need. */
int fl_huff_read(struct fl_huff_set *set, const uint8_t *segment, size_t len);

/* Raw entry of the code at the top of `bits`, whatever its length. 0: there is no such code. */
uint32_t fl_huff_long(const struct fl_huff *h, uint64_t bits);

#endif
