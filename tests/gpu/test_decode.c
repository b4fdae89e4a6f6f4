/* SPDX-License-Identifier: Apache-2.0 */
/* JPEG on the GPU inside the whole loader: the bytes of a batch do not tell where its pictures were decoded. */
#define _GNU_SOURCE
#include "gpu_test.h"

#include <feedline/feedline.h>

#include "unit/make_set.h"

enum { N = 149 };

static cudaStream_t stream;

static const struct {
    const char *name;
    FlImage image;
    int64_t batch;
} cases[] = {
    { "uint8, random crop",
      { .width = 48, .height = 40, .crop = FL_CROP_RANDOM_RESIZED, .flip = 0.5f },
      16 },
    { "bfloat16 NHWC, random crop",
      { .width = 224,
        .height = 224,
        .crop = FL_CROP_RANDOM_RESIZED,
        .flip = 0.5f,
        .mean = FL_IMAGENET_MEAN,
        .std = FL_IMAGENET_STD,
        .dtype = FL_BF16 },
      32 },
    { "float32 NCHW, centre crop",
      { .width = 33,
        .height = 57,
        .crop = FL_CROP_CENTER,
        .mean = FL_IMAGENET_MEAN,
        .std = FL_IMAGENET_STD,
        .dtype = FL_F32,
        .layout = FL_NCHW },
      7 },
    { "small: reduced DCT scales", { .width = 12, .height = 12, .crop = FL_CROP_NONE }, 50 },
    { "grey, upright", { .width = 30, .height = 30, .channels = 1, .orient = true }, 20 },
};

/* Byte by byte, where the batches differ first: -1 nowhere. */
static int64_t differs(const FlBatch *host, const FlBatch *device)
{
    const FlColumn *c = &host->columns[0];
    size_t bytes = fl_dtype_bytes(c->dtype);
    int64_t at = -1;

    for (int i = 0; i < c->ndim; i++)
        bytes *= (size_t)c->shape[i];
    uint8_t *got = malloc(bytes);
    G_CUDA(cudaMemcpyAsync(got, device->columns[0].data, bytes, cudaMemcpyDeviceToHost, stream));
    G_CUDA(cudaStreamSynchronize(stream));
    for (size_t i = 0; i < bytes && at < 0; i++)
        if (got[i] != ((const uint8_t *)c->data)[i])
            at = (int64_t)i;
    free(got);
    return at;
}

static void compare_loaders(FlLoader *host, FlLoader *device)
{
    for (int epochs = 0; epochs < (g_short() ? 1 : 3);) {
        FlBatch a = { 0 }, b = { 0 };
        const int e = fl_loader_next(host, &a, NULL), f = fl_loader_next(device, &b, stream);
        T_EQ(f, e);
        if (f != e)
            fprintf(stderr, "%s\n", fl_last_error()->message);
        epochs += e == FL_EPOCH_END;
        if ((e && e != FL_EPOCH_END) || f != e)
            return;
        if (e)
            continue;
        T_EQ(memcmp(a.ids, b.ids, (size_t)a.size * 8), 0);
        T_EQ(differs(&a, &b), -1);
        T_EQ(fl_batch_release(&a, NULL), 0);
        T_EQ(fl_batch_release(&b, stream), 0);
    }
}

static bool has_labels(FlDataset *ds)
{
    FlFieldInfo f;

    for (int i = 0; !fl_dataset_field(ds, i, &f); i++)
        if (!strcmp(f.name, "cls"))
            return true;
    return false;
}

static void test_loaders(FlDataset *ds, int workers, FlDecode decode)
{
    for (size_t i = 0; i < T_LEN(cases); i++) {
        FlConfig cfg = FL_CONFIG_DEFAULT;
        FlLoader *host = NULL, *device = NULL;
        t_case(cases[i].name);
        cfg.batch_size = cases[i].batch;
        cfg.shuffle = FL_SHUFFLE_GLOBAL;
        cfg.seed = 11;
        cfg.n_workers = workers;
        fl_config_image(&cfg, "jpg", &cases[i].image);
        if (has_labels(ds))
            fl_config_label(&cfg, "cls");
        T_EQ(fl_loader_open(&host, ds, &cfg), 0);
        cfg.device = FL_CUDA(0);
        cfg.decode = decode;
        if (fl_loader_open(&device, ds, &cfg)) {
            T_STR(fl_last_error()->message, "");
            exit(1);
        }
        compare_loaders(host, device);
        FlLoaderStats st = { .struct_size = sizeof(st) };
        T_EQ(fl_loader_stats(device, &st), 0);
        T_OK(st.decoded_gpu > 0);
        T_OK(decode == FL_DECODE_AUTO || st.left_balance == 0);
        T_EQ(st.left_again, 0);
        printf("%s: %lld on the GPU, %lld on the CPU; of these %lld by kind, %lld by balance, %lld "
               "without room\n",
               cases[i].name, (long long)st.decoded_gpu, (long long)st.decoded_cpu,
               (long long)st.left_kind, (long long)st.left_balance, (long long)st.left_room);
        fl_loader_close(&host);
        fl_loader_close(&device);
    }
}

static void test_set(const char *dir, int workers)
{
    FlDataset *ds = ms_open(dir);

    test_loaders(ds, workers, FL_DECODE_GPU);
    fl_dataset_close(&ds);
}

/* Unmodified files, with entry points in an index of their own; what is progressive goes to the CPU. */
static void test_entered(const char *dir, int workers, FlDecode decode)
{
    FlDatasetOptions opt = FL_DATASET_OPTIONS_DEFAULT;
    char to[256], index[300];
    FlDataset *ds = NULL;

    ms_temp(to, sizeof(to), "entered");
    snprintf(index, sizeof(index), "%s/index.fli", to);
    opt.index_path = index;
    opt.entry_points = true;
    T_EQ(fl_dataset_open(&ds, dir, &opt), 0);
    if (ds)
        test_loaders(ds, workers, decode);
    fl_dataset_close(&ds);
    ms_remove(to);
}

/* A state saved in one is restored in the other, with batches in the decoder. */
static void test_resume(const char *dir)
{
    FlDataset *ds = ms_open(dir);
    FlConfig cfg = FL_CONFIG_DEFAULT;
    FlLoader *host = NULL, *device = NULL;
    char state[FL_STATE_BYTES];
    FlBatch b = { 0 };

    t_case("resume");
    cfg.batch_size = 9;
    cfg.shuffle = FL_SHUFFLE_GLOBAL;
    cfg.seed = 2;
    cfg.n_workers = 2;
    fl_config_image(&cfg, "jpg", &cases[0].image);
    T_EQ(fl_loader_open(&host, ds, &cfg), 0);
    cfg.device = FL_CUDA(0);
    cfg.decode = FL_DECODE_GPU;
    T_EQ(fl_loader_open(&device, ds, &cfg), 0);
    for (int i = 0; i < 20; i++) {
        if (!fl_loader_next(host, &b, NULL))
            T_EQ(fl_batch_release(&b, NULL), 0);
        const int n = fl_loader_state(host, state, sizeof(state));
        T_EQ(fl_loader_restore(device, state, (size_t)n, false), 0);
    }
    compare_loaders(host, device);
    fl_loader_close(&host);
    fl_loader_close(&device);
    fl_dataset_close(&ds);
}

/* Real pictures: those of a folder, sharded for the occasion. */
static void test_photos(const char *shared)
{
    char photos[512], sharded[256], index[300];
    const FlShardOptions opt = { .struct_size = sizeof(opt), .no_check = true };
    FlDatasetOptions open = FL_DATASET_OPTIONS_DEFAULT;
    FlDataset *ds = NULL;

    snprintf(photos, sizeof(photos), "%s/photos", shared ? shared : ".");
    if (access(photos, R_OK)) {
        printf("no photos at %s: not tried on them\n", photos);
        return;
    }
    t_case("photos");
    ms_temp(sharded, sizeof(sharded), "photos");
    snprintf(index, sizeof(index), "%s/source.fli", sharded);
    open.index_path = index; // their folder stays as it is
    T_EQ(fl_dataset_open(&ds, photos, &open), 0);
    T_EQ(unlink(index), 0);
    T_EQ(fl_shard(ds, sharded, &opt, NULL), 0);
    fl_dataset_close(&ds);
    test_set(sharded, 8);
    ms_remove(sharded);
    t_case("photos by entry points");
    test_entered(photos, 8, FL_DECODE_GPU);
    test_entered(photos, 8, FL_DECODE_AUTO);
}

int main(void)
{
    char dir[256], sliced[256];
    const FlShardOptions opt = { .struct_size = sizeof(opt) };
    const char *shared = getenv("FL_TEST_SHARED");

    g_require();
    G_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    ms_temp(dir, sizeof(dir), "decode");
    ms_tar(dir, N, -1);
    ms_temp(sliced, sizeof(sliced), "sliced");
    FlDataset *ds = ms_open(dir);
    T_EQ(fl_shard(ds, sliced, &opt, NULL), 0);
    test_set(sliced, 3);
    if (!g_short())
        test_set(sliced, 0);
    test_resume(sliced);
    test_entered(dir, 3, FL_DECODE_GPU);
    test_entered(dir, 2, FL_DECODE_AUTO);

    t_case("nothing to decode on the GPU");
    FlConfig cfg = FL_CONFIG_DEFAULT;
    FlLoader *l = NULL;
    cfg.batch_size = 4;
    cfg.device = FL_CUDA(0);
    cfg.decode = FL_DECODE_GPU;
    fl_config_image(&cfg, "jpg", &cases[0].image);
    T_EQ(fl_loader_open(&l, ds, &cfg), FL_ERR(EINVAL));
    T_HAS(fl_last_error()->message, "feedline shard");
    fl_dataset_close(&ds);

    if (!g_short())
        test_photos(shared);
    ms_remove(dir);
    ms_remove(sliced);
    return t_done();
}
