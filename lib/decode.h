/* SPDX-License-Identifier: Apache-2.0 */
/* Stages 3 and 4, decode and augment: what a worker does with a sample whose bytes are in memory. The
 * codecs are behind decoders/; they crop, resize, flip and normalise on the way to the row. */
#ifndef FL_DECODE_H
#define FL_DECODE_H

#include "sample.h"
#include "settings.h"

/* State of one worker. */
struct fl_decode {
    const struct fl_settings *settings;
    void *ctx[FL_MAX_COLUMNS]; // of each column's decoder
};

/* *bytes gets the size of all contexts. Returns 0 or FL_ERR(...). */
int fl_decode_open(struct fl_decode *d, const struct fl_settings *settings, uint64_t *bytes);
void fl_decode_close(struct fl_decode *d);

/* Decode every column into its row. lengths[c]: where to note the length of a FL_COLUMN_BYTES value.
 * A failure ends up in s->err. */
void fl_decode_sample(struct fl_decode *d, struct fl_sample *s, uint8_t *const rows[FL_MAX_COLUMNS],
                      int64_t *const lengths[FL_MAX_COLUMNS]);

/* A codec counts from the beginning of its bytes, an error from that of the container: make the one the other. */
void fl_decode_locate(const struct fl_sample_field *f, FlError *err);

#endif
