/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include <feedline/error.h>

#include "base/clock.h"
#include "shard/window.h"
#include "t.h"

#define SLOTS 8

struct job {
    int64_t next, end;
    int64_t item[SLOTS];
    uint64_t bytes; // of each slot
    _Atomic uint64_t held, most;
    unsigned delay_us;
};

static int64_t next_item(void *ctx)
{
    struct job *j = ctx;

    return j->next < j->end ? j->next++ : -1;
}

static uint64_t prepare(void *ctx, unsigned thread, unsigned slot, int64_t item)
{
    struct job *j = ctx;

    (void)thread;
    if (j->delay_us)
        usleep((unsigned)(item * 7919 % (int64_t)j->delay_us));
    const uint64_t held = atomic_fetch_add(&j->held, j->bytes) + j->bytes;
    uint64_t most = atomic_load(&j->most);
    while (held > most && !atomic_compare_exchange_weak(&j->most, &most, held))
        ;
    j->item[slot] = item;
    return j->bytes;
}

static void run(unsigned threads, int64_t items, uint64_t bytes, uint64_t budget, unsigned delay)
{
    struct job j = { .end = items, .bytes = bytes, .delay_us = delay };
    const struct fl_window_cfg cfg = { .n_threads = threads,
                                       .n_slots = SLOTS,
                                       .budget = budget,
                                       .ctx = &j,
                                       .next = next_item,
                                       .prepare = prepare };
    struct fl_window *w = NULL;
    int slot;

    T_EQ(fl_window_start(&w, &cfg), 0);
    for (int64_t i = 0; i < items; i++) {
        while ((slot = fl_window_take(w, fl_now_ns() + 1000000)) == -1)
            ;
        T_OK(slot >= 0);
        if (slot < 0)
            break;
        T_EQ(j.item[slot], i);
        atomic_fetch_sub(&j.held, bytes);
        fl_window_release(w);
    }
    T_EQ(fl_window_take(w, INT64_MAX), -2);
    fl_window_stop(w);
    // The budget, and one sample for each thread that was let in just before.
    T_OK(atomic_load(&j.most) <= budget + threads * bytes);
}

static void test_order(void)
{
    static const struct {
        const char *name;
        unsigned threads;
        int64_t items;
        uint64_t bytes, budget;
        unsigned delay;
    } cases[] = {
        { "nothing", 2, 0, 1, 100, 0 },
        { "one", 4, 1, 1, 100, 0 },
        { "one thread", 1, 1000, 1, 100, 0 },
        { "many threads", 7, 5000, 1, 100, 0 },
        { "uneven work", 4, 300, 1, 100, 500 },
        { "more threads than slots", 16, 1000, 1, 100, 20 },
        { "each item larger than the budget", 4, 300, 1000, 10, 50 },
        { "budget of three items", 4, 300, 1000, 3000, 50 },
    };

    for (size_t i = 0; i < T_LEN(cases); i++) {
        t_case(cases[i].name);
        run(cases[i].threads, cases[i].items, cases[i].bytes, cases[i].budget, cases[i].delay);
    }
}

static void test_stop(void)
{
    struct job j = { .end = INT64_MAX, .bytes = 1 };
    const struct fl_window_cfg cfg = { .n_threads = 3,
                                       .n_slots = SLOTS,
                                       .budget = 4,
                                       .ctx = &j,
                                       .next = next_item,
                                       .prepare = prepare };
    struct fl_window *w = NULL;

    t_case("stop while threads wait for room");
    T_EQ(fl_window_start(&w, &cfg), 0);
    T_OK(fl_window_take(w, INT64_MAX) >= 0);
    usleep(10000);
    fl_window_stop(w);
    fl_window_stop(NULL);
}

int main(void)
{
    test_order();
    test_stop();
    return t_done();
}
