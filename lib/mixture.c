/* SPDX-License-Identifier: Apache-2.0 */
#include "mixture.h"

#include <math.h>
#include <string.h>

#include "base/err.h"
#include "base/hash.h"

/* Shares of `places` by largest remainder; ties go to the lower part. */
static void deal(const double *weights, unsigned n, int32_t places, int32_t *share)
{
    double sum = 0, rest[FL_MIXTURE_PARTS];
    int32_t given = 0;

    for (unsigned d = 0; d < n; d++)
        sum += weights[d];
    for (unsigned d = 0; d < n; d++) {
        const double exact = weights[d] / sum * places;
        share[d] = (int32_t)floor(exact);
        rest[d] = exact - share[d];
        given += share[d];
    }
    for (; given < places; given++) {
        unsigned most = 0;
        for (unsigned d = 1; d < n; d++)
            most = rest[d] > rest[most] ? d : most;
        share[most]++;
        rest[most] = -1;
    }
}

int fl_mixture_init(struct fl_mixture *m, unsigned n_parts, const double *weights, const int64_t *n,
                    int64_t length, uint64_t seed)
{
    memset(m, 0, sizeof(*m));
    if (n_parts < 1 || n_parts > FL_MIXTURE_PARTS || length < 1)
        return fl_err(FL_ERR(EINVAL), FL_STAGE_PLAN, "a mixture has 1 to %d parts, not %u",
                      FL_MIXTURE_PARTS, n_parts);
    for (unsigned d = 0; d < n_parts; d++)
        if (!(weights[d] > 0) || !isfinite(weights[d]) || n[d] < 1)
            return fl_err(FL_ERR(EINVAL), FL_STAGE_PLAN,
                          "weight %u of the mixture is %g; weights are positive", d, weights[d]);
    *m = (struct fl_mixture){ .n_parts = n_parts, .length = length, .seed = seed, .epoch = -1 };
    memcpy(m->n, n, n_parts * sizeof(*n));
    deal(weights, n_parts, FL_MIXTURE_BLOCK, m->share);
    deal(weights, n_parts, (int32_t)(length % FL_MIXTURE_BLOCK), m->tail);
    for (unsigned d = 0; d < n_parts; d++)
        if (!m->share[d])
            return fl_err(FL_ERR(EINVAL), FL_STAGE_PLAN,
                          "weight %u of the mixture, %g, is less than half of 1/%d of the sum", d,
                          weights[d], FL_MIXTURE_BLOCK);
    return fl_perm_init(&m->perm, FL_MIXTURE_BLOCK);
}

void fl_mixture_fini(struct fl_mixture *m)
{
    fl_perm_fini(&m->perm);
}

/* Who has which place of a block. */
static void key_block(struct fl_mixture *m, int64_t epoch, int64_t block)
{
    const int64_t blocks = m->length / FL_MIXTURE_BLOCK;
    const int32_t *share = block < blocks ? m->share : m->tail;
    const int64_t places = block < blocks ? FL_MIXTURE_BLOCK : m->length % FL_MIXTURE_BLOCK;
    uint8_t dealt[FL_MIXTURE_BLOCK];
    uint16_t had[FL_MIXTURE_PARTS] = { 0 };
    int64_t at = 0;

    for (unsigned d = 0; d < m->n_parts; d++)
        for (int32_t i = 0; i < share[d]; i++)
            dealt[at++] = (uint8_t)d;
    fl_perm_key(&m->perm, (uint64_t)places, m->seed, (uint32_t)epoch, (uint64_t)block,
                FL_RNG_MIXTURE);
    for (int64_t i = 0; i < places; i++) {
        m->part[i] = dealt[fl_perm_at(&m->perm, (uint64_t)i)];
        m->rank[i] = had[m->part[i]]++;
    }
    m->epoch = epoch;
    m->block = block;
}

struct fl_mixture_place fl_mixture_at(struct fl_mixture *m, int64_t epoch, int64_t position)
{
    const int64_t blocks = m->length / FL_MIXTURE_BLOCK;
    const int64_t block = position / FL_MIXTURE_BLOCK, i = position % FL_MIXTURE_BLOCK;

    if (m->epoch != epoch || m->block != block)
        key_block(m, epoch, block);
    const unsigned d = m->part[i];
    const int64_t each = blocks * m->share[d] + m->tail[d]; // places in an epoch
    const int64_t k = epoch * each + block * m->share[d] + m->rank[i];
    return (struct fl_mixture_place){ .part = d, .epoch = k / m->n[d], .position = k % m->n[d] };
}

uint64_t fl_mixture_fingerprint(const struct fl_mixture *m)
{
    uint64_t h = fl_hash64(&m->length, sizeof(m->length), m->n_parts);

    h = fl_hash64(m->n, m->n_parts * sizeof(*m->n), h);
    h = fl_hash64(m->share, m->n_parts * sizeof(*m->share), h);
    return fl_hash64(m->tail, m->n_parts * sizeof(*m->tail), h);
}
