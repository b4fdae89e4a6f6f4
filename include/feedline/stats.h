/* SPDX-License-Identifier: Apache-2.0 */
/** What a loader did and what it waited for. */
#ifndef FEEDLINE_STATS_H
#define FEEDLINE_STATS_H

#include <feedline/error.h>
#include <feedline/types.h>

/** Seconds summed over the stage's threads since the loader was opened. */
typedef struct FlStageStats {
    double busy;      ///< working
    double wait_in;   ///< waiting for the stage before it
    double wait_out;  ///< waiting for the stage after it (no free slot or buffer)
    int64_t items;    ///< samples (batches for FL_STAGE_DEVICE and FL_STAGE_CONSUMER)
    uint64_t bytes;   ///< bytes that left the stage
    int32_t threads;
    double stall;     ///< seconds that fl_loader_next() waited because of this stage
} FlStageStats;

/** Counters of a loader, copied by fl_loader_stats(). */
typedef struct FlLoaderStats {
    size_t struct_size;          ///< set by the caller: sizeof(FlLoaderStats)
    FlStageStats stages[FL_N_STAGES];
    int64_t samples, batches;    ///< handed out
    int64_t bad_samples;         ///< seen so far, whatever the policy did with them
    int64_t substituted;
    double seconds;              ///< since the loader was opened
    double first_batch_seconds;  ///< from fl_loader_open() to the first batch; 0 before it
    double stall_seconds;        ///< fl_loader_next() waiting, in all
    double cpu_seconds;          ///< of the loader's threads
    FlStage limiting;            ///< stage with the largest stall; FL_STAGE_CONSUMER if next never waited
    /* memory, bytes */
    uint64_t memory_budget;      ///< everything allocated at open; never exceeded
    uint64_t memory_limit;       ///< as configured
    uint64_t memory_high_water;  ///< most in use at one time
    uint64_t pinned_bytes, device_bytes;
    int32_t huge_pages;          ///< 1 if the kernel gave huge pages to the slabs
    int32_t numa_node;           ///< of the slabs, -1: no preference
    /* on the device, by its own clocks */
    double h2d_seconds;          ///< copies to the device: where no picture is decoded there, stages[FL_STAGE_DEVICE].bytes over this is their rate
    double kernel_seconds;       ///< kernels of ours: decoding, normalising
    /* reading */
    char io_backend[16];         ///< "io_uring", "pread", "memory"
    char io_reason[160];         ///< why this one, with the errno of what was refused
    int32_t io_depth;
    int32_t io_direct;           ///< 1: O_DIRECT, 0: buffered, 2: some files each
    int32_t io_registered;       ///< bit 0: files, bit 1: buffers
    uint64_t bytes_read;         ///< from the file system, alignment and coalescing included
    uint64_t bytes_wanted;       ///< of spans that the samples needed
    int64_t reads;               ///< read requests
    int64_t cached_reads;        ///< of these, copies out of the page cache by the workers themselves
    uint64_t cached_bytes;       ///< bytes of these
    double cached_seconds;       ///< of the workers' time (part of stages[FL_STAGE_DECODE].busy)
    int64_t retries;             ///< short reads, EAGAIN, EINTR
    /* decoding */
    int64_t decoded_cpu, decoded_gpu; ///< pictures: by the workers (and by the CPU after all), by the GPU
    int32_t n_workers;
    char codec[64];              ///< name and version of the JPEG codec
    /* pictures of a column that the GPU decodes, left to the CPU: */
    int64_t left_kind;           ///< of a kind, or with a setting, that the GPU does not decode
    int64_t left_balance;        ///< because the device was behind (decode = auto)
    int64_t left_room;           ///< because the batch had no room for them on the device
    int64_t left_again;          ///< because the GPU found them damaged: the CPU has the last word
} FlLoaderStats;

#endif
