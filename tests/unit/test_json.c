/* SPDX-License-Identifier: Apache-2.0 */
#include "shard/json.h"
#include "t.h"

static void test_strings(void)
{
    static const struct {
        const char *in, *out;
    } cases[] = {
        { "", "\"\"\n" },
        { "n01440764", "\"n01440764\"\n" },
        { "a\"b\\c", "\"a\\\"b\\\\c\"\n" },
        { "\n\t\x01\x7F", "\"\\u000a\\u0009\\u0001\\u007f\"\n" },
        { "k\xC3\xA4se \xE6\x9D\xB1 \xF0\x9F\x98\x80",
          "\"k\xC3\xA4se \xE6\x9D\xB1 \xF0\x9F\x98\x80\"\n" },
        { "\xFF", "\"\xEF\xBF\xBD\"\n" },                                 // never UTF-8
        { "\xC3", "\"\xEF\xBF\xBD\"\n" },                                 // cut
        { "\xC0\xAF", "\"\xEF\xBF\xBD\xEF\xBF\xBD\"\n" },                 // overlong
        { "\xED\xA0\x80", "\"\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\"\n" }, // surrogate
        { "\xF4\x90\x80\x80x", "\"\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBDx\"\n" },
    };

    for (size_t i = 0; i < T_LEN(cases); i++) {
        struct fl_json j = { 0 };
        char want[256];
        t_case(cases[i].out);
        fl_json_begin(&j, NULL, '[', true);
        fl_json_string(&j, NULL, cases[i].in);
        fl_json_end(&j);
        snprintf(want, sizeof(want), "[%.*s]\n", (int)strlen(cases[i].out) - 1, cases[i].out);
        T_STR(j.text, want);
        fl_json_fini(&j);
    }
}

static void test_shape(void)
{
    struct fl_json j = { 0 };

    t_case("levels");
    fl_json_begin(&j, NULL, '{', false);
    fl_json_int(&j, "least", INT64_MIN);
    fl_json_uint(&j, "most", UINT64_MAX);
    fl_json_bool(&j, "yes", true);
    fl_json_begin(&j, "empty", '[', false);
    fl_json_end(&j);
    fl_json_begin(&j, "list", '[', false);
    fl_json_begin(&j, NULL, '{', true);
    fl_json_string(&j, "a", "b");
    fl_json_begin(&j, "in", '[', false);
    fl_json_int(&j, NULL, 1);
    fl_json_int(&j, NULL, 2);
    fl_json_end(&j);
    fl_json_end(&j);
    fl_json_begin(&j, NULL, '{', true);
    fl_json_end(&j);
    fl_json_end(&j);
    fl_json_end(&j);
    T_STR(j.text, "{\n"
                  "  \"least\": -9223372036854775808,\n"
                  "  \"most\": 18446744073709551615,\n"
                  "  \"yes\": true,\n"
                  "  \"empty\": [],\n"
                  "  \"list\": [\n"
                  "    {\"a\": \"b\", \"in\": [1, 2]},\n"
                  "    {}\n"
                  "  ]\n"
                  "}\n");
    T_OK(!j.failed);
    fl_json_fini(&j);
}

static void test_depth(void)
{
    struct fl_json j = { 0 };

    t_case("too deep is a failure, not a crash");
    for (int i = 0; i < FL_JSON_DEPTH + 3; i++)
        fl_json_begin(&j, i ? "x" : NULL, '{', false);
    for (int i = 0; i < FL_JSON_DEPTH + 3; i++)
        fl_json_end(&j);
    T_OK(j.failed);
    fl_json_fini(&j);
}

int main(void)
{
    test_strings();
    test_shape();
    test_depth();
    return t_done();
}
