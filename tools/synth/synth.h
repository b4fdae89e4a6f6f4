/* SPDX-License-Identifier: Apache-2.0 */
/* Photo-like JPEGs for whoever has no data at hand: of ImageNet's sizes (about 500 x 375 pixels,
 * 107 KB), as costly to decode, always the same for the same seed and number. */
#ifndef FL_TOOLS_SYNTH_H
#define FL_TOOLS_SYNTH_H

#include <stddef.h>
#include <stdint.h>

struct synth {          // scratch of one thread; zero-initialise, end with synth_free()
    unsigned char *rgb; // width x height x 3
    int16_t *field;     // one octave of noise
    size_t pixels;      // room for so many in rgb and field
    unsigned char *jpeg;
    size_t jpeg_size; // allocated
};

/* Make picture `number` of the series `seed`. The lowest three bits of `kind` brighten red, green
 * and blue a little, so that there is something to learn. On success *data and *size are the JPEG,
 * valid until the next call with the same scratch, and 0 is returned; else -1 (no memory). */
int synth_photo(struct synth *s, uint64_t seed, uint64_t number, unsigned kind,
                const unsigned char **data, size_t *size);

void synth_free(struct synth *s);

#endif
