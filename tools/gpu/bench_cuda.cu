/* SPDX-License-Identifier: Apache-2.0 */
#include "bench_gpu.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cuda_runtime.h>

/* A training step is many short kernels that fill the chip, so that others can get in between; each of ours
 * does a fixed amount of arithmetic, so that it takes longer when it has to share. */
#define KERNEL_MS 0.25
#define RING 256 // steps under way; a power of two
#define ROUNDS 5
#define ROUNDS_MOST 25 // of single copies
#define HOST_BUFFERS 3 // as many as a loader has host slots

struct bench_gpu {
    int ordinal;
    struct bench_gpu_info info;
    cudaStream_t stream;
    cudaEvent_t start[RING], end[RING];
    float *sink;
    unsigned turn;               // of copies
    int grid, loops, kernels;    // of one kernel, of one step
    int64_t begun, read;         // steps, since bench_gpu_begin()
    cudaEvent_t first, previous; // begin of the first step, end of the last one that was read
    struct bench_gpu_report report;
};

static __global__ void work(int loops, float *sink)
{
    float a = (float)threadIdx.x, b = 1.000001F;

    for (int i = 0; i < loops; i++)
        a = a * b + 0.5F; // dependent: no compiler and no clock can shorten it
    if (a == -1.0F)
        *sink = a;
}

static void launch(struct bench_gpu *g)
{
    for (int i = 0; i < g->kernels; i++)
        work<<<g->grid, 256, 0, g->stream>>>(g->loops, g->sink);
}

static float time_step(struct bench_gpu *g)
{
    float ms = 0;

    cudaEventRecord(g->start[0], g->stream);
    launch(g);
    cudaEventRecord(g->end[0], g->stream);
    cudaEventSynchronize(g->end[0]);
    cudaEventElapsedTime(&ms, g->start[0], g->end[0]);
    return ms;
}

/* Find the loops that make a step as long as asked for, at the clock that the chip has under load. */
static void calibrate(struct bench_gpu *g, double step_ms)
{
    g->loops = 20000;
    g->kernels = (int)(step_ms / KERNEL_MS + 0.999);
    if (g->kernels < 1)
        return;
    for (int round = 0; round < 12; round++) {
        const float ms = time_step(g);
        if (ms <= 0)
            return;
        const double next = g->loops * step_ms / (double)ms;
        g->loops = next < 1 ? 1 : next > 1e8 ? (int)1e8 : (int)next;
    }
    float sum = 0;
    for (int i = 0; i < 4; i++)
        sum += time_step(g);
    g->report.step = (double)sum / 4e3;
}

static cudaError_t set_up(struct bench_gpu *g)
{
    cudaDeviceProp p;
    size_t free_bytes = 0, total = 0;
    cudaError_t e;

    if ((e = cudaSetDevice(g->ordinal)) || (e = cudaGetDeviceProperties(&p, g->ordinal)) ||
        (e = cudaDriverGetVersion(&g->info.driver)) ||
        (e = cudaRuntimeGetVersion(&g->info.runtime)) ||
        (e = cudaMemGetInfo(&free_bytes, &total)) || (e = cudaMalloc((void **)&g->sink, 4)) ||
        (e = cudaStreamCreateWithFlags(&g->stream, cudaStreamNonBlocking)) ||
        (e = cudaEventCreate(&g->first)) || (e = cudaEventCreate(&g->previous)))
        return e;
    for (int i = 0; i < RING; i++)
        if ((e = cudaEventCreate(&g->start[i])) || (e = cudaEventCreate(&g->end[i])))
            return e;
    snprintf(g->info.name, sizeof(g->info.name), "%.95s", p.name);
    g->info.capability = p.major * 10 + p.minor;
    g->info.memory = total;
    g->info.memory_free = free_bytes;
    g->grid = p.multiProcessorCount * 4;
    return cudaSuccess;
}

int bench_gpu_open(struct bench_gpu **out, int ordinal, double step_ms, char *why, size_t size)
{
    struct bench_gpu *g = (struct bench_gpu *)calloc(1, sizeof(*g));
    int devices = 0;

    if (!g) {
        snprintf(why, size, "out of memory");
        return ENOMEM;
    }
    cudaError_t e = cudaGetDeviceCount(&devices);
    g->ordinal = ordinal;
    g->info.devices = devices;
    if (!e && ordinal >= devices)
        e = cudaErrorInvalidDevice;
    if (!e)
        e = set_up(g);
    if (e) {
        snprintf(why, size, "%s", cudaGetErrorString(e));
        bench_gpu_close(&g);
        return ENODEV;
    }
    if (step_ms > 0)
        calibrate(g, step_ms);
    *out = g;
    return 0;
}

void *bench_gpu_stream(struct bench_gpu *g)
{
    return g->stream;
}

/* Read the clocks of the oldest step that has not been read. Waits for it. */
static void read_one(struct bench_gpu *g)
{
    const int i = (int)(g->read % RING);
    float busy = 0, idle = 0;

    cudaEventSynchronize(g->end[i]);
    cudaEventElapsedTime(&busy, g->start[i], g->end[i]);
    if (g->read > 0)
        cudaEventElapsedTime(&idle, g->end[(g->read - 1) % RING], g->start[i]);
    g->report.busy += (double)busy * 1e-3;
    g->report.idle += (double)idle * 1e-3;
    if ((double)idle * 1e-3 > g->report.longest)
        g->report.longest = (double)idle * 1e-3;
    g->read++;
}

void bench_gpu_step(struct bench_gpu *g)
{
    const int i = (int)(g->begun % RING);

    // The end of the step before the oldest is still needed: keep one free.
    while (g->begun - g->read >= RING - 1)
        read_one(g);
    cudaEventRecord(g->start[i], g->stream);
    launch(g);
    cudaEventRecord(g->end[i], g->stream);
    g->begun++;
}

void bench_gpu_begin(struct bench_gpu *g)
{
    const double step = g->report.step;

    cudaStreamSynchronize(g->stream);
    memset(&g->report, 0, sizeof(g->report));
    g->report.step = step;
    g->begun = g->read = 0;
}

void bench_gpu_end(struct bench_gpu *g, struct bench_gpu_report *report)
{
    while (g->read < g->begun)
        read_one(g);
    g->report.steps = g->read;
    g->report.span = g->report.busy + g->report.idle;
    *report = g->report;
}

/* Seconds of n copies back to back, out of one buffer after the other. */
static double copy_once(struct bench_gpu *g, void *device, const uint8_t *host, size_t bytes, int n)
{
    static const int buffers = HOST_BUFFERS;
    float ms = 0;

    cudaEventRecord(g->first, g->stream);
    for (int i = 0; i < n; i++)
        cudaMemcpyAsync(device, host + (size_t)(g->turn++ % buffers) * bytes, bytes,
                        cudaMemcpyHostToDevice, g->stream);
    cudaEventRecord(g->previous, g->stream);
    cudaEventSynchronize(g->previous);
    cudaEventElapsedTime(&ms, g->first, g->previous);
    return (double)ms * 1e-3;
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Median GB/s of rounds of n copies, each after a pause. */
static double copy_rate(struct bench_gpu *g, void *device, const uint8_t *host, size_t bytes, int n,
                        int rounds, double pause)
{
    double rates[ROUNDS_MOST] = { 0 };
    struct timespec t = { (time_t)pause, (long)((pause - (double)(time_t)pause) * 1e9) };

    copy_once(g, device, host, bytes, HOST_BUFFERS);
    for (int r = 0; r < rounds; r++) {
        if (pause > 0)
            nanosleep(&t, NULL);
        const double seconds = copy_once(g, device, host, bytes, n);
        rates[r] = seconds > 0 ? (double)bytes * n / (seconds * 1e9) : 0;
    }
    qsort(rates, (size_t)rounds, sizeof(rates[0]), ascending);
    return rates[rounds / 2];
}

double bench_gpu_copy(struct bench_gpu *g, size_t bytes, int pinned, double pause)
{
    const int n = pause > 0 ? 1 : (int)(((size_t)256 << 20) / (bytes ? bytes : 1)) + 1;
    void *device = NULL, *host = NULL;
    double rate = 0;

    if (pinned)
        cudaHostAlloc(&host, HOST_BUFFERS * bytes, 0);
    else
        host = malloc(HOST_BUFFERS * bytes);
    if (host && cudaMalloc(&device, bytes) == cudaSuccess) {
        memset(host, 1, HOST_BUFFERS * bytes);
        rate = copy_rate(g, device, (const uint8_t *)host, bytes, n,
                         pause > 0 ? ROUNDS_MOST : ROUNDS, pause);
    }
    (void)cudaGetLastError();
    cudaFree(device);
    if (pinned)
        cudaFreeHost(host);
    else
        free(host);
    return rate;
}

void bench_gpu_info(const struct bench_gpu *g, struct bench_gpu_info *info)
{
    *info = g->info;
}

void bench_gpu_close(struct bench_gpu **gpu)
{
    struct bench_gpu *g = *gpu;

    if (!g)
        return;
    for (int i = 0; i < RING; i++) {
        if (g->start[i])
            cudaEventDestroy(g->start[i]);
        if (g->end[i])
            cudaEventDestroy(g->end[i]);
    }
    if (g->first)
        cudaEventDestroy(g->first);
    if (g->previous)
        cudaEventDestroy(g->previous);
    if (g->stream)
        cudaStreamDestroy(g->stream);
    cudaFree(g->sink);
    free(g);
    *gpu = NULL;
}
