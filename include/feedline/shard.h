/* SPDX-License-Identifier: Apache-2.0 */
/** Writing a dataset as WebDataset tar shards with an index. */
#ifndef FEEDLINE_SHARD_H
#define FEEDLINE_SHARD_H

#include <feedline/dataset.h>

/** How to shard. Zero-initialise and set struct_size. */
typedef struct FlShardOptions {
    size_t struct_size;
    uint64_t shard_bytes;  ///< size of a shard in planned bytes, exceeded by less than one sample; 0: 256 MiB.
                           ///< Planned are the tar members of the source as they are (a picture that
                           ///< max_side shrinks: times its share of pixels), so that no part needs the others;
                           ///< sliced JPEG is within about 1% of that, from progressive files about 6% larger
    uint64_t seed;         ///< of the shuffle; default 0
    bool no_shuffle;       ///< keep the source's order; default: global shuffle
    bool no_slice;         ///< keep JPEG bytes as they are; default: rewrite losslessly as sliced JPEG
    bool drop_icc;         ///< sliced JPEG: drop the ICC profile too
    int32_t max_side;      ///< lossy: shrink pictures whose shorter side is longer than this; 0: never
    int32_t quality;       ///< lossy: JPEG quality, 1 to 100, of the pictures that max_side shrinks (0: 95);
                           ///< without max_side every picture is re-encoded so (0: none)
    int32_t part, n_parts; ///< write part 0 <= part < n_parts only; n_parts 0 or 1: everything
    int32_t n_threads;     ///< 0: as many as the process may use; no influence on the bytes
    bool overwrite;        ///< replace a finished dataset at the target; default: error
    bool no_check;         ///< do not decode each rewritten picture to compare it with the original
    FlLogFn log;           ///< may be NULL
    void *log_cookie;
    FlProgressFn progress; ///< may be NULL
    void *progress_cookie;
} FlShardOptions;

#define FL_SHARD_OPTIONS_DEFAULT { .struct_size = sizeof(FlShardOptions) }

/** What fl_shard() did. */
typedef struct FlShardResult {
    int64_t samples;      ///< of this part, those of resumed shards included; so are all counts below
    int64_t shards;       ///< that this part is made of
    uint64_t bytes_in;    ///< sum of source fields
    uint64_t bytes_out;   ///< sum of tar files
    int64_t sliced;       ///< pictures stored as sliced JPEG
    int64_t kept;         ///< pictures stored byte for byte otherwise (no_slice, four components, damaged, ...)
    int64_t damaged;      ///< of these, those that are damaged: the codec warned or gave up; flagged
    int64_t shrunk;       ///< pictures re-encoded with loss (max_side, quality)
    int64_t resumed;      ///< shards that an earlier run had finished
} FlShardResult;

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Write `src` as tar shards with index.fli and dataset.json to the folder `dst`.
 *
 * The bytes depend on source, options and feedline version only. The index is renamed into place last:
 * a run that was killed leaves no dataset, and starting it again finishes what it had begun.
 *
 * @param result May be NULL.
 * Blocks; log and progress are called in the calling thread.
 *
 * @return 0; FL_ERR(EEXIST): dst holds a finished dataset, another run, or other files; FL_ERR(EBUSY): another
 *         process is writing the same shard or is completing dst; FL_ERR(ECANCELED): progress asked to
 *         stop; FL_ERR(EINVAL): an option, or src and dst lie in each other; FL_ERR(ENOENT), FL_ERR(ESTALE),
 *         FL_ERR(EBADMSG), FL_ERR(EIO): a field of src cannot be read, fl_last_error() names it;
 *         FL_ERR(ENOSPC), FL_ERR(EACCES), FL_ERR(ENOMEM).
 */
FL_API int fl_shard(FlDataset *src, const char *dst, const FlShardOptions *opt, FlShardResult *result);

#ifdef __cplusplus
}
#endif
#endif
