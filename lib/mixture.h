/* SPDX-License-Identifier: Apache-2.0 */
/* A weighted mixture of datasets: which part stands at which position, a function of (seed, epoch,
 * position) like any other order, so that it resumes and rescales like one.
 *
 * Positions come in blocks of FL_MIXTURE_BLOCK. In each block part d has a fixed number of places, its
 * weight's share rounded by largest remainder (an epoch's last, shorter block has shares of its own), and
 * a keyed permutation deals the places out. The k-th place that part d has had since the run began is
 * position k mod n of its own epoch k / n: a small part comes round again while a large one goes on. */
#ifndef FL_MIXTURE_H
#define FL_MIXTURE_H

#include <stdint.h>

#include "perm.h"

#define FL_MIXTURE_PARTS 16
#define FL_MIXTURE_BLOCK 1024

struct fl_mixture {
    unsigned n_parts;
    int64_t length; // positions of an epoch
    uint64_t seed;
    int64_t n[FL_MIXTURE_PARTS];     // positions of an epoch of each part
    int32_t share[FL_MIXTURE_PARTS]; // places in a whole block
    int32_t tail[FL_MIXTURE_PARTS];  // in the last one
    struct fl_perm perm;
    /* the block asked for last */
    int64_t epoch, block;
    uint8_t part[FL_MIXTURE_BLOCK];
    uint16_t rank[FL_MIXTURE_BLOCK]; // among the block's places of the same part
};

struct fl_mixture_place {
    unsigned part;
    int64_t epoch, position; // of the part
};

/* weights > 0, n[d] > 0. Returns 0; FL_ERR(EINVAL): a weight whose share of a block rounds to nothing,
 * or not positive; FL_ERR(ENOMEM). Not for several threads at once. */
int fl_mixture_init(struct fl_mixture *m, unsigned n_parts, const double *weights, const int64_t *n,
                    int64_t length, uint64_t seed);
void fl_mixture_fini(struct fl_mixture *m);

struct fl_mixture_place fl_mixture_at(struct fl_mixture *m, int64_t epoch, int64_t position);

/* Hash of parts, shares and length. */
uint64_t fl_mixture_fingerprint(const struct fl_mixture *m);

#endif
