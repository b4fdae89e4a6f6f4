/* SPDX-License-Identifier: Apache-2.0 */
/* One shard while it is being written, and its record. */
#ifndef FL_SHARD_OUTPUT_H
#define FL_SHARD_OUTPUT_H

#include "shard/convert.h"
#include "shard/key.h"
#include "shard/record.h"
#include "shard/tar_writer.h"
#include "shard/target.h"

struct fl_output {
    const struct fl_target *target;
    const struct fl_run *run;
    const struct fl_index *source;
    int64_t shard; // -1: none is open
    int fd;
    char *path; // in the working folder
    struct fl_tar_writer tar;
    struct fl_record record;
    struct fl_shard_keys keys;
    struct fl_shard_counts counts;
    char name[FL_TAR_NAME_MAX + 1];
};

void fl_output_init(struct fl_output *o, const struct fl_target *target, const struct fl_run *run,
                    const struct fl_index *source);

/* Begin a shard. FL_ERR(EBUSY): another process is writing it just now. */
int fl_output_open(struct fl_output *o, int64_t shard);

/* Append a sample; its fields stand side by side. */
int fl_output_add(struct fl_output *o, const struct fl_prepared *p);

/* End the shard: it is on the drive and under its final name when this returns. */
int fl_output_close(struct fl_output *o);

/* Drop a shard that is open, and all memory. */
void fl_output_fini(struct fl_output *o);

#endif
