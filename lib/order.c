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

int fl_order_init(struct fl_order *o, const struct fl_order_cfg *cfg)
{
    int err;

    *o = (struct fl_order){ .cfg = *cfg, .epoch_of = { -1, -1 }, .window_epoch = -1 };
    o->cfg.exclude = NULL; // the caller's list; ours is o->exclude
    if ((err = copy_exclude(o, cfg)))
        goto fail;
    o->n = cfg->n - cfg->n_exclude;
    if (cfg->shuffle == FL_SHUFFLE_NONE)
        return 0;
    const int64_t items = cfg->shuffle == FL_SHUFFLE_BLOCK ? o->n / cfg->block : o->n;
    for (int i = 0; i < 2; i++)
        if ((err = fl_perm_init(&o->epochs[i], (uint64_t)items)))
            goto fail;
    if (cfg->shuffle == FL_SHUFFLE_BLOCK &&
        (err = fl_perm_init(&o->window_perm, (uint64_t)(cfg->block * (cfg->window + 1)))))
        goto fail;
    return 0;
fail:
    fl_order_fini(o);
    return err;
}

void fl_order_fini(struct fl_order *o)
{
    free(o->exclude);
    o->exclude = NULL;
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

int64_t fl_order_at(struct fl_order *o, int64_t epoch, int64_t position)
{
    int64_t k = position;

    if (o->cfg.shuffle == FL_SHUFFLE_GLOBAL)
        k = (int64_t)fl_perm_at(epoch_perm(o, epoch, o->n), (uint64_t)position);
    else if (o->cfg.shuffle == FL_SHUFFLE_BLOCK)
        k = block_at(o, epoch, position);
    return o->cfg.n_exclude ? select_sample(o, k) : k;
}

uint64_t fl_order_fingerprint(const struct fl_order *o)
{
    const struct {
        int64_t shuffle, n, block, window;
    } key = { o->cfg.shuffle, o->n, o->cfg.shuffle == FL_SHUFFLE_BLOCK ? o->cfg.block : 0,
              o->cfg.shuffle == FL_SHUFFLE_BLOCK ? o->cfg.window : 0 };
    const uint64_t h = fl_hash64(&key, sizeof(key), 1);

    return o->cfg.n_exclude
               ? fl_hash64(o->exclude, (size_t)o->cfg.n_exclude * sizeof(*o->exclude), h)
               : h;
}
