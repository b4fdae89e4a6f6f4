/* SPDX-License-Identifier: Apache-2.0 */
/* JPEG decoding on the GPU, bit for bit what the CPU path gives: compressed bytes in pinned memory
 * become resized, flipped, normalised pixels in a device batch, with one GPU thread for each restart
 * segment that the crop touches.
 *
 *   once       fl_gpu_jpeg_open()
 *   a picture  fl_gpu_jpeg_header_add() for its header strings, fl_gpu_jpeg_header_finish()
 *   a batch    fl_gpu_jpeg_begin(), fl_gpu_jpeg_add() for each picture, fl_gpu_jpeg_submit(); once
 *              the work on the stream has ended: fl_gpu_jpeg_flags()
 *
 * A lane is the memory of one batch in flight; lanes are independent, one thread at a time each.
 * add() takes no lock, allocates nothing and makes no CUDA call. Only submit() talks to the device.
 * jpeg_plan.c and jpeg_header.c are plain C and are part of every build; the rest needs CUDA. */
#ifndef FL_GPU_JPEG_H
#define FL_GPU_JPEG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <feedline/config.h>
#include <feedline/error.h>

#include "gpu/jpeg_desc.h"
#include "jpeg/entry.h"
#include "rect.h"

/* ---- header ----------------------------------------------------------------------------------- */

/* What decoding needs to know of a JPEG's header. */
struct fl_gpu_jpeg_header {
    uint32_t width, height;
    uint8_t n_comp;     // 1 or 3
    uint8_t h[3], v[3]; // sampling factors; {1}, {1} for one component
    uint8_t h_max, v_max;
    uint8_t dc[3], ac[3]; // 0 or 1
    uint8_t colour;       // 1: grey, 2: YCbCr, 3: RGB
    uint32_t interval;    // MCUs of a restart segment; 0: none
    struct fl_jpeg_tables tables;

    // private to header_add and header_finish
    uint8_t seen_quant, seen_dc, seen_ac, jfif, sof, sos;
    int8_t adobe;
    uint8_t id[3], tq[3], scan_id[3], scan_tables[3], n_scan;
    uint16_t quant[4][64];
    struct fl_jpeg_huff huff[2][4];
};

/* Read the markers of a piece of a header; call it for each piece, in order, on a zeroed *h. A piece
 * is a sequence of whole marker segments and may begin with SOI. Reading ends behind SOS.
 * @return 0; FL_ERR(EBADMSG): broken; FL_ERR(ENOTSUP): not sequential Huffman with 8 bits, 1 or 3
 * components in one scan. */
int fl_gpu_jpeg_header_add(struct fl_gpu_jpeg_header *h, const uint8_t *data, size_t len,
                           FlError *err);

/* All pieces are in: check them and fill the upper part. width and height other than 0 replace the
 * frame header's (a sliced picture's string has 0 there), and so does the interval. */
int fl_gpu_jpeg_header_finish(struct fl_gpu_jpeg_header *h, uint32_t width, uint32_t height,
                              uint32_t interval, FlError *err);

/* ---- plan ------------------------------------------------------------------------------------- */

/* One picture of a batch. */
struct fl_gpu_jpeg_picture {
    const struct fl_gpu_jpeg_header *header; // finished; read during add() only
    const uint8_t *bytes; // entropy-coded bytes, whole MCU rows; pinned, readable until the batch's
                          // work has ended. Pictures in one page of memory are copied together, so
                          // no two pinned blocks may share a page (cudaHostAlloc's small ones
                          // do); read by 16 aligned bytes, so a block ends at such a multiple
    uint32_t length;

    /* The slice: what fl_slice_range() says. */
    uint32_t group_row;                 // MCU row with which `bytes` begins
    uint32_t first_row, n_rows;         // MCU rows to decode
    uint32_t first_segment, n_segments; // restart segments of each of these rows
    /* Or entry points, see fl_gpu_jpeg_entries(): segments of any length that do not cross MCU rows,
     * whose mcu counts within the slice. Then `bytes` may begin anywhere, and the slice is n_mcus MCUs
     * of n_rows rows, from first_mcu of each on. NULL: restart segments. */
    const struct fl_jpeg_segment *entries;
    uint32_t n_entries;
    uint32_t first_mcu, n_mcus;

    struct fl_crop crop; // in the stored frame
    uint8_t orientation; // 1..8 of the result; 0 is 1
    bool exact;          // decode at full scale
    uint32_t row;        // of the batch
};

/* Are pictures of this header decoded to so many channels, at any scale? Not so: fractional sampling
 * ratios, and grey of what is stored as RGB. */
bool fl_gpu_jpeg_takes(const struct fl_gpu_jpeg_header *h, int32_t channels);

/* ---- entry points ----------------------------------------------------------------------------- */

/* Do restart markers of the file, if there are any, stand only where points are? A thread cannot pass
 * over one. */
bool fl_gpu_jpeg_entries_fit(const struct fl_entry_table *t);

/* The segments between the entry points of a range of a file that is not sliced; fills what
 * `picture` says of entries, rows and MCUs. Its bytes are those of the range.
 * @return how many there are; FL_ERR(E2BIG): more than `cap`; FL_ERR(ENOTSUP): restart markers
 * between points. */
int64_t fl_gpu_jpeg_entries(const struct fl_entry_table *t, const struct fl_entry_range *r,
                            struct fl_jpeg_segment *out, size_t cap,
                            struct fl_gpu_jpeg_picture *picture, FlError *err);

/* ---- the plan itself -------------------------------------------------------------------------- */

/* Memory of one lane, in the units of jpeg_desc.h. */
struct fl_gpu_jpeg_room {
    uint32_t pics;     // at most 65,535
    uint32_t bytes;    // compressed
    uint32_t segments; // restart segments
    uint32_t marks;    // restart markers, unwanted ones included
    uint32_t blocks;   // of coefficients, 128 bytes each
    uint32_t planes;   // samples after the inverse DCT / 16
    uint32_t axis;     // of the resampler's weights, bytes
    uint32_t items[3]; // thread blocks of the Huffman, block and pixel stages
};

/* Room for `pics` pictures of `pixels` decoded pixels and `bytes` compressed bytes on average. */
struct fl_gpu_jpeg_room fl_gpu_jpeg_room_for(uint32_t pics, uint64_t pixels, uint64_t bytes,
                                             int32_t width, int32_t height);

/* A batch being put together; the arrays are memory of whoever made the plan. */
struct fl_jpeg_plan {
    struct fl_gpu_jpeg_room room, used;
    int32_t width, height; // of a row of the batch
    bool luma;             // rows have one channel
    const uint8_t *block;  // pinned in one piece, so that one copy may span pictures in it; or NULL
    uint64_t block_bytes;
    uint32_t tile_bytes; // shared memory that a pixel tile may take
    uint32_t n_tables, n_entries;
    uint32_t n_copies;             // runs of compressed bytes that lie side by side in host memory
    struct fl_jpeg_pic *pics;      // room.pics
    struct fl_jpeg_tables *tables; // room.pics
    struct fl_jpeg_segment *entries; // room.segments
    struct fl_jpeg_item *items[3];   // room.items
    struct fl_jpeg_item *groups;     // room.items[0]: items[0] in the order of work
    uint32_t tile_most;              // largest tile so far, bytes
};

#define FL_GPU_JPEG_TILE_BYTES 45056 // default of tile_bytes

/* Forget all pictures. */
void fl_jpeg_plan_clear(struct fl_jpeg_plan *plan);

/* Add a picture. @return its number; FL_ERR(E2BIG): the plan's room is used up (nothing was added:
 * decode it on the CPU, or in the next batch), or the picture is too large for the GPU; FL_ERR(EINVAL):
 * crop, slice or row make no sense. */
int fl_jpeg_plan_add(struct fl_jpeg_plan *plan, const struct fl_gpu_jpeg_picture *picture,
                     FlError *err);

/* All pictures are in: order the Huffman stage's work, the longest first. */
#define FL_JPEG_RANKS 256
void fl_jpeg_plan_finish(struct fl_jpeg_plan *plan);

/* ---- decoder ---------------------------------------------------------------------------------- */

/* How the compressed bytes get to the device. */
enum fl_gpu_jpeg_copy {
    FL_GPU_JPEG_COPY_AUTO = 0, // the engine for batches of few runs, else the kernel
    FL_GPU_JPEG_COPY_ENGINE,   // an asynchronous copy per picture; neighbours in memory go together
    FL_GPU_JPEG_COPY_KERNEL,   // the kernel that looks for the markers reads the pinned memory
};

struct fl_gpu_jpeg_cfg {
    unsigned lanes;               // batches in flight, 1..8
    struct fl_gpu_jpeg_room room; // of each
    int32_t width, height;        // of a row
    int32_t channels;             // of a row: 3, or 1 (luma)
    FlDtype dtype;                // FL_U8, FL_F32, FL_F16, FL_BF16
    FlLayout layout;
    const void *table; // {channels, 256} elements of dtype, copied; FL_U8: NULL
    enum fl_gpu_jpeg_copy copy;
    const void *block; // memory that is pinned in one piece and holds pictures' bytes; or NULL
    uint64_t block_bytes;
    unsigned grid; // most thread blocks of a kernel, so that training keeps the rest; 0: no limit
};

struct fl_gpu_jpeg;

/* Memory that such a decoder takes. */
uint64_t fl_gpu_jpeg_device_bytes(const struct fl_gpu_jpeg_cfg *cfg);
uint64_t fl_gpu_jpeg_pinned_bytes(const struct fl_gpu_jpeg_cfg *cfg);

/* Allocate everything on the calling thread's current device.
 * @return 0; FL_ERR(EINVAL), FL_ERR(ENOMEM), FL_ERR(ENODEV). */
int fl_gpu_jpeg_open(struct fl_gpu_jpeg **out, const struct fl_gpu_jpeg_cfg *cfg, FlError *err);

/* After all work has ended. NULL is fine; sets *dec to NULL. */
void fl_gpu_jpeg_close(struct fl_gpu_jpeg **dec);

/* The plan of a lane, emptied. The lane's former work must have ended. */
struct fl_jpeg_plan *fl_gpu_jpeg_begin(struct fl_gpu_jpeg *dec, unsigned lane);

/* Put the lane's plan to work: copies on `copy_stream`, kernels on `stream` (cudaStream_t; they may
 * be one), which waits for the copies. Row i of the batch begins at out + i * row bytes. Rows of
 * pictures with an error are zero-filled; rows that are in no picture are left alone.
 * @return 0; FL_ERR(EIO), err has the driver's words. Enqueues only. */
int fl_gpu_jpeg_submit(struct fl_gpu_jpeg *dec, unsigned lane, void *copy_stream, void *stream,
                       void *out, FlError *err);

/* Flag words by picture number (order of adding): 0, or FL_JPEG_BAD_... bits. Valid once the lane's
 * work has ended, until the next begin. */
const uint32_t *fl_gpu_jpeg_flags(const struct fl_gpu_jpeg *dec, unsigned lane);

/* A sentence for a flag word. Static string. */
const char *fl_gpu_jpeg_flag_text(uint32_t flags);

/* Milliseconds of each stage of a lane's last batch: copy and clear, prepare, Huffman, inverse DCT,
 * pixels. Only of a decoder for which fl_gpu_jpeg_time() was called before submit. */
#define FL_GPU_JPEG_STAGES 5
int fl_gpu_jpeg_time(struct fl_gpu_jpeg *dec);
int fl_gpu_jpeg_times(struct fl_gpu_jpeg *dec, unsigned lane, float ms[FL_GPU_JPEG_STAGES]);

#endif
