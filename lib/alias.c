/* SPDX-License-Identifier: Apache-2.0 */
#include "alias.h"

#include <math.h>
#include <stdlib.h>

#include "base/err.h"

/* Entries below and above the mean are paired until none is left; plain IEEE arithmetic in a fixed
 * order, so that every host builds the same table. */
static void pair_up(struct fl_alias *a, double *p, uint32_t *stack)
{
    const uint32_t n = a->n;
    uint32_t small = 0, large = n; // two stacks in one array: [0, small) and [large, n)

    for (uint32_t i = n; i-- > 0;) {
        if (p[i] < 1)
            stack[small++] = i;
        else
            stack[--large] = i;
    }
    while (small && large < n) {
        const uint32_t s = stack[--small], l = stack[large];
        a->entries[s].keep = (uint32_t)(p[s] * 0x1p32);
        a->entries[s].alias = l;
        p[l] = (p[l] + p[s]) - 1;
        if (p[l] < 1) {
            large++;
            stack[small++] = l;
        }
    }
    // What is left is 1 but for rounding: an entry that keeps itself.
    for (; small; small--)
        a->entries[stack[small - 1]].alias = stack[small - 1];
    for (; large < n; large++)
        a->entries[stack[large]].alias = stack[large];
}

int fl_alias_init(struct fl_alias *a, const double *weights, int64_t n)
{
    double sum = 0;

    *a = (struct fl_alias){ 0 };
    if (n < 1 || n > UINT32_MAX)
        return fl_err(FL_ERR(EINVAL), FL_STAGE_PLAN, "%lld weights; 1 to %u are possible",
                      (long long)n, UINT32_MAX);
    for (int64_t i = 0; i < n; i++) {
        if (!(weights[i] >= 0) || !isfinite(weights[i]))
            return fl_err(FL_ERR(EINVAL), FL_STAGE_PLAN,
                          "weights[%lld] is %g; a weight is finite and not negative", (long long)i,
                          weights[i]);
        sum += weights[i];
    }
    if (!(sum > 0) || !isfinite(sum))
        return fl_err(FL_ERR(EINVAL), FL_STAGE_PLAN, "the weights add up to %g", sum);
    double *p = malloc((size_t)n * sizeof(*p));
    uint32_t *stack = malloc((size_t)n * sizeof(*stack));
    a->entries = calloc((size_t)n, sizeof(*a->entries));
    a->n = (uint32_t)n;
    if (p && stack && a->entries) {
        for (int64_t i = 0; i < n; i++)
            p[i] = weights[i] * (double)n / sum;
        pair_up(a, p, stack);
    }
    const int err = p && stack && a->entries ? 0
                                             : fl_err(FL_ERR(ENOMEM), FL_STAGE_PLAN,
                                                      "no memory for %lld weights", (long long)n);
    free(p);
    free(stack);
    if (err)
        fl_alias_fini(a);
    return err;
}

void fl_alias_fini(struct fl_alias *a)
{
    free(a->entries);
    *a = (struct fl_alias){ 0 };
}
