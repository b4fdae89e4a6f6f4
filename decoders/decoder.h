/* SPDX-License-Identifier: Apache-2.0 */
/* A decoder turns the bytes of a field into a row of a column. Each is one constant table of functions;
 * the decode stage knows no codec. */
#ifndef FL_DECODER_H
#define FL_DECODER_H

#include <stddef.h>
#include <stdint.h>

#include <feedline/error.h>

#include "sample.h"
#include "settings.h"

struct fl_decode_job {
    const struct fl_column *column;
    const struct fl_sample *sample;
    const struct fl_sample_field *field; // what the plan knows of it
    const uint8_t *data; // bytes of the field, or of the part that the plan asked for
    size_t len;
    uint8_t *row;      // where the row goes; NULL if the bytes were read straight to it
    uint64_t row_room; // bytes that fit there
    uint64_t row_len;  // out: bytes written
};

struct fl_decoder {
    const char *name;

    /* State of one worker for one column, with all memory it will need; *bytes gets its size. NULL: the
     * decoder keeps none. Returns 0 or FL_ERR(...) with a sentence. */
    int (*open)(void **ctx, const struct fl_column *column, const struct fl_settings *settings,
                uint64_t *bytes);

    /* Any thread, one at a time for each ctx. Returns 0, or FL_ERR(...) with *err filled: stage and a
     * sentence; the caller adds sample, key and container. The row may be left half written. */
    int (*decode)(void *ctx, struct fl_decode_job *job, FlError *err);

    void (*close)(void *ctx); // NULL where open is
};

extern const struct fl_decoder fl_decoder_label; // integers of the index, or decimal digits: int64
extern const struct fl_decoder fl_decoder_raw;   // bytes, of one length or of any
extern const struct fl_decoder fl_decoder_zstd;  // the same, compressed
extern const struct fl_decoder fl_decoder_jpeg;  // pictures

#endif
