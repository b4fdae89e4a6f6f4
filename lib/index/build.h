/* SPDX-License-Identifier: Apache-2.0 */
/* From containers to an index: several threads walk, one joins what they find in dataset order. */
#ifndef FL_INDEX_BUILD_H
#define FL_INDEX_BUILD_H

#include <feedline/dataset.h>

#include "base/log.h"
#include "index/writer.h"

/* Copy the caller's options (NULL: defaults) and check them. FL_ERR(EINVAL) with a sentence. */
int fl_dataset_options(FlDatasetOptions *to, const FlDatasetOptions *from);

/* Hash of the options that change what an index holds; never 0. */
uint64_t fl_options_hash(const FlDatasetOptions *opt);

/* Where the index of the dataset at `path` lies, malloced; NULL: out of memory. */
char *fl_index_path(const char *path, const FlDatasetOptions *opt);

/* Walk the dataset at `path` into a new writer. Errors as fl_index_build(). */
int fl_build(struct fl_index_writer **out, const char *path, const FlDatasetOptions *opt,
             const struct fl_log *log);

#endif
