/* SPDX-License-Identifier: Apache-2.0 */
/* The index alone: time to write and to open one of N samples, and what a sample's look-ups cost (span,
 * label, picture; the key apart), in order and in random order, with the whole index in memory and with a
 * small cache.
 *
 *     stage_index [SAMPLES [CACHE_BYTES [FILE]]]       default 1,000,000 samples, 8 MiB, /tmp/stage_index.fli
 */
#define _GNU_SOURCE
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include <feedline/error.h>

#include "base/clock.h"
#include "base/rng.h"
#include "index/index.h"
#include "index/writer.h"

#define SHARD 2048

static int fail(const char *what)
{
    fprintf(stderr, "stage_index: %s: %s\n", what, fl_last_error()->message);
    return 1;
}

static double seconds_since(int64_t begun)
{
    return (double)(fl_now_ns() - begun) * 1e-9;
}

static int write_index(int64_t n, const char *path)
{
    struct fl_index_writer *w = NULL;
    int64_t container = -1;
    char text[64];

    if (fl_index_writer_new(&w, FL_KIND_TAR))
        return -1;
    const int jpg = fl_index_writer_field(w, "jpg", FL_FIELD_BYTES);
    const int cls = fl_index_writer_field(w, "cls", FL_FIELD_INT);
    for (int64_t i = 0; i < n; i++) {
        if (i % SHARD == 0) {
            snprintf(text, sizeof(text), "shard-%06" PRId64 ".tar", i / SHARD);
            container = fl_index_writer_container(w, text, UINT64_C(1) << 40, FL_MTIME_NONE, 0);
        }
        const struct fl_span span = { (uint64_t)(i % SHARD) * 113000, 110000, (uint32_t)container,
                                      (uint32_t)i };
        const struct fl_index_image image = { .width = 500, .height = 375, .components = 3 };
        const int len = snprintf(text, sizeof(text), "train/n%08" PRId64, i);
        if (container < 0 || fl_index_writer_sample(w, text, (size_t)len) < 0 ||
            fl_index_writer_span(w, jpg, &span) || fl_index_writer_image(w, jpg, &image) ||
            fl_index_writer_int(w, cls, i % 1000))
            return -1;
    }
    const int err = fl_index_writer_write(w, path, NULL);
    fl_index_writer_free(&w);
    return err;
}

/* Nanoseconds of one sample's look-ups; below 0: failed. */
static double look_up(const struct fl_index *ix, int64_t count, bool random, bool key)
{
    const int64_t n = fl_index_info(ix)->n_samples;
    const int32_t jpg = fl_index_find(ix, "jpg"), cls = fl_index_find(ix, "cls");
    struct fl_rng r;
    struct fl_span span;
    struct fl_index_image image;
    int64_t value, begun;
    char text[64];
    int bad = 0;

    fl_rng_init(&r, 1, 0, 0, FL_RNG_USER, 0);
    begun = fl_now_ns();
    for (int64_t i = 0; i < count; i++) {
        const int64_t s = random ? (int64_t)fl_rng_below(&r, (uint64_t)n) : i % n;
        if (key)
            bad |= fl_index_key(ix, s, text, sizeof(text)) < 0;
        else
            bad |= fl_index_span(ix, jpg, s, &span) || fl_index_int(ix, cls, s, &value) ||
                   fl_index_image(ix, jpg, s, &image);
    }
    return bad ? -1 : (double)(fl_now_ns() - begun) / (double)count;
}

static int measure(const char *path, uint64_t cache, int64_t n)
{
    struct fl_index *ix = NULL;
    const int64_t begun = fl_now_ns();
    const int64_t count = n < 1000000 ? n : 1000000;

    if (fl_index_open(&ix, path, cache))
        return fail("open");
    printf("  cache %6.1f MiB: open %.3f ms", (double)fl_index_info(ix)->cache_bytes / (1 << 20),
           seconds_since(begun) * 1e3);
    printf(", first pass in order %.0f ns", look_up(ix, count, false, false));
    printf(", again %.0f ns", look_up(ix, count, false, false));
    printf(", random %.0f ns", look_up(ix, count / 4, true, false));
    printf(", again %.0f ns", look_up(ix, count / 4, true, false));
    printf(", key random %.0f ns\n", look_up(ix, count / 4, true, true));
    fl_index_close(&ix);
    return 0;
}

int main(int argc, char **argv)
{
    const int64_t n = argc > 1 ? atoll(argv[1]) : 1000000;
    const uint64_t cache = argc > 2 ? strtoull(argv[2], NULL, 10) : 8 << 20;
    const char *path = argc > 3 ? argv[3] : "/tmp/stage_index.fli";
    const int64_t begun = fl_now_ns();
    struct rusage use;
    struct fl_index *ix = NULL;

    if (n < 1 || argc > 4) {
        fprintf(stderr, "usage: stage_index [SAMPLES [CACHE_BYTES [FILE]]]\n");
        return 2;
    }
    if (write_index(n, path))
        return fail("write");
    getrusage(RUSAGE_SELF, &use);
    if (fl_index_open(&ix, path, 0))
        return fail("open");
    printf("%" PRId64 " samples: written in %.2f s with %.0f MiB of memory; %.1f bytes a sample\n",
           n, seconds_since(begun), (double)use.ru_maxrss / 1024,
           (double)fl_index_info(ix)->file_bytes / (double)n);
    fl_index_close(&ix);
    printf("nanoseconds for a sample's span, label and picture:\n");
    const int err = measure(path, UINT64_C(1) << 40, n) || measure(path, cache, n);
    unlink(path);
    return err;
}
