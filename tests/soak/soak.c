/* SPDX-License-Identifier: Apache-2.0 */
/* A long run over a dataset of which 1% is bad: every count exact, the report complete, memory flat.
 *
 * usage: soak SAMPLES [DIR]      so many samples in all, over a set of a fiftieth of them, made below DIR */
#include <feedline/feedline.h>

#include <time.h>

#include "t.h"
#include "unit/make_set.h"

/* A sanitizer keeps what was freed, and more for each thread that ever was. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
static const bool sanitized = true;
#else
static const bool sanitized = false;
#endif

enum { BYTES = 48, BATCH = 64, SIDE = 16, BAD_EVERY = 100 };

static char dir[256], report[300];
static int64_t set_size, bad_in_set;

static bool is_bad(int64_t i)
{
    return i % BAD_EVERY == 42;
}

/* Every second bad sample is a damaged picture, the others are records of a wrong length. */
static void make_set(const char *where)
{
    char path[300], name[64], text[32];
    uint8_t bytes[BYTES] = { 0 };
    struct mj_bytes jpegs[16];

    snprintf(dir, sizeof(dir), "%s/feedline-soak-XXXXXX", where);
    if (!mkdtemp(dir)) {
        perror(dir);
        exit(1);
    }
    for (int i = 0; i < 16; i++)
        jpegs[i] =
            mj_make(&(struct mj_spec){ .w = 17 + i, .h = 24 - i % 5, .components = 3, .sh = 2 });
    snprintf(path, sizeof(path), "%s/shard-000000.tar", dir);
    FILE *f = fopen(path, "wb");
    for (int64_t i = 0; i < set_size; i++) {
        const struct mj_bytes *j = &jpegs[i % 16];
        const bool bad = is_bad(i), cut = i / BAD_EVERY % 2;
        bad_in_set += bad;
        snprintf(name, sizeof(name), "%07lld.jpg", (long long)i);
        ms_member(f, name, j->data, bad && cut ? j->len / 2 : j->len);
        memcpy(bytes, &i, sizeof(i));
        snprintf(name, sizeof(name), "%07lld.bin", (long long)i);
        ms_member(f, name, bytes, bad && !cut ? BYTES / 2 : BYTES);
        snprintf(name, sizeof(name), "%07lld.cls", (long long)i);
        ms_member(f, name, text, (size_t)snprintf(text, sizeof(text), "%lld", (long long)i % 10));
    }
    static const char end[1024];
    fwrite(end, 1, sizeof(end), f);
    fclose(f);
    for (int i = 0; i < 16; i++)
        free(jpegs[i].data);
    snprintf(report, sizeof(report), "%s/report.jsonl", dir);
}

static double resident_mb(void)
{
    long pages = 0, all;
    FILE *f = fopen("/proc/self/statm", "r");

    if (!f || fscanf(f, "%ld %ld", &all, &pages) != 2)
        pages = 0;
    if (f)
        fclose(f);
    return (double)pages * (double)sysconf(_SC_PAGESIZE) * 1e-6;
}

static int64_t report_lines(void)
{
    FILE *f = fopen(report, "rb");
    int64_t lines = 0;
    int c;

    while (f && (c = getc(f)) != EOF)
        lines += c == '\n';
    if (f)
        fclose(f);
    return lines;
}

static FlConfig config(FlBadSample policy)
{
    static const int64_t shape[] = { BYTES };
    const FlImage image = {
        .width = SIDE, .height = SIDE, .crop = FL_CROP_RANDOM_RESIZED, .flip = 0.5f
    };
    FlConfig cfg = FL_CONFIG_DEFAULT;

    cfg.batch_size = BATCH;
    cfg.shuffle = FL_SHUFFLE_GLOBAL;
    cfg.seed = 1;
    cfg.n_workers = 2;
    cfg.bad_sample = policy;
    cfg.bad_report = report;
    fl_config_image(&cfg, "jpg", &image);
    fl_config_raw(&cfg, "bin", FL_U8, 1, shape);
    fl_config_label(&cfg, "cls");
    return cfg;
}

struct counts {
    int64_t rows, valid, raised, wrong;
};

static void take(const FlBatch *b, struct counts *c)
{
    const uint8_t *bin = b->columns[1].data;

    c->rows += b->size;
    c->valid += b->n_valid;
    for (int64_t i = 0; i < b->size; i++) {
        int64_t number;
        memcpy(&number, bin + i * BYTES, sizeof(number));
        if (b->valid[i])
            c->wrong += number != b->ids[i] || is_bad(number);
        else
            c->wrong += !is_bad(b->ids[i]) || number != 0;
    }
}

/* `epochs` epochs under one policy. */
static void run(FlDataset *ds, const char *name, FlBadSample policy, int64_t epochs)
{
    FlConfig cfg = config(policy);
    FlLoaderStats st = { .struct_size = sizeof(st) };
    struct counts c = { 0 };
    struct timespec t0, t1;
    FlLoader *l = NULL;
    FlBatch b = { 0 };
    double early = 0;
    int err;

    t_case(name);
    unlink(report);
    clock_gettime(CLOCK_MONOTONIC, &t0);
    T_EQ(fl_loader_open(&l, ds, &cfg), 0);
    for (int64_t e = 0; e < epochs; e++) {
        if (e == (epochs + 9) / 10)
            early = resident_mb();
        while ((err = fl_loader_next(l, &b, NULL)) != FL_EPOCH_END) {
            if (err) {
                T_EQ(err, -EBADMSG);
                c.raised++;
                continue;
            }
            take(&b, &c);
            fl_batch_release(&b, NULL);
        }
    }
    const double late = resident_mb();
    clock_gettime(CLOCK_MONOTONIC, &t1);
    T_EQ(fl_loader_stats(l, &st), 0);
    fl_loader_close(&l);
    const int64_t lines = report_lines(), bad = bad_in_set * epochs;
    T_EQ(c.wrong, 0);
    // Read ahead: at most the slots' batches of the epoch to come.
    if (policy == FL_BAD_SKIP) {
        T_EQ(c.rows, set_size * epochs);
        T_EQ(c.valid, c.rows - bad);
        T_EQ(lines, bad);
        T_OK(st.bad_samples >= bad && st.bad_samples <= bad + 4 * BATCH);
    } else if (policy == FL_BAD_SUBSTITUTE) {
        T_EQ(c.valid, set_size * epochs);
        T_OK(lines >= bad &&
             lines < bad + bad / 20 + 10); // stand-ins that were bad too: 1% of them
    } else {
        T_EQ(lines, bad);
        T_OK(c.raised > 0 && c.raised <= bad && c.valid == c.rows);
        T_OK(c.rows + c.raised * BATCH >= set_size * epochs);
    }
    T_OK(late < early + 3 || sanitized);
    printf("%-10s %9lld samples, %lld bad, %lld lines of report, %lld batches raised; resident "
           "%.1f MB after 10%%, "
           "%.1f MB at the end; %.1f s\n",
           name, (long long)(set_size * epochs), (long long)bad, (long long)lines,
           (long long)c.raised, early, late,
           (double)(t1.tv_sec - t0.tv_sec) + (double)(t1.tv_nsec - t0.tv_nsec) * 1e-9);
}

int main(int argc, char **argv)
{
    const int64_t samples = argc > 1 ? strtoll(argv[1], NULL, 10) : 0;
    const char *tmp = getenv("TMPDIR");
    FlDataset *ds = NULL;

    if (samples < 10000) {
        fprintf(stderr, "usage: soak SAMPLES [DIR]    10,000 samples at least\n");
        return 2;
    }
    set_size = samples / 50;
    make_set(argc > 2 ? argv[2] : tmp ? tmp : "/tmp");
    T_EQ(fl_dataset_open(&ds, dir, NULL), 0);
    run(ds, "skip", FL_BAD_SKIP, 20);
    run(ds, "substitute", FL_BAD_SUBSTITUTE, 20);
    run(ds, "raise", FL_BAD_RAISE, 10);
    fl_dataset_close(&ds);
    ms_remove(dir);
    return t_done();
}
