/* SPDX-License-Identifier: Apache-2.0 */
/* Decoding without libjpeg gives libjpeg's pixels: every sampling, scale, box and version. */
#define _GNU_SOURCE
#include "t.h"

#include <dirent.h>

#include "base/rng.h"
#include "jpeg/decode.h"
#include "jpeg/direct.h"
#include "jpeg/pixels.h"
#include "jpeg/slice.h"
#include "unit/jpeg_fixture.h"

static struct fl_slicer *slicer;
static struct fl_direct *directs[2]; // C, and the best there is

struct sliced {
    struct fl_slice_table table;
    struct fl_slice_bytes headers[FL_SLICE_HEADERS];
    const uint8_t *file;
    size_t len;
};

static bool slice(const uint8_t *jpeg, size_t len, uint32_t interval, struct sliced *s)
{
    const struct fl_slice_options opt = { .interval = interval };
    struct fl_slice_result r;
    struct fl_slice_parts parts;

    T_EQ(fl_slicer_rewrite(slicer, jpeg, len, &opt, &r), 0);
    if (r.status > FL_SLICE_ALREADY)
        return false;
    s->file = r.data;
    s->len = r.len;
    T_EQ(fl_slicer_table(slicer, r.data, r.len, &parts), 0);
    memcpy(s->headers, parts.headers, sizeof(s->headers));
    T_EQ(fl_slice_table_unpack(&s->table, parts.blob.data, parts.blob.len), 0);
    return true;
}

/* All rows of the view that was begun, against the same part of the whole picture. */
static void compare(struct fl_direct *d, const struct pixels *full, const struct fl_direct_view *v)
{
    const int step = 8 / v->scale, w = fl_direct_width(d), h = fl_direct_height(d);
    const int x0 = v->box.x / step, y0 = v->box.y / step;
    const size_t n = (size_t)w * (size_t)v->channels;
    uint8_t *row = malloc(n);
    int wrong = 0;
    FlError err;

    T_EQ(w, (v->box.x + v->box.w + step - 1) / step - x0);
    T_EQ(h, (v->box.y + v->box.h + step - 1) / step - y0);
    for (int y = 0; y < h; y++) {
        const uint8_t *want =
            full->data + ((size_t)(y0 + y) * (size_t)full->w + (size_t)x0) * (size_t)full->channels;
        err.message[0] = '\0';
        T_EQ(fl_direct_row(d, row, &err), 0);
        T_STR(err.message, "");
        if (full->channels == v->channels)
            wrong += memcmp(row, want, n) != 0;
        else
            for (int x = 0; x < w; x++) // grey to RGB
                for (int c = 0; c < 3; c++)
                    wrong += row[3 * x + c] != want[x];
    }
    if (wrong)
        fprintf(stderr, "scale %d box %d,%d %dx%d\n", v->scale, v->box.x, v->box.y, v->box.w,
                v->box.h);
    T_EQ(wrong, 0);
    free(row);
}

static void check_slice(struct fl_direct *d, const struct sliced *s, const struct pixels *full,
                        const struct fl_direct_view *v)
{
    struct fl_slice_range r;
    FlError err = { 0 };
    uint8_t *bytes;

    T_EQ(fl_slice_range(&s->table, v->box, v->scale, &r), 0);
    bytes = malloc((size_t)r.length); // exactly, so that a sanitizer sees what is read beyond
    memcpy(bytes, s->file + r.offset, (size_t)r.length);
    T_EQ(fl_direct_slice(d, &s->table, &r, s->headers, bytes, v, &err), 0);
    T_STR(err.message, "");
    compare(d, full, v);
    free(bytes);
}

static struct fl_rect draw(struct fl_rng *rng, int w, int h)
{
    struct fl_rect b;

    b.w = 1 + (int32_t)fl_rng_below(rng, (uint64_t)(fl_rng_u32(rng) & 1 ? w : w < 20 ? w : 20));
    b.h = 1 + (int32_t)fl_rng_below(rng, (uint64_t)(fl_rng_u32(rng) & 1 ? h : h < 20 ? h : 20));
    b.x = (int32_t)fl_rng_below(rng, (uint64_t)(w - b.w + 1));
    b.y = (int32_t)fl_rng_below(rng, (uint64_t)(h - b.h + 1));
    return b;
}

/* Entry points as the index would keep them. */
struct points {
    struct fl_entry_table table;
    struct fl_slice_bytes blob, headers[FL_ENTRY_STRINGS];
};

static struct fl_slice_bytes copy_of(struct fl_slice_bytes b)
{
    uint8_t *copy = malloc(b.len + 1);

    memcpy(copy, b.data, b.len);
    return (struct fl_slice_bytes){ copy, b.len };
}

static struct points points_of(const uint8_t *file, size_t len)
{
    struct fl_slice_parts made = { 0 };
    struct points p;
    FlError err = { 0 };

    T_EQ(fl_direct_entries(directs[0], file, len, &made, &err), 0);
    T_STR(err.message, "");
    p.blob = copy_of(made.blob);
    for (int i = 0; i < FL_ENTRY_STRINGS; i++)
        p.headers[i] = copy_of(made.headers[i]);
    T_EQ(fl_entry_unpack(&p.table, p.blob.data, p.blob.len), 0);
    return p;
}

static void free_points(struct points *p)
{
    free((void *)p->blob.data);
    for (int i = 0; i < FL_ENTRY_STRINGS; i++)
        free((void *)p->headers[i].data);
}

/* From the bytes that the index says are needed, and from nothing else. */
static void check_points(struct fl_direct *d, const struct points *p, const uint8_t *file,
                         size_t len, const struct pixels *full, const struct fl_direct_view *v)
{
    struct fl_entry_range r;
    FlError err = { 0 };
    uint8_t *bytes;

    T_EQ(fl_entry_range(&p->table, v->box, v->scale, &r), 0);
    T_OK(r.offset + r.length <= len);
    bytes = malloc((size_t)r.length); // exactly, so that a sanitizer sees what is read beyond
    memcpy(bytes, file + r.offset, (size_t)r.length);
    T_EQ(fl_entry_check(&p->table, &r, bytes, &err), 0);
    T_EQ(fl_direct_points(d, &p->table, &r, p->headers, bytes, v, &err), 0);
    T_STR(err.message, "");
    compare(d, full, v);
    bytes[r.length / 2] ^= 16;
    T_EQ(fl_entry_check(&p->table, &r, bytes, &err), FL_ERR(EBADMSG));
    T_HAS(err.message, "row group");
    free(bytes);
}

/* A file from its beginning, then from its entry points. */
static void check_file(struct fl_direct *d, const uint8_t *file, size_t len,
                       const struct points *points, const struct pixels *full,
                       const struct fl_direct_view *v)
{
    FlError err = { 0 };

    T_EQ(fl_direct_file(d, file, len, v, &err), 0);
    T_STR(err.message, "");
    compare(d, full, v);
    check_points(d, points, file, len, full, v);
}

static void check_picture(const struct sliced *s, const uint8_t *original, size_t len,
                          unsigned boxes, struct fl_rng *rng)
{
    const int w = (int)s->table.frame.width, h = (int)s->table.frame.height;
    struct points points;

    if (original)
        points = points_of(original, len);
    for (int scale = 8; scale; scale /= 2) {
        struct pixels full;
        T_OK(decode(s->file, s->len, scale, &full));
        for (unsigned i = 0; i <= boxes; i++) {
            const struct fl_direct_view v = { i ? draw(rng, w, h) : (struct fl_rect){ 0, 0, w, h },
                                              scale, 3 };
            for (int k = 0; k < 2; k++) {
                check_slice(directs[k], s, &full, &v);
                if (original)
                    check_file(directs[k], original, len, &points, &full, &v);
            }
        }
        free(full.data);
    }
    if (original)
        free_points(&points);
}

static const struct {
    int w, h;
} sizes[] = {
    { 1, 1 },    { 2, 3 },    { 7, 9 },     { 8, 8 },    { 9, 8 },    { 15, 17 },
    { 16, 16 },  { 17, 33 },  { 31, 1 },    { 1, 40 },   { 33, 20 },  { 64, 64 },
    { 100, 75 }, { 129, 50 }, { 200, 160 }, { 333, 97 }, { 72, 130 },
};

static void every_sampling(void)
{
    struct fl_rng rng;

    fl_rng_init(&rng, 1, 0, 0, FL_RNG_USER, 0);
    for (size_t s = 0; s < T_LEN(samplings); s++)
        for (size_t i = 0; i < T_LEN(sizes); i++) {
            struct sliced l;
            size_t len;
            const int flags = (i % 3 == 1 ? ENCODE_NOISE : 0) | (i % 5 == 2 ? ENCODE_RESTART : 0);
            uint8_t *jpeg = encode(sizes[i].w, sizes[i].h, (int)s, flags, &len);
            t_case(samplings[s].name);
            T_OK(slice(jpeg, len, i & 1, &l));
            check_picture(&l, jpeg, len, 8, &rng);
            free(jpeg);
        }
}

/* Y alone, RGB as stored. */
static void channels(void)
{
    struct fl_rng rng;
    size_t len;
    uint8_t *jpeg = encode(120, 70, 2, 0, &len);
    struct pixels full;
    struct sliced s;

    t_case("channels");
    fl_rng_init(&rng, 2, 0, 0, FL_RNG_USER, 0);
    T_OK(slice(jpeg, len, 0, &s));
    T_OK(decode_luma(s.file, s.len, &full));
    for (int i = 0; i < 30; i++) {
        const struct fl_direct_view v = { draw(&rng, 120, 70), 8, 1 };
        check_slice(directs[1], &s, &full, &v);
    }
    free(full.data);
    free(jpeg);
    jpeg =
        encode(120, 70, 5, 0, &len); // grey after colour: nothing of the one is left for the other
    T_OK(slice(jpeg, len, 0, &s));
    check_picture(&s, jpeg, len, 10, &rng);
    free(jpeg);
    jpeg = encode(120, 70, 0, ENCODE_RGB, &len);
    T_OK(slice(jpeg, len, 0, &s));
    check_picture(&s, jpeg, len, 10, &rng);
    T_OK(decode_luma(s.file, s.len, &full)); // of all three
    for (int i = 0; i < 30; i++) {
        const struct fl_direct_view v = { draw(&rng, 120, 70), 8, 1 };
        check_slice(directs[i & 1], &s, &full, &v);
    }
    free(full.data);
    free(jpeg);
}

/* Every version of the inner loops gives the same bits, also where coefficients are absurd. */
static void versions(void)
{
    const struct fl_pixel_ops *best = fl_pixel_ops_get(FL_CPU_BEST), *c = &fl_pixel_ops_c;
    _Alignas(32) int16_t block[64], quant[64];
    uint8_t a[64 * 16], b[64 * 16], in[3][256];
    int16_t sums[256];
    struct fl_rng rng;

    t_case("versions");
    fl_rng_init(&rng, 3, 0, 0, FL_RNG_USER, 0);
    for (int i = 0; i < 20000; i++) {
        const int reach = i % 4 == 0 ? 65536 : i % 4 == 1 ? 2048 : 64;
        for (int k = 0; k < 64; k++) {
            block[k] = fl_rng_below(&rng, 4)
                           ? 0
                           : (int16_t)(fl_rng_u32(&rng) % (unsigned)reach - (unsigned)reach / 2);
            quant[k] = (int16_t)(1 + fl_rng_below(&rng, i % 4 == 0 ? 65535 : 12));
        }
        memset(a, 7, sizeof(a));
        memset(b, 7, sizeof(b));
        for (int s = 0; s < 4; s++) {
            c->idct[s](block, quant, a, 16);
            best->idct[s](block, quant, b, 16);
            T_OK(!memcmp(a, b, sizeof(a)));
        }
    }
    for (int n = 1; n < 100; n++) {
        for (int i = 0; i < 256; i++) {
            for (int k = 0; k < 3; k++)
                in[k][i] = (uint8_t)fl_rng_u32(&rng);
            sums[i] = (int16_t)fl_rng_below(&rng, 1021);
        }
        memset(a, 7, sizeof(a));
        memset(b, 7, sizeof(b));
        c->ycc_rgb(in[0], in[1], in[2], a, n);
        best->ycc_rgb(in[0], in[1], in[2], b, n);
        T_OK(!memcmp(a, b, sizeof(a)));
        c->h2v1(in[0] + 1, a, n);
        best->h2v1(in[0] + 1, b, n);
        T_OK(!memcmp(a, b, 2 * (size_t)n));
        c->h2v2(sums + 1, a, n);
        best->h2v2(sums + 1, b, n);
        T_OK(!memcmp(a, b, 2 * (size_t)n));
    }
}

static void refusals(void)
{
    const struct fl_direct_view v = { { 0, 0, 8, 8 }, 8, 3 };
    struct fl_direct *small = fl_direct_new(0, 1000, FL_CPU_BEST);
    FlError err;
    size_t len;
    uint8_t *jpeg = encode(64, 64, 0, ENCODE_PROGRESSIVE, &len);

    t_case("refusals");
    T_EQ(fl_direct_file(directs[1], jpeg, len, &v, &err), FL_ERR(ENOTSUP));
    free(jpeg);
    jpeg = encode(64, 64, 0, ENCODE_CMYK, &len);
    T_EQ(fl_direct_file(directs[1], jpeg, len, &v, &err), FL_ERR(ENOTSUP));
    free(jpeg);
    jpeg = encode(64, 64, 0, 0, &len);
    T_EQ(fl_direct_file(small, jpeg, len, &v, &err), FL_ERR(E2BIG));
    T_EQ(fl_direct_file(directs[1], jpeg, len, &(struct fl_direct_view){ { 60, 0, 8, 8 }, 8, 3 },
                        &err),
         FL_ERR(EINVAL));
    free(jpeg);
    fl_direct_free(small);
}

/* Damage is an error or goes unnoticed, as in any decoder; memory stays whole (run under ASan). */
static void damage(void)
{
    struct fl_rng rng;
    struct sliced s;
    size_t len;
    uint8_t *jpeg = encode(150, 90, 2, 0, &len), *bytes;
    struct fl_slice_range r;
    unsigned noticed = 0, all = 0;
    uint8_t row[3 * 200];

    t_case("damage");
    fl_rng_init(&rng, 4, 0, 0, FL_RNG_USER, 0);
    T_OK(slice(jpeg, len, 0, &s));
    for (int i = 0; i < 3000; i++) {
        const struct fl_direct_view v = { draw(&rng, 150, 90), 8 >> (i & 3), 3 };
        FlError err;
        int code;
        fl_slice_range(&s.table, v.box, v.scale, &r);
        bytes = malloc((size_t)r.length);
        memcpy(bytes, s.file + r.offset, (size_t)r.length);
        for (uint64_t k = 1 + fl_rng_below(&rng, 4); k; k--)
            bytes[fl_rng_below(&rng, r.length)] ^= (uint8_t)(1 << fl_rng_below(&rng, 8));
        code = fl_direct_slice(directs[1], &s.table, &r, s.headers, bytes, &v, &err);
        for (int y = 0; !code && y < fl_direct_height(directs[1]); y++)
            code = fl_direct_row(directs[1], row, &err);
        T_OK(code == 0 || code == FL_ERR(EBADMSG));
        noticed += code != 0;
        all++;
        free(bytes);
        // The same for a whole file, header and all.
        bytes = malloc(len);
        memcpy(bytes, jpeg, len);
        for (uint64_t k = 1 + fl_rng_below(&rng, 4); k; k--)
            bytes[fl_rng_below(&rng, i & 1 ? len : 700)] ^= (uint8_t)(1 << fl_rng_below(&rng, 8));
        code = fl_direct_file(directs[1], bytes, len - fl_rng_below(&rng, 50), &v, &err);
        for (int y = 0; !code && y < fl_direct_height(directs[1]); y++)
            code = fl_direct_row(directs[1], row, &err);
        free(bytes);
    }
    T_OK(noticed > 100 && noticed < all);
    printf("%u of %u damaged slices noticed without checksums\n", noticed, all);
    free(jpeg);
}

/* Reads what the index asks for and decodes it, checksums not looked at. */
static int decode_points(const struct points *p, const uint8_t *file, size_t len,
                         const struct fl_direct_view *v)
{
    uint8_t row[3 * 200], *bytes;
    struct fl_entry_range r;
    FlError err;
    int code = fl_entry_range(&p->table, v->box, v->scale, &r);

    if (code)
        return code;
    if (r.offset > len || r.length > len - r.offset)
        return FL_ERR(EBADMSG);
    bytes = malloc((size_t)r.length);
    memcpy(bytes, file + r.offset, (size_t)r.length);
    (void)fl_entry_check(&p->table, &r, bytes, &err);
    code = fl_direct_points(directs[1], &p->table, &r, p->headers, bytes, v, &err);
    for (int y = 0; !code && y < fl_direct_height(directs[1]); y++)
        code = fl_direct_row(directs[1], row, &err);
    free(bytes);
    return code;
}

/* Entry points that are not this file's, or nobody's, and damaged bytes under good ones: an error or wrong
 * pixels, never more than that. */
static void hostile_entries(void)
{
    struct fl_rng rng;
    size_t len;
    unsigned refused = 0;

    t_case("hostile entries");
    fl_rng_init(&rng, 6, 0, 0, FL_RNG_USER, 0);
    for (int flags = 0; flags < 2; flags++) {
        uint8_t *jpeg = encode(150, 90, 2, flags ? ENCODE_RESTART : 0, &len);
        struct points good = points_of(jpeg, len);
        for (int i = 0; i < 6000; i++) {
            const struct fl_direct_view v = { draw(&rng, 150, 90), 8 >> (i & 3), 3 };
            struct points bad = good;
            uint8_t *blob = malloc(good.blob.len);
            const size_t n = i % 7 ? good.blob.len : fl_rng_below(&rng, good.blob.len);
            memcpy(blob, good.blob.data, n);
            for (uint64_t k = 1 + fl_rng_below(&rng, 6); k && n > 8; k--)
                blob[8 + fl_rng_below(&rng, i & 1 && n > 44 ? 36 : n - 8)] ^=
                    (uint8_t)(1 << fl_rng_below(&rng, 8));
            blob = realloc(blob, n + 1); // a cut one, to the byte
            if (fl_entry_unpack(&bad.table, blob, n)) {
                refused++;
            } else {
                const int code = decode_points(&bad, jpeg, len, &v);
                T_OK(code == 0 || code == FL_ERR(EBADMSG) || code == FL_ERR(EINVAL));
            }
            free(blob);
            uint8_t *bytes = malloc(len); // a good index, damaged bytes
            memcpy(bytes, jpeg, len);
            for (uint64_t k = 1 + fl_rng_below(&rng, 4); k; k--)
                bytes[fl_rng_below(&rng, len)] ^= (uint8_t)(1 << fl_rng_below(&rng, 8));
            const int code = decode_points(&good, bytes, len, &v);
            T_OK(code == 0 || code == FL_ERR(EBADMSG));
            free(bytes);
        }
        free_points(&good);
        free(jpeg);
    }
    T_OK(refused > 1000);
}

/* Files of which libjpeg-turbo warns get no entry points. */
static void no_entries(void)
{
    struct fl_slice_parts made;
    FlError err;
    size_t len;
    uint8_t *jpeg = encode(150, 90, 2, 0, &len);

    t_case("no entries");
    T_EQ(fl_direct_entries(directs[1], jpeg, len - 2, &made, &err), FL_ERR(EBADMSG));
    T_EQ(fl_direct_entries(directs[1], jpeg, len / 2, &made, &err), FL_ERR(EBADMSG));
    T_EQ(fl_direct_entries(directs[1], jpeg, 100, &made, &err), FL_ERR(EBADMSG));
    T_EQ(fl_direct_entries(directs[1], jpeg, len, &made, &err), 0);
    free(jpeg);
    jpeg = encode(150, 90, 2, ENCODE_PROGRESSIVE, &len);
    T_EQ(fl_direct_entries(directs[1], jpeg, len, &made, &err), FL_ERR(ENOTSUP));
    free(jpeg);
}

/* Resized views: from a slice, from the file, and from the file by libjpeg alone (tolerate asks for nothing
 * else, but an origin of a cut slice does). */
static void views(void)
{
    struct fl_jpeg_decoder *dec;
    struct fl_rng rng;

    t_case("views");
    fl_rng_init(&rng, 8, 0, 0, FL_RNG_USER, 0);
    T_EQ(fl_jpeg_decoder_new(&dec, NULL, NULL), 0);
    for (int i = 0; i < 60; i++) {
        const int sampling = i % 6, w = 40 + 30 * (i % 7), h = 30 + 25 * (i % 5);
        uint8_t out[3][48 * 40 * 3], *cut;
        struct fl_jpeg_slice part;
        struct fl_slice_range r;
        struct sliced s;
        size_t len, cap, cut_len;
        FlError err = { 0 };
        uint8_t *jpeg = encode(w, h, sampling, 0, &len);
        T_OK(slice(jpeg, len, 0, &s));
        struct fl_jpeg_request req = {
            .crop = { .box = draw(&rng, w, h), .rw = 48, .rh = 40, .flip = i & 1 },
            .exact = i & 2,
            .channels = i % 4 ? 3 : 1,
            .orientation = 1,
            .stride = 48 * 3,
        };
        req.crop.window =
            i % 3 ? (struct fl_rect){ 0, 0, 48, 40 } : (struct fl_rect){ 7, 5, 20, 18 };
        const int scale = fl_resize_scale(req.crop.box.w, req.crop.box.h, 48, 40, req.exact);
        memset(out, 0, sizeof(out));
        T_EQ(fl_slice_range(&s.table, req.crop.box, scale, &r), 0);
        part = (struct fl_jpeg_slice){ &s.table, &r, s.headers, s.file + r.offset };
        req.dst = out[0];
        const int code = fl_jpeg_decode_slice(dec, &part, &req, &err);
        T_OK(code == 0 || (code == FL_ERR(ENOTSUP) && !fl_direct_is_fast()));
        req.dst = out[1];
        T_EQ(fl_jpeg_decode(dec, jpeg, len, &req, &err, NULL), 0);
        cap = fl_slice_cut_bytes(&r, s.headers);
        cut = malloc(cap);
        T_EQ(fl_slice_cut(&s.table, &r, s.headers, s.file + r.offset, cut, cap, &cut_len, &err), 0);
        req.dst = out[2];
        req.origin_x = r.rect.x;
        req.origin_y = r.rect.y;
        T_EQ(fl_jpeg_decode(dec, cut, cut_len, &req, &err, NULL), 0);
        T_OK(code || !memcmp(out[0], out[1], sizeof(out[0])));
        T_OK(!memcmp(out[2], out[1], sizeof(out[0])));
        free(cut);
        free(jpeg);
    }
    fl_jpeg_decoder_free(dec);
}

static void photos(void)
{
    const char *shared = getenv("FL_TEST_SHARED");
    struct dirent **list;
    struct fl_rng rng;
    char path[4096];
    int count, n = 0;

    snprintf(path, sizeof(path), "%s/photos", shared ? shared : "");
    count = scandir(path, &list, NULL, alphasort);
    fl_rng_init(&rng, 9, 0, 0, FL_RNG_USER, 0);
    for (int i = 0; i < count; i++) {
        struct sliced s;
        size_t len;
        uint8_t *data = NULL;
        snprintf(path, sizeof(path), "%s/photos/%s", shared, list[i]->d_name);
        if (i % 25 == 3 && list[i]->d_name[0] != '.' && (data = read_file(path, &len)) &&
            slice(data, len, 0, &s)) {
            t_case(list[i]->d_name);
            check_picture(&s, data, len, 3, &rng);
            n++;
        }
        free(data);
        free(list[i]);
    }
    if (count >= 0)
        free(list);
    if (!n)
        printf("skipped: photos (no folder of them)\n");
}

int main(void)
{
    slicer = fl_slicer_new();
    directs[0] = fl_direct_new(0, 0, FL_CPU_C);
    directs[1] = fl_direct_new(0, 0, FL_CPU_BEST);
    versions();
    every_sampling();
    channels();
    refusals();
    damage();
    no_entries();
    views();
    hostile_entries();
    photos();
    fl_direct_free(directs[0]);
    fl_direct_free(directs[1]);
    fl_slicer_free(slicer);
    return t_done();
}
