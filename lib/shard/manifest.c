/* SPDX-License-Identifier: Apache-2.0 */
#include "shard/manifest.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/file.h"
#include "shard/json.h"

static void put_hash(struct fl_json *j, const char *key, uint64_t hash)
{
    char digits[20];

    snprintf(digits, sizeof(digits), "%016" PRIx64, hash); // a string: JSON numbers end at 2^53
    fl_json_string(j, key, digits);
}

static void put_source(struct fl_json *j, const struct fl_run *run)
{
    fl_json_begin(j, "source", '{', true);
    put_hash(j, "fingerprint", run->source);
    fl_json_uint(j, "bytes", run->source_bytes);
    fl_json_end(j);
}

static void put_options(struct fl_json *j, const struct fl_run *run)
{
    fl_json_begin(j, "options", '{', false);
    fl_json_uint(j, "shard_bytes", run->shard_bytes);
    fl_json_bool(j, "shuffle", run->shuffle);
    fl_json_uint(j, "seed", run->seed);
    fl_json_bool(j, "slice", run->slice);
    fl_json_bool(j, "drop_icc", run->drop_icc);
    fl_json_int(j, "max_side", run->max_side);
    fl_json_int(j, "quality", run->quality);
    fl_json_end(j);
}

static void put_schema(struct fl_json *j, const struct fl_index *ix)
{
    fl_json_begin(j, "schema", '[', false);
    for (int32_t i = 0; i < fl_index_info(ix)->n_fields; i++) {
        const struct fl_index_field *f = fl_index_field(ix, i);
        fl_json_begin(j, NULL, '{', true);
        fl_json_string(j, "field", f->name);
        fl_json_string(j, "kind",
                       f->kind == FL_FIELD_INT ? "integer"
                       : f->is_image           ? "image"
                                               : "bytes");
        fl_json_int(j, "samples", f->count);
        if (f->kind == FL_FIELD_BYTES) {
            fl_json_uint(j, "bytes", f->bytes);
            fl_json_uint(j, "longest", f->max_bytes);
        }
        fl_json_end(j);
    }
    fl_json_end(j);
}

static void put_pictures(struct fl_json *j, const struct fl_shard_counts *n)
{
    fl_json_begin(j, "pictures", '{', true);
    fl_json_int(j, "sliced", n->sliced);
    fl_json_int(j, "kept", n->kept);
    fl_json_int(j, "damaged", n->damaged);
    fl_json_int(j, "shrunk", n->shrunk);
    fl_json_end(j);
}

/* Samples of each class, by the field "cls". NULL: no such field; *err says if that is an error. */
static int64_t *count_classes(const struct fl_index *ix, int32_t n_classes, int *err)
{
    const int32_t field = fl_index_find(ix, "cls");

    *err = 0;
    if (field < 0 || !n_classes || fl_index_field(ix, field)->kind != FL_FIELD_INT)
        return NULL;
    int64_t *counts = calloc((size_t)n_classes, sizeof(*counts));
    if (!counts) {
        *err = fl_err(FL_ERR(ENOMEM), FL_STAGE_PLAN, "no memory to count the classes");
        return NULL;
    }
    for (int64_t i = 0; i < fl_index_info(ix)->n_samples && !*err; i++) {
        int64_t value = -1;
        const int got = fl_index_int(ix, field, i, &value);
        if (!got && value >= 0 && value < n_classes)
            counts[value]++;
        if (got && got != FL_ERR(ENOENT))
            *err = got;
    }
    return counts;
}

static void put_classes(struct fl_json *j, const struct fl_run *run, const int64_t *counts)
{
    fl_json_begin(j, "classes", '[', false);
    for (int32_t i = 0; i < run->n_classes; i++) {
        fl_json_begin(j, NULL, '{', true);
        fl_json_int(j, "label", i);
        fl_json_string(j, "name", run->classes[i]);
        if (counts)
            fl_json_int(j, "samples", counts[i]);
        fl_json_end(j);
    }
    fl_json_end(j);
}

static void put_shards(struct fl_json *j, const struct fl_run *run,
                       const struct fl_shard_counts *shards)
{
    fl_json_begin(j, "shards", '[', false);
    for (int64_t i = 0; i < run->n_shards; i++) {
        char name[32];
        fl_run_shard_name(name, i, "tar");
        fl_json_begin(j, NULL, '{', true);
        fl_json_string(j, "name", name);
        fl_json_int(j, "samples", shards[i].samples);
        fl_json_uint(j, "bytes", shards[i].bytes_out);
        fl_json_end(j);
    }
    fl_json_end(j);
}

static void put_all(struct fl_json *j, const struct fl_run *run, const struct fl_index *ix,
                    const struct fl_shard_counts *shards, const int64_t *classes)
{
    struct fl_shard_counts sum = { 0 };

    for (int64_t i = 0; i < run->n_shards; i++)
        fl_shard_counts_add(&sum, &shards[i]);
    fl_json_begin(j, NULL, '{', false);
    fl_json_string(j, "format", "WebDataset tar shards with index.fli");
    fl_json_string(j, "feedline", run->version);
    fl_json_string(j, "codec", run->codec);
    fl_json_int(j, "samples", sum.samples);
    fl_json_uint(j, "bytes", sum.bytes_out);
    put_hash(j, "fingerprint", fl_index_info(ix)->fingerprint);
    put_source(j, run);
    put_options(j, run);
    put_schema(j, ix);
    put_pictures(j, &sum);
    put_classes(j, run, classes);
    put_shards(j, run, shards);
    fl_json_end(j);
}

int fl_manifest_write(const char *dir, const struct fl_run *run, const struct fl_index *ix,
                      const struct fl_shard_counts *shards)
{
    struct fl_json j = { 0 };
    int err;
    int64_t *classes = count_classes(ix, run->n_classes, &err);

    if (!err) {
        put_all(&j, run, ix, shards, classes);
        err = j.failed ? fl_err(FL_ERR(ENOMEM), FL_STAGE_PLAN, "no memory for dataset.json")
                       : fl_file_replace(dir, FL_DATASET_JSON, j.text, j.len);
    }
    fl_json_fini(&j);
    free(classes);
    return err;
}
