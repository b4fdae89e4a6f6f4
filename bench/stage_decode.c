/* SPDX-License-Identifier: Apache-2.0 */
/* The decode stage alone: JPEGs from memory to 224 x 224 uint8 rows, one core, no reading, no batches.
 * Variants take turns picture by picture in blocks, so that a noisy machine is noisy for all of them;
 * times are CPU time of the thread; the ratio is that of the medians over the rounds. */
#define _POSIX_C_SOURCE 200809L
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "crop.h"
#include "jpeg/decode.h"
#include "jpeg/direct.h"
#include "jpeg/slice.h"

enum { MAX_FILES = 4096, MAX_ROUNDS = 99, MAX_VARIANTS = 16 };

struct photo {
    uint8_t *data;
    size_t len;
    struct fl_jpeg_header header;
    uint8_t *sliced; // NULL: could not be
    size_t sliced_len;
    uint8_t *blob;
    size_t blob_len;
    struct fl_slice_bytes headers[FL_SLICE_HEADERS];
    struct fl_entry_table points; // points 0: none could be made
    struct fl_slice_bytes strings[FL_ENTRY_STRINGS];
};

struct bench {
    struct photo photos[MAX_FILES];
    int n, size;
    uint8_t *out;   // size x size x 3
    float *floats;  // the same, normalised
    uint8_t *cut;   // a slice
    uint8_t *whole; // the largest picture
    size_t cut_size;
    struct fl_normalize normalize;
};

struct variant {
    const char *name;
    const char *what;
    enum fl_cpu cpu; // of the resampler
    bool codec;      // libjpeg-turbo alone, slices as JPEGs of their own
    bool no_resize;  // kernels that do nothing: the price of decoding alone
    bool whole;      // all pixels at full scale
    bool exact, entries, slice, normalize;
};

static const struct variant variants[] = {
    { .name = "codec-full",
      .what = "libjpeg-turbo: whole picture, decoding alone",
      .codec = true,
      .no_resize = true,
      .whole = true },
    { .name = "codec-region",
      .what = "libjpeg-turbo: region + scale, decoding alone",
      .codec = true,
      .no_resize = true },
    { .name = "codec",
      .what = "libjpeg-turbo: region + scale, resized",
      .codec = true,
      .cpu = FL_CPU_BEST },
    { .name = "codec-slice",
      .what = "libjpeg-turbo: slice as a JPEG, scale, resized",
      .codec = true,
      .cpu = FL_CPU_BEST,
      .slice = true },
    { .name = "decode", .what = "region + scale, decoding alone", .no_resize = true },
    { .name = "exact", .what = "region at full scale, resized", .cpu = FL_CPU_BEST, .exact = true },
    { .name = "c", .what = "region + scale, resized in plain C", .cpu = FL_CPU_C },
    { .name = "auto", .what = "region + scale, resized", .cpu = FL_CPU_BEST },
    { .name = "f32",
      .what = "region + scale, resized, float32 NCHW",
      .cpu = FL_CPU_BEST,
      .normalize = true },
    { .name = "entries",
      .what = "region + scale by entry points, resized",
      .cpu = FL_CPU_BEST,
      .entries = true },
    { .name = "slice-decode",
      .what = "slice + scale, decoding alone",
      .no_resize = true,
      .slice = true },
    { .name = "slice", .what = "slice + scale, resized", .cpu = FL_CPU_BEST, .slice = true },
    { .name = "slice-f32",
      .what = "slice + scale, resized, float32 NCHW",
      .cpu = FL_CPU_BEST,
      .slice = true,
      .normalize = true },
};
enum { N_VARIANTS = sizeof(variants) / sizeof(variants[0]) };

static void no_vertical(const uint8_t *const *rows, const int16_t *weights, int taps, int bits,
                        int n, int16_t *out)
{
    (void)rows, (void)weights, (void)taps, (void)bits, (void)n, (void)out;
}

static void no_horizontal(const int16_t *in0, const int16_t *in1, const struct fl_axis *axis,
                          bool mirror, uint8_t *out0, uint8_t *out1)
{
    (void)in0, (void)in1, (void)axis, (void)mirror, (void)out0, (void)out1;
}

static const struct fl_kernels null_kernels = {
    .name = "none",
    .vertical = no_vertical,
    .horizontal = { [1] = no_horizontal, [3] = no_horizontal },
};

static void die(const char *what, const char *why)
{
    fprintf(stderr, "stage_decode: %s: %s\n", what, why);
    exit(1);
}

static void *must(void *p)
{
    if (!p)
        die("memory", "none left");
    return p;
}

/* ---- photos ---- */

static void load_file(struct bench *b, const char *path)
{
    struct photo *p = &b->photos[b->n];
    FILE *f = fopen(path, "rb");
    FlError err;

    if (!f)
        die(path, "cannot be opened");
    fseek(f, 0, SEEK_END);
    p->len = (size_t)ftell(f);
    rewind(f);
    p->data = must(malloc(p->len + 1));
    if (fread(p->data, 1, p->len, f) != p->len)
        die(path, "cannot be read");
    fclose(f);
    if (!fl_jpeg_parse(p->data, p->len, &p->header, &err))
        b->n++;
    else
        free(p->data);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void load(struct bench *b, const char *dir, int most)
{
    static char *names[MAX_FILES];
    char path[4096 + 256];
    int n = 0;
    DIR *d = opendir(dir);

    if (!d)
        die(dir, "cannot be opened");
    for (const struct dirent *e; (e = readdir(d)) && n < MAX_FILES;)
        if (e->d_name[0] != '.')
            names[n++] = must(strdup(e->d_name));
    closedir(d);
    qsort(names, (size_t)n, sizeof(names[0]), by_name);
    for (int i = 0; i < n; i++) {
        snprintf(path, sizeof(path), "%.4000s/%.250s", dir, names[i]);
        if (b->n < most)
            load_file(b, path);
        free(names[i]);
    }
    if (!b->n)
        die(dir, "holds no JPEG");
}

static void *copy(const void *data, size_t len)
{
    return memcpy(must(malloc(len + 1)), data, len);
}

static void slice_all(struct bench *b)
{
    struct fl_slicer *s = must(fl_slicer_new());
    const struct fl_slice_options opt = { 0 };

    for (int i = 0; i < b->n; i++) {
        struct photo *p = &b->photos[i];
        struct fl_slice_result r;
        struct fl_slice_parts parts;
        if (fl_slicer_rewrite(s, p->data, p->len, &opt, &r) || r.status > FL_SLICE_ALREADY)
            continue;
        p->sliced_len = r.len;
        p->sliced = copy(r.data, r.len);
        if (fl_slicer_table(s, p->sliced, p->sliced_len, &parts))
            die("a sliced photo", "has no table");
        p->blob_len = parts.blob.len;
        p->blob = copy(parts.blob.data, parts.blob.len);
        for (int k = 0; k < FL_SLICE_HEADERS; k++)
            p->headers[k] =
                (struct fl_slice_bytes){ copy(parts.headers[k].data, parts.headers[k].len),
                                         parts.headers[k].len };
    }
    fl_slicer_free(s);
}

static void make_entries(struct bench *b)
{
    struct fl_direct *d = must(fl_direct_new(1 << 20, 0, FL_CPU_BEST));

    for (int i = 0; i < b->n; i++) {
        struct photo *p = &b->photos[i];
        struct fl_slice_parts made;
        FlError err;
        if (fl_direct_entries(d, p->data, p->len, &made, &err))
            continue;
        if (fl_entry_unpack(&p->points, copy(made.blob.data, made.blob.len), made.blob.len))
            die("entry points", "are none");
        for (int k = 0; k < FL_ENTRY_STRINGS; k++)
            p->strings[k] =
                (struct fl_slice_bytes){ copy(made.headers[k].data, made.headers[k].len),
                                         made.headers[k].len };
    }
    fl_direct_free(d);
}

/* ---- one picture ---- */

static struct fl_crop view_of(const struct bench *b, const struct variant *v, int index, int round)
{
    const struct photo *p = &b->photos[index];
    const int w = (int)p->header.width, h = (int)p->header.height;
    const struct fl_crop_key key = { 1, (uint32_t)round, (uint64_t)index, 0 };
    const FlImage image = {
        .width = b->size, .height = b->size, .crop = FL_CROP_RANDOM_RESIZED, .flip = 0.5f
    };

    if (v->whole)
        return (
            struct fl_crop){ .box = { 0, 0, w, h }, .rw = w, .rh = h, .window = { 0, 0, w, h } };
    return fl_crop_draw(&image, &key, w, h);
}

/* From the slice that the view needs: straight from its row groups, or as a JPEG of its own. */
static int decode_slice(struct bench *b, struct fl_jpeg_decoder *dec, const struct photo *p,
                        struct fl_jpeg_request *req, bool codec, FlError *err)
{
    const struct fl_crop *c = &req->crop;
    const int scale = fl_resize_scale(c->box.w, c->box.h, c->rw, c->rh, req->exact);
    struct fl_slice_table table;
    struct fl_slice_range range;
    size_t len = 0;
    int r;

    if (fl_slice_table_unpack(&table, p->blob, p->blob_len) ||
        fl_slice_range(&table, fl_resize_reach(c, scale), scale, &range))
        die("slice", "not a table");
    const struct fl_jpeg_slice slice = { &table, &range, p->headers, p->sliced + range.offset };
    if (!codec && (r = fl_jpeg_decode_slice(dec, &slice, req, err)) != FL_ERR(ENOTSUP))
        return r;
    if ((r = fl_slice_cut(&table, &range, p->headers, slice.bytes, b->cut, b->cut_size, &len, err)))
        return r;
    req->origin_x = range.rect.x;
    req->origin_y = range.rect.y;
    return fl_jpeg_decode(dec, b->cut, len, req, err, NULL);
}

/* From the entry points of the file as it is. */
static int decode_points(struct fl_jpeg_decoder *dec, const struct photo *p,
                         struct fl_jpeg_request *req, FlError *err)
{
    const struct fl_crop *c = &req->crop;
    const int scale = fl_resize_scale(c->box.w, c->box.h, c->rw, c->rh, req->exact);
    struct fl_entry_range range;

    if (fl_entry_range(&p->points, fl_resize_reach(c, scale), scale, &range))
        die("entry points", "have no range");
    const struct fl_jpeg_points points = { &p->points, &range, p->strings, p->data + range.offset };
    return fl_jpeg_decode_points(dec, &points, req, err);
}

static int decode_view(struct bench *b, struct fl_jpeg_decoder *dec, const struct variant *v,
                       const struct photo *p, struct fl_jpeg_request *req, FlError *err)
{
    if (v->slice && p->sliced)
        return decode_slice(b, dec, p, req, v->codec, err);
    if (v->entries && p->points.points)
        return decode_points(dec, p, req, err);
    return fl_jpeg_decode(dec, p->data, p->len, req, err, NULL);
}

static void decode_one(struct bench *b, struct fl_jpeg_decoder *dec, const struct variant *v,
                       int index, int round)
{
    const struct photo *p = &b->photos[index];
    struct fl_jpeg_request req = { .crop = view_of(b, v, index, round),
                                   .exact = v->exact || v->whole,
                                   .channels = 3,
                                   .tolerate = true,
                                   .dst = v->whole ? b->whole : b->out };
    const size_t pixels = (size_t)b->size * (size_t)b->size;
    FlError err;

    req.stride = (ptrdiff_t)req.crop.rw * 3;
    if (decode_view(b, dec, v, p, &req, &err))
        die(v->name, err.message);
    if (v->normalize)
        fl_kernels_get(v->cpu)->normalize(&b->normalize, b->out, pixels, b->floats, pixels, true);
}

/* ---- rounds ---- */

static double seconds[MAX_VARIANTS][MAX_ROUNDS];

static void run(struct bench *b, const bool chosen[], int rounds)
{
    struct fl_jpeg_decoder *decs[MAX_VARIANTS] = { NULL };
    enum { block = 20 };

    for (int v = 0; v < N_VARIANTS; v++)
        if (fl_jpeg_decoder_new(
                &decs[v], &(struct fl_jpeg_limits){ .codec_alone = variants[v].codec },
                variants[v].no_resize ? &null_kernels : fl_kernels_get(variants[v].cpu)))
            die("decoder", "cannot be made");
    for (int round = -1; round < rounds; round++) // round -1 warms up
        for (int first = 0; first < b->n; first += block)
            for (int v = 0; v < N_VARIANTS; v++) {
                if (!chosen[v])
                    continue;
                const int64_t start = fl_thread_cpu_ns();
                for (int i = first; i < first + block && i < b->n; i++)
                    decode_one(b, decs[v], &variants[v], i, round < 0 ? 0 : round);
                if (round >= 0)
                    seconds[v][round] += (double)(fl_thread_cpu_ns() - start) * 1e-9;
            }
    for (int v = 0; v < N_VARIANTS; v++)
        fl_jpeg_decoder_free(decs[v]);
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void report(const struct bench *b, const bool chosen[], int rounds)
{
    double first = 0;

    printf("%d pictures, %d rounds, kernels %s, %s\n", b->n, rounds,
           fl_kernels_get(FL_CPU_BEST)->name, fl_jpeg_codec());
    printf("%-14s %10s %10s %7s  %s\n", "variant", "images/s", "us/image", "ratio", "what");
    for (int v = 0; v < N_VARIANTS; v++) {
        if (!chosen[v])
            continue;
        qsort(seconds[v], (size_t)rounds, sizeof(double), by_value);
        const double s = seconds[v][rounds / 2] / b->n;
        first = first > 0 ? first : s;
        printf("%-14s %10.0f %10.1f %7.3f  %s\n", variants[v].name, 1 / s, s * 1e6, first / s,
               variants[v].what);
    }
}

/* ---- DCT scaling against exact mode ---- */

static double squared_error(const uint8_t *a, const uint8_t *b, size_t n, int *largest)
{
    double sum = 0;

    for (size_t i = 0; i < n; i++) {
        const int d = abs((int)a[i] - (int)b[i]);
        *largest = d > *largest ? d : *largest;
        sum += (double)d * d;
    }
    return sum / (double)n;
}

static double psnr(double mse)
{
    return mse > 0 ? 10 * log10(255 * 255 / mse) : INFINITY;
}

/* Random-resized crops of all pictures by both modes: how many differ, and by how much. */
static void compare_modes(struct bench *b, int rounds)
{
    static const struct variant scaled = { .name = "auto", .cpu = FL_CPU_BEST },
                                exact = { .name = "exact", .cpu = FL_CPU_BEST, .exact = true };
    const size_t n = (size_t)b->size * (size_t)b->size * 3;
    uint8_t *first = must(malloc(n));
    struct fl_jpeg_decoder *dec;
    double all = 0, worst = 0, sum_psnr = 0;
    int largest = 0, views = 0, reduced = 0;

    if (fl_jpeg_decoder_new(&dec, NULL, NULL))
        die("decoder", "cannot be made");
    for (int round = 0; round < rounds; round++)
        for (int i = 0; i < b->n; i++, views++) {
            const struct fl_crop c = view_of(b, &scaled, i, round);
            if (fl_resize_scale(c.box.w, c.box.h, c.rw, c.rh, 0) == 8)
                continue; // both modes do the same
            decode_one(b, dec, &scaled, i, round);
            memcpy(first, b->out, n);
            decode_one(b, dec, &exact, i, round);
            const double mse = squared_error(first, b->out, n, &largest);
            all += mse;
            sum_psnr += psnr(mse);
            worst = mse > worst ? mse : worst;
            reduced++;
        }
    printf("%d views of %d pixels: %d (%.2f%%) decoded at a reduced scale; of these: PSNR %.2f dB "
           "(mean of "
           "views %.2f, worst %.2f), largest difference %d\n",
           views, b->size, reduced, 100.0 * reduced / views, psnr(all / (reduced ? reduced : 1)),
           sum_psnr / (reduced ? reduced : 1), psnr(worst), largest);
    fl_jpeg_decoder_free(dec);
    free(first);
}

static void usage(void)
{
    printf(
        "usage: stage_decode [--photos DIR] [--rounds N] [--images N] [--size PIXELS] "
        "[VARIANT...]\n"
        "Decodes JPEGs from memory to SIZE x SIZE random-resized crops on one core. Variants:\n");
    for (int v = 0; v < N_VARIANTS; v++)
        printf("  %-14s %s\n", variants[v].name, variants[v].what);
}

static void make_buffers(struct bench *b)
{
    const float mean[3] = FL_IMAGENET_MEAN, std[3] = FL_IMAGENET_STD;
    const size_t n = (size_t)b->size * (size_t)b->size * 3;
    size_t largest = 0;

    for (int i = 0; i < b->n; i++) {
        const struct photo *p = &b->photos[i];
        const size_t pixels = (size_t)p->header.width * p->header.height;
        largest = pixels > largest ? pixels : largest;
        b->cut_size = p->sliced_len > b->cut_size ? p->sliced_len : b->cut_size;
    }
    b->cut_size += 4096;
    b->cut = must(malloc(b->cut_size));
    b->whole = must(malloc(largest * 3));
    b->out = must(malloc(n));
    b->floats = must(aligned_alloc(64, (n * sizeof(float) + 63) / 64 * 64));
    memset(b->floats, 0, n * sizeof(float));
    fl_normalize_init(&b->normalize, FL_F32, FL_NCHW, 3, mean, std);
}

int main(int argc, char **argv)
{
    static struct bench b;
    const char *dir = getenv("FL_TEST_SHARED");
    char path[4096];
    bool chosen[MAX_VARIANTS] = { false }, any = false, compare = false;
    bool slices = false, entries = false;
    int rounds = 5, most = MAX_FILES;

    b.size = 224;
    snprintf(path, sizeof(path), "%s/photos", dir ? dir : "../shared");
    for (int i = 1; i < argc; i++) {
        const bool more = i + 1 < argc;
        if (!strcmp(argv[i], "--photos") && more)
            snprintf(path, sizeof(path), "%s", argv[++i]);
        else if (!strcmp(argv[i], "--rounds") && more)
            rounds = atoi(argv[++i]);
        else if (!strcmp(argv[i], "--images") && more)
            most = atoi(argv[++i]);
        else if (!strcmp(argv[i], "--compare"))
            compare = true;
        else if (!strcmp(argv[i], "--size") && more)
            b.size = atoi(argv[++i]);
        else {
            int v = 0;
            while (v < N_VARIANTS && strcmp(argv[i], variants[v].name))
                v++;
            if (v == N_VARIANTS) {
                usage();
                return strcmp(argv[i], "--help") ? 2 : 0;
            }
            chosen[v] = any = true;
        }
    }
    if (rounds < 1 || rounds > MAX_ROUNDS || b.size < 1 || b.size > 4096)
        die("option", "--rounds takes 1 to 99, --size 1 to 4096");
    for (int v = 0; v < N_VARIANTS; v++) {
        chosen[v] |= !any;
        slices |= chosen[v] && variants[v].slice && !compare;
        entries |= chosen[v] && variants[v].entries && !compare;
    }
    load(&b, path, most < MAX_FILES ? most : MAX_FILES);
    if (slices)
        slice_all(&b);
    if (entries)
        make_entries(&b);
    make_buffers(&b);
    if (compare) {
        compare_modes(&b, rounds);
        return 0;
    }
    run(&b, chosen, rounds);
    report(&b, chosen, rounds);
    return 0;
}
