/* SPDX-License-Identifier: Apache-2.0 */
/** One batch, as the consumer sees it. */
#ifndef FEEDLINE_BATCH_H
#define FEEDLINE_BATCH_H

#include <feedline/config.h>

/** One column of a batch. */
typedef struct FlColumn {
    const char *field;              ///< name; valid while the batch is held
    void *data;                     ///< device pointer if FlBatch.device is CUDA
    FlDtype dtype;
    int32_t ndim;
    int64_t shape[FL_MAX_DIMS + 1]; ///< shape[0] is FlBatch.size; C order, no gaps
    const int64_t *offsets;         ///< FL_COLUMN_BYTES: {size + 1}, value i is data[offsets[i] .. offsets[i + 1]); else NULL; host memory
} FlColumn;

/** Zero-initialise; filled by fl_loader_next(); give back with fl_batch_release(). */
typedef struct FlBatch {
    int64_t size;         ///< rows; batch_size but for a partial tail
    int64_t n_valid;      ///< rows with valid != 0
    int32_t n_columns;
    FlColumn columns[FL_MAX_COLUMNS]; ///< in the order of the fl_config_* calls
    const int64_t *ids;   ///< {size} index of each row's sample in the dataset, -1 for a padded row; host memory
    const uint8_t *valid; ///< {size} 1: a good sample; 0: a hole (padding, or a skipped bad sample); host memory
    const uint8_t *parts; ///< {size} which dataset of a mixture each row is of; NULL for a single dataset; host memory
    const uint8_t *device_valid; ///< the same on the device, or NULL for host batches
    int64_t epoch;
    int64_t position;     ///< place of row 0 in the epoch's order
    FlDevice device;
    void *slot;           ///< private: owns every pointer above
} FlBatch;

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Make one more stream wait for a batch's content, as fl_loader_next() did with its own. Any thread.
 *
 * @param stream cudaStream_t (NULL: the legacy default stream). Nothing happens for host batches.
 * @return 0; FL_ERR(EINVAL): the stream is capturing, or of another device; FL_ERR(ECHILD).
 */
FL_API int fl_batch_acquire(const FlBatch *batch, void *stream);

/**
 * Note that one more stream uses a batch, besides the one that fl_batch_release() will be given: its memory
 * is not reused before the work that `stream` holds at this moment has ended. One thread at a time.
 *
 * @param stream cudaStream_t (NULL: the legacy default stream). Nothing happens for host batches.
 * @return as fl_batch_acquire().
 */
FL_API int fl_batch_record(const FlBatch *batch, void *stream);

/**
 * A random number for each row, for transforms of the caller's own: keyed by (seed, epoch, position), so
 * that it never depends on workers, ranks or batch size. Any thread.
 *
 * @param seeds {size} receives them.
 * @return 0 or FL_ERR(EINVAL).
 */
FL_API int fl_batch_seeds(const FlBatch *batch, uint64_t *seeds);

/**
 * Give a batch back. Its memory is reused once the work that `stream` holds at this moment has ended.
 * Valid after fl_loader_close() too. Any thread. Sets *batch to zeros; a zeroed batch is fine.
 *
 * @param stream cudaStream_t that used the batch (NULL: the legacy default stream); ignored for host batches.
 * @return 0, or FL_ERR(ECHILD) in a forked child.
 */
FL_API int fl_batch_release(FlBatch *batch, void *stream);

#ifdef __cplusplus
}
#endif
#endif
