/* SPDX-License-Identifier: Apache-2.0 */
/* index.fli written and read back: all sections, both kinds of cache, threads, damage at every byte. */
#define _GNU_SOURCE
#include "index/index.h"
#include "index/stale.h"
#include "index/writer.h"

#include <pthread.h>
#include <stddef.h>
#include <sys/stat.h>
#include <unistd.h>

#include <feedline/error.h>

#include "base/hash.h"
#include "t.h"
#include "unit/index_use.h"

static char folder[] = "/tmp/feedline-index-XXXXXX";

static const char *path_of(const char *name)
{
    static char path[256];

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    return path;
}

/* What sample i of the made index holds; every field is missing here and there. */
static int has_jpg(int64_t i)
{
    return i % 7 != 3;
}

static struct fl_span span_of(int64_t i)
{
    return (struct fl_span){ .offset = (uint64_t)i * 512,
                             .length = (uint64_t)(i % 400),
                             .container = (uint32_t)(i % 3),
                             .checksum = (uint32_t)i * 2654435761u };
}

static size_t blob_of(int64_t i, uint8_t *blob)
{
    const size_t len = has_jpg(i) && i % 2 ? (size_t)(i % 50) : 0;

    memset(blob, (int)i, len);
    return len;
}

static struct fl_index_writer *fill(int64_t n, int wide)
{
    struct fl_index_writer *w;
    char key[64];
    uint8_t blob[64];

    T_EQ(fl_index_writer_new(&w, FL_KIND_TAR), 0);
    for (int c = 0; c < 3; c++) {
        snprintf(key, sizeof(key), "shard-%03d.tar", c);
        T_EQ(fl_index_writer_container(w, key, (uint64_t)n * 512 + 512, FL_MTIME_NONE, 77), c);
    }
    T_EQ(fl_index_writer_class(w, "cat"), 0);
    T_EQ(fl_index_writer_class(w, "dog"), 1);
    T_EQ(fl_index_writer_dir(w, "", 5, 6), 0);
    const int txt = fl_index_writer_field(w, "txt", FL_FIELD_BYTES);
    const int jpg = fl_index_writer_field(w, "jpg", FL_FIELD_BYTES);
    T_EQ(fl_index_writer_checksummed(w, jpg), 0);
    for (int64_t i = 0; i < n; i++) {
        const struct fl_span span = span_of(i);
        const struct fl_index_image image = { .width = (uint16_t)i, .flags = i % 2 };
        snprintf(key, sizeof(key), "train/%06d", (int)i);
        T_EQ(fl_index_writer_sample(w, key, strlen(key)), i);
        if (has_jpg(i)) {
            T_EQ(fl_index_writer_span(w, jpg, &span), 0);
            T_EQ(fl_index_writer_image(w, jpg, &image), 0);
            T_EQ(fl_index_writer_slices(w, jpg, blob, blob_of(i, blob)), 0);
        }
        if (i == n / 2)
            T_EQ(fl_index_writer_span(w, txt, &span), 0);
        // The field turns up late: earlier samples lack it.
        if (i >= n / 3)
            T_EQ(fl_index_writer_int(w, fl_index_writer_field(w, "cls", FL_FIELD_INT),
                                     wide && i == n - 1 ? 5000000000 : i - 5),
                 0);
        T_EQ(fl_index_writer_header(w, "training-set", (size_t)(i % 10)), i < 10 ? i : i % 10);
    }
    return w;
}

static void check_sample(const struct fl_index *ix, int64_t i, int64_t n, int wide)
{
    const int32_t cls = 0, jpg = 1, txt = 2;
    struct fl_span span, want = span_of(i);
    struct fl_index_image image;
    char key[64], want_key[64];
    uint8_t blob[64], want_blob[64];
    size_t len;
    int64_t value;

    T_EQ(fl_index_span(ix, jpg, i, &span), 0);
    if (has_jpg(i))
        T_OK(!memcmp(&span, &want, sizeof(span)));
    else
        T_EQ(span.container, FL_NO_CONTAINER);
    T_EQ(fl_index_span(ix, txt, i, &span), 0);
    T_EQ(span.container, i == n / 2 ? i % 3 : FL_NO_CONTAINER);
    T_EQ(fl_index_image(ix, jpg, i, &image), 0);
    T_EQ(image.width, has_jpg(i) ? i & 0xFFFF : 0);
    T_EQ(fl_index_slices(ix, jpg, i, blob, sizeof(blob), &len), 0);
    T_EQ(len, blob_of(i, want_blob));
    T_OK(!memcmp(blob, want_blob, len));
    if (len)
        T_EQ(fl_index_slices(ix, jpg, i, blob, len - 1, &len), FL_ERR(E2BIG));
    T_EQ(fl_index_slices(ix, txt, i, blob, sizeof(blob), &len), 0);
    T_EQ(len, 0);
    T_EQ(fl_index_int(ix, cls, i, &value), i >= n / 3 ? 0 : FL_ERR(ENOENT));
    if (i >= n / 3)
        T_EQ(value, wide && i == n - 1 ? 5000000000 : i - 5);
    snprintf(want_key, sizeof(want_key), "train/%06d", (int)i);
    T_EQ(fl_index_key(ix, i, key, sizeof(key)), strlen(want_key));
    T_STR(key, want_key);
}

static void check_rest(const struct fl_index *ix, int64_t n)
{
    const struct fl_index_info *info = fl_index_info(ix);
    struct fl_index_container c;
    struct fl_index_dir dir;
    struct fl_span span;
    int64_t value;
    char text[64];
    size_t len;

    T_EQ(info->n_samples, n);
    T_EQ(info->n_fields, 3);
    T_EQ(info->n_containers, 3);
    T_EQ(info->n_headers, n < 10 ? n : 10);
    T_EQ(info->n_dirs, 1);
    T_STR(fl_index_field(ix, 0)->name, "cls"); // name order, not order of appearance
    T_STR(fl_index_field(ix, 1)->name, "jpg");
    T_STR(fl_index_field(ix, 2)->name, "txt");
    T_OK(fl_index_field(ix, 3) == NULL);
    T_EQ(fl_index_find(ix, "jpg"), 1);
    T_EQ(fl_index_find(ix, "jp"), FL_ERR(ENOENT));
    T_OK(fl_index_field(ix, 1)->has_checksum && fl_index_field(ix, 1)->is_image);
    T_OK(!fl_index_field(ix, 2)->has_checksum && !fl_index_field(ix, 2)->is_image);
    T_EQ(fl_index_field(ix, 2)->count, 1);
    T_STR(fl_index_class(ix, 1), "dog");
    T_OK(fl_index_class(ix, 2) == NULL && fl_index_class(ix, -1) == NULL);
    T_EQ(fl_index_container(ix, 2, &c), 0);
    T_EQ(c.mtime_ns, FL_MTIME_NONE);
    T_EQ(fl_index_container_path(ix, 2, text, sizeof(text)), 13);
    T_STR(text, "shard-002.tar");
    T_EQ(fl_index_container_path(ix, 2, text, 5), FL_ERR(E2BIG));
    T_EQ(fl_index_dir(ix, 0, &dir, text, sizeof(text)), 0);
    T_EQ(dir.hash, 6);
    T_EQ(fl_index_header(ix, 4, text, sizeof(text), &len), 0);
    T_EQ(len, 4);
    T_OK(!memcmp(text, "trai", 4));

    t_case("out of range");
    T_EQ(fl_index_span(ix, 1, n, &span), FL_ERR(EINVAL));
    T_EQ(fl_index_span(ix, 1, -1, &span), FL_ERR(EINVAL));
    T_EQ(fl_index_span(ix, 3, 0, &span), FL_ERR(EINVAL));
    T_EQ(fl_index_span(ix, 0, 0, &span), FL_ERR(EINVAL)); // an integer
    T_EQ(fl_index_int(ix, 1, 0, &value), FL_ERR(EINVAL)); // bytes
    T_EQ(fl_index_container(ix, 3, &c), FL_ERR(EINVAL));
    T_EQ(fl_index_header(ix, 10, text, sizeof(text), &len), FL_ERR(EINVAL));
    T_EQ(fl_index_key(ix, n, text, sizeof(text)), FL_ERR(EINVAL));
    T_HAS(fl_last_error()->message, "is outside 0 to");
    T_EQ(fl_index_key(ix, 0, text, 6), 12);
    T_STR(text, "train");
}

struct reader {
    const struct fl_index *ix;
    int64_t n;
    uint64_t seed;
    int bad;
};

/* Random look-ups; only counts, because T_* is not for threads. */
static void *read_some(void *arg)
{
    struct reader *r = arg;

    for (int k = 0; k < 20000; k++) {
        r->seed = r->seed * 6364136223846793005u + 1442695040888963407u;
        const int64_t i = (int64_t)((r->seed >> 33) % (uint64_t)r->n);
        struct fl_span span, want = span_of(i);
        char key[64], want_key[64];
        r->bad += fl_index_span(r->ix, 1, i, &span) != 0;
        r->bad += has_jpg(i) ? memcmp(&span, &want, sizeof(span)) != 0
                             : span.container != FL_NO_CONTAINER;
        snprintf(want_key, sizeof(want_key), "train/%06d", (int)i);
        r->bad += fl_index_key(r->ix, i, key, sizeof(key)) < 0 || strcmp(key, want_key);
    }
    return NULL;
}

static void test_threads(const struct fl_index *ix, int64_t n)
{
    pthread_t threads[6];
    struct reader readers[6];

    for (int i = 0; i < 6; i++) {
        readers[i] = (struct reader){ ix, n, (uint64_t)i, 0 };
        T_EQ(pthread_create(&threads[i], NULL, read_some, &readers[i]), 0);
    }
    for (int i = 0; i < 6; i++) {
        pthread_join(threads[i], NULL);
        T_EQ(readers[i].bad, 0);
    }
}

static void test_round_trip(int64_t n, int wide, uint64_t cache)
{
    struct fl_index_writer *w = fill(n, wide);
    struct fl_index *ix = NULL;
    uint64_t fingerprint = 0;
    int64_t bad;
    struct stat st;
    const char *path = path_of("round.fli");

    T_EQ(fl_index_writer_write(w, path, &fingerprint), 0);
    fl_index_writer_free(&w);
    T_EQ(fl_index_open(&ix, path, cache), 0);
    if (!ix)
        return;
    T_EQ(stat(path, &st), 0);
    T_EQ(fl_index_info(ix)->file_bytes, st.st_size);
    T_OK(fl_index_info(ix)->fingerprint == fingerprint && fingerprint != 0);
    if (cache)
        T_OK(fl_index_info(ix)->cache_bytes < (uint64_t)st.st_size);
    for (int64_t i = 0; i < n; i++)
        check_sample(ix, i, n, wide);
    check_rest(ix, n);
    t_case("threads");
    test_threads(ix, n);
    T_EQ(fl_index_check(ix, &bad), 0);
    T_EQ(bad, 0);
    fl_index_close(&ix);
    T_OK(ix == NULL);
    fl_index_close(&ix);
}

static void *bytes_of(int64_t n, size_t *size)
{
    struct fl_index_writer *w = fill(n, 0);
    void *bytes = NULL;

    T_EQ(fl_index_writer_memory(w, &bytes, size), 0);
    fl_index_writer_free(&w);
    return bytes;
}

static int open_copy(const uint8_t *bytes, size_t size)
{
    uint8_t *copy = malloc(size + 1);
    struct fl_index *ix = NULL;
    int failed = 1;

    memcpy(copy, bytes, size);
    if (!fl_index_open_memory(&ix, copy, size, "test.fli")) {
        failed = index_use(ix);
        fl_index_close(&ix);
    }
    return failed;
}

static void test_damage(void)
{
    size_t size;
    uint8_t *bytes = bytes_of(40, &size);
    struct fl_index_header h;
    size_t unseen = 0;

    memcpy(&h, bytes, sizeof(h));
    const size_t head = sizeof(h) + h.n_sections * sizeof(struct fl_index_section);
    T_OK(!open_copy(bytes, size));
    t_case("every byte, one bit");
    for (size_t i = 0; i < size; i++) {
        bytes[i] ^= 1 << (i % 8);
        if (!open_copy(bytes, size))
            unseen++;
        bytes[i] ^= 1 << (i % 8);
    }
    T_EQ(unseen, h.data - head); // zeros between table and payload mean nothing
    t_case("every length");
    for (size_t n = 0; n < size; n++)
        T_OK(open_copy(bytes, n));
    T_OK(!open_copy(bytes, size));

    t_case("every byte with all checksums made good");
    uint8_t *copy = malloc(size);
    static const uint8_t values[] = { 0x00, 0x01, 0x7F, 0x80, 0xFF };
    for (size_t i = 0; i < size; i++) {
        if (i == head)
            i = h.data;
        for (size_t v = 0; v < sizeof(values); v++) {
            memcpy(copy, bytes, size);
            copy[i] = values[v];
            index_reseal(copy, size);
            open_copy(copy, size); // any answer; the sanitizers watch
        }
    }
    free(copy);
    free(bytes);
}

/* Change one thing of a good header or table, make the checksum good, open. */
static void test_refusals(void)
{
    static const struct {
        const char *name;
        size_t at;
        uint64_t value;
        int bytes, err;
        const char *text;
    } cases[] = {
        { "magic", 0, 'X', 1, FL_ERR(EBADMSG), "does not begin like an index" },
        { "major", 8, 2, 2, FL_ERR(ENOTSUP), "index format 2.0" },
        { "minor", 10, 9, 2, 0, "" },
        { "sections", 12, 1u << 30, 4, FL_ERR(EBADMSG), "does not make sense" },
        { "samples", 16, UINT64_MAX, 8, FL_ERR(EBADMSG), "does not make sense" },
        { "payload", 40, UINT64_MAX, 8, FL_ERR(EBADMSG), "cut or damaged" },
        { "kind", 48, 9, 4, FL_ERR(EBADMSG), "does not make sense" },
        { "optional section", 96, 999, 4, FL_ERR(EBADMSG), "" }, // the schema is gone then
        { "required section", 96 + 10, 1, 2, 0, "" },
    };
    size_t size;
    uint8_t *bytes = bytes_of(4, &size);

    for (size_t i = 0; i < T_LEN(cases); i++) {
        uint8_t *copy = malloc(size);
        struct fl_index *ix = NULL;
        t_case(cases[i].name);
        memcpy(copy, bytes, size);
        memcpy(copy + cases[i].at, &cases[i].value, (size_t)cases[i].bytes);
        if (cases[i].at != 12)
            index_reseal(copy, size);
        T_EQ(fl_index_open_memory(&ix, copy, size, "test.fli"), cases[i].err);
        if (cases[i].err)
            T_HAS(fl_last_error()->message, cases[i].text);
        fl_index_close(&ix);
    }

    t_case("unknown sections");
    for (int required = 0; required < 2; required++) {
        uint8_t *copy = malloc(size);
        struct fl_index *ix = NULL;
        struct fl_index_header h;
        struct fl_index_section s;
        memcpy(copy, bytes, size);
        memcpy(&h, copy, sizeof(h));
        const size_t last = sizeof(h) + h.n_sections * sizeof(s);
        s = (struct fl_index_section){ .type = 999,
                                       .field = FL_SECTION_NO_FIELD,
                                       .version = 3,
                                       .item = 1,
                                       .flags = required ? FL_SECTION_REQUIRED : 0 };
        memcpy(copy + last, &s, sizeof(s));
        h.n_sections++;
        memcpy(copy, &h, sizeof(h));
        index_reseal(copy, size);
        T_EQ(fl_index_open_memory(&ix, copy, size, "test.fli"), required ? FL_ERR(ENOTSUP) : 0);
        if (required)
            T_HAS(fl_last_error()->message, "section type 999, version 3");
        fl_index_close(&ix);
    }
    free(bytes);
}

static void test_writer(void)
{
    struct fl_index_writer *w;
    struct fl_span span = { .container = 0 };
    size_t size[2];
    void *bytes[2];

    t_case("the same calls give the same bytes");
    bytes[0] = bytes_of(500, &size[0]);
    bytes[1] = bytes_of(500, &size[1]);
    T_EQ(size[0], size[1]);
    T_OK(!memcmp(bytes[0], bytes[1], size[0]));
    free(bytes[0]);
    free(bytes[1]);

    t_case("misuse");
    T_EQ(fl_index_writer_new(&w, FL_KIND_TAR), 0);
    const int f = fl_index_writer_field(w, "a", FL_FIELD_BYTES);
    T_EQ(fl_index_writer_field(w, "a", FL_FIELD_BYTES), f);
    const int both = fl_index_writer_field(w, "a", FL_FIELD_INT);
    T_OK(both > f);
    T_EQ(fl_index_writer_memory(w, &bytes[0], &size[0]), FL_ERR(EINVAL));
    T_HAS(fl_last_error()->message, "\"a\" has both bytes and integers");
    fl_index_writer_drop(w, both);
    T_EQ(fl_index_writer_field(w, "", FL_FIELD_INT), FL_ERR(EINVAL));
    T_EQ(fl_index_writer_span(w, f, &span), FL_ERR(EINVAL)); // no container, no sample
    T_EQ(fl_index_writer_container(w, "x", 1, 0, 0), 0);
    T_EQ(fl_index_writer_span(w, f, &span), FL_ERR(EINVAL)); // no sample
    T_EQ(fl_index_writer_sample(w, "k", 1), 0);
    T_EQ(fl_index_writer_span(w, f, &span), 0);
    T_EQ(fl_index_writer_span(w, f, &span), FL_ERR(EINVAL)); // twice
    T_EQ(fl_index_writer_int(w, f, 1), FL_ERR(EINVAL));      // wrong kind
    T_EQ(fl_index_writer_span(w, 9, &span), FL_ERR(EINVAL));
    t_case("a folder that is not there");
    T_EQ(fl_index_writer_write(w, "/nowhere/index.fli", NULL), FL_ERR(ENOENT));
    T_HAS(fl_last_error()->message, "/nowhere/index.fli");
    fl_index_writer_free(&w);

    t_case("no samples");
    T_EQ(fl_index_writer_new(&w, FL_KIND_TAR), 0);
    struct fl_index *ix = NULL;
    T_EQ(fl_index_writer_memory(w, &bytes[0], &size[0]), 0);
    fl_index_writer_free(&w);
    T_EQ(fl_index_open_memory(&ix, bytes[0], size[0], "empty"), 0);
    T_EQ(fl_index_info(ix)->n_samples, 0);
    fl_index_close(&ix);
}

static void test_path_keys(void)
{
    static const char *const names[][2] = {
        { "a/x.jpg", "a/x" },
        { "a.b/y", "a.b/y" },
        { "b/.z", "b/.z" },
        { "b/u.v.jpeg", "b/u.v" },
    };
    struct fl_index_writer *w;
    struct fl_index *ix = NULL;
    char key[32];

    t_case("keys of class folders");
    T_EQ(fl_index_writer_new(&w, FL_KIND_FOLDER), 0);
    fl_index_writer_path_keys(w);
    for (uint32_t i = 0; i < T_LEN(names); i++) {
        const struct fl_span span = { .container = i, .length = 1 };
        T_EQ(fl_index_writer_container(w, names[i][0], 1, 3, 4), i);
        T_EQ(fl_index_writer_sample(w, NULL, 0), i);
        T_EQ(fl_index_writer_span(w, fl_index_writer_field(w, "jpg", FL_FIELD_BYTES), &span), 0);
    }
    T_EQ(fl_index_writer_write(w, path_of("keys.fli"), NULL), 0);
    fl_index_writer_free(&w);
    T_EQ(fl_index_open(&ix, path_of("keys.fli"), 0), 0);
    for (int64_t i = 0; i < (int64_t)T_LEN(names); i++) {
        T_EQ(fl_index_key(ix, i, key, sizeof(key)), strlen(names[i][1]));
        T_STR(key, names[i][1]);
    }
    fl_index_close(&ix);
}

/* Other times in a file whose containers straddle blocks: all of them, and nothing else. */
static void test_retime(void)
{
    enum { N = 9000 }; // 288,000 bytes of containers: several blocks
    struct fl_index_writer *w;
    struct fl_index *ix = NULL;
    struct fl_index_container c;
    int64_t *times = malloc(N * sizeof(*times)), bad;
    uint64_t before;
    char text[64];

    t_case("new times");
    T_EQ(fl_index_writer_new(&w, FL_KIND_TAR), 0);
    T_EQ(fl_index_writer_class(w, "odd"),
         0); // so that items do not begin at multiples of their size
    for (int i = 0; i < N; i++) {
        snprintf(text, sizeof(text), "%d.tar", i);
        T_EQ(fl_index_writer_container(w, text, (uint64_t)i, i, 7), i);
        times[i] = -5 * (int64_t)i;
    }
    T_EQ(fl_index_writer_write(w, path_of("times.fli"), NULL), 0);
    fl_index_writer_free(&w);
    T_EQ(fl_index_open(&ix, path_of("times.fli"), 0), 0);
    before = fl_index_info(ix)->fingerprint;
    T_EQ(fl_index_retime(ix, times), 0);
    fl_index_close(&ix);
    T_EQ(fl_index_open(&ix, path_of("times.fli"), 0), 0);
    T_OK(fl_index_info(ix)->fingerprint == before);
    T_EQ(fl_index_check(ix, &bad), 0);
    for (int i = 0; i < N; i++) {
        T_EQ(fl_index_container(ix, (uint32_t)i, &c), 0);
        T_EQ(c.mtime_ns, times[i]);
        T_EQ(c.size, i);
        T_EQ(c.hash, 7);
        snprintf(text, sizeof(text), "%d.tar", i);
        char path[64];
        T_OK(fl_index_container_path(ix, (uint32_t)i, path, sizeof(path)) > 0 &&
             !strcmp(path, text));
    }
    fl_index_close(&ix);
    free(times);
}

/* A file that is cut while it is open gives errors, no signal. */
static void test_cut_while_open(void)
{
    struct fl_index_writer *w = fill(30000, 0);
    struct fl_index *ix = NULL;
    struct fl_span span;

    t_case("cut while open");
    T_EQ(fl_index_writer_write(w, path_of("cut.fli"), NULL), 0);
    fl_index_writer_free(&w);
    T_EQ(fl_index_open(&ix, path_of("cut.fli"), 0), 0);
    T_EQ(fl_index_span(ix, 1, 0, &span), 0);
    T_EQ(truncate(path_of("cut.fli"), 100000), 0);
    T_EQ(fl_index_span(ix, 1, 0, &span), 0); // still in memory
    T_EQ(fl_index_span(ix, 1, 29999, &span), FL_ERR(EBADMSG));
    T_HAS(fl_last_error()->message, "is cut");
    fl_index_close(&ix);
    T_EQ(fl_index_open(&ix, path_of("cut.fli"), 0), FL_ERR(EBADMSG));
    T_EQ(fl_index_open(&ix, folder, 0), FL_ERR(EINVAL));
    T_EQ(fl_index_open(&ix, path_of("none.fli"), 0), FL_ERR(ENOENT));
    T_HAS(fl_last_error()->message, "none.fli");
}

int main(void)
{
    char command[64];

    if (!mkdtemp(folder))
        return 1;
    t_case("small");
    test_round_trip(12, 0, 0);
    t_case("64-bit integers");
    test_round_trip(300, 1, 0);
    t_case("bounded cache");
    test_round_trip(60000, 0, 1); // raised to 2 MiB, less than the index
    test_writer();
    test_path_keys();
    test_refusals();
    test_cut_while_open();
    test_retime();
    test_damage();
    snprintf(command, sizeof(command), "rm -r %s", folder);
    T_EQ(system(command), 0);
    return t_done();
}
