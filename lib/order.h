/* SPDX-License-Identifier: Apache-2.0 */
/* Which sample stands at which position of an epoch: a function of (seed, epoch, position), never a
 * stream, so that any position of any epoch can be asked for at any time. */
#ifndef FL_ORDER_H
#define FL_ORDER_H

#include <stdbool.h>
#include <stdint.h>

#include <feedline/config.h>

#include "alias.h"
#include "perm.h"

struct fl_order_cfg {
    FlShuffle shuffle;
    uint64_t seed;
    int64_t n;              // samples in the dataset
    const int64_t *exclude; // samples left out, ascending and distinct; copied
    int64_t n_exclude;
    const int64_t *subset; // samples that take part, in this order and as often as they stand here;
    int64_t n_subset;      // NULL: all of them. Copied
    const double
        *weights; // NULL, or one for each sample (each place of the subset, if there is one); those
                  // of excluded samples do not count. Drawn with replacement
    int64_t length; // weights: positions of an epoch; 0: as many as take part
    int64_t block;  // FL_SHUFFLE_BLOCK: samples of a block
    int64_t window; // FL_SHUFFLE_BLOCK: blocks shuffled together
};

/* Not for several threads at once: it keeps the keys of the epochs and windows asked for last. */
struct fl_order {
    struct fl_order_cfg cfg;
    int64_t n;       // positions of an epoch
    int64_t members; // samples that take part
    int64_t *exclude, *subset;
    struct fl_alias alias; // weights
    uint64_t weights_hash;
    struct fl_perm epochs[2];   // permutations of two epochs: prefetch crosses their border
    int64_t epoch_of[2];        // -1: none yet
    struct fl_perm window_perm; // FL_SHUFFLE_BLOCK: inside a window
    int64_t window_epoch, window_of;
};

/* Returns 0; FL_ERR(ENOMEM); FL_ERR(EINVAL): the exclusion list is not ascending or not in the
 * dataset. */
int fl_order_init(struct fl_order *o, const struct fl_order_cfg *cfg);
void fl_order_fini(struct fl_order *o);

/* Sample at a position, 0 <= position < o->n. */
int64_t fl_order_at(struct fl_order *o, int64_t epoch, int64_t position);

/* Does an ascending list of n samples hold this one? */
bool fl_order_excludes(const int64_t *exclude, int64_t n, int64_t sample);

/* Hash of everything that decides the order but the seed; of the exclusion list alone, 0 without one. */
uint64_t fl_order_fingerprint(const struct fl_order *o);
uint64_t fl_order_exclusions(const struct fl_order *o);

#endif
