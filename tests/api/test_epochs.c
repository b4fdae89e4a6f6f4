/* SPDX-License-Identifier: Apache-2.0 */
/* The border between epochs: the next one is read ahead, by the same threads, and lengths are what was said. */
#include <feedline/feedline.h>

#include <dirent.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "make_tar.h"
#include "t.h"

enum { N = 250, BYTES = 512, BATCH = 16, BATCHES = (N + BATCH - 1) / BATCH };

static char dir[256];

static void make_set(void)
{
    const char *tmp = getenv("TMPDIR");
    char path[300], name[64];
    uint8_t bytes[BYTES];

    snprintf(dir, sizeof(dir), "%s/feedline-epochs-XXXXXX", tmp ? tmp : "/tmp");
    if (!mkdtemp(dir))
        exit(1);
    snprintf(path, sizeof(path), "%s/s.tar", dir);
    FILE *f = fopen(path, "wb");
    for (int i = 0; i < N; i++) {
        memset(bytes, i, sizeof(bytes));
        snprintf(name, sizeof(name), "%05d.bin", i);
        tar_member(f, name, bytes, BYTES);
    }
    tar_end(f);
    fclose(f);
}

static FlLoader *open_loader(FlDataset *ds, int workers)
{
    static const int64_t shape[] = { BYTES };
    FlConfig cfg = FL_CONFIG_DEFAULT;
    FlLoader *l = NULL;

    cfg.batch_size = BATCH;
    cfg.shuffle = FL_SHUFFLE_GLOBAL;
    cfg.seed = 8;
    cfg.n_workers = workers;
    fl_config_raw(&cfg, "bin", FL_U8, 1, shape);
    T_EQ(fl_loader_open(&l, ds, &cfg), 0);
    return l;
}

static void nap(long ms)
{
    nanosleep(&(struct timespec){ .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 }, NULL);
}

/* Whether a thread is the one that touches memory ahead of its use, and then ends. */
static bool passing(const char *task)
{
    char path[300], name[32] = "";
    snprintf(path, sizeof(path), "/proc/self/task/%s/comm", task);
    FILE *f = fopen(path, "r");

    if (f) {
        if (!fgets(name, sizeof(name), f))
            name[0] = 0;
        fclose(f);
    }
    return !f || !strncmp(name, "fl-touch", 8);
}

/* Ids of the process's threads, in the order of the folder, but for the one that ends by itself. */
static int threads(long ids[64])
{
    DIR *d = opendir("/proc/self/task");
    struct dirent *e;
    int n = 0;

    while (d && (e = readdir(d)) && n < 64)
        if (e->d_name[0] != '.' && !passing(e->d_name))
            ids[n++] = strtol(e->d_name, NULL, 10);
    if (d)
        closedir(d);
    return n;
}

/* Poll for a batch; on a busy machine it may take a while to be there. Returns the polls that it took. */
static int poll_batch(FlLoader *l, FlBatch *b)
{
    int err, polls = 0;

    while ((err = fl_loader_next_timeout(l, b, NULL, 0)) == -EAGAIN && polls < 200) {
        polls++;
        nap(20);
    }
    T_EQ(err, 0);
    return polls;
}

static void test_read_ahead(FlDataset *ds)
{
    FlLoader *l = open_loader(ds, 2);
    FlBatch b = { 0 };
    long before[64], after[64];

    t_case("the first batches of the next epoch are there before it begins");
    T_EQ(fl_loader_batches(l), BATCHES);
    for (int k = 0; k < BATCHES; k++) {
        T_EQ(fl_loader_next(l, &b, NULL), 0);
        fl_batch_release(&b, NULL);
    }
    const int n = threads(before);
    // Nobody has asked for the end of the epoch yet, let alone for what follows.
    FlLoaderStats st = { .struct_size = sizeof(st) };
    for (int k = 0; k < 200; k++) {
        fl_loader_stats(l, &st);
        if (st.stages[FL_STAGE_BATCH].items >= N + 2 * BATCH)
            break;
        nap(20);
    }
    T_OK(st.stages[FL_STAGE_BATCH].items >= N + 2 * BATCH);
    nap(50); // counted before it is ready
    T_EQ(fl_loader_next_timeout(l, &b, NULL, 0), FL_EPOCH_END);
    T_OK(poll_batch(l, &b) < 2); // at once, unless the machine is very busy
    T_EQ(b.epoch, 1);
    T_EQ(b.position, 0);
    fl_batch_release(&b, NULL);

    t_case("threads persist");
    for (int k = 1; k < 3 * (BATCHES + 1); k++)
        if (!fl_loader_next(l, &b, NULL))
            fl_batch_release(&b, NULL);
    T_EQ(threads(after), n);
    T_OK(n > 1 && !memcmp(before, after, (size_t)n * sizeof(before[0])));
    fl_loader_close(&l);
}

/* How long the consumer waits at the border and inside, with a step of 3 ms. */
static void measure(FlDataset *ds)
{
    FlLoader *l = open_loader(ds, 1);
    FlBatch b = { 0 };
    double first = 0, other = 0;
    struct timespec t0, t1;
    int n_first = 0, n_other = 0, at = -1;

    for (int epoch = 0; epoch < 6;) {
        clock_gettime(CLOCK_MONOTONIC, &t0);
        const int err = fl_loader_next(l, &b, NULL);
        clock_gettime(CLOCK_MONOTONIC, &t1);
        const double us =
            (double)(t1.tv_sec - t0.tv_sec) * 1e6 + (double)(t1.tv_nsec - t0.tv_nsec) * 1e-3;
        if (err) {
            epoch++;
            at = 0;
            continue;
        }
        fl_batch_release(&b, NULL);
        if (at == 0) {
            first += us;
            n_first++;
        } else if (at > 0) {
            other += us;
            n_other++;
        }
        at += at >= 0;
        nap(3);
    }
    fl_loader_close(&l);
    printf("a batch after the border is there after %.1f us, any other after %.1f us (means of %d "
           "and %d)\n",
           first / n_first, other / n_other, n_first, n_other);
}

int main(void)
{
    FlDataset *ds = NULL;
    char command[400];

    make_set();
    T_EQ(fl_dataset_open(&ds, dir, NULL), 0);
    test_read_ahead(ds);
    measure(ds);
    fl_dataset_close(&ds);
    snprintf(command, sizeof(command), "rm -rf '%s'", dir);
    if (system(command))
        perror(command);
    return t_done();
}
