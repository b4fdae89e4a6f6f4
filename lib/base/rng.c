/* SPDX-License-Identifier: Apache-2.0 */
#include "base/rng.h"

void fl_philox(const uint32_t key[2], const uint32_t counter[4], uint32_t out[4])
{
    uint32_t k0 = key[0], k1 = key[1];
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];

    for (int round = 0; round < 10; round++) {
        const uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

void fl_rng_init(struct fl_rng *r, uint64_t seed, uint32_t epoch, uint64_t position,
                 enum fl_rng_op op, uint32_t stream)
{
    *r = (struct fl_rng){
        .key = { (uint32_t)seed, (uint32_t)(seed >> 32) },
        .counter = { (uint32_t)position, (uint32_t)(position >> 32), epoch,
                     (uint32_t)op | (stream & 0xFF) << 8 },
        .used = 4,
    };
}

uint32_t fl_rng_u32(struct fl_rng *r)
{
    if (r->used == 4) {
        fl_philox(r->key, r->counter, r->out);
        r->counter[3] += 1u << 16;
        r->used = 0;
    }
    return r->out[r->used++];
}

uint64_t fl_rng_u64(struct fl_rng *r)
{
    const uint64_t low = fl_rng_u32(r);
    return (uint64_t)fl_rng_u32(r) << 32 | low;
}

double fl_rng_double(struct fl_rng *r)
{
    return (double)(fl_rng_u64(r) >> 11) * 0x1p-53;
}

uint64_t fl_rng_below(struct fl_rng *r, uint64_t n)
{
    // Reject the values below 2^64 mod n: the rest is a whole number of intervals of n.
    const uint64_t reject = -n % n;
    uint64_t x;

    do {
        x = fl_rng_u64(r);
    } while (x < reject);
    return x % n;
}
