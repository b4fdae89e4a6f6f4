/* SPDX-License-Identifier: Apache-2.0 */
/* The report of bad samples with a device: the same lines as on the CPU, whoever decoded. */
#define _GNU_SOURCE
#include "gpu_test.h"

#include <feedline/feedline.h>

#include "unit/make_set.h"

enum { N = 149 };

static cudaStream_t stream;
static char work[256];

static FlConfig config(FlBadSample policy)
{
    FlConfig cfg = FL_CONFIG_DEFAULT;
    const FlImage image = {
        .width = 40, .height = 40, .crop = FL_CROP_RANDOM_RESIZED, .flip = 0.5f
    };

    cfg.batch_size = 16;
    cfg.shuffle = FL_SHUFFLE_GLOBAL;
    cfg.seed = 3;
    cfg.n_workers = 3;
    cfg.bad_sample = policy;
    fl_config_image(&cfg, "jpg", &image);
    fl_config_label(&cfg, "cls");
    return cfg;
}

/* Two epochs, with a save and a restore between them; the report as text. */
static char *run(FlDataset *ds, FlConfig cfg, const char *name)
{
    char path[300], state[FL_STATE_BYTES];
    FlLoader *l = NULL;
    FlBatch b = { 0 };
    int err, size = 0;

    snprintf(path, sizeof(path), "%s/%s", work, name);
    unlink(path);
    cfg.bad_report = path;
    for (int epoch = 0; epoch < 2; epoch++) {
        T_EQ(fl_loader_open(&l, ds, &cfg), 0);
        if (!l) {
            fprintf(stderr, "%s\n", fl_last_error()->message);
            exit(1);
        }
        if (size)
            T_EQ(fl_loader_restore(l, state, (size_t)size, false), 0);
        while ((err = fl_loader_next(l, &b, stream)) != FL_EPOCH_END) {
            if (err)
                T_EQ(err, -EBADMSG);
            else
                T_EQ(fl_batch_release(&b, stream), 0);
            if (err && err != -EBADMSG)
                break;
        }
        size = fl_loader_state(l, state, sizeof(state));
        fl_loader_close(&l);
    }
    char *text = calloc(1, 1 << 20);
    FILE *f = fopen(path, "rb");
    if (f) {
        T_OK(fread(text, 1, (1 << 20) - 1, f) > 0);
        fclose(f);
    }
    return text;
}

static void compare(FlDataset *ds, FlBadSample policy, FlSwitch checksum, const char *name)
{
    FlConfig cfg = config(policy);

    t_case(name);
    cfg.checksum = checksum;
    char *host = run(ds, cfg, "host");
    cfg.device = FL_CUDA(0);
    cfg.decode = FL_DECODE_CPU;
    char *cpu = run(ds, cfg, "cpu");
    cfg.decode = FL_DECODE_AUTO;
    char *any = run(ds, cfg, "auto");
    T_OK(*host != 0);
    T_OK(!strcmp(host, cpu));
    if (strcmp(host, any))
        fprintf(stderr, "host: %.600s\nauto: %.600s\n", host, any);
    T_OK(!strcmp(host, any));
    free(host);
    free(cpu);
    free(any);
}

/* Turn bytes over in the middle of every 20th picture of a sharded set: slices of it are damaged. */
static void damage(const char *dir)
{
    FlDataset *ds = ms_open(dir);
    char path[600];

    for (int64_t s = 3; s < N; s += 20)
        for (int32_t f = 0; f < 4; f++) {
            FlFieldSpan span;
            if (fl_dataset_span(ds, s, f, &span) || strcmp(span.name, "jpg"))
                continue;
            snprintf(path, sizeof(path), "%s/%s", dir, span.container);
            FILE *file = fopen(path, "r+b");
            for (int k = 0; k < 8; k++) {
                fseek(file, (long)(span.offset + span.length / 2 + (uint64_t)k * 7), SEEK_SET);
                fputc(0xFF, file);
            }
            fclose(file);
        }
    fl_dataset_close(&ds);
}

int main(void)
{
    char cut[256], plain[256], sliced[256];
    const FlShardOptions opt = { .struct_size = sizeof(opt) };

    g_require();
    G_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    ms_temp(work, sizeof(work), "report");
    ms_temp(cut, sizeof(cut), "cut");
    ms_temp(plain, sizeof(plain), "plain");
    ms_temp(sliced, sizeof(sliced), "sliced");
    ms_tar(cut, N, 17);
    ms_tar(plain, N, -1);
    FlDataset *ds = ms_open(plain);
    T_EQ(fl_shard(ds, sliced, &opt, NULL), 0);
    fl_dataset_close(&ds);
    damage(sliced);

    ds = ms_open(cut);
    compare(ds, FL_BAD_SKIP, FL_AUTO, "a cut picture, skipped");
    compare(ds, FL_BAD_RAISE, FL_AUTO, "a cut picture, raised");
    compare(ds, FL_BAD_SUBSTITUTE, FL_AUTO, "a cut picture, substituted");
    fl_dataset_close(&ds);
    ds = ms_open(sliced);
    compare(ds, FL_BAD_SKIP, FL_AUTO, "slices whose checksums do not fit");
    compare(ds, FL_BAD_SUBSTITUTE, FL_AUTO, "slices whose checksums do not fit, substituted");
    compare(ds, FL_BAD_SKIP, FL_OFF, "slices that the decoder finds damaged");
    compare(ds, FL_BAD_SUBSTITUTE, FL_OFF, "slices that the decoder finds damaged, substituted");
    fl_dataset_close(&ds);
    ms_remove(cut);
    ms_remove(plain);
    ms_remove(sliced);
    ms_remove(work);
    return t_done();
}
