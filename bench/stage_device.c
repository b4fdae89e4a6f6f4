/* SPDX-License-Identifier: Apache-2.0 */
/* The device stage alone: its kernels against a device-to-device copy, its copies against a plain pinned copy of
 * the same bytes in the same run, turn by turn.
 * usage: stage_device [batch [side [FILE.json]]]     (256 224) */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <cuda_runtime_api.h>

#include "base/clock.h"
#include "bench/figures.h"
#include "device.h"
#include "gpu/gpu.h"

#define ROUNDS 9
#define REPEATS 40

static cudaStream_t stream;
static cudaEvent_t from, to;
static struct figures figures;

static void must(cudaError_t e, const char *what)
{
    if (e == cudaSuccess)
        return;
    fprintf(stderr, "stage_device: %s: %s\n", what, cudaGetErrorString(e));
    exit(e == cudaErrorNoDevice || e == cudaErrorInsufficientDriver ? 77 : 1);
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(double *v, int n)
{
    qsort(v, (size_t)n, sizeof(*v), ascending);
    return v[n / 2];
}

struct kernel_case {
    struct fl_gpu_normalize args;
    uint8_t *src, *dst; // several of each, so that the cache does not serve the next round
    size_t in, out;
    int sets;
};

/* Microseconds of one call. */
static double time_kernel(struct kernel_case *k)
{
    float ms;

    must(cudaEventRecord(from, stream), "record");
    for (int i = 0; i < REPEATS; i++) {
        k->args.src = k->src + (size_t)(i % k->sets) * k->in;
        k->args.dst = k->dst + (size_t)(i % k->sets) * k->out;
        must((cudaError_t)fl_gpu_normalize(&k->args, stream), "normalize");
    }
    must(cudaEventRecord(to, stream), "record");
    must(cudaEventSynchronize(to), "synchronize");
    must(cudaEventElapsedTime(&ms, from, to), "elapsed");
    return (double)ms * 1e3 / REPEATS;
}

static double device_copy_rate(uint8_t *a, size_t bytes)
{
    double rates[ROUNDS];

    for (int r = 0; r < ROUNDS; r++) {
        float ms;
        must(cudaEventRecord(from, stream), "record");
        for (int i = 0; i < 8; i++)
            must(cudaMemcpyAsync(a, a + bytes, bytes, cudaMemcpyDeviceToDevice, stream), "copy");
        must(cudaEventRecord(to, stream), "record");
        must(cudaEventSynchronize(to), "synchronize");
        must(cudaEventElapsedTime(&ms, from, to), "elapsed");
        rates[r] = 8 * 2 * (double)bytes / ((double)ms * 1e6);
    }
    return median(rates, ROUNDS);
}

static void kernels(int64_t batch, int64_t side, int processors)
{
    static const struct {
        const char *name;
        FlDtype dtype;
        FlLayout layout;
        bool compute;
    } cases[] = {
        { "bfloat16 NHWC, computed", FL_BF16, FL_NHWC, true },
        { "bfloat16 NHWC, looked up", FL_BF16, FL_NHWC, false },
        { "bfloat16 NCHW, computed", FL_BF16, FL_NCHW, true },
        { "bfloat16 NCHW, looked up", FL_BF16, FL_NCHW, false },
        { "float32 NHWC, computed", FL_F32, FL_NHWC, true },
        { "float32 NHWC, looked up", FL_F32, FL_NHWC, false },
        { "float32 NCHW, computed", FL_F32, FL_NCHW, true },
        { "float32 NCHW, looked up", FL_F32, FL_NCHW, false },
        { "uint8 NCHW", FL_U8, FL_NCHW, false },
    };
    const size_t in = ((size_t)(batch * side * side * 3) + 511) / 512 * 512;
    const int sets = (int)(((size_t)1 << 30) / in) + 2;
    uint8_t *src, *dst, *random = malloc(in);
    void *table;

    for (size_t i = 0; i < in; i++)
        random[i] = (uint8_t)((i * 2654435761U) >> 11);
    must(cudaMalloc((void **)&src, in * (size_t)sets), "malloc");
    must(cudaMalloc((void **)&dst, in * 4 * (size_t)sets), "malloc");
    must(cudaMalloc(&table, 3 * 256 * 4), "malloc");
    must(cudaMemset(table, 0x35, 3 * 256 * 4), "memset");
    for (int i = 0; i < sets; i++)
        must(cudaMemcpy(src + in * (size_t)i, random, in, cudaMemcpyHostToDevice), "copy");
    const double ceiling = device_copy_rate(dst, in * 2 * (size_t)sets);
    printf("device-to-device copy                           %7.0f GB/s read + written\n", ceiling);
    figures_add(&figures, "device to device GB/s", ceiling);
    for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
        char name[64];
        struct kernel_case k = { .src = src, .dst = dst, .in = in, .sets = sets };
        double us[ROUNDS];
        k.out = in * fl_dtype_bytes(cases[c].dtype);
        k.args = (struct fl_gpu_normalize){ .table = table,
                                            .rows = batch,
                                            .pixels = side * side,
                                            .channels = 3,
                                            .dtype = cases[c].dtype,
                                            .layout = cases[c].layout,
                                            .compute = cases[c].compute,
                                            .mean = FL_IMAGENET_MEAN,
                                            .std = FL_IMAGENET_STD,
                                            .recip = { 4.36F, 4.46F, 4.44F },
                                            .processors = processors };
        time_kernel(&k);
        for (int r = 0; r < ROUNDS; r++)
            us[r] = time_kernel(&k);
        const double t = median(us, ROUNDS), rate = (double)(k.in + k.out) / (t * 1e3);
        printf("normalise to %-23s %7.1f us  %7.0f GB/s  %.2f of the copy\n", cases[c].name, t,
               rate, rate / ceiling);
        snprintf(name, sizeof(name), "%s us", cases[c].name);
        figures_add(&figures, name, t);
    }
    cudaFree(src);
    cudaFree(dst);
    cudaFree(table);
    free(random);
}

struct way {
    const char *name;
    bool huge, labels;
    int64_t pause_ns; // before each copy
    bool load;        // beside threads that write memory, as decoding workers do
};

/* A thread for each processor but two, writing memory of its own as fast as it can. */
struct load {
    pthread_t threads[256];
    int n;
    atomic_bool stop;
};

static void *write_memory(void *arg)
{
    struct load *load = arg;
    const size_t bytes = 4 << 20;
    uint8_t *memory = malloc(bytes);

    for (int i = 0; memory && !atomic_load(&load->stop); i++)
        memset(memory, i, bytes);
    free(memory);
    return NULL;
}

static void load_begin(struct load *load)
{
    const long n = sysconf(_SC_NPROCESSORS_ONLN) - 2;

    load->n = 0;
    atomic_store(&load->stop, false);
    while (load->n < n && load->n < 256 &&
           !pthread_create(&load->threads[load->n], NULL, write_memory, load))
        load->n++;
}

static void load_end(struct load *load)
{
    atomic_store(&load->stop, true);
    for (int i = 0; i < load->n; i++)
        pthread_join(load->threads[i], NULL);
}

static void pause_for(int64_t ns)
{
    if (ns)
        nanosleep(&(struct timespec){ .tv_nsec = ns }, NULL);
}

/* GB/s of copies out of `host`, back to back or one at a time. */
static double plain_rate(uint8_t *device, const uint8_t *host, size_t bytes, int64_t pause_ns)
{
    const int n = pause_ns ? 1 : REPEATS, rounds = pause_ns ? REPEATS : 1;
    double sum = 0;

    for (int r = 0; r < rounds; r++) {
        float ms;
        pause_for(pause_ns);
        must(cudaEventRecord(from, stream), "record");
        for (int i = 0; i < n; i++)
            must(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream), "copy");
        must(cudaEventRecord(to, stream), "record");
        must(cudaEventSynchronize(to), "synchronize");
        must(cudaEventElapsedTime(&ms, from, to), "elapsed");
        sum += (double)ms;
    }
    return (double)REPEATS * (double)bytes / (sum * 1e6);
}

/* The same bytes through the stage, all of it: copies, kernels, events, with a consumer that only waits. */
static double stage_rate(struct fl_device *dev, uint8_t *host, size_t slot, int64_t batch,
                         const struct way *way, double *busy)
{
    struct fl_device_stats s0, s1;

    const size_t label_bytes = (size_t)(batch + 511) / 512 * 4096;

    fl_device_stats(dev, &s0);
    const int64_t t0 = fl_now_ns();
    for (unsigned i = 0; i < REPEATS; i++) {
        const unsigned h = i % 3, d = i % 2;
        uint8_t *at = host + h * slot;
        const struct fl_device_job job = { .host_slot = h,
                                           .device_slot = d,
                                           .rows = batch,
                                           .src = { at, at + slot - 4096 - label_bytes },
                                           .bytes = { 0, way->labels ? (uint64_t)batch * 8 : 0 },
                                           .valid = at + slot - 4096 };
        pause_for(way->pause_ns);
        if (fl_device_wait_copied(dev, h, INT64_MAX) || fl_device_copy(dev, &job) ||
            fl_device_acquire(dev, d, stream) || fl_device_release(dev, d, stream)) {
            fprintf(stderr, "stage_device: %s\n", fl_last_error()->message);
            exit(1);
        }
    }
    must(cudaStreamSynchronize(stream), "synchronize");
    const double seconds = (double)(fl_now_ns() - t0) * 1e-9;
    fl_device_stats(dev, &s1);
    *busy = (double)(s1.h2d_bytes - s0.h2d_bytes) / ((s1.h2d_seconds - s0.h2d_seconds) * 1e9);
    return (double)(s1.h2d_bytes - s0.h2d_bytes) / (seconds * 1e9);
}

static void copies(int64_t batch, int32_t side, const struct way *way)
{
    static uint32_t table[3][256];
    const size_t bytes = (size_t)batch * (size_t)side * (size_t)side * 3;
    const size_t slot = (bytes + 4095) / 4096 * 4096 + (size_t)(batch + 511) / 512 * 4096 +
                        4096; // labels and the mask in the last pages
    static struct load load;
    struct fl_device *dev = NULL;
    struct fl_device_cfg cfg = {
        .device = FL_CUDA(0), .n_slots = 2, .n_host_slots = 3, .max_rows = batch, .n_columns = 2
    };
    uint8_t *host =
        mmap(NULL, 3 * slot, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uint8_t *device, *pinned, *pageable = malloc(bytes);
    double plain[ROUNDS], wall[ROUNDS], busy[ROUNDS], slow[ROUNDS];

    if (host == MAP_FAILED || !pageable)
        exit(1);
    madvise(host, 3 * slot, way->huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    memset(host, 7, 3 * slot);
    memset(pageable, 7, bytes);
    cfg.columns[0] = (struct fl_device_column){ .op = FL_DEVICE_IMAGE,
                                                .height = side,
                                                .width = side,
                                                .channels = 3,
                                                .dtype = FL_BF16,
                                                .layout = FL_NHWC,
                                                .table = table };
    cfg.columns[1] =
        (struct fl_device_column){ .op = FL_DEVICE_COPY, .capacity = (uint64_t)batch * 8 };
    must(cudaHostAlloc((void **)&pinned, bytes, 0), "pinned memory");
    must(cudaMalloc((void **)&device, bytes), "malloc");
    if (fl_device_open(&dev, &cfg) || fl_device_pin(dev, host, 3 * slot)) {
        fprintf(stderr, "stage_device: %s\n", fl_last_error()->message);
        exit(1);
    }
    stage_rate(dev, host, slot, batch, way, busy);
    if (way->load)
        load_begin(&load);
    for (int r = 0; r < ROUNDS; r++) {
        plain[r] = plain_rate(device, pinned, bytes, way->pause_ns);
        wall[r] = stage_rate(dev, host, slot, batch, way, &busy[r]);
        slow[r] = plain_rate(device, pageable, bytes, 0);
    }
    if (way->load)
        load_end(&load);
    const double p = median(plain, ROUNDS), w = median(wall, ROUNDS), b = median(busy, ROUNDS);
    char name[96];
    printf("%s\nplain pinned copy, %zu bytes  %7.2f GB/s\n", way->name, bytes, p);
    printf("device stage, while it copies     %7.2f GB/s  %.3f of the plain copy\n", b, b / p);
    printf("device stage, wall clock          %7.2f GB/s  %.3f of the plain copy, %.0f rows/s\n", w,
           w / p, w * 1e9 / ((double)bytes / (double)batch));
    printf("pageable copy                     %7.2f GB/s\n", median(slow, ROUNDS));
    snprintf(name, sizeof(name), "%s: plain pinned copy GB/s", way->name);
    figures_add(&figures, name, p);
    snprintf(name, sizeof(name), "%s: device stage to plain copy", way->name);
    figures_add(&figures, name, b / p);
    snprintf(name, sizeof(name), "%s: by the wall clock", way->name);
    figures_add(&figures, name, w / p);
    snprintf(name, sizeof(name), "%s: pageable copy GB/s", way->name);
    figures_add(&figures, name, median(slow, ROUNDS));
    fl_device_close(&dev);
    cudaFree(device);
    cudaFreeHost(pinned);
    free(pageable);
    munmap(host, 3 * slot);
}

int main(int argc, char **argv)
{
    const int64_t batch = argc > 1 ? atoll(argv[1]) : 256;
    static const struct way ways[] = {
        { "pictures, huge pages", true, false, 0, false },
        { "pictures and labels, huge pages", true, true, 0, false },
        { "pictures and labels, small pages", false, true, 0, false },
        { "pictures and labels, one at a time after 10 ms", true, true, 10000000, false },
        { "pictures and labels, beside threads that write memory", true, true, 0, true },
    };
    const int32_t side = argc > 2 ? atoi(argv[2]) : 224;
    int processors = 0;

    if (batch < 1 || side < 1 || figures_open(&figures, argc > 3 ? argv[3] : NULL))
        return 2;
    must(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0), "device 0");
    must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
    must(cudaEventCreate(&from), "event");
    must(cudaEventCreate(&to), "event");
    kernels(batch, side, processors);
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++)
        copies(batch, side, &ways[i]);
    return figures_close(&figures);
}
