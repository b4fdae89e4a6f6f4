/* SPDX-License-Identifier: Apache-2.0 */
/* Stage 1, plan: an epoch's positions cut into global batches, a rank's slice of each, and the tail.
 *
 * Positions [base, n) are cut into global batches of world * batch positions; rank r has the r-th slice
 * of `batch` positions of each. The m positions that are left over at the end are dealt out evenly: rank
 * r has m / world of them, and one more if r < m % world. A run may begin at any base (a saved state
 * counts positions, not batches), with any world and batch: the order of what remains is the same. */
#ifndef FL_PLAN_H
#define FL_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include <feedline/config.h>

struct fl_plan {
    int64_t n;     // positions of an epoch
    int64_t batch; // rows of a batch of this rank
    int64_t rank, world;
    FlTail tail;
};

struct fl_plan_batch {
    int64_t epoch;
    int64_t position; // of row 0
    int64_t rows;     // of the batch, padding included
    int64_t samples;  // rows with a position; the others are padding
    int64_t end;      // position behind the global batch: what a saved state holds
};

/* A place in the sequence of batches. */
struct fl_cursor {
    int64_t epoch;
    int64_t base;  // position at which this epoch began for us: 0 but after a restore
    int64_t index; // global batches of this epoch that are behind us
};

/* Batches, and samples without padding, that the rank gets of positions [base, n). */
int64_t fl_plan_batches(const struct fl_plan *p, int64_t base);
int64_t fl_plan_samples(const struct fl_plan *p, int64_t base);

/* The batch at the cursor; moves the cursor. True: *out is filled. False: the epoch is over, and the
 * cursor stands at the beginning of the next one. */
bool fl_plan_next(const struct fl_plan *p, struct fl_cursor *c, struct fl_plan_batch *out);

/* Position at the cursor as a saved state holds it. Sets *epoch too: at the end of an epoch it is the
 * next one, position 0. */
int64_t fl_plan_position(const struct fl_plan *p, const struct fl_cursor *c, int64_t *epoch);

#endif
