/* SPDX-License-Identifier: Apache-2.0 */
/* Which samples go into which shard, decided before the first byte is written.
 *
 * The plan may depend on the source's index and the options only, so that every part of a run, on whatever
 * host, makes the same one alone. What a picture will weigh once it is rewritten is not known then;
 * so shards are cut by planned bytes: what the tar members of a sample would take as they are in the
 * source, or for a picture that will be shrunk that times the share of its pixels that remains.
 *
 * n_shards = ceil(total / shard_bytes), and the sample at position p goes to shard
 * floor(planned bytes before p * n_shards / total): shards are alike in size, and none is planned longer than
 * shard_bytes plus one sample. */
#ifndef FL_SHARD_LAYOUT_H
#define FL_SHARD_LAYOUT_H

#include <stdbool.h>
#include <stdint.h>

#include "index/index.h"
#include "perm.h"

struct fl_layout_cfg {
    uint64_t shard_bytes;
    uint64_t seed;
    bool shuffle;
    int32_t max_side; // 0: pictures keep their size
};

struct fl_layout {
    int64_t n; // samples
    bool shuffle;
    struct fl_perm perm;
    int64_t n_shards;
    int64_t *first;        // {n_shards + 1} position of each shard's first sample
    uint64_t total;        // planned bytes
    uint64_t source_bytes; // of all fields
    uint64_t fingerprint;  // of keys, field names, lengths, values and checksums of the source
};

/* Reads the whole index once, in order; takes 4 bytes a sample while it does.
 * FL_ERR(EINVAL): nothing to write; FL_ERR(ENOMEM); what the index says. */
int fl_layout_init(struct fl_layout *l, const struct fl_index *source,
                   const struct fl_layout_cfg *cfg);
void fl_layout_fini(struct fl_layout *l);

/* Sample at a position. Any thread. */
int64_t fl_layout_sample(const struct fl_layout *l, int64_t position);

#endif
