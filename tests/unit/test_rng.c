/* SPDX-License-Identifier: Apache-2.0 */
#include "base/rng.h"
#include "t.h"

/* Known answers of the Random123 distribution (kat_vectors, philox4x32 10). */
static const struct {
    uint32_t counter[4], key[2], out[4];
} known[] = {
    { { 0, 0, 0, 0 }, { 0, 0 }, { 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8 } },
    { { 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff },
      { 0xffffffff, 0xffffffff },
      { 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd } },
    { { 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344 },
      { 0xa4093822, 0x299f31d0 },
      { 0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1 } },
};

int main(void)
{
    t_case("known answers");
    for (size_t i = 0; i < T_LEN(known); i++) {
        uint32_t out[4];
        fl_philox(known[i].key, known[i].counter, out);
        for (int k = 0; k < 4; k++)
            T_EQ(out[k], known[i].out[k]);
    }

    t_case("streams differ in every part of the key");
    struct fl_rng r[6];
    fl_rng_init(&r[0], 1, 0, 0, FL_RNG_CROP, 0);
    fl_rng_init(&r[1], 2, 0, 0, FL_RNG_CROP, 0);
    fl_rng_init(&r[2], 1, 1, 0, FL_RNG_CROP, 0);
    fl_rng_init(&r[3], 1, 0, 1, FL_RNG_CROP, 0);
    fl_rng_init(&r[4], 1, 0, 0, FL_RNG_FLIP, 0);
    fl_rng_init(&r[5], 1, 0, 0, FL_RNG_CROP, 1);
    uint64_t first[6];
    for (int i = 0; i < 6; i++) {
        first[i] = fl_rng_u64(&r[i]);
        for (int k = 0; k < i; k++)
            T_OK(first[i] != first[k]);
    }

    t_case("a stream repeats itself");
    struct fl_rng again;
    fl_rng_init(&again, 1, 0, 0, FL_RNG_CROP, 0);
    T_OK(fl_rng_u64(&again) == first[0]);

    t_case("below is uniform");
    int seen[7] = { 0 };
    for (int i = 0; i < 70000; i++)
        seen[fl_rng_below(&again, 7)]++;
    for (int i = 0; i < 7; i++)
        T_OK(seen[i] > 9600 && seen[i] < 10400); // 4 sigma is 370
    T_EQ(fl_rng_below(&again, 1), 0);

    t_case("doubles fill [0, 1)");
    double lo = 1, hi = 0, sum = 0;
    for (int i = 0; i < 100000; i++) {
        const double d = fl_rng_double(&again);
        lo = d < lo ? d : lo;
        hi = d > hi ? d : hi;
        sum += d;
    }
    T_OK(lo >= 0 && lo < 0.001 && hi < 1 && hi > 0.999);
    T_OK(sum > 49500 && sum < 50500);
    return t_done();
}
