/* SPDX-License-Identifier: Apache-2.0 */
/* Making pictures smaller, with loss: only where --max-side or --quality asks for it. */
#ifndef FL_SHARD_SHRINK_H
#define FL_SHARD_SHRINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <feedline/error.h>

#include "base/bytes.h"
#include "jpeg/decode.h"

#define FL_SHRINK_QUALITY 95

/* Buffers of one thread. */
struct fl_shrinker {
    struct fl_jpeg_decoder *decoder; // made at first use
    struct fl_bytes pixels, icc;
    struct fl_bytes out; // the new picture
};

void fl_shrinker_fini(struct fl_shrinker *s);

/* Encode the picture anew, its shorter side being at most max_side (0: as it is) by the resampler that training
 * uses, with the chroma sampling it had. The ICC profile stays unless it belonged to four components, which
 * become RGB; EXIF and the rest go, and orientation is not applied.
 *
 * With max_side, pictures that are small enough stay as they are; without, all are encoded at `quality`.
 * Returns 1: s->out has it; 0: nothing to do; FL_ERR(EBADMSG): damaged; FL_ERR(ENOTSUP), FL_ERR(E2BIG): a
 * picture that cannot be decoded here; FL_ERR(ENOMEM). *err is filled. */
int fl_shrink(struct fl_shrinker *s, const uint8_t *data, size_t len, int32_t max_side,
              int32_t quality, FlError *err);

/* Size that a picture of w x h gets. The same unless its shorter side is longer than max_side. */
void fl_shrink_size(int32_t w, int32_t h, int32_t max_side, int32_t *rw, int32_t *rh);

/* Collect the ICC profile of a JPEG in *icc: empty if there is none or it is not whole.
 * Returns 0 or FL_ERR(ENOMEM). */
int fl_icc_find(const uint8_t *data, size_t len, struct fl_bytes *icc);

#endif
