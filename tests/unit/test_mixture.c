/* SPDX-License-Identifier: Apache-2.0 */
#include "mixture.h"

#include <feedline/error.h>

#include "t.h"

static const struct {
    const char *name;
    unsigned parts;
    double weights[3];
    int64_t n[3], length;
} cases[] = {
    { "one part", 1, { 1 }, { 10 }, 10 },
    { "equal", 2, { 1, 1 }, { 1000, 1000 }, 2000 },
    { "small part comes round", 2, { 1, 1 }, { 7, 5000 }, 5000 },
    { "uneven", 3, { 0.7, 0.2, 0.1 }, { 5000, 300, 40 }, 5340 },
    { "shorter than a block", 3, { 3, 2, 1 }, { 50, 60, 70 }, 100 },
};

/* Over several epochs each part is walked through in its own order: epoch after epoch, position after
 * position, nothing left out or repeated. */
static void check(size_t c)
{
    int64_t next[3] = { 0 }, wrong = 0, epochs = 5;
    struct fl_mixture m;

    T_EQ(fl_mixture_init(&m, cases[c].parts, cases[c].weights, cases[c].n, cases[c].length, 3), 0);
    for (int64_t e = 0; e < epochs; e++)
        for (int64_t p = 0; p < cases[c].length; p++) {
            const struct fl_mixture_place at = fl_mixture_at(&m, e, p);
            wrong += at.epoch * cases[c].n[at.part] + at.position != next[at.part]++;
        }
    T_EQ(wrong, 0);
    double sum = 0;
    for (unsigned d = 0; d < cases[c].parts; d++)
        sum += cases[c].weights[d];
    for (unsigned d = 0; d < cases[c].parts; d++) {
        const double want = cases[c].weights[d] / sum,
                     got = (double)next[d] / (double)(epochs * cases[c].length);
        T_OK(got > want - 0.006 && got < want + 0.006);
    }
    const struct fl_mixture_place before = fl_mixture_at(&m, 1, 17);
    fl_mixture_at(&m, 4, 90);
    const struct fl_mixture_place after = fl_mixture_at(&m, 1, 17); // any place at any time
    T_EQ(before.part, after.part);
    T_EQ(before.position, after.position);
    fl_mixture_fini(&m);
}

int main(void)
{
    struct fl_mixture m;
    static const double tiny[2] = { 1, 1e-6 }, zero[2] = { 1, 0 };
    static const int64_t n[2] = { 10, 10 };

    for (size_t c = 0; c < T_LEN(cases); c++) {
        t_case(cases[c].name);
        check(c);
    }
    t_case("refused");
    T_EQ(fl_mixture_init(&m, 2, tiny, n, 10, 0), -EINVAL);
    T_HAS(fl_last_error()->message, "weight 1");
    T_EQ(fl_mixture_init(&m, 2, zero, n, 10, 0), -EINVAL);
    T_EQ(fl_mixture_init(&m, 0, zero, n, 10, 0), -EINVAL);
    return t_done();
}
