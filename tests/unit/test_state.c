/* SPDX-License-Identifier: Apache-2.0 */
#include "state.h"

#include <feedline/error.h>
#include <feedline/loader.h>

#include "t.h"

static const struct fl_state saved = { .dataset = 1,
                                       .order = 2,
                                       .pipeline = 3,
                                       .seed = 4,
                                       .epoch = 5,
                                       .position = 6,
                                       .bad = 7,
                                       .seen = 8,
                                       .world = 9,
                                       .batch = 10 };

static void test_round_trip(void)
{
    unsigned char buf[FL_STATE_BYTES];
    struct fl_state back;

    t_case("round trip");
    const int n = fl_state_pack(&saved, buf, sizeof(buf));
    T_OK(n > 0 && n <= FL_STATE_BYTES);
    T_EQ(fl_state_unpack(&back, buf, sizeof(buf)), 0);
    T_OK(!memcmp(&back, &saved, sizeof(back)));

    t_case("every changed byte, every shorter length");
    for (int i = 0; i < n; i++) {
        buf[i] ^= 0x10;
        T_EQ(fl_state_unpack(&back, buf, (size_t)n), -EBADMSG);
        buf[i] ^= 0x10;
        T_EQ(fl_state_unpack(&back, buf, (size_t)i), -EBADMSG);
        T_EQ(fl_state_pack(&saved, buf, (size_t)i), -E2BIG);
    }
}

static void test_compare(void)
{
    static const struct {
        const char *name, *text;
        struct fl_state now;
        int err;
    } cases[] = {
        { "same", "", { .dataset = 1, .order = 2, .pipeline = 3, .seed = 4 }, 0 },
        { "world and batch may differ", "", { 1, 2, 3, 4, 0, 0, 0, 0, 1, 1 }, 0 },
        { "dataset", "dataset", { .dataset = 0, .order = 2, .pipeline = 3, .seed = 4 }, -EINVAL },
        { "order", "order", { .dataset = 1, .order = 0, .pipeline = 3, .seed = 4 }, -EINVAL },
        { "pipeline", "pipeline", { .dataset = 1, .order = 2, .pipeline = 0, .seed = 4 }, -EINVAL },
        { "seed", "seed 4", { .dataset = 1, .order = 2, .pipeline = 3, .seed = 0 }, -EINVAL },
    };

    for (size_t i = 0; i < T_LEN(cases); i++) {
        t_case(cases[i].name);
        T_EQ(fl_state_compare(&saved, &cases[i].now), cases[i].err);
        if (cases[i].err)
            T_HAS(fl_last_error()->message, cases[i].text);
    }
}

int main(void)
{
    test_round_trip();
    test_compare();
    return t_done();
}
