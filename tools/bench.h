/* SPDX-License-Identifier: Apache-2.0 */
/* `feedline bench`: what its files share. bench.c reads the line and makes the dataset ready,
 * bench_run.c measures, bench_cache.c knows the page cache, bench_report.c prints. */
#ifndef FL_TOOLS_BENCH_H
#define FL_TOOLS_BENCH_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include <feedline/feedline.h>

#include "cli.h"
#include "drive.h"
#include "gpu/bench_gpu.h"

struct bench {
    /* what was asked for */
    FlDataset *ds;
    FlConfig cfg;
    const char *path;
    const char *field; // name of the column that is measured
    bool synthetic;
    bool cold;          // drop the dataset from the page cache before each epoch
    bool compare_drive; // measure the drive without us too
    bool json;
    const char *save; // file for the JSON object beside the table, or NULL
    double seconds;   // stop after so long, 0: no limit
    double step_ms;   // milliseconds that the consumer spends on each batch
    int32_t warmup;   // batches that are not measured
    bool live;        // show a line while running

    /* the dataset */
    FlDatasetInfo info;
    uint64_t field_bytes; // all samples' measured field
    int64_t entered;      // pictures with entry points
    int64_t sliced;       // pictures stored as sliced JPEG
};

/* Measured between the end of the warm-up and the last batch. */
struct bench_result {
    bool warm; // the warm-up was left out; false: the run was too short for that
    bool interrupted;
    int64_t samples, valid, batches, epochs;
    uint64_t delivered; // bytes of batches handed out
    double seconds;
    double step_seconds; // of them the consumer's own
    double cpu_seconds;  // of the whole process, the consumer included
    double first_batch;  // from fl_loader_open() on
    int64_t drive_bytes; // that the process fetched from storage, -1: not known
    double resident;     // share of the dataset in the page cache before the run, -1: not known
    struct bench_gpu_report gpu; // by the GPU's own clock; all 0 for host batches
    struct bench_gpu_info gpu_info;
    double plain_copy;   // GB/s of pinned memory to the device, in pieces of what a batch copied
    double single_copy;  // the same, as seldom as the batches came
    struct drive drive;  // reads of the size that the loader's were; files 0: not asked for
    FlLoaderStats stats; // of the measured part: counters and times are differences
};

/* Set when the user pressed Ctrl-C: whatever runs ends soon. */
bool bench_interrupted(void);

/* Returns 0, or the exit code after one sentence about what failed. */
int bench_run(const struct bench *b, struct bench_result *r);

/* Share of the dataset's bytes in the page cache, looking at up to 512 files; -1: not known. */
double bench_resident(const struct bench *b);

/* Ask the kernel to forget the dataset's files. Returns 0 or an errno. */
int bench_drop_cache(const struct bench *b);

/* Bytes that this process has fetched from storage so far, -1: not known. */
int64_t bench_drive_bytes(void);

void bench_print(const struct bench *b, const struct bench_result *r);
/* to: stdout, or a file of its own. */
void bench_print_json(const struct bench *b, const struct bench_result *r, FILE *to);

#endif
