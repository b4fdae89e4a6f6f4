/* SPDX-License-Identifier: Apache-2.0 */
/* Property: whatever world size, batch, tail, workers, slots, backend and delays a run has, and however often it
 * is saved and restored, with other settings each time, every position holds what it holds in the straight run, and
 * every position of an epoch is handed out once (but for a dropped tail).
 *
 * FL_TEST_SECONDS: how long (5). FL_TEST_SEED: the first case; printed, and with a failure, so that
 * FL_TEST_SEED=n FL_TEST_SECONDS=0 repeats that one case. */
#include "loader.h"

#include <time.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/rng.h"
#include "make_set.h"
#include "t.h"

enum { SAMPLES = 160, BYTES = 24, MOST = 400, EPOCHS = 3, SIDE = 8 };

static char dir[256];
static FlDataset *ds;
static uint64_t seed; // of the case at hand

/* What a position holds. */
struct place {
    int64_t id;
    uint64_t hash;
    uint8_t valid, part;
};

/* One case: what all of its runs have in common, and what its straight run brought. */
struct order {
    FlConfig cfg;
    FlPart parts[2];
    int n_parts;
    int64_t n; // positions of an epoch
    int64_t subset[2][MOST], exclude[2][8];
    double weights[MOST];
    struct place straight[EPOCHS][MOST];
    int seen[EPOCHS][MOST];
};

static struct order order;
static struct fl_io_faults faults;

static int64_t below(struct fl_rng *r, int64_t n)
{
    return (int64_t)fl_rng_below(r, (uint64_t)n);
}

static void make_set(void)
{
    char path[300], name[64], text[32];
    uint8_t bytes[BYTES];

    ms_temp(dir, sizeof(dir), "random");
    for (int shard = 0; shard < 3; shard++) {
        snprintf(path, sizeof(path), "%s/s%d.tar", dir, shard);
        FILE *f = fopen(path, "wb");
        for (int i = shard * SAMPLES / 3; i < (shard + 1) * SAMPLES / 3; i++) {
            const struct mj_spec spec = { .w = 16 + i % 5, .h = 16 + i % 3, .components = 3 };
            struct mj_bytes jpeg = mj_make(&spec);
            snprintf(name, sizeof(name), "%04d.jpg", i);
            ms_member(f, name, jpeg.data, i % 31 == 7 ? jpeg.len / 3 : jpeg.len);
            free(jpeg.data);
            for (int k = 0; k < BYTES; k++)
                bytes[k] = (uint8_t)(i * 7 + k);
            snprintf(name, sizeof(name), "%04d.bin", i);
            ms_member(f, name, bytes, i % 29 == 3 ? 5 : BYTES);
            snprintf(name, sizeof(name), "%04d.cls", i);
            ms_member(f, name, text, (size_t)snprintf(text, sizeof(text), "%d", i % 6));
            snprintf(name, sizeof(name), "%04d.txt", i);
            ms_member(f, name, "abcdefghijklmnopqrst", (size_t)(i % 20));
        }
        static const char end[1024];
        fwrite(end, 1, sizeof(end), f);
        fclose(f);
    }
    if (fl_dataset_open(&ds, dir, NULL)) {
        fprintf(stderr, "%s\n", fl_last_error()->message);
        exit(1);
    }
}

/* ---- drawing a case ------------------------------------------------------------------------------- */

/* Ascending and distinct. */
static int64_t draw_exclude(struct fl_rng *r, int64_t *list)
{
    const int64_t n = below(r, 8);
    int64_t at = 0;

    for (int64_t i = 0; i < n; i++) {
        at += 1 + below(r, 15);
        list[i] = at;
    }
    return n;
}

static int64_t draw_subset(struct fl_rng *r, int64_t *list)
{
    const int64_t n = 9 + below(r, below(r, 4) ? 60 : MOST - 9);

    for (int64_t i = 0; i < n; i++)
        list[i] = below(r, SAMPLES);
    return n;
}

static void draw_columns(struct fl_rng *r, FlConfig *c)
{
    static const int64_t shape[] = { BYTES };
    const FlImage image = { .width = SIDE,
                            .height = SIDE,
                            .crop = (FlCrop)below(r, 3),
                            .flip = 0.5f,
                            .dtype = below(r, 2) ? FL_U8 : FL_F32 };

    fl_config_label(c, "cls");
    if (below(r, 2))
        fl_config_raw(c, "bin", FL_U8, 1, shape);
    if (below(r, 2))
        fl_config_bytes(c, "txt", 0);
    if (!below(r, 3))
        fl_config_image(c, "jpg", &image);
}

/* What decides the order. */
static void draw_order(struct fl_rng *r, struct order *o)
{
    FlConfig *c = &o->cfg;

    memset(o, 0, sizeof(*o));
    fl_config_init(c);
    c->shuffle = (FlShuffle)below(r, 3);
    c->seed = (uint64_t)below(r, 1000);
    c->bad_sample = below(r, 2) ? FL_BAD_SKIP : FL_BAD_SUBSTITUTE;
    c->block_bytes = 1 + below(r, 5000);
    c->window = 1 + below(r, 5);
    draw_columns(r, c);
    o->n_parts = 1 + !below(r, 4);
    for (int k = 0; k < o->n_parts; k++) {
        o->parts[k] = (FlPart){ .dataset = ds, .weight = (double)(1 + below(r, 9)) };
        if (below(r, 3)) {
            o->parts[k].subset = o->subset[k];
            o->parts[k].n_subset = draw_subset(r, o->subset[k]);
        }
        o->parts[k].exclude = o->exclude[k];
        o->parts[k].n_exclude = draw_exclude(r, o->exclude[k]);
        if (!o->parts[k].n_exclude)
            o->parts[k].exclude = NULL;
    }
    const int64_t length = 1 + below(r, MOST);
    if (o->n_parts > 1) {
        c->epoch_samples = length;
    } else if (c->shuffle == FL_SHUFFLE_GLOBAL && !below(r, 3)) {
        c->epoch_samples = length;
        if (below(r, 2))
            snprintf(c->balance, sizeof(c->balance), "cls");
        else
            c->weights = o->weights;
        for (int i = 0; i < MOST; i++)
            o->weights[i] = 0.25 + fl_rng_double(r);
    }
}

/* What must not show: resources and backend. */
static void draw_resources(struct fl_rng *r, FlConfig *c, bool *faulty)
{
    c->n_workers = (int32_t)below(r, 4);
    c->host_slots = (int32_t)(1 + below(r, 4));
    c->read_bytes = (uint64_t)(64 + below(r, 3) * 100) << 10;
    c->depth = (int32_t)(1 + below(r, 20));
    c->direct = (FlSwitch)(below(r, 2) ? FL_AUTO : FL_OFF);
    c->io = below(r, 3) ? FL_IO_PREAD : FL_IO_AUTO;
    *faulty = below(r, 5) < 2;
    faults = (struct fl_io_faults){ .seed = fl_rng_u64(r),
                                    .delay_ns = below(r, 2) ? below(r, 200000) : 0,
                                    .p_short = below(r, 2) ? 0.3 : 0,
                                    .p_again = below(r, 2) ? 0.2 : 0 };
}

/* ---- running ---------------------------------------------------------------------------------------- */

static uint64_t hash_row(const FlBatch *b, int64_t row)
{
    uint64_t h = 0;

    for (int c = 0; c < b->n_columns; c++) {
        const FlColumn *col = &b->columns[c];
        if (col->offsets) {
            h = fl_hash64((const uint8_t *)col->data + col->offsets[row],
                          (size_t)(col->offsets[row + 1] - col->offsets[row]), h);
            continue;
        }
        size_t bytes = fl_dtype_bytes(col->dtype);
        for (int i = 1; i < col->ndim; i++)
            bytes *= (size_t)col->shape[i];
        h = fl_hash64((const uint8_t *)col->data + (size_t)row * bytes, bytes, h);
    }
    return h;
}

static struct place place_of(const FlBatch *b, int64_t row)
{
    return (struct place){ b->ids[row], hash_row(b, row), b->valid[row],
                           b->parts ? b->parts[row] : 0 };
}

static FlLoader *open_loader(struct order *o, bool faulty)
{
    FlLoader *l = NULL;

    if (fl_loader_open_faulty(&l, o->parts, o->n_parts, &o->cfg, faulty ? &faults : NULL)) {
        T_OK(!"the loader opens");
        fprintf(stderr, "%s\n", fl_last_error()->message);
    }
    return l;
}

/* One rank, nothing in parallel, one backend. False: these settings leave nothing. */
static bool run_straight(struct order *o)
{
    FlLoader *l = NULL;
    FlBatch b = { 0 };

    o->cfg.batch_size = 13;
    o->cfg.world_size = 1;
    o->cfg.rank = 0;
    o->cfg.tail = FL_TAIL_PARTIAL;
    o->cfg.n_workers = 0;
    o->cfg.io = FL_IO_PREAD;
    o->cfg.read_bytes = 1 << 20;
    if (fl_loader_open_mixture(&l, o->parts, o->n_parts, &o->cfg)) {
        T_HAS(fl_last_error()->message, "no sample is left");
        return false;
    }
    o->n = fl_loader_samples(l);
    T_OK(o->n >= 1 && o->n <= MOST);
    for (int64_t epoch = 0, at = 0; epoch < EPOCHS;) {
        const int err = fl_loader_next(l, &b, NULL);
        if (err == FL_EPOCH_END) {
            T_EQ(at, o->n);
            at = 0;
            epoch++;
            continue;
        }
        if (err == -EBADMSG && o->cfg.bad_sample == FL_BAD_SUBSTITUTE) {
            // So few positions that all stand-ins were bad: a batch is raised as a whole, so runs of other
            // batch sizes lose other neighbours. Nothing to compare but with holes.
            T_OK(o->n < 40);
            fl_loader_close(&l);
            o->cfg.bad_sample = FL_BAD_SKIP;
            memset(o->straight, 0, sizeof(o->straight));
            return run_straight(o);
        }
        T_EQ(err, 0);
        if (err)
            break;
        for (int64_t i = 0; i < b.size && at < MOST; i++)
            o->straight[epoch][at++] = place_of(&b, i);
        fl_batch_release(&b, NULL);
    }
    fl_loader_close(&l);
    return true;
}

/* Where a leg stands: as the plan does it, by other arithmetic. */
struct stand {
    int64_t epoch, base, index; // index: global batches since base
};

/* Rows that a rank gets of a global batch that begins at `first`; *at: position of the first one. */
static int64_t share(const struct order *o, int64_t first, int64_t *at)
{
    const FlConfig *c = &o->cfg;
    const int64_t left = o->n - first, global = c->batch_size * c->world_size;
    int64_t rows = c->batch_size;

    *at = first + c->rank * c->batch_size;
    if (left >= global)
        return rows;
    *at = first;
    for (int rank = 0; rank <= c->rank; rank++) {
        *at += rank ? rows : 0;
        rows = left / c->world_size + (rank < left % c->world_size);
    }
    return rows;
}

static int64_t globals(const struct order *o, int64_t base)
{
    const int64_t global = o->cfg.batch_size * o->cfg.world_size;

    return o->cfg.tail == FL_TAIL_DROP ? (o->n - base) / global
                                       : (o->n - base + global - 1) / global;
}

static void check_batch(struct order *o, const FlBatch *b, int64_t epoch, int64_t at, int64_t rows)
{
    int wrong = 0;

    T_EQ(b->epoch, epoch);
    T_EQ(b->size, o->cfg.tail == FL_TAIL_PAD ? o->cfg.batch_size : rows);
    if (rows)
        T_EQ(b->position, at);
    for (int64_t i = 0; i < b->size; i++) {
        const struct place p = place_of(b, i);
        if (i >= rows) { // padding
            wrong += p.valid || p.id != -1;
            continue;
        }
        const struct place *want = &o->straight[epoch][at + i];
        wrong += p.id != want->id || p.hash != want->hash || p.valid != want->valid ||
                 p.part != want->part;
        o->seen[epoch][at + i]++;
    }
    T_EQ(wrong, 0);
}

/* Take `steps` global batches with one rank. */
static void run_rank(struct order *o, FlLoader *l, struct stand *s, int64_t steps, struct fl_rng *r)
{
    FlBatch held[4] = { { 0 } };
    int64_t at;

    for (int64_t k = 0; k < steps && s->epoch < EPOCHS; k++) {
        FlBatch *b = &held[below(r, o->cfg.host_slots)];
        fl_batch_release(b, NULL); // the others stay for a while
        if (s->index == globals(o, s->base)) {
            T_EQ(fl_loader_next(l, b, NULL), FL_EPOCH_END);
            *s = (struct stand){ .epoch = s->epoch + 1 };
            continue;
        }
        const int64_t first = s->base + s->index++ * o->cfg.batch_size * o->cfg.world_size;
        const int64_t rows = share(o, first, &at);
        if (!rows && o->cfg.tail != FL_TAIL_PAD)
            continue; // no batch of this tail for this rank
        const int err = fl_loader_next(l, b, NULL);
        T_EQ(err, 0);
        if (err) {
            fprintf(stderr, "%s\n", fl_last_error()->message);
            break;
        }
        check_batch(o, b, s->epoch, at, rows);
    }
    for (int i = 0; i < 4; i++)
        fl_batch_release(&held[i], NULL);
}

/* A loader that has been at work goes on from a state like a fresh one. */
static void use_a_little(FlLoader *l, struct fl_rng *r)
{
    FlBatch b = { 0 };

    for (int64_t k = below(r, 4); k >= 0; k--)
        if (!fl_loader_next(l, &b, NULL))
            fl_batch_release(&b, NULL);
}

/* A leg: every rank of a new world goes on from the state, and rank 0 saves one. */
static struct stand run_leg(struct order *o, struct stand from, char *state, int *size,
                            struct fl_rng *r)
{
    char next[FL_STATE_BYTES];
    struct stand end = from;
    int got = 0;

    o->cfg.world_size = (int32_t)(1 + below(r, below(r, 3) ? 2 : 4));
    o->cfg.batch_size = 1 + below(r, below(r, 2) ? 6 : 30);
    o->cfg.tail = (FlTail)below(r, 3);
    if (o->cfg.batch_size * o->cfg.world_size > o->n) // drop would leave nothing, and says so
        o->cfg.tail = FL_TAIL_PAD;
    const int64_t steps = 1 + below(r, below(r, 2) ? 4 : 40);
    for (o->cfg.rank = 0; o->cfg.rank < o->cfg.world_size; o->cfg.rank++) {
        struct stand s = from;
        bool faulty;
        draw_resources(r, &o->cfg, &faulty);
        FlLoader *l = open_loader(o, faulty);
        if (!l)
            break;
        if (*size && !below(r, 3))
            use_a_little(l, r);
        if (*size)
            T_EQ(fl_loader_restore(l, state, (size_t)*size, false), 0);
        run_rank(o, l, &s, steps, r);
        if (!o->cfg.rank) {
            end = s;
            got = fl_loader_state(l, next, sizeof(next));
            T_OK(got > 0);
        }
        fl_loader_close(&l);
    }
    memcpy(state, next, got > 0 ? (size_t)got : 0);
    *size = got;
    // As a state has it: the end of an epoch is the beginning of the next.
    if (end.index == globals(o, end.base) && end.index)
        return (struct stand){ .epoch = end.epoch + 1 };
    end.base += end.index * o->cfg.batch_size * o->cfg.world_size;
    end.index = 0;
    return end;
}

static void run_case(struct order *o)
{
    struct fl_rng r;
    struct stand s = { 0 };
    char state[FL_STATE_BYTES];
    bool dropped[EPOCHS] = { false };
    int size = 0;

    fl_rng_init(&r, seed, 0, 0, FL_RNG_USER, 0);
    draw_order(&r, o);
    if (!run_straight(o))
        return;
    const int failures = t_failures;
    while (s.epoch < EPOCHS && t_failures == failures) {
        const struct stand from = s;
        s = run_leg(o, s, state, &size, &r);
        for (int64_t e = from.epoch; e <= s.epoch && e < EPOCHS; e++)
            dropped[e] |= o->cfg.tail == FL_TAIL_DROP;
    }
    int twice = 0, missing = 0;
    for (int e = 0; e < EPOCHS; e++)
        for (int64_t p = 0; p < o->n; p++) {
            twice += o->seen[e][p] > 1;
            missing += !o->seen[e][p] && !dropped[e];
        }
    T_EQ(twice, 0);
    if (t_failures == failures)
        T_EQ(missing, 0);
}

static int64_t setting(const char *name, int64_t fallback)
{
    const char *text = getenv(name);
    return text && *text ? strtoll(text, NULL, 10) : fallback;
}

int main(void)
{
    const int64_t first = setting("FL_TEST_SEED", (int64_t)time(NULL)),
                  end = fl_now_ns() + setting("FL_TEST_SECONDS", 5) * 1000000000;
    char name[120];
    int64_t cases = 0;

    make_set();
    do {
        seed = (uint64_t)(first + cases++);
        snprintf(name, sizeof(name), "repeat with FL_TEST_SEED=%llu FL_TEST_SECONDS=0",
                 (unsigned long long)seed);
        t_case(name);
        run_case(&order);
    } while (fl_now_ns() < end && !t_failures);
    printf("%lld cases from seed %lld\n", (long long)cases, (long long)first);
    fl_dataset_close(&ds);
    ms_remove(dir);
    return t_done();
}
