/* SPDX-License-Identifier: Apache-2.0 */
#include "plan.h"

#include "base/rng.h"
#include "t.h"

static const struct {
    const char *name;
    struct fl_plan plan; // n, batch, rank, world, tail
    int64_t base, batches, samples, last_rows;
} cases[] = {
    { "fits exactly", { 100, 10, 0, 1, FL_TAIL_PARTIAL }, 0, 10, 100, 10 },
    { "partial tail", { 103, 10, 0, 1, FL_TAIL_PARTIAL }, 0, 11, 103, 3 },
    { "dropped tail", { 103, 10, 0, 1, FL_TAIL_DROP }, 0, 10, 100, 10 },
    { "padded tail", { 103, 10, 0, 1, FL_TAIL_PAD }, 0, 11, 103, 10 },
    { "tail dealt out, rank 0", { 43, 10, 0, 2, FL_TAIL_PARTIAL }, 0, 3, 22, 2 },
    { "tail dealt out, rank 1", { 43, 10, 1, 2, FL_TAIL_PARTIAL }, 0, 3, 21, 1 },
    { "tail of one, rank 0", { 41, 10, 0, 2, FL_TAIL_PARTIAL }, 0, 3, 21, 1 },
    { "tail of one, rank 1 has none", { 41, 10, 1, 2, FL_TAIL_PARTIAL }, 0, 2, 20, 10 },
    { "tail of one, padded for rank 1", { 41, 10, 1, 2, FL_TAIL_PAD }, 0, 3, 20, 10 },
    { "fewer samples than a batch", { 3, 10, 0, 1, FL_TAIL_PARTIAL }, 0, 1, 3, 3 },
    { "fewer samples than ranks", { 3, 10, 3, 4, FL_TAIL_PARTIAL }, 0, 0, 0, 0 },
    { "batch of one", { 3, 1, 0, 1, FL_TAIL_DROP }, 0, 3, 3, 1 },
    { "resumed in the middle", { 100, 10, 0, 1, FL_TAIL_PARTIAL }, 35, 7, 65, 5 },
    { "resumed at the end", { 100, 10, 0, 1, FL_TAIL_PARTIAL }, 100, 0, 0, 0 },
};

static void test_table(void)
{
    for (size_t i = 0; i < T_LEN(cases); i++) {
        struct fl_cursor c = { .base = cases[i].base };
        struct fl_plan_batch b = { 0 };
        int64_t batches = 0, samples = 0;

        t_case(cases[i].name);
        T_EQ(fl_plan_batches(&cases[i].plan, cases[i].base), cases[i].batches);
        T_EQ(fl_plan_samples(&cases[i].plan, cases[i].base), cases[i].samples);
        while (fl_plan_next(&cases[i].plan, &c, &b)) {
            batches++;
            samples += b.samples;
            T_OK(b.rows > 0);
        }
        T_EQ(batches, cases[i].batches);
        T_EQ(samples, cases[i].samples);
        T_EQ(b.rows, cases[i].last_rows);
        T_EQ(c.epoch, 1);
        T_EQ(c.base, 0);
    }
}

/* One epoch of all ranks: every position once (but a dropped tail), equal counts where promised, and a
 * run that stops anywhere and goes on with another world and batch sees the rest exactly once. */
static void property(struct fl_rng *r)
{
    enum { MAX = 400 };
    unsigned char seen[MAX] = { 0 };
    int64_t base = 0, n = 1 + (int64_t)fl_rng_below(r, MAX - 1);
    const FlTail tail = (FlTail)fl_rng_below(r, 3);

    for (int leg = 0; leg < 3; leg++) {
        const int64_t world = 1 + (int64_t)fl_rng_below(r, 5),
                      batch = 1 + (int64_t)fl_rng_below(r, 20);
        struct fl_plan plan = { n, batch, 0, world, tail };
        const int64_t all = fl_plan_batches(&plan, base); // rank 0 never has fewer than another
        const int64_t stop = leg == 2 ? all : (int64_t)fl_rng_below(r, (uint64_t)all + 1);
        int64_t end = base, epoch = 0, saved = -1;
        for (plan.rank = 0; plan.rank < world; plan.rank++) {
            struct fl_cursor c = { .base = base };
            struct fl_plan_batch b;
            if (tail != FL_TAIL_PARTIAL)
                T_EQ(fl_plan_batches(&plan, base), all);
            while (c.index < stop && fl_plan_next(&plan, &c, &b)) {
                T_OK(b.rows > 0 && b.samples <= b.rows && b.position + b.samples <= b.end);
                if (tail != FL_TAIL_PARTIAL)
                    T_EQ(b.rows, batch);
                for (int64_t i = 0; i < b.samples; i++)
                    seen[b.position + i]++;
                end = b.end > end ? b.end : end;
            }
            if (c.epoch == 0) {
                const int64_t at = fl_plan_position(&plan, &c, &epoch);
                if (!epoch) { // every rank that is still inside the epoch saves the same state
                    T_OK(saved < 0 || saved == at);
                    saved = at;
                }
            }
        }
        base = end;
        if (stop == all)
            break;
    }
    int64_t wrong = 0, missing = 0;
    for (int64_t i = 0; i < n; i++) {
        wrong += seen[i] > 1;
        missing += !seen[i];
    }
    T_EQ(wrong, 0);
    if (tail != FL_TAIL_DROP)
        T_EQ(missing, 0);
}

int main(void)
{
    struct fl_rng r;

    test_table();
    t_case("property");
    fl_rng_init(&r, 42, 0, 0, FL_RNG_USER, 0);
    for (int i = 0; i < 5000; i++)
        property(&r);
    return t_done();
}
