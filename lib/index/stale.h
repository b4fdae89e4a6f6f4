/* SPDX-License-Identifier: Apache-2.0 */
/* Does an index still belong to the files beside it? */
#ifndef FL_INDEX_STALE_H
#define FL_INDEX_STALE_H

#include <feedline/dataset.h>

#include "base/log.h"
#include "index/index.h"

/* Compare an index with what lies under `root`. Folders: names, where a folder's time differs. Tar archives: size,
 * and a hash of header bytes where the time differs; *mtimes then gets a malloced array of the times at which
 * the archives were found to be right (else it stays NULL). Files of class folders are looked at when they are
 * first opened. 0; FL_ERR(ESTALE) with a sentence that names what differs; FL_ERR(EIO), ... */
int fl_stale_check(const struct fl_index *ix, const char *root, const FlDatasetOptions *opt,
                   const struct fl_log *log, int64_t **mtimes);

/* Write these times of the containers into the index file, which is replaced as a whole; the open index stays as
 * it is. 0, or an error with a sentence: then the file is as it was. */
int fl_index_retime(const struct fl_index *ix, const int64_t *mtimes);

/* The file's hash as the index's kind of containers has it. */
int fl_container_hash(const struct fl_index *ix, int fd, const char *path, uint64_t *hash);

#endif
