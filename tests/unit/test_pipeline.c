/* SPDX-License-Identifier: Apache-2.0 */
/* The whole pipeline: whatever the backend, the workers and the container, a position holds the same
 * bytes. */
#include <feedline/feedline.h>

#include <sys/wait.h>

#include "base/hash.h"
#include "make_set.h"
#include "t.h"

enum { N = 53, SIDE = 24, ROW = SIDE * SIDE * 3 };

static char tar_dir[256], folder_dir[256], bad_dir[256];

static FlConfig config(int workers, bool everything)
{
    static const int64_t shape[] = { MS_RAW / 4 };
    FlConfig cfg = FL_CONFIG_DEFAULT;

    cfg.batch_size = 8;
    cfg.shuffle = FL_SHUFFLE_GLOBAL;
    cfg.seed = 5;
    cfg.n_workers = workers;
    cfg.read_bytes = 1 << 20;
    fl_config_image(
        &cfg, "jpg",
        &(FlImage){ .width = SIDE, .height = SIDE, .crop = FL_CROP_RANDOM_RESIZED, .flip = 0.5f });
    fl_config_label(&cfg, "cls");
    if (everything) {
        fl_config_raw(&cfg, "bin", FL_F32, 1, shape);
        fl_config_bytes(&cfg, "txt", 0);
    }
    return cfg;
}

/* Hash of what a loader hands out in `epochs` epochs, and how often. */
struct run {
    uint64_t hash;
    int64_t batches, samples, ends;
    int err;
};

static uint64_t hash_batch(const FlBatch *b, uint64_t h)
{
    h = fl_hash64(b->ids, (size_t)b->size * sizeof(*b->ids), h);
    h = fl_hash64(b->valid, (size_t)b->size, h);
    for (int c = 0; c < b->n_columns; c++) {
        const FlColumn *col = &b->columns[c];
        size_t bytes = fl_dtype_bytes(col->dtype);
        for (int i = 0; i < col->ndim; i++)
            bytes *= (size_t)col->shape[i];
        h = fl_hash64(col->data, bytes, h);
        if (col->offsets)
            h = fl_hash64(col->offsets, (size_t)(b->size + 1) * 8, h);
    }
    return h;
}

static struct run drain(FlLoader *l, int epochs)
{
    struct run r = { 0 };
    FlBatch b = { 0 };

    while (r.ends < epochs) {
        const int err = fl_loader_next(l, &b, NULL);
        if (err == FL_EPOCH_END) {
            r.ends++;
            continue;
        }
        if (err) {
            r.err = err;
            break;
        }
        r.hash = hash_batch(&b, r.hash);
        r.batches++;
        r.samples += b.n_valid;
        fl_batch_release(&b, NULL);
    }
    return r;
}

static struct run run_once(FlDataset *ds, const FlConfig *cfg, int epochs)
{
    FlLoader *l = NULL;
    struct run r = { .err = fl_loader_open(&l, ds, cfg) };

    if (r.err) {
        fprintf(stderr, "%s\n", fl_last_error()->message);
        return r;
    }
    r = drain(l, epochs);
    fl_loader_close(&l);
    return r;
}

static void test_same_bytes(const char *dir, bool everything)
{
    static const struct {
        const char *name;
        FlIo io;
        FlSwitch direct;
        int workers;
    } cases[] = {
        { "pread, inline", FL_IO_PREAD, FL_AUTO, 0 },
        { "pread, 1 worker", FL_IO_PREAD, FL_OFF, 1 },
        { "pread, 4 workers", FL_IO_PREAD, FL_OFF, 4 },
        { "auto, inline", FL_IO_AUTO, FL_AUTO, 0 },
        { "auto, 1 worker", FL_IO_AUTO, FL_OFF, 1 },
        { "auto, 4 workers", FL_IO_AUTO, FL_AUTO, 4 },
        { "uring, inline", FL_IO_URING, FL_AUTO, 0 },
        { "uring, 4 workers", FL_IO_URING, FL_AUTO, 4 },
    };
    FlDataset *ds = ms_open(dir);
    uint64_t want = 0;

    for (size_t i = 0; i < T_LEN(cases); i++) {
        FlConfig cfg = config(cases[i].workers, everything);
        FlLoader *l = NULL;
        t_case(cases[i].name);
        cfg.io = cases[i].io;
        cfg.direct = cases[i].direct;
        const int err = fl_loader_open(&l, ds, &cfg);
        if (err && cases[i].io == FL_IO_URING)
            continue; // the kernel or the build refuses it: fl_last_error() says so
        T_EQ(err, 0);
        const struct run r = drain(l, 3);
        fl_loader_close(&l);
        T_EQ(r.err, 0);
        T_EQ(r.batches, 3 * 7);
        T_EQ(r.samples, 3 * N);
        if (!want)
            want = r.hash;
        T_OK(r.hash == want);
    }
    fl_dataset_close(&ds);
}

/* Rows are what they should be, by way of the fields that can be computed. */
static void test_content(void)
{
    FlDataset *ds = ms_open(tar_dir);
    FlConfig cfg = config(2, true);
    FlLoader *l = NULL;
    FlBatch b = { 0 };
    char seen[N] = { 0 }, text[32];
    uint8_t raw[MS_RAW];

    t_case("content");
    cfg.tail = FL_TAIL_PAD;
    T_EQ(fl_loader_open(&l, ds, &cfg), 0);
    T_EQ(fl_loader_batches(l), 7);
    T_EQ(fl_loader_samples(l), N);
    while (!fl_loader_next(l, &b, NULL)) {
        T_EQ(b.size, 8);
        T_EQ(b.columns[0].shape[1], SIDE);
        T_EQ(b.columns[2].ndim, 2);
        T_EQ(b.columns[2].shape[1], MS_RAW / 4);
        for (int64_t r = 0; r < b.size; r++) {
            const int64_t id = b.ids[r];
            const int64_t from = b.columns[3].offsets[r], to = b.columns[3].offsets[r + 1];
            if (id < 0) {
                T_EQ(b.valid[r], 0);
                T_EQ(to - from, 0);
                T_EQ(((const int64_t *)b.columns[1].data)[r], 0);
                continue;
            }
            seen[id]++;
            T_EQ(((const int64_t *)b.columns[1].data)[r], ms_class((int)id));
            ms_raw((int)id, raw);
            T_OK(!memcmp((const uint8_t *)b.columns[2].data + r * MS_RAW, raw, MS_RAW));
            T_EQ(to - from, (int64_t)ms_text((int)id, text));
            T_OK(!memcmp((const char *)b.columns[3].data + from, text, (size_t)(to - from)));
        }
        fl_batch_release(&b, NULL);
    }
    for (int i = 0; i < N; i++)
        T_EQ(seen[i], 1);
    fl_loader_close(&l);
    fl_dataset_close(&ds);
}

/* Save after every k batches, go on in a fresh loader with other workers, batch size and world. */
static void test_resume(void)
{
    FlDataset *ds = ms_open(tar_dir);
    int64_t order[4 * N];
    FlLoader *l = NULL;
    FlBatch b = { 0 };
    int64_t n = 0;

    t_case("seeds for the caller's own transforms");
    uint64_t seeds[2][N] = { { 0 } };
    for (int k = 0; k < 2; k++) {
        FlConfig c = config(k, false);
        c.batch_size = k ? 5 : 9;
        T_EQ(fl_loader_open(&l, ds, &c), 0);
        while (!fl_loader_next(l, &b, NULL)) {
            T_EQ(fl_batch_acquire(&b, NULL), 0); // nothing to wait for on the host
            T_EQ(fl_batch_seeds(&b, &seeds[k][b.position]), 0);
            fl_batch_release(&b, NULL);
        }
        fl_loader_close(&l);
    }
    T_OK(!memcmp(seeds[0], seeds[1], sizeof(seeds[0])));
    T_OK(seeds[0][0] != seeds[0][1]);
    T_EQ(fl_batch_seeds(&b, seeds[0]), -EINVAL);

    t_case("resume");
    FlConfig cfg = config(2, false);
    cfg.tail = FL_TAIL_PARTIAL;
    T_EQ(fl_loader_open(&l, ds, &cfg), 0);
    for (int ends = 0; ends < 4;) {
        const int err = fl_loader_next(l, &b, NULL);
        ends += err == FL_EPOCH_END;
        for (int64_t i = 0; !err && i < b.size; i++)
            order[n++] = b.ids[i];
        fl_batch_release(&b, NULL);
    }
    fl_loader_close(&l);
    T_EQ(n, 4 * N);

    char state[FL_STATE_BYTES];
    int64_t at = 0;
    int size = 0;
    for (int leg = 0; at < 4 * N; leg++) {
        FlConfig c = config(leg % 3, false);
        c.batch_size = 1 + leg % 5 * 3;
        T_EQ(fl_loader_open(&l, ds, &c), 0);
        if (size)
            T_EQ(fl_loader_restore(l, state, (size_t)size, false), 0);
        int wrong = 0;
        for (int k = 0; k < 1 + leg % 4 && at < 4 * N;) {
            const int err = fl_loader_next(l, &b, NULL);
            if (err == FL_EPOCH_END)
                continue;
            if (err) {
                T_EQ(err, 0);
                break;
            }
            k++;
            for (int64_t i = 0; i < b.size; i++)
                wrong += order[at++] != b.ids[i];
            fl_batch_release(&b, NULL);
        }
        T_EQ(wrong, 0);
        size = fl_loader_state(l, state, sizeof(state));
        T_OK(size > 0 && size <= FL_STATE_BYTES);
        fl_loader_close(&l);
    }

    t_case("a state of another seed, order or pipeline is refused by name");
    FlConfig other = config(1, false);
    other.seed = 6;
    T_EQ(fl_loader_open(&l, ds, &other), 0);
    T_EQ(fl_loader_restore(l, state, (size_t)size, false), -EINVAL);
    T_HAS(fl_last_error()->message, "seed 5");
    T_EQ(fl_loader_restore(l, state, (size_t)size, true), 0);
    fl_loader_close(&l);
    other = config(1, false);
    other.shuffle = FL_SHUFFLE_NONE;
    T_EQ(fl_loader_open(&l, ds, &other), 0);
    T_EQ(fl_loader_restore(l, state, (size_t)size, false), -EINVAL);
    T_HAS(fl_last_error()->message, "order");
    state[40] ^= 1;
    T_EQ(fl_loader_restore(l, state, (size_t)size, false), -EBADMSG);
    T_EQ(fl_loader_restore(l, state, 10, false), -EBADMSG);
    fl_loader_close(&l);
    fl_dataset_close(&ds);
}

/* A place in the order is reached from anywhere, and said. */
static void test_seek(void)
{
    FlDataset *ds = ms_open(tar_dir);
    FlLoader *l = NULL;
    FlBatch b = { 0 };
    int64_t order[3][N], epoch = -1;

    for (int workers = 0; workers < 3; workers++) {
        FlConfig cfg = config(workers, false);
        cfg.batch_size = 5;
        t_case("positions said along three epochs");
        T_EQ(fl_loader_open(&l, ds, &cfg), 0);
        for (int e = 0; e < 3; e++) {
            int64_t n = 0;
            while (!fl_loader_next(l, &b, NULL)) {
                memcpy(&order[e][n], b.ids, (size_t)b.size * 8);
                n += b.size;
                T_EQ(fl_loader_position(l, &epoch), n == N ? 0 : n);
                T_EQ(epoch, n == N ? e + 1 : e);
                fl_batch_release(&b, NULL);
            }
            T_EQ(n, N);
        }
        t_case("there and back");
        static const int64_t places[][2] = { { 1, 0 }, { 1, 0 },     { 1, 7 },
                                             { 0, 1 }, { 2, N - 1 }, { 0, 0 } };
        for (size_t i = 0; i < T_LEN(places); i++) {
            const int64_t *to = places[i];
            T_EQ(fl_loader_seek(l, to[0], to[1]), 0);
            T_EQ(fl_loader_position(l, NULL), to[1]);
            T_EQ(fl_loader_next(l, &b, NULL), 0);
            T_EQ(b.epoch, to[0]);
            T_EQ(b.position, to[1]);
            T_OK(!memcmp(b.ids, &order[to[0]][to[1]], (size_t)b.size * 8));
            fl_batch_release(&b, NULL);
        }
        t_case("nowhere");
        T_EQ(fl_loader_seek(l, -1, 0), -EINVAL);
        T_EQ(fl_loader_seek(l, 0, N + 1), -EINVAL);
        T_HAS(fl_last_error()->message, "outside");
        T_EQ(fl_loader_position(l, &epoch), 5);
        fl_loader_close(&l);
    }
    T_EQ(fl_loader_seek(NULL, 0, 0), -EINVAL);
    T_EQ(fl_loader_position(NULL, NULL), -EINVAL);
    fl_dataset_close(&ds);
}

/* Ranks together see every sample once, whatever rank count follows on resume. */
static void test_ranks(void)
{
    FlDataset *ds = ms_open(tar_dir);
    char seen[N] = { 0 }, state[FL_STATE_BYTES];
    int size = 0;
    FlLoader *l = NULL;
    FlBatch b = { 0 };

    t_case("two ranks for two global batches, then three ranks for the rest");
    for (int leg = 0; leg < 2; leg++) {
        const int world = leg ? 3 : 2;
        char next[FL_STATE_BYTES];
        for (int rank = 0; rank < world; rank++) {
            FlConfig cfg = config(1, false);
            cfg.rank = rank;
            cfg.world_size = world;
            cfg.batch_size = 5;
            T_EQ(fl_loader_open(&l, ds, &cfg), 0);
            if (leg)
                T_EQ(fl_loader_restore(l, state, (size_t)size, false), 0);
            for (int k = 0; k < (leg ? 100 : 2); k++) {
                if (fl_loader_next(l, &b, NULL))
                    break;
                for (int64_t i = 0; i < b.size; i++)
                    seen[b.ids[i]]++;
                fl_batch_release(&b, NULL);
            }
            if (!leg) {
                const int got = fl_loader_state(l, next, sizeof(next));
                if (rank)
                    T_OK(!memcmp(next, state, (size_t)size));
                memcpy(state, next, (size_t)got);
                size = got;
            }
            fl_loader_close(&l);
        }
    }
    for (int i = 0; i < N; i++)
        T_EQ(seen[i], 1);
    fl_dataset_close(&ds);

    t_case("no seed with several ranks");
    ds = ms_open(tar_dir);
    FlConfig cfg = config(1, false);
    cfg.seed = FL_SEED_UNSET;
    cfg.world_size = 2;
    T_EQ(fl_loader_open(&l, ds, &cfg), -EINVAL);
    T_HAS(fl_last_error()->message, "seed");
    fl_dataset_close(&ds);
}

static void test_bad_samples(void)
{
    FlDataset *ds = ms_open(bad_dir);
    FlLoader *l = NULL;
    FlBatch b = { 0 };

    for (int workers = 0; workers < 3; workers += 2) {
        t_case("raise, and go on behind it");
        FlConfig cfg = config(workers, false);
        T_EQ(fl_loader_open(&l, ds, &cfg), 0);
        int raised = 0, good = 0, err;
        while ((err = fl_loader_next(l, &b, NULL)) != FL_EPOCH_END) {
            if (err) {
                raised++;
                T_EQ(err, -EBADMSG);
                T_EQ(fl_last_error()->sample, 17);
                T_STR(fl_last_error()->key, "000017");
                T_HAS(fl_last_error()->message, "shard-000000.tar at byte ");
                T_HAS(fl_last_error()->message, "000017");
                continue;
            }
            good++;
            fl_batch_release(&b, NULL);
        }
        T_EQ(raised, 1);
        T_EQ(good, 6);
        fl_loader_close(&l);

        t_case("skip leaves a hole");
        cfg.bad_sample = FL_BAD_SKIP;
        T_EQ(fl_loader_open(&l, ds, &cfg), 0);
        int holes = 0, rows = 0;
        while (!(err = fl_loader_next(l, &b, NULL))) {
            for (int64_t i = 0; i < b.size; i++, rows++) {
                if (b.valid[i])
                    continue;
                holes++;
                T_EQ(b.ids[i], 17);
                const uint8_t *p = (const uint8_t *)b.columns[0].data + i * ROW;
                int sum = 0;
                for (int k = 0; k < ROW; k++)
                    sum += p[k];
                T_EQ(sum, 0);
            }
            fl_batch_release(&b, NULL);
        }
        T_EQ(holes, 1);
        T_EQ(rows, N);
        fl_loader_close(&l);

        t_case("substitute fills it, the same way every time");
        cfg.bad_sample = FL_BAD_SUBSTITUTE;
        const struct run first = run_once(ds, &cfg, 2), again = run_once(ds, &cfg, 2);
        T_EQ(first.samples, 2 * N);
        T_OK(first.hash == again.hash);
        cfg.n_workers = 3;
        T_OK(run_once(ds, &cfg, 2).hash == first.hash);

        t_case("a cap");
        cfg.bad_sample = FL_BAD_SKIP;
        cfg.max_bad = 1;
        T_EQ(run_once(ds, &cfg, 3).err, 0);

        t_case("excluded");
        static const int64_t exclude[] = { 17 };
        cfg.bad_sample = FL_BAD_RAISE;
        cfg.exclude = exclude;
        cfg.n_exclude = 1;
        const struct run r = run_once(ds, &cfg, 1);
        T_EQ(r.err, 0);
        T_EQ(r.samples, N - 1);
    }
    fl_dataset_close(&ds);
}

static void test_life(void)
{
    FlDataset *ds = ms_open(tar_dir);
    FlConfig cfg = config(2, false);
    FlLoader *l = NULL;
    FlBatch b[4] = { { 0 } };

    t_case("held batches stay as they are, and too many are refused");
    cfg.host_slots = 3;
    T_EQ(fl_loader_open(&l, ds, &cfg), 0);
    uint64_t hash[3];
    for (int i = 0; i < 3; i++) {
        T_EQ(fl_loader_next(l, &b[i], NULL), 0);
        hash[i] = hash_batch(&b[i], 0);
    }
    T_EQ(fl_loader_next(l, &b[3], NULL), -EBUSY);
    T_HAS(fl_last_error()->message, "host_slots");
    fl_batch_release(&b[1], NULL);
    T_EQ(fl_loader_next(l, &b[1], NULL), 0);
    T_OK(hash_batch(&b[0], 0) == hash[0] && hash_batch(&b[2], 0) == hash[2]);
    T_EQ(fl_batch_release(&b[1], NULL), 0);
    T_EQ(fl_batch_release(&b[1], NULL), 0); // zeroed: nothing to do

    t_case("a forked child is told so");
    fflush(stdout);
    const pid_t child = fork();
    if (!child) {
        const int code = fl_loader_next(l, &b[3], NULL);
        const int release = fl_batch_release(&b[0], NULL);
        fl_loader_close(&l);
        _exit(code == -ECHILD && release == -ECHILD ? 0 : 1);
    }
    int status = -1;
    waitpid(child, &status, 0);
    T_EQ(status, 0);

    t_case("batches outlive the loader");
    FlLoaderStats st = { .struct_size = sizeof(st) };
    T_EQ(fl_loader_stats(l, &st), 0);
    T_EQ(st.batches, 4);
    T_OK(st.memory_budget > 0 && st.memory_high_water <= st.memory_budget + 1);
    fl_loader_close(&l);
    T_OK(l == NULL);
    fl_loader_close(&l);
    T_OK(hash_batch(&b[0], 0) == hash[0] && hash_batch(&b[2], 0) == hash[2]);
    fl_batch_release(&b[0], NULL);
    fl_batch_release(&b[2], NULL);

    t_case("the dataset may be closed first, and many loaders come and go");
    T_EQ(fl_loader_open(&l, ds, &cfg), 0);
    FlDataset *second = ms_open(tar_dir);
    fl_dataset_close(&ds);
    T_EQ(drain(l, 1).samples, N);
    fl_loader_close(&l);
    for (int i = 0; i < 50; i++) {
        cfg.n_workers = i % 3;
        T_EQ(fl_loader_open(&l, second, &cfg), 0);
        if (i % 2 && !fl_loader_next(l, &b[0], NULL))
            fl_batch_release(&b[0], NULL);
        fl_loader_close(&l);
    }

    fl_dataset_close(&second);
}

/* A mixture of the tar and the folder: shares, coverage of the small part, resume. */
static void test_mixture(void)
{
    FlDataset *tar = ms_open(tar_dir), *folder = ms_open(folder_dir);
    const FlPart parts[] = { { .dataset = tar, .weight = 3 }, { .dataset = folder, .weight = 1 } };
    FlConfig cfg = config(2, false);
    FlLoader *l = NULL;
    FlBatch b = { 0 };
    char state[FL_STATE_BYTES];
    int64_t order[2][2000], n = 0, count[2] = { 0 };
    int seen[N] = { 0 }, size = 0;

    t_case("mixture");
    cfg.epoch_samples = 400;
    T_EQ(fl_loader_open_mixture(&l, parts, 2, &cfg), 0);
    T_EQ(fl_loader_samples(l), 400);
    for (int ends = 0; ends < 3;) {
        const int err = fl_loader_next(l, &b, NULL);
        ends += err == FL_EPOCH_END;
        if (err)
            continue;
        for (int64_t i = 0; i < b.size; i++, n++) {
            order[0][n] = b.parts[i];
            order[1][n] = b.ids[i];
            count[b.parts[i]]++;
            // Both sets hold the same pictures under other numbers, the label tells that it is the right one.
            if (!b.parts[i])
                T_EQ(((const int64_t *)b.columns[1].data)[i], ms_class((int)b.ids[i]));
            else
                seen[b.ids[i]]++;
        }
        fl_batch_release(&b, NULL);
        if (n == 160)
            size = fl_loader_state(l, state, sizeof(state));
    }
    fl_loader_close(&l);
    T_EQ(n, 1200);
    T_EQ(count[0], 900);
    T_EQ(count[1], 300);
    for (int i = 0; i < N; i++)
        T_OK(seen[i] == 5 || seen[i] == 6); // 300 of a part of 53: every sample 5 or 6 times

    t_case("mixture, resumed");
    T_OK(size > 0);
    cfg.n_workers = 0;
    cfg.batch_size = 5;
    T_EQ(fl_loader_open_mixture(&l, parts, 2, &cfg), 0);
    T_EQ(fl_loader_restore(l, state, (size_t)size, false), 0);
    int wrong = 0;
    for (int64_t at = 160; at < 400;) {
        T_EQ(fl_loader_next(l, &b, NULL), 0);
        for (int64_t i = 0; i < b.size; i++, at++)
            wrong += order[0][at] != b.parts[i] || order[1][at] != b.ids[i];
        fl_batch_release(&b, NULL);
    }
    T_EQ(wrong, 0);
    fl_loader_close(&l);

    t_case("a state of a mixture does not fit one dataset");
    cfg.epoch_samples = 0;
    T_EQ(fl_loader_open(&l, tar, &cfg), 0);
    T_EQ(fl_loader_restore(l, state, (size_t)size, false), -EINVAL);
    fl_loader_close(&l);

    t_case("classes in balance");
    cfg = config(2, false);
    snprintf(cfg.balance, sizeof(cfg.balance), "cls");
    cfg.epoch_samples = 2000;
    T_EQ(fl_loader_open(&l, tar, &cfg), 0);
    int classes[MS_CLASSES] = { 0 };
    while (!fl_loader_next(l, &b, NULL)) {
        for (int64_t i = 0; i < b.size; i++)
            classes[((const int64_t *)b.columns[1].data)[i]]++;
        fl_batch_release(&b, NULL);
    }
    for (int i = 0; i < MS_CLASSES; i++)
        T_OK(classes[i] > 320 && classes[i] < 480); // 400, sigma 18
    fl_loader_close(&l);
    fl_dataset_close(&tar);
    fl_dataset_close(&folder);
}

static void test_wrong_settings(void)
{
    static const struct {
        const char *name, *text;
        int err;
        int64_t batch;
        FlImage image;
    } cases[] = {
        { "no batch size", "batch_size", -EINVAL, 0, { .width = 8, .height = 8 } },
        { "no size", "size 0x8", -EINVAL, 4, { .height = 8 } },
        { "integer picture",
          "dtype int32",
          -EINVAL,
          4,
          { .width = 8, .height = 8, .dtype = FL_I32 } },
        { "flip", "flip 2", -EINVAL, 4, { .width = 8, .height = 8, .flip = 2 } },
        { "scale",
          "scale 0.5 to 0.2",
          -EINVAL,
          4,
          { .width = 8, .height = 8, .scale = { 0.5f, 0.2f } } },
        { "mean of bytes",
          "0..1",
          -EINVAL,
          4,
          { .width = 8, .height = 8, .mean = { 123, 117, 104 } } },
    };
    FlDataset *ds = ms_open(tar_dir);
    FlLoader *l = NULL;

    for (size_t i = 0; i < T_LEN(cases); i++) {
        FlConfig cfg = FL_CONFIG_DEFAULT;
        t_case(cases[i].name);
        cfg.batch_size = cases[i].batch;
        fl_config_image(&cfg, "jpg", &cases[i].image);
        T_EQ(fl_loader_open(&l, ds, &cfg), cases[i].err);
        T_HAS(fl_last_error()->message, cases[i].text);
    }
    t_case("no such field");
    FlConfig cfg = FL_CONFIG_DEFAULT;
    cfg.batch_size = 1;
    fl_config_label(&cfg, "nope");
    T_EQ(fl_loader_open(&l, ds, &cfg), -ENOENT);
    T_HAS(fl_last_error()->message, "\"nope\"");

    t_case("budget too small");
    cfg = config(1, true);
    cfg.memory_limit = 1000;
    T_EQ(fl_loader_open(&l, ds, &cfg), -ENOMEM);
    T_HAS(fl_last_error()->message, "memory_limit");

    t_case("wrong shape");
    cfg = config(1, true);
    cfg.columns[2].shape[0] = 3;
    T_EQ(fl_loader_open(&l, ds, &cfg), 0);
    FlBatch b = { 0 };
    T_EQ(fl_loader_next(l, &b, NULL), -EBADMSG);
    T_HAS(fl_last_error()->message, "has 96 bytes, but the column's shape needs 12");
    fl_loader_close(&l);
    fl_dataset_close(&ds);
}

int main(void)
{
    ms_temp(tar_dir, sizeof(tar_dir), "tar");
    ms_temp(folder_dir, sizeof(folder_dir), "folder");
    ms_temp(bad_dir, sizeof(bad_dir), "bad");
    ms_tar(tar_dir, N, -1);
    ms_folder(folder_dir, N, -1);
    ms_tar(bad_dir, N, 17);
    test_same_bytes(tar_dir, true);
    test_same_bytes(folder_dir, false);
    test_content();
    test_resume();
    test_seek();
    test_ranks();
    test_bad_samples();
    test_life();
    test_mixture();
    test_wrong_settings();
    ms_remove(tar_dir);
    ms_remove(folder_dir);
    ms_remove(bad_dir);
    return t_done();
}
