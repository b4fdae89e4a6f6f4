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
                                       .batch = 10,
                                       .exclude = 11,
                                       .n_excluded = 12 };

/* As version 1 wrote the same state, but for the last two members. */
static const unsigned char version_1[96] = {
    0x46, 0x4C, 0x53, 0x31, 1,  0, 0, 0, 96,   0,    0,    0,    0,    0,    0,    0,    1, 0, 0, 0,
    0,    0,    0,    0,    2,  0, 0, 0, 0,    0,    0,    0,    3,    0,    0,    0,    0, 0, 0, 0,
    4,    0,    0,    0,    0,  0, 0, 0, 5,    0,    0,    0,    0,    0,    0,    0,    6, 0, 0, 0,
    0,    0,    0,    0,    7,  0, 0, 0, 0,    0,    0,    0,    8,    0,    0,    0,    0, 0, 0, 0,
    9,    0,    0,    0,    10, 0, 0, 0, 0x12, 0x38, 0x51, 0x28, 0xA7, 0x7D, 0x90, 0x51,
};

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

static void test_version_1(void)
{
    unsigned char buf[sizeof(version_1)];
    struct fl_state back, same = saved;

    t_case("a state of version 1");
    T_EQ(fl_state_unpack(&back, version_1, sizeof(version_1)), 0);
    T_EQ(back.n_excluded, -1);
    same.exclude = 0;
    same.n_excluded = -1;
    T_OK(!memcmp(&back, &same, sizeof(back)));
    same.order = 99;
    T_EQ(fl_state_compare(&back, &same), -EINVAL);
    T_HAS(fl_last_error()->message, "the order (shuffle");
    for (size_t i = 0; i < sizeof(buf); i++) {
        memcpy(buf, version_1, sizeof(buf));
        buf[i] ^= 0x20;
        T_EQ(fl_state_unpack(&back, buf, sizeof(buf)), -EBADMSG);
        T_EQ(fl_state_unpack(&back, version_1, i), -EBADMSG);
    }

    t_case("a state of a version to come");
    memcpy(buf, version_1, sizeof(buf));
    buf[4] = 3;
    T_EQ(fl_state_unpack(&back, buf, sizeof(buf)), -EBADMSG);
    T_HAS(fl_last_error()->message, "version 3");
}

static void test_compare(void)
{
    static const struct {
        const char *name, *text;
        struct fl_state now;
        int err;
    } cases[] = {
        { "same", "", { .dataset = 1, .order = 2, .pipeline = 3, .seed = 4 }, 0 },
        { "world and batch may differ",
          "",
          { .dataset = 1, .order = 2, .pipeline = 3, .seed = 4, .world = 1, .batch = 1 },
          0 },
        { "dataset", "dataset", { .dataset = 0, .order = 2, .pipeline = 3, .seed = 4 }, -EINVAL },
        { "order",
          "order",
          { .dataset = 1, .order = 0, .pipeline = 3, .seed = 4, .exclude = 11 },
          -EINVAL },
        { "exclusions",
          "exclusion list is not the one that the state was saved with: 12 samples were "
          "excluded then, 3 are now",
          { .dataset = 1, .order = 0, .pipeline = 3, .seed = 4, .exclude = 9, .n_excluded = 3 },
          -EINVAL },
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
    test_version_1();
    test_compare();
    return t_done();
}
