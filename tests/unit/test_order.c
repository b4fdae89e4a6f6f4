/* SPDX-License-Identifier: Apache-2.0 */
#include "order.h"

#include <feedline/error.h>

#include "t.h"

/* Every sample that is not excluded stands at exactly one position. */
static void check_bijection(const struct fl_order_cfg *cfg)
{
    struct fl_order o;
    char *seen = calloc((size_t)cfg->n + 1, 1);

    T_EQ(fl_order_init(&o, cfg), 0);
    T_EQ(o.n, cfg->n - cfg->n_exclude);
    for (int64_t e = 0; e < 3; e++) {
        memset(seen, 0, (size_t)cfg->n);
        int64_t bad = 0;
        for (int64_t p = 0; p < o.n; p++) {
            const int64_t s = fl_order_at(&o, e, p);
            if (s < 0 || s >= cfg->n || seen[s]++)
                bad++;
        }
        for (int64_t i = 0; i < cfg->n_exclude; i++)
            bad += seen[cfg->exclude[i]];
        T_EQ(bad, 0);
    }
    fl_order_fini(&o);
    free(seen);
}

static void test_bijections(void)
{
    static const int64_t sizes[] = {
        1, 2, 3, 10, 97, 255, 1000, 65535, 65536, 65537, 100003, 262144
    };
    static const int64_t exclude[] = { 0, 1, 5, 50, 96 };
    char name[80];

    for (size_t i = 0; i < T_LEN(sizes); i++)
        for (int shuffle = FL_SHUFFLE_NONE; shuffle <= FL_SHUFFLE_BLOCK; shuffle++)
            for (int64_t block = 1; block <= (shuffle == FL_SHUFFLE_BLOCK ? 1000 : 1); block *= 10)
                for (int64_t window = 1; window <= (block > 1 ? 64 : 1); window *= 8) {
                    struct fl_order_cfg cfg = { .shuffle = (FlShuffle)shuffle,
                                                .seed = 7,
                                                .n = sizes[i],
                                                .block = block,
                                                .window = window };
                    snprintf(name, sizeof(name), "n %lld shuffle %d block %lld window %lld",
                             (long long)sizes[i], shuffle, (long long)block, (long long)window);
                    t_case(name);
                    check_bijection(&cfg);
                    if (sizes[i] >= 97) {
                        cfg.exclude = exclude;
                        cfg.n_exclude = T_LEN(exclude);
                        check_bijection(&cfg);
                    }
                }
}

static void test_keys(void)
{
    const struct fl_order_cfg cfg = { .shuffle = FL_SHUFFLE_GLOBAL, .seed = 1, .n = 100000 };
    struct fl_order_cfg other = cfg;
    struct fl_order a, b;

    t_case("seeds and epochs differ, and any epoch can be asked for again");
    other.seed = 2;
    T_EQ(fl_order_init(&a, &cfg), 0);
    T_EQ(fl_order_init(&b, &other), 0);
    int same_seed = 0, same_epoch = 0;
    for (int64_t p = 0; p < 1000; p++) {
        same_seed += fl_order_at(&a, 0, p) == fl_order_at(&b, 0, p);
        same_epoch += fl_order_at(&a, 0, p) == fl_order_at(&a, 1, p);
    }
    T_OK(same_seed < 5 && same_epoch < 5);
    const int64_t first = fl_order_at(&a, 0, 17);
    fl_order_at(&a, 4, 17);
    fl_order_at(&a, 6, 17);
    T_EQ(fl_order_at(&a, 0, 17), first);
    fl_order_fini(&a);
    fl_order_fini(&b);

    t_case("the order is part of the contract: it never changes between versions");
    static const struct {
        FlShuffle shuffle;
        int64_t n, at[4];
    } golden[] = {
        { FL_SHUFFLE_GLOBAL, 10, { 9, 4, 3, 1 } },
        { FL_SHUFFLE_GLOBAL, 1000000000, { 14170126, 803993719, 493161608, 157274363 } },
        { FL_SHUFFLE_BLOCK, 100050, { 92808, 27791, 92791, 24359 } },
    };
    for (size_t i = 0; i < T_LEN(golden); i++) {
        const struct fl_order_cfg g = {
            .shuffle = golden[i].shuffle, .seed = 1, .n = golden[i].n, .block = 50, .window = 8
        };
        T_EQ(fl_order_init(&a, &g), 0);
        for (int k = 0; k < 4; k++)
            T_EQ(fl_order_at(&a, 2, k), golden[i].at[k]);
        fl_order_fini(&a);
    }
}

/* Chi-square of where a sample lands, over many seeds: the network must not prefer places. */
static void test_bias(void)
{
    enum { N = FL_PERM_SMALL, BINS = 64, SEEDS = 4000 };
    static int64_t count[3][BINS];
    struct fl_perm p;

    t_case("bias at the smallest n of the network");
    T_EQ(fl_perm_init(&p, N), 0);
    static const uint64_t from[3] = { 0, 1, N / 2 + 1 };
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        fl_perm_key(&p, N, seed, 0, 0, FL_RNG_ORDER);
        for (int k = 0; k < 3; k++)
            count[k][fl_perm_at(&p, from[k]) * BINS / N]++;
    }
    for (int k = 0; k < 3; k++) {
        double chi = 0;
        for (int i = 0; i < BINS; i++) {
            const double d = (double)count[k][i] - (double)SEEDS / BINS;
            chi += d * d / ((double)SEEDS / BINS);
        }
        T_OK(chi < 120); // 63 degrees of freedom: mean 63, the 99.999% quantile is 118
    }
    fl_perm_fini(&p);

    t_case("all 24 permutations of 4 come up alike");
    int seen[256] = { 0 };
    T_EQ(fl_perm_init(&p, 4), 0);
    for (uint64_t seed = 0; seed < 24000; seed++) {
        int key = 0;
        fl_perm_key(&p, 4, seed, 3, 0, FL_RNG_ORDER);
        for (uint64_t i = 0; i < 4; i++)
            key = key * 4 + (int)fl_perm_at(&p, i);
        seen[key]++;
    }
    int kinds = 0;
    for (int i = 0; i < 256; i++)
        if (seen[i]) {
            kinds++;
            T_OK(seen[i] > 850 && seen[i] < 1150); // 5 sigma is 155
        }
    T_EQ(kinds, 24);
    fl_perm_fini(&p);
}

static void test_block_locality(void)
{
    const struct fl_order_cfg cfg = {
        .shuffle = FL_SHUFFLE_BLOCK, .seed = 3, .n = 100050, .block = 50, .window = 8
    };
    struct fl_order o;

    t_case("a window touches no more blocks than it is made of, and the tail");
    T_EQ(fl_order_init(&o, &cfg), 0);
    int worst = 0;
    for (int64_t w = 0; w + 400 <= 100000; w += 400) {
        static char block[2002];
        memset(block, 0, sizeof(block));
        int n = 0;
        for (int64_t i = 0; i < 400; i++) {
            const int64_t b = fl_order_at(&o, 0, w + i) / 50;
            n += !block[b]++;
        }
        worst = n > worst ? n : worst;
    }
    T_OK(worst <=
         17); // two neighbouring windows where the tail has shifted the border, and the tail
    fl_order_fini(&o);
}

static void test_errors(void)
{
    static const struct {
        const char *name;
        int64_t list[2];
    } cases[] = { { "descending", { 5, 4 } },
                  { "twice", { 5, 5 } },
                  { "outside", { 1, 10 } },
                  { "negative", { -1, 2 } } };
    struct fl_order o;

    for (size_t i = 0; i < T_LEN(cases); i++) {
        const struct fl_order_cfg cfg = { .n = 10, .exclude = cases[i].list, .n_exclude = 2 };
        t_case(cases[i].name);
        T_EQ(fl_order_init(&o, &cfg), -EINVAL);
        T_HAS(fl_last_error()->message, "exclude[");
    }
}

static void test_subset(void)
{
    static const int64_t subset[] = { 9, 3, 3, 7, 1 }, exclude[] = { 7 };
    struct fl_order_cfg cfg = { .n = 10, .subset = subset, .n_subset = T_LEN(subset) };
    struct fl_order o;

    t_case("a subset in its own order, repeats and all");
    T_EQ(fl_order_init(&o, &cfg), 0);
    T_EQ(o.n, 5);
    for (int i = 0; i < 5; i++)
        T_EQ(fl_order_at(&o, 0, i), subset[i]);
    const uint64_t first = fl_order_fingerprint(&o);
    fl_order_fini(&o);

    t_case("shuffled, without what is excluded");
    cfg.shuffle = FL_SHUFFLE_GLOBAL;
    cfg.exclude = exclude;
    cfg.n_exclude = 1;
    T_EQ(fl_order_init(&o, &cfg), 0);
    T_EQ(o.n, 4);
    T_OK(fl_order_fingerprint(&o) != first);
    int count[10] = { 0 };
    for (int i = 0; i < 4; i++)
        count[fl_order_at(&o, 3, i)]++;
    T_OK(count[9] == 1 && count[3] == 2 && count[1] == 1 && count[7] == 0);
    fl_order_fini(&o);

    t_case("a subset outside the dataset, and an empty one");
    cfg.n = 9;
    T_EQ(fl_order_init(&o, &cfg), -EINVAL);
    T_HAS(fl_last_error()->message, "subset[0] is 9");
    cfg.n = 10;
    cfg.n_subset = 0;
    T_EQ(fl_order_init(&o, &cfg), -EINVAL);
}

static void test_weights(void)
{
    static const double weights[] = { 1, 0, 3, 0.5, 5.5 };
    struct fl_order_cfg cfg = {
        .shuffle = FL_SHUFFLE_GLOBAL, .seed = 4, .n = 5, .weights = weights, .length = 100000
    };
    struct fl_order o;
    int count[5] = { 0 };

    t_case("draws follow the weights and depend on their key alone");
    T_EQ(fl_order_init(&o, &cfg), 0);
    T_EQ(o.n, 100000);
    for (int64_t p = 0; p < o.n; p++)
        count[fl_order_at(&o, 1, p)]++;
    for (int i = 0; i < 5; i++)
        T_OK(count[i] >= weights[i] * 10000 - 600 && count[i] <= weights[i] * 10000 + 600);
    T_EQ(count[1], 0);
    const int64_t at = fl_order_at(&o, 1, 500);
    fl_order_at(&o, 2, 3);
    T_EQ(fl_order_at(&o, 1, 500), at);
    fl_order_fini(&o);

    t_case("refused");
    cfg.shuffle = FL_SHUFFLE_NONE;
    T_EQ(fl_order_init(&o, &cfg), -EINVAL);
    T_HAS(fl_last_error()->message, "shuffle");
    static const double wrong[] = { 1, 2, -1, 0, 0 }, zeros[] = { 0, 0, 0, 0, 0 };
    cfg.shuffle = FL_SHUFFLE_GLOBAL;
    cfg.weights = wrong;
    T_EQ(fl_order_init(&o, &cfg), -EINVAL);
    T_HAS(fl_last_error()->message, "weights[2]");
    cfg.weights = zeros;
    T_EQ(fl_order_init(&o, &cfg), -EINVAL);
}

int main(void)
{
    test_subset();
    test_weights();
    test_bijections();
    test_keys();
    test_bias();
    test_block_locality();
    test_errors();
    return t_done();
}
