/* SPDX-License-Identifier: Apache-2.0 */
/* A loader's settings, resolved: FlConfig judged against the dataset, every "automatic" decided.
 * All ranges are checked once, here; the stages believe what stands in it. */
#ifndef FL_SETTINGS_H
#define FL_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <feedline/config.h>
#include <feedline/dataset.h>

#include "kernels/normalize.h"

struct fl_decoder;

/* One output column. */
struct fl_column {
    FlColumnConfig cfg; // defaults filled in
    unsigned index;     // among the columns
    int32_t field;      // of the dataset
    FlFieldKind kind;   // of the field
    bool zstd;          // the field's bytes are zstd frames
    bool checksums;     // its spans have one, and it is to be compared
    bool sliced;        // some pictures are sliced JPEGs
    bool is_image;      // the index knows the pictures' sizes
    const struct fl_decoder *decoder;

    /* Of a batch in host memory: FL_COLUMN_BYTES has row_bytes 0 and max_row per row. */
    FlDtype dtype;                 // host form: FL_U8 pixels for a CUDA device, the final type else
    FlLayout layout;               // host form
    uint64_t row_bytes;            // fixed bytes of a row
    uint64_t max_row;              // most bytes of a row
    uint64_t largest;              // longest span of the field
    uint64_t bytes;                // of the column in a slot
    uint64_t offset;               // in a slot, a multiple of FL_SLOT_ALIGN
    struct fl_normalize normalize; // images: pixels to the host form
};

#define FL_SLOT_ALIGN 4096

struct fl_settings {
    FlConfig cfg; // defaults filled in; pointers in it are not ours and not used
    int64_t n;    // samples of the dataset
    unsigned n_columns;
    struct fl_column columns[FL_MAX_COLUMNS];
    unsigned n_workers;            // 0: inline
    bool inline_all;               // n_workers == 0
    unsigned n_slots;              // host
    uint64_t slot_bytes;           // columns of one host slot
    uint64_t read_bytes;           // of the read arena
    int64_t block;                 // FL_SHUFFLE_BLOCK: samples of a block
    uint64_t pipeline_fingerprint; // hash of what decides the bytes of a batch's columns
    int numa_node;
};

/* Returns 0; FL_ERR(EINVAL), FL_ERR(ENOENT), FL_ERR(ENOMEM) with a sentence that names
 * the setting. */
int fl_settings_resolve(struct fl_settings *s, const FlDataset *ds, const FlConfig *cfg);

#endif
