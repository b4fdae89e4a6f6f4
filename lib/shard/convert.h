/* SPDX-License-Identifier: Apache-2.0 */
/* One sample, from the source to what stands in the shard: fields are read, pictures are rewritten. */
#ifndef FL_SHARD_CONVERT_H
#define FL_SHARD_CONVERT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <feedline/dataset.h>
#include <feedline/error.h>

#include "base/bytes.h"
#include "index/index.h"
#include "jpeg/slice.h"

struct fl_convert_cfg {
    FlDataset *source;
    bool slice, check, drop_icc;
    int32_t max_side, quality; // 0: as they are
};

/* What became of a picture. */
enum fl_picture {
    FL_PICTURE_NONE = 0, // not one
    FL_PICTURE_SLICED,   // rewritten, or it was sliced already
    FL_PICTURE_KEPT,     // byte for byte
    FL_PICTURE_DAMAGED,  // byte for byte, and the codec warned
};

/* One field of a prepared sample. Offsets are into fl_prepared.bytes. */
struct fl_prepared_field {
    int32_t field; // number in the source's index
    FlFieldKind kind;
    int64_t value;
    size_t offset, length; // content, as it stands in the tar
    uint32_t checksum;
    enum fl_picture picture;
    bool shrunk;
    struct fl_index_image image;
    size_t blob_offset, blob_length; // slice table; length 0: none
    size_t header_offset[FL_SLICE_HEADERS], header_length[FL_SLICE_HEADERS];
};

/* Memory is kept from sample to sample. */
struct fl_prepared {
    FlError err;    // code 0: the rest is valid
    int64_t sample; // in the source
    char key[FL_INDEX_MAX_NAME];
    size_t key_len;
    struct fl_bytes bytes;
    struct fl_prepared_field *fields; // room for each of the source
    int32_t n_fields;
    uint64_t bytes_in;
    char warning[512]; // of a damaged picture, "" if there is none
};

/* Buffers and codec state of one thread. */
struct fl_converter;

/* Returns 0 or FL_ERR(ENOMEM) with a sentence. */
int fl_converter_new(struct fl_converter **out, const struct fl_convert_cfg *cfg);
void fl_converter_free(struct fl_converter *c); // NULL is fine

/* Prepare a sample of the source. A failure (a field that cannot be read) is in p->err and names the file. */
void fl_convert(struct fl_converter *c, int64_t sample, struct fl_prepared *p);
void fl_prepared_fini(struct fl_prepared *p);

#endif
