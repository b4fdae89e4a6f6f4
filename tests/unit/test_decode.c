/* SPDX-License-Identifier: Apache-2.0 */
/* Every kind of JPEG, orientation, mirroring, windows; limits; damage: an error, never a crash, and the decoder
 * is as good as new after each. */
#include "base/clock.h"
#include "jpeg/decode.h"
#include "jpeg/exif.h"
#include "jpeg/slice.h"

#include "make_jpeg.h"
#include "t.h"

static struct fl_jpeg_decoder *dec;
static uint8_t out[512 * 512 * 3];

static struct fl_jpeg_request whole(int w, int h, int channels)
{
    return (struct fl_jpeg_request){
        .crop = { .box = { 0, 0, w, h }, .rw = w, .rh = h, .window = { 0, 0, w, h } },
        .exact = true,
        .channels = (uint8_t)channels,
        .dst = out,
        .stride = (ptrdiff_t)w * channels,
    };
}

static int decode_whole(struct mj_bytes j, int w, int h, int channels, FlError *err)
{
    const struct fl_jpeg_request req = whole(w, h, channels);

    memset(err, 0, sizeof(*err));
    const int code = fl_jpeg_decode(dec, j.data, j.len, &req, err, NULL);
    T_EQ(err->code, code); // also where the first decoder refused the file and the second took it
    return code;
}

/* ---- kinds ---- */

static uint8_t ink_to_light(int c, int k, bool inverted)
{
    if (inverted) {
        c = 255 - c;
        k = 255 - k;
    }
    const int light = 255 - k;
    return (uint8_t)(light - (2 * c * light + 255) / 510);
}

/* What libjpeg decodes, turned to RGB or grey by the documented formulas. */
static uint8_t *oracle(const struct mj_spec *spec, struct mj_bytes j, int channels)
{
    int w, h;

    if (spec->components != 4)
        return mj_decode(j, 8, channels == 1 ? JCS_GRAYSCALE : JCS_RGB, &w, &h);
    uint8_t *p = mj_decode(j, 8, JCS_CMYK, &w, &h), *q = malloc((size_t)w * (size_t)h * 3);
    for (int i = 0; i < w * h; i++) {
        int rgb[3];
        for (int c = 0; c < 3; c++)
            rgb[c] = ink_to_light(p[4 * i + c], p[4 * i + 3], !spec->no_markers);
        for (int c = 0; c < 3 && channels == 3; c++)
            q[3 * i + c] = (uint8_t)rgb[c];
        if (channels == 1)
            q[i] = (uint8_t)((19595 * rgb[0] + 38470 * rgb[1] + 7471 * rgb[2] + 32768) >> 16);
    }
    free(p);
    return q;
}

static void test_kinds(void)
{
    static const struct mj_spec specs[] = {
        { .name = "YCbCr", .components = 3, .sh = 2, .sv = 2 },
        { .name = "grey", .components = 1 },
        { .name = "RGB stored", .components = 3, .rgb = true },
        { .name = "CMYK, Adobe", .components = 4 },
        { .name = "CMYK, no marker", .components = 4, .no_markers = true },
        { .name = "YCCK", .components = 4, .ycck = true, .sh = 2, .sv = 2 },
        { .name = "16-bit tables", .components = 3, .quality = -1 },
        { .name = "restarts", .components = 3, .sh = 2, .sv = 1, .restart = 1 },
        { .name = "progressive", .components = 3, .sh = 2, .sv = 2, .progressive = true },
        { .name = "progressive CMYK", .components = 4, .progressive = true },
        { .name = "arithmetic", .components = 3, .sh = 2, .sv = 2, .arithmetic = true },
        { .name = "arithmetic progressive",
          .components = 3,
          .arithmetic = true,
          .progressive = true },
        { .name = "no markers", .components = 3, .no_markers = true },
    };

    for (size_t i = 0; i < T_LEN(specs); i++) {
        struct mj_spec s = specs[i];
        FlError err;
        s.w = 101;
        s.h = 67;
        t_case(s.name);
        struct mj_bytes j = mj_make(&s);
        for (int channels = 1; channels <= 3; channels += 2) {
            T_EQ(decode_whole(j, s.w, s.h, channels, &err), 0);
            T_STR(err.message, "");
            uint8_t *want = oracle(&s, j, channels);
            T_OK(!memcmp(out, want, (size_t)(s.w * s.h * channels)));
            free(want);
        }
        free(j.data);
    }
}

/* ---- what is refused ---- */

static struct mj_bytes plain(void)
{
    return mj_make(&(struct mj_spec){ .w = 80, .h = 48, .components = 3, .sh = 2, .sv = 2 });
}

static size_t marker(struct mj_bytes j, uint8_t code)
{
    for (size_t i = 0; i + 1 < j.len; i++)
        if (j.data[i] == 0xFF && j.data[i + 1] == code)
            return i;
    return 0;
}

static void test_refused(void)
{
    static const struct {
        const char *name;
        int at, value; // byte after the SOF marker's 0xFF, its new value
        int code;
        const char *text;
    } cases[] = {
        { "lossless", 1, 0xC3, FL_ERR(ENOTSUP), "lossless" },
        { "hierarchical", 1, 0xC5, FL_ERR(ENOTSUP), "hierarchical" },
        { "arithmetic lossless", 1, 0xCB, FL_ERR(ENOTSUP), "arithmetic-coded lossless" },
        { "12 bits", 4, 12, FL_ERR(ENOTSUP), "12 bits" },
        { "no rows", 6, 0, FL_ERR(ENOTSUP), "DNL" },
        { "no columns", 8, 0, FL_ERR(EBADMSG), "columns" },
        { "2 components", 9, 2, FL_ERR(EBADMSG), "length" },
        { "sampling 0", 11, 0x02, FL_ERR(EBADMSG), "sampling" },
        { "sampling 5", 11, 0x52, FL_ERR(EBADMSG), "sampling" },
    };
    FlError err;

    for (size_t i = 0; i < T_LEN(cases); i++) {
        struct mj_bytes j = plain();
        const size_t sof = marker(j, 0xC0);
        t_case(cases[i].name);
        j.data[sof + (size_t)cases[i].at] = (uint8_t)cases[i].value;
        T_EQ(decode_whole(j, 80, 48, 3, &err), cases[i].code);
        T_HAS(err.message, cases[i].text);
        T_EQ(err.stage, FL_STAGE_DECODE);
        free(j.data);
    }
    t_case("not a JPEG");
    T_EQ(decode_whole((struct mj_bytes){ (uint8_t *)"\x89PNG\r\n", 6 }, 8, 8, 3, &err),
         FL_ERR(EBADMSG));
    T_HAS(err.message, "not a JPEG");
    T_EQ(decode_whole((struct mj_bytes){ (uint8_t *)"", 0 }, 8, 8, 3, &err), FL_ERR(EBADMSG));
    t_case("view outside");
    struct mj_bytes j = plain();
    T_EQ(decode_whole(j, 81, 48, 3, &err), FL_ERR(EINVAL));
    T_HAS(err.message, "outside");
    T_EQ(decode_whole(j, 80, 48, 3, &err), 0);
    free(j.data);
}

/* ---- limits ---- */

static void set_size(struct mj_bytes j, int w, int h)
{
    uint8_t *sof = j.data + marker(j, 0xC0);

    sof[5] = (uint8_t)(h >> 8);
    sof[6] = (uint8_t)h;
    sof[7] = (uint8_t)(w >> 8);
    sof[8] = (uint8_t)w;
}

/* A progressive file of n scans after the first, each of the DC's next bit or of nothing new. */
static struct mj_bytes many_scans(int n)
{
    const struct mj_spec spec = { .w = 64, .h = 64, .components = 1, .progressive = true };
    struct mj_bytes j = mj_make(&spec);
    const size_t sos = marker(j, 0xDA);
    size_t end = sos + 2;

    // The first scan again and again: libjpeg warns of it, but reads it.
    while (!(j.data[end] == 0xFF && j.data[end + 1] && j.data[end + 1] != 0xFF))
        end++;
    const size_t scan = end - sos;
    uint8_t *p = malloc(j.len + scan * (size_t)n);
    memcpy(p, j.data, end);
    for (int i = 0; i < n; i++)
        memcpy(p + end + scan * (size_t)i, j.data + sos, scan);
    memcpy(p + end + scan * (size_t)n, j.data + end, j.len - end);
    free(j.data);
    return (struct mj_bytes){ p, j.len + scan * (size_t)n };
}

static void test_limits(void)
{
    struct fl_jpeg_decoder *small;
    struct fl_jpeg_request req = whole(80, 48, 3);
    FlError err;
    struct mj_bytes j = plain();

    t_case("pixels");
    const struct fl_jpeg_limits limits = { .max_pixels = 80 * 48 - 1, .max_scans = 5 };
    T_EQ(fl_jpeg_decoder_new(&small, &limits, NULL), 0);
    T_EQ(fl_jpeg_decode(small, j.data, j.len, &req, &err, NULL), FL_ERR(E2BIG));
    T_HAS(err.message, "max_pixels");
    t_case("claimed size");
    set_size(j, 65500, 65500);
    req = whole(65500, 65500, 3);
    req.crop.rw = req.crop.rh = req.crop.window.w = req.crop.window.h = 8;
    const size_t before = fl_jpeg_decoder_bytes(dec);
    T_EQ(fl_jpeg_decode(dec, j.data, j.len, &req, &err, NULL), FL_ERR(E2BIG));
    T_HAS(err.message, "max_pixels");
    set_size(j, 8000, 8000);
    req.crop.box = (struct fl_rect){ 0, 0, 8000, 8000 };
    req.stride = 24;
    T_EQ(fl_jpeg_decode(dec, j.data, j.len, &req, &err, NULL), FL_ERR(EBADMSG));
    T_HAS(err.message, "cut");
    T_EQ(fl_jpeg_decoder_bytes(dec), before);
    t_case("claimed size, tolerated");
    req.tolerate = true;
    const int64_t start = fl_now_ns();
    T_EQ(fl_jpeg_decode(dec, j.data, j.len, &req, &err, NULL), 0);
    T_OK(fl_now_ns() - start < 20000000000);
    free(j.data);

    t_case("scans");
    j = many_scans(200);
    req = whole(64, 64, 1);
    req.tolerate = true;
    T_EQ(fl_jpeg_decode(dec, j.data, j.len, &req, &err, NULL), FL_ERR(E2BIG));
    T_HAS(err.message, "max_scans");
    free(j.data);
    j = many_scans(0);
    T_EQ(fl_jpeg_decode(small, j.data, j.len, &req, &err, NULL), FL_ERR(E2BIG)); // 6 scans
    T_EQ(fl_jpeg_decode(dec, j.data, j.len, &req, &err, NULL), 0);
    free(j.data);
    fl_jpeg_decoder_free(small);

    t_case("memory");
    const struct fl_jpeg_limits tight = { .reserve = 1 << 16, .max_memory = 1 << 17 };
    T_EQ(fl_jpeg_decoder_new(&small, &tight, NULL), 0);
    j = mj_make(&(struct mj_spec){ .w = 400, .h = 400, .components = 3, .progressive = true });
    req = whole(400, 400, 3);
    T_EQ(fl_jpeg_decode(small, j.data, j.len, &req, &err, NULL), FL_ERR(E2BIG));
    T_HAS(err.message, "limit");
    T_EQ(fl_jpeg_decode(dec, j.data, j.len, &req, &err, NULL), 0);
    free(j.data);
    j = mj_make(&(struct mj_spec){ .w = 40, .h = 40, .components = 3 });
    req = whole(40, 40, 3);
    T_EQ(fl_jpeg_decode(small, j.data, j.len, &req, &err, NULL), 0);
    T_OK(fl_jpeg_decoder_bytes(small) < (1 << 18));
    free(j.data);
    fl_jpeg_decoder_free(small);
}

/* ---- damage ---- */

static void test_prefixes(void)
{
    static const struct mj_spec specs[] = {
        { .name = "prefix", .w = 80, .h = 64, .components = 3, .sh = 2, .sv = 2 },
        { .name = "prefix, progressive", .w = 80, .h = 64, .components = 3, .progressive = true },
        { .name = "prefix, restarts", .w = 80, .h = 64, .components = 3, .restart = 3 },
        { .name = "prefix, arithmetic", .w = 80, .h = 64, .components = 1, .arithmetic = true },
    };
    FlError err;

    for (size_t i = 0; i < T_LEN(specs); i++) {
        struct mj_bytes j = mj_make(&specs[i]);
        uint8_t *full = mj_decode(j, 8, JCS_RGB, &(int){ 0 }, &(int){ 0 });
        const struct fl_jpeg_request first_row = {
            .crop = { .box = { 0, 0, 80, 1 }, .rw = 80, .rh = 1, .window = { 0, 0, 80, 1 } },
            .channels = 3,
            .dst = out,
            .stride = 240,
        };
        int good_rows = 0;
        t_case(specs[i].name);
        for (size_t n = 0; n < j.len; n += n < 700 || n + 8 > j.len ? 1 : 9) {
            // A copy of its own, so that an access behind the end is seen by the sanitizers.
            uint8_t *p = malloc(n ? n : 1);
            memcpy(p, j.data, n);
            struct fl_jpeg_request req = whole(80, 64, 3);
            const int r = fl_jpeg_decode(dec, p, n, &req, &err, NULL);
            // Only the end marker may be missing.
            T_OK(r == FL_ERR(EBADMSG) || (r == 0 && n + 4 >= j.len));
            T_OK(r == 0 || strlen(err.message) > 10);
            req.tolerate = true;
            struct fl_jpeg_info info;
            const int t = fl_jpeg_decode(dec, p, n, &req, &err, &info);
            T_OK(t == 0 || t == FL_ERR(EBADMSG));
            T_OK(t || r == 0 || info.warnings > 0);
            if (!fl_jpeg_decode(dec, p, n, &first_row, &err, NULL)) {
                T_OK(!memcmp(out, full, 240)); // what stands before the cut is right
                good_rows++;
            }
            free(p);
        }
        T_OK(specs[i].progressive || good_rows > 25); // all scans are read first
        T_EQ(decode_whole(j, 80, 64, 3, &err), 0);
        T_OK(!memcmp(out, full, 80 * 64 * 3));
        free(full);
        free(j.data);
    }
}

static void test_mutations(void)
{
    static const struct mj_spec specs[] = {
        { .w = 61, .h = 45, .components = 3, .sh = 2, .sv = 2 },
        { .w = 61, .h = 45, .components = 3, .progressive = true },
        { .w = 61, .h = 45, .components = 4, .restart = 2 },
        { .w = 61, .h = 45, .components = 1, .arithmetic = true, .progressive = true },
        { .w = 61, .h = 45, .components = 3, .sh = 4, .sv = 1, .separate = true },
    };
    struct mj_bytes made[T_LEN(specs)];
    uint32_t s = 99;
    int good = 0, bad = 0;
    FlError err;

    t_case("mutations");
    for (size_t i = 0; i < T_LEN(specs); i++)
        made[i] = mj_make(&specs[i]);
    for (int round = 0; round < 3000; round++) {
        struct mj_bytes j = made[round % (int)T_LEN(specs)];
        j.data = memcpy(malloc(j.len), j.data, j.len);
        const size_t start = round % 3 ? 0 : marker(j, 0xDA);
        const int n = 1 + (int)(mj_noise(&s) % 4);
        for (int k = 0; k < n; k++) {
            const size_t at = start + mj_noise(&s) % (j.len - start);
            const uint32_t how = mj_noise(&s) % 4;
            j.data[at] = how == 0 ? 0xFF : how == 1 ? 0 : (uint8_t)mj_noise(&s);
        }
        struct fl_jpeg_request req = whole(61, 45, round % 2 ? 3 : 1);
        req.crop.box =
            (struct fl_rect){ (int)(mj_noise(&s) % 30), (int)(mj_noise(&s) % 20), 20, 20 };
        req.crop.rw = req.crop.rh = req.crop.window.w = req.crop.window.h =
            1 + (int)(mj_noise(&s) % 40);
        req.stride = req.crop.rw * req.channels;
        req.exact = mj_noise(&s) % 2;
        req.tolerate = mj_noise(&s) % 2;
        const int r = fl_jpeg_decode(dec, j.data, j.len, &req, &err, NULL);
        T_OK(r <= 0);
        good += r == 0;
        bad += r < 0;
        free(j.data);
    }
    T_OK(good > 250);
    T_OK(bad > 250);
    for (size_t i = 0; i < T_LEN(specs); i++)
        free(made[i].data);
    struct mj_bytes j = plain();
    uint8_t *full = mj_decode(j, 8, JCS_RGB, &(int){ 0 }, &(int){ 0 });
    T_EQ(decode_whole(j, 80, 48, 3, &err), 0);
    T_OK(!memcmp(out, full, 80 * 48 * 3));
    free(full);
    free(j.data);
}

/* ---- harmless junk ---- */

static struct mj_bytes insert(struct mj_bytes j, size_t at, const char *bytes, size_t n)
{
    uint8_t *p = malloc(j.len + n);

    memcpy(p, j.data, at);
    memcpy(p + at, bytes, n);
    memcpy(p + at + n, j.data + at, j.len - at);
    free(j.data);
    return (struct mj_bytes){ p, j.len + n };
}

static void test_junk(void)
{
    FlError err;
    struct mj_bytes j = plain();

    t_case("junk");
    uint8_t *full = mj_decode(j, 8, JCS_RGB, &(int){ 0 }, &(int){ 0 });
    j = insert(j, marker(j, 0xC0), "\xFF\xFF\xFF", 3); // fill bytes
    j = insert(j, marker(j, 0xC4), "stray", 5);
    j = insert(j, j.len, "after the end\xFF\xD8\xFF", 16);
    j = insert(j, marker(j, 0xD9), "before the end", 14);
    T_EQ(decode_whole(j, 80, 48, 3, &err), 0);
    T_OK(!memcmp(out, full, 80 * 48 * 3));
    free(full);
    free(j.data);
}

/* ---- geometry ---- */

/* 20 x 12 of the view at all orientations and both flips against the upright pixels by definition. */
static void test_orientations(void)
{
    struct mj_bytes j = plain();
    static uint8_t base[20 * 12 * 3];
    FlError err;

    for (int o = 0; o <= 8; o++)
        for (int flip = 0; flip < 2; flip++) {
            struct fl_jpeg_request req = {
                .crop = { { 7, 5, 61, 37 }, 24, 15, { 3, 2, 20, 12 }, false },
                .channels = 3,
                .dst = base,
                .stride = 60,
            };
            const struct fl_orient t = fl_orient_of(o);
            int w = 20, h = 12, bad = 0;
            t_case("orientation");
            T_EQ(fl_jpeg_decode(dec, j.data, j.len, &req, &err, NULL), 0);
            fl_orient_size(o, &w, &h);
            req.dst = out;
            req.stride = w * 3;
            req.orientation = (uint8_t)o;
            req.crop.flip = flip;
            T_EQ(fl_jpeg_decode(dec, j.data, j.len, &req, &err, NULL), 0);
            for (int y = 0; y < h; y++)
                for (int x = 0; x < w; x++) {
                    const int x2 = flip ? w - 1 - x : x;
                    int u = t.transpose ? y : x2, v = t.transpose ? x2 : y;
                    u = t.mirror_u ? 19 - u : u;
                    v = t.mirror_v ? 11 - v : v;
                    bad += memcmp(out + (y * w + x) * 3, base + (v * 20 + u) * 3, 3) != 0;
                }
            T_EQ(bad, 0);
        }
    free(j.data);
}

/* Any window of a resize is the same part of the whole resize; nothing outside dst is written. */
static void test_windows(void)
{
    struct mj_bytes j =
        mj_make(&(struct mj_spec){ .w = 200, .h = 150, .components = 3, .sh = 2, .sv = 2 });
    static uint8_t all[120 * 90 * 3], guarded[200 * 200 * 3];
    uint32_t s = 5;
    FlError err;

    t_case("windows");
    for (int exact = 0; exact < 2; exact++) {
        struct fl_jpeg_request req = {
            .crop = { { 3, 5, 190, 140 }, 120, 90, { 0, 0, 120, 90 }, false },
            .exact = exact,
            .channels = 3,
            .dst = all,
            .stride = 360,
        };
        T_EQ(fl_jpeg_decode(dec, j.data, j.len, &req, &err, NULL), 0);
        for (int i = 0; i < 300; i++) {
            const int w = 1 + (int)(mj_noise(&s) % 120), h = 1 + (int)(mj_noise(&s) % 90);
            const int x = (int)(mj_noise(&s) % (uint32_t)(121 - w));
            const int y = (int)(mj_noise(&s) % (uint32_t)(91 - h));
            int bad = 0;
            memset(guarded, 0xA5, sizeof(guarded));
            req.crop.window = (struct fl_rect){ x, y, w, h };
            req.dst = guarded + 600 + 3;
            req.stride = 600;
            T_EQ(fl_jpeg_decode(dec, j.data, j.len, &req, &err, NULL), 0);
            for (int r = -1; r <= h; r++)
                for (int c = -1; c <= w; c++)
                    for (int k = 0; k < 3; k++) {
                        const bool in = r >= 0 && r < h && c >= 0 && c < w;
                        const int want = in ? all[((y + r) * 120 + x + c) * 3 + k] : 0xA5;
                        bad += guarded[(r + 1) * 600 + (c + 1) * 3 + k] != want;
                    }
            T_EQ(bad, 0);
        }
    }
    free(j.data);
}

/* Any ratio: one pixel from all, all from one pixel. */
static void test_ratios(void)
{
    struct mj_bytes j =
        mj_make(&(struct mj_spec){ .w = 400, .h = 3, .components = 3, .quality = 100 });
    static uint8_t wide[65535 * 3];
    FlError err;
    struct fl_jpeg_request req = whole(400, 3, 3);

    t_case("ratios");
    T_EQ(fl_jpeg_decode(dec, j.data, j.len, &req, &err, NULL), 0);
    uint8_t row[400 * 3];
    memcpy(row, out, sizeof(row));
    req.crop.rh = req.crop.window.h = 3;
    req.crop.rw = req.crop.window.w = 65535;
    req.crop.box = (struct fl_rect){ 17, 0, 1, 1 };
    req.crop.rh = req.crop.window.h = 1;
    req.dst = wide;
    req.stride = sizeof(wide);
    T_EQ(fl_jpeg_decode(dec, j.data, j.len, &req, &err, NULL), 0);
    int bad = 0;
    for (int i = 0; i < 65535; i++)
        bad += memcmp(wide + 3 * i, row + 17 * 3, 3) != 0;
    T_EQ(bad, 0);
    req = whole(400, 3, 3);
    req.crop.rw = req.crop.rh = req.crop.window.w = req.crop.window.h = 1;
    T_EQ(fl_jpeg_decode(dec, j.data, j.len, &req, &err, NULL), 0);
    free(j.data);
}

/* ---- slices ---- */

static size_t cut(struct fl_slice_parts *parts, const uint8_t *jpeg, struct fl_jpeg_request *req,
                  uint8_t *buffer, size_t cap)
{
    const struct fl_crop *c = &req->crop;
    const int scale = fl_resize_scale(c->box.w, c->box.h, c->rw, c->rh, req->exact);
    struct fl_slice_table table;
    struct fl_slice_range range;
    size_t n = 0;
    FlError err;

    T_EQ(fl_slice_table_unpack(&table, parts->blob.data, parts->blob.len), 0);
    T_EQ(fl_slice_range(&table, fl_resize_reach(c, scale), scale, &range), 0);
    T_EQ(fl_slice_cut(&table, &range, parts->headers, jpeg + range.offset, buffer, cap, &n, &err),
         0);
    req->origin_x = range.rect.x;
    req->origin_y = range.rect.y;
    return n;
}

/* The view of a slice is that of the whole file: random boxes and centre crops at all scales. */
static void test_slices(void)
{
    static const struct mj_spec specs[] = {
        { .name = "slice 4:2:0", .w = 523, .h = 311, .components = 3, .sh = 2, .sv = 2 },
        { .name = "slice 4:4:4", .w = 523, .h = 311, .components = 3 },
        { .name = "slice grey", .w = 523, .h = 311, .components = 1 },
        { .name = "slice 4:2:2", .w = 523, .h = 311, .components = 3, .sh = 2, .sv = 1 },
    };
    static uint8_t other[sizeof(out)];
    struct fl_slicer *slicer = fl_slicer_new();
    uint32_t s = 17;
    FlError err;

    for (size_t i = 0; i < T_LEN(specs); i++) {
        struct mj_bytes j = mj_make(&specs[i]);
        struct fl_slice_result r;
        struct fl_slice_parts parts;
        t_case(specs[i].name);
        T_EQ(fl_slicer_rewrite(slicer, j.data, j.len, &(struct fl_slice_options){ 0 }, &r), 0);
        uint8_t *sliced = malloc(r.len), *buffer = malloc(r.len + 8192);
        const size_t sliced_len = r.len;
        memcpy(sliced, r.data, r.len);
        T_EQ(fl_slicer_table(slicer, sliced, sliced_len, &parts), 0);
        for (int k = 0; k < 200; k++) {
            struct fl_jpeg_request req = whole(523, 311, 3);
            struct fl_crop *c = &req.crop;
            if (k % 2) {
                c->box.w = 1 + (int)(mj_noise(&s) % 523);
                c->box.h = 1 + (int)(mj_noise(&s) % 311);
                c->box.x = (int)(mj_noise(&s) % (uint32_t)(524 - c->box.w));
                c->box.y = (int)(mj_noise(&s) % (uint32_t)(312 - c->box.h));
            }
            c->rw = 1 + (int)(mj_noise(&s) % 200);
            c->rh = 1 + (int)(mj_noise(&s) % 200);
            c->window.w = 1 + (int)(mj_noise(&s) % (uint32_t)c->rw);
            c->window.h = 1 + (int)(mj_noise(&s) % (uint32_t)c->rh);
            c->window.x = (int)(mj_noise(&s) % (uint32_t)(c->rw - c->window.w + 1));
            c->window.y = (int)(mj_noise(&s) % (uint32_t)(c->rh - c->window.h + 1));
            req.exact = k % 4 == 0;
            req.stride = c->window.w * 3;
            req.dst = other;
            T_EQ(fl_jpeg_decode(dec, j.data, j.len, &req, &err, NULL), 0);
            req.dst = out;
            const size_t n = cut(&parts, sliced, &req, buffer, sliced_len + 8192);
            const int code = fl_jpeg_decode(dec, buffer, n, &req, &err, NULL);
            T_EQ(code, 0);
            T_OK(!code && !memcmp(out, other, (size_t)(c->window.w * c->window.h * 3)));
        }
        free(sliced);
        free(buffer);
        free(j.data);
    }
    fl_slicer_free(slicer);
}

/* Everything with one decoder, which must hold no more memory at the end than after the first damage. */
static void test_all(const struct fl_jpeg_limits *limits)
{
    T_EQ(fl_jpeg_decoder_new(&dec, limits, NULL), 0);
    test_kinds();
    test_refused();
    test_limits();
    test_prefixes();
    const size_t held = fl_jpeg_decoder_bytes(dec);
    test_mutations();
    test_junk();
    test_orientations();
    test_windows();
    test_ratios();
    test_slices();
    t_case("memory stays");
    T_EQ(fl_jpeg_decoder_bytes(dec), held);
    fl_jpeg_decoder_free(dec);
}

int main(void)
{
    test_all(NULL);
    test_all(&(struct fl_jpeg_limits){ .codec_alone = true });
    T_HAS(fl_jpeg_codec(), "libjpeg-turbo 2.");
    fl_jpeg_decoder_free(NULL);
    return t_done();
}
