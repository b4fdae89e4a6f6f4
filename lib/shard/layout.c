/* SPDX-License-Identifier: Apache-2.0 */
#include "shard/layout.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/err.h"
#include "base/hash.h"
#include "formats/name.h"
#include "shard/key.h"
#include "shard/tar_writer.h"

#define UNIT FL_TAR_BLOCK // planned bytes are kept as blocks in 32 bits: up to 2 TiB a sample

/* One sample on its way into sum and fingerprint. */
struct item {
    const struct fl_index *ix;
    int32_t max_side;
    char key[FL_INDEX_MAX_NAME];
    char name[FL_TAR_NAME_MAX + 1 + FL_FIELD_NAME_MAX];
    size_t name_len;
    struct fl_bytes words; // what the fingerprint is made of
    uint64_t planned, bytes;
};

static int no_memory(void)
{
    return fl_err(FL_ERR(ENOMEM), FL_STAGE_PLAN, "no memory to plan the shards");
}

static int add_words(struct item *it, const uint64_t *words, size_t n)
{
    return fl_bytes_add(&it->words, words, n * sizeof(*words)) ? no_memory() : 0;
}

static uint64_t member_bytes(struct item *it, const char *field, uint64_t size)
{
    const int n = snprintf(it->name + it->name_len, sizeof(it->name) - it->name_len, ".%s", field);

    return fl_tar_member_bytes(it->name, it->name_len + (size_t)n, size);
}

/* What a picture will weigh once it is shrunk, as far as its pixels tell. */
static int shrunk_bytes(struct item *it, int32_t field, int64_t sample, uint64_t *size)
{
    struct fl_index_image image;
    const int err = fl_index_image(it->ix, field, sample, &image);

    if (err)
        return err;
    const uint32_t side = image.width < image.height ? image.width : image.height;
    const uint64_t max = (uint64_t)it->max_side;
    if (max && side > max && *size < UINT64_MAX / (max * max))
        *size = *size * (max * max) / ((uint64_t)side * side);
    return 0;
}

static int add_span(struct item *it, int32_t i, int64_t sample)
{
    const struct fl_index_field *field = fl_index_field(it->ix, i);
    struct fl_span span;
    int err = fl_index_span(it->ix, i, sample, &span);

    if (err || span.container == FL_NO_CONTAINER)
        return err;
    const uint64_t words[] = { (uint64_t)i, span.length, field->has_checksum ? span.checksum : 0 };
    uint64_t size = span.length;
    if (it->max_side && field->is_image && (err = shrunk_bytes(it, i, sample, &size)))
        return err;
    it->bytes += span.length;
    it->planned += member_bytes(it, field->name, size);
    return add_words(it, words, 3);
}

static int add_int(struct item *it, int32_t i, int64_t sample)
{
    int64_t value;
    char digits[32];
    const int err = fl_index_int(it->ix, i, sample, &value);

    if (err)
        return err == FL_ERR(ENOENT) ? 0 : err;
    const int n = snprintf(digits, sizeof(digits), "%lld", (long long)value);
    const uint64_t words[] = { (uint64_t)i, (uint64_t)value };
    it->bytes += (uint64_t)n;
    it->planned += member_bytes(it, fl_index_field(it->ix, i)->name, (uint64_t)n);
    return add_words(it, words, 2);
}

static int look_at(struct item *it, int64_t sample)
{
    const int64_t len = fl_index_key(it->ix, sample, it->key, sizeof(it->key));
    const int n_fields = fl_index_info(it->ix)->n_fields;
    int err = 0;

    if (len < 0)
        return (int)len;
    const int n =
        fl_shard_key(it->key, (size_t)len, 1, it->name, FL_TAR_NAME_MAX - FL_FIELD_NAME_MAX);
    if (n < 0)
        return fl_err(FL_ERR(EINVAL), FL_STAGE_PLAN,
                      "the key of sample %lld is too long for a tar member's name: %.100s...",
                      (long long)sample, it->key);
    it->name_len = (size_t)n;
    it->planned = it->bytes = 0;
    it->words.len = 0;
    if (fl_bytes_add(&it->words, it->key, (size_t)len))
        return no_memory();
    for (int32_t i = 0; i < n_fields && !err; i++)
        err = fl_index_field(it->ix, i)->kind == FL_FIELD_INT ? add_int(it, i, sample)
                                                              : add_span(it, i, sample);
    return err;
}

static uint64_t schema_hash(const struct fl_index *ix)
{
    const struct fl_index_info *info = fl_index_info(ix);
    uint64_t hash = fl_hash64(&info->n_samples, sizeof(info->n_samples), 0);

    for (int32_t i = 0; i < info->n_fields; i++) {
        const struct fl_index_field *field = fl_index_field(ix, i);
        hash = fl_hash64(field->name, strlen(field->name), hash + (uint64_t)field->kind);
    }
    for (int32_t i = 0; i < info->n_classes; i++) {
        const char *name = fl_index_class(ix, i);
        hash = fl_hash64(name, strlen(name), hash);
    }
    return hash;
}

/* Planned blocks of each sample, in the source's order; sums and fingerprint. */
static int weigh(struct fl_layout *l, struct item *it, uint32_t *blocks)
{
    l->fingerprint = schema_hash(it->ix);
    for (int64_t i = 0; i < l->n; i++) {
        const int err = look_at(it, i);
        if (err)
            return err;
        if (it->planned / UNIT > UINT32_MAX)
            return fl_err(FL_ERR(E2BIG), FL_STAGE_PLAN, "sample %lld (%.100s) is larger than 2 TiB",
                          (long long)i, it->key);
        blocks[i] = (uint32_t)(it->planned / UNIT);
        l->total += it->planned;
        l->source_bytes += it->bytes;
        l->fingerprint = fl_hash64(it->words.data, it->words.len, l->fingerprint);
    }
    return 0;
}

static int cut(struct fl_layout *l, const uint32_t *blocks, uint64_t shard_bytes)
{
    const uint64_t wanted = (l->total - 1) / shard_bytes + 1;
    const uint64_t most = wanted < (uint64_t)l->n ? wanted : (uint64_t)l->n;
    uint64_t before = 0, last = UINT64_MAX;

    l->first = malloc((most + 1) * sizeof(*l->first));
    if (!l->first)
        return no_memory();
    for (int64_t p = 0; p < l->n; p++) {
        const uint64_t shard = (uint64_t)((unsigned __int128)before * wanted / l->total);
        if (shard != last) // a sample longer than a shard makes the count jump
            l->first[l->n_shards++] = p;
        last = shard;
        before += (uint64_t)blocks[fl_layout_sample(l, p)] * UNIT;
    }
    l->first[l->n_shards] = l->n;
    return 0;
}

int fl_layout_init(struct fl_layout *l, const struct fl_index *source,
                   const struct fl_layout_cfg *cfg)
{
    *l = (struct fl_layout){ .n = fl_index_info(source)->n_samples, .shuffle = cfg->shuffle };
    if (!l->n)
        return fl_err(FL_ERR(EINVAL), FL_STAGE_PLAN, "the source has no samples to write");
    struct item *it = calloc(1, sizeof(*it));
    uint32_t *blocks = malloc((size_t)l->n * sizeof(*blocks));
    int err = it && blocks ? fl_perm_init(&l->perm, (uint64_t)l->n) : no_memory();

    if (!err) {
        fl_perm_key(&l->perm, (uint64_t)l->n, cfg->seed, 0, 0, FL_RNG_SHARD);
        it->ix = source;
        it->max_side = cfg->max_side;
        err = weigh(l, it, blocks);
    }
    if (!err && !l->total)
        err = fl_err(FL_ERR(EINVAL), FL_STAGE_PLAN, "the source's samples have no fields to write");
    if (!err)
        err = cut(l, blocks, cfg->shard_bytes);
    if (it)
        fl_bytes_free(&it->words);
    free(it);
    free(blocks);
    if (err)
        fl_layout_fini(l);
    return err;
}

void fl_layout_fini(struct fl_layout *l)
{
    fl_perm_fini(&l->perm);
    free(l->first);
    *l = (struct fl_layout){ 0 };
}

int64_t fl_layout_sample(const struct fl_layout *l, int64_t position)
{
    return l->shuffle ? (int64_t)fl_perm_at(&l->perm, (uint64_t)position) : position;
}
