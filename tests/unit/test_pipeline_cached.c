/* SPDX-License-Identifier: Apache-2.0 */
/* The whole pipeline over data that comes and goes in the page cache: workers copy what is there, the feeder reads what
 * is not, and a position holds the same bytes all the time. */
#define _GNU_SOURCE
#include <feedline/feedline.h>

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/hash.h"
#include "make_set.h"
#include "t.h"

enum { N = 120, RAW = 30000 };

static char dir[256], shard[300];

static void make_set(void)
{
    static const char end[1024];
    static uint8_t raw[RAW];
    char name[64];
    FILE *tar = fopen(shard, "wb");

    for (int i = 0; i < N; i++) {
        for (int k = 0; k < RAW; k++)
            raw[k] = (uint8_t)(i * 131 + k * 7 + k / 256);
        snprintf(name, sizeof(name), "%06d.bin", i);
        ms_member(tar, name, raw, RAW);
        snprintf(name, sizeof(name), "%06d.raw", i);
        ms_member(tar, name, raw + 100, RAW - 100 - (size_t)i);
    }
    fwrite(end, 1, sizeof(end), tar);
    fflush(tar);
    fsync(fileno(tar));
    fclose(tar);
}

static void warm(void)
{
    static char buf[65536];
    const int fd = open(shard, O_RDONLY);

    while (read(fd, buf, sizeof(buf)) > 0)
        ;
    close(fd);
}

static FlLoader *open_loader(FlDataset *ds, int workers, FlIo io, uint64_t read_bytes)
{
    static const int64_t shape[] = { RAW };
    FlConfig cfg = FL_CONFIG_DEFAULT;
    FlLoader *l = NULL;

    cfg.batch_size = 10;
    cfg.shuffle = FL_SHUFFLE_GLOBAL;
    cfg.seed = 3;
    cfg.n_workers = workers;
    cfg.read_bytes = read_bytes;
    cfg.direct = FL_OFF;
    cfg.io = io;
    fl_config_raw(&cfg, "bin", FL_U8, 1, shape);
    fl_config_bytes(&cfg, "raw", 0);
    if (fl_loader_open(&l, ds, &cfg)) {
        fprintf(stderr, "%s\n", fl_last_error()->message);
        exit(1);
    }
    return l;
}

static uint64_t hash_batch(const FlBatch *b)
{
    uint64_t h = fl_hash64(b->ids, (size_t)b->size * sizeof(*b->ids), 0);

    h = fl_hash64(b->columns[0].data, (size_t)b->size * RAW, h);
    h = fl_hash64(b->columns[1].offsets, (size_t)(b->size + 1) * 8, h);
    return fl_hash64(b->columns[1].data, (size_t)b->columns[1].offsets[b->size], h);
}

/* `want` more batches; their hashes go to or are compared with all[at ...]. */
static int64_t take(FlLoader *l, int64_t at, int64_t want, uint64_t *all, bool compare)
{
    FlBatch b = { 0 };

    while (want) {
        const int err = fl_loader_next(l, &b, NULL);
        if (err == FL_EPOCH_END)
            continue;
        T_EQ(err, 0);
        if (err)
            return at;
        const uint64_t h = hash_batch(&b);
        if (compare)
            T_OK(all[at] == h);
        all[at++] = h;
        want--;
        fl_batch_release(&b, NULL);
    }
    return at;
}

static _Atomic bool over;

static void *evict(void *arg)
{
    const int fd = open(shard, O_RDONLY);

    (void)arg;
    for (unsigned turn = 0; !atomic_load(&over); turn++) {
        posix_fadvise(fd, (off_t)(turn % 7) * 1000000, 1500000, POSIX_FADV_DONTNEED);
        usleep(1000);
    }
    close(fd);
    return NULL;
}

static void test(FlIo io, bool evicting)
{
    enum { BATCHES = 5 * N / 10 };
    static uint64_t all[BATCHES];
    char state[FL_STATE_BYTES];
    FlDataset *ds = NULL;
    pthread_t t;

    T_EQ(fl_dataset_open(&ds, dir, NULL), 0);
    FlLoader *l = open_loader(ds, 0, FL_IO_PREAD, 1 << 20); // the oracle: no threads, nothing lent
    T_EQ(take(l, 0, BATCHES, all, false), BATCHES);
    fl_loader_close(&l);
    warm();
    atomic_store(&over, false);
    if (evicting)
        T_EQ(pthread_create(&t, NULL, evict, NULL), 0);
    l = open_loader(ds, 3, io, 1 << 20);
    take(l, 0, 17, all, true);
    const int size = fl_loader_state(l, state, sizeof(state));
    T_OK(size > 0);
    take(l, 17, BATCHES - 17, all, true);
    for (int turn = 0; turn < 8; turn++) { // back again, with samples lent and queued
        T_EQ(fl_loader_restore(l, state, (size_t)size, false), 0);
        take(l, 17, 1 + turn, all, true);
    }
    FlLoaderStats st = { .struct_size = sizeof(st) };
    T_EQ(fl_loader_stats(l, &st), 0);
    T_OK(st.cached_bytes <= st.bytes_read);
    if (!evicting)
        T_OK(st.cached_reads > 0 && st.cached_bytes == st.bytes_read);
    fl_loader_close(&l);
    atomic_store(&over, true);
    if (evicting)
        pthread_join(t, NULL);
    fl_dataset_close(&ds);
}

struct turn {
    FlLoader *l;
    int64_t at;
    uint64_t *all;
};

static void *take_one(void *arg)
{
    struct turn *t = arg;

    t->at = take(t->l, t->at, 1, t->all, true);
    return NULL;
}

/* io = uring without workers: the ring is used by whoever calls, even if it is another thread each time. */
static void test_callers_ring(void)
{
    static uint64_t all[2 * N / 10];
    FlLoaderStats st = { .struct_size = sizeof(st) };
    FlDataset *ds = NULL;
    pthread_t thread;

    T_EQ(fl_dataset_open(&ds, dir, NULL), 0);
    FlLoader *l = open_loader(ds, 0, FL_IO_AUTO, 1 << 20);
    take(l, 0, T_LEN(all), all, false);
    T_EQ(fl_loader_stats(l, &st), 0);
    T_STR(st.io_backend, "pread");
    fl_loader_close(&l);
    l = open_loader(ds, 2, FL_IO_AUTO, 1 << 20);
    T_EQ(fl_loader_stats(l, &st), 0);
    fl_loader_close(&l);
    if (!strcmp(st.io_backend, "io_uring")) {
        l = open_loader(ds, 0, FL_IO_URING, 1 << 20);
        struct turn t = { l, 0, all };
        while (t.at < (int64_t)T_LEN(all)) {
            const int err = pthread_create(&thread, NULL, take_one, &t);
            if (!err)
                pthread_join(thread, NULL);
            T_EQ(err, 0);
        }
        T_EQ(fl_loader_stats(l, &st), 0);
        T_STR(st.io_backend, "io_uring");
        fl_loader_close(&l);
    }
    fl_dataset_close(&ds);
}

/* The high-water mark is what was in use, not what was allocated. */
static void test_high_water(void)
{
    uint64_t hashes[6];
    FlLoaderStats st = { .struct_size = sizeof(st) };
    FlDataset *ds = NULL;

    T_EQ(fl_dataset_open(&ds, dir, NULL), 0);
    FlLoader *l = open_loader(ds, 2, FL_IO_AUTO, 64 << 20);
    take(l, 0, 6, hashes, false);
    T_EQ(fl_loader_stats(l, &st), 0);
    T_OK(st.memory_budget > 64 << 20);
    T_OK(st.memory_high_water < st.memory_budget - (50 << 20));
    T_OK(st.memory_high_water > 10 * RAW + 5 * RAW); // a slot, and half a batch on its way
    fl_loader_close(&l);
    fl_dataset_close(&ds);
}

int main(void)
{
    ms_temp(dir, sizeof(dir), "cached");
    snprintf(shard, sizeof(shard), "%s/shard-000000.tar", dir);
    make_set();
    t_case("warm");
    test(FL_IO_AUTO, false);
    test(FL_IO_PREAD, false);
    t_case("evicted meanwhile");
    test(FL_IO_AUTO, true);
    test(FL_IO_PREAD, true);
    t_case("the callers' ring");
    test_callers_ring();
    t_case("high-water mark");
    test_high_water();
    ms_remove(dir);
    return t_done();
}
