/* SPDX-License-Identifier: Apache-2.0 */
/* The GPU decoder's arithmetic, run on the host, against libjpeg-turbo and the resampler's
 * definition: difference 0. */
#include "gpu_jpeg_case.h"
#include "gpu_jpeg_host.h"
#include "jpeg/decode.h"
#include "jpeg/direct.h"
#include "jpeg/upsampling.h"
#include "t.h"

#define SIDE 24 // of the rows that the made-up pictures become

static struct fl_slicer *slicer;
static struct fl_jpeg_decoder *cpu;

static const struct case_sampling samplings[] = {
    { "4:4:4", 3, { 1, 1, 1 }, { 1, 1, 1 } },
    { "4:2:0", 3, { 2, 1, 1 }, { 2, 1, 1 } },
    { "4:2:2", 3, { 2, 1, 1 }, { 1, 1, 1 } },
    { "4:4:0", 3, { 1, 1, 1 }, { 2, 1, 1 } },
    { "grey", 1, { 1 }, { 1 } },
    { "4:1:1", 3, { 4, 1, 1 }, { 1, 1, 1 } },
    { "4:2:2 2x2", 3, { 2, 1, 1 }, { 2, 2, 2 } },
    { "4:1:0", 3, { 4, 1, 1 }, { 2, 1, 1 } },
    { "odd", 3, { 1, 2, 1 }, { 1, 1, 2 } },
    { "grey 2x2", 1, { 2 }, { 2 } },
};

static struct fl_gpu_jpeg_room big_room(void)
{
    struct fl_gpu_jpeg_room room = fl_gpu_jpeg_room_for(1, 5000000, 8000000, 512, 512);

    room.axis += 4000000;
    return room;
}

/* The CPU path on the whole file. */
static void decode_on_cpu(const struct case_picture *p, const struct fl_crop *crop, bool exact,
                          int orientation, int channels, uint8_t *out, int32_t width)
{
    const struct fl_jpeg_request req = {
        .crop = *crop,
        .exact = exact,
        .channels = (uint8_t)channels,
        .orientation = (uint8_t)orientation,
        .dst = out,
        .stride = (ptrdiff_t)width * channels,
    };
    FlError err = { 0 };

    T_EQ(fl_jpeg_decode(cpu, p->jpeg, p->len, &req, &err, NULL), 0);
}

/* Decode one view all ways and compare. Returns the flag word. */
static uint32_t compare(const struct case_picture *p, const struct fl_crop *crop, bool exact,
                        int orientation, int channels, const char *what)
{
    const int32_t w = orientation < 5 ? crop->window.w : crop->window.h;
    const int32_t h = orientation < 5 ? crop->window.h : crop->window.w;
    const size_t size = (size_t)w * (size_t)h * (size_t)channels;
    const int scale = fl_resize_scale(crop->box.w, crop->box.h, crop->rw, crop->rh, exact);
    struct fl_jpeg_plan *const plan = host_plan(big_room(), w, h, channels == 1);
    struct fl_gpu_jpeg_picture in;
    uint8_t *const got = malloc(size), *const want = malloc(size);
    uint32_t pw, ph, flags = 0;
    FlError err = { 0 };

    T_EQ(case_request(p, crop, exact, &in), 0);
    in.orientation = (uint8_t)orientation;
    const int number = fl_jpeg_plan_add(plan, &in, &err);
    if (number < 0)
        fprintf(stderr, "%s: %s\n", what, err.message);
    T_EQ(number, 0);
    if (number == 0) {
        flags = host_decode(plan, 0, got);
        uint8_t *const pixels = case_decode(p->jpeg, p->len, scale, channels, &pw, &ph);
        case_resize(pixels, pw, channels, scale, crop, orientation, want);
        const bool same = !memcmp(got, want, size);
        T_OK(same);
        if (!same)
            fprintf(stderr, "%s: scale %d, box %d %d %d %d of %u x %u\n", what, scale, crop->box.x,
                    crop->box.y, crop->box.w, crop->box.h, p->table.frame.width,
                    p->table.frame.height);
        free(pixels);
        decode_on_cpu(p, crop, exact, orientation, channels, want, w);
        T_OK(!memcmp(got, want, size));
    }
    host_plan_free(plan);
    free(got);
    free(want);
    return flags;
}

static struct fl_crop view(int x, int y, int w, int h, int rw, int rh, bool flip)
{
    return (struct fl_crop){ { x, y, w, h }, rw, rh, { 0, 0, rw, rh }, flip };
}

/* Every sampling at every scale and at odd sizes: the whole picture, and crops at its edges. */
static void test_samplings(void)
{
    static const int sizes[][2] = { { 1, 1 },   { 3, 2 },   { 7, 9 },    { 16, 16 },  { 17, 33 },
                                    { 31, 64 }, { 65, 47 }, { 120, 81 }, { 199, 131 } };

    for (size_t s = 0; s < T_LEN(samplings); s++)
        for (size_t i = 0; i < T_LEN(sizes); i++) {
            const int w = sizes[i][0], h = sizes[i][1];
            struct case_picture p;
            size_t len;
            uint8_t *const jpeg = case_jpeg(&samplings[s], (uint32_t)w, (uint32_t)h,
                                            40 + (int)i * 6, (uint32_t)(i + s), false, &len);
            t_case(samplings[s].name);
            if (case_slice(&p, slicer, jpeg, len)) {
                for (int side = 1; side <= 64; side *= 2) { // many small outputs: small DCT scales
                    const struct fl_crop all = view(0, 0, w, h, side, side, i & 1);
                    T_EQ(compare(&p, &all, false, 1, 3, samplings[s].name), 0);
                }
                const struct fl_crop part =
                    view(w / 3, h / 4, (w + 1) / 2, (h + 1) / 2, SIDE, 17, 0);
                T_EQ(compare(&p, &part, true, 1, 3, samplings[s].name), 0);
                T_EQ(compare(&p, &part, true, 1, 1, samplings[s].name), 0);
            } else {
                T_OK(s >= 6); // only odd samplings may be kept as they are
            }
            case_free(&p);
            free(jpeg);
        }
}

/* Many random crops of one picture of each sampling. */
static void test_crops(void)
{
    for (size_t s = 0; s < 6; s++) {
        struct case_picture p;
        size_t len;
        uint8_t *const jpeg = case_jpeg(&samplings[s], 233, 187, 90, 5, false, &len);

        t_case(samplings[s].name);
        T_OK(case_slice(&p, slicer, jpeg, len));
        for (uint32_t i = 0; i < 60; i++) {
            const uint32_t r = case_hash(i * 977 + (uint32_t)s), q = case_hash(r + 1);
            const int w = 1 + (int)(r % 233), h = 1 + (int)(q % 187);
            const int rw = 1 + (int)(r >> 16) % 90, rh = 1 + (int)(q >> 16) % 90;
            const struct fl_crop c =
                view((int)(r >> 8) % (234 - w), (int)(q >> 8) % (188 - h), w, h, rw, rh, i & 1);
            T_EQ(compare(&p, &c, i % 3 == 0, 1 + (int)(i % 8), 3, samplings[s].name), 0);
        }
        // a window in the middle, as a centre crop takes it
        const struct fl_crop middle = { { 0, 0, 233, 187 }, 80, 64, { 9, 3, 61, 58 }, true };
        T_EQ(compare(&p, &middle, false, 1, 3, "window"), 0);
        T_EQ(compare(&p, &middle, true, 6, 3, "window"), 0);
        case_free(&p);
        free(jpeg);
    }
}

/* A picture stored as RGB keeps its components. */
static void test_rgb(void)
{
    struct case_picture p;
    size_t len;
    uint8_t *const jpeg = case_jpeg(&samplings[0], 90, 70, 85, 2, true, &len);
    const struct fl_crop c = view(10, 20, 50, 40, 30, 30, false);

    t_case("rgb");
    T_OK(case_slice(&p, slicer, jpeg, len));
    T_EQ(p.header.colour, 3);
    T_EQ(compare(&p, &c, false, 1, 3, "rgb"), 0);
    case_free(&p);
    free(jpeg);
}

/* A JPEG as it is, through entry points: the same pixels. */
static void compare_entries(const uint8_t *jpeg, size_t len, bool aligned, const struct fl_crop *c)
{
    const size_t size = (size_t)c->rw * (size_t)c->rh * 3;
    struct case_picture p = { .jpeg = (uint8_t *)(uintptr_t)jpeg, .len = len };
    static struct fl_jpeg_segment some[4000];
    struct fl_jpeg_plan *const plan = host_plan(big_room(), c->rw, c->rh, false);
    struct fl_direct *const direct = fl_direct_new(0, (size_t)1 << 28, FL_CPU_C);
    struct fl_entry_table table;
    struct fl_entry_range r;
    struct fl_slice_parts made;
    uint8_t *const got = malloc(size), *const want = malloc(size);
    FlError err = { 0 };

    T_EQ(fl_gpu_jpeg_header_add(&p.header, jpeg, len, &err), 0);
    T_EQ(fl_gpu_jpeg_header_finish(&p.header, 0, 0, 0, &err), 0);
    T_EQ(fl_direct_entries(direct, jpeg, len, &made, &err), 0);
    T_EQ(fl_entry_unpack(&table, made.blob.data, made.blob.len), 0);
    T_EQ(fl_gpu_jpeg_entries_fit(&table), aligned);
    const int scale = fl_resize_scale(c->box.w, c->box.h, c->rw, c->rh, false);
    T_EQ(fl_entry_range(&table, c->box, scale, &r), 0);
    struct fl_gpu_jpeg_picture in = {
        .header = &p.header, .bytes = jpeg + r.offset, .length = (uint32_t)r.length, .crop = *c
    };
    const int64_t n = fl_gpu_jpeg_entries(&table, &r, some, T_LEN(some), &in, &err);
    T_EQ(n, aligned ? (int64_t)r.n_rows * r.n_points : FL_ERR(ENOTSUP));
    const int number = n > 0 ? fl_jpeg_plan_add(plan, &in, &err) : -1;
    if (n > 0 && number < 0)
        fprintf(stderr, "%s\n", err.message);
    T_EQ(number, n > 0 ? 0 : -1);
    if (number == 0) {
        T_EQ(host_decode(plan, 0, got), 0);
        decode_on_cpu(&p, c, false, 1, 3, want, c->rw);
        T_OK(!memcmp(got, want, size));
    }
    fl_direct_free(direct);
    host_plan_free(plan);
    free(got);
    free(want);
}

static void test_entries(void)
{
    // MCUs to a restart marker, in pictures of 160 x 96 pixels and of 181 x 143
    static const uint32_t restarts[] = { 0, 5, 1000 };

    for (size_t s = 0; s < 6; s++)
        for (size_t i = 0; i < T_LEN(restarts); i++)
            for (uint32_t seed = 0; seed < 4; seed++) {
                const uint32_t w = seed & 1 ? 181 : 160, h = seed & 1 ? 143 : 96;
                const uint32_t row =
                    (w + 8u * (uint32_t)samplings[s].h[0] - 1) / (8u * (uint32_t)samplings[s].h[0]);
                const uint32_t restart = restarts[i] == 1000 ? 2 * row : restarts[i];
                size_t len;
                uint8_t *const jpeg =
                    case_jpeg_restart(&samplings[s], w, h, 88, seed, restart, &len);
                const struct fl_crop all = view(0, 0, (int)w, (int)h, 60, 50, true);
                const struct fl_crop part = view(70, 40, 80, 50, SIDE, SIDE, false);
                const bool aligned = restart % row == 0 || row % restart == 0;
                t_case(samplings[s].name);
                compare_entries(jpeg, len, aligned, &all);
                compare_entries(jpeg, len, aligned, &part);
                free(jpeg);
            }
}

/* Entry points that lie, over damaged bytes: nothing outside the picture's memory is touched (run under a
 * sanitizer), and most of it shows. */
static void test_lies(void)
{
    static struct fl_jpeg_segment some[4000];
    struct fl_jpeg_plan *const plan = host_plan(big_room(), SIDE, SIDE, false);
    struct fl_direct *const direct = fl_direct_new(0, (size_t)1 << 28, FL_CPU_C);
    size_t len;
    uint8_t *const jpeg = case_jpeg(&samplings[1], 300, 200, 80, 7, false, &len);
    const struct fl_crop c = view(31, 17, 220, 150, SIDE, SIDE, false);
    uint8_t *const out = malloc(SIDE * SIDE * 3);
    struct fl_gpu_jpeg_header header = { 0 };
    struct fl_slice_parts made;
    int flagged = 0, planned = 0;
    FlError err;

    t_case("entry points that lie");
    T_EQ(fl_gpu_jpeg_header_add(&header, jpeg, len, &err), 0);
    T_EQ(fl_gpu_jpeg_header_finish(&header, 0, 0, 0, &err), 0);
    T_EQ(fl_direct_entries(direct, jpeg, len, &made, &err), 0);
    for (uint32_t i = 0; out && i < 600; i++) {
        uint8_t *const blob = malloc(made.blob.len);
        struct fl_entry_table table;
        struct fl_entry_range r;
        memcpy(blob, made.blob.data, made.blob.len);
        for (uint32_t k = 0; k < 1 + i % 9; k++)
            blob[8 + case_hash(i * 64 + k) % (i & 1 ? 36 : made.blob.len - 8)] ^=
                (uint8_t)(1 << case_hash(k + i) % 8);
        fl_jpeg_plan_clear(plan);
        if (fl_entry_unpack(&table, blob, made.blob.len) || fl_entry_range(&table, c.box, 8, &r) ||
            r.offset > len || r.length > len - r.offset) {
            free(blob);
            continue;
        }
        uint8_t *const bytes = malloc((size_t)r.length);
        memcpy(bytes, jpeg + r.offset, (size_t)r.length);
        if (i % 4 == 3)
            bytes[case_hash(i) % r.length] ^= 0x55;
        struct fl_gpu_jpeg_picture in = {
            .header = &header, .bytes = bytes, .length = (uint32_t)r.length, .crop = c
        };
        if (fl_gpu_jpeg_entries(&table, &r, some, T_LEN(some), &in, &err) > 0 &&
            fl_jpeg_plan_add(plan, &in, &err) == 0) {
            planned++;
            flagged += host_decode(plan, 0, out) != 0;
        }
        free(bytes);
        free(blob);
    }
    T_OK(planned > 200);
    T_OK(flagged > planned / 3);
    printf("%d of %d lies were flagged\n", flagged, planned);
    fl_direct_free(direct);
    host_plan_free(plan);
    free(out);
    free(jpeg);
}

/* The weights are those of the resampler. */
static void test_weights(void)
{
    t_case("weights");
    for (uint32_t i = 0; i < 400; i++) {
        const uint32_t r = case_hash(i + 1), q = case_hash(r);
        const int size = 1 + (int)(r % (i % 10 ? 900 : 60000)), scale = 1 << (q % 4);
        const int resized = 1 + (int)((q >> 4) % 600), n = 1 + (int)((r >> 20) % (uint32_t)resized);
        const int box = (int)((q >> 16) % 3000), first = (resized - n) / 2;
        const struct fl_axis_spec spec = { box, size, scale, resized, first, n };
        struct fl_jpeg_axis a = {
            .b8 = box * scale, .n8 = size * scale, .r = resized, .first = first, .n = n
        };
        struct fl_axis want;
        int bad = 0;

        case_axis(&want, box, size, scale, resized, first, n);
        a.bits = want.bits;
        a.taps = want.taps;
        int16_t *const w = malloc((size_t)want.taps * sizeof(*w));
        for (int x = 0; w && x < n; x++) {
            bad += fl_jpeg_weights(&a, x, w, 1) != want.start[x];
            bad += !!memcmp(w, want.weights + x * want.taps, (size_t)want.taps * sizeof(*w));
        }
        T_EQ(bad, 0);
        (void)spec;
        free(w);
        free(want.start);
    }
}

/* Damage: never out of bounds, and what the decoder can notice becomes a flag. */
static void test_damage(void)
{
    struct case_picture p;
    size_t len;
    uint8_t *const jpeg = case_jpeg(&samplings[1], 300, 200, 80, 7, false, &len);
    const struct fl_crop c = view(31, 17, 220, 150, SIDE, SIDE, false);
    struct fl_jpeg_plan *const plan = host_plan(big_room(), SIDE, SIDE, false);
    uint8_t *const out = malloc(SIDE * SIDE * 3);
    struct fl_gpu_jpeg_picture in;
    FlError err;
    int flagged = 0;

    t_case("damage");
    T_OK(case_slice(&p, slicer, jpeg, len));
    T_EQ(case_request(&p, &c, false, &in), 0);
    uint8_t *const bytes = malloc(in.length);
    for (uint32_t i = 0; bytes && out && i < 300; i++) {
        const uint32_t r = case_hash(i * 31 + 7);
        memcpy(bytes, in.bytes, in.length);
        struct fl_gpu_jpeg_picture bad = in;
        bad.bytes = bytes;
        if (i % 3 == 0)
            bytes[r % in.length] ^= (uint8_t)(1 << (r >> 28));
        else if (i % 3 == 1)
            memset(bytes + r % in.length, (int)(r >> 20 & 255),
                   (r >> 8) % (in.length - r % in.length) % 200);
        else
            bad.length = r % in.length;
        fl_jpeg_plan_clear(plan);
        T_EQ(fl_jpeg_plan_add(plan, &bad, &err), 0);
        flagged += host_decode(plan, 0, out) != 0;
    }
    T_OK(
        flagged >
        150); // cuts and overwritten runs show, unless they are outside the slice; a flipped bit often not
    free(bytes);
    free(out);
    host_plan_free(plan);
    case_free(&p);
    free(jpeg);
}

/* Which pictures one copy takes: those in a page, and near ones in memory that is pinned in one piece. */
static void test_copies(void)
{
    static const struct {
        const char *name;
        size_t at[3]; // where they begin; the first at 4096
        size_t block; // bytes that are pinned in one piece, from the beginning on; 0: none
        uint32_t copies;
    } cases[] = {
        { "far apart, each in pages of its own", { 4096, 16384, 65536 }, 0, 3 },
        { "in one page", { 4096, 6000, 8000 }, 0, 1 },
        { "in neighbouring pages, pinned apart", { 4096, 8192, 12288 }, 0, 3 },
        { "in neighbouring pages of a block", { 4096, 8192, 12288 }, 131072, 1 },
        { "too far apart in a block", { 4096, 65536, 69632 }, 131072, 2 },
        { "backwards in a block", { 12288, 8192, 4096 }, 131072, 3 },
        { "the last one behind the block's end", { 4096, 8192, 12288 }, 12288, 2 },
    };
    static _Alignas(4096) uint8_t memory[131072];
    const struct fl_crop whole = { { 0, 0, 40, 30 }, 16, 16, { 0, 0, 16, 16 }, false };
    struct case_picture p;
    size_t len;
    uint8_t *const jpeg = case_jpeg(&samplings[0], 40, 30, 60, 5, false, &len);

    T_OK(case_slice(&p, slicer, jpeg, len));
    for (size_t i = 0; i < T_LEN(cases); i++) {
        struct fl_jpeg_plan *const plan =
            host_plan(fl_gpu_jpeg_room_for(3, 100000, 40000, 16, 16), 16, 16, false);
        struct fl_gpu_jpeg_picture in;
        uint64_t distance = 0;
        FlError err = { 0 };
        t_case(cases[i].name);
        plan->block = cases[i].block ? memory : NULL;
        plan->block_bytes = cases[i].block;
        for (uint32_t k = 0; k < 3; k++) {
            T_EQ(case_request(&p, &whole, true, &in), 0);
            T_OK(in.length < 1900);
            memcpy(memory + cases[i].at[k], in.bytes, in.length);
            in.bytes = memory + cases[i].at[k];
            T_EQ(fl_jpeg_plan_add(plan, &in, &err), k);
            const struct fl_jpeg_pic *const pic = &plan->pics[k];
            if (pic->joined)
                T_EQ(pic->src - pic->data, distance);
            else if (k)
                T_OK(pic->data >= pic[-1].data + pic[-1].length); // they never overlap
            distance = pic->src - pic->data;
        }
        T_EQ(plan->n_copies, cases[i].copies);
        host_plan_free(plan);
    }
    case_free(&p);
    free(jpeg);
}

int main(void)
{
    slicer = fl_slicer_new();
    T_OK(slicer != NULL);
    T_EQ(fl_jpeg_decoder_new(&cpu, &(struct fl_jpeg_limits){ 0 }, fl_kernels_get(FL_CPU_C)), 0);
    test_weights();
    test_samplings();
    test_crops();
    test_rgb();
    test_entries();
    test_damage();
    test_lies();
    test_copies();
    fl_slicer_free(slicer);
    fl_jpeg_decoder_free(cpu);
    return t_done();
}
