/* SPDX-License-Identifier: Apache-2.0 */
/* Entry points from the files to the index: which pictures get them, what verify finds, and when an index
 * without them will do. */
#define _GNU_SOURCE
#include "t.h"

#include <unistd.h>

#include <feedline/index.h>

#include "index/dataset.h"
#include "index/writer.h"
#include "jpeg/direct.h"
#include "unit/jpeg_fixture.h"
#include "unit/make_set.h"

/* What is in the set; `entries`: points are to be expected. */
static const struct {
    const char *name;
    int w, h, sampling, flags, cut; // cut: bytes that the file lacks at its end
    bool entries;
} pictures[] = {
    { "a", 200, 150, 0, 0, 0, true },
    { "b", 301, 203, 2, ENCODE_ICC | ENCODE_COMMENT, 0, true },
    { "c", 97, 311, 5, 0, 0, true },
    { "d", 180, 90, 1, ENCODE_PROGRESSIVE, 0, false },
    { "e", 180, 90, 0, ENCODE_CMYK, 0, false },
    { "f", 333, 120, 2, ENCODE_RESTART, 0, true },
    { "g", 200, 150, 0, 0, 9, false },
    { "h", 160, 90, 0, ENCODE_RESTART, 0,
      false }, // five divides its rows of 20 MCUs: a sliced JPEG
    { "i", 40, 40, 4, ENCODE_NOISE, 0, true },
    { "j", 1, 1, 0, 0, 0, true },
};
#define N ((int)T_LEN(pictures))

static char said[4096]; // what the library logged at its last build

static void say(void *cookie, FlLogLevel level, const char *text)
{
    (void)cookie;
    if (level == FL_LOG_INFO && strstr(text, "entry points for"))
        snprintf(said, sizeof(said), "%s", text);
}

static char problems[8192];

static void found(void *cookie, int64_t sample, const char *text)
{
    const size_t len = strlen(problems);

    (void)cookie;
    (void)sample;
    snprintf(problems + len, sizeof(problems) - len, "%s\n", text);
}

static int64_t verify(FlDataset *ds)
{
    const FlVerifyOptions opt = { .struct_size = sizeof(opt), .finding = found };
    FlVerifyResult r;

    problems[0] = '\0';
    T_EQ(fl_dataset_verify(ds, &opt, &r), 0);
    return r.bad + r.structure;
}

static void make(const char *dir, bool tar)
{
    char path[512], name[16];
    FILE *f = NULL;

    snprintf(path, sizeof(path), "%s/0.tar", dir);
    if (tar)
        f = fopen(path, "wb");
    for (int i = 0; i < N; i++) {
        size_t len;
        uint8_t *jpeg =
            encode(pictures[i].w, pictures[i].h, pictures[i].sampling, pictures[i].flags, &len);
        len -= (size_t)pictures[i].cut;
        snprintf(name, sizeof(name), "%s.jpg", pictures[i].name);
        snprintf(path, sizeof(path), "%s/%s", dir, name);
        if (tar)
            ms_member(f, name, jpeg, len);
        else
            ms_write(path, jpeg, len);
        free(jpeg);
    }
    if (tar) {
        static const char zeros[1024];
        fwrite(zeros, 1, sizeof(zeros), f);
        fclose(f);
    }
}

/* The points in the index are those of the file, and lead to the same header strings. */
static void check_picture(FlDataset *ds, int i, struct fl_direct *direct)
{
    const struct fl_index *ix = fl_dataset_index(ds);
    const int32_t jpg = fl_index_find(ix, "jpg");
    static uint8_t blob[65536], header[4096], file[1 << 20];
    struct fl_entry_table t;
    struct fl_index_image image;
    struct fl_slice_parts parts;
    FlFieldSpan span;
    FlError err;
    size_t len, n;

    t_case(pictures[i].name);
    T_EQ(fl_index_image(ix, jpg, i, &image), 0);
    T_EQ(!!(image.flags & FL_IMAGE_ENTRIES), pictures[i].entries);
    T_EQ(!!(image.flags & FL_IMAGE_SLICED), pictures[i].name[0] == 'h');
    T_EQ(fl_dataset_span(ds, i, jpg, &span), 0);
    T_EQ(span.entry_points, pictures[i].entries);
    T_EQ(fl_index_entries(ix, jpg, i, blob, sizeof(blob), &len), 0);
    T_EQ(len > 0, pictures[i].entries);
    if (!len)
        return;
    T_EQ(fl_entry_unpack(&t, blob, len), 0);
    T_EQ(t.frame.width, pictures[i].w);
    T_EQ(t.frame.height, pictures[i].h);
    T_EQ(fl_dataset_read(ds, i, jpg, file, sizeof(file), &n), 0);
    T_EQ(fl_direct_entries(direct, file, n, &parts, &err), 0);
    T_EQ(len, parts.blob.len);
    T_OK(!memcmp(blob + 8, parts.blob.data + 8, len - 8));
    for (int k = 0; k < FL_ENTRY_STRINGS; k++) {
        T_EQ(fl_index_header(ix, t.header_ids[k], header, sizeof(header), &n), 0);
        T_OK(n == parts.headers[k].len && !memcmp(header, parts.headers[k].data, n));
    }
}

static FlDataset *open_with(const char *dir, FlDatasetOptions *opt)
{
    FlDataset *ds = NULL;

    opt->log = say;
    said[0] = '\0';
    if (fl_dataset_open(&ds, dir, opt))
        fprintf(stderr, "%s\n", fl_last_error()->message);
    return ds;
}

static void test_set(bool tar)
{
    FlDatasetOptions opt = FL_DATASET_OPTIONS_DEFAULT;
    struct fl_direct *direct = fl_direct_new(0, 0, FL_CPU_BEST);
    char dir[256], path[512];
    FlFieldInfo field;
    struct fl_span span;
    FlDatasetInfo info;

    ms_temp(dir, sizeof(dir), "entries");
    make(dir, tar);
    t_case("plain index first");
    FlDataset *ds = open_with(dir, &opt);
    T_STR(said, "");
    T_EQ(fl_dataset_field(ds, 0, &field), 0);
    T_EQ(field.entry_points, 0);
    T_EQ(fl_dataset_info(ds, &info), 0);
    const uint64_t fingerprint = info.fingerprint;
    fl_dataset_close(&ds);

    t_case("then with entry points");
    opt.index = FL_INDEX_REQUIRE;
    opt.entry_points = true;
    T_EQ(fl_dataset_open(&ds, dir, &opt), FL_ERR(ESTALE));
    T_HAS(fl_last_error()->message, "without entry points");
    opt.index = FL_INDEX_AUTO;
    opt.n_threads = 3;
    ds = open_with(dir, &opt);
    T_HAS(said, "entry points for 6 of 10 pictures");
    T_HAS(said, "1 progressive");
    T_HAS(said, "1 of two or four components");
    T_HAS(said, "1 damaged");
    T_EQ(fl_dataset_field(ds, 0, &field), 0);
    T_EQ(field.entry_points, 6);
    T_EQ(field.sliced, 1);
    T_EQ(fl_dataset_info(ds, &info), 0);
    T_OK(info.fingerprint == fingerprint); // a state saved before goes on
    for (int i = 0; i < N; i++)
        check_picture(ds, i, direct);
    T_EQ(fl_index_info(fl_dataset_index(ds))->entry_points, true);
    T_EQ(verify(ds), 0);
    T_STR(problems, "");
    T_EQ(fl_index_span(fl_dataset_index(ds), 0, 1, &span), 0);
    fl_dataset_close(&ds);

    t_case("whoever asks for nothing takes it as it is");
    FlDatasetOptions plain = FL_DATASET_OPTIONS_DEFAULT;
    ds = open_with(dir, &plain);
    T_STR(said, "");
    T_EQ(fl_dataset_field(ds, 0, &field), 0);
    T_EQ(field.entry_points, 6);

    t_case("a changed byte in the middle of a scan");
    snprintf(path, sizeof(path), tar ? "%s/0.tar" : "%s/b.jpg", dir);
    FILE *f = fopen(path, "r+b");
    fseek(f, (long)(span.offset + span.length / 2), SEEK_SET);
    const int old = fgetc(f);
    fseek(f, -1, SEEK_CUR);
    fputc(old ^ 1, f);
    fclose(f);
    T_EQ(verify(ds), 1);
    T_HAS(problems, "sample 1 (b), field jpg");
    fl_dataset_close(&ds);

    t_case("a stale index is made anew with entry points");
    char command[600];
    snprintf(command, sizeof(command), "cp %s/0.tar %s/1.tar", dir, dir);
    snprintf(path, sizeof(path), "%s/k.jpg", dir);
    if (tar)
        T_EQ(system(command), 0);
    else
        ms_write(path, "not a JPEG", 10);
    ds = open_with(dir, &plain);
    T_HAS(said, "entry points for ");
    fl_dataset_close(&ds);
    fl_direct_free(direct);
    ms_remove(dir);
}

/* The index does not depend on the number of threads. */
static void test_threads(void)
{
    char dir[256], to[256], path[512], command[600];

    t_case("threads");
    ms_temp(dir, sizeof(dir), "entries");
    ms_temp(to, sizeof(to), "entries-index");
    make(dir, false);
    for (int n = 1; n <= 4; n += 3) {
        FlDatasetOptions opt = FL_DATASET_OPTIONS_DEFAULT;
        opt.entry_points = true;
        opt.n_threads = n;
        snprintf(path, sizeof(path), "%s/%d.fli", to, n);
        opt.index_path = path;
        T_EQ(fl_index_build(dir, &opt), 0);
    }
    snprintf(command, sizeof(command), "cmp %s/1.fli %s/4.fli", to, to);
    T_EQ(system(command), 0);
    ms_remove(dir);
    ms_remove(to);
}

/* Many entry points go through a scratch file; the index is the same, and nothing stays behind. */
static void test_spill(void)
{
    enum { SAMPLES = 12000, LONGEST = 5003 };
    char dir[256], path[300], none[300], command[600];
    uint8_t *blob = malloc(LONGEST), *got = malloc(LONGEST);

    t_case("spill");
    ms_temp(dir, sizeof(dir), "entries");
    snprintf(path, sizeof(path), "%s/index.fli", dir);
    snprintf(none, sizeof(none), "%s/nowhere/index.fli", dir); // no scratch file: all in memory
    for (int spills = 0; spills < 2; spills++) {
        struct fl_index_writer *w = NULL;
        struct fl_index *ix[2] = { NULL, NULL };
        void *bytes = NULL;
        size_t size = 0, len;
        T_EQ(fl_index_writer_new(&w, FL_KIND_TAR), 0);
        const int jpg = fl_index_writer_field(w, "jpg", FL_FIELD_BYTES);
        T_EQ(fl_index_writer_container(w, "0.tar", 1000, 0, 0), 0);
        fl_index_writer_entry_points(w, spills ? path : none);
        for (int i = 0; i < SAMPLES; i++) {
            const struct fl_span span = { .offset = 1, .length = 2, .container = 0 };
            memset(blob, i & 255, LONGEST);
            fl_index_writer_sample(w, "a", 1);
            fl_index_writer_span(w, jpg, &span);
            if (i % 3)
                T_EQ(fl_index_writer_entries(w, jpg, blob, (size_t)(i * 7 % LONGEST)), 0);
        }
        T_EQ(fl_index_writer_write(w, path, NULL), 0);
        T_EQ(fl_index_writer_memory(w, &bytes, &size), 0);
        T_EQ(fl_index_open(&ix[0], path, 0), 0);
        T_EQ(fl_index_open_memory(&ix[1], bytes, size, "memory"), 0);
        fl_index_writer_free(&w);
        for (int k = 0; k < 2; k++) {
            int wrong = 0;
            for (int i = 0; i < SAMPLES; i++) {
                const size_t want = i % 3 ? (size_t)(i * 7 % LONGEST) : 0;
                memset(blob, i & 255, LONGEST);
                wrong += fl_index_entries(ix[k], 0, i, got, LONGEST, &len) || len != want ||
                         memcmp(got, blob, len) != 0;
            }
            T_EQ(wrong, 0);
            T_OK(fl_index_field(ix[k], 0)->entry_bytes > 16 << 20);
            fl_index_close(&ix[k]);
        }
        snprintf(command, sizeof(command), spills ? "cmp %s %s/first" : "cp %s %s/first", path,
                 dir);
        T_EQ(system(command), 0);
    }
    snprintf(command, sizeof(command), "test $(ls -A %s | wc -l) = 2", dir);
    T_EQ(system(command), 0);
    free(blob);
    free(got);
    ms_remove(dir);
}

int main(void)
{
    test_set(true);
    test_set(false);
    test_threads();
    test_spill();
    return t_done();
}
