/* SPDX-License-Identifier: Apache-2.0 */
/** The loader: batches of a dataset in the planned order. */
#ifndef FEEDLINE_LOADER_H
#define FEEDLINE_LOADER_H

#include <feedline/batch.h>
#include <feedline/config.h>
#include <feedline/dataset.h>
#include <feedline/stats.h>

/** Opaque. One consumer thread at a time; fl_loader_stats() and fl_loader_close() from any thread. */
typedef struct FlLoader FlLoader;

/** One dataset of a mixture. */
typedef struct FlPart {
    FlDataset *dataset;     ///< kept alive by the loader
    double weight;          ///< share of the positions, relative to the other parts' weights; > 0
    const int64_t *subset;  ///< as in FlConfig, of this part; NULL: all samples
    int64_t n_subset;
    const int64_t *exclude; ///< as in FlConfig, of this part
    int64_t n_exclude;
} FlPart;

/** Upper bound of the size of a saved state. */
#define FL_STATE_BYTES 256

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Start a loader: allocates all memory, starts its threads, begins to read.
 *
 * @param out Receives the loader; untouched on error.
 * @param ds  Kept alive by the loader.
 * @param cfg Copied; not needed afterwards.
 * @return 0; FL_ERR(EINVAL): a setting (named); FL_ERR(ENOMEM): memory, or memory_limit too small (what
 *         is needed is named); FL_ERR(ENODEV): no such device or no driver; FL_ERR(ENOENT): the dataset has no such field.
 */
FL_API int fl_loader_open(FlLoader **out, FlDataset *ds, const FlConfig *cfg);

/**
 * The same for a weighted mixture of 1 to 16 datasets with the same fields. Which part stands at which
 * position is a function of (seed, epoch, position), in shares rounded to 1/1024 of the positions; each
 * part goes through its own epochs, in its own order of the configured kind. FlConfig.epoch_samples is
 * the length of an epoch, by default the sum of the parts; FlBatch.parts says where a row is from.
 * A saved state covers all parts.
 *
 * @return as fl_loader_open().
 */
FL_API int fl_loader_open_mixture(FlLoader **out, const FlPart *parts, int32_t n_parts, const FlConfig *cfg);

/**
 * Take the next batch. Waits for it; the wait ends when the batch is ready, at fl_loader_close() in
 * another thread, or after stall_timeout_ms.
 *
 * After FL_EPOCH_END the next call starts the next epoch, whose first batches are by then read ahead.
 * After FL_ERR(EBADMSG) the batch that held the bad sample is over: the next call goes on behind it.
 *
 * @param batch  Zeroed; filled on 0, untouched otherwise. Batches that are not released stay valid.
 * @param stream cudaStream_t that will use the batch: it is made to wait for the copy, the host is not.
 *               NULL is the legacy default stream. Ignored for host batches.
 * @return 0; FL_EPOCH_END; FL_ERR(EBADMSG): a bad sample (policy raise) or too many of them;
 *         FL_ERR(EBUSY): every slot is held by the caller; FL_ERR(ETIMEDOUT); FL_ERR(ECANCELED);
 *         FL_ERR(ECHILD): forked child; FL_ERR(EIO): the storage failed for good.
 */
FL_API int fl_loader_next(FlLoader *loader, FlBatch *batch, void *stream);

/** As fl_loader_next(), waiting at most timeout_ms: FL_ERR(EAGAIN) if no batch was ready by then. 0 polls. */
FL_API int fl_loader_next_timeout(FlLoader *loader, FlBatch *batch, void *stream, int64_t timeout_ms);

/** Batches that this rank gets in each epoch. Exact. Any thread. */
FL_API int64_t fl_loader_batches(const FlLoader *loader);

/** Samples that this rank gets in each epoch, without padding. Any thread. */
FL_API int64_t fl_loader_samples(const FlLoader *loader);

/**
 * Save where the consumer is: batches handed out count, batches read ahead do not.
 *
 * @param buf  Receives the state; FL_STATE_BYTES are enough.
 * @param size Bytes in buf.
 * @return bytes written, or FL_ERR(E2BIG).
 */
FL_API int fl_loader_state(FlLoader *loader, void *buf, size_t size);

/**
 * Go on from a saved state. World size, batch size, workers, backend and host may differ from the run
 * that saved it: the remaining order is the same.
 *
 * @param force Accept a state of another dataset, seed, order, exclusion list or pipeline.
 * @return 0; FL_ERR(EBADMSG): damaged; FL_ERR(EINVAL): of another dataset, seed, order, exclusion list or
 *         pipeline (named).
 */
FL_API int fl_loader_restore(FlLoader *loader, const void *buf, size_t size, bool force);

/**
 * Go to a place in the order: the next batch begins at this position of this epoch. What was read ahead is
 * dropped, unless the loader stands there already.
 *
 * @param epoch    0, 1, ...
 * @param position 0: the beginning of the epoch. Counts samples of all ranks, as a state does.
 * @return 0; FL_ERR(EINVAL): no such place.
 */
FL_API int fl_loader_seek(FlLoader *loader, int64_t epoch, int64_t position);

/**
 * Where the consumer is: positions of the epoch that are behind it, those of all ranks counted. Behind the
 * last batch of an epoch that is position 0 of the next. Any thread.
 *
 * @param epoch Receives the epoch, unless NULL.
 * @return position, or FL_ERR(EINVAL): loader is NULL.
 */
FL_API int64_t fl_loader_position(FlLoader *loader, int64_t *epoch);

/** Copy the counters. Any thread. @return 0 or FL_ERR(EINVAL). */
FL_API int fl_loader_stats(FlLoader *loader, FlLoaderStats *stats);

/**
 * Stop the threads and free everything but batches that are still held: these stay valid until released.
 * Waits for reads in flight, bounded. NULL is fine; sets *loader to NULL.
 */
FL_API void fl_loader_close(FlLoader **loader);

#ifdef __cplusplus
}
#endif
#endif
