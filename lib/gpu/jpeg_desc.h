/* SPDX-License-Identifier: Apache-2.0 */
/* GPU JPEG: what the host tells the device about a batch. Plain data, the same for the C compiler
 * and for nvcc; jpeg_plan.c writes it, jpeg_stage.h (host and device) reads it. Every offset and
 * count here has been checked against the decoder's memory by jpeg_plan.c, so that what the
 * compressed bytes say can only change values, never addresses. */
#ifndef FL_GPU_JPEG_DESC_H
#define FL_GPU_JPEG_DESC_H

#include <stdint.h>

#define FL_JPEG_LOOK 10   // bits that the first lookup of a Huffman code takes
#define FL_JPEG_GROUP 64  // restart segments of a thread block, one thread each
#define FL_JPEG_BLOCKS 10 // most blocks of an MCU, ITU-T T.81 B.2.3
#define FL_JPEG_IDCT 128  // blocks of coefficients of a thread block

/* What can be wrong with the compressed bytes: bits of a picture's flag word. */
enum {
    FL_JPEG_BAD_CODE = 1,    // bits that are no Huffman code
    FL_JPEG_BAD_SHORT = 2,   // a segment ends before its last MCU
    FL_JPEG_BAD_EXTRA = 4,   // bytes are left over after a segment's last MCU
    FL_JPEG_BAD_MARKER = 8,  // a restart marker is missing or out of turn
    FL_JPEG_BAD_STRAY = 16,  // a marker inside a segment
    FL_JPEG_BAD_LAYOUT = 32, // segments that lie outside the bytes
};

/* A Huffman table as DHT stores it. */
struct fl_jpeg_huff {
    uint8_t bits[16]; // codes of length 1..16
    uint8_t vals[256];
};

/* Tables of a picture. 16-byte multiple. */
struct fl_jpeg_tables {
    uint16_t quant[3][64]; // of each component, natural (row-major) order
    struct fl_jpeg_huff dc[2], ac[2];
};

/* What a Huffman code stands for, in 16 bits: bits of the code and of the value behind it | bits of the
 * value << 5 | zeros before the coefficient << 10. The end of a block is 63 zeros and a zero: it lands on
 * a place that no coefficient of the block has. */
#define FL_JPEG_EOB 63

/* A Huffman table ready for decoding; [0], [1]: DC, [2], [3]: AC. 16-byte multiple. */
struct fl_jpeg_lut {
    uint16_t fast[1 << FL_JPEG_LOOK]; // entry of the code at the front; 0: a longer code, or none
    uint32_t limit[18]; // [l]: first 16-bit left-aligned pattern beyond the codes of length l
    int32_t first[18];  // [l]: place in vals of code 0 of that length, were there one
    uint8_t vals[256];
};

/* How a component's samples become full-size ones: libjpeg-turbo's choice of upsampler. */
enum {
    FL_JPEG_FULL = 0, // as they are
    FL_JPEG_BOX,      // repeated hx by vx times
    FL_JPEG_H2V1,     // triangle filter
    FL_JPEG_H1V2,
    FL_JPEG_H2V2,
};

struct fl_jpeg_comp {
    uint8_t h, v;   // blocks of an MCU
    uint8_t first;  // its first block in the MCU
    uint8_t size;   // samples of a block's side after the IDCT: 8, 4, 2, 1
    uint8_t mode;   // FL_JPEG_FULL ...
    uint8_t hx, vx; // FL_JPEG_BOX
    uint8_t dc, ac; // Huffman tables: 0, 1; 2, 3
    uint8_t pad[3];
    uint32_t plane;  // first byte in the plane memory / 16
    uint32_t pitch;  // bytes
    int32_t x0, y0;  // where the plane's first sample stands in the component
    int32_t dw, dh;  // size of the whole component: samples beyond are repeated
    uint32_t bx, by; // first block that is transformed, from the slice's first one
    uint32_t bw, bh; // so many of them; the plane is bw * size x bh * size
};

/* One axis of the resampler: see kernels/resize.h for the definition. */
struct fl_jpeg_axis {
    int32_t b8, n8, r; // box in eighths of a decoded pixel; size it becomes
    int32_t first, n;  // output window
    int32_t taps;      // weights kept for each output pixel
    int32_t bits;
    int32_t lo, hi;   // decoded pixels read
    uint32_t starts;  // place of its n starts in the axis memory, int32
    uint32_t weights; // place of its n * taps weights in the axis memory, int16
};

struct fl_jpeg_pic {
    /* bytes */
    uint64_t src;  // where the host (or the device) has them: readable by a kernel
    uint32_t data; // where they lie in the data memory; congruent to src modulo 16
    uint32_t length;
    uint32_t
        joined; // 1: as far from its predecessor in data as in src, so that one copy takes both

    /* restart segments */
    uint32_t segment, n_segments; // its records in the segment memory
    uint32_t entries;        // place of records that came from the host + 1; 0: look for markers
    uint32_t marks, n_marks; // its scratch in the marker memory: segments from the first byte on
    uint32_t skip;           // segments from the first byte to the first one wanted
    uint32_t row_step;       // segments of a whole MCU row
    uint32_t row_take;       // segments wanted of each row
    uint32_t phase;          // number of the first byte's segment in the picture, modulo 8
    uint32_t interval;       // MCUs of a segment
    uint32_t row_mcus;       // MCUs of a row of the slice
    uint32_t mcus;           // of the slice

    /* blocks */
    uint32_t coef;       // first block in the coefficient memory
    uint32_t blocks;     // of an MCU
    uint32_t block_comp; // component of each, 2 bits
    uint32_t tables;     // place in the tables
    uint32_t own_tables; // 1: the first picture of the batch that uses them

    /* pixels */
    uint32_t n_comp, colour; // components that are transformed; 1: grey, 2: YCbCr, 3: RGB
    struct fl_jpeg_comp comp[3];
    struct fl_jpeg_axis x, y;
    uint32_t tile_w, tile_h;     // output pixels of a thread block
    uint32_t tiles_x, tiles;     // thread blocks
    uint32_t rows_max, cols_max; // decoded pixels that a tile may touch, per axis
    uint32_t quads;              // fours of rows: ceil(rows_max / 4)
    uint32_t spans;              // fours of rows that the taps of one output row may touch
    uint32_t between, weights;   // where the parts of the tile's shared memory begin, bytes

    /* where they go */
    uint32_t row;      // of the batch: flag word and output
    int32_t o, ox, oy; // pixel X, Y of the window is stored as pixel o + X ox + Y oy of the row
};

/* A restart segment, or what lies between two entry points. On the device they are ordered by length
 * within a picture. */
struct fl_jpeg_segment {
    uint32_t offset; // first byte, from the first byte of the picture's range
    uint32_t length; // bytes, the one in which it ends included
    uint32_t mcu;    // first MCU, counted in the slice
    uint16_t mcus;
    uint8_t bit; // bits of the first byte that belong to its predecessor, 0..7
    uint8_t
        end_bit; // bits of the last byte that belong to this segment, 1..8; 0: up to 7 of them are
                 // padding, as before a marker
    int16_t pred[3]; // DC predictors
    uint16_t pad;
};

/* Work of a thread block: pic, and where it begins (segment, block of a component, tile). */
struct fl_jpeg_item {
    uint16_t pic, comp;
    uint32_t first;
};

#endif
