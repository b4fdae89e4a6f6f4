/* SPDX-License-Identifier: Apache-2.0 */
/* A pretended training step on the GPU, and what the GPU saw of it: the part of the command that makes CUDA calls
 * of its own. bench_cuda.cu does it; bench_none.c stands in where there is no CUDA. */
#ifndef FL_TOOLS_BENCH_GPU_H
#define FL_TOOLS_BENCH_GPU_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct bench_gpu; // one thread

/* By events on the consumer's stream, from the first step since bench_gpu_begin() to the last. */
struct bench_gpu_report {
    int64_t steps;
    double span;    // seconds from the begin of the first step to the end of the last
    double busy;    // inside steps
    double idle;    // between them: the stream waited for a batch
    double longest; // longest single wait
    double step; // seconds that a step takes on an idle device: what was asked for, as calibrated
};

struct bench_gpu_info {
    char name[96];
    int32_t capability;      // 90 for 9.0
    int32_t driver, runtime; // 13000 for CUDA 13.0
    int32_t devices;
    uint64_t memory, memory_free;
};

/* @param step_ms Length of a step in milliseconds: many short kernels, as training has; 0: none.
 * @return 0, or an errno with a sentence in why. */
int bench_gpu_open(struct bench_gpu **out, int ordinal, double step_ms, char *why, size_t size);

/* cudaStream_t of the consumer, a non-blocking one. */
void *bench_gpu_stream(struct bench_gpu *gpu);

/* Put one step on the stream. Waits only if hundreds are under way already. */
void bench_gpu_step(struct bench_gpu *gpu);

/* Forget the steps so far. */
void bench_gpu_begin(struct bench_gpu *gpu);

/* Wait for the steps under way, then report those since begin. */
void bench_gpu_end(struct bench_gpu *gpu, struct bench_gpu_report *report);

/* GB/s of plain copies of `bytes` to the device, out of memory that the driver pinned, or out of pageable memory: back
 * to back, or one at a time after a pause of so many seconds, in which the link falls asleep. Median; 0: not enough
 * memory. */
double bench_gpu_copy(struct bench_gpu *gpu, size_t bytes, int pinned, double pause);

void bench_gpu_info(const struct bench_gpu *gpu, struct bench_gpu_info *info);

/* NULL is fine; sets *gpu to NULL. */
void bench_gpu_close(struct bench_gpu **gpu);

#ifdef __cplusplus
}
#endif
#endif
