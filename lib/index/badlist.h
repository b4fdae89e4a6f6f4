/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of bad samples: JSON lines, written by loaders (bad_report) and by verify (quarantine), read as exclusion
 * lists (exclude_file). docs/order.md describes a line.
 *
 * A sample is named by its dataset's fingerprint, its number there and its key. Where the fingerprint is another
 * one, because the dataset grew or was indexed in another way, a line still holds if a sample of the same key
 * lies in the same container at the same place; else the list is of another dataset, and an error. */
#ifndef FL_INDEX_BADLIST_H
#define FL_INDEX_BADLIST_H

#include "base/bytes.h"
#include "index/dataset.h"

struct fl_bad_line {
    const FlDataset *ds;
    int64_t sample;
    int32_t field; // of the dataset, that was at fault; -1: unknown
    int64_t epoch,
        position; // epoch -1: no loader was at work; then rank and attempt do not count either
    int32_t rank;
    uint32_t attempt; // 0, or the number of the stand-in that failed
    int code;
    const char *stage, *message, *action;
    const FlDataset *by; // stand-in; NULL: none
    int64_t by_sample;
};

/* Append a line. 0, or -1: out of memory. What the index cannot tell of the sample is left out. */
int fl_bad_line_add(struct fl_bytes *to, const struct fl_bad_line *line);

/* Samples of one dataset, ascending, each once. */
struct fl_bad_ids {
    int64_t *ids;
    int64_t n;
};

/* Which samples of each dataset a list names; ids[k] is the caller's to free, on success. FL_ERR(ENOENT),
 * FL_ERR(EIO): the file; FL_ERR(EBADMSG): a line that is none; FL_ERR(EINVAL): a line that fits none of the datasets, or
 * several samples of one; with file, line and key. The keys of a dataset are gone through only for lines of
 * another fingerprint, or without one. */
int fl_bad_list_read(const char *path, const FlDataset *const *sets, unsigned n_sets,
                     struct fl_bad_ids *ids);

#endif
