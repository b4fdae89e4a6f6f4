/* SPDX-License-Identifier: Apache-2.0 */
/* Entry points never show in a batch: unmodified files read and decoded from the middle give the bytes of
 * those decoded whole, whatever the crop, and fewer bytes are read. Damage is the sample's error. */
#define _GNU_SOURCE
#include <feedline/feedline.h>

#include <unistd.h>

#include "t.h"
#include "unit/make_set.h"

static char top[512]; // for indexes

static FlDataset *open_at(const char *dir, const char *name, bool entry_points)
{
    FlDatasetOptions opt = FL_DATASET_OPTIONS_DEFAULT;
    FlDataset *ds = NULL;
    char index[600];

    snprintf(index, sizeof(index), "%s/%s.fli", top, name);
    opt.index_path = index;
    opt.entry_points = entry_points;
    if (fl_dataset_open(&ds, dir, &opt)) {
        fprintf(stderr, "%s\n", fl_last_error()->message);
        exit(1);
    }
    return ds;
}

static int64_t with_points(FlDataset *ds)
{
    FlFieldInfo f;

    for (int i = 0; !fl_dataset_field(ds, i, &f); i++)
        if (!strcmp(f.name, "jpg"))
            return f.entry_points;
    return -1;
}

static const struct {
    const char *name;
    FlImage image;
} views[] = {
    { "random crop", { .width = 64, .height = 56, .crop = FL_CROP_RANDOM_RESIZED, .flip = 0.5f } },
    { "random crop, exact, float32",
      { .width = 40,
        .height = 72,
        .crop = FL_CROP_RANDOM_RESIZED,
        .flip = 0.5f,
        .exact = FL_ON,
        .dtype = FL_F32,
        .layout = FL_NCHW,
        .mean = FL_IMAGENET_MEAN,
        .std = FL_IMAGENET_STD } },
    { "small crops at reduced scales",
      { .width = 9, .height = 11, .crop = FL_CROP_RANDOM_RESIZED, .scale = { 0.3f, 1 } } },
    { "tiny crops",
      { .width = 24, .height = 24, .crop = FL_CROP_RANDOM_RESIZED, .scale = { 0.001f, 0.02f } } },
    { "centre", { .width = 33, .height = 57, .crop = FL_CROP_CENTER } },
    { "all of it", { .width = 20, .height = 20, .crop = FL_CROP_NONE } },
    { "grey, upright",
      { .width = 30,
        .height = 30,
        .crop = FL_CROP_RANDOM_RESIZED,
        .channels = 1,
        .orient = true } },
};

static size_t bytes_of(const FlColumn *c)
{
    size_t n = fl_dtype_bytes(c->dtype);

    for (int i = 0; i < c->ndim; i++)
        n *= (size_t)c->shape[i];
    return n;
}

/* Rows that differ in two loaders' batches, until both have ended. */
static int64_t differing(FlLoader *a, FlLoader *b)
{
    int64_t wrong = 0;

    for (;;) {
        FlBatch x = { 0 }, y = { 0 };
        const int e = fl_loader_next(a, &x, NULL), f = fl_loader_next(b, &y, NULL);
        T_EQ(f, e);
        if (e || f) {
            if (e < 0 || f < 0)
                fprintf(stderr, "%s\n", fl_last_error()->message);
            return wrong;
        }
        const size_t row = bytes_of(&x.columns[0]) / (size_t)x.size;
        T_EQ(memcmp(x.ids, y.ids, (size_t)x.size * sizeof(*x.ids)), 0);
        for (int64_t i = 0; i < x.size; i++) {
            const uint8_t *p = x.columns[0].data, *q = y.columns[0].data;
            const bool same =
                x.valid[i] == y.valid[i] && !memcmp(p + (size_t)i * row, q + (size_t)i * row, row);
            if (!same)
                fprintf(stderr, "sample %lld differs\n", (long long)x.ids[i]);
            wrong += !same;
        }
        T_EQ(fl_batch_release(&x, NULL), 0);
        T_EQ(fl_batch_release(&y, NULL), 0);
    }
}

static uint64_t wanted(FlLoader *l)
{
    FlLoaderStats st = { .struct_size = sizeof(st) };

    T_EQ(fl_loader_stats(l, &st), 0);
    return st.bytes_wanted;
}

static void compare(FlDataset *plain, FlDataset *entered, size_t first, size_t last, int64_t every,
                    int epochs, int workers)
{
    static int64_t subset[4096];
    FlDatasetInfo info;
    int64_t n = 0;

    T_EQ(fl_dataset_info(plain, &info), 0);
    for (int64_t i = 0; i < info.n_samples && n < (int64_t)T_LEN(subset); i += every)
        subset[n++] = i;
    for (size_t v = first; v < last; v++) {
        FlConfig cfg = FL_CONFIG_DEFAULT;
        FlLoader *a = NULL, *b = NULL;
        t_case(views[v].name);
        cfg.batch_size = 13;
        cfg.shuffle = FL_SHUFFLE_GLOBAL;
        cfg.seed = 5 + v;
        cfg.epochs = epochs;
        cfg.n_workers = workers;
        cfg.bad_sample = FL_BAD_SKIP;
        cfg.subset = subset;
        cfg.n_subset = n;
        T_EQ(fl_config_image(&cfg, "jpg", &views[v].image), 0);
        T_EQ(fl_loader_open(&a, plain, &cfg), 0);
        T_EQ(fl_loader_open(&b, entered, &cfg), 0);
        for (int e = 0; e < epochs; e++)
            T_EQ(differing(a, b), 0);
        if (views[v].image.crop == FL_CROP_RANDOM_RESIZED)
            T_OK(wanted(b) < wanted(a));
        fl_loader_close(&a);
        fl_loader_close(&b);
    }
}

/* Every sampling with restart intervals of every kind, at odd sizes; some progressive, some of RGB. */
static int make(const char *dir)
{
    static const struct {
        int w, h;
    } sizes[] = { { 1, 1 },    { 8, 8 },     { 9, 17 },   { 16, 31 },   { 33, 20 },
                  { 65, 129 }, { 200, 160 }, { 333, 97 }, { 250, 251 }, { 640, 470 } };
    static const int factors[][2] = { { 1, 1 }, { 2, 1 }, { 1, 2 }, { 2, 2 }, { 4, 1 } };
    char path[600];
    int n = 0;

    for (size_t s = 0; s < T_LEN(sizes); s++)
        for (size_t f = 0; f <= T_LEN(factors); f++, n++) {
            const bool grey = f == T_LEN(factors);
            const int row = (sizes[s].w + 7) / 8;
            const int restarts[] = { 0, 1, 3, row, 2 * row, row / 2 + 1 };
            const struct mj_spec spec = { .w = sizes[s].w,
                                          .h = sizes[s].h,
                                          .components = grey ? 1 : 3,
                                          .sh = grey ? 1 : factors[f][0],
                                          .sv = grey ? 1 : factors[f][1],
                                          .quality = n % 4 == 1   ? 100
                                                     : n % 4 == 2 ? 30
                                                                  : 0,
                                          .restart = restarts[(s + f) % T_LEN(restarts)],
                                          .optimize = n % 3 == 0,
                                          .rgb = f == 0 && s % 3 == 2,
                                          .progressive = n % 17 == 16 };
            struct mj_bytes jpeg = mj_make(&spec);
            snprintf(path, sizeof(path), "%s/%03d.jpg", dir, n);
            ms_write(path, jpeg.data, jpeg.len);
            free(jpeg.data);
        }
    return n;
}

static void test_made(void)
{
    char dir[256];

    ms_temp(dir, sizeof(dir), "entered");
    const int n = make(dir);
    FlDataset *plain = open_at(dir, "plain", false), *entered = open_at(dir, "entered", true);
    T_EQ(with_points(plain), 0);
    T_OK(with_points(entered) > n / 2 && with_points(entered) < n);
    compare(plain, entered, 0, T_LEN(views), 1, 2, 2);
    compare(plain, entered, 0, 2, 1, 1, 0);
    fl_dataset_close(&plain);
    fl_dataset_close(&entered);
    ms_remove(dir);
}

/* One byte of a scan changes after the dataset was indexed: whoever reads there hears of it, by place and
 * name; other crops do not. */
static void test_damage(void)
{
    const struct mj_spec spec = { .w = 800, .h = 800, .components = 3, .sh = 2, .sv = 2 };
    struct mj_bytes jpeg = mj_make(&spec);
    FlConfig cfg = FL_CONFIG_DEFAULT;
    FlImage image = {
        .width = 32, .height = 32, .crop = FL_CROP_RANDOM_RESIZED, .scale = { 0.01f, 0.05f }
    };
    char dir[256], path[600];
    FlLoader *l = NULL;
    FlBatch b = { 0 };
    int good = 0, bad = 0;

    t_case("damage");
    ms_temp(dir, sizeof(dir), "entered");
    snprintf(path, sizeof(path), "%s/0.jpg", dir);
    ms_write(path, jpeg.data, jpeg.len);
    FlDataset *ds = open_at(dir, "damage", true);
    FILE *f = fopen(
        path,
        "r+b"); // in place: the hash of a file's first bytes, not its time, says that it is the same
    fseek(f, (long)(jpeg.len / 2), SEEK_SET);
    fputc(jpeg.data[jpeg.len / 2] ^ 4, f);
    fclose(f);
    cfg.batch_size = 1;
    cfg.shuffle = FL_SHUFFLE_GLOBAL;
    cfg.n_workers = 1;
    T_EQ(fl_config_image(&cfg, "jpg", &image), 0);
    T_EQ(fl_loader_open(&l, ds, &cfg), 0);
    for (int i = 0; i < 200;) {
        const int e = fl_loader_next(l, &b, NULL);
        i += e != FL_EPOCH_END;
        if (e == FL_ERR(EBADMSG) && !bad++) {
            T_HAS(fl_last_error()->message, "row group");
            T_HAS(fl_last_error()->message, "0.jpg");
        }
        T_OK(!e || e == FL_EPOCH_END || e == FL_ERR(EBADMSG));
        if (!e)
            T_EQ(fl_batch_release(&b, NULL), 0);
        good += !e;
    }
    T_OK(good > 20 && bad > 5);
    fl_loader_close(&l);
    fl_dataset_close(&ds);
    free(jpeg.data);
    ms_remove(dir);
}

static void test_shared(const char *name, size_t first, size_t last, int64_t every)
{
    const char *shared = getenv("FL_TEST_SHARED");
    char dir[600];

    snprintf(dir, sizeof(dir), "%s/%s", shared ? shared : "", name);
    if (!shared || access(dir, R_OK)) {
        printf("without %s\n", name);
        return;
    }
    FlDataset *plain = open_at(dir, name, false);
    char entered_name[64];
    snprintf(entered_name, sizeof(entered_name), "%s-entered", name);
    FlDataset *entered = open_at(dir, entered_name, true);
    printf("%s: %lld pictures with entry points\n", name, (long long)with_points(entered));
    T_OK(with_points(entered) > 10);
    compare(plain, entered, first, last, every, 1, 2);
    fl_dataset_close(&plain);
    fl_dataset_close(&entered);
}

int main(int argc, char **argv)
{
    const int64_t every = argc > 1 ? atoi(argv[1]) : 7; // of the photos; 1 takes a while

    ms_temp(top, sizeof(top), "entry-indexes");
    test_made();
    test_damage();
    test_shared("odd-jpegs", 0, T_LEN(views), 1);
    test_shared("photos", 0, every == 1 ? T_LEN(views) : 2, every);
    ms_remove(top);
    return t_done();
}
