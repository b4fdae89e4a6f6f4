/* SPDX-License-Identifier: Apache-2.0 */
/* The order alone: how fast positions are computed, and how random the orders are.
 *
 * Quality is measured on a dataset that is sorted by class (1,000 classes in a row, the worst case for a
 * window): the entropy of the classes in a batch, and the serial correlation of sample numbers at
 * neighbouring positions, beside an ideal shuffle (every sample drawn independently of its place).
 *
 * usage: stage_order [--csv]   the table, or name,classes,entropy,correlation lines for a plot */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/rng.h"
#include "order.h"

enum { CLASSES = 1000, BATCH = 256 };

/* Seconds of the processor: what other programs take does not count. */
static double cpu_seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void speed(void)
{
    static const int64_t sizes[] = { 50000, 1281167, 100000000, 1000000000, 100000000000 };

    printf("positions per second of one core's time\n");
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        for (int kind = FL_SHUFFLE_GLOBAL; kind <= FL_SHUFFLE_BLOCK; kind++) {
            const struct fl_order_cfg cfg = {
                .shuffle = (FlShuffle)kind, .seed = 1, .n = sizes[i], .block = 64, .window = 64
            };
            struct fl_order o;
            const int64_t t0 = fl_now_ns();
            int64_t sum = 0;
            if (fl_order_init(&o, &cfg))
                exit(1);
            const int64_t count = sizes[i] < 5000000 ? sizes[i] : 5000000;
            fl_order_at(&o, 0, 0);
            const int64_t t1 = fl_now_ns();
            const double c0 = cpu_seconds();
            for (int64_t p = 0; p < count; p++)
                sum += fl_order_at(&o, 0, p);
            const double s = cpu_seconds() - c0;
            printf("  n %-13lld %-7s %7.1f M/s   first position after %.3f ms   (sum %lld)\n",
                   (long long)sizes[i], kind == FL_SHUFFLE_GLOBAL ? "global" : "block",
                   (double)count / s * 1e-6, (double)(t1 - t0) * 1e-6, (long long)(sum & 0xFF));
            fl_order_fini(&o);
        }
}

/* Mean entropy, in bits, of the classes in a batch of 256. */
static double entropy(const int64_t *order, int64_t n)
{
    double sum = 0;
    int64_t batches = 0;

    for (int64_t at = 0; at + BATCH <= n; at += BATCH, batches++) {
        int count[CLASSES] = { 0 };
        for (int i = 0; i < BATCH; i++)
            count[order[at + i] * CLASSES / n]++;
        for (int c = 0; c < CLASSES; c++)
            if (count[c]) {
                const double p = (double)count[c] / BATCH;
                sum -= p * log2(p);
            }
    }
    return sum / (double)batches;
}

/* Correlation of the sample numbers at neighbouring positions. */
static double correlation(const int64_t *order, int64_t n)
{
    const double mean = ((double)n - 1) / 2;
    double num = 0, den = 0;

    for (int64_t i = 0; i < n; i++) {
        const double a = (double)order[i] - mean;
        den += a * a;
        if (i + 1 < n)
            num += a * ((double)order[i + 1] - mean);
    }
    return num / den;
}

static void quality(bool csv)
{
    enum { N = 256 * 4000 };
    static const struct {
        const char *name;
        FlShuffle shuffle;
        int64_t block, window;
    } orders[] = {
        { "ideal", FL_SHUFFLE_NONE, -1, 0 },
        { "global", FL_SHUFFLE_GLOBAL, 0, 0 },
        { "block 64 x window 16", FL_SHUFFLE_BLOCK, 64, 16 },
        { "block 64 x window 64", FL_SHUFFLE_BLOCK, 64, 64 },
        { "block 64 x window 256", FL_SHUFFLE_BLOCK, 64, 256 },
        { "block 64 x window 1024", FL_SHUFFLE_BLOCK, 64, 1024 },
        { "none", FL_SHUFFLE_NONE, 0, 0 },
    };
    int64_t *order = malloc(N * sizeof(*order));
    struct fl_rng r;

    if (!order)
        exit(1);
    fl_rng_init(&r, 99, 0, 0, FL_RNG_USER, 0);
    if (!csv)
        printf("\nbatches of %d of %d samples sorted by %d classes\n%-26s %14s %14s\n", BATCH, N,
               CLASSES, "order", "entropy, bits", "correlation");
    for (size_t i = 0; i < sizeof(orders) / sizeof(orders[0]); i++) {
        const struct fl_order_cfg cfg = { .shuffle = orders[i].shuffle,
                                          .seed = 1,
                                          .n = N,
                                          .block = orders[i].block,
                                          .window = orders[i].window };
        struct fl_order o;
        if (fl_order_init(&o, &cfg))
            exit(1);
        for (int64_t p = 0; p < N; p++)
            order[p] = orders[i].block < 0 ? (int64_t)fl_rng_below(&r, N) : fl_order_at(&o, 0, p);
        printf(csv ? "%s,%f,%f\n" : "%-26s %14.3f %14.4f\n", orders[i].name, entropy(order, N),
               correlation(order, N));
        fl_order_fini(&o);
    }
    free(order);
}

/* Where a sample lands, over many seeds: chi-square by degree of freedom, 1 for an ideal shuffle. */
static void bias(void)
{
    static const uint64_t sizes[] = { 2, 3, 5, 10, 100, 1000, 65535, 65536, 100000, 1281167 };
    enum { BINS = 64, SEEDS = 20000 };

    printf("\n%-12s %8s %22s %14s\n", "samples", "places", "chi-square by freedom", "sigma of it");
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        const uint64_t n = sizes[i], bins = n < BINS ? n : BINS;
        int count[BINS] = { 0 };
        double chi = 0;
        struct fl_perm p;
        if (fl_perm_init(&p, n))
            exit(1);
        for (uint64_t seed = 0; seed < SEEDS; seed++) {
            fl_perm_key(&p, n, seed, 1, 0, FL_RNG_ORDER);
            count[fl_perm_at(&p, n / 3) * bins / n]++;
        }
        for (uint64_t k = 0; k < bins; k++) {
            // Places of a bin: those whose number times bins / n is k.
            const uint64_t from = (k * n + bins - 1) / bins, end = ((k + 1) * n + bins - 1) / bins;
            const double want = (double)SEEDS * (double)(end - from) / (double)n;
            chi += (count[k] - want) * (count[k] - want) / want;
        }
        const double freedom = (double)bins - 1;
        printf("%-12llu %8llu %22.3f %14.3f\n", (unsigned long long)n, (unsigned long long)bins,
               chi / freedom, sqrt(2 / freedom));
        fl_perm_fini(&p);
    }
}

int main(int argc, char **argv)
{
    const bool csv = argc > 1 && !strcmp(argv[1], "--csv");

    if (!csv)
        speed();
    quality(csv);
    if (!csv)
        bias();
    return 0;
}
