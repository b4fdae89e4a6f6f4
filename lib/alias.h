/* SPDX-License-Identifier: Apache-2.0 */
/* Draws with replacement by weight, in O(1) each: Walker's alias method, table by Vose
 * (M. D. Vose, "A linear algorithm for generating random numbers with a given distribution", 1991). */
#ifndef FL_ALIAS_H
#define FL_ALIAS_H

#include <stdint.h>

#include "base/rng.h"

struct fl_alias {
    uint32_t n;
    struct fl_alias_entry {
        uint32_t keep; // of 2^32: probability of the entry itself rather than its alias
        uint32_t alias;
    } * entries;
};

/* n weights, each >= 0 and finite, their sum > 0; n < 2^32. Returns 0; FL_ERR(EINVAL): names the
 * weight; FL_ERR(ENOMEM). 8 bytes an entry are kept. */
int fl_alias_init(struct fl_alias *a, const double *weights, int64_t n);
void fl_alias_fini(struct fl_alias *a);

/* One of [0, n). */
static inline uint32_t fl_alias_draw(const struct fl_alias *a, struct fl_rng *r)
{
    const uint32_t i = (uint32_t)fl_rng_below(r, a->n);
    return fl_rng_u32(r) < a->entries[i].keep ? i : a->entries[i].alias;
}

#endif
