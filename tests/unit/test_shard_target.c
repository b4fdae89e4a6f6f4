/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <feedline/error.h>

#include "base/file.h"
#include "index/unfinished.h"
#include "shard/target.h"
#include "t.h"

static char root[] = "/tmp/feedline-target-XXXXXX";

static void make_run(struct fl_run *r, uint64_t seed)
{
    const FlShardOptions opt = { .struct_size = sizeof(opt), .shard_bytes = 1000, .seed = seed };

    T_EQ(fl_run_init(r, &opt), 0);
    r->n_shards = 3;
}

static void put(const char *dir, const char *name)
{
    T_EQ(fl_file_replace(dir, name, "x", 1), 0);
}

static bool exists(const char *dir, const char *name)
{
    char *path = fl_path_join(dir, name);
    const bool there = !access(path, F_OK);

    free(path);
    return there;
}

/* A shard of one byte with its record. */
static void put_shard(const struct fl_target *t, const struct fl_run *run, int64_t shard)
{
    static struct fl_record record;
    struct fl_record_header h = { .plan = run->hash, .shard = (uint64_t)shard };
    char name[32];

    h.counts.bytes_out = 1;
    fl_run_shard_name(name, shard, "record");
    T_EQ(fl_record_write(&record, &h, t->work, name), 0);
    fl_run_shard_name(name, shard, "tar");
    put(t->dir, name);
}

static void test_life(void)
{
    struct fl_target t, other;
    struct fl_run run, now;
    struct fl_record_header h;
    char *dir = fl_path_join(root, "a/b/c");

    t_case("begin in folders that are made");
    make_run(&run, 1);
    make_run(&now, 2);
    T_EQ(fl_target_init(&t, dir), 0);
    T_EQ(fl_target_begin(&t, &run, false), 0);
    T_OK(exists(dir, FL_UNFINISHED_NAME));
    T_OK(!fl_target_has(&t, &run, 0, &h));
    put_shard(&t, &run, 0);
    put_shard(&t, &run, 1);
    put(dir, "shard-000002.tar"); // without a record
    T_OK(fl_target_has(&t, &run, 0, &h));
    T_OK(!fl_target_has(&t, &run, 2, &h));
    T_OK(!fl_target_has(&t, &now, 0, &h));

    t_case("another part joins, another run does not");
    T_EQ(fl_target_init(&other, dir), 0);
    T_EQ(fl_target_begin(&other, &run, false), 0);
    T_OK(exists(dir, "shard-000000.tar") && !exists(dir, "shard-000002.tar"));
    T_EQ(fl_target_lock(&t, true), FL_ERR(EBUSY));
    fl_target_fini(&other);
    T_EQ(fl_target_init(&other, dir), 0);
    T_EQ(fl_target_begin(&other, &now, false), FL_ERR(EEXIST));
    T_HAS(fl_last_error()->message, "seed: 1, now 2");
    T_OK(exists(dir, FL_UNFINISHED_NAME));
    fl_target_fini(&other);

    t_case("a truncated tar is not there");
    char *tar = fl_path_join(dir, "shard-000001.tar");
    T_EQ(truncate(tar, 0), 0);
    T_OK(!fl_target_has(&t, &run, 1, &h));
    free(tar);

    t_case("end");
    put(dir, "..feedline-unfinished.123.tmp"); // of a process that was killed while it wrote
    put(dir, ".dataset.json.123.tmp");
    put(dir, ".mine.tmp");
    T_EQ(fl_target_lock(&t, true), 0);
    T_EQ(fl_target_end(&t), 0);
    T_OK(!exists(dir, FL_UNFINISHED_NAME) && !exists(dir, FL_RUN_FOLDER));
    T_OK(!exists(dir, "..feedline-unfinished.123.tmp") && !exists(dir, ".dataset.json.123.tmp"));
    T_OK(exists(dir, ".mine.tmp"));
    fl_target_fini(&t);

    t_case("what is finished is overwritten only when asked for");
    T_EQ(fl_target_init(&t, dir), 0);
    T_EQ(fl_target_begin(&t, &now, false), FL_ERR(EEXIST));
    T_HAS(fl_last_error()->message, "a dataset already");
    T_OK(!exists(dir, FL_RUN_FOLDER) && !exists(dir, FL_UNFINISHED_NAME));
    put(dir, "index.fli");
    T_EQ(fl_target_begin(&t, &now, true), 0);
    T_OK(exists(dir, FL_UNFINISHED_NAME));
    T_OK(!exists(dir, "index.fli") && !exists(dir, "shard-000000.tar"));

    t_case("another run is overwritten when nobody works on it");
    put_shard(&t, &now, 0);
    fl_target_fini(&t);
    T_EQ(fl_target_init(&t, dir), 0);
    T_EQ(fl_target_begin(&t, &run, true), 0);
    T_OK(!exists(dir, "shard-000000.tar"));
    fl_target_fini(&t);
    fl_run_fini(&run);
    fl_run_fini(&now);
    free(dir);
}

static void test_refused(void)
{
    struct fl_target t;
    struct fl_run run;
    char *dir = fl_path_join(root, "letters");

    t_case("a folder of other things");
    make_run(&run, 1);
    T_EQ(mkdir(dir, 0777), 0);
    put(dir, "letter.txt");
    T_EQ(fl_target_init(&t, dir), 0);
    T_EQ(fl_target_begin(&t, &run, true), FL_ERR(EEXIST));
    T_HAS(fl_last_error()->message, dir);
    T_OK(exists(dir, "letter.txt") && !exists(dir, FL_UNFINISHED_NAME));
    fl_target_fini(&t);

    t_case("a mark that cannot be read");
    char *marked = fl_path_join(root, "marked");
    T_EQ(mkdir(marked, 0777), 0);
    put(marked, FL_UNFINISHED_NAME);
    T_EQ(fl_target_init(&t, marked), 0);
    T_EQ(fl_target_begin(&t, &run, false), FL_ERR(EBADMSG));
    T_EQ(fl_target_begin(&t, &run, true), 0);
    fl_target_fini(&t);

    t_case("a file");
    char *file = fl_path_join(dir, "letter.txt");
    T_EQ(fl_target_init(&t, file), 0);
    T_EQ(fl_target_begin(&t, &run, true), FL_ERR(EIO));
    T_HAS(fl_last_error()->message, file);
    fl_target_fini(&t);
    fl_run_fini(&run);
    free(file);
    free(marked);
    free(dir);
}

static void test_apart(void)
{
    static const struct {
        const char *source, *target;
        bool apart;
    } cases[] = {
        { "s", "t", true },     { "s", "s", false },       { "s", "s/", false },
        { "s", "s/x", false },  { "s", "s/x/y/z", false }, { "s/in", "s", false },
        { "s", "st", true },    { "s/in", "s/out", true }, { "s", "t/../s/x", false },
        { "s", "link", false }, { "s", "link/x", false },  { "s", "new/s", true },
    };

    T_EQ(chdir(root), 0);
    T_EQ(mkdir("s", 0777), 0);
    T_EQ(mkdir("s/in", 0777), 0);
    T_EQ(mkdir("t", 0777), 0);
    T_EQ(symlink("s", "link"), 0);
    for (size_t i = 0; i < T_LEN(cases); i++) {
        struct fl_target t;
        t_case(cases[i].target);
        T_EQ(fl_target_init(&t, cases[i].target), 0);
        T_EQ(fl_target_apart(&t, cases[i].source), cases[i].apart ? 0 : FL_ERR(EINVAL));
        char *absolute = fl_path_join(root, cases[i].source);
        T_EQ(fl_target_apart(&t, absolute), cases[i].apart ? 0 : FL_ERR(EINVAL));
        free(absolute);
        fl_target_fini(&t);
    }
}

int main(void)
{
    char command[64];

    if (!mkdtemp(root))
        T_SKIP("no temporary folder");
    test_life();
    test_refused();
    test_apart();
    T_EQ(chdir("/"), 0);
    snprintf(command, sizeof(command), "rm -rf %s", root);
    T_EQ(system(command), 0);
    return t_done();
}
