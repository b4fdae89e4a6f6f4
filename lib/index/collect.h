/* SPDX-License-Identifier: Apache-2.0 */
/* What one or a few containers hold, found by one thread; build.c joins the pieces in dataset order. */
#ifndef FL_INDEX_COLLECT_H
#define FL_INDEX_COLLECT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <feedline/error.h>

#include "base/bytes.h"
#include "formats/format.h"
#include "formats/name.h"
#include "index/index.h"
#include "jpeg/header.h"
#include "jpeg/slice.h"

/* A member that belongs to a sample. */
struct fl_found {
    uint64_t offset, size;
    int64_t value;               // if is_int
    struct fl_index_image image; // all zero: no picture
    uint32_t key_at, key_len;    // in fl_piece.keys; first_of_sample only
    uint32_t blob;  // number in fl_piece.pictures plus 1; 0: no slice table and no entry points
    uint16_t field; // in fl_piece.fields
    bool first_of_sample, is_int;
    uint32_t container; // counted from the piece's first one
};

/* Slice table or entry points, and header strings, of a picture: places in fl_piece.blobs. */
struct fl_found_picture {
    size_t blob, blob_len;
    size_t headers[FL_SLICE_HEADERS], header_len[FL_SLICE_HEADERS];
};

/* A container that was walked. */
struct fl_walked {
    uint64_t size, hash;
    int64_t mtime_ns;
};

/* Why a picture that is not a sliced JPEG has no entry points. */
enum fl_without {
    FL_WITHOUT_PROGRESSIVE = 0,
    FL_WITHOUT_COMPONENTS, // two, or four
    FL_WITHOUT_CODING,     // arithmetic, lossless, 12 or 16 bits, several scans, unusual headers
    FL_WITHOUT_DAMAGED,    // libjpeg-turbo would warn of it
    FL_N_WITHOUT
};

/* Containers [first, first + n) of the listing. */
struct fl_piece {
    size_t first, n;
    struct fl_bytes found;  // struct fl_found, in file order
    struct fl_bytes walked; // struct fl_walked, n of them
    struct fl_bytes keys;
    struct fl_bytes pictures; // struct fl_found_picture
    struct fl_bytes blobs;
    int n_fields;
    char (*fields)[FL_FIELD_NAME_MAX];
    struct fl_skips skips;
    int64_t pictures_seen, unreadable; // those without a header that could be parsed
    char unreadable_name[256];         // the first of these, "" if none
    int64_t without[FL_N_WITHOUT]; // pictures that got no entry points though these were asked for
    FlError err;                   // code 0: all is well
};

/* Counters that the thread in front of the progress bar reads meanwhile. */
struct fl_collect_progress {
    atomic_int_fast64_t members;
    atomic_uint_fast64_t bytes;
};

/* Buffers of one thread. */
struct fl_collector {
    const struct fl_format *format;
    const struct fl_listing *listing;
    bool keep_sidecars, entry_points;
    struct fl_collect_progress *progress;
    const atomic_bool *stop; // give up soon
    struct fl_source src;
    struct fl_slicer *slicer; // made when the first picture with restart markers comes
    struct fl_direct *direct; // made when the first picture that needs entry points comes
    struct fl_bytes path;
    uint32_t *table; // keys of the container, open addressing: index of its first member + 1
    size_t slots, used;
};

void fl_collector_free(struct fl_collector *c);

/* Walk the piece's containers. p has first and n, all else zero; p->err tells. Free it in any case. */
void fl_collect(struct fl_collector *c, struct fl_piece *p);
void fl_piece_free(struct fl_piece *p);

#endif
