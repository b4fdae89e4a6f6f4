/* SPDX-License-Identifier: Apache-2.0 */
/* Opening datasets through the public headers: missing, stale and damaged indexes, copies, folders that cannot be
 * written, several processes at once; and what may be asked of an open dataset. */
#define _GNU_SOURCE
#include <feedline/feedline.h>

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "make_tar.h"
#include "t.h"

static char top[] = "/tmp/feedline-dataset-XXXXXX";

static const char *at(const char *name)
{
    static char paths[4][512];
    static int next;
    char *path = paths[next++ % 4];

    snprintf(path, sizeof(paths[0]), "%s/%s", top, name);
    return path;
}

/* Archive `shard` of a dataset: n samples of an integer, a text and a picture. */
static void make_shard(const char *dir, int shard, int n, int label, const char *text)
{
    char name[64], path[64];
    FILE *f;

    mkdir(at(dir), 0777);
    snprintf(path, sizeof(path), "%s/%03d.tar", dir, shard);
    f = fopen(at(path), "wb");
    for (int i = 0; i < n; i++) {
        char digits[16];
        snprintf(digits, sizeof(digits), "%d", label + i);
        snprintf(name, sizeof(name), "%d/%d.cls", shard, i);
        tar_member(f, name, digits, strlen(digits));
        snprintf(name, sizeof(name), "%d/%d.jpg", shard, i);
        tar_member(f, name, tar_tiny_jpeg, sizeof(tar_tiny_jpeg));
        if (i != 1) {
            snprintf(name, sizeof(name), "%d/%d.txt", shard, i);
            tar_member(f, name, text, strlen(text));
        }
    }
    tar_end(f);
    fclose(f);
}

static int exists(const char *name)
{
    return !access(at(name), F_OK);
}

static void set_mtime(const char *name, time_t seconds)
{
    const struct timespec t[2] = { { seconds, 0 }, { seconds, 0 } };

    T_EQ(utimensat(AT_FDCWD, at(name), t, 0), 0);
}

struct messages {
    int n[4];
    char last[1024], warning[1024];
};

static void note(void *cookie, FlLogLevel level, const char *text)
{
    struct messages *m = cookie;

    m->n[level]++;
    snprintf(level == FL_LOG_WARNING ? m->warning : m->last, sizeof(m->last), "%s", text);
}

/* Open and close; the code, and in *n the number of samples. */
static int try_open(const char *name, FlIndexMode mode, struct messages *m, int64_t *n)
{
    FlDatasetOptions opt = FL_DATASET_OPTIONS_DEFAULT;
    FlDataset *ds = NULL;
    FlDatasetInfo info;

    memset(m, 0, sizeof(*m));
    opt.index = mode;
    opt.log = note;
    opt.log_cookie = m;
    *n = -1;
    const int err = fl_dataset_open(&ds, at(name), &opt);
    if (!err) {
        T_EQ(fl_dataset_info(ds, &info), 0);
        *n = info.n_samples;
    } else {
        T_OK(ds == NULL);
    }
    fl_dataset_close(&ds);
    return err;
}

static void test_modes(void)
{
    struct messages m;
    int64_t n;

    t_case("missing");
    make_shard("modes", 0, 3, 0, "text");
    make_shard("modes", 1, 3, 3, "text");
    T_EQ(try_open("modes", FL_INDEX_REQUIRE, &m, &n), FL_ERR(ENOENT));
    T_HAS(fl_last_error()->message, "feedline index ");
    T_EQ(try_open("modes", FL_INDEX_AUTO, &m, &n), 0);
    T_HAS(fl_last_error()->message, "feedline index "); // success leaves the last failure as it was
    T_EQ(n, 6);
    T_OK(exists("modes/index.fli"));
    T_EQ(try_open("modes", FL_INDEX_REQUIRE, &m, &n), 0);
    T_EQ(m.n[FL_LOG_WARNING], 0);

    t_case("a copy: other time, same bytes");
    set_mtime("modes/000.tar", 1000000000);
    T_EQ(try_open("modes", FL_INDEX_REQUIRE, &m, &n), 0);
    T_HAS(m.last, "1 of 2 archives have another time");
    T_EQ(try_open("modes", FL_INDEX_REQUIRE, &m, &n), 0);
    T_HAS(m.last, "1 of 2 archives have another time"); // REQUIRE writes nothing
    T_EQ(try_open("modes", FL_INDEX_AUTO, &m, &n), 0);
    T_HAS(m.last, "has the archives' new times now");
    T_EQ(try_open("modes", FL_INDEX_REQUIRE, &m, &n), 0);
    T_STR(m.last, ""); // and so it need not be compared again
    T_EQ(n, 6);

    t_case("relabelled: other time, same size, other label");
    make_shard("modes", 0, 3, 1, "text");
    set_mtime("modes/000.tar", 1000000001);
    T_EQ(try_open("modes", FL_INDEX_REQUIRE, &m, &n), FL_ERR(ESTALE));
    T_HAS(fl_last_error()->message, "modes/000.tar has other contents");
    T_EQ(try_open("modes", FL_INDEX_AUTO, &m, &n), 0);
    T_EQ(m.n[FL_LOG_WARNING], 1);
    T_EQ(try_open("modes", FL_INDEX_REQUIRE, &m, &n), 0); // it was built anew

    t_case("other size");
    make_shard("modes", 1, 4, 3, "text");
    T_EQ(try_open("modes", FL_INDEX_REQUIRE, &m, &n), FL_ERR(ESTALE));
    T_HAS(fl_last_error()->message, "modes/001.tar has ");
    T_EQ(try_open("modes", FL_INDEX_AUTO, &m, &n), 0);
    T_EQ(n, 7);

    t_case("a new archive");
    make_shard("modes", 2, 1, 0, "text");
    T_EQ(try_open("modes", FL_INDEX_REQUIRE, &m, &n), FL_ERR(ESTALE));
    T_HAS(fl_last_error()->message, "other files in it");
    T_EQ(try_open("modes", FL_INDEX_AUTO, &m, &n), 0);
    T_EQ(n, 8);

    t_case("an archive is gone");
    T_EQ(unlink(at("modes/002.tar")), 0);
    T_EQ(try_open("modes", FL_INDEX_REQUIRE, &m, &n), FL_ERR(ESTALE));
    T_EQ(try_open("modes", FL_INDEX_AUTO, &m, &n), 0);
    T_EQ(n, 7);

    t_case("cut index");
    T_EQ(truncate(at("modes/index.fli"), 5000), 0);
    T_EQ(try_open("modes", FL_INDEX_REQUIRE, &m, &n), FL_ERR(EBADMSG));
    T_EQ(try_open("modes", FL_INDEX_AUTO, &m, &n), 0);
    T_EQ(m.n[FL_LOG_WARNING], 1);
    T_HAS(m.warning, "indexing it anew");
    T_EQ(n, 7);

    t_case("what the sharder made is not replaced");
    FILE *f = fopen(at("modes/dataset.json"), "w");
    fclose(f);
    T_EQ(truncate(at("modes/index.fli"), 5000), 0);
    T_EQ(try_open("modes", FL_INDEX_AUTO, &m, &n), FL_ERR(EBADMSG));
    T_HAS(fl_last_error()->message, "feedline index ");
    T_EQ(fl_index_build(at("modes"), NULL), 0); // but may be on request
    T_EQ(try_open("modes", FL_INDEX_REQUIRE, &m, &n), 0);

    t_case("unfinished output");
    f = fopen(at("modes/.feedline-unfinished"), "w");
    fclose(f);
    T_EQ(try_open("modes", FL_INDEX_AUTO, &m, &n), FL_ERR(EBADMSG));
    T_HAS(fl_last_error()->message, "unfinished output of `feedline shard`");
    T_EQ(fl_index_build(at("modes"), NULL), FL_ERR(EBADMSG));
}

static void test_folders(void)
{
    FlDatasetOptions opt = FL_DATASET_OPTIONS_DEFAULT;
    const char *const classes[] = { "dog", "cat" }, *const fewer[] = { "cat" };
    struct messages m;
    int64_t n;
    FlDataset *ds = NULL;
    FlFieldSpan span;
    char buf[64];
    size_t len;

    t_case("class folders");
    mkdir(at("folders"), 0777);
    mkdir(at("folders/cat"), 0777);
    mkdir(at("folders/dog"), 0777);
    FILE *f = fopen(at("folders/cat/1.jpg"), "wb");
    fwrite(tar_tiny_jpeg, 1, sizeof(tar_tiny_jpeg), f);
    fclose(f);
    f = fopen(at("folders/dog/2.JPG"), "wb");
    fwrite(tar_tiny_jpeg, 1, sizeof(tar_tiny_jpeg), f);
    fclose(f);
    T_EQ(try_open("folders", FL_INDEX_AUTO, &m, &n), 0);
    T_EQ(n, 2);
    T_EQ(try_open("folders", FL_INDEX_REQUIRE, &m, &n), 0);

    t_case("the caller's classes");
    opt.classes = classes;
    opt.n_classes = 2;
    opt.index = FL_INDEX_REQUIRE;
    T_EQ(fl_dataset_open(&ds, at("folders"), &opt), FL_ERR(ESTALE));
    T_HAS(fl_last_error()->message, "other options");
    opt.index = FL_INDEX_AUTO;
    T_EQ(fl_dataset_open(&ds, at("folders"), &opt), 0);
    T_STR(fl_dataset_class_name(ds, 0), "dog");
    T_STR(fl_dataset_class_name(ds, 1), "cat");
    T_EQ(fl_dataset_span(ds, 0, 0, &span), 0); // cat/1.jpg: order is by path, labels are not
    T_STR(span.name, "cls");
    T_EQ(span.value, 1);
    T_EQ(fl_dataset_span(ds, 1, 1, &span), 0);
    T_STR(span.container, "dog/2.JPG");
    T_EQ(span.width, 7);
    T_EQ(span.height, 5);
    fl_dataset_close(&ds);
    opt.classes = fewer;
    opt.n_classes = 1;
    opt.log = note;
    opt.log_cookie = &m;
    T_EQ(fl_dataset_open(&ds, at("folders"), &opt), 0);
    T_HAS(m.warning, "folders/dog is not in the class list");
    fl_dataset_close(&ds);
    T_EQ(fl_index_build(at("folders"), NULL), 0);

    t_case("files are looked at when they are read");
    T_EQ(try_open("folders", FL_INDEX_REQUIRE, &m, &n), 0);
    T_EQ(fl_dataset_open(&ds, at("folders"), NULL), 0);
    T_EQ(fl_dataset_read(ds, 0, 1, buf, sizeof(buf), &len), 0);
    T_EQ(len, sizeof(tar_tiny_jpeg));
    T_OK(!memcmp(buf, tar_tiny_jpeg, len));
    set_mtime("folders/cat/1.jpg", 1000000000); // a copy
    T_EQ(fl_dataset_read(ds, 0, 1, buf, sizeof(buf), &len), 0);
    f = fopen(at("folders/cat/1.jpg"), "r+b"); // another picture of the same length
    fputc('X', f);
    fclose(f);
    T_EQ(fl_dataset_read(ds, 0, 1, buf, sizeof(buf), &len), FL_ERR(ESTALE));
    T_HAS(fl_last_error()->message, "cat/1.jpg has other contents");
    T_EQ(fl_last_error()->sample, 0);
    T_STR(fl_last_error()->key, "cat/1");
    T_EQ(truncate(at("folders/cat/1.jpg"), 3), 0);
    T_EQ(fl_dataset_read(ds, 0, 1, buf, sizeof(buf), &len), FL_ERR(ESTALE));
    T_HAS(fl_last_error()->message, "has 3 bytes, but had 28");
    T_EQ(unlink(at("folders/cat/1.jpg")), 0);
    T_EQ(fl_dataset_read(ds, 0, 1, buf, sizeof(buf), &len), FL_ERR(ENOENT));
    fl_dataset_close(&ds);

    t_case("a file went: the folder's names differ");
    T_EQ(try_open("folders", FL_INDEX_REQUIRE, &m, &n), FL_ERR(ESTALE));
    T_HAS(fl_last_error()->message, "folders/cat has other files in it");
    T_EQ(try_open("folders", FL_INDEX_AUTO, &m, &n), FL_ERR(EINVAL)); // an empty class now
}

static void test_queries(void)
{
    FlDataset *ds = NULL;
    FlDatasetInfo info;
    FlFieldInfo field;
    FlFieldSpan span;
    char buf[64];
    size_t len;

    t_case("queries");
    make_shard("queries", 0, 3, 40, "some text");
    T_EQ(fl_dataset_open(&ds, at("queries"), NULL), 0);
    T_EQ(fl_dataset_info(ds, &info), 0);
    T_EQ(info.n_fields, 3);
    T_STR(info.kind, "tar");
    T_STR(info.path, at("queries"));
    T_EQ(info.bytes, 3 * sizeof(tar_tiny_jpeg) + 2 * 9);
    T_EQ(fl_dataset_field(ds, 0, &field), 0);
    T_STR(field.name, "cls");
    T_EQ(field.kind, FL_FIELD_INT);
    T_EQ(fl_dataset_field(ds, 2, &field), 0);
    T_EQ(field.count, 2);
    T_EQ(field.max_bytes, 9);
    T_EQ(fl_dataset_field(ds, 3, &field), FL_ERR(EINVAL));
    T_EQ(fl_dataset_key(ds, 1, buf, sizeof(buf)), 3);
    T_STR(buf, "0/1");
    T_EQ(fl_dataset_key(ds, 3, buf, sizeof(buf)), FL_ERR(EINVAL));
    T_EQ(fl_dataset_span(ds, 1, 2, &span), 0);
    T_OK(!span.present);
    T_EQ(fl_dataset_span(ds, 1, 0, &span), 0);
    T_EQ(span.value, 41);
    T_OK(fl_dataset_class_name(ds, 0) == NULL);

    t_case("reading");
    T_EQ(fl_dataset_read(ds, 2, 0, buf, sizeof(buf), &len), 0); // digits
    T_OK(len == 2 && !memcmp(buf, "42", 2));
    T_EQ(fl_dataset_read(ds, 2, 2, NULL, 0, &len), 0);
    T_EQ(len, 9);
    T_EQ(fl_dataset_read(ds, 2, 2, buf, 8, &len), FL_ERR(E2BIG));
    T_EQ(len, 9);
    T_EQ(fl_dataset_read(ds, 2, 2, buf, 9, &len), 0);
    T_OK(!memcmp(buf, "some text", 9));
    T_EQ(fl_dataset_read(ds, 1, 2, buf, 9, &len), FL_ERR(ENOENT));
    T_HAS(fl_last_error()->message, "sample 1 (0/1) has no field \"txt\"");
    T_EQ(fl_dataset_read(ds, 1, 9, buf, 9, &len), FL_ERR(EINVAL));

    t_case("a forked child is told");
    const pid_t child = fork();
    if (!child)
        _exit(fl_dataset_info(ds, &info) == FL_ERR(ECHILD) &&
                      fl_dataset_key(ds, 0, buf, sizeof(buf)) == FL_ERR(ECHILD)
                  ? 0
                  : 1);
    int status = -1;
    T_EQ(waitpid(child, &status, 0), child);
    T_EQ(status, 0);
    fl_dataset_close(&ds);
    fl_dataset_close(&ds);
    fl_dataset_close(NULL);
}

static int stop_at_once(void *cookie, const FlProgress *p)
{
    (void)p;
    return ++*(int *)cookie;
}

static void test_odd_ends(void)
{
    FlDatasetOptions opt = FL_DATASET_OPTIONS_DEFAULT;
    FlDataset *ds = NULL;
    struct messages m = { 0 };
    int calls = 0;

    t_case("arguments");
    T_EQ(fl_dataset_open(NULL, "x", NULL), FL_ERR(EINVAL));
    T_EQ(fl_dataset_open(&ds, NULL, NULL), FL_ERR(EINVAL));
    T_EQ(fl_dataset_info(NULL, NULL), FL_ERR(EINVAL));
    T_EQ(fl_index_build(NULL, NULL), FL_ERR(EINVAL));
    opt.struct_size = 3;
    T_EQ(fl_dataset_open(&ds, top, &opt), FL_ERR(EINVAL));
    T_HAS(fl_last_error()->message, "struct_size is 3");
    opt = (FlDatasetOptions)FL_DATASET_OPTIONS_DEFAULT;
    opt.index = 7;
    T_EQ(fl_dataset_open(&ds, top, &opt), FL_ERR(EINVAL));
    T_EQ(fl_dataset_open(&ds, at("nothing-here"), NULL), FL_ERR(ENOENT));
    T_HAS(fl_last_error()->message, "nothing-here");

    t_case("an index that cannot be written stays in memory");
    make_shard("memory", 0, 3, 0, "text");
    opt = (FlDatasetOptions)FL_DATASET_OPTIONS_DEFAULT;
    opt.index_path = at("no-such-folder/index.fli");
    opt.log = note;
    opt.log_cookie = &m;
    T_EQ(fl_dataset_open(&ds, at("memory"), &opt), 0);
    T_EQ(m.n[FL_LOG_WARNING], 1);
    T_HAS(m.warning, "is kept in memory only");
    char buf[16];
    size_t len;
    T_EQ(fl_dataset_read(ds, 2, 2, buf, sizeof(buf), &len), 0);
    T_OK(len == 4 && !memcmp(buf, "text", 4));
    fl_dataset_close(&ds);
    T_OK(!exists("memory/index.fli"));

    t_case("nothing is written into a folder that nobody may write to, not even by root");
    make_shard("sealed", 0, 3, 0, "text");
    opt = (FlDatasetOptions)FL_DATASET_OPTIONS_DEFAULT;
    opt.log = note;
    opt.log_cookie = &m;
    T_EQ(chmod(at("sealed"), 0555), 0);
    T_EQ(fl_dataset_open(&ds, at("sealed"), &opt), 0);
    T_EQ(fl_dataset_read(ds, 2, 2, buf, sizeof(buf), &len), 0);
    fl_dataset_close(&ds);
    T_OK(!exists("sealed/index.fli"));
    T_HAS(m.warning, geteuid() ? "is kept in memory only" : "write-protected");
    T_EQ(fl_index_build(at("sealed"), NULL) == 0, !geteuid()); // asked for: whoever may, may
    T_EQ(chmod(at("sealed"), 0755), 0);

    t_case("progress tells the end");
    opt = (FlDatasetOptions)FL_DATASET_OPTIONS_DEFAULT;
    opt.progress = stop_at_once;
    opt.progress_cookie = &calls;
    T_EQ(fl_index_build(at("memory"), &opt), 0); // too fast to be stopped, but the last call comes
    T_EQ(calls, 1);
}

/* Eight processes open a dataset without an index at the same time: all see all of it. */
static void test_together(void)
{
    pid_t children[8];

    t_case("eight processes");
    for (int s = 0; s < 20; s++)
        make_shard("together", s, 50, s, "text");
    for (int i = 0; i < 8; i++) {
        children[i] = fork();
        if (!children[i]) {
            FlDataset *ds = NULL;
            FlDatasetInfo info;
            const int bad = fl_dataset_open(&ds, at("together"), NULL) ||
                            fl_dataset_info(ds, &info) || info.n_samples != 1000;
            fl_dataset_close(&ds);
            _exit(bad);
        }
    }
    for (int i = 0; i < 8; i++) {
        int status = -1;
        T_EQ(waitpid(children[i], &status, 0), children[i]);
        T_EQ(status, 0);
    }
    char command[600];
    snprintf(command, sizeof(command), "test -z \"$(find %s -name '*.tmp-*')\"", at("together"));
    T_EQ(system(command), 0);
}

/* The process that has the lock does not go on: the caller may stop waiting. */
static void test_waiting(void)
{
    FlDatasetOptions opt = FL_DATASET_OPTIONS_DEFAULT;
    FlDataset *ds = NULL;
    int calls = 0;

    t_case("waiting can be stopped");
    make_shard("waiting", 0, 3, 0, "text");
    const int fd = open(at("waiting"), O_RDONLY | O_DIRECTORY);
    T_EQ(flock(fd, LOCK_EX), 0);
    opt.progress = stop_at_once;
    opt.progress_cookie = &calls;
    T_EQ(fl_dataset_open(&ds, at("waiting"), &opt), FL_ERR(ECANCELED));
    T_HAS(fl_last_error()->message, "waiting for its index was stopped");
    T_EQ(calls, 1);
    T_OK(!exists("waiting/index.fli"));
    close(fd);
    T_EQ(fl_dataset_open(&ds, at("waiting"), NULL), 0);
    fl_dataset_close(&ds);
}

/* A process that is killed while it writes an index leaves nothing. */
static void test_killed(void)
{
    char command[600];
    int status = 0, killed = 0;

    t_case("killed while indexing");
    for (int s = 0; s < 40; s++)
        make_shard("killed", s, 200, s, "text");
    for (int i = 0; i < 20; i++) {
        const pid_t child = fork();
        if (!child) {
            fl_index_build(at("killed"), NULL);
            _exit(0);
        }
        usleep((useconds_t)(i * 1500));
        kill(child, SIGKILL);
        T_EQ(waitpid(child, &status, 0), child);
        killed += WIFSIGNALED(status);
        if (exists("killed/index.fli")) {
            FlDataset *ds = NULL;
            FlDatasetOptions opt = FL_DATASET_OPTIONS_DEFAULT;
            opt.index = FL_INDEX_REQUIRE;
            T_EQ(fl_dataset_open(&ds, at("killed"), &opt), 0); // whole, or not there
            fl_dataset_close(&ds);
            T_EQ(unlink(at("killed/index.fli")), 0);
        }
    }
    printf("%d of 20 were killed before they had finished\n", killed);
    // On file systems without unnamed files a temporary one may stay; none is ever taken for an index.
    snprintf(command, sizeof(command), "rm -f %s/*.tmp-*", at("killed"));
    T_EQ(system(command), 0);
    T_EQ(fl_index_build(at("killed"), NULL), 0);
}

static int n_findings;
static char finding[1024];

static void found(void *cookie, int64_t sample, const char *text)
{
    (void)cookie;
    (void)sample;
    n_findings++;
    snprintf(finding, sizeof(finding), "%s", text);
}

static void test_verify(void)
{
    FlVerifyOptions opt = { .struct_size = sizeof(opt), .finding = found };
    FlVerifyResult r;
    FlDataset *ds = NULL;

    t_case("verify");
    make_shard("verify", 0, 10, 0, "some text");
    make_shard("origin", 0, 10, 0, "some text");
    T_EQ(fl_dataset_open(&ds, at("verify"), NULL), 0);
    T_EQ(fl_dataset_verify(ds, &opt, &r), 0);
    T_EQ(r.samples, 10);
    T_EQ(r.bad + r.structure, 0);
    T_EQ(r.unchecked, 19); // no checksums in plain archives
    T_EQ(r.bytes, 10 * sizeof(tar_tiny_jpeg) + 9 * 9);
    T_EQ(fl_dataset_verify(ds, NULL, NULL), 0);
    char origin[600];
    snprintf(origin, sizeof(origin), "%s", at("origin"));
    opt.against = origin;
    T_EQ(fl_dataset_verify(ds, &opt, &r), 0);
    T_EQ(r.bad + r.structure, 0);
    fl_dataset_close(&ds);

    t_case("other bytes than the origin");
    make_shard("verify", 0, 10, 0, "same size");
    T_EQ(fl_index_build(at("verify"), NULL), 0);
    T_EQ(fl_dataset_open(&ds, at("verify"), NULL), 0);
    n_findings = 0;
    T_EQ(fl_dataset_verify(ds, &opt, &r), 0);
    T_EQ(r.bad, 9);
    T_EQ(n_findings, 9);
    T_HAS(finding, "sample 9 (0/9): field txt has other bytes than its origin");
    fl_dataset_close(&ds);

    t_case("missing and additional samples");
    make_shard("verify", 0, 8, 0, "some text");
    make_shard("verify", 1, 1, 0, "some text");
    T_EQ(fl_index_build(at("verify"), NULL), 0);
    T_EQ(fl_dataset_open(&ds, at("verify"), NULL), 0);
    T_EQ(fl_dataset_verify(ds, &opt, &r), 0);
    T_EQ(r.bad, 1);
    T_EQ(r.structure, 2);
    T_HAS(finding, "(0/9) of ");
    T_HAS(finding, "is missing");

    t_case("decoding tells");
    opt.against = NULL;
    opt.decode = true;
    opt.n_threads = 3;
    n_findings = 0;
    T_EQ(fl_dataset_verify(ds, &opt, &r), 0);
    T_EQ(r.bad, 9); // the tiny JPEGs have no scan data
    T_HAS(finding, "sample 8 (1/0), field jpg, bytes ");
    T_HAS(finding, "of ");
    opt.struct_size = 1;
    T_EQ(fl_dataset_verify(ds, &opt, &r), FL_ERR(EINVAL));
    T_EQ(fl_dataset_verify(NULL, NULL, &r), FL_ERR(EINVAL));
    fl_dataset_close(&ds);
}

int main(void)
{
    char command[64];

    if (!mkdtemp(top))
        return 1;
    test_modes();
    test_folders();
    test_queries();
    test_odd_ends();
    test_together();
    test_waiting();
    test_killed();
    test_verify();
    snprintf(command, sizeof(command), "rm -r %s", top);
    T_EQ(system(command), 0);
    return t_done();
}
