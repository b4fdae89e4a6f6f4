/* SPDX-License-Identifier: Apache-2.0 */
/* The folder that is written to: may it be, and what is in it already. */
#ifndef FL_SHARD_TARGET_H
#define FL_SHARD_TARGET_H

#include <stdbool.h>
#include <stdint.h>

#include "shard/record.h"
#include "shard/run.h"

struct fl_target {
    char *dir, *work; // the folder, and FL_RUN_FOLDER in it
    char *lock_path;
    int lock; // descriptor of the lock, -1: none
};

/* Returns 0 or FL_ERR(ENOMEM). */
int fl_target_init(struct fl_target *t, const char *dir);
void fl_target_fini(struct fl_target *t);

/* FL_ERR(EINVAL): one folder lies in the other, or they are the same. */
int fl_target_apart(const struct fl_target *t, const char *source);

/* Make the folder if there is none and put the run's mark into it, or find that it is there: other parts
 * and earlier starts of the same run are continued. What an overwritten dataset or another run has left
 * goes away. Takes the lock. FL_ERR(EEXIST): it holds something else; FL_ERR(EBUSY). */
int fl_target_begin(struct fl_target *t, struct fl_run *run, bool overwrite);

/* Parts of a run hold the lock together; whoever ends the run needs it alone. It goes away with the process.
 * FL_ERR(EBUSY): others are at work. */
int fl_target_lock(struct fl_target *t, bool alone);

/* Is this shard finished? Fills *header if so. */
bool fl_target_has(const struct fl_target *t, const struct fl_run *run, int64_t shard,
                   struct fl_record_header *header);

/* The dataset is complete: take the mark away, then what is left of the run. The lock must be held alone. */
int fl_target_end(const struct fl_target *t);

#endif
