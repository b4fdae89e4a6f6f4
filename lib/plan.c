/* SPDX-License-Identifier: Apache-2.0 */
#include "plan.h"

/* The rank's share of the m positions behind the last full global batch. */
static int64_t tail_share(const struct fl_plan *p, int64_t m)
{
    return m / p->world + (p->rank < m % p->world);
}

static int64_t left_over(const struct fl_plan *p, int64_t base)
{
    return p->tail == FL_TAIL_DROP ? 0 : (p->n - base) % (p->batch * p->world);
}

int64_t fl_plan_batches(const struct fl_plan *p, int64_t base)
{
    const int64_t m = left_over(p, base), full = (p->n - base) / (p->batch * p->world);

    return full + (p->tail == FL_TAIL_PAD ? m > 0 : tail_share(p, m) > 0);
}

int64_t fl_plan_samples(const struct fl_plan *p, int64_t base)
{
    return (p->n - base) / (p->batch * p->world) * p->batch + tail_share(p, left_over(p, base));
}

bool fl_plan_next(const struct fl_plan *p, struct fl_cursor *c, struct fl_plan_batch *out)
{
    const int64_t global = p->batch * p->world, full = (p->n - c->base) / global;

    if (c->index >= fl_plan_batches(p, c->base)) {
        *c = (struct fl_cursor){ .epoch = c->epoch + 1 };
        return false;
    }
    const int64_t first = c->base + c->index * global;
    *out = (struct fl_plan_batch){ .epoch = c->epoch,
                                   .position = first + p->rank * p->batch,
                                   .rows = p->batch,
                                   .samples = p->batch,
                                   .end = first + global };
    if (c->index >= full) {
        const int64_t m = p->n - first;
        out->position =
            first + p->rank * (m / p->world) + (p->rank < m % p->world ? p->rank : m % p->world);
        out->samples = tail_share(p, m);
        out->rows = p->tail == FL_TAIL_PAD ? p->batch : out->samples;
        out->end = p->n;
    }
    c->index++;
    return true;
}

int64_t fl_plan_position(const struct fl_plan *p, const struct fl_cursor *c, int64_t *epoch)
{
    const int64_t position = c->base + c->index * p->batch * p->world;

    *epoch = c->epoch;
    if (c->index < fl_plan_batches(p, c->base))
        return position;
    // This rank is done with the epoch; so is every other once it has had its batch of the tail.
    *epoch = c->epoch + 1;
    return 0;
}
