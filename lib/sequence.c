/* SPDX-License-Identifier: Apache-2.0 */
#include "sequence.h"

#include <string.h>

#include "base/err.h"
#include "base/hash.h"

int fl_sequence_init(struct fl_sequence *s, unsigned n_parts, const struct fl_order_cfg *orders,
                     const double *weights, int64_t length, uint64_t seed)
{
    int64_t n[FL_MIXTURE_PARTS];
    int err = 0;

    memset(s, 0, sizeof(*s));
    if (n_parts < 1 || n_parts > FL_MIXTURE_PARTS)
        return fl_err(FL_ERR(EINVAL), FL_STAGE_PLAN, "a mixture has 1 to %d parts, not %u",
                      FL_MIXTURE_PARTS, n_parts);
    for (; s->n_parts < n_parts && !err; s->n_parts += !err) {
        struct fl_order_cfg cfg = orders[s->n_parts];
        cfg.seed = seed + s->n_parts * 0x9E3779B97F4A7C15u; // parts of one size must not go in step
        err = fl_order_init(&s->orders[s->n_parts], &cfg);
        n[s->n_parts] = s->orders[s->n_parts].n;
        s->n += n[s->n_parts];
    }
    if (!err && n_parts > 1) {
        s->n = length ? length : s->n;
        err = fl_mixture_init(&s->mixture, n_parts, weights, n, s->n, seed);
    }
    if (err)
        fl_sequence_fini(s);
    return err;
}

void fl_sequence_fini(struct fl_sequence *s)
{
    for (unsigned i = 0; i < s->n_parts; i++)
        fl_order_fini(&s->orders[i]);
    fl_mixture_fini(&s->mixture);
    s->n_parts = 0;
}

struct fl_sequence_place fl_sequence_at(struct fl_sequence *s, int64_t epoch, int64_t position)
{
    if (s->n_parts == 1)
        return (struct fl_sequence_place){ 0, fl_order_at(&s->orders[0], epoch, position) };
    const struct fl_mixture_place at = fl_mixture_at(&s->mixture, epoch, position);
    return (struct fl_sequence_place){ at.part,
                                       fl_order_at(&s->orders[at.part], at.epoch, at.position) };
}

uint64_t fl_sequence_fingerprint(const struct fl_sequence *s)
{
    uint64_t h = fl_order_fingerprint(&s->orders[0]);

    if (s->n_parts == 1)
        return h;
    h = fl_hash64(&h, sizeof(h), fl_mixture_fingerprint(&s->mixture));
    for (unsigned i = 1; i < s->n_parts; i++) {
        const uint64_t part = fl_order_fingerprint(&s->orders[i]);
        h = fl_hash64(&part, sizeof(part), h);
    }
    return h;
}

uint64_t fl_sequence_exclusions(const struct fl_sequence *s, int64_t *n)
{
    uint64_t h = 0;

    *n = 0;
    for (unsigned i = 0; i < s->n_parts; i++) {
        const uint64_t part[] = { i, fl_order_exclusions(&s->orders[i]) };
        if (part[1])
            h = fl_hash64(part, sizeof(part), h);
        *n += s->orders[i].cfg.n_exclude;
    }
    return h;
}
