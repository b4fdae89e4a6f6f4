/* SPDX-License-Identifier: Apache-2.0 */
#include "state.h"

#include <string.h>

#include "base/err.h"
#include "base/hash.h"

#define MAGIC 0x31534C46u // "FLS1"
#define VERSION 2u

/* As written. Every member is 8 bytes wide or part of a pair of four, so there are no gaps. Version 1 ended
 * before `exclude`, with the checksum in its place. */
struct blob {
    uint32_t magic, version;
    uint64_t bytes; // of the blob
    struct fl_state st;
    uint64_t checksum; // XXH3-64 of all before it
};
_Static_assert(sizeof(struct blob) == 112, "a saved state keeps its size");

#define V1_SUM (offsetof(struct blob, st) + offsetof(struct fl_state, exclude))
#define V1_BYTES (V1_SUM + sizeof(uint64_t))
_Static_assert(V1_BYTES == 96, "version 1 keeps its size");

int fl_state_pack(const struct fl_state *st, void *buf, size_t size)
{
    struct blob b = { .magic = MAGIC, .version = VERSION, .bytes = sizeof(b), .st = *st };

    if (!buf || size < sizeof(b))
        return fl_err(FL_ERR(E2BIG), FL_STAGE_PLAN,
                      "a saved state takes %zu bytes, but %zu are there", sizeof(b), size);
    b.checksum = fl_hash64(&b, offsetof(struct blob, checksum), 0);
    memcpy(buf, &b, sizeof(b));
    return (int)sizeof(b);
}

/* Checksum at `at`, over all before it. */
static bool sum_fits(const void *buf, size_t at)
{
    uint64_t sum;

    memcpy(&sum, (const char *)buf + at, sizeof(sum));
    return sum == fl_hash64(buf, at, 0);
}

int fl_state_unpack(struct fl_state *st, const void *buf, size_t size)
{
    struct blob b = { 0 };

    if (!buf || size < V1_BYTES)
        return fl_err(FL_ERR(EBADMSG), FL_STAGE_PLAN, "%zu bytes are no saved state, which has %zu",
                      size, sizeof(b));
    memcpy(&b, buf, size < sizeof(b) ? size : sizeof(b));
    if (b.magic != MAGIC)
        return fl_err(FL_ERR(EBADMSG), FL_STAGE_PLAN, "these bytes are no saved state of a loader");
    if (b.version < 1 || b.version > VERSION)
        return fl_err(FL_ERR(EBADMSG), FL_STAGE_PLAN,
                      "the state has version %u, and only versions 1 to %u are known", b.version,
                      VERSION);
    const size_t at = b.version == 1 ? V1_SUM : offsetof(struct blob, checksum);
    if (size < at + sizeof(uint64_t) || !sum_fits(buf, at))
        return fl_err(FL_ERR(EBADMSG), FL_STAGE_PLAN,
                      "the saved state is damaged: its checksum does not match");
    *st = b.st;
    if (b.version == 1) {
        st->exclude = 0;
        st->n_excluded = -1;
    }
    return 0;
}

static int other_seed(const struct fl_state *saved, const struct fl_state *now)
{
    return fl_err(FL_ERR(EINVAL), FL_STAGE_PLAN,
                  "the state was saved with seed %llu, but this loader has seed %llu; force takes "
                  "it all the same",
                  (unsigned long long)saved->seed, (unsigned long long)now->seed);
}

static int other_exclusions(const struct fl_state *saved, const struct fl_state *now)
{
    return fl_err(FL_ERR(EINVAL), FL_STAGE_PLAN,
                  "the exclusion list is not the one that the state was saved with: %lld samples "
                  "were excluded then, %lld are now; force takes it all the same",
                  (long long)saved->n_excluded, (long long)now->n_excluded);
}

int fl_state_compare(const struct fl_state *saved, const struct fl_state *now)
{
    const char *what = saved->dataset != now->dataset ? "the dataset"
                       : saved->seed != now->seed     ? "the seed"
                       : saved->order != now->order
                           ? "the order (shuffle, exclusions, subset, weights, number of samples)"
                       : saved->pipeline != now->pipeline
                           ? "the pipeline (fields, sizes, crops, types)"
                           : NULL;

    if (!what)
        return 0;
    if (saved->dataset == now->dataset && saved->seed != now->seed)
        return other_seed(saved, now);
    if (saved->dataset == now->dataset && saved->order != now->order && saved->n_excluded >= 0 &&
        saved->exclude != now->exclude)
        return other_exclusions(saved, now);
    return fl_err(FL_ERR(EINVAL), FL_STAGE_PLAN,
                  "%s is not the one that the state was saved with; force takes it all the same",
                  what);
}
