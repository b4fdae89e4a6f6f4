/* SPDX-License-Identifier: Apache-2.0 */
/* The whole loader with a device: the same bytes as on the CPU, holes and padding included; batches that are held,
 * and released after the loader is gone; records that go from the file to the device untouched. */
#define _GNU_SOURCE
#include "gpu_test.h"

#include <feedline/feedline.h>

#include <fcntl.h>

#include "base/clock.h"
#include "base/rng.h"
#include "unit/make_set.h"

enum { N = 61, SIDE = 40 };

static char good[256], bad[256], raw[256];
static cudaStream_t stream;

static FlConfig config(FlDtype dtype, FlLayout layout)
{
    static const int64_t shape[] = { MS_RAW / 4 };
    FlConfig cfg = FL_CONFIG_DEFAULT;

    cfg.batch_size = 16;
    cfg.shuffle = FL_SHUFFLE_GLOBAL;
    cfg.seed = 3;
    cfg.n_workers = 3;
    cfg.tail = FL_TAIL_PAD;
    fl_config_image(&cfg, "jpg",
                    &(FlImage){ .width = SIDE,
                                .height = SIDE,
                                .crop = FL_CROP_RANDOM_RESIZED,
                                .flip = 0.5f,
                                .mean = FL_IMAGENET_MEAN,
                                .std = FL_IMAGENET_STD,
                                .dtype = dtype,
                                .layout = layout });
    fl_config_label(&cfg, "cls");
    fl_config_raw(&cfg, "bin", FL_F32, 1, shape);
    fl_config_bytes(&cfg, "txt", 0);
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

static size_t column_bytes(const FlColumn *c)
{
    size_t bytes = fl_dtype_bytes(c->dtype);

    for (int i = 0; i < c->ndim; i++)
        bytes *= (size_t)c->shape[i];
    return bytes;
}

/* Are the device batch's bytes those of the host batch? */
static void compare(const FlBatch *host, const FlBatch *device)
{
    T_EQ(device->size, host->size);
    T_EQ(device->n_valid, host->n_valid);
    T_EQ(device->position, host->position);
    T_EQ(memcmp(device->ids, host->ids, (size_t)host->size * 8), 0);
    T_EQ(memcmp(device->valid, host->valid, (size_t)host->size), 0);
    uint8_t *got = malloc((size_t)host->size);
    G_CUDA(cudaMemcpyAsync(got, device->device_valid, (size_t)host->size, cudaMemcpyDeviceToHost,
                           stream));
    G_CUDA(cudaStreamSynchronize(stream));
    T_EQ(memcmp(got, host->valid, (size_t)host->size), 0);
    free(got);
    for (int c = 0; c < host->n_columns; c++) {
        const size_t bytes = column_bytes(&host->columns[c]);

        T_EQ(column_bytes(&device->columns[c]), bytes);
        got = malloc(bytes + 1);
        G_CUDA(
            cudaMemcpyAsync(got, device->columns[c].data, bytes, cudaMemcpyDeviceToHost, stream));
        G_CUDA(cudaStreamSynchronize(stream));
        T_EQ(memcmp(got, host->columns[c].data, bytes), 0);
        free(got);
    }
}

static void test_same(const char *name, const char *dir, FlDtype dtype, FlLayout layout)
{
    FlDataset *ds = ms_open(dir);
    FlConfig cfg = config(dtype, layout);
    FlLoader *host, *device;
    int epochs = 0;

    t_case(name);
    cfg.bad_sample = FL_BAD_SKIP;
    cfg.epochs = 2;
    host = open_loader(ds, &cfg);
    cfg.device = FL_CUDA(0);
    device = open_loader(ds, &cfg);
    while (epochs < 2) {
        FlBatch a = { 0 }, b = { 0 };
        const int e = fl_loader_next(host, &a, NULL);

        T_EQ(fl_loader_next(device, &b, stream), e);
        if (e == FL_EPOCH_END) {
            epochs++;
            continue;
        }
        T_EQ(e, 0);
        if (e)
            break;
        compare(&a, &b);
        T_EQ(fl_batch_release(&a, NULL), 0);
        T_EQ(fl_batch_release(&b, stream), 0);
    }
    fl_loader_close(&host);
    fl_loader_close(&device);
    fl_dataset_close(&ds);
}

static void test_held(void)
{
    FlDataset *ds = ms_open(good);
    FlConfig cfg = config(FL_BF16, FL_NHWC);
    FlBatch held[2] = { 0 }, more = { 0 };
    uint64_t *sums, before[2], after[2];

    t_case("held batches");
    cfg.device = FL_CUDA(0);
    FlLoader *l = open_loader(ds, &cfg);
    G_CUDA(cudaMalloc((void **)&sums, 16));
    for (int i = 0; i < 2; i++) {
        T_EQ(fl_loader_next(l, &held[i], stream), 0);
        g_checksum(held[i].columns[0].data, column_bytes(&held[i].columns[0]), sums + i, stream);
    }
    G_CUDA(cudaMemcpyAsync(before, sums, 16, cudaMemcpyDeviceToHost, stream));
    G_CUDA(cudaStreamSynchronize(stream));
    T_EQ(fl_loader_next(l, &more, stream), FL_ERR(EBUSY));
    T_HAS(fl_last_error()->message, "device_slots");
    T_EQ(fl_batch_release(&held[0], stream), 0);
    T_EQ(fl_loader_next(l, &more, stream), 0);
    g_spin(2000, stream);
    T_EQ(fl_batch_release(&more, stream), 0);
    fl_loader_close(&l);
    fl_dataset_close(&ds);
    // The loader is gone; what is held is not.
    g_checksum(held[1].columns[0].data, column_bytes(&held[1].columns[0]), sums + 1, stream);
    G_CUDA(cudaMemcpyAsync(after, sums, 16, cudaMemcpyDeviceToHost, stream));
    G_CUDA(cudaStreamSynchronize(stream));
    T_EQ(after[1], before[1]);
    T_EQ(fl_batch_release(&held[1], stream), 0);
    G_CUDA(cudaDeviceSynchronize());
    cudaFree(sums);
}

static void test_capture(void)
{
    FlDataset *ds = ms_open(good);
    FlConfig cfg = config(FL_F32, FL_NCHW);
    FlBatch batch = { 0 };
    cudaGraph_t graph = NULL;

    t_case("next on a capturing stream");
    cfg.device = FL_CUDA(0);
    FlLoader *l = open_loader(ds, &cfg);
    G_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    T_EQ(fl_loader_next(l, &batch, stream), FL_ERR(EINVAL));
    T_HAS(fl_last_error()->message, "CUDA graph");
    G_CUDA(cudaStreamEndCapture(stream, &graph));
    T_EQ(fl_loader_next(l, &batch, stream), 0); // nothing was lost
    T_EQ(batch.position, 0);
    T_EQ(fl_batch_release(&batch, stream), 0);
    cudaGraphDestroy(graph);
    fl_loader_close(&l);
    fl_dataset_close(&ds);
}

enum { RECORD = 16 << 20, RECORDS = 24 };

/* A real drive is left to itself at this price for each GB: 5% of one core at 2 GB/s. */
#define RAW_CPU_SECONDS 0.025

static int records(void)
{
    return g_short() ? 4 : RECORDS;
}

/* All records through a loader; their sums on the device. */
static void sum_records(FlLoader *l, uint64_t *sums)
{
    FlBatch batch = { 0 };

    while (fl_loader_next(l, &batch, stream) == 0) {
        for (int k = 0; k < 2; k++)
            g_checksum((uint8_t *)batch.columns[0].data + (size_t)k * RECORD, RECORD,
                       sums + batch.ids[k], stream);
        T_EQ(fl_batch_release(&batch, stream), 0);
    }
}

static void check_records(const uint64_t *got)
{
    uint8_t *record = malloc(RECORD);
    int wrong = 0;

    for (int i = 0; i < records(); i++) {
        for (int k = 0; k < RECORD; k++)
            record[k] = (uint8_t)(i * 13 + k * 7 + (k >> 9));
        wrong += got[i] != g_checksum_host(record, RECORD);
    }
    T_EQ(wrong, 0);
    free(record);
}

/* Out of the page cache, so that O_DIRECT is what the loader chooses; or into it. */
static void cache(const char *dir, bool in)
{
    static char buf[1 << 20];
    char path[300];

    snprintf(path, sizeof(path), "%s/raw.tar", dir);
    const int fd = open(path, O_RDONLY);
    T_OK(fd >= 0);
    fdatasync(fd);
    if (!in)
        posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    while (in && read(fd, buf, sizeof(buf)) > 0)
        ;
    close(fd);
}

/* Records of 16 MiB: what the file holds is on the device, and the CPU has hardly touched it. */
static void test_raw(bool cold)
{
    static const int64_t shape[] = { RECORD };
    FlDataset *ds = ms_open(raw);
    FlConfig cfg = FL_CONFIG_DEFAULT;
    FlLoaderStats stats = { .struct_size = sizeof(stats) };
    uint64_t *sums, got[RECORDS];

    t_case(cold ? "raw records from the drive" : "raw records from the page cache");
    cfg.batch_size = 2;
    cfg.n_workers = 1;
    cfg.epochs = 1;
    cfg.device = FL_CUDA(0);
    cfg.checksum = FL_OFF; // as a job would that must not touch the bytes
    cfg.direct = cold ? FL_AUTO : FL_OFF;
    fl_config_raw(&cfg, "bin", FL_U8, 1, shape);
    G_CUDA(cudaMalloc((void **)&sums, sizeof(got)));
    cache(raw, !cold);
    FlLoader *l = open_loader(ds, &cfg);
    const int64_t t0 = fl_now_ns();
    sum_records(l, sums);
    G_CUDA(cudaMemcpyAsync(got, sums, (size_t)records() * 8, cudaMemcpyDeviceToHost, stream));
    G_CUDA(cudaStreamSynchronize(stream));
    const double seconds = (double)(fl_now_ns() - t0) * 1e-9, gb = RECORD * records() * 1e-9;
    T_EQ(fl_loader_stats(l, &stats), 0);
    check_records(got);
    printf("raw records, %s: %.2f GB/s, %.1f%% of one core, %.4f CPU s/GB, %s, direct %d, "
           "%.2f GB/s to the device\n",
           cold ? "cold" : "page cache", gb / seconds, 100 * stats.cpu_seconds / seconds,
           stats.cpu_seconds / gb, stats.io_backend, stats.io_direct,
           (double)stats.stages[FL_STAGE_DEVICE].bytes / (stats.h2d_seconds * 1e9));
    if (cold && stats.io_direct == 1 && !g_short()) // a sanitizer's time is not ours
        T_OK(stats.cpu_seconds / gb < RAW_CPU_SECONDS);
    cudaFree(sums);
    fl_loader_close(&l);
    fl_dataset_close(&ds);
}

static void make_raw(const char *dir)
{
    uint8_t *record = malloc(RECORD);
    char path[300], name[32];

    snprintf(path, sizeof(path), "%s/raw.tar", dir);
    FILE *tar = fopen(path, "wb");
    static const char end[1024];
    for (int i = 0; i < records(); i++) {
        for (int k = 0; k < RECORD; k++)
            record[k] = (uint8_t)(i * 13 + k * 7 + (k >> 9));
        snprintf(name, sizeof(name), "%06d.bin", i);
        ms_member(tar, name, record, RECORD);
    }
    fwrite(end, 1, sizeof(end), tar);
    fclose(tar);
    free(record);
}

int main(void)
{
    g_require();
    G_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    ms_tar(ms_temp(good, sizeof(good), "gpu"), N, -1);
    ms_tar(ms_temp(bad, sizeof(bad), "gpu"), N, 17);
    make_raw(ms_temp(raw, sizeof(raw), "gpu"));
    test_same("uint8 NHWC", good, FL_U8, FL_NHWC);
    test_same("uint8 NCHW", good, FL_U8, FL_NCHW);
    if (!g_short()) {
        test_same("float32 NCHW", good, FL_F32, FL_NCHW);
        test_same("float16 NHWC", good, FL_F16, FL_NHWC);
    }
    test_same("bfloat16 NHWC", good, FL_BF16, FL_NHWC);
    test_same("bfloat16 NCHW with a hole", bad, FL_BF16, FL_NCHW);
    test_same("uint8 NHWC with a hole", bad, FL_U8, FL_NHWC);
    test_held();
    test_capture();
    test_raw(true);
    test_raw(false);
    ms_remove(good);
    ms_remove(bad);
    ms_remove(raw);
    cudaStreamDestroy(stream);
    return t_done();
}
