/* SPDX-License-Identifier: Apache-2.0 */
#include "order.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/hash.h"

static int copy_exclude(struct fl_order *o, const struct fl_order_cfg *cfg)
{
    for (int64_t i = 0; i < cfg->n_exclude; i++)
        if (cfg->exclude[i] < 0 || cfg->exclude[i] >= cfg->n ||
            (i && cfg->exclude[i] <= cfg->exclude[i - 1]))
            return fl_err(
                FL_ERR(EINVAL), FL_STAGE_PLAN,
                "exclude[%lld] is %lld: the list must ascend and lie within the dataset's "
                "%lld samples",
                (long long)i, (long long)cfg->exclude[i], (long long)cfg->n);
    if (cfg->n_exclude <= 0)
        return 0;
    o->exclude = malloc((size_t)cfg->n_exclude * sizeof(*o->exclude));
    if (!o->exclude)
        return fl_err(FL_ERR(ENOMEM), FL_STAGE_PLAN, "no memory for the exclusion list");
    memcpy(o->exclude, cfg->exclude, (size_t)cfg->n_exclude * sizeof(*o->exclude));
    return 0;
}

bool fl_order_excludes(const int64_t *exclude, int64_t n, int64_t sample)
{
    int64_t low = 0, high = n;

    while (low < high) {
        const int64_t mid = low + (high - low) / 2;
        if (exclude[mid] == sample)
            return true;
        if (exclude[mid] < sample)
            low = mid + 1;
        else
            high = mid;
    }
    return false;
}

static bool excluded(const struct fl_order *o, int64_t sample)
{
    return fl_order_excludes(o->exclude, o->cfg.n_exclude, sample);
}

/* The subset without what is excluded. */
static int copy_subset(struct fl_order *o, const struct fl_order_cfg *cfg)
{
    o->members = cfg->n - cfg->n_exclude;
    if (!cfg->subset)
        return 0;
    o->subset = malloc((size_t)(cfg->n_subset > 0 ? cfg->n_subset : 1) * sizeof(*o->subset));
    if (!o->subset)
        return fl_err(FL_ERR(ENOMEM), FL_STAGE_PLAN, "no memory for the subset");
    o->members = 0;
    for (int64_t i = 0; i < cfg->n_subset; i++) {
        if (cfg->subset[i] < 0 || cfg->subset[i] >= cfg->n)
            return fl_err(FL_ERR(EINVAL), FL_STAGE_PLAN,
                          "subset[%lld] is %lld, outside the dataset's %lld samples", (long long)i,
                          (long long)cfg->subset[i], (long long)cfg->n);
        if (!excluded(o, cfg->subset[i]))
            o->subset[o->members++] = cfg->subset[i];
    }
    return 0;
}

/* Weights of those that take part, in new memory; NULL without memory. */
static double *own_weights(const struct fl_order *o, const struct fl_order_cfg *cfg)
{
    const int64_t n = cfg->subset ? cfg->n_subset : cfg->n;
    double *own = malloc((size_t)o->members * sizeof(*own));
    int64_t k = 0;

    for (int64_t i = 0; own && i < n; i++)
        if (!excluded(o, cfg->subset ? cfg->subset[i] : i))
            own[k++] = cfg->weights[i];
    return own;
}

static int init_weights(struct fl_order *o, const struct fl_order_cfg *cfg)
{
    if (cfg->shuffle != FL_SHUFFLE_GLOBAL)
        return fl_err(FL_ERR(EINVAL), FL_STAGE_PLAN,
                      "weights draw at random: they need shuffle = global");
    if (cfg->length < 0)
        return fl_err(FL_ERR(EINVAL), FL_STAGE_PLAN, "epoch_samples is negative");
    if (cfg->length)
        o->n = cfg->length;
    double *own = own_weights(o, cfg);
    if (!own)
        return fl_err(FL_ERR(ENOMEM), FL_STAGE_PLAN, "no memory for %lld weights",
                      (long long)o->members);
    o->weights_hash = fl_hash64(own, (size_t)o->members * sizeof(*own), 2);
    const int err = fl_alias_init(&o->alias, own, o->members);
    free(own);
    return err;
}

static int init_perms(struct fl_order *o)
{
    const struct fl_order_cfg *c = &o->cfg;
    const int64_t items = c->shuffle == FL_SHUFFLE_BLOCK ? o->n / c->block : o->n;
    int err;

    for (int i = 0; i < 2; i++)
        if ((err = fl_perm_init(&o->epochs[i], (uint64_t)items)))
            return err;
    return c->shuffle == FL_SHUFFLE_BLOCK
               ? fl_perm_init(&o->window_perm, (uint64_t)(c->block * (c->window + 1)))
               : 0;
}

int fl_order_init(struct fl_order *o, const struct fl_order_cfg *cfg)
{
    int err;

    *o = (struct fl_order){ .cfg = *cfg, .epoch_of = { -1, -1 }, .window_epoch = -1 };
    if ((err = copy_exclude(o, cfg)) || (err = copy_subset(o, cfg)))
        goto fail;
    o->n = o->members;
    if (o->n < 1) {
        err = fl_err(FL_ERR(EINVAL), FL_STAGE_PLAN,
                     "no sample is left: subset and exclude take them all");
        goto fail;
    }
    if (cfg->weights)
        err = init_weights(o, cfg);
    else if (cfg->shuffle != FL_SHUFFLE_NONE)
        err = init_perms(o);
    if (err)
        goto fail;
    // The caller's lists: ours are o->exclude, o->subset, o->alias.
    o->cfg.exclude = o->cfg.subset = NULL;
    o->cfg.weights = NULL;
    return 0;
fail:
    fl_order_fini(o);
    return err;
}

void fl_order_fini(struct fl_order *o)
{
    free(o->exclude);
    free(o->subset);
    o->exclude = o->subset = NULL;
    fl_alias_fini(&o->alias);
    fl_perm_fini(&o->epochs[0]);
    fl_perm_fini(&o->epochs[1]);
    fl_perm_fini(&o->window_perm);
}

/* The permutation of an epoch, keyed when first asked for. */
static const struct fl_perm *epoch_perm(struct fl_order *o, int64_t epoch, int64_t items)
{
    const int slot = (int)(epoch & 1);

    if (o->epoch_of[slot] != epoch) {
        fl_perm_key(&o->epochs[slot], (uint64_t)items, o->cfg.seed, (uint32_t)epoch, 0,
                    FL_RNG_ORDER);
        o->epoch_of[slot] = epoch;
    }
    return &o->epochs[slot];
}

/* Number of the k-th sample that is not excluded. */
static int64_t select_sample(const struct fl_order *o, int64_t k)
{
    int64_t low = 0, high = o->cfg.n_exclude; // exclusions at or before the answer

    while (low < high) {
        const int64_t mid = low + (high - low) / 2;
        if (o->exclude[mid] - mid <= k)
            low = mid + 1;
        else
            high = mid;
    }
    return k + low;
}

/* Whole blocks of neighbours in random order, cut into windows of cfg.window blocks, each window
 * shuffled. The samples behind the last whole block join a window that is drawn too. */
static int64_t block_at(struct fl_order *o, int64_t epoch, int64_t position)
{
    const int64_t size = o->cfg.block, blocks = o->n / size, tail = o->n % size;
    const int64_t span = size * o->cfg.window,
                  windows = (blocks + o->cfg.window - 1) / o->cfg.window;
    const struct fl_perm *perm = epoch_perm(o, epoch, blocks);
    struct fl_rng r;

    fl_rng_init(&r, o->cfg.seed, (uint32_t)epoch, 0, FL_RNG_ORDER, 1);
    const int64_t tail_window = windows ? (int64_t)fl_rng_below(&r, (uint64_t)windows) : 0;
    int64_t window = position / span; // as if there were no tail
    if (window > tail_window || windows == 0) {
        window = (position - tail) / span;
        window = window < tail_window ? tail_window : window;
    }
    const int64_t first = window * span + (window > tail_window ? tail : 0);
    int64_t whole = blocks * size - window * span; // samples of whole blocks in the window
    whole = whole < span ? whole : span;
    const int64_t n = whole + (window == tail_window ? tail : 0);
    if (o->window_epoch != epoch || o->window_of != window) {
        fl_perm_key(&o->window_perm, (uint64_t)n, o->cfg.seed, (uint32_t)epoch,
                    (uint64_t)window + 1, FL_RNG_ORDER);
        o->window_epoch = epoch;
        o->window_of = window;
    }
    const int64_t k = (int64_t)fl_perm_at(&o->window_perm, (uint64_t)(position - first));
    if (k >= whole)
        return blocks * size + (k - whole);
    return (int64_t)fl_perm_at(perm, (uint64_t)(window * o->cfg.window + k / size)) * size +
           k % size;
}

static int64_t weighted_at(const struct fl_order *o, int64_t epoch, int64_t position)
{
    struct fl_rng r;

    fl_rng_init(&r, o->cfg.seed, (uint32_t)epoch, (uint64_t)position, FL_RNG_ORDER, 2);
    return fl_alias_draw(&o->alias, &r);
}

int64_t fl_order_at(struct fl_order *o, int64_t epoch, int64_t position)
{
    int64_t k = position;

    if (o->alias.n)
        k = weighted_at(o, epoch, position);
    else if (o->cfg.shuffle == FL_SHUFFLE_GLOBAL)
        k = (int64_t)fl_perm_at(epoch_perm(o, epoch, o->n), (uint64_t)position);
    else if (o->cfg.shuffle == FL_SHUFFLE_BLOCK)
        k = block_at(o, epoch, position);
    if (o->subset)
        return o->subset[k];
    return o->cfg.n_exclude ? select_sample(o, k) : k;
}

uint64_t fl_order_exclusions(const struct fl_order *o)
{
    return o->cfg.n_exclude
               ? fl_hash64(o->exclude, (size_t)o->cfg.n_exclude * sizeof(*o->exclude), 3)
               : 0;
}

uint64_t fl_order_fingerprint(const struct fl_order *o)
{
    const bool block = o->cfg.shuffle == FL_SHUFFLE_BLOCK;
    const int64_t key[] = { o->cfg.shuffle, o->n, block ? o->cfg.block : 0,
                            block ? o->cfg.window : 0, o->subset != NULL };
    uint64_t h = fl_hash64(key, sizeof(key), o->weights_hash);

    if (o->cfg.n_exclude)
        h = fl_hash64(o->exclude, (size_t)o->cfg.n_exclude * sizeof(*o->exclude), h);
    if (o->subset)
        h = fl_hash64(o->subset, (size_t)o->members * sizeof(*o->subset), h);
    return h;
}
