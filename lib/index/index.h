/* SPDX-License-Identifier: Apache-2.0 */
/* Reading an index: open looks at header, section table, schema and class names only; every block
 * is read with pread and checked at its first use, into a cache of bounded size.
 *
 * Any number of threads may look things up at the same time; a look-up allocates nothing, and takes
 * no lock if its blocks are in memory. All look-ups return 0 or a negative errno and, unless stated
 * otherwise, put a sentence into the calling thread's error slot: FL_ERR(EINVAL) for a sample,
 * field or id out of range, FL_ERR(EBADMSG) for a damaged block or value, FL_ERR(EIO).
 *
 * Spans are checked against their container before they are handed out: offset + length <= its
 * size. */
#ifndef FL_INDEX_INDEX_H
#define FL_INDEX_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <feedline/dataset.h>

#include "span.h"
#include "index/format.h"

struct fl_index;

/* What is known of one picture; as stored in the index, 8 bytes, all zero where nothing is known.
 */
struct fl_index_image {
    uint16_t width, height; // pixels as stored, before EXIF orientation
    uint8_t components;     // 1, 3 or 4
    uint8_t orientation;    // EXIF, 1 to 8; 0: none stated
    uint8_t sampling;       // FL_SAMPLING_*; 0: grey, unknown, or any other arrangement
    uint8_t flags;          // FL_IMAGE_*
};
_Static_assert(sizeof(struct fl_index_image) == 8, "on-disk layout");

/* Horizontal and vertical factors of the first component; all others have 1 and 1. */
#define FL_SAMPLING_444 0x11u
#define FL_SAMPLING_422 0x21u
#define FL_SAMPLING_440 0x12u
#define FL_SAMPLING_420 0x22u
#define FL_SAMPLING_411 0x41u

#define FL_IMAGE_SLICED 1u  // has a slice blob: any rectangle can be cut out
#define FL_IMAGE_DAMAGED 2u // the codec warned while the dataset was made
#define FL_IMAGE_PROGRESSIVE 4u
#define FL_IMAGE_ENTRIES 8u // has entry points

struct fl_index_field {
    const char *name;
    FlFieldKind kind;
    bool has_checksum; // its spans carry one
    bool is_image;     // fl_index_image() works
    bool has_slices, has_entries;
    int64_t count;
    uint64_t bytes, max_bytes;
    int64_t sliced;
    int64_t entries;                       // pictures with entry points
    uint64_t entry_bytes, longest_entries; // of their blobs, all and the longest
};

struct fl_index_info {
    int64_t n_samples, n_containers, n_headers, n_dirs;
    int32_t n_fields, n_classes;
    uint64_t fingerprint;
    uint64_t file_bytes;  // size of the index
    uint64_t cache_bytes; // memory that its blocks may take
    int64_t skipped;
    uint64_t options;
    bool keep_sidecars;
    bool entry_points; // were asked for when it was built
    enum fl_index_kind kind;
};

struct fl_index_container {
    uint64_t size;    // bytes
    int64_t mtime_ns; // or FL_MTIME_NONE
    uint64_t hash;
};

/* Open `path`. cache_bytes 0: the whole index, at most 256 MiB; else rounded up to a working
 * minimum of 2 MiB. FL_ERR(ENOENT), FL_ERR(EBADMSG), FL_ERR(ENOTSUP): a newer format, FL_ERR(EIO),
 * FL_ERR(ENOMEM). */
int fl_index_open(struct fl_index **out, const char *path, uint64_t cache_bytes);

/* The same for an index in memory; takes `bytes` (from malloc) over, also on error. `name` is for
 * messages. */
int fl_index_open_memory(struct fl_index **out, void *bytes, size_t size, const char *name);

void fl_index_close(struct fl_index **ix);

const struct fl_index_info *fl_index_info(const struct fl_index *ix);

/* Field 0 <= i < n_fields, in name order; NULL outside. */
const struct fl_index_field *fl_index_field(const struct fl_index *ix, int32_t i);

/* Number of the field with this name, or FL_ERR(ENOENT), which sets no message. */
int32_t fl_index_find(const struct fl_index *ix, const char *name);

/* Class name, NULL outside 0 <= i < n_classes. */
const char *fl_index_class(const struct fl_index *ix, int32_t i);

/* Where a field of kind FL_FIELD_BYTES lies; span->container is FL_NO_CONTAINER if the sample lacks
 * it. */
int fl_index_span(const struct fl_index *ix, int32_t field, int64_t sample, struct fl_span *span);

/* Where a sample lies: the bytes of this field, or (field < 0, or it has none) of the first that has any. False: of none. */
bool fl_index_place(const struct fl_index *ix, int32_t field, int64_t sample, struct fl_span *span);

/* Value of a field of kind FL_FIELD_INT. FL_ERR(ENOENT) if the sample lacks it; that sets no
 * message. */
int fl_index_int(const struct fl_index *ix, int32_t field, int64_t sample, int64_t *value);

/* What is known of a picture. All zero if it is not one or nothing is known. */
int fl_index_image(const struct fl_index *ix, int32_t field, int64_t sample,
                   struct fl_index_image *image);

/* A sample's slice blob (jpeg/slice.h), *len = 0 if it has none. Opaque here, but for the dictionary ids
 * in it (fl_slice_blob_ids()), which name strings of fl_index_header().
 * FL_ERR(E2BIG): longer than cap; *len then says how long, and no message is set. */
int fl_index_slices(const struct fl_index *ix, int32_t field, int64_t sample, void *buf, size_t cap,
                    size_t *len);

/* A sample's entry points (jpeg/entry.h), by the same rules; ids lie where a slice blob has them. */
int fl_index_entries(const struct fl_index *ix, int32_t field, int64_t sample, void *buf,
                     size_t cap, size_t *len);

/* String `id` of the header dictionary, by the same rules. */
int fl_index_header(const struct fl_index *ix, uint32_t id, void *buf, size_t cap, size_t *len);

/* Key, NUL-terminated, cut to `size` bytes. Returns the length of the whole key or FL_ERR(...). */
int64_t fl_index_key(const struct fl_index *ix, int64_t sample, char *buf, size_t size);

int fl_index_container(const struct fl_index *ix, uint32_t id, struct fl_index_container *out);

/* Path relative to the dataset's folder, NUL-terminated. Returns its length; FL_ERR(E2BIG) if it
 * does not fit. */
int fl_index_container_path(const struct fl_index *ix, uint32_t id, char *buf, size_t size);

/* A folder that was listed while indexing, 0 <= i < n_dirs; path as above ("" is the dataset's
 * folder). */
int fl_index_dir(const struct fl_index *ix, int64_t i, struct fl_index_dir *dir, char *buf,
                 size_t size);

/* Check every block. Returns 0 or the first failure; *bad gets the number of damaged blocks. */
int fl_index_check(const struct fl_index *ix, int64_t *bad);

#endif
