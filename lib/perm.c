/* SPDX-License-Identifier: Apache-2.0 */
#include "perm.h"

#include <stdlib.h>

#include "base/err.h"

int fl_perm_init(struct fl_perm *p, uint64_t n_max)
{
    *p = (struct fl_perm){ 0 };
    p->table_n = n_max < FL_PERM_SMALL ? n_max : FL_PERM_SMALL;
    if (!p->table_n)
        return 0;
    p->table = malloc(p->table_n * sizeof(*p->table));
    return p->table ? 0 : fl_err(FL_ERR(ENOMEM), FL_STAGE_PLAN, "no memory for the order's table");
}

void fl_perm_fini(struct fl_perm *p)
{
    free(p->table);
    *p = (struct fl_perm){ 0 };
}

static void shuffle_table(struct fl_perm *p, struct fl_rng *r)
{
    for (uint32_t i = 0; i < p->n; i++) {
        const uint32_t k = (uint32_t)fl_rng_below(r, (uint64_t)i + 1);
        p->table[i] = p->table[k]; // k == i reads a stale value, written over at once
        p->table[k] = i;
    }
}

void fl_perm_key(struct fl_perm *p, uint64_t n, uint64_t seed, uint32_t epoch, uint64_t item,
                 enum fl_rng_op op)
{
    struct fl_rng r;

    fl_rng_init(&r, seed, epoch, item, op, 0);
    p->n = n;
    if (n < FL_PERM_SMALL) {
        if (n) {
            p->table[0] = 0;
            shuffle_table(p, &r);
        }
        return;
    }
    unsigned bits = 64;
    while (bits > 1 && (n - 1) >> (bits - 1) == 0)
        bits--;
    p->left = bits / 2;
    p->right = bits - p->left;
    for (int i = 0; i < 2 * FL_PERM_ROUNDS; i++)
        p->keys[i] = fl_rng_u64(&r);
}

/* Finaliser of MurmurHash3 (Appleby), public domain: every input bit reaches every output bit. */
static inline uint64_t mix(uint64_t x)
{
    x ^= x >> 33;
    x *= 0xff51afd7ed558ccdu;
    x ^= x >> 33;
    x *= 0xc4ceb9fe1a85ec53u;
    return x ^ x >> 33;
}

uint64_t fl_perm_at(const struct fl_perm *p, uint64_t i)
{
    if (p->n < FL_PERM_SMALL)
        return p->table[i];
    const uint64_t left_mask = (1ull << p->left) - 1, right_mask = (1ull << p->right) - 1;
    do {
        uint64_t l = i & left_mask, r = i >> p->left;
        for (int k = 0; k < 2 * FL_PERM_ROUNDS; k += 2) {
            l ^= mix(r ^ p->keys[k]) & left_mask;
            r ^= mix(l ^ p->keys[k + 1]) & right_mask;
        }
        i = l | r << p->left;
    } while (i >= p->n);
    return i;
}
