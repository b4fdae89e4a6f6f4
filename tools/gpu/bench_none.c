/* SPDX-License-Identifier: Apache-2.0 */
/* A build without CUDA. */
#include "bench_gpu.h"

#include <errno.h>
#include <stdio.h>

int bench_gpu_open(struct bench_gpu **out, int ordinal, double step_ms, char *why, size_t size)
{
    (void)out;
    (void)ordinal;
    (void)step_ms;
    snprintf(why, size, "this build has no CUDA");
    return ENODEV;
}

// Without open there is nothing to call these with.
void *bench_gpu_stream(struct bench_gpu *gpu)
{
    (void)gpu;
    return NULL;
}

void bench_gpu_step(struct bench_gpu *gpu)
{
    (void)gpu;
}

void bench_gpu_begin(struct bench_gpu *gpu)
{
    (void)gpu;
}

void bench_gpu_end(struct bench_gpu *gpu, struct bench_gpu_report *report)
{
    (void)gpu;
    *report = (struct bench_gpu_report){ 0 };
}

double bench_gpu_copy(struct bench_gpu *gpu, size_t bytes, int pinned, double pause)
{
    (void)pause;
    (void)gpu;
    (void)bytes;
    (void)pinned;
    return 0;
}

void bench_gpu_info(const struct bench_gpu *gpu, struct bench_gpu_info *info)
{
    (void)gpu;
    *info = (struct bench_gpu_info){ 0 };
}

void bench_gpu_close(struct bench_gpu **gpu)
{
    *gpu = NULL;
}
