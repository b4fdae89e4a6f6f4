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
#include <feedline/loader.h>

#include "kernels/normalize.h"
#include "mixture.h"

struct fl_decoder;
struct fl_io_faults;

/* Where a column comes from in one dataset. */
struct fl_source {
    int32_t field;    // of the dataset
    FlFieldKind kind; // of the field
    bool checksums;   // its spans have one, and it is to be compared
    bool sliced;      // some pictures are sliced JPEGs
    bool points;      // some have entry points
    bool row_sums;    // row groups of these have checksums that are to be compared
    bool is_image;    // the index knows the pictures' sizes
};

/* One dataset: the only one, or a part of a mixture. */
struct fl_part {
    FlDataset *ds;           // kept alive by the pipeline
    int64_t n;               // its samples
    uint32_t container_base; // the read stage counts the containers of all parts in one row
    uint32_t n_containers;
    FlPart cfg; // the caller's; its pointers are read at open only
};

/* One output column. */
struct fl_column {
    FlColumnConfig cfg; // defaults filled in
    unsigned index;     // among the columns
    bool zstd;          // the field's bytes are zstd frames
    bool sliced;        // some pictures of some part are sliced JPEGs
    bool points;        // some have entry points
    size_t blob_room;   // of a row, for slice table or entry points and header strings; 0: for none
    const struct fl_decoder *decoder;
    struct fl_source from[FL_MIXTURE_PARTS]; // by part

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
    unsigned n_parts;
    struct fl_part parts[FL_MIXTURE_PARTS];
    uint64_t fingerprint; // of the datasets
    unsigned n_columns;
    struct fl_column columns[FL_MAX_COLUMNS];
    unsigned n_workers;            // 0: inline
    bool inline_all;               // n_workers == 0
    unsigned n_slots;              // host
    uint64_t slot_bytes;           // columns of one host slot
    uint64_t read_bytes;           // of the read arena
    int64_t block;                 // FL_SHUFFLE_BLOCK: samples of a block
    uint64_t pipeline_fingerprint; // hash of what decides the bytes of a batch's columns
    bool reports;                  // bad samples go to cfg.bad_report
    int numa_node;
    const struct fl_io_faults *faults; // tests: read through the memory backend; NULL: no
};

/* Returns 0; FL_ERR(EINVAL), FL_ERR(ENOENT), FL_ERR(ENOMEM) with a sentence that names
 * the setting. */
int fl_settings_resolve(struct fl_settings *s, const FlPart *parts, int32_t n_parts,
                        const FlConfig *cfg);

#endif
