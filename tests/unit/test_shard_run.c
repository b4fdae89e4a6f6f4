/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <unistd.h>

#include <feedline/error.h>

#include "base/file.h"
#include "index/unfinished.h"
#include "shard/run.h"
#include "t.h"

static char dir[] = "/tmp/feedline-run-XXXXXX";

static void make(struct fl_run *r, uint64_t seed)
{
    const FlShardOptions opt = {
        .struct_size = sizeof(opt), .shard_bytes = UINT64_MAX, .seed = seed, .max_side = 256
    };

    T_EQ(fl_run_init(r, &opt), 0);
    snprintf(r->codec, sizeof(r->codec), "libjpeg-turbo 2.1.5");
    r->source = 0xFEDCBA9876543210u;
    r->n_samples = 1281167;
    r->n_shards = 500;
    T_EQ(fl_run_class(r, "n01440764"), 0);
    T_EQ(fl_run_class(r, "100% \n\r wei\xC3\x9F"), 0);
    T_EQ(fl_run_class(r, ""), 0);
}

static void test_round_trip(void)
{
    struct fl_run a = { 0 }, b = { 0 };
    struct fl_bytes text = { 0 };
    char difference[192];

    t_case("write and read");
    make(&a, UINT64_MAX);
    T_EQ(fl_run_text(&a, &text), 0);
    T_EQ(fl_file_replace(dir, FL_UNFINISHED_NAME, text.data, text.len), 0);
    T_EQ(fl_run_read(&b, dir), 0);
    T_OK(a.hash != 0 && a.hash == b.hash);
    T_OK(b.seed == UINT64_MAX && b.shard_bytes == UINT64_MAX && b.source == a.source);
    T_EQ(b.n_samples, 1281167);
    T_EQ(b.max_side, 256);
    T_OK(b.shuffle && b.slice && !b.drop_icc);
    T_STR(b.codec, "libjpeg-turbo 2.1.5");
    T_EQ(b.n_classes, 3);
    T_STR(b.classes[0], "n01440764");
    T_STR(b.classes[1], "100% \n\r wei\xC3\x9F");
    T_STR(b.classes[2], "");
    fl_run_difference(&a, &b, difference, sizeof(difference));
    T_STR(difference, "");
    fl_run_fini(&b);

    t_case("difference");
    make(&b, 3);
    struct fl_bytes other = { 0 };
    T_EQ(fl_run_text(&b, &other), 0);
    T_OK(a.hash != b.hash);
    fl_run_difference(&a, &b, difference, sizeof(difference));
    T_STR(difference, "seed: 18446744073709551615, now 3");
    fl_bytes_free(&other);
    fl_run_fini(&b);

    t_case("damage");
    for (size_t i = 0; i < text.len; i += 7) {
        text.data[i] ^= 1;
        T_EQ(fl_file_replace(dir, FL_UNFINISHED_NAME, text.data, text.len), 0);
        T_EQ(fl_run_read(&b, dir), FL_ERR(EBADMSG));
        text.data[i] ^= 1;
    }
    for (size_t n = 0; n < text.len; n += 11) {
        T_EQ(fl_file_replace(dir, FL_UNFINISHED_NAME, text.data, n), 0);
        T_EQ(fl_run_read(&b, dir), FL_ERR(EBADMSG));
    }
    T_HAS(fl_last_error()->message, FL_UNFINISHED_NAME);
    fl_bytes_free(&text);
    fl_run_fini(&a);
}

int main(void)
{
    struct fl_run r;
    char name[32];

    if (!mkdtemp(dir))
        T_SKIP("no temporary folder");
    T_EQ(fl_run_read(&r, dir), FL_ERR(ENOENT));
    test_round_trip();
    t_case("names");
    fl_run_shard_name(name, 42, "tar");
    T_STR(name, "shard-000042.tar");
    fl_run_shard_name(name, 12345678, "record");
    T_STR(name, "shard-12345678.record");
    char *path = fl_path_join(dir, FL_UNFINISHED_NAME);
    T_EQ(unlink(path), 0);
    free(path);
    T_EQ(rmdir(dir), 0);
    return t_done();
}
