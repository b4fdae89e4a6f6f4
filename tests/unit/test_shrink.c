/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include <feedline/error.h>

#include "jpeg/encode.h"
#include "jpeg/header.h"
#include "kernels/kernels.h"
#include "shard/shrink.h"
#include "t.h"

/* A smooth picture: what JPEG keeps nearly as it is. */
static uint8_t *make_pixels(uint32_t w, uint32_t h, int channels)
{
    uint8_t *p = malloc((size_t)w * h * (size_t)channels);

    for (uint32_t y = 0; y < h; y++)
        for (uint32_t x = 0; x < w; x++)
            for (int c = 0; c < channels; c++)
                p[((size_t)y * w + x) * (size_t)channels + (size_t)c] =
                    (uint8_t)(c == 0   ? x * 255 / w
                              : c == 1 ? y * 255 / h
                                       : (x + y) * 255 / (w + h));
    return p;
}

static struct fl_bytes make_jpeg(uint32_t w, uint32_t h, int channels, int sh, int sv,
                                 const uint8_t *icc, size_t icc_len)
{
    const struct fl_jpeg_encode e = { .width = w,
                                      .height = h,
                                      .channels = channels,
                                      .quality = 98,
                                      .h = sh,
                                      .v = sv,
                                      .icc = icc,
                                      .icc_len = icc_len };
    struct fl_bytes out = { 0 };
    uint8_t *pixels = make_pixels(w, h, channels);
    FlError err;

    T_EQ(fl_jpeg_encode(pixels, (size_t)w * (size_t)channels, &e, &out, &err), 0);
    free(pixels);
    return out;
}

static void test_size(void)
{
    static const struct {
        int32_t w, h, max, rw, rh;
    } cases[] = {
        { 500, 375, 0, 500, 375 },    { 500, 375, 375, 500, 375 }, { 500, 375, 400, 500, 375 },
        { 500, 375, 256, 341, 256 },  { 375, 500, 256, 256, 341 }, { 512, 512, 256, 256, 256 },
        { 10000, 100, 50, 5000, 50 }, { 65500, 3, 1, 21833, 1 },
    };
    int32_t rw, rh;

    t_case("size");
    for (size_t i = 0; i < T_LEN(cases); i++) {
        fl_shrink_size(cases[i].w, cases[i].h, cases[i].max, &rw, &rh);
        T_EQ(rw, cases[i].rw);
        T_EQ(rh, cases[i].rh);
    }
}

static void decode(const struct fl_bytes *jpeg, uint8_t *pixels, int32_t w, int32_t h, int channels)
{
    const struct fl_jpeg_request req = {
        .crop = { .box = { 0, 0, w, h }, .rw = w, .rh = h, .window = { 0, 0, w, h } },
        .exact = true,
        .channels = (uint8_t)channels,
        .dst = pixels,
        .stride = (ptrdiff_t)w * channels
    };
    struct fl_jpeg_decoder *dec = NULL;
    FlError err;

    T_EQ(fl_jpeg_decoder_new(&dec, &(struct fl_jpeg_limits){ 0 }, fl_kernels_get(FL_CPU_BEST)), 0);
    T_EQ(fl_jpeg_decode(dec, jpeg->data, jpeg->len, &req, &err, NULL), 0);
    fl_jpeg_decoder_free(dec);
}

static void test_shrink(void)
{
    static const struct {
        const char *name, *layout;
        int channels, h, v;
    } cases[] = {
        { "4:2:0", "4:2:0", 3, 2, 2 }, { "4:2:2", "4:2:2", 3, 2, 1 }, { "4:4:0", "4:4:0", 3, 1, 2 },
        { "4:4:4", "4:4:4", 3, 1, 1 }, { "grey", "grey", 1, 1, 1 },
    };
    static uint8_t got[128 * 192 * 3];

    for (size_t i = 0; i < T_LEN(cases); i++) {
        struct fl_bytes jpeg =
            make_jpeg(384, 256, cases[i].channels, cases[i].h, cases[i].v, NULL, 0);
        struct fl_shrinker s = { 0 };
        struct fl_jpeg_header h;
        FlError err;
        t_case(cases[i].name);
        T_EQ(fl_shrink(&s, jpeg.data, jpeg.len, 128, 95, &err), 1);
        T_EQ(fl_jpeg_parse(s.out.data, s.out.len, &h, &err), 0);
        T_EQ(h.width, 192);
        T_EQ(h.height, 128);
        T_STR(fl_jpeg_layout_name(&h), cases[i].layout);
        decode(&s.out, got, 192, 128, cases[i].channels);
        uint8_t *want = make_pixels(192, 128, cases[i].channels);
        int worst = 0;
        for (int k = 0; k < 192 * 128 * cases[i].channels; k++)
            worst = abs(got[k] - want[k]) > worst ? abs(got[k] - want[k]) : worst;
        T_OK(worst <= 8);
        free(want);

        // Again, with buffers in use: the same bytes.
        uint8_t *first = malloc(s.out.len);
        const size_t len = s.out.len;
        memcpy(first, s.out.data, len);
        T_EQ(fl_shrink(&s, jpeg.data, jpeg.len, 128, 95, &err), 1);
        T_EQ(s.out.len, len);
        T_EQ(memcmp(first, s.out.data, len), 0);
        free(first);
        T_EQ(fl_shrink(&s, jpeg.data, jpeg.len, 256, 80, &err), 0); // small enough: as it is
        T_EQ(fl_shrink(&s, jpeg.data, jpeg.len, 0, 0, &err), 0);
        T_EQ(fl_shrink(&s, jpeg.data, jpeg.len, 0, 50, &err), 1); // quality alone: all
        T_OK(s.out.len < jpeg.len);
        fl_shrinker_fini(&s);
        fl_bytes_free(&jpeg);
    }
}

static void test_icc(void)
{
    static uint8_t profile[150000]; // three chunks
    struct fl_shrinker s = { 0 };
    struct fl_bytes icc = { 0 };
    FlError err;

    t_case("the profile stays");
    for (size_t i = 0; i < sizeof(profile); i++)
        profile[i] = (uint8_t)(i * 13 + i / 251);
    struct fl_bytes jpeg = make_jpeg(100, 80, 3, 2, 2, profile, sizeof(profile));
    T_EQ(fl_icc_find(jpeg.data, jpeg.len, &icc), 0);
    T_EQ(icc.len, sizeof(profile));
    T_EQ(fl_shrink(&s, jpeg.data, jpeg.len, 40, 90, &err), 1);
    T_EQ(fl_icc_find(s.out.data, s.out.len, &icc), 0);
    T_EQ(icc.len, sizeof(profile));
    T_EQ(icc.len ? memcmp(icc.data, profile, icc.len) : 1, 0);

    t_case("a profile with a missing chunk is none");
    for (size_t i = 0; i + 14 < jpeg.len; i++)
        if (!memcmp(jpeg.data + i, "ICC_PROFILE\0\2", 13))
            jpeg.data[i + 12] = 3;
    T_EQ(fl_icc_find(jpeg.data, jpeg.len, &icc), 0);
    T_EQ(icc.len, 0);

    t_case("any prefix is fine");
    for (size_t n = 0; n < jpeg.len; n += n < 600 ? 1 : 997)
        T_EQ(fl_icc_find(jpeg.data, n, &icc), 0);
    fl_bytes_free(&icc);
    fl_bytes_free(&jpeg);
    fl_shrinker_fini(&s);
}

static void test_bad(void)
{
    struct fl_bytes jpeg = make_jpeg(384, 256, 3, 2, 2, NULL, 0);
    struct fl_shrinker s = { 0 };
    FlError err;

    t_case("cut and foreign");
    T_EQ(fl_shrink(&s, jpeg.data, jpeg.len / 2, 128, 95, &err), FL_ERR(EBADMSG));
    T_EQ(fl_shrink(&s, jpeg.data, 20, 128, 95, &err), FL_ERR(EBADMSG));
    T_EQ(fl_shrink(&s, (const uint8_t *)"GIF89a", 6, 128, 95, &err), FL_ERR(EBADMSG));
    T_EQ(fl_shrink(&s, jpeg.data, 0, 128, 95, &err), FL_ERR(EBADMSG));
    T_OK(err.message[0] != 0);
    T_EQ(fl_shrink(&s, jpeg.data, jpeg.len, 128, 95, &err), 1); // and goes on working
    fl_shrinker_fini(&s);
    fl_bytes_free(&jpeg);
}

int main(void)
{
    test_size();
    test_shrink();
    test_icc();
    test_bad();
    return t_done();
}
