/* SPDX-License-Identifier: Apache-2.0 */
/* Samples whose bytes are in the page cache are lent: copied by whoever takes them, given back where a page has left,
 * and read like any other where the data is cold. */
#define _GNU_SOURCE
#include <sys/resource.h>
#include <time.h>

#include "read_fixture.h"
#include "read_state.h"

#define LEN 100000

static struct fl_read *open_lending(struct fx *fx, FlIo io, const struct fl_io_faults *faults)
{
    struct fl_read_cfg cfg = fx_cfg(fx);
    struct fl_read *r = NULL;

    cfg.io = io;
    cfg.direct = FL_OFF;
    cfg.lend = true;
    cfg.faults = faults;
    T_EQ(fl_read_open(&r, &cfg), 0);
    if (!r)
        exit(t_done());
    return r;
}

static void ask(struct fl_sample *s, uint32_t container, uint64_t offset, uint64_t length)
{
    s->reads[s->n_reads++] =
        (struct fl_read_req){ .container = container, .offset = offset, .length = length };
}

/* Drop a part of a file from the page cache, the page at `sure` for certain. False: the file system keeps it. */
static bool drop(const struct fx_file *f, uint64_t offset, uint64_t length, uint64_t sure)
{
    const struct timespec nap = { .tv_nsec = 5000000 };
    const int fd = open(f->path, O_RDONLY);
    bool gone = false;

    posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM); // asking may start reading ahead
    for (int i = 0; i < 100 && !gone; i++) {    // a page that is in use at the moment stays
        if (i)
            nanosleep(&nap, NULL);
        posix_fadvise(fd, (off_t)offset, (off_t)length, POSIX_FADV_DONTNEED);
        gone = !fl_cached(fd, fl_cached_how(fd), sure, 1);
    }
    close(fd);
    return gone;
}

static struct fl_sample *wait_one(struct fl_read *r)
{
    struct fl_sample *done = NULL;
    int n;

    fl_read_flush(r);
    do
        n = fl_read_wait(r, &done, 1, fl_now_ns() + 10000000000);
    while (!n && fl_read_pending(r)); // after a wake-up
    T_EQ(n, 1);
    return done;
}

static void idle(struct fl_read *r)
{
    T_EQ(fl_read_pending(r), 0);
    T_EQ(r->n_lent, 0);
    fl_ring_reclaim(&r->arena);
    T_EQ(r->arena.count, 0);
    for (unsigned i = 0; i < r->files.n_table; i++)
        T_EQ(r->files.table[i].refs, 0);
}

static void test_hit(struct fx *fx, FlIo io)
{
    struct fl_read *r = open_lending(fx, io, NULL);
    struct fl_sample s = { 0 };
    FlLoaderStats st = { 0 };

    ask(&s, 0, 12345, LEN);
    ask(&s, 0, 12345 + LEN + 512, 10); // a neighbour shares the copy
    ask(&s, 9, 1, LEN);
    ask(&s, 3, 0, 0);
    T_EQ(fl_read_submit(r, &s), 1);
    T_OK(s.unread && !fl_read_pending(r));
    T_OK(fl_read_copy(r, &s));
    T_OK(!s.unread && fx_same(fx, &s));
    fl_read_stats(r, &st);
    T_EQ(st.cached_reads, 2);
    T_EQ(st.cached_bytes, 2 * LEN + 522);
    T_EQ(st.reads, 2);
    T_EQ(st.bytes_wanted, 2 * LEN + 10);
    T_EQ(st.stages[FL_STAGE_READ].items, 1);
    fl_read_release(&s);
    idle(r);
    T_OK(fl_read_close(&r));
}

/* Pages leave between the plan and the copy: all of them, the second half, those of the second request. */
static void test_miss(struct fx *fx, FlIo io)
{
    static const struct {
        const char *name;
        uint64_t gone[3]; // offset and length in file 0, and a byte in a request
        uint64_t kept;    // bytes that are copied all the same, at least
    } cases[] = { { "all gone", { 0, 3000001, 0 }, 0 },
                  { "half gone", { 49152, 2000000, 90000 }, 40000 },
                  { "the second request gone", { 1000000, 2000000, 2050000 }, LEN } };

    for (size_t i = 0; i < T_LEN(cases); i++) {
        struct fl_sample s = { 0 };
        FlLoaderStats st = { 0 };
        t_case(cases[i].name);
        fx_warm(fx);
        struct fl_read *r = open_lending(fx, io, NULL);
        ask(&s, 0, 0, LEN);
        ask(&s, 0, 2000000, LEN);
        T_EQ(fl_read_submit(r, &s), 1);
        if (!drop(&fx->files[0], cases[i].gone[0], cases[i].gone[1], cases[i].gone[2])) {
            printf("left out: nothing leaves the page cache here\n");
            T_OK(fl_read_close(&r));
            return;
        }
        T_OK(!fl_read_copy(r, &s));
        T_EQ(fl_read_pending(r), 1);
        T_OK(wait_one(r) == &s);
        T_EQ(s.err.code, 0);
        T_OK(fx_same(fx, &s));
        fl_read_stats(r, &st);
        T_OK(st.cached_bytes >= cases[i].kept && st.cached_bytes < 2 * LEN);
        T_EQ(st.bytes_read, 2 * LEN); // nothing twice
        fl_read_release(&s);
        idle(r);
        T_OK(fl_read_close(&r));
    }
}

/* Cold data is read at depth, asked about ever more rarely, and lent again soon after it has become warm. */
static void test_there_and_back(struct fx *fx)
{
    static struct fl_sample s[40];
    struct fl_read *r = open_lending(fx, FL_IO_AUTO, NULL);
    int lent = 0, tries = 0;

    fx_evict(fx);
    if (!drop(&fx->files[0], 0, 3000001, 0)) {
        T_OK(fl_read_close(&r));
        return;
    }
    memset(s, 0, sizeof(s));
    for (unsigned i = 0; i < 20; i++) {
        ask(&s[i], 0, 80000 + 140000 * (uint64_t)i, 65536); // 0 is where buffers are tested
        const int err = fl_read_submit(r, &s[i]);
        T_EQ(err, 0);
    }
    T_OK(r->cold_streak > 2 && r->cold_streak < 8);
    T_EQ(fl_read_pending(r), 20);
    T_OK(r->inflight >= 10); // the ring has them
    for (int i = 0; i < 20; i++) {
        struct fl_sample *back = wait_one(r);
        T_OK(fx_same(fx, back));
        fl_read_release(back);
    }
    fx_warm(fx);
    for (; tries < 100 && lent < 20; tries++) {
        struct fl_sample *x = &s[20];
        *x = (struct fl_sample){ 0 };
        ask(x, 11, 5000 * (uint64_t)tries, 50000);
        const int err = fl_read_submit(r, x);
        lent += err == 1;
        if (err == 1)
            T_OK(fl_read_copy(r, x));
        else
            T_OK(wait_one(r) == x);
        T_OK(fx_same(fx, x));
        fl_read_release(x);
    }
    T_EQ(lent, 20);
    T_OK(tries <= 20 + 63);
    idle(r);
    T_OK(fl_read_close(&r));
}

/* Rows of a batch are copied straight to where they belong. */
static void test_dst(struct fx *fx)
{
    static uint8_t row[LEN];
    struct fl_read *r = open_lending(fx, FL_IO_AUTO, NULL);
    static const uint64_t lengths[] = { LEN, 65535, 10000, 100 };

    fx_warm(fx);
    for (size_t i = 0; i < T_LEN(lengths); i++) {
        struct fl_sample s = { 0 };
        memset(row, 0xAA, sizeof(row));
        ask(&s, 0, 77, lengths[i]);
        s.reads[0].dst = row;
        s.reads[0].dst_size = lengths[i];
        if (lengths[i] < FL_READ_LEND_BYTES)
            ask(&s, 9, 0, LEN); // alone it would not be lent
        T_EQ(fl_read_submit(r, &s), 1);
        T_EQ(s.reads[0].data == row, lengths[i] >= FL_READ_LEND_DST);
        T_OK(fl_read_copy(r, &s));
        fl_read_settle(&s.reads[0]);
        T_OK(!memcmp(row, fx->files[0].bytes + 77, lengths[i]));
        T_OK(lengths[i] == LEN || row[lengths[i]] == 0xAA);
        fl_read_release(&s);
        idle(r);
    }
    T_OK(fl_read_close(&r));
}

/* Nobody wants it any more: a seek, or the end. */
static void test_dropped(struct fx *fx)
{
    static struct fl_sample s[16];
    struct fl_read *r = open_lending(fx, FL_IO_AUTO, NULL);

    memset(s, 0, sizeof(s));
    for (unsigned i = 0; i < 8; i++) {
        ask(&s[i], 0, i * LEN, LEN);
        ask(&s[i], 7, i * 1000, 5000);
        T_EQ(fl_read_submit(r, &s[i]), 1);
    }
    T_EQ(r->n_lent, 16);
    for (unsigned i = 0; i < 8; i++)
        fl_read_release(&s[i]);
    idle(r);
    for (unsigned i = 8; i < 16; i++) { // closed while some are out, one of them given back
        ask(&s[i], 0, i * LEN, LEN);
        T_EQ(fl_read_submit(r, &s[i]), 1);
    }
    if (drop(&fx->files[0], 0, 3000001, 0))
        T_OK(!fl_read_copy(r, &s[8]));
    T_OK(fl_read_stop(r));
    T_OK(fl_read_close(&r));
}

struct borrower {
    struct fl_read *r;
    struct fl_sample *s;
    bool copied;
};

static void *copy_soon(void *arg)
{
    struct borrower *b = arg;

    usleep(20000);
    b->copied = fl_read_copy(b->r, b->s);
    usleep(20000);
    fl_read_release(b->s);
    return NULL;
}

/* Lent samples hold the only descriptors: whoever copies them gives the descriptors back. */
static void test_descriptors(struct fx *fx)
{
    struct rlimit old, few;
    struct fl_sample s[3] = { 0 };
    pthread_t t;
    int err;

    fx_warm(fx);
    getrlimit(RLIMIT_NOFILE, &old);
    few = (struct rlimit){ 11, old.rlim_max }; // a quarter: 2
    setrlimit(RLIMIT_NOFILE, &few);
    struct fl_read *r = open_lending(fx, FL_IO_AUTO, NULL);
    setrlimit(RLIMIT_NOFILE, &old);
    T_EQ(r->files.max, 2);
    ask(&s[0], 0, 0, LEN);
    ask(&s[1], 9, 0, LEN);
    ask(&s[2], 11, 0, LEN);
    T_EQ(fl_read_submit(r, &s[0]), 1);
    T_EQ(fl_read_submit(r, &s[1]), 1);
    T_EQ(fl_read_submit(r, &s[2]), -EAGAIN);
    struct borrower other = { r, &s[0], false };
    T_EQ(pthread_create(&t, NULL, copy_soon, &other), 0);
    while ((err = fl_read_submit(r, &s[2])) == -EAGAIN) {
        struct fl_sample *none;
        const int64_t before = fl_now_ns();
        T_EQ(fl_read_wait(r, &none, 1, before + 10000000000), 0);
        T_OK(fl_now_ns() - before < 5000000000); // woken
    }
    T_EQ(err, 1);
    pthread_join(t, NULL);
    T_OK(other.copied);
    for (int i = 1; i < 3; i++) {
        T_OK(fl_read_copy(r, &s[i]) && fx_same(fx, &s[i]));
        fl_read_release(&s[i]);
    }
    idle(r);
    T_OK(fl_read_close(&r));
}

static void test_faults(struct fx *fx)
{
    static const struct {
        const char *name;
        struct fl_io_faults f;
        bool errors;
    } cases[] = {
        { "never there", { .seed = 1, .p_miss = 1 }, false },
        { "often gone", { .seed = 2, .p_cold = 0.2, .p_miss = 0.3 }, false },
        { "short", { .seed = 3, .p_short = 0.6 }, false },
        { "short, gone, busy, slow",
          { .seed = 4, .delay_ns = 50000, .p_short = 0.3, .p_miss = 0.2, .p_again = 0.2 },
          false },
        { "errors", { .seed = 5, .p_error = 0.05, .p_miss = 0.1 }, true },
        { "cut", { .seed = 6, .eof_early = true, .only_slot = 3 }, true },
    };

    for (size_t i = 0; i < T_LEN(cases); i++) {
        FlLoaderStats st = { 0 };
        t_case(cases[i].name);
        struct fl_read *r = open_lending(fx, FL_IO_AUTO, &cases[i].f);
        const int64_t good = fx_run(fx, r, 500, i, fx_draw);
        T_OK(cases[i].errors ? good > 300 && good <= 500 : good == 500);
        fl_read_stats(r, &st);
        T_OK(cases[i].f.p_miss == 1 ? st.cached_bytes == 0
                                    : st.cached_reads > (cases[i].f.p_cold > 0 ? 50 : 200));
        idle(r);
        T_OK(fl_read_close(&r));
    }
}

/* A file that is cut while its sample is lent is an error of this sample, as if it had been read. */
static void test_cut(struct fx *fx)
{
    struct fl_read *r = open_lending(fx, FL_IO_AUTO, NULL);
    struct fl_sample s = { 0 };

    fx_warm(fx);
    ask(&s, 0, 2900000, LEN);
    T_EQ(fl_read_submit(r, &s), 1);
    T_EQ(truncate(fx->files[0].path, 2950000), 0);
    T_OK(!fl_read_copy(r, &s));
    T_OK(wait_one(r) == &s);
    T_EQ(s.err.code, FL_ERR(EBADMSG));
    T_HAS(s.err.message, "0.bin");
    fl_read_release(&s);
    idle(r);
    T_OK(fl_read_close(&r));
    fx_write(&fx->files[0]);
}

int main(void)
{
    struct fx fx;

    fx_make(&fx, fx_where(), FX_FILES, 0);
    fx_warm(&fx);
    test_hit(&fx, FL_IO_AUTO);
    test_hit(&fx, FL_IO_PREAD);
    test_miss(&fx, FL_IO_AUTO);
    test_miss(&fx, FL_IO_PREAD);
    t_case("there and back");
    test_there_and_back(&fx);
    t_case("rows");
    test_dst(&fx);
    t_case("dropped");
    test_dropped(&fx);
    t_case("descriptors");
    test_descriptors(&fx);
    test_faults(&fx);
    t_case("cut");
    test_cut(&fx);
    fx_remove(&fx);
    return t_done();
}
