/* SPDX-License-Identifier: Apache-2.0 */
/* The read stage as the pipeline uses it: a feeder thread, workers that check and release, little memory; and its ends:
 * closing in the middle, threads that come and go. */
#define _GNU_SOURCE
#include "read_fixture.h"

#define POOL 300

static const struct fl_io_faults slow = {
    .seed = 9, .delay_ns = 300000, .p_short = 0.1, .p_again = 0.05
};

static const struct fl_io_faults fickle = {
    .seed = 10, .p_short = 0.1, .p_again = 0.05, .p_cold = 0.1, .p_miss = 0.2
};

static const struct {
    const char *name;
    FlIo io;
    FlSwitch direct;
    const struct fl_io_faults *faults;
    uint64_t around;
    bool lend;
} backends[] = {
    { "io_uring", FL_IO_AUTO, FL_AUTO, NULL, 0, false },
    { "io_uring, direct", FL_IO_AUTO, FL_ON, NULL, 0, false },
    { "pieces kept", FL_IO_AUTO, FL_ON, NULL, 131072, false },
    { "pread", FL_IO_PREAD, FL_AUTO, NULL, 0, false },
    { "memory, slow and short", FL_IO_AUTO, FL_AUTO, &slow, 65536, false },
    { "lent", FL_IO_AUTO, FL_OFF, NULL, 0, true },
    { "lent and often given back", FL_IO_AUTO, FL_AUTO, &fickle, 0, true },
};

/* A queue of samples between feeder and workers. */
struct line {
    pthread_mutex_t lock;
    pthread_cond_t cond;
    struct fl_sample *first, *spare;
    bool end;
};

struct house {
    struct fx *fx;
    struct fl_read *r;
    struct line line;
    int64_t n;
    _Atomic int64_t good, over;
    _Atomic bool quit; // the feeder leaves in the middle
    bool drained;
};

static void *work(void *arg)
{
    struct house *h = arg;
    struct fl_rng rng;
    bool was_dry;

    fl_rng_init(&rng, 5, 0, (uint64_t)(uintptr_t)&rng, FL_RNG_USER, 0);
    pthread_mutex_lock(&h->line.lock);
    for (;;) {
        struct fl_sample *s = h->line.first;
        if (!s && h->line.end)
            break;
        if (!s) {
            pthread_cond_wait(&h->line.cond, &h->line.lock);
            continue;
        }
        h->line.first = s->next;
        pthread_mutex_unlock(&h->line.lock);
        if (fl_rng_below(&rng, 50) == 0)
            usleep(500);
        if (s->unread && !fl_read_copy(h->r, s)) {
            pthread_mutex_lock(&h->line.lock);
            continue; // it comes again
        }
        if (!s->err.code && fx_same(h->fx, s))
            atomic_fetch_add(&h->good, 1);
        fl_read_release(s);
        pthread_mutex_lock(&h->line.lock);
        was_dry = !h->line.spare;
        s->next = h->line.spare;
        h->line.spare = s;
        if (atomic_fetch_add(&h->over, 1) + 1 == h->n || was_dry)
            fl_read_wake(h->r); // the feeder may have run out of samples
    }
    pthread_mutex_unlock(&h->line.lock);
    return NULL;
}

static struct fl_sample *take_spare(struct line *l)
{
    pthread_mutex_lock(&l->lock);
    struct fl_sample *s = l->spare;
    if (s)
        l->spare = s->next;
    pthread_mutex_unlock(&l->lock);
    return s;
}

static void hand_on(struct line *l, struct fl_sample **done, int n)
{
    pthread_mutex_lock(&l->lock);
    for (int i = 0; i < n; i++) {
        done[i]->next = l->first;
        l->first = done[i];
    }
    pthread_cond_broadcast(&l->cond);
    pthread_mutex_unlock(&l->lock);
}

static void *feed(void *arg)
{
    struct house *h = arg;
    struct fl_sample *next = NULL, *done[32];
    int64_t sent = 0;
    struct fl_rng rng;

    while (atomic_load(&h->over) < h->n && !atomic_load(&h->quit)) {
        while (next || (sent < h->n && (next = take_spare(&h->line)))) {
            if (next->id != sent + 1) {
                next->id = sent + 1;
                fl_rng_init(&rng, 21, 0, (uint64_t)sent, FL_RNG_USER, 0);
                fx_draw(h->fx, next, &rng);
            }
            const int err = fl_read_submit(h->r, next);
            if (err < 0)
                break;
            next->id = sent + 1;
            sent++;
            if (err)
                hand_on(&h->line, &next, 1);
            next = NULL;
        }
        if (sent == h->n)
            fl_read_flush(h->r);
        const int n = fl_read_wait(h->r, done, 32, INT64_MAX);
        if (n < 0) {
            fprintf(stderr, "%s\n", fl_last_error()->message);
            break;
        }
        hand_on(&h->line, done, n);
    }
    h->drained = fl_read_stop(h->r);
    return NULL;
}

/* Opened here, fed there, worked on elsewhere, closed here. */
static void run_house(struct fx *fx, size_t backend, int64_t n, int64_t quit_after_ns)
{
    static struct fl_sample pool[POOL];
    struct fl_read_cfg cfg = fx_cfg(fx);
    struct house h = { .fx = fx, .n = n };
    pthread_t feeder, workers[3];

    cfg.bytes = 4000000;
    cfg.io = backends[backend].io;
    cfg.direct = backends[backend].direct;
    cfg.faults = backends[backend].faults;
    cfg.around = backends[backend].around;
    cfg.lend = backends[backend].lend;
    pthread_mutex_init(&h.line.lock, NULL);
    pthread_cond_init(&h.line.cond, NULL);
    memset(pool, 0, sizeof(pool));
    for (int i = 0; i < POOL; i++) {
        pool[i].next = h.line.spare;
        h.line.spare = &pool[i];
    }
    const int err = fl_read_open(&h.r, &cfg);
    T_EQ(err, 0);
    if (err)
        return;
    for (size_t i = 0; i < T_LEN(workers); i++)
        T_EQ(pthread_create(&workers[i], NULL, work, &h), 0);
    T_EQ(pthread_create(&feeder, NULL, feed, &h), 0);
    if (quit_after_ns) {
        usleep((useconds_t)(quit_after_ns / 1000));
        atomic_store(&h.quit, true);
        fl_read_wake(h.r);
    }
    const int64_t began = fl_now_ns();
    pthread_join(feeder, NULL);
    if (quit_after_ns)
        T_OK(fl_now_ns() - began < 3000000000);
    T_OK(h.drained);
    pthread_mutex_lock(&h.line.lock);
    h.line.end = true;
    pthread_cond_broadcast(&h.line.cond);
    pthread_mutex_unlock(&h.line.lock);
    for (size_t i = 0; i < T_LEN(workers); i++)
        pthread_join(workers[i], NULL);
    T_OK(fl_read_close(&h.r));
    if (!quit_after_ns)
        T_EQ(h.good, n);
}

/* Close with a hundred reads in flight, from the feeder's own thread, again and again. */
static void close_in_flight(struct fx *fx, size_t backend)
{
    static struct fl_sample s[120];

    for (int turn = 0; turn < 10; turn++) {
        struct fl_read_cfg cfg = fx_cfg(fx);
        struct fl_read *r = NULL;
        cfg.io = backends[backend].io;
        cfg.direct = backends[backend].direct;
        cfg.faults = backends[backend].faults;
        cfg.around = backends[backend].around;
        cfg.lend = backends[backend].lend;
        cfg.depth = 128;
        cfg.coalesce = 1;
        T_EQ(fl_read_open(&r, &cfg), 0);
        if (!r)
            return;
        unsigned n = 0;
        for (; n < T_LEN(s); n++) {
            s[n] = (struct fl_sample){ .n_reads = 1 };
            s[n].reads[0] = (struct fl_read_req){ .container = 0,
                                                  .offset = 20000 * (uint64_t)n,
                                                  .length = 9000 };
            if (fl_read_submit(r, &s[n]) < 0)
                break;
        }
        T_OK(n > 100);
        fl_read_flush(r);
        const int64_t began = fl_now_ns();
        T_OK(fl_read_close(&r));
        T_OK(fl_now_ns() - began < 3000000000);
    }
}

/* Inline reads through io_uring: the thread that submitted ends before its reads do. */
static void *submit_and_end(void *arg)
{
    struct house *h = arg;
    static struct fl_sample s[40];

    for (unsigned i = 0; i < T_LEN(s); i++) {
        s[i] = (struct fl_sample){ .n_reads = 1 };
        s[i].reads[0] = (struct fl_read_req){ .container = 0,
                                              .offset = 65536 * (uint64_t)i + 3,
                                              .length = 60000 };
        T_EQ(fl_read_submit(h->r, &s[i]), 0);
    }
    fl_read_flush(h->r);
    return NULL;
}

static void changing_threads(struct fx *fx, FlIo io)
{
    struct fl_read_cfg cfg = fx_cfg(fx);
    struct house h = { .fx = fx };
    struct fl_sample *done[64];
    pthread_t thread;

    cfg.io = io;
    cfg.inline_reads = true;
    cfg.direct = FL_ON;
    T_EQ(fl_read_open(&h.r, &cfg), 0);
    if (!h.r)
        return;
    for (int turn = 0; turn < 10; turn++) {
        int back = 0;
        pthread_create(&thread, NULL, submit_and_end, &h);
        pthread_join(thread, NULL);
        while (back < 40) {
            const int n = fl_read_wait(h.r, done, 64, fl_now_ns() + 5000000000);
            T_OK(n > 0);
            if (n <= 0)
                break;
            for (int i = 0; i < n; i++) {
                T_EQ(done[i]->err.code, 0);
                T_OK(fx_same(fx, done[i]));
                fl_read_release(done[i]);
            }
            back += n;
        }
    }
    T_OK(fl_read_close(&h.r));
}

int main(void)
{
    struct fx fx;

    fx_make(&fx, fx_where(), FX_FILES, 0);
    for (size_t i = 0; i < T_LEN(backends); i++) {
        t_case(backends[i].name);
        run_house(&fx, i, 1500, 0);
        for (int k = 1; k <= 3; k++)
            run_house(&fx, i, 100000, k * 7000000);
        close_in_flight(&fx, i);
    }
    t_case("pread from changing threads");
    changing_threads(&fx, FL_IO_PREAD);
    struct fl_read_cfg cfg = fx_cfg(&fx);
    struct fl_read *r = NULL;
    cfg.io = FL_IO_URING;
    if (!fl_read_open(&r, &cfg)) {
        fl_read_close(&r);
        t_case("io_uring from changing threads");
        changing_threads(&fx, FL_IO_URING);
    }
    fx_remove(&fx);
    return t_done();
}
