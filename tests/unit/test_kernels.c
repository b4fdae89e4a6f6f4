/* SPDX-License-Identifier: Apache-2.0 */
/* Every version of the kernels gives the bits of the plain C one, writes nothing outside its output,
 * and is timed beside it. The C one is held against the definition in floating point. */
#define _POSIX_C_SOURCE 200809L
#include <math.h>

#include "base/clock.h"
#include "kernels/kernels.h"

#include "t.h"

enum { GUARD = 64 };

static uint32_t seed = 1;

static uint32_t rnd(uint32_t n)
{
    seed = seed * 1664525u + 1013904223u;
    return (uint32_t)((uint64_t)seed * n >> 32);
}

static const struct fl_kernels *versions[3];
static int n_versions;

static void find_versions(void)
{
    for (int cpu = FL_CPU_C; cpu < FL_CPU_BEST; cpu++) {
        const struct fl_kernels *k = fl_kernels_get((enum fl_cpu)cpu);
        if (!n_versions || versions[n_versions - 1] != k)
            versions[n_versions++] = k;
    }
    printf("versions:");
    for (int i = 0; i < n_versions; i++)
        printf(" %s", versions[i]->name);
    printf("\n");
}

static struct fl_axis make(const struct fl_axis_spec *spec)
{
    struct fl_axis axis;
    void *mem = aligned_alloc(64, fl_axis_bytes(spec));

    fl_axis_make(&axis, spec, mem);
    return axis;
}

/* The definition of resize.h, letter by letter, in whole numbers. */
static int count_wrong_weights(const struct fl_axis_spec *s, const struct fl_axis *axis)
{
    const int64_t b8 = (int64_t)s->box * s->scale, n8 = (int64_t)s->size * s->scale, r = s->resized;
    const int64_t m2 = 2 * (n8 > 8 * r ? n8 : 8 * r);
    int bad = 0;

    for (int i = 0; i < axis->n; i++) {
        const int64_t x = s->first + i;
        const int16_t *w = axis->weights + (size_t)i * (size_t)axis->taps;
        int64_t sum = 0, c = 0;
        for (int pass = 0; pass < 2; pass++)
            for (int k = 0; k < axis->taps; k++) {
                const int64_t p = axis->start[i] + k;
                int64_t raw = m2 - llabs(8 * r * (2 * p + 1) - 2 * r * b8 - (2 * x + 1) * n8);
                raw = raw < 0 || p < b8 / 8 || p >= (b8 + n8 + 7) / 8 ? 0 : raw;
                if (pass == 0) {
                    sum += raw;
                    continue;
                }
                const int64_t before = ((c << axis->bits) + (sum >> 1)) / sum;
                c += raw;
                bad += w[k] != ((c << axis->bits) + (sum >> 1)) / sum - before;
            }
    }
    return bad;
}

/* Weights against the triangle in floating point: Pillow's geometry, pixels outside the box left out. */
static void check_axis(const struct fl_axis_spec *s)
{
    const struct fl_axis axis = make(s);
    const double scale = s->scale / 8.0, b0 = s->box * scale, n = s->size * scale;
    const double ratio = n / s->resized, support = ratio > 1 ? ratio : 1;
    const int first = (int)floor(b0), last = (int)ceil(b0 + n);
    int lo = 1 << 30, hi = 0, bad = count_wrong_weights(s, &axis);
    double worst = 0;

    for (int i = 0; i < axis.n; i++) {
        const double centre = b0 + (s->first + i + 0.5) * ratio;
        const int16_t *w = axis.weights + (size_t)i * (size_t)axis.taps;
        double total = 0;
        int64_t sum = 0;
        int from = (int)floor(centre - support) - 1, to = (int)ceil(centre + support) + 1;
        from = from < first ? first : from;
        to = to > last ? last : to;
        for (int p = from; p < to; p++)
            total += fmax(0, 1 - fabs(p + 0.5 - centre) / support);
        for (int k = 0; k < axis.taps; k++) {
            const int p = axis.start[i] + k;
            const double t = fmax(0, 1 - fabs(p + 0.5 - centre) / support) / total;
            const double want = p < first || p >= last ? 0 : t;
            worst = fmax(worst, fabs(w[k] - want * (1 << axis.bits)));
            sum += w[k];
            bad += w[k] < 0 || (w[k] && (p < axis.lo || p >= axis.hi));
            if (w[k] && p < lo)
                lo = p;
            if (w[k] && p >= hi)
                hi = p + 1;
        }
        bad += sum != 1 << axis.bits;
        bad += axis.start[i] < axis.lo;
        bad += i > 0 && axis.start[i] < axis.start[i - 1];
    }
    T_EQ(bad, 0);
    T_OK(worst <= 1.001);
    T_OK(lo >= axis.lo && hi <= axis.hi);
    free(axis.start);
}

static void test_axes(void)
{
    t_case("axes");
    for (int i = 0; i < 3000; i++) {
        const int most = i % 3 == 0 ? 65535 : i % 3 == 1 ? 2000 : 40;
        struct fl_axis_spec s = { .scale = 1 << rnd(4) };
        s.size = 1 + (int)rnd((uint32_t)most);
        s.box = (int)rnd((uint32_t)(65536 - s.size));
        s.resized = 1 + (int)rnd(i % 2 ? 300 : (uint32_t)most);
        s.n = 1 + (int)rnd((uint32_t)(s.resized < 300 ? s.resized : 300));
        s.first = (int)rnd((uint32_t)(s.resized - s.n + 1));
        check_axis(&s);
    }
    // The ends of the range.
    check_axis(&(struct fl_axis_spec){ 0, 65535, 8, 1, 0, 1 });
    check_axis(&(struct fl_axis_spec){ 65534, 1, 8, 65535, 65000, 535 });
    check_axis(&(struct fl_axis_spec){ 0, 1, 1, 1, 0, 1 });
    check_axis(&(struct fl_axis_spec){ 0, 65535, 8, 65535, 0, 100 });
}

/* ---- vertical ---- */

static uint8_t rows_mem[64][4096 + 64];

static void test_vertical(void)
{
    static int16_t want[4096 + 64] __attribute__((aligned(64)));
    static int16_t got[4096 + 64] __attribute__((aligned(64)));
    const uint8_t *rows[64];

    t_case("vertical");
    for (int r = 0; r < 64; r++)
        for (size_t i = 0; i < sizeof(rows_mem[0]); i++)
            rows_mem[r][i] = (uint8_t)(rnd(3) ? rnd(256) : 255);
    for (int round = 0; round < 400; round++) {
        struct fl_axis_spec s = { 0, 1 + (int)rnd(200), 8, 1 + (int)rnd(200), 0, 0 };
        s.n = s.resized;
        struct fl_axis axis = make(&s);
        const int y = (int)rnd((uint32_t)axis.n), n = 1 + (int)rnd(4096);
        for (int k = 0; k < axis.taps && axis.taps <= 64; k++)
            rows[k] = rows_mem[rnd(64)] + rnd(4);
        const int16_t *w = axis.weights + (size_t)y * (size_t)axis.taps;
        for (int v = 0; v < n_versions && axis.taps <= 64; v++) {
            memset(got, 0x55, sizeof(got));
            versions[v]->vertical(rows, w, axis.taps, axis.bits, n, got);
            T_EQ(got[4096 + 63], 0x5555);
            if (v == 0)
                memcpy(want, got, sizeof(want));
            T_OK(!memcmp(want, got, (size_t)n * 2));
        }
        free(axis.start);
    }
}

/* ---- horizontal ---- */

static void test_horizontal(int channels)
{
    static int16_t in[2][3 * 2 * 4096 + FL_RESIZE_PAD];
    static uint8_t out[4][3 * 1024 + 2 * GUARD], want[2][3 * 1024];

    t_case(channels == 1 ? "horizontal, grey" : "horizontal, RGB");
    for (int r = 0; r < 2; r++)
        for (size_t i = 0; i < T_LEN(in[0]); i++)
            in[r][i] = (int16_t)(rnd(4) ? rnd(32641) : 32640);
    for (int round = 0; round < 1500; round++) {
        struct fl_axis_spec s = { 0, 1 + (int)rnd(round % 3 ? 400 : 4096), 8, 1 + (int)rnd(300), 0,
                                  0 };
        s.n = 1 + (int)rnd((uint32_t)s.resized);
        s.first = (int)rnd((uint32_t)(s.resized - s.n + 1));
        struct fl_axis axis = make(&s);
        const bool mirror = round & 1;
        const size_t bytes = (size_t)(axis.n * channels);
        for (int v = 0; v < n_versions; v++) {
            memset(out, 0xA5, sizeof(out));
            versions[v]->horizontal[channels](in[0], in[1], &axis, mirror, out[0] + GUARD,
                                              out[1] + GUARD);
            versions[v]->horizontal[channels](in[0], in[0], &axis, mirror, out[2] + GUARD,
                                              out[2] + GUARD);
            for (int r = 0; r < 2 && v == 0; r++)
                memcpy(want[r], out[r] + GUARD, bytes);
            T_OK(!memcmp(want[0], out[0] + GUARD, bytes));
            T_OK(!memcmp(want[1], out[1] + GUARD, bytes));
            T_OK(!memcmp(want[0], out[2] + GUARD, bytes));
            int guard = 0;
            for (int r = 0; r < 3; r++)
                for (int i = 0; i < GUARD; i++)
                    guard += out[r][i] != 0xA5 || out[r][GUARD + (int)bytes + i] != 0xA5;
            T_EQ(guard, 0);
        }
        free(axis.start);
    }
}

/* ---- normalise ---- */

static double half_value(uint16_t h)
{
    const int e = h >> 10 & 31, m = h & 1023;
    const double v = e ? ldexp(1024 + m, e - 25) : ldexp(m, -24);
    return h & 0x8000 ? -v : v;
}

/* The nearest of the two neighbours, the even one of equals. */
static void test_rounding(void)
{
    t_case("rounding");
    for (int i = 0; i < 200000; i++) {
        const float x =
            (float)((rnd(2) ? 1.0 : -1.0) * ldexp(1 + rnd(1u << 24) * 0x1p-24, (int)rnd(46) - 30));
        const uint16_t h = fl_f32_to_f16(x), b = fl_f32_to_bf16(x);
        if (fabsf(x) < 65504) {
            const double e = fabs(half_value(h) - x);
            T_OK(e <= fabs(half_value((uint16_t)(h + 1)) - x));
            T_OK((h & 0x7FFF) == 0 || e <= fabs(half_value((uint16_t)(h - 1)) - x));
        }
        uint32_t u = (uint32_t)b << 16;
        float back;
        memcpy(&back, &u, 4);
        T_OK(fabs((double)back - x) <= fabs(x) * 0x1p-8);
    }
    T_EQ(fl_f32_to_f16(1.0f), 0x3C00);
    T_EQ(fl_f32_to_f16(65519.0f), 0x7BFF);
    T_EQ(fl_f32_to_f16(65520.0f), 0x7C00);
    T_EQ(fl_f32_to_f16(0x1p-25f), 0);
    T_EQ(fl_f32_to_f16(0x1.8p-24f), 2); // between 1 and 2 units: the even one
    T_EQ(fl_f32_to_f16(2049.0f), 0x6800);
    T_EQ(fl_f32_to_f16(2051.0f), 0x6802);
    T_EQ(fl_f32_to_bf16(1.00390625f), 0x3F80); // a tie: the even one
    T_EQ(fl_f32_to_bf16(1.01171875f), 0x3F82);
}

static void test_normalize(void)
{
    static const FlDtype types[] = { FL_U8, FL_F32, FL_F16, FL_BF16 };
    static const float params[][2][3] = {
        { { 0.485f, 0.456f, 0.406f }, { 0.229f, 0.224f, 0.225f } },
        { { 0, 0, 0 }, { 0, 0, 0 } },
        { { 0.5f, 0.5f, 0.5f }, { 0.5f, 0.5f, 0.5f } },
        { { 127.5f, 1e-30f, -3 }, { 1e-38f, 1e30f, 77.7f } },
    };
    static uint8_t src[3 * 1000 + 64];
    static uint8_t out[3 * 1100 * 4 + 128] __attribute__((aligned(64)));
    static uint8_t want[sizeof(out)];

    for (size_t i = 0; i < sizeof(src); i++)
        src[i] = (uint8_t)(i < 256 * 3 ? i / 3 : rnd(256));
    for (int c = 0; c < 64; c++) {
        const FlDtype dtype = types[c & 3];
        const FlLayout layout = c & 4 ? FL_NCHW : FL_NHWC;
        const int channels = c & 8 ? 1 : 3;
        const float(*p)[3] = params[c >> 4];
        struct fl_normalize n;
        fl_normalize_init(&n, dtype, layout, channels, p[0], p[1]);
        t_case(layout == FL_NCHW ? "normalise NCHW" : "normalise NHWC");
        for (int round = 0; round < 60; round++) {
            const size_t pixels = round == 0 ? 1000 : 1 + rnd(1000), plane = pixels + rnd(64);
            const size_t offset = round % 3 ? 0 : fl_dtype_bytes(dtype) * rnd(8);
            for (int v = 0; v < n_versions; v++) {
                memset(out, 0xA5, sizeof(out));
                versions[v]->normalize(&n, src, pixels, out + offset, plane, round & 1);
                if (v == 0)
                    memcpy(want, out, sizeof(out));
                T_OK(!memcmp(want, out, sizeof(out)));
            }
        }
        // The plain version against the definition, value by value.
        if (dtype == FL_F32 && layout == FL_NHWC) {
            versions[0]->normalize(&n, src, 256, out, 0, false);
            for (int i = 0; i < 256 * channels; i++) {
                const int k = i % channels;
                const float std = p[1][k] != 0 ? p[1][k] : 1;
                const float y = ((float)src[i] / 255.0f - p[0][k]) / std;
                T_OK(!memcmp(out + 4 * i, &y, 4));
            }
        }
    }
}

/* ---- time ---- */

static void report_times(void)
{
    static uint8_t picture[256][1024 * 3];
    static int16_t t[2][1024 * 3 + FL_RESIZE_PAD] __attribute__((aligned(64)));
    static uint8_t out[224 * 224 * 3];
    static float floats[224 * 224 * 3] __attribute__((aligned(64)));
    const float mean[3] = { 0.485f, 0.456f, 0.406f }, std[3] = { 0.229f, 0.224f, 0.225f };
    const struct fl_axis_spec v = { 0, 250, 8, 224, 0, 224 }, h = { 0, 300, 8, 224, 0, 224 };
    const struct fl_axis av = make(&v), ah = make(&h);
    struct fl_normalize n;

    fl_normalize_init(&n, FL_F32, FL_NCHW, 3, mean, std);
    for (int k = 0; k < n_versions; k++) {
        double us[3] = { 1e9, 1e9, 1e9 };
        for (int round = 0; round < 20; round++) {
            const int64_t t0 = fl_thread_cpu_ns();
            for (int y = 0; y < 224; y++) {
                const uint8_t *rows[8];
                for (int i = 0; i < av.taps; i++)
                    rows[i] = picture[av.start[y] + i];
                versions[k]->vertical(rows, av.weights + y * av.taps, av.taps, av.bits, 900,
                                      t[y & 1]);
            }
            const int64_t t1 = fl_thread_cpu_ns();
            for (int y = 0; y < 224; y += 2)
                versions[k]->horizontal[3](t[0], t[1], &ah, false, out + y * 672,
                                           out + y * 672 + 672);
            const int64_t t2 = fl_thread_cpu_ns();
            versions[k]->normalize(&n, out, 224 * 224, floats, 224 * 224, true);
            const int64_t t3 = fl_thread_cpu_ns();
            us[0] = fmin(us[0], (double)(t1 - t0) / 1e3);
            us[1] = fmin(us[1], (double)(t2 - t1) / 1e3);
            us[2] = fmin(us[2], (double)(t3 - t2) / 1e3);
        }
        printf("%-7s 300x250 -> 224x224: vertical %.1f us, horizontal %.1f us; to float32 NCHW "
               "%.1f us\n",
               versions[k]->name, us[0], us[1], us[2]);
    }
    struct fl_axis a;
    void *mem = aligned_alloc(64, fl_axis_bytes(&h));
    const int64_t t0 = fl_thread_cpu_ns();
    for (int i = 0; i < 100; i++)
        fl_axis_make(&a, &h, mem);
    printf("weights of an axis %.2f us\n", (double)(fl_thread_cpu_ns() - t0) / 1e5);
    free(mem);
    free(av.start);
    free(ah.start);
}

int main(void)
{
    find_versions();
    test_axes();
    test_vertical();
    test_horizontal(3);
    test_horizontal(1);
    test_rounding();
    test_normalize();
    report_times();
    return t_done();
}
