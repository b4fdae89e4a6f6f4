/* SPDX-License-Identifier: Apache-2.0 */
/* Sliced JPEG: the rewrite keeps every pixel, and every slice gives the pixels of the whole. */
#define _GNU_SOURCE
#include "t.h"

#include <dirent.h>
#include <stdbool.h>

#include "base/hash.h"
#include "base/rng.h"
#include "jpeg/codec.h"
#include "jpeg/slice.h"
#include "unit/jpeg_fixture.h"

struct loaded {
    struct fl_slice_table table;
    struct fl_slice_bytes headers[FL_SLICE_HEADERS];
    const uint8_t *file;
    size_t len;
};

static struct fl_slicer *slicer;

/* Rewrite, and take the table the way the index does. `file` stays with the slicer. */
static bool load(const uint8_t *jpeg, size_t len, const struct fl_slice_options *opt,
                 struct loaded *l)
{
    struct fl_slice_result r;
    struct fl_slice_parts parts;

    T_EQ(fl_slicer_rewrite(slicer, jpeg, len, opt, &r), 0);
    if (r.status != FL_SLICE_SLICED && r.status != FL_SLICE_ALREADY) {
        T_OK(r.data == jpeg && r.len == len && r.reason[0]);
        printf("%s: %s: %s\n", t_name, r.status == FL_SLICE_KEPT ? "kept" : "damaged", r.reason);
        return false;
    }
    l->file = r.data;
    l->len = r.len;
    T_EQ(fl_slicer_table(slicer, r.data, r.len, &parts), 0);
    memcpy(l->headers, parts.headers, sizeof(l->headers));
    T_EQ(fl_slice_table_unpack(&l->table, parts.blob.data, parts.blob.len), 0);
    return true;
}

static void check_box(const struct loaded *l, const struct pixels *full, struct fl_rect box,
                      int scale)
{
    struct fl_slice_range r;
    struct pixels part;
    FlError err;
    size_t n = 0;
    const int step = 8 / scale;

    T_EQ(fl_slice_range(&l->table, box, scale, &r), 0);
    T_OK(r.offset + r.length <= l->len);
    T_EQ(fl_slice_check_groups(&l->table, &r, l->file + r.offset, &err), 0);
    const size_t cap = fl_slice_cut_bytes(&r, l->headers);
    uint8_t *cut = malloc(cap), *bytes = malloc((size_t)r.length);
    memcpy(bytes, l->file + r.offset,
           (size_t)r.length); // so that a sanitizer sees what is read beyond
    T_EQ(fl_slice_cut(&l->table, &r, l->headers, bytes, cut, cap, &n, &err), 0);
    T_OK(n <= cap);
    T_OK(decode(cut, n, scale, &part));
    T_EQ(part.warnings, 0);
    const int x0 = box.x / step, x1 = (box.x + box.w + step - 1) / step;
    const int y0 = box.y / step, y1 = (box.y + box.h + step - 1) / step;
    const int px = r.rect.x / step, py = r.rect.y / step, c = full->channels;
    int wrong = 0;
    T_OK(x1 - px <= part.w && y1 - py <= part.h && x0 >= px && y0 >= py);
    for (int y = y0; y < y1; y++)
        wrong += memcmp(full->data + ((size_t)y * full->w + x0) * c,
                        part.data + ((size_t)(y - py) * part.w + (x0 - px)) * c,
                        (size_t)(x1 - x0) * c) != 0;
    if (wrong)
        fprintf(stderr, "scale %d box %d,%d %dx%d of %ux%u\n", scale, box.x, box.y, box.w, box.h,
                l->table.frame.width, l->table.frame.height);
    T_EQ(wrong, 0);
    free(part.data);
    free(cut);
    free(bytes);
}

static struct fl_rect draw(struct fl_rng *rng, int w, int h)
{
    struct fl_rect b;

    b.w = 1 + (int32_t)fl_rng_below(rng, fl_rng_u32(rng) & 1 ? w : w < 20 ? w : 20);
    b.h = 1 + (int32_t)fl_rng_below(rng, fl_rng_u32(rng) & 1 ? h : h < 20 ? h : 20);
    b.x = (int32_t)fl_rng_below(rng, w - b.w + 1);
    b.y = (int32_t)fl_rng_below(rng, h - b.h + 1);
    return b;
}

static void check_picture(const struct loaded *l, unsigned boxes, struct fl_rng *rng)
{
    for (int scale = 8; scale; scale /= 2) {
        struct pixels full;
        T_OK(decode(l->file, l->len, scale, &full));
        const int w = (int)l->table.frame.width, h = (int)l->table.frame.height;
        check_box(l, &full, (struct fl_rect){ 0, 0, w, h }, scale);
        for (unsigned i = 0; i < boxes; i++)
            check_box(l, &full, draw(rng, w, h), scale);
        free(full.data);
    }
}

static const struct {
    int w, h;
} sizes[] = {
    { 1, 1 },    { 2, 3 },    { 7, 9 },    { 8, 8 },     { 9, 8 },    { 15, 17 },
    { 16, 16 },  { 17, 33 },  { 31, 1 },   { 1, 40 },    { 33, 20 },  { 64, 64 },
    { 65, 63 },  { 100, 75 }, { 129, 50 }, { 200, 160 }, { 333, 97 }, { 424, 40 },
    { 40, 300 }, { 72, 130 }, { 48, 48 },  { 257, 65 },
};

static void every_sampling(void)
{
    struct fl_rng rng;

    fl_rng_init(&rng, 1, 0, 0, FL_RNG_USER, 0);
    for (size_t s = 0; s < T_LEN(samplings); s++) {
        t_case(samplings[s].name);
        for (size_t i = 0; i < T_LEN(sizes); i++) {
            struct fl_slice_options opt = { .check = true };
            struct loaded l;
            size_t len;
            uint8_t *jpeg = encode(sizes[i].w, sizes[i].h, (int)s, 0, &len);
            // Half of them with the shortest segments, which find more faults at the edges of slices.
            if (i & 1)
                opt.interval = 1;
            T_OK(load(jpeg, len, &opt, &l));
            check_picture(&l, 12, &rng);
            free(jpeg);
        }
    }
}

/* ---- the rewrite ---------------------------------------------------------------------------------- */

static void interval(void)
{
    static const struct {
        uint32_t mcus, width, want;
    } cases[] = {
        { 64, 8, 8 },  { 1, 8, 1 },   { 7, 8, 7 },   { 53, 8, 1 }, { 58, 8, 2 },
        { 27, 8, 9 },  { 30, 16, 3 }, { 13, 8, 13 }, { 17, 8, 1 }, { 32, 16, 4 },
        { 29, 16, 1 }, { 14, 8, 7 },  { 18, 8, 9 },
    };
    t_case("interval");
    for (size_t i = 0; i < T_LEN(cases); i++)
        T_EQ(fl_slice_interval(cases[i].mcus, cases[i].width), cases[i].want);
}

static void statuses(void)
{
    struct fl_slice_options opt = { .check = true };
    struct fl_slice_result r;
    size_t len, copy_len;
    uint8_t *jpeg = encode(200, 100, 2, ENCODE_PROGRESSIVE, &len), *copy;

    t_case("statuses");
    T_EQ(fl_slicer_rewrite(slicer, jpeg, len, &opt, &r), 0);
    T_EQ(r.status, FL_SLICE_SLICED);
    T_OK(r.progressive);
    T_EQ(r.width, 200);
    T_EQ(r.height, 100);
    copy_len = r.len;
    copy = malloc(copy_len);
    memcpy(copy, r.data, copy_len);
    T_EQ(fl_slicer_rewrite(slicer, copy, copy_len, &opt, &r), 0);
    T_EQ(r.status, FL_SLICE_ALREADY);
    T_OK(r.data == copy);

    T_EQ(fl_slicer_rewrite(slicer, copy, copy_len / 2, &opt, &r), 0);
    T_EQ(r.status, FL_SLICE_DAMAGED);
    T_OK(r.data == copy && r.len == copy_len / 2 && r.reason[0]);
    T_EQ(fl_slicer_rewrite(slicer, jpeg, len - len / 4, &opt, &r), 0);
    T_EQ(r.status, FL_SLICE_DAMAGED);
    T_EQ(fl_slicer_rewrite(slicer, "GIF89a", 6, &opt, &r), 0);
    T_EQ(r.status, FL_SLICE_DAMAGED);
    T_EQ(fl_slicer_rewrite(slicer, "", 0, &opt, &r), 0);
    T_EQ(r.status, FL_SLICE_DAMAGED);
    opt.max_pixels = 100;
    T_EQ(fl_slicer_rewrite(slicer, jpeg, len, &opt, &r), 0);
    T_EQ(r.status, FL_SLICE_KEPT);
    T_HAS(r.reason, "max_pixels");
    opt = (struct fl_slice_options){ .max_scans = 2 };
    T_EQ(fl_slicer_rewrite(slicer, jpeg, len, &opt, &r), 0);
    T_EQ(r.status, FL_SLICE_KEPT);
    T_HAS(r.reason, "max_scans");
    free(jpeg);
    jpeg = encode(64, 64, 0, ENCODE_CMYK, &len);
    T_EQ(fl_slicer_rewrite(slicer, jpeg, len, NULL, &r), 0);
    T_EQ(r.status, FL_SLICE_KEPT);
    T_HAS(r.reason, "4 components");
    free(jpeg);
    free(copy);
}

/* RGB-stored pictures, ICC profiles, and what is left out. */
static void markers(void)
{
    struct fl_slice_options opt = { .check = true };
    struct fl_slice_result r;
    struct loaded l;
    struct fl_rng rng;
    size_t len, with, without;
    uint8_t *jpeg = encode(120, 70, 0, ENCODE_RGB | ENCODE_ICC | ENCODE_COMMENT, &len);

    t_case("markers");
    fl_rng_init(&rng, 3, 0, 0, FL_RNG_USER, 0);
    T_OK(load(jpeg, len, &opt, &l));
    check_picture(&l, 8, &rng);
    with = l.len;
    T_OK(memmem(l.file, l.len, "ICC_PROFILE", 11) != NULL);
    T_OK(memmem(l.file, l.len, "a comment", 9) == NULL);
    opt.drop_icc = true;
    T_EQ(fl_slicer_rewrite(slicer, jpeg, len, &opt, &r), 0);
    without = r.len;
    T_EQ(with - without, ICC_BYTES + 4);
    free(jpeg);
}

/* A picture's result depends on nothing that the slicer did before. */
static void deterministic(void)
{
    struct fl_slicer *fresh = fl_slicer_new();
    struct fl_slice_result a, b;
    size_t len;
    uint8_t *jpeg = encode(333, 97, 1, 0, &len);

    t_case("deterministic");
    T_EQ(fl_slicer_rewrite(fresh, jpeg, len, NULL, &a), 0);
    T_EQ(fl_slicer_rewrite(slicer, jpeg, len, NULL, &b), 0);
    T_OK(a.len == b.len && !memcmp(a.data, b.data, a.len));
    T_OK(!fl_slice_compare(jpeg, len, a.data, a.len, &(FlError){ 0 }));
    fl_slicer_free(fresh);
    free(jpeg);
}

static void comparing(void)
{
    FlError err;
    size_t a_len, b_len;
    uint8_t *a = encode(64, 64, 0, 0, &a_len), *b = encode(64, 64, 1, 0, &b_len);

    t_case("comparing");
    T_EQ(fl_slice_compare(a, a_len, a, a_len, &err), 0);
    T_EQ(fl_slice_compare(a, a_len, b, b_len, &err), FL_ERR(EBADMSG));
    T_HAS(err.message, "row");
    T_EQ(fl_slice_compare(a, a_len, b, 30, &err), FL_ERR(EBADMSG));
    T_HAS(err.message, "second");
    T_EQ(fl_slice_compare(a, a_len, a, a_len / 2, &err), FL_ERR(EBADMSG));
    free(a);
    free(b);
}

/* ---- hostile tables and bytes -------------------------------------------------------------------- */

/* Whatever a blob holds, unpacking, ranges and cuts stay inside their memory (run under ASan). */
static void mutated_blobs(void)
{
    struct fl_rng rng;
    struct fl_slice_parts parts;
    struct fl_slice_result r;
    size_t len;
    uint8_t *jpeg = encode(333, 200, 2, 0, &len), *file, blob[1024], head[FL_SLICE_HEADERS][2048];
    unsigned accepted = 0;

    t_case("mutated blobs");
    fl_rng_init(&rng, 5, 0, 0, FL_RNG_USER, 0);
    T_EQ(fl_slicer_rewrite(slicer, jpeg, len, NULL, &r), 0);
    file = malloc(r.len);
    memcpy(file, r.data, r.len);
    len = r.len;
    T_EQ(fl_slicer_table(slicer, file, len, &parts), 0);
    for (unsigned i = 0; i < 20000; i++) {
        struct fl_slice_table t;
        struct fl_slice_range range;
        struct fl_slice_bytes headers[FL_SLICE_HEADERS];
        size_t n = parts.blob.len;
        FlError err;
        memcpy(blob, parts.blob.data, n);
        if (fl_rng_below(&rng, 8) == 0)
            n = fl_rng_below(&rng, n);
        for (uint64_t k = fl_rng_below(&rng, 4); n && k; k--)
            blob[8 + fl_rng_below(&rng, n > 8 ? n - 8 : 1)] ^= 1u << fl_rng_below(&rng, 8);
        uint8_t *exact = malloc(n ? n : 1);
        memcpy(exact, blob, n);
        if (!fl_slice_table_unpack(&t, exact, n)) {
            for (int h = 0; h < FL_SLICE_HEADERS; h++) {
                headers[h] = (struct fl_slice_bytes){ head[h], parts.headers[h].len };
                memcpy(head[h], parts.headers[h].data, parts.headers[h].len);
            }
            T_EQ(fl_slice_range(&t, draw(&rng, (int)t.frame.width, (int)t.frame.height), 8, &range),
                 0);
            if (range.length <= len) {
                const size_t cap = fl_slice_cut_bytes(&range, headers);
                uint8_t *cut = malloc(cap), *bytes = malloc((size_t)range.length);
                size_t cut_len;
                const size_t from = range.offset + range.length <= len ? range.offset : 0;
                memcpy(bytes, file + from, (size_t)range.length);
                for (uint64_t k = fl_rng_below(&rng, 3); k; k--)
                    bytes[fl_rng_below(&rng, range.length)] ^= 1u << fl_rng_below(&rng, 8);
                accepted += !fl_slice_check_groups(&t, &range, bytes, &err) &&
                            !fl_slice_cut(&t, &range, headers, bytes, cut, cap, &cut_len, &err);
                if (!fl_slice_cut(&t, &range, headers, bytes, cut, cap, &cut_len, &err)) {
                    struct pixels p;
                    if (range.rect.w < 2000 && range.rect.h < 2000 && decode(cut, cut_len, 8, &p))
                        free(p.data);
                }
                free(bytes);
                free(cut);
            }
        }
        free(exact);
    }
    T_OK(accepted > 100); // the untouched ones
    free(file);
    free(jpeg);
}

static void checksums(void)
{
    struct loaded l;
    struct fl_slice_range r;
    FlError err;
    size_t len;
    uint8_t *jpeg = encode(400, 400, 0, 0, &len), *bytes;

    t_case("checksums");
    T_OK(load(jpeg, len, NULL, &l));
    T_OK(l.table.n_groups > 3);
    T_EQ(fl_slice_range(&l.table, (struct fl_rect){ 10, 200, 30, 40 }, 8, &r), 0);
    T_OK(r.length < l.table.data_length / 2 && r.n_groups < l.table.n_groups);
    T_EQ(fl_slice_range(&l.table, (struct fl_rect){ 10, 200, 30, 201 }, 8, &r), FL_ERR(EINVAL));
    T_EQ(fl_slice_range(&l.table, (struct fl_rect){ 10, 200, 0, 20 }, 8, &r), FL_ERR(EINVAL));
    T_EQ(fl_slice_range(&l.table, (struct fl_rect){ 10, 200, 30, 40 }, 3, &r), FL_ERR(EINVAL));
    T_EQ(fl_slice_range(&l.table, (struct fl_rect){ 10, 200, 30, 40 }, 8, &r), 0);
    bytes = malloc((size_t)r.length);
    for (uint64_t at = 0; at < r.length; at += 97) {
        memcpy(bytes, l.file + r.offset, (size_t)r.length);
        bytes[at] ^= 4;
        T_EQ(fl_slice_check_groups(&l.table, &r, bytes, &err), FL_ERR(EBADMSG));
    }
    T_HAS(err.message, "checksum");
    T_OK(err.offset >= r.offset && err.offset < r.offset + r.length);
    free(bytes);
    free(jpeg);
}

/* ---- real files ----------------------------------------------------------------------------------- */

static void folder(const char *name, unsigned every, unsigned boxes, unsigned *n, unsigned *sliced)
{
    const char *shared = getenv("FL_TEST_SHARED");
    const struct fl_slice_options opt = { .check = true };
    struct dirent **list;
    struct fl_rng rng;
    char path[4096];
    int count;

    snprintf(path, sizeof(path), "%s/%s", shared ? shared : "", name);
    count = scandir(path, &list, NULL, alphasort);
    fl_rng_init(&rng, 9, 0, 0, FL_RNG_USER, 0);
    for (int i = 0; i < count; i++) {
        struct loaded l;
        size_t len;
        uint8_t *data = NULL;
        snprintf(path, sizeof(path), "%s/%s/%s", shared, name, list[i]->d_name);
        if (i % every == 0 && list[i]->d_name[0] != '.' && (data = read_file(path, &len))) {
            t_case(list[i]->d_name);
            ++*n;
            if (load(data, len, &opt, &l)) {
                ++*sliced;
                if (l.table.frame.width * l.table.frame.height < 2000000)
                    check_picture(&l, boxes, &rng);
            }
        }
        free(data);
        free(list[i]);
    }
    if (count >= 0)
        free(list);
}

int main(void)
{
    unsigned photos = 0, sliced = 0, odd = 0, odd_sliced = 0;

    slicer = fl_slicer_new();
    interval();
    every_sampling();
    statuses();
    markers();
    deterministic();
    comparing();
    checksums();
    mutated_blobs();
    folder("photos", 25, 3, &photos, &sliced);
    folder("odd-jpegs", 1, 2, &odd, &odd_sliced);
    if (photos)
        T_EQ(sliced, photos);
    else
        printf("skipped: photos (no folder of them)\n");
    printf("%u of %u photos and %u of %u odd files sliced\n", sliced, photos, odd_sliced, odd);
    fl_slicer_free(slicer);
    return t_done();
}
