/* SPDX-License-Identifier: Apache-2.0 */
#include "shard/merge.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <feedline/index.h>

#include "base/err.h"
#include "base/file.h"
#include "shard/manifest.h"

static int no_memory(void)
{
    return fl_err(FL_ERR(ENOMEM), FL_STAGE_PLAN, "no memory to join the shards");
}

/* All there? Names the first that is not, and how many others. */
static int check_complete(const struct fl_target *t, const struct fl_run *run)
{
    struct fl_record_header header;
    int64_t missing = 0, first = -1;
    char name[32], others[64] = "";

    for (int64_t s = 0; s < run->n_shards; s++) {
        if (fl_target_has(t, run, s, &header))
            continue;
        first = first < 0 ? s : first;
        missing++;
    }
    if (!missing)
        return 0;
    fl_run_shard_name(name, first, "tar");
    if (missing > 1)
        snprintf(others, sizeof(others), " and %" PRId64 " others of %" PRId64, missing - 1,
                 run->n_shards);
    return fl_err(FL_ERR(ENOENT), FL_STAGE_PLAN,
                  "%s is not complete: %s%s missing; run the part that writes it (part I of N "
                  "writes shards I, I + N, I + 2N and so on)",
                  t->dir, name, missing > 1 ? others : " is");
}

static int replay_all(const struct fl_target *t, const struct fl_run *run,
                      struct fl_index_writer *w, struct fl_shard_counts *shards)
{
    int err = 0;

    for (int32_t i = 0; i < run->n_classes && !err; i++)
        err = fl_index_writer_class(w, run->classes[i]) < 0 ? fl_last_error()->code : 0;
    for (int64_t s = 0; s < run->n_shards && !err; s++) {
        struct fl_record_header header;
        char record_name[32], tar_name[32];
        fl_run_shard_name(record_name, s, "record");
        fl_run_shard_name(tar_name, s, "tar");
        char *path = fl_path_join(t->work, record_name);
        err = path ? fl_record_replay(path, w, tar_name, run->hash, (uint64_t)s, &header)
                   : no_memory();
        if (!err)
            shards[s] = header.counts;
        free(path);
    }
    return err;
}

/* Write the index where nobody looks, read it back for dataset.json, then put both into place. */
static int publish(const struct fl_target *t, const struct fl_run *run, struct fl_index_writer *w,
                   const char *index_path, const struct fl_shard_counts *shards)
{
    struct fl_index *ix = NULL;
    char *draft = fl_path_join(t->work, FL_INDEX_NAME),
         *final = fl_path_join(t->dir, FL_INDEX_NAME);
    int err = draft && final ? fl_index_writer_write(w, draft, NULL) : no_memory();

    if (!err)
        err = fl_index_open(&ix, draft, 0);
    if (!err)
        err = fl_manifest_write(t->dir, run, ix, shards);
    fl_index_close(&ix);
    if (!err && index_path)
        err = fl_index_writer_write(w, index_path, NULL);
    else if (!err && rename(draft, final))
        err = fl_err_file(errno, "rename to", final);
    if (!err)
        err = fl_fsync_dir(t->dir);
    free(draft);
    free(final);
    return err;
}

int fl_shard_merge(struct fl_target *t, const struct fl_run *run, const char *index_path,
                   struct fl_shard_counts *sum)
{
    struct fl_index_writer *w = NULL;
    struct fl_shard_counts *shards = NULL;
    int err = fl_target_lock(t, true);

    if (!err)
        err = check_complete(t, run);
    if (!err && !(shards = calloc((size_t)run->n_shards, sizeof(*shards))))
        err = no_memory();
    if (!err)
        err = fl_index_writer_new(&w, FL_KIND_TAR);
    if (!err)
        err = replay_all(t, run, w, shards);
    if (!err)
        err = publish(t, run, w, index_path, shards);
    if (!err)
        err = fl_target_end(t);
    for (int64_t s = 0; s < run->n_shards && !err && sum; s++)
        fl_shard_counts_add(sum, &shards[s]);
    fl_index_writer_free(&w);
    free(shards);
    return err;
}

int fl_index_merge(const char *path, const FlDatasetOptions *opt)
{
    struct fl_target t = { .lock = -1 };
    struct fl_run run = { 0 };

    if (!path)
        return fl_err(FL_ERR(EINVAL), FL_STAGE_PLAN, "fl_index_merge: path is NULL");
    int err = fl_target_init(&t, path);
    if (!err)
        err = fl_run_read(&run, path);
    if (err == FL_ERR(ENOENT))
        err = fl_err(err, FL_STAGE_PLAN,
                     "%s holds no parts of an unfinished run: there is nothing to merge", path);
    if (!err)
        err = fl_shard_merge(&t, &run, opt ? opt->index_path : NULL, NULL);
    fl_run_fini(&run);
    fl_target_fini(&t);
    return err;
}
