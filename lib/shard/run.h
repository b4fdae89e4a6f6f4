/* SPDX-License-Identifier: Apache-2.0 */
/* The run that is filling a folder: a small text file, FL_UNFINISHED_NAME, that is there from before the
 * first shard until after the index, and says everything that decides the dataset's bytes. It marks the
 * folder as unfinished for readers, lets a second start find out whether it continues the same run, and
 * tells the merge of parts what it needs, as that has no source.
 *
 * Layout of a folder while it is being filled:
 *   .feedline-unfinished          this file
 *   .feedline-run/NAME.tar        the shard being written
 *   .feedline-run/NAME.record     of each finished shard, see record.h
 *   shard-NNNNNN.tar              finished shards */
#ifndef FL_SHARD_RUN_H
#define FL_SHARD_RUN_H

#include <stdbool.h>
#include <stdint.h>

#include <feedline/shard.h>

#include "base/bytes.h"

#define FL_RUN_FOLDER ".feedline-run"
#define FL_DATASET_JSON "dataset.json"

struct fl_run {
    char version[64]; // of feedline
    char codec[64];   // JPEG codec, "" where no picture is rewritten
    uint64_t source;  // fingerprint of the source, see layout.h
    int64_t n_samples, n_shards;
    uint64_t planned, source_bytes;
    uint64_t shard_bytes, seed;
    bool shuffle, slice, drop_icc;
    int32_t max_side, quality;
    int32_t n_classes;
    char **classes;
    uint64_t hash; // of all the above: the identity of the run
};

/* Copies the options that decide bytes. Returns 0 or FL_ERR(ENOMEM). */
int fl_run_init(struct fl_run *r, const FlShardOptions *opt);

/* Add the next class name. Returns 0 or FL_ERR(ENOMEM). */
int fl_run_class(struct fl_run *r, const char *name);

/* Compute r->hash once everything is filled in, and give the file's text. Returns 0 or FL_ERR(ENOMEM). */
int fl_run_text(struct fl_run *r, struct fl_bytes *text);

/* FL_ERR(ENOENT): dir has no such file; FL_ERR(EBADMSG): not one that this version can read. */
int fl_run_read(struct fl_run *r, const char *dir);
void fl_run_fini(struct fl_run *r);

/* What differs between two runs, as "option: a, now b"; "" if nothing does. */
void fl_run_difference(const struct fl_run *old, const struct fl_run *now, char *text, size_t size);

/* "shard-000042.tar" and the like. More than a million shards just take more digits. */
void fl_run_shard_name(char name[32], int64_t shard, const char *extension);

#endif
