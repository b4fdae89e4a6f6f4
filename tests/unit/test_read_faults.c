/* SPDX-License-Identifier: Apache-2.0 */
/* Reads that go wrong: short, refused, failing, hanging; files that are cut, replaced, missing or no files at all. */
#define _GNU_SOURCE
#include "read_fixture.h"

static struct fl_read *open_or_die(const struct fl_read_cfg *cfg)
{
    struct fl_read *r = NULL;
    const int err = fl_read_open(&r, cfg);

    if (err) {
        fprintf(stderr, "%s: %s\n", t_name, fl_last_error()->message);
        exit(err == FL_ERR(EPERM) || err == FL_ERR(ENOSYS) ? 77 : 1);
    }
    return r;
}

/* Submit one request and wait for it. */
static struct fl_sample *read_one(struct fl_read *r, struct fl_sample *s, uint32_t container,
                                  uint64_t offset, uint64_t length)
{
    struct fl_sample *done[2] = { NULL };

    *s = (struct fl_sample){ .id = 5, .position = 9, .n_reads = 1 };
    s->reads[0] =
        (struct fl_read_req){ .container = container, .offset = offset, .length = length };
    T_EQ(fl_read_submit(r, s), 0);
    T_EQ(fl_read_wait(r, done, 2, fl_now_ns() + 10000000000), 1);
    T_OK(done[0] == s);
    return s;
}

/* --- injected by the memory backend --- */

static void test_same_bytes(struct fx *fx)
{
    static const struct {
        const char *name;
        struct fl_io_faults faults;
    } cases[] = {
        { "delays", { .seed = 1, .delay_ns = 200000 } },
        { "short reads", { .seed = 2, .p_short = 0.7 } },
        { "EAGAIN and EINTR", { .seed = 3, .p_again = 0.3 } },
        { "some errors that go away when the file is opened anew",
          { .seed = 4, .p_short = 0.3, .p_again = 0.3, .delay_ns = 50000 } },
    };

    for (size_t i = 0; i < T_LEN(cases); i++) {
        struct fl_read_cfg cfg = fx_cfg(fx);
        FlLoaderStats st = { 0 };

        t_case(cases[i].name);
        cfg.faults = &cases[i].faults;
        struct fl_read *r = open_or_die(&cfg);
        T_EQ(fx_run(fx, r, 400, 11 + i, fx_draw), 400);
        fl_read_stats(r, &st);
        T_OK(st.reads <
             400 * 60); // bounded: a short read asks for the rest, not for everything again
        if (cases[i].faults.p_short + cases[i].faults.p_again > 0)
            T_OK(st.retries > 50);
        T_OK(fl_read_close(&r));
    }
}

/* One container always fails: exactly its samples are bad, and each says where. */
static void test_bad_container(struct fx *fx)
{
    const struct fl_io_faults faults = { .seed = 5, .p_error = 1, .only_slot = 1 };
    struct fl_read_cfg cfg = fx_cfg(fx);
    struct fl_sample s;

    t_case("one container fails");
    cfg.faults = &faults;
    struct fl_read *r = open_or_die(&cfg);
    // The stage opens container 0 first.
    read_one(r, &s, 0, 1000, 500);
    T_EQ(s.err.code, FL_ERR(EIO));
    T_EQ(s.err.stage, FL_STAGE_READ);
    T_STR(s.err.container, fx->files[0].path);
    T_EQ(s.err.offset, 1000);
    T_EQ(s.err.sample, 5);
    T_EQ(s.err.position, 9);
    T_HAS(s.err.message, fx->files[0].path);
    T_HAS(s.err.message, "1000");
    fl_read_release(&s);
    read_one(r, &s, 4, 100, 400);
    T_EQ(s.err.code, 0);
    T_OK(fx_same(fx, &s));
    fl_read_release(&s);
    T_OK(fl_read_close(&r));
}

/* Random failures: each sample is either right or has an error; neighbours that shared a read are tried by themselves. */
static void test_random_errors(struct fx *fx)
{
    const struct fl_io_faults faults = { .seed = 6, .p_error = 0.2, .p_short = 0.2 };
    struct fl_read_cfg cfg = fx_cfg(fx);

    t_case("random errors");
    cfg.faults = &faults;
    struct fl_read *r = open_or_die(&cfg);
    const int64_t good = fx_run(fx, r, 500, 77, fx_draw);
    T_OK(good > 250 && good < 500);
    T_OK(fl_read_close(&r));
}

static void test_stall(struct fx *fx)
{
    const struct fl_io_faults faults = { .hang_after = 1 };
    struct fl_read_cfg cfg = fx_cfg(fx);
    struct fl_sample s[3], *done[4];

    t_case("a drive that stops answering");
    cfg.faults = &faults;
    cfg.stall_timeout_ns = 50000000;
    struct fl_read *r = open_or_die(&cfg);
    read_one(r, &s[0], 0, 0, 100);
    for (int i = 1; i < 3; i++) {
        s[i] = (struct fl_sample){ .n_reads = 1 };
        s[i].reads[0] =
            (struct fl_read_req){ .container = 9, .offset = 70000 * (uint64_t)i, .length = 99 };
        T_EQ(fl_read_submit(r, &s[i]), 0);
    }
    for (int turn = 0; turn < 2; turn++) { // and again for whoever waits again
        const int64_t began = fl_now_ns();
        T_EQ(fl_read_wait(r, done, 4, INT64_MAX), FL_ERR(ETIMEDOUT));
        T_OK(fl_now_ns() - began >= 45000000 && fl_now_ns() - began < 5000000000);
        T_EQ(fl_last_error()->stage, FL_STAGE_READ);
        T_STR(fl_last_error()->container, fx->files[9].path);
        T_EQ(fl_last_error()->offset, 70000);
        T_HAS(fl_last_error()->message, "70000");
        T_HAS(fl_last_error()->message, "stall_timeout");
    }
    const int64_t began = fl_now_ns();
    T_OK(fl_read_close(&r));
    T_OK(fl_now_ns() - began < 2000000000);
}

static void test_deadline_and_wake(struct fx *fx)
{
    static const struct fl_io_faults none;
    static const struct {
        const char *name;
        FlIo io;
        bool inline_reads;
        const struct fl_io_faults *faults;
    } cases[] = { { "wake: io_uring", FL_IO_AUTO, false, NULL },
                  { "wake: pread", FL_IO_PREAD, false, NULL },
                  { "wake: pread in the caller's thread", FL_IO_PREAD, true, NULL },
                  { "wake: memory", FL_IO_AUTO, false, &none } };

    for (size_t i = 0; i < T_LEN(cases); i++) {
        struct fl_read_cfg cfg = fx_cfg(fx);
        struct fl_sample *done[1];

        t_case(cases[i].name);
        cfg.io = cases[i].io;
        cfg.inline_reads = cases[i].inline_reads;
        cfg.faults = cases[i].faults;
        struct fl_read *r = open_or_die(&cfg);
        const int64_t began = fl_now_ns();
        T_EQ(fl_read_wait(r, done, 1, began + 20000000), 0);
        T_OK(fl_now_ns() - began >= 20000000);
        T_EQ(fl_read_wait(r, done, 1, 0), 0); // polls
        for (int k = 0; k < 3; k++) {
            fl_read_wake(r); // before the wait: it still ends it
            fl_read_wake(r);
            T_EQ(fl_read_wait(r, done, 1, INT64_MAX), 0);
        }
        T_OK(fl_read_close(&r));
    }
}

/* --- files --- */

static void test_cut_while_open(struct fx *fx, FlSwitch direct, FlIo io)
{
    struct fx_file *f = &fx->files[10]; // 700,001 bytes
    struct fl_read_cfg cfg = fx_cfg(fx);
    struct fl_sample s[4], *done[4];
    int n = 0;

    t_case(direct == FL_OFF ? "cut while open, buffered" : "cut while open, direct");
    cfg.direct = direct;
    cfg.io = io;
    struct fl_read *r = open_or_die(&cfg);
    read_one(r, &s[0], 10, 3, 1000);
    fl_read_release(&s[0]);
    T_EQ(truncate(f->path, 300001), 0);
    // Three neighbours in one read: before the cut, across it, behind it.
    static const uint64_t at[] = { 299000, 299900, 300100 };
    for (int i = 0; i < 3; i++) {
        s[i] = (struct fl_sample){ .id = i, .n_reads = 1 };
        s[i].reads[0] = (struct fl_read_req){ .container = 10, .offset = at[i], .length = 150 };
        T_EQ(fl_read_submit(r, &s[i]), 0);
    }
    while (n < 3) {
        const int got = fl_read_wait(r, done, 4, fl_now_ns() + 5000000000);
        T_OK(got > 0);
        if (got <= 0)
            break;
        n += got;
    }
    T_EQ(s[0].err.code, 0);
    T_OK(fx_same(fx, &s[0]));
    for (int i = 1; i < 3; i++) {
        T_EQ(s[i].err.code, FL_ERR(EBADMSG));
        T_HAS(s[i].err.message, "cut");
        T_HAS(s[i].err.message, f->path);
    }
    for (int i = 0; i < 3; i++)
        fl_read_release(&s[i]);
    T_OK(fl_read_close(&r));
    fx_write(f);
}

static void test_replaced_while_open(struct fx *fx)
{
    struct fl_read_cfg cfg = fx_cfg(fx);
    struct fx_file *f = &fx->files[8];
    struct fl_sample s;
    char other[400];

    t_case("replaced while open: what was opened is what is read");
    struct fl_read *r = open_or_die(&cfg);
    read_one(r, &s, 8, 0, 10);
    fl_read_release(&s);
    snprintf(other, sizeof(other), "%.299s.new", f->path);
    const int fd = open(other, O_WRONLY | O_CREAT, 0644);
    T_EQ(write(fd, "short", 5), 5);
    close(fd);
    T_EQ(rename(other, f->path), 0);
    read_one(r, &s, 8, 5000, 100000);
    T_EQ(s.err.code, 0);
    T_OK(fx_same(fx, &s));
    fl_read_release(&s);
    T_OK(fl_read_close(&r));

    t_case("replaced before it was opened");
    r = open_or_die(&cfg);
    read_one(r, &s, 8, 5000, 100000);
    T_EQ(s.err.code, FL_ERR(ESTALE));
    T_HAS(s.err.message, f->path);
    T_HAS(s.err.message, "5 bytes");
    fl_read_release(&s);
    read_one(r, &s, 7, 5000, 1000);
    T_EQ(s.err.code, 0);
    fl_read_release(&s);
    T_OK(fl_read_close(&r));
    fx_write(f);
}

static void test_other_time(struct fx *fx)
{
    struct fl_read_cfg cfg = fx_cfg(fx);
    struct fl_sample s;

    t_case("other time of modification");
    const int64_t old = fx->files[7].mtime_ns;
    fx->files[7].mtime_ns = 12345;
    fx->checks = 0;
    struct fl_read *r = open_or_die(&cfg);
    for (int i = 0; i < 3; i++) {
        read_one(r, &s, 7, 500, 1000);
        T_EQ(s.err.code, 0);
        fl_read_release(&s);
    }
    T_EQ(fx->checks, 1);
    T_OK(fl_read_close(&r));
    t_case("other time of modification, refused");
    fx->check_err = FL_ERR(ESTALE);
    r = open_or_die(&cfg);
    read_one(r, &s, 7, 500, 1000);
    T_EQ(s.err.code, FL_ERR(ESTALE));
    T_STR(s.err.container, fx->files[7].path);
    fl_read_release(&s);
    T_OK(fl_read_close(&r));
    fx->check_err = 0;
    fx->files[7].mtime_ns = old;
}

static void test_no_file(struct fx *fx)
{
    static const struct {
        const char *name;
        int err;
        const char *text;
    } cases[] = { { "missing", FL_ERR(ENOENT), "cannot be opened" },
                  { "a FIFO", FL_ERR(EINVAL), "not a regular file" },
                  { "a folder", FL_ERR(EINVAL), "not a regular file" } };
    struct fx_file *f = &fx->files[6];

    for (int i = 0; i < 3; i++) {
        struct fl_read_cfg cfg = fx_cfg(fx);
        struct fl_sample s;

        t_case(cases[i].name);
        unlink(f->path);
        if (i == 1)
            T_EQ(mkfifo(f->path, 0644), 0);
        if (i == 2)
            T_EQ(mkdir(f->path, 0755), 0);
        struct fl_read *r = open_or_die(&cfg);
        read_one(r, &s, 6, 0, 1000);
        T_EQ(s.err.code, cases[i].err);
        T_HAS(s.err.message, cases[i].text);
        T_HAS(s.err.message, f->path);
        fl_read_release(&s);
        read_one(r, &s, 7, 0, 1000);
        T_EQ(s.err.code, 0);
        fl_read_release(&s);
        T_OK(fl_read_close(&r));
        if (i == 2)
            rmdir(f->path);
    }
    unlink(f->path);
    fx_write(f);
}

static void test_limits(struct fx *fx)
{
    struct fl_read_cfg cfg = fx_cfg(fx);
    struct fl_sample s;

    t_case("larger than the read memory");
    cfg.bytes = 1 << 20;
    struct fl_read *r = open_or_die(&cfg);
    read_one(r, &s, 0, 0, 3000001);
    T_EQ(s.err.code, FL_ERR(E2BIG));
    T_HAS(s.err.message, "read_bytes");
    T_HAS(s.err.message, "3000001");
    T_HAS(s.err.message, "1048576");
    fl_read_release(&s);
    read_one(r, &s, 0, 512, 1 << 20); // exactly all of it
    T_EQ(s.err.code, 0);
    T_OK(fx_same(fx, &s));
    fl_read_release(&s);
    t_case("behind the end of the file");
    read_one(r, &s, 1, 0, 2);
    T_EQ(s.err.code, FL_ERR(EBADMSG));
    fl_read_release(&s);
    read_one(r, &s, 0, UINT64_MAX - 5, 10);
    T_EQ(s.err.code, FL_ERR(EBADMSG));
    fl_read_release(&s);
    read_one(r, &s, 400, 0, 2);
    T_EQ(s.err.code, FL_ERR(EBADMSG));
    fl_read_release(&s);
    T_OK(fl_read_close(&r));
    t_case("settings");
    cfg.bytes = 1000;
    T_EQ(fl_read_open(&r, &cfg), FL_ERR(EINVAL));
    T_HAS(fl_last_error()->message, "read_bytes");
    struct fl_budget budget = { .limit = 5 << 20 };
    cfg.bytes = 8 << 20;
    cfg.budget = &budget;
    T_EQ(fl_read_open(&r, &cfg), FL_ERR(ENOMEM));
    T_HAS(fl_last_error()->message, "memory_limit");
    T_EQ(budget.used, 0);
}

/* --- straight into the caller's memory --- */

static void test_dst(struct fx *fx, FlSwitch direct, FlIo io)
{
    static const struct {
        uint64_t offset, length, room;
        unsigned shift; // of the address
        bool straight_direct, straight_buffered;
    } cases[] = {
        { 0, 150528, 150528, 0, true, true },      { 512, 150528, 150528, 0, true, true },
        { 512, 150528, 150528, 4096, true, true }, { 100, 150528, 150528, 0, false, true },
        { 512, 150000, 150000, 0, false, true },   { 512, 150000, 150016, 0, true, true },
        { 512, 150528, 150528, 1, false, true },   { 512, 1024, 1024, 0, false, false },
    };
    struct fl_slab slab;
    struct fl_read_cfg cfg = fx_cfg(fx);
    struct fl_sample s;

    t_case(direct == FL_ON ? "straight to the row, direct" : "straight to the row, buffered");
    T_EQ(fl_slab_open(&slab, 1 << 20, -1, NULL, "rows"), 0);
    const struct fl_io_region region = { .base = slab.base, .bytes = slab.bytes };
    cfg.direct = direct;
    cfg.io = io;
    cfg.regions = &region;
    cfg.n_regions = 1;
    struct fl_read *r = open_or_die(&cfg);
    for (size_t i = 0; i < T_LEN(cases); i++) {
        struct fl_sample *done[1];
        uint8_t *dst = slab.base + cases[i].shift;
        memset(slab.base, 0xEE, slab.bytes);
        s = (struct fl_sample){ .n_reads = 1 };
        s.reads[0] = (struct fl_read_req){ .container = 0,
                                           .offset = cases[i].offset,
                                           .length = cases[i].length,
                                           .dst = dst,
                                           .dst_size = cases[i].room };
        T_EQ(fl_read_submit(r, &s), 0);
        T_EQ(fl_read_wait(r, done, 1, fl_now_ns() + 5000000000), 1);
        T_EQ(s.err.code, 0);
        const bool straight = s.reads[0].data == dst;
        // What a drive wants of addresses differs: 1 is odd for all of them.
        T_EQ(straight, direct == FL_ON ? cases[i].straight_direct : cases[i].straight_buffered);
        fl_read_settle(&s.reads[0]);
        T_OK(!memcmp(dst, fx->files[0].bytes + cases[i].offset, cases[i].length));
        T_EQ(dst[cases[i].room], 0xEE);
        fl_read_release(&s);
    }
    T_OK(fl_read_close(&r));
    fl_slab_close(&slab);
}

static void draw_next(struct fx *fx, struct fl_sample *s, struct fl_rng *r)
{
    const uint64_t n = fx->files[0].size / 3000;

    (void)r;
    s->n_reads = 1;
    s->reads[0] = (struct fl_read_req){ .container = 0,
                                        .offset = (uint64_t)s->id % n * 3000,
                                        .length = 2500 };
}

static void test_coalescing(struct fx *fx)
{
    struct fl_read_cfg cfg = fx_cfg(fx);
    FlLoaderStats st = { 0 };

    t_case("neighbours share reads");
    struct fl_read *r = open_or_die(&cfg);
    T_EQ(fx_run(fx, r, 3000, 1, draw_next), 3000);
    fl_read_stats(r, &st);
    // 48 samples of 3 KB in flight: about that many in one read.
    T_OK(st.reads < 3000 / 10);
    T_OK(st.bytes_read >= st.bytes_wanted);
    T_OK(fl_read_close(&r));
    cfg.coalesce = 1;
    r = open_or_die(&cfg);
    st = (FlLoaderStats){ 0 };
    T_EQ(fx_run(fx, r, 300, 1, draw_next), 300);
    fl_read_stats(r, &st);
    T_EQ(st.reads, 300);
    T_OK(fl_read_close(&r));
}

/* Direct reads are rounded to the drive's blocks, not only to what the file system takes. */
static void test_rounding(struct fx *fx)
{
    struct fl_read_cfg cfg = fx_cfg(fx);
    FlLoaderStats before = { 0 }, st = { 0 };
    struct fl_sample s;

    t_case("rounded to 4,096");
    cfg.direct = FL_ON;
    struct fl_read *r = open_or_die(&cfg);
    read_one(r, &s, 0, 0, 1); // opens the file
    const bool refused = s.err.code;
    fl_read_release(&s);
    fl_read_stats(r, &before);
    for (int i = 0; i < 2 && !refused; i++) {
        read_one(r, &s, 0, 7 * 512 + 1, 600); // over the border at 4,096
        T_OK(!s.err.code && fx_same(fx, &s));
        fl_read_release(&s);
    }
    fl_read_stats(r, &st);
    if (!refused)
        T_EQ(st.bytes_read - before.bytes_read, 2 * 8192);
    T_OK(fl_read_close(&r));
}

/* Small records of a few neighbourhoods in random order: each neighbourhood is read once, and long. */
static void draw_near(struct fx *fx, struct fl_sample *s, struct fl_rng *r)
{
    const uint64_t block = (uint64_t)s->id / 200 * 500000 % (fx->files[0].size - 500000);

    s->n_reads = 1;
    s->reads[0] = (struct fl_read_req){ .container = 0,
                                        .offset = block + fl_rng_below(r, 300000),
                                        .length = 1 + fl_rng_below(r, 6000) };
}

static void test_around(struct fx *fx)
{
    static const struct fl_io_faults faults[] = { { .seed = 8 },
                                                  { .seed = 9, .p_short = 0.3, .delay_ns = 200000 },
                                                  { .seed = 10, .p_error = 0.2 } };

    for (size_t i = 0; i < T_LEN(faults); i++) {
        struct fl_read_cfg cfg = fx_cfg(fx);
        FlLoaderStats st = { 0 };
        t_case("pieces kept for neighbours");
        cfg.around = 65536;
        cfg.faults = &faults[i];
        struct fl_read *r = open_or_die(&cfg);
        const int64_t good = fx_run(fx, r, 2000, 5, draw_near);
        T_OK(i == 2 ? good > 1000 && good < 2000 : good == 2000);
        fl_read_stats(r, &st);
        // Of each 65,536 bytes ten or so samples; those across a border are read by themselves.
        if (!i)
            T_OK(st.reads < 2000 / 4);
        T_OK(fl_read_close(&r));
    }
    t_case("pieces kept: a cut file");
    struct fl_read_cfg cfg = fx_cfg(fx);
    const struct fl_io_faults cut = { .eof_early = true };
    struct fl_sample s;
    cfg.around = 65536;
    cfg.faults = &cut;
    struct fl_read *r = open_or_die(&cfg);
    for (int i = 0; i < 3; i++) { // the last byte is missing each time, the one before never
        read_one(r, &s, 6, 65535, 1);
        T_EQ(s.err.code, FL_ERR(EBADMSG));
        fl_read_release(&s);
        read_one(r, &s, 6, 65000, 535);
        T_EQ(s.err.code, 0);
        T_OK(fx_same(fx, &s));
        fl_read_release(&s);
    }
    T_OK(fl_read_close(&r));
}

int main(void)
{
    struct fx fx;

    fx_make(&fx, fx_where(), FX_FILES, 0);
    test_same_bytes(&fx);
    test_bad_container(&fx);
    test_random_errors(&fx);
    test_stall(&fx);
    test_deadline_and_wake(&fx);
    test_cut_while_open(&fx, FL_OFF, FL_IO_AUTO);
    test_cut_while_open(&fx, FL_AUTO, FL_IO_AUTO);
    fx_evict(&fx);
    test_cut_while_open(&fx, FL_AUTO, FL_IO_AUTO);
    fx_evict(&fx);
    test_cut_while_open(&fx, FL_AUTO, FL_IO_PREAD);
    test_replaced_while_open(&fx);
    test_other_time(&fx);
    test_no_file(&fx);
    test_limits(&fx);
    test_dst(&fx, FL_OFF, FL_IO_AUTO);
    test_dst(&fx, FL_OFF, FL_IO_PREAD);
    test_dst(&fx, FL_ON, FL_IO_AUTO);
    test_dst(&fx, FL_ON, FL_IO_PREAD);
    test_coalescing(&fx);
    test_rounding(&fx);
    test_around(&fx);
    fx_remove(&fx);
    return t_done();
}
