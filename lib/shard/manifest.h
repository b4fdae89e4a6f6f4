/* SPDX-License-Identifier: Apache-2.0 */
/* dataset.json: what a person, or a program that knows no index, wants to know of a dataset. */
#ifndef FL_SHARD_MANIFEST_H
#define FL_SHARD_MANIFEST_H

#include "index/index.h"
#include "shard/record.h"
#include "shard/run.h"

/* Write dir/dataset.json. `shards` has the counts of each of run->n_shards. The bytes depend on the dataset
 * and the run's options only. */
int fl_manifest_write(const char *dir, const struct fl_run *run, const struct fl_index *ix,
                      const struct fl_shard_counts *shards);

#endif
