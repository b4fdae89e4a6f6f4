/* SPDX-License-Identifier: Apache-2.0 */
/* The end of a run: records of all shards become index.fli and dataset.json. */
#ifndef FL_SHARD_MERGE_H
#define FL_SHARD_MERGE_H

#include "shard/target.h"

/* Join the records, put dataset.json and then the index into place, and take the run's mark away.
 * index_path NULL: index.fli in the folder. *sum, which may be NULL, gets the counts of all shards.
 * FL_ERR(ENOENT): shards are missing, by name. */
int fl_shard_merge(struct fl_target *t, const struct fl_run *run, const char *index_path,
                   struct fl_shard_counts *sum);

#endif
