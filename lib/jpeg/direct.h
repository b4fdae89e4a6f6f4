/* SPDX-License-Identifier: Apache-2.0 */
/* Decoding baseline JPEG without libjpeg: only the MCUs that a box needs are turned into pixels, row by
 * row, and they are the pixels that libjpeg-turbo would give. For slices (straight from the row groups
 * that were read, no virtual JPEG in between) and for whole baseline files, with or without entry
 * points. What it does not decode (progressive, four components, ...) it refuses before any work.
 * May use base/, rect.h and kernels/kernels.h. */
#ifndef FL_JPEG_DIRECT_H
#define FL_JPEG_DIRECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <feedline/error.h>

#include "jpeg/entry.h"
#include "jpeg/header.h"
#include "jpeg/slice.h"
#include "kernels/kernels.h"
#include "rect.h"

/* One for each worker; one thread at a time. Memory that a picture needs is kept for the next one. */
struct fl_direct;

/* The picture's part that is wanted: at scale s/8 (8, 4, 2, 1) decoded columns floor(x s / 8) to
 * ceil((x + w) s / 8) - 1 of box, rows alike. */
struct fl_direct_view {
    struct fl_rect box; // source pixels, not empty, inside the picture
    int scale;
    int channels; // 3: RGB; 1: Y
};

/* reserve: bytes for pictures taken now; max_memory: bytes that it may hold; 0: no limit. Best version for
 * this CPU, but no better than `most`. Returns NULL: out of memory. */
struct fl_direct *fl_direct_new(size_t reserve, size_t max_memory, enum fl_cpu most);
void fl_direct_free(struct fl_direct *d); // NULL is fine

/* Is there more than plain C for this CPU? If not, libjpeg-turbo's vector code is the faster one. */
bool fl_direct_is_fast(void);

/* Bytes held now. */
size_t fl_direct_bytes(const struct fl_direct *d);

/* Begin a picture. `bytes` are the row groups of `range`, which fl_slice_range() made from the same box
 * and scale; their checksums are not looked at here. Everything passed in stays in use until the last row.
 *
 * 0; FL_ERR(ENOTSUP): no picture for this decoder, err says why; FL_ERR(EBADMSG): damaged;
 * FL_ERR(E2BIG): max_memory; FL_ERR(ENOMEM); FL_ERR(EINVAL): the view is not inside the picture. */
int fl_direct_slice(struct fl_direct *d, const struct fl_slice_table *table,
                    const struct fl_slice_range *range,
                    const struct fl_slice_bytes headers[FL_SLICE_HEADERS], const uint8_t *bytes,
                    const struct fl_direct_view *view, FlError *err);

/* The same with entry points: `bytes` are the row groups of `range`, which fl_entry_range() made. */
int fl_direct_points(struct fl_direct *d, const struct fl_entry_table *table,
                     const struct fl_entry_range *range,
                     const struct fl_slice_bytes headers[FL_ENTRY_STRINGS], const uint8_t *bytes,
                     const struct fl_direct_view *view, FlError *err);

/* Begin a whole baseline file. */
int fl_direct_file(struct fl_direct *d, const uint8_t *jpeg, size_t len,
                   const struct fl_direct_view *view, FlError *err);

/* Size of the view in decoded pixels. */
int fl_direct_width(const struct fl_direct *d);
int fl_direct_height(const struct fl_direct *d);

/* The next row: width * channels bytes, exactly. 0; FL_ERR(EBADMSG): damaged, err says where. */
int fl_direct_row(struct fl_direct *d, uint8_t *row, FlError *err);

/* Make the entry points of a file, and its header strings, which are those of a slice. The parts are memory
 * of d, valid until its next call; ids in the blob are zero until fl_slice_blob_set_ids().
 * 0; FL_ERR(ENOTSUP): no file for this decoder; FL_ERR(EBADMSG): libjpeg-turbo would warn of it;
 * FL_ERR(ENOMEM), FL_ERR(E2BIG): larger than 512 MiB. */
int fl_direct_entries(struct fl_direct *d, const uint8_t *jpeg, size_t len,
                      struct fl_slice_parts *parts, FlError *err);

#endif
