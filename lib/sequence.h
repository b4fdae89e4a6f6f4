/* SPDX-License-Identifier: Apache-2.0 */
/* What a loader goes through: the order of one dataset, or of a weighted mixture of several. */
#ifndef FL_SEQUENCE_H
#define FL_SEQUENCE_H

#include "mixture.h"
#include "order.h"

struct fl_sequence {
    unsigned n_parts;
    int64_t n; // positions of an epoch
    struct fl_order orders[FL_MIXTURE_PARTS];
    struct fl_mixture mixture; // n_parts > 1
};

struct fl_sequence_place {
    unsigned part;
    int64_t sample; // in the part's dataset
};

/* One order for each part; weights and length are for a mixture alone (length 0: the sum of the parts).
 * Parts of a mixture draw their orders from different keys. Returns as fl_order_init() and
 * fl_mixture_init(). Not for several threads at once. */
int fl_sequence_init(struct fl_sequence *s, unsigned n_parts, const struct fl_order_cfg *orders,
                     const double *weights, int64_t length, uint64_t seed);
void fl_sequence_fini(struct fl_sequence *s);

struct fl_sequence_place fl_sequence_at(struct fl_sequence *s, int64_t epoch, int64_t position);

/* Hash of everything that decides the sequence but the seed. */
uint64_t fl_sequence_fingerprint(const struct fl_sequence *s);

/* Hash and number of the samples that are excluded; 0 and 0 if there are none. */
uint64_t fl_sequence_exclusions(const struct fl_sequence *s, int64_t *n);

#endif
