/* SPDX-License-Identifier: Apache-2.0 */
/* Keyed random numbers: a function of (seed, epoch, position, operation), never of time or threads.
 * Philox 4x32-10: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC
 * 2011. */
#ifndef FL_BASE_RNG_H
#define FL_BASE_RNG_H

#include <stdint.h>

/* What a draw is for. Values are part of the on-disk contract of saved states: never renumber. */
enum fl_rng_op {
    FL_RNG_ORDER = 1,      // keys of the epoch's permutation
    FL_RNG_CROP = 2,       // random-resized crop, one stream per column
    FL_RNG_FLIP = 3,       // horizontal flip
    FL_RNG_SUBSTITUTE = 4, // stand-in of a bad sample
    FL_RNG_USER = 5,       // seeds handed to the caller's own transforms
    FL_RNG_MIXTURE = 6,    // schedule of a mixture of datasets
    FL_RNG_SHARD = 7,      // the sharder's shuffle
};

struct fl_rng {
    uint32_t key[2];     // seed
    uint32_t counter[4]; // position (64 bits), epoch, operation | stream << 8 | block << 16
    uint32_t out[4];
    unsigned used; // words of out already taken
};

/* Start the stream of one operation on one sample. stream (0 to 255) tells columns or attempts
 * apart. */
void fl_rng_init(struct fl_rng *r, uint64_t seed, uint32_t epoch, uint64_t position,
                 enum fl_rng_op op, uint32_t stream);

uint32_t fl_rng_u32(struct fl_rng *r);
uint64_t fl_rng_u64(struct fl_rng *r);

/* Uniform in [0, 1), 53 bits. */
double fl_rng_double(struct fl_rng *r);

/* Uniform in [0, n) for n >= 1, without bias. */
uint64_t fl_rng_below(struct fl_rng *r, uint64_t n);

/* The block function itself: key and counter in, four words out. */
void fl_philox(const uint32_t key[2], const uint32_t counter[4], uint32_t out[4]);

#endif
