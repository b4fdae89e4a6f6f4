/* SPDX-License-Identifier: Apache-2.0 */
#include "state.h"

#include <string.h>

#include "base/err.h"
#include "base/hash.h"

#define MAGIC 0x31534C46u // "FLS1"
#define VERSION 1u

/* As written. Every member is 8 bytes wide or part of a pair of four, so there are no gaps. */
struct blob {
    uint32_t magic, version;
    uint64_t bytes; // of the blob
    struct fl_state st;
    uint64_t checksum; // XXH3-64 of all before it
};
_Static_assert(sizeof(struct blob) == 96, "a saved state keeps its size");

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

int fl_state_unpack(struct fl_state *st, const void *buf, size_t size)
{
    struct blob b;

    if (!buf || size < sizeof(b))
        return fl_err(FL_ERR(EBADMSG), FL_STAGE_PLAN, "%zu bytes are no saved state, which has %zu",
                      size, sizeof(b));
    memcpy(&b, buf, sizeof(b));
    if (b.magic != MAGIC)
        return fl_err(FL_ERR(EBADMSG), FL_STAGE_PLAN, "these bytes are no saved state of a loader");
    if (b.version != VERSION)
        return fl_err(FL_ERR(EBADMSG), FL_STAGE_PLAN,
                      "the state has version %u, and only version %u is known", b.version, VERSION);
    if (b.checksum != fl_hash64(&b, offsetof(struct blob, checksum), 0))
        return fl_err(FL_ERR(EBADMSG), FL_STAGE_PLAN,
                      "the saved state is damaged: its checksum does not match");
    *st = b.st;
    return 0;
}

int fl_state_compare(const struct fl_state *saved, const struct fl_state *now)
{
    const char *what = saved->dataset != now->dataset ? "the dataset"
                       : saved->seed != now->seed     ? "the seed"
                       : saved->order != now->order   ? "the order (shuffle, exclusions)"
                       : saved->pipeline != now->pipeline
                           ? "the pipeline (fields, sizes, crops, types)"
                           : NULL;

    if (!what)
        return 0;
    if (saved->dataset == now->dataset && saved->seed != now->seed)
        return fl_err(
            FL_ERR(EINVAL), FL_STAGE_PLAN,
            "the state was saved with seed %llu, but this loader has seed %llu; force takes it "
            "all the same",
            (unsigned long long)saved->seed, (unsigned long long)now->seed);
    return fl_err(FL_ERR(EINVAL), FL_STAGE_PLAN,
                  "%s is not the one that the state was saved with; force takes it all the same",
                  what);
}
