/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of struct fl_index; for reader.c (open, close) and lookup.c alone. */
#ifndef FL_INDEX_READER_H
#define FL_INDEX_READER_H

#include "index/blocks.h"
#include "index/index.h"

/* A section as found in the table; length 0 if there is none. */
struct fl_section {
    uint64_t offset, count, length, note; // logical offset; items; bytes; see format.h
    uint32_t item;
    bool there;
};

/* A table of offsets and what it points into. */
struct fl_blobs {
    struct fl_section offsets, bytes;
};

struct fl_reader_field {
    struct fl_index_field pub;
    struct fl_section spans, ints, image;
    struct fl_blobs slices, entries;
};

struct fl_index {
    struct fl_index_info info;
    struct fl_reader_field *fields;
    struct fl_section containers, container_names, schema, schema_names, dirs, dir_names;
    struct fl_blobs headers, keys, classes;
    bool keys_are_paths;
    char *names;        // field names, each with its NUL
    char *class_names;  // likewise
    char **class_table; // n_classes pointers into class_names
    char *path;         // for messages
    int fd;
    uint8_t *memory;
    struct fl_blocks *blocks; // the cache changes while the index does not
};

/* One item of blobs: *len always, the bytes if they fit. See fl_index_slices() for the codes. */
int fl_index_blob(const struct fl_index *ix, const struct fl_blobs *s, uint64_t i, void *buf,
                  size_t cap, size_t *len);

#endif
