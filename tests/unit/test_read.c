/* SPDX-License-Identifier: Apache-2.0 */
/* The same bytes from every backend, in every mode. */
#define _GNU_SOURCE
#include "read_fixture.h"
#include "read_state.h"

static const struct fl_io_faults no_faults;

static const struct {
    const char *name;
    struct fl_read_cfg cfg;
} cases[] = {
    { "io_uring", { .io = FL_IO_URING } },
    { "io_uring, buffered", { .io = FL_IO_URING, .direct = FL_OFF } },
    { "io_uring, direct", { .io = FL_IO_URING, .direct = FL_ON } },
    { "io_uring, nothing registered", { .io = FL_IO_URING, .no_register = true } },
    { "io_uring, depth 1", { .io = FL_IO_URING, .depth = 1 } },
    { "io_uring, depth 3, small memory", { .io = FL_IO_URING, .depth = 3, .bytes = 4000000 } },
    { "io_uring, not coalesced", { .io = FL_IO_URING, .coalesce = 1 } },
    { "io_uring in the caller's thread", { .io = FL_IO_URING, .inline_reads = true } },
    { "pread", { .io = FL_IO_PREAD } },
    { "pread, direct", { .io = FL_IO_PREAD, .direct = FL_ON } },
    { "pread, one thread", { .io = FL_IO_PREAD, .threads = 1, .depth = 2 } },
    { "pread in the caller's thread", { .io = FL_IO_PREAD, .inline_reads = true } },
    { "automatic", { .io = FL_IO_AUTO } },
    { "memory that comes later", { .io = FL_IO_AUTO, .lazy = true, .bytes = 40 << 20 } },
    { "pieces kept for neighbours", { .io = FL_IO_AUTO, .around = 65536 } },
    { "pieces kept, small memory", { .io = FL_IO_AUTO, .around = 65536, .bytes = 4000000 } },
    { "pieces kept, direct", { .io = FL_IO_AUTO, .around = 16384, .direct = FL_ON } },
    { "lent", { .io = FL_IO_AUTO, .direct = FL_OFF, .lend = true } },
    { "lent where cached, small memory", { .io = FL_IO_AUTO, .lend = true, .bytes = 4000000 } },
    { "lent, pread", { .io = FL_IO_PREAD, .direct = FL_OFF, .lend = true } },
    { "lent, else pieces kept",
      { .io = FL_IO_AUTO, .direct = FL_OFF, .lend = true, .around = 65536 } },
    { "memory", { .faults = &no_faults } },
};

/* Buffers are registered as far as their memory has been touched, and the rest when it is. */
static void test_grow(struct fx *fx)
{
    struct fl_read_cfg cfg = fx_cfg(fx);
    struct fl_read *r = NULL;
    FlLoaderStats st = { 0 };

    t_case("registered piece by piece");
    cfg.io = FL_IO_URING;
    cfg.direct = FL_OFF;
    cfg.lazy = true;
    cfg.bytes = 3 * FL_FIRST_BYTES + 4096;
    const int err = fl_read_open(&r, &cfg);
    if (err && fx_no_uring(err))
        return;
    T_EQ(err, 0);
    T_EQ(fx_run(fx, r, 50, 1, fx_draw), 50);
    fl_read_stats(r, &st);
    uint8_t *base = r->arena.slab.base;
    if (st.io_registered & 2) {
        T_EQ(r->ops->find_buffer(r->io, base + FL_FIRST_BYTES - 4096, 4096), 0);
        T_EQ(r->ops->find_buffer(r->io, base + FL_FIRST_BYTES - 4096, 8192), -1); // in two pieces
        T_EQ(r->ops->find_buffer(r->io, base + FL_FIRST_BYTES, 4096), -1);
        T_OK(r->growing);
    }
    T_OK(fl_read_touch(r, FL_FIRST_BYTES));
    while (fl_read_touch(r, 5 << 20))
        ;
    T_EQ(r->arena.slab.touched, r->arena.slab.bytes);
    T_EQ(fx_run(fx, r, 300, 2, fx_draw), 300);
    fl_read_stats(r, &st);
    if (st.io_registered & 2) {
        T_EQ(r->ops->find_buffer(r->io, base + FL_FIRST_BYTES, 4096), 1);
        T_EQ(r->ops->find_buffer(r->io, base + 3 * FL_FIRST_BYTES, 4096), 3);
        T_EQ(r->ops->find_buffer(r->io, base + 3 * FL_FIRST_BYTES, 4097), -1);
        T_OK(!r->growing);
    }
    T_OK(fl_read_close(&r));
}

static void test_backends(struct fx *fx, bool cold)
{
    for (size_t i = 0; i < T_LEN(cases); i++) {
        struct fl_budget budget = { 0 };
        struct fl_read_cfg cfg = fx_cfg(fx), want = cases[i].cfg;
        struct fl_read *r = NULL;

        want.source = cfg.source;
        want.numa_node = -1;
        want.budget = &budget;
        want.bytes = want.bytes ? want.bytes : cfg.bytes;
        t_case(cases[i].name);
        if (cold)
            fx_evict(fx);
        const int err = fl_read_open(&r, &want);
        if (err && want.io == FL_IO_URING && fx_no_uring(err)) {
            printf("left out: %s: %s\n", cases[i].name, fl_last_error()->message);
            continue;
        }
        T_EQ(err, 0);
        if (err)
            continue;
        T_EQ(budget.used, fl_read_bytes(&want));
        T_EQ(fx_run(fx, r, 600, i, fx_draw), 600);
        FlLoaderStats st = { 0 };
        fl_read_stats(r, &st);
        T_OK(st.io_backend[0] && st.io_reason[0]);
        T_OK(st.bytes_read >= st.bytes_wanted / 2); // overlapping requests share
        T_EQ(st.stages[FL_STAGE_READ].items, 600);
        if (getenv("FL_TEST_VERBOSE"))
            printf("%-34s %s depth %d direct %d registered %d reads %lld read %.1f MB wanted %.1f "
                   "MB: %s\n",
                   cases[i].name, st.io_backend, st.io_depth, st.io_direct, st.io_registered,
                   (long long)st.reads, (double)st.bytes_read / 1e6, (double)st.bytes_wanted / 1e6,
                   st.io_reason);
        T_OK(fl_read_close(&r));
        T_OK(!r);
        T_EQ(budget.used, 0);
    }
}

int main(void)
{
    struct fx fx;

    fx_make(&fx, fx_where(), FX_FILES, 0);
    test_backends(&fx, true);
    test_backends(&fx, false);
    test_grow(&fx);
    fx_remove(&fx);
    fx_make(&fx, "/dev/shm", FX_FILES, 0);
    test_backends(&fx, false);
    fx_remove(&fx);
    return t_done();
}
