/* SPDX-License-Identifier: Apache-2.0 */
/* A region decode equals the full decode cropped, difference 0: every kind of sampling, every scale,
 * every position of the crop's four edges. */
#include "jpeg/decode.h"

#include "make_jpeg.h"
#include "t.h"

static const struct mj_spec specs[] = {
    { .name = "4:4:4", .w = 75, .h = 61, .components = 3, .sh = 1, .sv = 1 },
    { .name = "4:2:2", .w = 91, .h = 61, .components = 3, .sh = 2, .sv = 1 },
    { .name = "4:2:0", .w = 91, .h = 93, .components = 3, .sh = 2, .sv = 2 },
    { .name = "4:4:0", .w = 75, .h = 93, .components = 3, .sh = 1, .sv = 2 },
    { .name = "4:1:1", .w = 131, .h = 45, .components = 3, .sh = 4, .sv = 1 },
    { .name = "4:1:0", .w = 131, .h = 61, .components = 3, .sh = 4, .sv = 2 },
    { .name = "4:4:1", .w = 45, .h = 131, .components = 3, .sh = 1, .sv = 4 },
    { .name = "grey", .w = 75, .h = 61, .components = 1 },
    { .name = "grey 2x2", .w = 75, .h = 61, .components = 1, .sh = 2, .sv = 2 },
    { .name = "RGB", .w = 75, .h = 61, .components = 3, .rgb = true },
    { .name = "restart", .w = 91, .h = 93, .components = 3, .sh = 2, .sv = 2, .restart = 2 },
    { .name = "optimised", .w = 91, .h = 93, .components = 3, .sh = 2, .sv = 2, .optimize = true },
    { .name = "separate scans",
      .w = 91,
      .h = 93,
      .components = 3,
      .sh = 2,
      .sv = 2,
      .separate = true },
    { .name = "progressive 4:4:4",
      .w = 75,
      .h = 61,
      .components = 3,
      .sh = 1,
      .sv = 1,
      .progressive = true },
    { .name = "progressive 4:2:2",
      .w = 91,
      .h = 61,
      .components = 3,
      .sh = 2,
      .sv = 1,
      .progressive = true },
    { .name = "progressive 4:2:0",
      .w = 91,
      .h = 93,
      .components = 3,
      .sh = 2,
      .sv = 2,
      .progressive = true },
    { .name = "progressive 4:4:0",
      .w = 75,
      .h = 93,
      .components = 3,
      .sh = 1,
      .sv = 2,
      .progressive = true },
    { .name = "progressive grey", .w = 75, .h = 61, .components = 1, .progressive = true },
    { .name = "narrow 4:2:0", .w = 5, .h = 64, .components = 3, .sh = 2, .sv = 2 },
    { .name = "tiny 4:2:0", .w = 3, .h = 3, .components = 3, .sh = 2, .sv = 2 },
    { .name = "one pixel", .w = 1, .h = 1, .components = 3, .sh = 2, .sv = 2 },
};

struct view {
    int x, y, w, h; // decoded pixels
};

/* Box and size are chosen so that the resampler copies: what comes out is what was decoded. */
static void compare(struct fl_jpeg_decoder *dec, struct mj_bytes jpeg, int scale, int channels,
                    const uint8_t *full, int full_w, struct view v)
{
    static uint8_t out[256 * 256 * 3];
    const int k = 8 / scale;
    const struct fl_jpeg_request req = {
        .crop = { .box = { v.x * k, v.y * k, v.w * k, v.h * k },
                  .rw = v.w,
                  .rh = v.h,
                  .window = { 0, 0, v.w, v.h } },
        .channels = (uint8_t)channels,
        .dst = out,
        .stride = (ptrdiff_t)v.w * channels,
    };
    struct fl_jpeg_info info;
    FlError err = { 0 };

    const int r = fl_jpeg_decode(dec, jpeg.data, jpeg.len, &req, &err, &info);
    T_EQ(r, 0);
    if (r) {
        fprintf(stderr, "%s\n", err.message);
        return;
    }
    T_EQ(info.scale, scale);
    int bad = 0;
    for (int y = 0; y < v.h; y++)
        bad += memcmp(out + (size_t)y * (size_t)(v.w * channels),
                      full + ((size_t)(v.y + y) * (size_t)full_w + (size_t)v.x) * (size_t)channels,
                      (size_t)(v.w * channels)) != 0;
    T_EQ(bad, 0);
    if (bad)
        fprintf(stderr, "  scale %d, %d channels, box %d,%d %dx%d of width %d\n", scale, channels,
                v.x, v.y, v.w, v.h, full_w);
}

/* Left and right edges at every column while top and bottom take every row. */
static void sweep(struct fl_jpeg_decoder *dec, struct mj_bytes jpeg, const struct mj_spec *spec,
                  int scale, int channels)
{
    static const int sizes[] = { 1, 3, 33 };
    int full_w, full_h;
    uint8_t *full =
        mj_decode(jpeg, scale, channels == 1 ? JCS_GRAYSCALE : JCS_RGB, &full_w, &full_h);
    // Only what whole source pixels can name: the last decoded pixel may be cut off by the picture's edge.
    const int k = 8 / scale, w = spec->w / k, h = spec->h / k;
    const int longest = w > h ? w : h;

    for (size_t i = 0; i < T_LEN(sizes); i += channels == 1 ? 3 : 1)
        for (int p = 0; p < longest; p++) {
            const int size_w = sizes[i] < w ? sizes[i] : w, size_h = sizes[i] < h ? sizes[i] : h;
            struct view v = { p % (w - size_w + 1), (p * 7 + 3) % (h - size_h + 1), size_w,
                              size_h };
            compare(dec, jpeg, scale, channels, full, full_w, v);
            v = (struct view){ (p * 5 + 1) % (w - size_w + 1), p % (h - size_h + 1), size_w,
                               size_h };
            compare(dec, jpeg, scale, channels, full, full_w, v);
            v.w = w - v.x; // up to the far corner
            v.h = h - v.y;
            compare(dec, jpeg, scale, channels, full, full_w, v);
        }
    free(full);
}

/* All positions at all scales by one decoder. */
static void sweep_scales(struct fl_jpeg_decoder *dec, struct mj_bytes jpeg,
                         const struct mj_spec *spec)
{
    for (int scale = 8; scale >= 1; scale /= 2)
        if (spec->w >= 8 / scale && spec->h >= 8 / scale) {
            sweep(dec, jpeg, spec, scale, 3);
            sweep(dec, jpeg, spec, scale, 1);
        }
}

int main(void)
{
    struct fl_jpeg_decoder *dec = NULL, *codec = NULL;

    T_EQ(fl_jpeg_decoder_new(&dec, NULL, NULL), 0);
    T_EQ(fl_jpeg_decoder_new(&codec, &(struct fl_jpeg_limits){ .codec_alone = true }, NULL), 0);
    for (size_t i = 0; i < T_LEN(specs); i++) {
        t_case(specs[i].name);
        struct mj_bytes jpeg = mj_make(&specs[i]);
        sweep_scales(codec, jpeg, &specs[i]);
        if (!specs[i].progressive) // these go through libjpeg-turbo anyway
            sweep_scales(dec, jpeg, &specs[i]);
        free(jpeg.data);
    }
    fl_jpeg_decoder_free(dec);
    fl_jpeg_decoder_free(codec);
    return t_done();
}
