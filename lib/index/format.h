/* SPDX-License-Identifier: Apache-2.0 */
/* index.fli, byte by byte. Little endian; every number of bytes and items is 64 bits wide.
 *
 *   header                 struct fl_index_header, 96 bytes
 *   section table          n_sections times struct fl_index_section
 *   zeros                  up to the next multiple of 4096: `data`
 *   block 0, 1, 2, ...     65,528 bytes of payload, then XXH3-64 of them seeded with the block
 * number; the last block is as short as its payload
 *
 * Sections lie one after another in the payload, as if the checksums were not there ("logical"
 * offsets); an item may straddle two blocks. A reader skips the sections that it does not know,
 * unless they are flagged FL_SECTION_REQUIRED. A newer minor version adds sections; a newer major
 * one is refused. */
#ifndef FL_INDEX_FORMAT_H
#define FL_INDEX_FORMAT_H

#include <stdint.h>

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "index.fli is read and written as it lies in memory, which must be little endian"
#endif

#define FL_INDEX_NAME "index.fli"
#define FL_INDEX_MAGIC "FLINDEX\n"
#define FL_INDEX_MAJOR 1
#define FL_INDEX_MINOR 0
#define FL_INDEX_BLOCK 65536u
#define FL_INDEX_PAYLOAD (FL_INDEX_BLOCK - 8u)
#define FL_INDEX_DATA_ALIGN 4096u

/* Limits that keep a damaged header from asking for much memory. */
#define FL_INDEX_MAX_SECTIONS 4096u
#define FL_INDEX_MAX_FIELDS 256u
#define FL_INDEX_MAX_CLASSES 16777216u
#define FL_INDEX_MAX_NAME 4096u // bytes of a path, a key or a field name, NUL included

enum fl_index_kind { FL_KIND_TAR = 1, FL_KIND_FOLDER = 2 };

struct fl_index_header {
    char magic[8];
    uint16_t major, minor;
    uint32_t n_sections;
    uint64_t n_samples;
    uint64_t fingerprint; // of keys, fields, containers, spans and integers; not of times
    uint64_t data;        // file offset of block 0
    uint64_t payload;     // bytes of payload in all blocks
    uint32_t kind;        // enum fl_index_kind
    uint32_t flags;       // FL_INDEX_*
    uint64_t skipped;     // entries left out while indexing
    uint64_t options;     // hash of the options that change what is indexed; 0: made by the sharder
    uint64_t reserved[2];
    uint64_t checksum; // XXH3-64, seed 0, of header (this field as 0) and section table
};
_Static_assert(sizeof(struct fl_index_header) == 96, "on-disk layout");

/* Flags of the header. KEYS_ARE_PATHS: no FL_SEC_KEYS, a sample's key is its container's path without
 * extension. KEEP_SIDECARS: sidecar files were taken for data. */
#define FL_INDEX_KEYS_ARE_PATHS 1u
#define FL_INDEX_KEEP_SIDECARS 2u
#define FL_INDEX_ENTRY_POINTS 4u // made where there can be any

enum fl_section_type {
    FL_SEC_CONTAINERS = 1,  // struct fl_index_file each
    FL_SEC_CONTAINER_NAMES, // their paths, end to end, relative to the dataset's folder
    FL_SEC_SCHEMA,          // struct fl_index_schema each, in name order
    FL_SEC_SCHEMA_NAMES,    // field names, end to end
    FL_SEC_SPANS,           // per field: struct fl_span of each sample
    FL_SEC_INTS,  // per field: int64 or int32 of each sample; the least value means "missing"
    FL_SEC_IMAGE, // per field: struct fl_index_image of each sample
    FL_SEC_SLICE_OFFSETS, // per field: n_samples + 1 offsets into the blobs
    FL_SEC_SLICES,        // per field: the samples' slice blobs, end to end
    FL_SEC_ENTRY_OFFSETS, // per field, as above: entry points
    FL_SEC_ENTRIES,
    FL_SEC_HEADER_OFFSETS, // dictionary of header strings, n + 1 offsets
    FL_SEC_HEADERS,
    FL_SEC_KEY_OFFSETS, // n_samples + 1 offsets
    FL_SEC_KEYS,
    FL_SEC_CLASS_OFFSETS, // n_classes + 1 offsets
    FL_SEC_CLASSES,
    FL_SEC_DIRECTORIES, // struct fl_index_dir each: folders that were listed
    FL_SEC_DIRECTORY_NAMES,
};

#define FL_SECTION_REQUIRED 1u
#define FL_SECTION_NO_FIELD UINT32_MAX

struct fl_index_section {
    uint32_t type;    // enum fl_section_type
    uint32_t field;   // number of the field, or FL_SECTION_NO_FIELD
    uint16_t version; // of this section's layout; 1
    uint16_t flags;   // FL_SECTION_*
    uint32_t item;    // bytes of one item; 1 for blobs
    uint64_t count;   // items
    uint64_t offset;  // logical
    uint64_t length;  // bytes = count * item
    uint64_t
        note; // FL_SEC_ENTRY_OFFSETS: blobs that are not empty; FL_SEC_ENTRIES: bytes of the longest
};
_Static_assert(sizeof(struct fl_index_section) == 48, "on-disk layout");

/* One container. */
struct fl_index_file {
    uint64_t name;    // offset in FL_SEC_CONTAINER_NAMES; it ends where the next one begins
    uint64_t size;    // bytes
    int64_t mtime_ns; // FL_MTIME_NONE in what the sharder writes: its bytes must not depend on time
    uint64_t hash;    // of header bytes, see fl_format.hash; decides where mtime differs
};
_Static_assert(sizeof(struct fl_index_file) == 32, "on-disk layout");

#define FL_MTIME_NONE INT64_MIN

struct fl_index_dir {
    uint64_t name; // offset in FL_SEC_DIRECTORY_NAMES
    int64_t mtime_ns;
    uint64_t hash; // of the names in it
};
_Static_assert(sizeof(struct fl_index_dir) == 24, "on-disk layout");

#define FL_SCHEMA_CHECKSUM 1u // spans carry a checksum
#define FL_SCHEMA_IMAGE 2u    // there is an FL_SEC_IMAGE section

struct fl_index_schema {
    uint32_t name;  // offset in FL_SEC_SCHEMA_NAMES
    uint16_t kind;  // FlFieldKind
    uint16_t flags; // FL_SCHEMA_*
    uint64_t count; // samples that have the field
    uint64_t bytes; // sum of their lengths
    uint64_t max_bytes;
    uint64_t sliced; // pictures stored as sliced JPEG
};
_Static_assert(sizeof(struct fl_index_schema) == 40, "on-disk layout");

#endif
