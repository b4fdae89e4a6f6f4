/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FEEDLINE_LOG_H
#define FEEDLINE_LOG_H

#include <stdint.h>

typedef enum FlLogLevel {
    FL_LOG_ERROR = 0,
    FL_LOG_WARNING,
    FL_LOG_INFO, ///< decisions, said once: which backend, how much memory, how many workers
    FL_LOG_DEBUG,
} FlLogLevel;

/**
 * Where messages go; the library itself never prints. `text` is one line without a line end, valid
 * during the call. Called from the library's threads too, one call at a time for each object; it must
 * not call feedline functions on the object that is being opened or closed.
 */
typedef void (*FlLogFn)(void *cookie, FlLogLevel level, const char *text);

/** Progress of a long operation (index, shard, verify). */
typedef struct FlProgress {
    const char *what;       ///< "indexing", "sharding", ...; static
    int64_t done, total;    ///< samples or members; total = -1 while unknown
    uint64_t bytes;         ///< bytes processed so far
    uint64_t total_bytes;   ///< 0 while unknown
    int64_t bad;            ///< bad samples so far
    double seconds;         ///< since the start
} FlProgress;

/**
 * Called about 10 times a second by the thread that called the long operation, and once at its end.
 * A value other than 0 asks it to stop: it then cleans up and returns FL_ERR(ECANCELED).
 */
typedef int (*FlProgressFn)(void *cookie, const FlProgress *progress);

#endif
