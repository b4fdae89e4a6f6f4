/* SPDX-License-Identifier: Apache-2.0 */
/** Building, merging and checking the index of a dataset. */
#ifndef FEEDLINE_INDEX_H
#define FEEDLINE_INDEX_H

#include <feedline/dataset.h>

/**
 * Called for each bad thing found, in the order of the samples; `text` is one sentence that names container, key and
 * offset. sample -1: it concerns the index, an archive or the origin as a whole.
 */
typedef void (*FlFindingFn)(void *cookie, int64_t sample, const char *text);

/** What fl_dataset_verify() looks at. Zero-initialise and set struct_size. */
typedef struct FlVerifyOptions {
    size_t struct_size;
    const char *against;   ///< dataset from which this one was sharded: compare pixels; NULL: do not
    bool decode;           ///< decode every picture too
    int n_threads;         ///< 0: as many as the process may use
    FlFindingFn finding;   ///< one call at a time; may be NULL
    void *finding_cookie;
    FlProgressFn progress; ///< may be NULL
    void *progress_cookie;
    const char *quarantine;///< file to write a list of the bad samples to, for FlConfig.exclude_file; replaced in one step at the end; NULL: none
} FlVerifyOptions;

/** What fl_dataset_verify() found. */
typedef struct FlVerifyResult {
    int64_t samples;  ///< looked at
    int64_t bad;      ///< samples with at least one finding
    uint64_t bytes;   ///< read
    int64_t unchecked;///< fields that carry no checksum: read, but not compared with anything
    int64_t structure;///< findings about the index, an archive or the origin as a whole (sample -1)
} FlVerifyResult;

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Build the index of a dataset anew and rename it into place.
 *
 * @param opt As for fl_dataset_open(); index_path is the file to write.
 * @return 0; FL_ERR(EBADMSG): a container is damaged (cut, duplicate or scattered members), the text
 *         names member and offset; others as fl_dataset_open().
 */
FL_API int fl_index_build(const char *path, const FlDatasetOptions *opt);

/**
 * Join the partial indexes that `fl_shard` wrote with n_parts > 1 into one index and one dataset.json.
 *
 * @param opt index_path alone is looked at; may be NULL.
 * @return 0; FL_ERR(ENOENT): shards are missing (named), or there is nothing to merge; FL_ERR(EBUSY): a part is
 *         still being written; FL_ERR(EBADMSG): a record of a shard is damaged; FL_ERR(ENOSPC), FL_ERR(EIO).
 */
FL_API int fl_index_merge(const char *path, const FlDatasetOptions *opt);

/**
 * Re-read everything: every block of the index, every field against its checksum.
 *
 * @return 0, also when samples are bad (result->bad says how many); FL_ERR(...) if it could not be done, or the
 *         quarantine list could not be written.
 */
FL_API int fl_dataset_verify(const FlDataset *ds, const FlVerifyOptions *opt, FlVerifyResult *result);

#ifdef __cplusplus
}
#endif
#endif
