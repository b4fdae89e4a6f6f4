/* SPDX-License-Identifier: Apache-2.0 */
#include "base/jsonl.h"

#include "base/rng.h"
#include "t.h"

static void test_round_trip(void)
{
    static const char *const strings[] = { "",
                                           "plain",
                                           "quote \" and \\ slash / tab \t line \n end \x01\x7F",
                                           "\xC3\xA4\xE2\x82\xAC\xF0\x9F\x98\x80 UTF-8",
                                           "\xFF\xFE no UTF-8 \xC3",
                                           "\xED\xB3\xBF the bytes of a lone surrogate",
                                           "\xC0\x80 overlong" };
    struct fl_bytes out = { 0 };
    struct fl_jsonl j;
    char room[256];

    for (size_t i = 0; i < T_LEN(strings); i++) {
        struct fl_jsonl_item item = { .text = room, .room = sizeof(room) };
        t_case(strings[i]);
        out.len = 0;
        fl_jsonl_begin(&j, &out);
        fl_jsonl_string(&j, "s", strings[i]);
        fl_jsonl_int(&j, "n", -123456789012345678);
        fl_jsonl_open(&j, "o");
        fl_jsonl_string(&j, "inner", "}");
        fl_jsonl_close(&j);
        fl_jsonl_hex(&j, "h", 0xABC);
        T_EQ(fl_jsonl_end(&j), 0);
        T_EQ(out.data[out.len - 1], '\n');
        T_OK(!memchr(out.data, '\n', out.len - 1));
        struct fl_jsonl_reader r = { .at = (char *)out.data,
                                     .end = (char *)out.data + out.len - 1 };
        T_EQ(fl_jsonl_next(&r, &item), 1);
        T_STR(item.name, "s");
        T_EQ(item.kind, FL_JSONL_STRING);
        T_STR(item.text, strings[i]);
        T_EQ(fl_jsonl_next(&r, &item), 1);
        T_EQ(item.kind, FL_JSONL_INT);
        T_EQ(item.number, -123456789012345678);
        T_EQ(fl_jsonl_next(&r, &item), 1);
        T_EQ(item.kind, FL_JSONL_OTHER);
        T_STR(item.name, "o");
        T_EQ(fl_jsonl_next(&r, &item), 1);
        T_STR(item.text, "0000000000000abc");
        T_EQ(fl_jsonl_next(&r, &item), 0);
    }
    fl_bytes_free(&out);
}

/* Members of a line, or -1. */
static int count(const char *line, size_t room)
{
    char text[256];
    struct fl_jsonl_reader r = { .at = line, .end = line + strlen(line) };
    struct fl_jsonl_item item = { .text = text, .room = room };
    int n = 0, more;

    while ((more = fl_jsonl_next(&r, &item)) == 1)
        n++;
    return more ? -1 : n;
}

static void test_lines(void)
{
    static const struct {
        const char *line;
        int n;
    } cases[] = {
        { "{}", 0 },
        { " { } ", 0 },
        { "{\"a\":1}", 1 },
        { "{\"a\" : 1.5e3 , \"b\":true,\"c\":null, \"d\": [1,{\"x\":\"]\"},[]], \"e\":{}}", 5 },
        { "{\"a\":\"\\u00e4\\ud83d\\ude00\\n\"}", 1 },
        { "{\"a name that is longer than any we know of\":1}", 1 },
        { "", -1 },
        { "{", -1 },
        { "{,}", -1 },
        { "{\"a\":1,}", -1 },
        { "{\"a\":1 \"b\":2}", -1 },
        { "{\"a\":1}x", -1 },
        { "{\"a\":1}}", -1 },
        { "{\"a\"}", -1 },
        { "{\"a\":}", -1 },
        { "{\"a\":,\"b\":1}", -1 },
        { "{a:1}", -1 },
        { "[1]", -1 },
        { "{\"a\":\"", -1 },
        { "{\"a\":\"\\", -1 },
        { "{\"a\":\"\\u12", -1 },
        { "{\"a\":\"\\u0000\"}", -1 },
        { "{\"a\":\"\\ud83d\"}", -1 },
        { "{\"a\":\"\\udc00\"}", -1 },
        { "{\"a\":\"\\x\"}", -1 },
        { "{\"a\":\"tab\tinside\"}", -1 },
        { "{\"a\":[1,2}", -1 },
        { "{\"a\":{\"b\":1]}", -1 },
        { "{\"a\":[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]"
          "}",
          -1 },
    };

    for (size_t i = 0; i < T_LEN(cases); i++) {
        t_case(cases[i].line);
        T_EQ(count(cases[i].line, 256), cases[i].n);
    }
    t_case("a string that does not fit");
    T_EQ(count("{\"a\":\"12345\"}", 6), 1);
    T_EQ(count("{\"a\":\"123456\"}", 6), -1);
}

/* Damage of any kind ends in a member too few or an error, never behind the line's end. */
static void test_damage(void)
{
    static const char line[] =
        "{\"dataset\": \"00ff\", \"n\": -12, \"k\": \"a\\u00e4\\udcff\\\"b\", "
        "\"o\": {\"x\": [1, {}, \"]\"]}, \"t\": true}";
    static const char marks[] = "{}[]\",:\\u0 \t\n\xFF";
    struct fl_rng r;
    int members = 0, errors = 0;

    t_case("damage");
    fl_rng_init(&r, 1, 0, 0, FL_RNG_USER, 0);
    for (int i = 0; i < 20000; i++) {
        const size_t len = 1 + fl_rng_below(&r, sizeof(line) - 1);
        char *copy = malloc(len), text[16]; // to the byte, so that a sanitizer sees a byte too many
        memcpy(copy, line, len);
        for (uint64_t k = fl_rng_below(&r, 4); k; k--)
            copy[fl_rng_below(&r, len)] = marks[fl_rng_below(&r, sizeof(marks))];
        struct fl_jsonl_reader in = { .at = copy, .end = copy + len };
        struct fl_jsonl_item item = { .text = text, .room = sizeof(text) };
        int more;
        while ((more = fl_jsonl_next(&in, &item)) == 1)
            members++;
        errors += more < 0;
        free(copy);
    }
    T_OK(members > 10000 && errors > 10000);
}

int main(void)
{
    test_round_trip();
    test_lines();
    test_damage();
    return t_done();
}
