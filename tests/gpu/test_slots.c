/* SPDX-License-Identifier: Apache-2.0 */
/* Slots under pressure: 500 batches through 2 device slots and 3 host slots, a device thread that never waits
 * for the consumer, a consumer that is slow on the device and fast on the host, on each kind of stream;
 * every batch is summed up on the device and must be what was sent. */
#define _GNU_SOURCE
#include "gpu_test.h"

#include <pthread.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "device.h"

enum { BATCHES = 500, ROWS = 16, SIDE = 96, HOSTS = 3, SLOTS = 2 };
enum { PICTURE = SIDE * SIDE * 3, SRC = ROWS * PICTURE };

static uint32_t table[3][256];
static uint64_t want_pixels[BATCHES], want_labels[BATCHES];

struct run {
    struct fl_device *dev;
    uint8_t *host; // HOSTS slots
    size_t host_slot;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int copied, released; // batches
    int failed;
};

static void fill(uint8_t *slot, int64_t b)
{
    float *out = malloc(sizeof(float) * SRC);
    int64_t *labels = (int64_t *)(void *)(slot + SRC);

    for (int i = 0; i < SRC; i++)
        slot[i] = (uint8_t)((uint64_t)(b * 7919 + i) * 2654435761U >> 13);
    for (int r = 0; r < ROWS; r++)
        labels[r] = b * ROWS + r;
    memset(slot + SRC + ROWS * 8, 1, ROWS);
    for (int r = 0; r < ROWS; r++) // planar
        for (int p = 0; p < SIDE * SIDE; p++)
            for (int c = 0; c < 3; c++)
                memcpy(&out[(r * 3 + c) * SIDE * SIDE + p],
                       &table[c][slot[(r * SIDE * SIDE + p) * 3 + c]], 4);
    want_pixels[b] = g_checksum_host(out, sizeof(float) * SRC);
    want_labels[b] = g_checksum_host(labels, ROWS * 8);
    free(out);
}

static void *device_thread(void *arg)
{
    struct run *run = arg;

    for (int b = 0; b < BATCHES && !run->failed; b++) {
        const unsigned h = (unsigned)b % HOSTS;
        uint8_t *slot = run->host + h * run->host_slot;

        run->failed |= fl_device_wait_copied(run->dev, h, INT64_MAX) != 0;
        fill(slot, b);
        pthread_mutex_lock(&run->lock);
        while (b - run->released >= SLOTS)
            pthread_cond_wait(&run->changed, &run->lock);
        pthread_mutex_unlock(&run->lock);
        const struct fl_device_job job = { .host_slot = h,
                                           .device_slot = (unsigned)b % SLOTS,
                                           .rows = ROWS,
                                           .src = { slot, slot + SRC },
                                           .bytes = { 0, ROWS * 8 },
                                           .valid = slot + SRC + ROWS * 8 };
        run->failed |= fl_device_copy(run->dev, &job) != 0;
        pthread_mutex_lock(&run->lock);
        run->copied = b + 1;
        pthread_cond_broadcast(&run->changed);
        pthread_mutex_unlock(&run->lock);
    }
    return NULL;
}

static void consume(struct run *run, cudaStream_t stream, uint64_t *sums)
{
    for (int b = 0; b < BATCHES; b++) {
        const unsigned d = (unsigned)b % SLOTS;
        struct fl_device_view view;

        pthread_mutex_lock(&run->lock);
        while (run->copied <= b && !run->failed)
            pthread_cond_wait(&run->changed, &run->lock);
        pthread_mutex_unlock(&run->lock);
        T_EQ(fl_device_acquire(run->dev, d, stream), 0);
        fl_device_view(run->dev, d, &view);
        g_spin(b % 7 == 0 ? 900 : 60,
               stream); // whoever reuses the slot too early has time to do so
        g_checksum(view.column[0], sizeof(float) * SRC, sums + 2 * b, stream);
        g_checksum(view.column[1], ROWS * 8, sums + 2 * b + 1, stream);
        T_EQ(fl_device_release(run->dev, d, stream), 0);
        pthread_mutex_lock(&run->lock);
        run->released = b + 1;
        pthread_cond_broadcast(&run->changed);
        pthread_mutex_unlock(&run->lock);
    }
}

static void test(const char *name, cudaStream_t stream)
{
    struct run run = { 0 };
    struct fl_device_stats stats;
    pthread_t thread;
    uint64_t *sums, *got = malloc(BATCHES * 16);
    struct fl_device_cfg cfg = { .device = FL_CUDA(0),
                                 .n_slots = SLOTS,
                                 .n_host_slots = HOSTS,
                                 .max_rows = ROWS,
                                 .n_columns = 2 };

    t_case(name);
    cfg.columns[0] = (struct fl_device_column){ .op = FL_DEVICE_IMAGE,
                                                .height = SIDE,
                                                .width = SIDE,
                                                .channels = 3,
                                                .dtype = FL_F32,
                                                .layout = FL_NCHW,
                                                .table = table };
    cfg.columns[1] = (struct fl_device_column){ .op = FL_DEVICE_COPY, .capacity = ROWS * 8 };
    pthread_mutex_init(&run.lock, NULL);
    pthread_cond_init(&run.changed, NULL);
    run.host_slot = (SRC + ROWS * 9 + 4095) / 4096 * 4096;
    run.host = mmap(NULL, HOSTS * run.host_slot, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    T_EQ(fl_device_open(&run.dev, &cfg), 0);
    T_EQ(fl_device_pin(run.dev, run.host, HOSTS * run.host_slot), 0);
    G_CUDA(cudaMalloc((void **)&sums, BATCHES * 16));
    pthread_create(&thread, NULL, device_thread, &run);
    consume(&run, stream, sums);
    pthread_join(thread, NULL);
    T_EQ(run.failed, 0);
    G_CUDA(cudaStreamSynchronize(stream));
    G_CUDA(cudaMemcpy(got, sums, BATCHES * 16, cudaMemcpyDeviceToHost));
    int wrong = 0;
    for (int b = 0; b < BATCHES; b++)
        wrong += got[2 * b] != want_pixels[b] || got[2 * b + 1] != want_labels[b];
    T_EQ(wrong, 0);
    fl_device_stop(run.dev);
    fl_device_stats(run.dev, &stats);
    T_EQ(stats.batches, BATCHES);
    T_EQ(stats.pinned_bytes, HOSTS * run.host_slot);
    T_OK(stats.h2d_seconds > 0 && stats.kernel_seconds > 0);
    fl_device_close(&run.dev);
    munmap(run.host, HOSTS * run.host_slot);
    cudaFree(sums);
    free(got);
}

int main(void)
{
    cudaStream_t blocking, apart;

    g_require();
    for (int c = 0; c < 3; c++)
        for (int x = 0; x < 256; x++)
            table[c][x] = (uint32_t)(c * 256 + x) * 2654435761U;
    G_CUDA(cudaStreamCreate(&blocking));
    G_CUDA(cudaStreamCreateWithFlags(&apart, cudaStreamNonBlocking));
    test("legacy default stream", NULL);
    test("per-thread default stream", cudaStreamPerThread);
    test("blocking stream", blocking);
    test("non-blocking stream", apart);
    cudaStreamDestroy(blocking);
    cudaStreamDestroy(apart);
    return t_done();
}
