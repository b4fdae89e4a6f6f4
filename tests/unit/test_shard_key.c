/* SPDX-License-Identifier: Apache-2.0 */
#include <feedline/error.h>

#include "formats/name.h"
#include "shard/key.h"
#include "t.h"

static void test_names(void)
{
    static const struct {
        const char *key;
        uint64_t copy;
        const char *name;
    } cases[] = {
        { "000123", 1, "000123" },
        { "n01440764/n01440764_10026", 1, "n01440764/n01440764_10026" },
        { "./train/a", 1, "train/a" },
        { "././a", 1, "a" },
        { "v1.0/a", 1, "v1.0/a" },             // dots of folders never count
        { "v1.0/a.b.c", 1, "v1.0/a%2Eb%2Ec" }, // those of the last part would end the key
        { ".hidden", 1, "%2Ehidden" },
        { "100%", 1, "100%25" },
        { "100%2E", 1, "100%252E" },
        { "/etc/passwd", 1, "%2Fetc/passwd" },
        { "../../x", 1, "%2E%2E/%2E%2E/x" },
        { "a/../x", 1, "a/%2E%2E/x" },
        { "a/./x", 1, "a/%2E/x" },
        { "..a/x", 1, "..a/x" },
        { "a\nb\x7F", 1, "a%0Ab%7F" },
        { "k\xC3\xA4se \xFF", 1, "k\xC3\xA4se \xFF" },
        { "a/", 1, "a/%-" },
        { "", 1, "%-" },
        { "a//b", 1, "a//b" },
        { "a", 2, "a%~2" },
        { "a/b.c", 1234567890123, "a/b%2Ec%~1234567890123" },
    };
    char name[256], back[256];

    for (size_t i = 0; i < T_LEN(cases); i++) {
        const char *key = cases[i].key;
        t_case(cases[i].name);
        const int n = fl_shard_key(key, strlen(key), cases[i].copy, name, sizeof(name));
        T_EQ(n, strlen(cases[i].name));
        T_STR(name, cases[i].name);
        // The way back, but for "./" at the beginning.
        while (!strncmp(key, "./", 2))
            key += 2;
        T_EQ(fl_shard_key_source(name, (size_t)n, back, sizeof(back)), strlen(key));
        T_STR(back, key);
        // With a field behind it the reader finds the same key.
        char member[300], field[FL_FIELD_NAME_MAX];
        size_t key_len = 0;
        const int m = snprintf(member, sizeof(member), "%s.seg.png", name);
        T_EQ(fl_name_split(member, (size_t)m, &key_len, field), 0);
        T_EQ(key_len, n);
        T_STR(field, "seg.png");
    }
}

static void test_sidecars(void)
{
    static const char *const keys[] = { "__MACOSX/a", "x/__MACOSX/b", "._cat", "x/._cat" };
    char name[256], back[256];

    for (size_t i = 0; i < T_LEN(keys); i++) {
        t_case(keys[i]);
        const int n = fl_shard_key(keys[i], strlen(keys[i]), 1, name, sizeof(name));
        T_OK(n > 0 && !fl_name_is_sidecar(name, (size_t)n));
        T_OK(fl_shard_key_source(name, (size_t)n, back, sizeof(back)) > 0);
        T_STR(back, keys[i]);
    }
}

static void test_limits(void)
{
    char name[8];

    t_case("limits");
    T_EQ(fl_shard_key("1234567", 7, 1, name, sizeof(name)), 7);
    T_STR(name, "1234567");
    T_EQ(fl_shard_key("12345678", 8, 1, name, sizeof(name)), FL_ERR(E2BIG));
    T_EQ(fl_shard_key("123456", 6, 2, name, sizeof(name)), FL_ERR(E2BIG));
    T_EQ(fl_shard_key("a.....", 6, 1, name, sizeof(name)), FL_ERR(E2BIG));
    T_EQ(fl_shard_key_source("12345678", 8, name, sizeof(name)), FL_ERR(E2BIG));
    static const char *const bad[] = { "%", "a%2", "%2g", "%zz", "a%" };
    for (size_t i = 0; i < T_LEN(bad); i++)
        T_EQ(fl_shard_key_source(bad[i], strlen(bad[i]), name, sizeof(name)), FL_ERR(EINVAL));
}

static void test_counts(void)
{
    struct fl_shard_keys k = { 0 };
    uint64_t copy;
    char key[32];

    t_case("copies");
    for (int round = 1; round <= 3; round++)
        for (int i = 0; i < 5000; i++) {
            const int n = snprintf(key, sizeof(key), "%d", i);
            T_EQ(fl_shard_keys_add(&k, key, (size_t)n, &copy), 0);
            T_EQ(copy, round);
        }
    fl_shard_keys_clear(&k);
    T_EQ(fl_shard_keys_add(&k, "7", 1, &copy), 0);
    T_EQ(copy, 1);
    fl_shard_keys_fini(&k);
}

int main(void)
{
    test_names();
    test_sidecars();
    test_limits();
    test_counts();
    return t_done();
}
