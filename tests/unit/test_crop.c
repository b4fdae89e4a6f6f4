/* SPDX-License-Identifier: Apache-2.0 */
/* The crop law: bounds, distribution, torchvision's rounding, and that draws depend on the key alone. */
#include <math.h>

#include "crop.h"
#include "jpeg/exif.h"

#include "t.h"

static const float scale[2] = { 0.08f, 1 }, ratio[2] = { 3.0f / 4, 4.0f / 3 };

static void test_functions(void)
{
    double worst = 0;

    t_case("exp and log");
    for (int i = -7000; i <= 7000; i++) {
        const double x = i / 10.0 + i * 1e-5, e = fabs(fl_crop_exp(x) / exp(x) - 1);
        worst = e > worst ? e : worst;
    }
    T_OK(worst < 6e-16);
    worst = 0;
    for (int i = 1; i <= 100000; i++) {
        const double x = i / 997.0;
        const double e = fabs(fl_crop_log(x) - log(x)) / (fabs(log(x)) + 1e-300);
        worst = e > worst ? e : worst;
    }
    T_OK(worst < 6e-16);
    T_OK(fl_crop_exp(0) == 1);
    T_OK(fl_crop_log(1) == 0);
}

/* Area uniform in [0.08, 1], log of the ratio uniform, as long as the picture leaves room for all draws. */
static void test_law(void)
{
    enum { draws = 40000, bins = 8 };
    int by_ratio[bins] = { 0 }, first_try = 0;
    const double low = log(0.75), high = log(4.0 / 3);
    double area = 0;
    const float small[2] = { 0.08f, 0.5f }; // always fits: at most sqrt(0.5 * 4 / 3) < 1 of a side

    t_case("law");
    for (int i = 0; i < draws; i++) {
        const struct fl_crop_key key = { 7, 1, (uint64_t)i, 0 };
        const struct fl_rect b = fl_crop_random_resized(&key, 5000, 5000, small, ratio);
        T_OK(b.x >= 0 && b.y >= 0 && b.w >= 1 && b.h >= 1 && b.x + b.w <= 5000 &&
             b.y + b.h <= 5000);
        area += (double)b.w * b.h / 25e6;
        const int k = (int)((log((double)b.w / b.h) - low) / (high - low) * bins);
        by_ratio[k < 0 ? 0 : k >= bins ? bins - 1 : k]++;
        first_try += b.x + b.w / 2 < 2500; // centres are spread evenly
    }
    T_OK(fabs(area / draws - 0.29) < 0.003);
    for (int k = 0; k < bins; k++)
        T_OK(abs(by_ratio[k] - draws / bins) < 350); // five standard deviations
    T_OK(abs(first_try - draws / 2) < 600);
}

static void test_sizes(void)
{
    static const int32_t sizes[][2] = { { 1, 1 }, { 1, 65535 }, { 65535, 1 }, { 65535, 65535 },
                                        { 2, 3 }, { 500, 375 }, { 10, 3000 }, { 7, 7 } };

    t_case("sizes");
    for (size_t s = 0; s < T_LEN(sizes); s++)
        for (uint64_t i = 0; i < 500; i++) {
            const struct fl_crop_key key = { 3, 0, i, 1 };
            const int32_t w = sizes[s][0], h = sizes[s][1];
            const struct fl_rect b = fl_crop_random_resized(&key, w, h, scale, ratio);
            T_OK(b.x >= 0 && b.y >= 0 && b.w >= 1 && b.h >= 1 && b.x + b.w <= w && b.y + b.h <= h);
        }
}

/* What torchvision 0.20 falls back to for these sizes. */
static void test_fallback(void)
{
    static const struct {
        int32_t w, h;
        struct fl_rect box;
    } cases[] = {
        { 10, 3000, { 0, 1493, 10, 13 } },
        { 3000, 10, { 1493, 0, 13, 10 } },
        { 4, 4, { 0, 0, 4, 4 } },
    };
    const float never[2] = { 50, 60 }; // no draw can fit

    t_case("fallback");
    for (size_t i = 0; i < T_LEN(cases); i++) {
        const struct fl_crop_key key = { 0 };
        const struct fl_rect b = fl_crop_random_resized(&key, cases[i].w, cases[i].h, never, ratio);
        T_EQ(b.x, cases[i].box.x);
        T_EQ(b.y, cases[i].box.y);
        T_EQ(b.w, cases[i].box.w);
        T_EQ(b.h, cases[i].box.h);
    }
}

static void test_keys(void)
{
    const struct fl_crop_key key = { 11, 2, 12345, 0 };
    struct fl_crop_key other = key;
    const struct fl_rect a = fl_crop_random_resized(&key, 4000, 3000, scale, ratio);
    struct fl_rect b = fl_crop_random_resized(&key, 4000, 3000, scale, ratio);

    t_case("keys");
    T_OK(!memcmp(&a, &b, sizeof(a)));
    for (int i = 0; i < 4; i++) {
        other = key;
        other.seed += i == 0;
        other.epoch += i == 1;
        other.position += i == 2;
        other.column += i == 3;
        b = fl_crop_random_resized(&other, 4000, 3000, scale, ratio);
        T_OK(memcmp(&a, &b, sizeof(a)));
    }
    int flips = 0;
    for (uint64_t i = 0; i < 20000; i++)
        flips += fl_crop_flip(&(struct fl_crop_key){ 1, 1, i, 0 }, 0.25f);
    T_OK(abs(flips - 5000) < 300);
    T_OK(!fl_crop_flip(&key, 0));
    T_OK(fl_crop_flip(&key, 1));
}

/* The draw of one key, pinned: it is part of what a saved state promises. */
static void test_pinned(void)
{
    const struct fl_crop_key key = { 42, 3, 1000, 0 };
    const struct fl_rect b = fl_crop_random_resized(&key, 500, 375, scale, ratio);

    t_case("pinned");
    T_EQ(b.x, 119);
    T_EQ(b.y, 101);
    T_EQ(b.w, 236);
    T_EQ(b.h, 211);
}

static void test_center(void)
{
    static const struct {
        int32_t w, h, resize, ow, oh, rw, rh, x, y;
    } cases[] = {
        // w h resize out -> resized, window: Resize(256) + CenterCrop(224) of torchvision
        { 500, 375, 256, 224, 224, 341, 256, 58, 16 },
        { 375, 500, 256, 224, 224, 256, 341, 16, 58 },
        { 256, 256, 256, 224, 224, 256, 256, 16, 16 },
        { 100, 333, 256, 224, 224, 256, 852, 16, 314 },
        { 640, 481, 232, 224, 225, 308, 232, 42, 4 }, // 3.5 to even: 4
        { 17, 17, 100, 224, 224, 224, 224, 0, 0 },    // would be padded: enlarged
        { 1, 65535, 256, 224, 224, 256, 65535, 16, 32656 },
    };

    t_case("centre");
    for (size_t i = 0; i < T_LEN(cases); i++) {
        const struct fl_crop c =
            fl_crop_center(cases[i].w, cases[i].h, cases[i].resize, cases[i].ow, cases[i].oh);
        T_EQ(c.rw, cases[i].rw);
        T_EQ(c.rh, cases[i].rh);
        T_EQ(c.window.x, cases[i].x);
        T_EQ(c.window.y, cases[i].y);
        T_EQ(c.window.w, cases[i].ow);
        T_EQ(c.window.h, cases[i].oh);
        T_EQ(c.box.w, cases[i].w);
    }
}

static void test_draw(void)
{
    const struct fl_crop_key key = { 5, 0, 9, 0 };
    FlImage image = { .width = 224, .height = 160, .crop = FL_CROP_CENTER };

    t_case("draw");
    struct fl_crop c = fl_crop_draw(&image, &key, 1000, 500);
    T_EQ(c.rh, 256); // 224 * 256 / 224
    T_EQ(c.window.w, 224);
    T_EQ(c.window.h, 160);
    T_OK(!c.flip);
    image.crop = FL_CROP_NONE;
    image.flip = 1;
    c = fl_crop_draw(&image, &key, 1000, 500);
    T_EQ(c.box.w, 1000);
    T_EQ(c.rw, 224);
    T_OK(c.flip);
    image.crop = FL_CROP_RANDOM_RESIZED;
    const struct fl_rect b = fl_crop_random_resized(&key, 1000, 500, scale, ratio);
    c = fl_crop_draw(&image, &key, 1000, 500);
    T_OK(!memcmp(&b, &c.box, sizeof(b)));
}

/* Every pixel of an upright box stands in the stored box that belongs to it. */
static void test_orient(void)
{
    enum { w = 7, h = 5 };

    t_case("orient");
    for (int o = 1; o <= 8; o++) {
        int32_t uw = w, uh = h;
        fl_orient_size(o, &uw, &uh);
        T_EQ(uw, o >= 5 ? h : w);
        const struct fl_rect up = { 1, 2, 3, 2 };
        const struct fl_rect st = fl_orient_box(o, w, h, up);
        T_EQ(st.w, o >= 5 ? 2 : 3);
        const struct fl_orient t = fl_orient_of(o);
        for (int y = up.y; y < up.y + up.h; y++)
            for (int x = up.x; x < up.x + up.w; x++) {
                int u = t.transpose ? y : x, v = t.transpose ? x : y;
                u = t.mirror_u ? w - 1 - u : u;
                v = t.mirror_v ? h - 1 - v : v;
                T_OK(u >= st.x && u < st.x + st.w && v >= st.y && v < st.y + st.h);
            }
    }
}

int main(void)
{
    test_functions();
    test_law();
    test_sizes();
    test_fallback();
    test_keys();
    test_pinned();
    test_center();
    test_draw();
    test_orient();
    return t_done();
}
