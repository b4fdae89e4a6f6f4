/* SPDX-License-Identifier: Apache-2.0 */
/* A keyed permutation of [0, n): a random order that is a function of its index and needs no array.
 *
 * From SMALL_N samples on it is a Feistel network over the smallest power of two >= n with cycle
 * walking (values outside [0, n) are permuted again), so any index costs O(1) time and memory;
 * below, where a network of few bits would show its structure, it is Fisher and Yates's shuffle of
 * a table. docs/order.md has the test of bias behind the number of rounds. */
#ifndef FL_PERM_H
#define FL_PERM_H

#include <stdint.h>

#include "base/rng.h"

#define FL_PERM_SMALL 65536
#define FL_PERM_ROUNDS 6 // pairs of half rounds

struct fl_perm {
    uint64_t n;
    unsigned left, right; // bits of the halves; left <= right
    uint64_t keys[2 * FL_PERM_ROUNDS];
    uint32_t *table;  // n < FL_PERM_SMALL only
    uint64_t table_n; // entries allocated
};

/* Make room for permutations of up to n_max values. Returns 0 or FL_ERR(ENOMEM). */
int fl_perm_init(struct fl_perm *p, uint64_t n_max);
void fl_perm_fini(struct fl_perm *p);

/* Choose the permutation of [0, n) of this key, n <= n_max. O(1), but O(n) for a small n. */
void fl_perm_key(struct fl_perm *p, uint64_t n, uint64_t seed, uint32_t epoch, uint64_t item,
                 enum fl_rng_op op);

/* Image of i, 0 <= i < n. */
uint64_t fl_perm_at(const struct fl_perm *p, uint64_t i);

#endif
