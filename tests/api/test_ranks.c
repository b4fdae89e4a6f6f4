/* SPDX-License-Identifier: Apache-2.0 */
/* Order x subset x ranks x batch x tail x workers: what each rank gets, how much of it, and where states stand. */
#include <feedline/feedline.h>

#include <time.h>
#include <unistd.h>

#include "make_tar.h"
#include "t.h"

enum { N = 97 };

static char dir[256], said[512];
static FlDataset *ds;

/* One archive: the ranks' and workers' parallelism must not depend on the number of files. */
static void make_set(void)
{
    const char *tmp = getenv("TMPDIR");
    char path[300], name[64], text[32];

    snprintf(dir, sizeof(dir), "%s/feedline-ranks-XXXXXX", tmp ? tmp : "/tmp");
    if (!mkdtemp(dir))
        exit(1);
    snprintf(path, sizeof(path), "%s/s.tar", dir);
    FILE *f = fopen(path, "wb");
    for (int i = 0; i < N; i++) {
        snprintf(name, sizeof(name), "%05d.num", i);
        tar_member(f, name, text,
                   (size_t)snprintf(text, sizeof(text), "%04d", i)); // a leading zero: bytes
    }
    tar_end(f);
    fclose(f);
    T_EQ(fl_dataset_open(&ds, dir, NULL), 0);
}

static FlConfig config(FlShuffle shuffle, int64_t batch)
{
    static const int64_t shape[] = { 4 };
    FlConfig cfg = FL_CONFIG_DEFAULT;

    cfg.shuffle = shuffle;
    cfg.seed = 11;
    cfg.batch_size = batch;
    cfg.n_workers = 1;
    cfg.read_bytes = 1 << 20;
    cfg.block_bytes = 20;
    cfg.window = 3;
    fl_config_raw(&cfg, "num", FL_U8, 1, shape);
    return cfg;
}

struct counts {
    int seen[N];
    int64_t batches, samples, rows;
};

/* One epoch of one rank. */
static void epoch(FlLoader *l, struct counts *c)
{
    FlBatch b = { 0 };
    int err;

    while (!(err = fl_loader_next(l, &b, NULL))) {
        T_OK(b.size > 0);
        c->batches++;
        c->rows += b.size;
        for (int64_t i = 0; i < b.size; i++) {
            char text[8];
            if (!b.valid[i])
                continue;
            c->samples++;
            c->seen[b.ids[i]]++;
            snprintf(text, sizeof(text), "%04d", (int)b.ids[i]);
            if (memcmp((const char *)b.columns[0].data + i * 4, text, 4))
                T_OK(!"the row holds its sample");
        }
        fl_batch_release(&b, NULL);
    }
    T_EQ(err, FL_EPOCH_END);
}

/* All ranks of one combination, two epochs each. */
static void check_world(FlConfig *cfg, int world, const int *want, int64_t n)
{
    const int64_t global = cfg->batch_size * world;
    struct counts all[2];
    int64_t batches = -1;

    memset(all, 0, sizeof(all));
    cfg->world_size = world;
    for (cfg->rank = 0; cfg->rank < world; cfg->rank++) {
        FlLoader *l = NULL;
        T_EQ(fl_loader_open(&l, ds, cfg), 0);
        for (int e = 0; e < 2; e++) {
            const struct counts before = all[e];
            epoch(l, &all[e]);
            T_EQ(all[e].batches - before.batches, fl_loader_batches(l));
            T_EQ(all[e].samples - before.samples, fl_loader_samples(l));
        }
        if (cfg->tail != FL_TAIL_PARTIAL) {
            T_OK(batches < 0 || batches == fl_loader_batches(l));
            batches = fl_loader_batches(l);
        }
        fl_loader_close(&l);
    }
    for (int e = 0; e < 2; e++) {
        int wrong = 0;
        for (int i = 0; i < N; i++)
            wrong +=
                cfg->tail == FL_TAIL_DROP ? all[e].seen[i] > want[i] : all[e].seen[i] != want[i];
        T_EQ(wrong, 0);
        T_EQ(all[e].samples, cfg->tail == FL_TAIL_DROP ? n / global * global : n);
        T_EQ(all[e].rows,
             cfg->tail == FL_TAIL_PAD ? (n + global - 1) / global * global : all[e].samples);
    }
}

static void test_matrix(void)
{
    static const int64_t repeats[] = { 3, 3, 96, 0, 17, 5, 5, 5, 40, 41 }, one[] = { 64 };
    static const struct {
        const char *name;
        const int64_t *subset;
        int64_t n;
    } subsets[] = { { "all", NULL, N }, { "repeats", repeats, T_LEN(repeats) }, { "one", one, 1 } };
    static const int64_t batches[] = { 1, 7 };
    char name[100];

    for (int shuffle = FL_SHUFFLE_NONE; shuffle <= FL_SHUFFLE_BLOCK; shuffle++)
        for (size_t s = 0; s < T_LEN(subsets); s++)
            for (size_t k = 0; k < T_LEN(batches); k++)
                for (int world = 1; world <= 3; world += 2)
                    for (int tail = FL_TAIL_PARTIAL; tail <= FL_TAIL_PAD; tail++) {
                        FlConfig cfg = config((FlShuffle)shuffle, batches[k]);
                        int want[N] = { 0 };
                        snprintf(name, sizeof(name), "shuffle %d, %s, batch %d, world %d, tail %d",
                                 shuffle, subsets[s].name, (int)batches[k], world, tail);
                        t_case(name);
                        for (int64_t i = 0; i < subsets[s].n; i++)
                            want[subsets[s].subset ? subsets[s].subset[i] : i]++;
                        cfg.subset = subsets[s].subset;
                        cfg.n_subset = cfg.subset ? subsets[s].n : 0;
                        cfg.tail = (FlTail)tail;
                        cfg.n_workers = (int32_t)(s + k + (size_t)world + (size_t)tail) % 4;
                        if (tail == FL_TAIL_DROP && subsets[s].n < batches[k] * world)
                            continue; // refused: it would leave nothing
                        check_world(&cfg, world, want, subsets[s].n);
                    }
}

static void test_reshuffle(void)
{
    FlConfig cfg = config(FL_SHUFFLE_GLOBAL, 4);
    struct counts c[8];
    FlLoader *l = NULL;
    int64_t common = 0, pairs = 0;

    t_case("a rank sees other samples in every epoch: a quarter in common, with four ranks");
    memset(c, 0, sizeof(c));
    cfg.world_size = 4;
    cfg.tail = FL_TAIL_DROP; // 24 of 97 for each rank
    T_EQ(fl_loader_open(&l, ds, &cfg), 0);
    for (int e = 0; e < 8; e++)
        epoch(l, &c[e]);
    fl_loader_close(&l);
    for (int a = 0; a < 8; a++)
        for (int b = a + 1; b < 8; b++, pairs++)
            for (int i = 0; i < N; i++)
                common += c[a].seen[i] && c[b].seen[i];
    // 24 * 24 / 97 = 5.9 for each of 28 pairs: 166, sigma about 10.
    T_EQ(pairs, 28);
    T_OK(common > 116 && common < 216);
}

static void keep_log(void *cookie, FlLogLevel level, const char *text)
{
    (void)cookie;
    if (level == FL_LOG_INFO && strstr(text, "rank"))
        snprintf(said, sizeof(said), "%s", text);
}

static void test_said(void)
{
    FlConfig cfg = config(FL_SHUFFLE_GLOBAL, 4);
    FlLoader *l = NULL;

    t_case("the slice is said, and a seed is needed for it");
    cfg.rank = 2;
    cfg.world_size = 4;
    cfg.log = keep_log;
    T_EQ(fl_loader_open(&l, ds, &cfg), 0);
    T_HAS(said, "rank 2 of 4: 6 batches an epoch");
    fl_loader_close(&l);
    cfg.seed = FL_SEED_UNSET;
    T_EQ(fl_loader_open(&l, ds, &cfg), -EINVAL);
    T_HAS(fl_last_error()->message, "seed is not set");
    cfg.shuffle = FL_SHUFFLE_NONE;
    T_EQ(fl_loader_open(&l, ds, &cfg), 0);
    fl_loader_close(&l);
    t_case("rank and world size are never taken from the environment by themselves");
    setenv("RANK", "1", 1);
    setenv("WORLD_SIZE", "2", 1);
    cfg.rank = 0;
    cfg.world_size = 1;
    T_EQ(fl_loader_open(&l, ds, &cfg), 0);
    T_EQ(fl_loader_samples(l), N);
    fl_loader_close(&l);
}

/* Where a state of l puts a new loader. */
static void expect_state(FlLoader *l, int64_t epoch_no, int64_t position)
{
    FlConfig cfg = config(FL_SHUFFLE_GLOBAL, 10);
    char state[FL_STATE_BYTES];
    FlLoader *fresh = NULL;
    FlBatch b = { 0 };
    const int size = fl_loader_state(l, state, sizeof(state));

    T_EQ(fl_loader_open(&fresh, ds, &cfg), 0);
    T_EQ(fl_loader_restore(fresh, state, (size_t)size, false), 0);
    T_EQ(fl_loader_next(fresh, &b, NULL), 0);
    T_EQ(b.epoch, epoch_no);
    T_EQ(b.position, position);
    fl_batch_release(&b, NULL);
    int64_t left = 1;
    while (!fl_loader_next(fresh, &b, NULL)) {
        left++;
        fl_batch_release(&b, NULL);
    }
    T_EQ(left, (N - position + 9) / 10);
    fl_loader_close(&fresh);
}

static void test_states(void)
{
    FlConfig cfg = config(FL_SHUFFLE_GLOBAL, 10);
    FlLoader *l = NULL;
    FlBatch b = { 0 };

    T_EQ(fl_loader_open(&l, ds, &cfg), 0);
    t_case("before the first batch, whatever was read ahead");
    nanosleep(&(struct timespec){ .tv_nsec = 20000000 }, NULL);
    expect_state(l, 0, 0);
    for (int k = 0; k < 10; k++) {
        T_EQ(fl_loader_next(l, &b, NULL), 0);
        fl_batch_release(&b, NULL);
        t_case("inside");
        if (k == 3)
            expect_state(l, 0, 40);
    }
    t_case("behind the last batch, before its end was seen");
    expect_state(l, 1, 0);
    T_EQ(fl_loader_next(l, &b, NULL), FL_EPOCH_END);
    t_case("after it");
    expect_state(l, 1, 0);
    fl_loader_close(&l);
}

int main(void)
{
    char command[400];

    make_set();
    test_matrix();
    test_reshuffle();
    test_said();
    test_states();
    fl_dataset_close(&ds);
    snprintf(command, sizeof(command), "rm -rf '%s'", dir);
    if (system(command))
        perror(command);
    return t_done();
}
