/* SPDX-License-Identifier: Apache-2.0 */
/* Sliced JPEG: an ordinary baseline JPEG whose restart interval divides its row of MCUs, so that
 * any rectangle of it can be decoded from the restart segments that touch it.
 *
 *   while sharding    fl_slicer_rewrite()    JPEG -> sliced JPEG, same coefficients, same pixels
 *   while indexing    fl_slicer_table()      sliced JPEG -> table (blob) and header strings
 *   at plan time      fl_slice_table_unpack(), fl_slice_range(): which bytes of the file a crop
 * needs at run time       fl_slice_check_groups(), then fl_slice_cut() (an ordinary smaller JPEG)
 * or fl_slice_segments() (where the restart segments lie)
 *
 * A file is [header | MCU rows | EOI]. Neighbouring MCU rows make a row group of at least 4 KiB;
 * the table has the length and the checksum of each group, so that what a crop reads can be
 * verified. May use base/, rect.h and the codec. */
#ifndef FL_JPEG_SLICE_H
#define FL_JPEG_SLICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <feedline/error.h>

#include "rect.h"
#include "jpeg/upsampling.h"

#define FL_SLICE_GROUP_BYTES 4096 // least bytes of a row group, but for the last one of a picture
#define FL_SLICE_HEADERS 2        // header strings of a picture

/* ---- rewriting ------------------------------------------------------------------------------- */

enum fl_slice_status {
    FL_SLICE_SLICED = 0, // rewritten: data and len are the new file
    FL_SLICE_ALREADY,    // was a sliced JPEG: data and len are the source
    FL_SLICE_KEPT,       // cannot be sliced (reason says why): data and len are the source
    FL_SLICE_DAMAGED,    // the codec warned or gave up (reason has its words): data and len are the
                         // source
};

struct fl_slice_options {
    bool drop_icc;       // leave the ICC profile out as well
    bool check;          // decode source and result and compare all pixels; unequal: kept
    uint64_t max_pixels; // larger pictures are kept; 0: 178,956,970
    int32_t max_scans;   // so are progressive ones with more scans; 0: 100
    uint32_t
        interval; // MCUs of a restart segment, for experiments; 0: the rule of fl_slice_interval()
};

struct fl_slice_result {
    enum fl_slice_status status;
    const uint8_t *data; // the source, or memory of the slicer: valid until its next call
    size_t len;
    uint32_t width, height; // pixels, as stored; 0: the header could not be read
    int orientation;        // EXIF orientation, 1 to 8; never applied; 1 where there is none
    bool progressive;       // the source was
    char reason[200];       // for a person; "" for FL_SLICE_SLICED
};

/* Buffers and codec state of one thread. */
struct fl_slicer;

/* NULL: out of memory. */
struct fl_slicer *fl_slicer_new(void);
void fl_slicer_free(struct fl_slicer *s); // NULL is fine

/* Rewrite one JPEG. The result depends on source and options only.
 * Returns 0, also for pictures that are kept or damaged; FL_ERR(ENOMEM). */
int fl_slicer_rewrite(struct fl_slicer *s, const void *src, size_t len,
                      const struct fl_slice_options *opt, struct fl_slice_result *result);

/* Decode both files at full size and compare every pixel.
 * Returns 0: equal; FL_ERR(EBADMSG): they differ, or one cannot be decoded, err says which and
 * where. */
int fl_slice_compare(const void *a, size_t a_len, const void *b, size_t b_len, FlError *err);

/* MCUs of a restart segment for rows of `mcus` MCUs, each `mcu_width` pixels wide: the divisor of
 * mcus with 48 <= pixels <= 128 that is nearest to 64 (the smaller of two), else the largest one <=
 * 64 pixels. */
uint32_t fl_slice_interval(uint32_t mcus, uint32_t mcu_width);

/* ---- table ------------------------------------------------------------------------------------
 */

/* One string of the dictionary, or any bytes. */
struct fl_slice_bytes {
    const uint8_t *data;
    size_t len;
};

/* What the index keeps of one picture. The blob holds the dictionary ids of its header strings:
 * [0] SOI, APP0, APP14, DQT, SOF with a size of zero; [1] DHT, SOS. Both are alike in many
 * pictures. */
struct fl_slice_parts {
    struct fl_slice_bytes blob;
    struct fl_slice_bytes headers[FL_SLICE_HEADERS];
};

/* Make the table of a sliced JPEG, whoever wrote it. The parts are memory of the slicer, valid
 * until its next call. Ids in the blob are zero until fl_slice_blob_set_ids(). Returns 0;
 * FL_ERR(ENOTSUP): a JPEG, or anything else, that is not sliced; FL_ERR(ENOMEM). */
int fl_slicer_table(struct fl_slicer *s, const void *jpeg, size_t len,
                    struct fl_slice_parts *parts);

/* The dictionary ids inside a blob, at a fixed place so that merging indexes can renumber them.
 * Return 0; FL_ERR(EBADMSG): too short to be a blob. */
int fl_slice_blob_set_ids(uint8_t *blob, size_t len, const uint32_t ids[FL_SLICE_HEADERS]);
int fl_slice_blob_ids(const uint8_t *blob, size_t len, uint32_t ids[FL_SLICE_HEADERS]);

/* A blob, unpacked and checked. Points into the blob. */
struct fl_slice_table {
    struct fl_frame frame; // size and sampling; 1x1 for one component, whatever is stored
    uint32_t interval;     // MCUs of a restart segment
    uint32_t segments;     // restart segments of an MCU row
    uint32_t mcu_rows;
    uint32_t data_offset; // bytes of header before the first MCU row
    uint64_t data_length; // bytes of all MCU rows, EOI not included
    uint32_t header_ids[FL_SLICE_HEADERS];
    uint32_t n_groups;
    const uint8_t *groups;    // private: {rows, bytes} of each
    const uint8_t *checksums; // private: 32 bits of each
};

/* Returns 0; FL_ERR(EBADMSG): not a blob, whatever the bytes are: nothing outside them is read. */
int fl_slice_table_unpack(struct fl_slice_table *t, const uint8_t *blob, size_t len);

/* ---- what a crop needs ------------------------------------------------------------------------
 */

/* Which part of a sliced JPEG a crop needs. */
struct fl_slice_range {
    uint64_t offset, length; // bytes to read, from the first byte of the JPEG: whole row groups
    uint32_t first_group, n_groups;     // that they are
    uint32_t group_row;                 // MCU row with which the first group begins
    uint32_t first_row, n_rows;         // MCU rows of the slice
    uint32_t first_segment, n_segments; // restart segments of each of these rows
    struct fl_rect rect;                // source pixels that the slice covers, margins included
};

/* The smallest slice that gives, at DCT scale `scale`/8 (8, 4, 2 or 1), the same pixels inside
 * `box` as decoding the whole picture and cropping: at scale s/8 these are the columns floor(x s /
 * 8) to ceil((x + w) s / 8) - 1, rows alike. Box in source pixels, not empty, inside the picture.
 * Returns 0; FL_ERR(EINVAL): the box or scale is not so. */
int fl_slice_range(const struct fl_slice_table *t, struct fl_rect box, int scale,
                   struct fl_slice_range *r);

/* Compare the bytes of the range's row groups with their checksums.
 * Returns 0; FL_ERR(EBADMSG), err names the group and its offset in the JPEG. */
int fl_slice_check_groups(const struct fl_slice_table *t, const struct fl_slice_range *r,
                          const uint8_t *bytes, FlError *err);

/* ---- cutting -----------------------------------------------------------------------------------
 */

/* A restart segment: entropy-coded bytes without the marker that ends it. */
struct fl_slice_segment {
    uint32_t offset; // from the first byte of the range
    uint32_t length;
};

/* Find the r->n_rows * r->n_segments restart segments of a slice, row by row.
 * bytes: the r->length bytes of the range. Returns 0; FL_ERR(EBADMSG): markers are missing or out
 * of turn; FL_ERR(E2BIG): more than `cap` segments. */
int fl_slice_segments(const struct fl_slice_table *t, const struct fl_slice_range *r,
                      const uint8_t *bytes, struct fl_slice_segment *segments, size_t cap,
                      FlError *err);

/* Bytes of the header that fl_slice_header() writes, and the most that fl_slice_cut() writes. */
size_t fl_slice_header_bytes(const struct fl_slice_bytes headers[FL_SLICE_HEADERS]);
size_t fl_slice_cut_bytes(const struct fl_slice_range *r,
                          const struct fl_slice_bytes headers[FL_SLICE_HEADERS]);

/* Write the JPEG header of a slice (everything up to its first entropy-coded byte) to `out`, which
 * has room for fl_slice_header_bytes(). Returns 0; FL_ERR(EBADMSG): the strings are no header. */
int fl_slice_header(const struct fl_slice_table *t, const struct fl_slice_range *r,
                    const struct fl_slice_bytes headers[FL_SLICE_HEADERS], uint8_t *out,
                    FlError *err);

/* Write the slice as an ordinary smaller JPEG that covers r->rect. Checksums are not looked at
 * here. Returns 0; FL_ERR(EBADMSG) as fl_slice_segments(); FL_ERR(E2BIG): cap is too small. */
int fl_slice_cut(const struct fl_slice_table *t, const struct fl_slice_range *r,
                 const struct fl_slice_bytes headers[FL_SLICE_HEADERS], const uint8_t *bytes,
                 uint8_t *out, size_t cap, size_t *out_len, FlError *err);

#endif
