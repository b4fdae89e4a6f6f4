/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of struct fl_index_writer; for writer.c (collecting) and layout.c (writing) alone. */
#ifndef FL_INDEX_WRITING_H
#define FL_INDEX_WRITING_H

#include "base/bytes.h"
#include "formats/name.h"
#include "index/writer.h"

struct fl_writer_blobs {
    struct fl_bytes offsets, bytes; // n + 1 offsets, or none while there is no blob
    uint64_t n, longest;            // blobs that are not empty; bytes of the longest
    int spill; // descriptor of the file with the first `spilled` bytes, plus 1; 0: none
    uint64_t spilled;
};

/* Columns may be shorter than the number of samples: the rest is missing. */
struct fl_writer_field {
    char name[FL_FIELD_NAME_MAX];
    FlFieldKind kind;
    bool checksummed, wide; // wide: a value needs 64 bits
    bool dropped;           // not written
    uint64_t count, bytes, max_bytes, sliced;
    struct fl_bytes spans, ints, images;
    struct fl_writer_blobs slices, entries;
};

struct fl_index_writer {
    enum fl_index_kind kind;
    int64_t n_samples, skipped;
    uint32_t n_containers;
    uint64_t options;
    bool keys_are_paths, keep_sidecars, entry_points;
    int n_fields;
    struct fl_writer_field fields[FL_INDEX_MAX_FIELDS];
    struct fl_bytes containers, container_names, dirs, dir_names;
    struct fl_writer_blobs keys, classes, headers;
    char *spill_path;       // in whose folder scratch files go; NULL: everything stays in memory
    uint32_t *header_table; // open addressing: id + 1 by hash, 0 free
    size_t header_slots;    // a power of two
};

extern const struct fl_span fl_writer_no_span;
extern const struct fl_index_image fl_writer_no_image;
extern const int64_t fl_writer_no_int;

#endif
