/* SPDX-License-Identifier: Apache-2.0 */
/* fl_shard() as a program sees it: results, callbacks, stopping and going on, wrong arguments. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <unistd.h>

#include <feedline/feedline.h>

#include "t.h"

enum { SAMPLES = 60 };

static char root[] = "/tmp/feedline-api-shard-XXXXXX";
static char src[64], dst[64];

static int shell(const char *format, const char *a, const char *b)
{
    char command[1024];

    snprintf(command, sizeof(command), format, a, b);
    const int rc = system(command);
    return rc == -1 ? -1 : WEXITSTATUS(rc);
}

static FlShardOptions options(void)
{
    FlShardOptions opt = FL_SHARD_OPTIONS_DEFAULT;

    opt.shard_bytes = 1 << 20;
    opt.no_check = true;
    return opt;
}

static int count_calls(void *cookie, const FlProgress *p)
{
    int *calls = cookie;

    T_STR(p->what, "sharding");
    T_OK(p->done >= 0 && p->done <= p->total && p->total <= SAMPLES);
    ++*calls;
    return 0;
}

static void check_samples(const FlDataset *out)
{
    bool seen[SAMPLES] = { 0 };

    for (int64_t i = 0; i < SAMPLES; i++) {
        char key[256], label[8];
        size_t len;
        int folder = -1, number = -1;
        T_OK(fl_dataset_key(out, i, key, sizeof(key)) > 0);
        T_EQ(sscanf(key, "class%d/photo%d", &folder, &number), 2);
        T_EQ(fl_dataset_read(out, i, 0, label, sizeof(label), &len), 0);
        T_EQ(len == 1 ? label[0] - '0' : -1, folder);
        T_OK(number >= 0 && number < SAMPLES && !seen[number]);
        if (number >= 0 && number < SAMPLES)
            seen[number] = true;
    }
}

static void test_whole(FlDataset *ds)
{
    FlShardOptions opt = options();
    FlShardResult r = { 0 };
    FlDataset *out = NULL;
    FlDatasetInfo info;
    int calls = 0;

    t_case("a whole run");
    opt.progress = count_calls;
    opt.progress_cookie = &calls;
    T_EQ(fl_shard(ds, dst, &opt, &r), 0);
    T_OK(calls >= 1);
    T_EQ(r.samples, SAMPLES);
    T_EQ(r.sliced, SAMPLES);
    T_EQ(r.kept + r.damaged + r.shrunk + r.resumed, 0);
    T_OK(r.shards > 2 && r.bytes_in > 1000000 && r.bytes_out > r.bytes_in / 2);
    T_EQ(fl_dataset_open(&out, dst, NULL), 0);
    if (!out)
        return;
    T_EQ(fl_dataset_info(out, &info), 0);
    T_EQ(info.n_samples, SAMPLES);
    T_EQ(info.n_containers, r.shards);
    T_EQ(info.n_classes, 4);
    T_STR(fl_dataset_class_name(out, 3), "class003");
    t_case("keys and labels belong together");
    check_samples(out);

    t_case("verify");
    FlVerifyOptions verify = { .struct_size = sizeof(verify), .decode = true };
    FlVerifyResult result;
    T_EQ(fl_dataset_verify(out, &verify, &result), 0);
    T_EQ(result.samples, SAMPLES);
    T_EQ(result.bad, 0);
    T_EQ(result.unchecked, 0);
    fl_dataset_close(&out);
}

/* Asks to stop once something was written. */
static int stop_early(void *cookie, const FlProgress *p)
{
    (void)cookie;
    return p->done > SAMPLES / 2;
}

static void test_stop(FlDataset *ds)
{
    FlShardOptions opt = options();
    FlShardResult r = { 0 };
    FlDataset *out = NULL;
    char other[80];

    t_case("stop and go on");
    snprintf(other, sizeof(other), "%s/stopped", root);
    opt.progress = stop_early;
    opt.n_threads = 1;
    // The callback comes ten times a second at most: a fast machine may be through before.
    const int err = fl_shard(ds, other, &opt, &r);
    T_OK(err == 0 || err == FL_ERR(ECANCELED));
    if (err) {
        T_HAS(fl_last_error()->message, "stopped after");
        T_OK(fl_dataset_open(&out, other, NULL) < 0);
        T_HAS(fl_last_error()->message, "unfinished");
        opt.progress = NULL;
        T_EQ(fl_shard(ds, other, &opt, &r), 0);
        T_EQ(r.samples, SAMPLES);
    }
    T_EQ(shell("diff -r %s %s", dst, other), 0);
}

static void count_warnings(void *cookie, FlLogLevel level, const char *text)
{
    int *n = cookie;

    *n += level == FL_LOG_WARNING && strstr(text, "is damaged and kept as it is") != NULL;
}

static void test_damaged(void)
{
    FlShardOptions opt = options();
    FlShardResult r = { 0 };
    FlDataset *ds = NULL;
    char bad[80], target[80], lost[128];
    int warnings = 0;

    t_case("damaged pictures");
    snprintf(bad, sizeof(bad), "%s/bad", root);
    snprintf(target, sizeof(target), "%s/bad.out", root);
    T_EQ(shell("cp -r %s %s", src, bad), 0);
    T_EQ(shell("rm -f %s/index.fli; truncate -s 5000 %s/class001/photo000001.jpg", bad, bad), 0);
    T_EQ(fl_dataset_open(&ds, bad, NULL), 0);
    opt.log = count_warnings;
    opt.log_cookie = &warnings;
    T_EQ(fl_shard(ds, target, &opt, &r), 0);
    T_EQ(r.damaged, 1);
    T_EQ(r.kept, 1);
    T_EQ(r.sliced, SAMPLES - 1);
    T_EQ(warnings, 1);

    t_case("a file that cannot be read stops the run with its name");
    snprintf(lost, sizeof(lost), "%s/class002/photo000002.jpg", bad);
    T_EQ(unlink(lost), 0);
    opt.overwrite = true;
    T_OK(fl_shard(ds, target, &opt, &r) < 0);
    T_HAS(fl_last_error()->message, "class002/photo000002.jpg");
    T_OK(fl_last_error()->sample >= 0);
    fl_dataset_close(&ds);
}

static void test_arguments(FlDataset *ds)
{
    static const struct {
        const char *words;
        FlShardOptions opt;
    } cases[] = {
        { "struct_size", { 0 } },
        { "max-side", { .struct_size = sizeof(FlShardOptions), .max_side = -1 } },
        { "quality", { .struct_size = sizeof(FlShardOptions), .quality = 101 } },
        { "part", { .struct_size = sizeof(FlShardOptions), .part = 1 } },
        { "part", { .struct_size = sizeof(FlShardOptions), .part = 2, .n_parts = 2 } },
        { "part", { .struct_size = sizeof(FlShardOptions), .n_parts = -1 } },
        { "threads", { .struct_size = sizeof(FlShardOptions), .n_threads = -1 } },
    };

    for (size_t i = 0; i < T_LEN(cases); i++) {
        t_case(cases[i].words);
        T_EQ(fl_shard(ds, "/nonexistent/x", &cases[i].opt, NULL), FL_ERR(EINVAL));
        T_HAS(fl_last_error()->message, cases[i].words);
    }
    t_case("no source, no target");
    T_EQ(fl_shard(NULL, dst, NULL, NULL), FL_ERR(EINVAL));
    T_EQ(fl_shard(ds, NULL, NULL, NULL), FL_ERR(EINVAL));
    T_EQ(fl_shard(ds, "", NULL, NULL), FL_ERR(EINVAL));
    t_case("a target that is there");
    FlShardOptions opt = options();
    T_EQ(fl_shard(ds, dst, &opt, NULL), FL_ERR(EEXIST));
    t_case("merge");
    T_EQ(fl_index_merge(NULL, NULL), FL_ERR(EINVAL));
    T_EQ(fl_index_merge("/nonexistent", NULL), FL_ERR(ENOENT));
    T_EQ(fl_index_merge(dst, NULL), FL_ERR(ENOENT));
}

int main(void)
{
    const char *command = getenv("FEEDLINE");
    FlDataset *ds = NULL;

    if (!command || !*command || !mkdtemp(root))
        T_SKIP("needs the feedline command");
    snprintf(src, sizeof(src), "%s/src", root);
    snprintf(dst, sizeof(dst), "%s/dst", root);
    T_EQ(shell("%s synth %s --count 60 --classes 4 --quiet >/dev/null", command, src), 0);
    T_EQ(fl_dataset_open(&ds, src, NULL), 0);
    if (ds) {
        test_whole(ds);
        test_stop(ds);
        test_damaged();
        test_arguments(ds);
    }
    fl_dataset_close(&ds);
    T_EQ(shell("rm -rf %s%s", root, ""), 0);
    return t_done();
}
