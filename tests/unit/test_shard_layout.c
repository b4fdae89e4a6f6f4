/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include <feedline/error.h>

#include "index/writer.h"
#include "shard/layout.h"
#include "shard/tar_writer.h"
#include "t.h"

/* Length of sample i's picture. */
typedef uint64_t (*size_fn)(int64_t i);

static uint64_t even(int64_t i)
{
    (void)i;
    return 3000;
}

static uint64_t uneven(int64_t i)
{
    return (uint64_t)(i * 7919 % 20000);
}

static uint64_t one_giant(int64_t i)
{
    return i == 5 ? 500000 : 100;
}

static struct fl_index *make_index(int64_t n, size_fn size, uint32_t checksum)
{
    struct fl_index_writer *w = NULL;
    struct fl_index *ix = NULL;
    void *bytes;
    size_t len;
    uint64_t at = 0;

    fl_index_writer_new(&w, FL_KIND_TAR);
    const int cls = fl_index_writer_field(w, "cls", FL_FIELD_INT);
    const int jpg = fl_index_writer_field(w, "jpg", FL_FIELD_BYTES);
    T_EQ(fl_index_writer_checksummed(w, jpg), 0);
    T_EQ(fl_index_writer_container(w, "a.tar", UINT64_MAX / 2, FL_MTIME_NONE, 0), 0);
    for (int64_t i = 0; i < n; i++) {
        char key[32];
        const int k = snprintf(key, sizeof(key), "%06d", (int)i);
        const struct fl_span span = { .offset = at, .length = size(i), .checksum = checksum };
        const struct fl_index_image image = { .width = 400, .height = 800, .components = 3 };
        T_EQ(fl_index_writer_sample(w, key, (size_t)k), i);
        T_EQ(fl_index_writer_int(w, cls, i % 3), 0);
        T_EQ(fl_index_writer_span(w, jpg, &span), 0);
        T_EQ(fl_index_writer_image(w, jpg, &image), 0);
        at += size(i);
    }
    T_EQ(fl_index_writer_memory(w, &bytes, &len), 0);
    fl_index_writer_free(&w);
    T_EQ(fl_index_open_memory(&ix, bytes, len, "memory"), 0);
    return ix;
}

/* What sample i takes in a tar. */
static uint64_t weight(int64_t i, size_fn size)
{
    return fl_tar_member_bytes("000000.cls", 10, 1) +
           fl_tar_member_bytes("000000.jpg", 10, size(i));
}

static void check_cut(int64_t n, size_fn size, uint64_t shard_bytes, bool shuffle)
{
    struct fl_index *ix = make_index(n, size, 1);
    const struct fl_layout_cfg cfg = { .shard_bytes = shard_bytes, .seed = 5, .shuffle = shuffle };
    struct fl_layout l;
    uint64_t total = 0, most = 0;
    bool *seen = calloc((size_t)n, sizeof(*seen));

    T_EQ(fl_layout_init(&l, ix, &cfg), 0);
    T_EQ(l.first[0], 0);
    T_EQ(l.first[l.n_shards], n);
    for (int64_t s = 0; s < l.n_shards; s++) {
        uint64_t sum = 0, last = 0;
        T_OK(l.first[s] < l.first[s + 1]);
        for (int64_t p = l.first[s]; p < l.first[s + 1]; p++) {
            const int64_t id = fl_layout_sample(&l, p);
            T_OK(id >= 0 && id < n && !seen[id]);
            seen[id] = true;
            last = weight(id, size);
            most = last > most ? last : most;
            sum += last;
        }
        T_OK(sum - last < shard_bytes); // exceeded by less than one sample
        total += sum;
    }
    T_EQ(l.total, total);
    // As many as are needed, and alike.
    T_OK((uint64_t)l.n_shards <= (total - 1) / shard_bytes + 1);
    T_OK((uint64_t)l.n_shards * (shard_bytes + most) >= total);
    fl_layout_fini(&l);
    free(seen);
    fl_index_close(&ix);
}

static void test_cut(void)
{
    static const struct {
        const char *name;
        int64_t n;
        size_fn size;
        uint64_t shard_bytes;
    } cases[] = {
        { "one sample", 1, even, 1 << 20 },
        { "all in one", 500, even, 1 << 30 },
        { "even", 500, even, 100000 },
        { "uneven", 999, uneven, 100000 },
        { "one sample larger than a shard", 100, one_giant, 50000 },
        { "a shard each", 50, even, 1 },
        { "several rounds of the feistel network", 70000, even, 10000000 },
    };

    for (size_t i = 0; i < T_LEN(cases); i++)
        for (int shuffle = 0; shuffle < 2; shuffle++) {
            t_case(cases[i].name);
            check_cut(cases[i].n, cases[i].size, cases[i].shard_bytes, shuffle);
        }
}

static void test_identity(void)
{
    struct fl_index *a = make_index(300, uneven, 1), *b = make_index(300, uneven, 2);
    const struct fl_layout_cfg one = { .shard_bytes = 50000, .seed = 1, .shuffle = true };
    const struct fl_layout_cfg two = { .shard_bytes = 50000, .seed = 2, .shuffle = true };
    const struct fl_layout_cfg none = { .shard_bytes = 50000 };
    struct fl_layout x, y;
    int same = 0;

    t_case("the same input gives the same plan");
    T_EQ(fl_layout_init(&x, a, &one), 0);
    T_EQ(fl_layout_init(&y, a, &one), 0);
    T_OK(x.fingerprint == y.fingerprint && x.n_shards == y.n_shards);
    for (int64_t p = 0; p < 300; p++)
        T_EQ(fl_layout_sample(&x, p), fl_layout_sample(&y, p));
    fl_layout_fini(&y);

    t_case("another seed, another order");
    T_EQ(fl_layout_init(&y, a, &two), 0);
    T_OK(x.fingerprint == y.fingerprint);
    for (int64_t p = 0; p < 300; p++)
        same += fl_layout_sample(&x, p) == fl_layout_sample(&y, p);
    T_OK(same < 15);
    fl_layout_fini(&y);

    t_case("other content, other fingerprint");
    T_EQ(fl_layout_init(&y, b, &one), 0);
    T_OK(x.fingerprint != y.fingerprint);
    fl_layout_fini(&y);

    t_case("no shuffle keeps the order");
    T_EQ(fl_layout_init(&y, a, &none), 0);
    for (int64_t p = 0; p < 300; p++)
        T_EQ(fl_layout_sample(&y, p), p);
    fl_layout_fini(&y);
    fl_layout_fini(&x);
    fl_index_close(&a);
    fl_index_close(&b);
}

static void test_shrunk(void)
{
    struct fl_index *ix = make_index(1000, even, 1);
    const struct fl_layout_cfg full = { .shard_bytes = 100000 };
    const struct fl_layout_cfg half = { .shard_bytes = 100000, .max_side = 200 };
    struct fl_layout a, b;

    t_case("pictures that will be shrunk are planned smaller");
    T_EQ(fl_layout_init(&a, ix, &full), 0);
    T_EQ(fl_layout_init(&b, ix, &half), 0);
    T_EQ(a.total, 1000 * (1024 + 512 + 3072));
    T_EQ(b.total, 1000 * (1024 + 512 + 1024)); // 3000 / 4 = 750 bytes
    T_EQ(a.source_bytes, 1000 * 3001);
    fl_layout_fini(&a);
    fl_layout_fini(&b);
    fl_index_close(&ix);
}

static void test_empty(void)
{
    struct fl_index *ix = make_index(0, even, 1);
    const struct fl_layout_cfg cfg = { .shard_bytes = 1 };
    struct fl_layout l;

    t_case("nothing to write");
    T_EQ(fl_layout_init(&l, ix, &cfg), FL_ERR(EINVAL));
    fl_index_close(&ix);
}

int main(void)
{
    test_cut();
    test_identity();
    test_shrunk();
    test_empty();
    return t_done();
}
