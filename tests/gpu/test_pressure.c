/* SPDX-License-Identifier: Apache-2.0 */
/* The whole loader under pressure: a consumer that is slow on the device and never waits on the host, batches decoded
 * on the GPU and on the CPU, each kind of stream. Every batch is summed up on the device and must be what a
 * loader without a device gives; the device's memory does not grow meanwhile. */
#define _GNU_SOURCE
#include "gpu_test.h"

#include <feedline/feedline.h>

#include "unit/make_set.h"

enum { N = 149, BATCHES = 500, BATCH = 8, SIDE = 64 };

static uint64_t want[BATCHES], got[BATCHES];

static int batches(void)
{
    return g_short() ? 60 : BATCHES;
}

static FlConfig config(void)
{
    FlConfig cfg = FL_CONFIG_DEFAULT;

    cfg.batch_size = BATCH;
    cfg.shuffle = FL_SHUFFLE_GLOBAL;
    cfg.seed = 8;
    cfg.n_workers = 3;
    cfg.tail = FL_TAIL_DROP;
    fl_config_image(&cfg, "jpg",
                    &(FlImage){ .width = SIDE,
                                .height = SIDE,
                                .crop = FL_CROP_RANDOM_RESIZED,
                                .flip = 0.5f,
                                .mean = FL_IMAGENET_MEAN,
                                .std = FL_IMAGENET_STD,
                                .dtype = FL_BF16 });
    fl_config_label(&cfg, "cls");
    return cfg;
}

static FlLoader *open_loader(FlDataset *ds, const FlConfig *cfg)
{
    FlLoader *l = NULL;

    if (fl_loader_open(&l, ds, cfg)) {
        fprintf(stderr, "%s\n", fl_last_error()->message);
        exit(1);
    }
    return l;
}

static int next(FlLoader *l, FlBatch *batch, cudaStream_t stream)
{
    int e;

    while ((e = fl_loader_next(l, batch, stream)) == FL_EPOCH_END)
        ;
    if (e)
        fprintf(stderr, "%s\n", fl_last_error()->message);
    return e;
}

/* What the batches are, by a loader without a device. */
static void expect(FlDataset *ds)
{
    const FlConfig cfg = config();
    FlLoader *l = open_loader(ds, &cfg);

    for (int b = 0; b < batches(); b++) {
        FlBatch batch = { 0 };
        T_EQ(next(l, &batch, NULL), 0);
        want[b] = g_checksum_host(batch.columns[0].data, (size_t)BATCH * SIDE * SIDE * 3 * 2);
        T_EQ(fl_batch_release(&batch, NULL), 0);
    }
    fl_loader_close(&l);
}

static void press(const char *name, FlDataset *ds, FlDecode decode, cudaStream_t stream)
{
    FlConfig cfg = config();
    size_t free_first = 0, free_last = 0, total;
    uint64_t *sums;
    int wrong = 0;

    t_case(name);
    cfg.device = FL_CUDA(0);
    cfg.decode = decode;
    G_CUDA(cudaMalloc((void **)&sums, sizeof(got)));
    FlLoader *l = open_loader(ds, &cfg);
    for (int b = 0; b < batches(); b++) {
        FlBatch batch = { 0 };
        if (next(l, &batch, stream)) {
            T_EQ(0, 1);
            break;
        }
        g_spin(b % 7 ? 40 : 800, stream); // whoever reuses the slot too early has time to do so
        g_checksum(batch.columns[0].data, (size_t)BATCH * SIDE * SIDE * 3 * 2, sums + b, stream);
        T_EQ(fl_batch_release(&batch, stream), 0);
        if (b == 20)
            cudaMemGetInfo(&free_first, &total);
    }
    cudaMemGetInfo(&free_last, &total);
    T_OK(free_last + (1 << 20) > free_first);
    G_CUDA(cudaStreamSynchronize(stream));
    G_CUDA(cudaMemcpy(got, sums, sizeof(*got) * (size_t)batches(), cudaMemcpyDeviceToHost));
    for (int b = 0; b < batches(); b++)
        wrong += got[b] != want[b];
    T_EQ(wrong, 0);
    FlLoaderStats st = { .struct_size = sizeof(st) };
    T_EQ(fl_loader_stats(l, &st), 0);
    T_OK(decode != FL_DECODE_CPU || !st.decoded_gpu);
    T_OK(decode != FL_DECODE_GPU || st.decoded_gpu > 0);
    printf("%s: %d batches, %d wrong, %.1f MB of device memory, %.1f MB pinned\n", name, batches(),
           wrong, (double)st.device_bytes * 1e-6, (double)st.pinned_bytes * 1e-6);
    fl_loader_close(&l);
    G_CUDA(cudaFree(sums));
}

int main(void)
{
    char dir[256], sliced[256];
    const FlShardOptions opt = { .struct_size = sizeof(opt) };
    cudaStream_t blocking, apart;

    g_require();
    G_CUDA(cudaStreamCreate(&blocking));
    G_CUDA(cudaStreamCreateWithFlags(&apart, cudaStreamNonBlocking));
    ms_tar(ms_temp(dir, sizeof(dir), "pressure"), N, -1);
    ms_temp(sliced, sizeof(sliced), "pressure");
    FlDataset *source = ms_open(dir);
    T_EQ(fl_shard(source, sliced, &opt, NULL), 0);
    fl_dataset_close(&source);
    FlDataset *ds = ms_open(sliced);
    expect(ds);
    press("GPU decode, non-blocking stream", ds, FL_DECODE_GPU, apart);
    press("GPU decode, legacy default stream", ds, FL_DECODE_GPU, NULL);
    press("GPU decode, per-thread default stream", ds, FL_DECODE_GPU, cudaStreamPerThread);
    press("shared decode, blocking stream", ds, FL_DECODE_AUTO, blocking);
    press("CPU decode, non-blocking stream", ds, FL_DECODE_CPU, apart);
    fl_dataset_close(&ds);
    ms_remove(dir);
    ms_remove(sliced);
    cudaStreamDestroy(blocking);
    cudaStreamDestroy(apart);
    return t_done();
}
