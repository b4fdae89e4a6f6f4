/* SPDX-License-Identifier: Apache-2.0 */
/* The GPU decoder on a device against the same arithmetic on the host, which tests/unit/test_gpu_jpeg.c
 * holds against libjpeg-turbo: every sampling, scale, orientation, type and layout; sliced JPEGs and
 * unmodified ones with entry points; damaged pictures, and entry points that lie. */
#include "gpu_test.h"

#include "jpeg/direct.h"
#include "kernels/normalize.h"
#include "tests/unit/gpu_jpeg_case.h"
#include "tests/unit/gpu_jpeg_host.h"

#define WIDTH 40
#define HEIGHT 24
#define MOST 256 // pictures of a batch

static const struct case_sampling samplings[] = {
    { "4:4:4", 3, { 1, 1, 1 }, { 1, 1, 1 } },
    { "4:2:0", 3, { 2, 1, 1 }, { 2, 1, 1 } },
    { "4:2:2", 3, { 2, 1, 1 }, { 1, 1, 1 } },
    { "4:4:0", 3, { 1, 1, 1 }, { 2, 1, 1 } },
    { "grey", 1, { 1 }, { 1 } },
    { "4:1:1", 3, { 4, 1, 1 }, { 1, 1, 1 } },
};
static const int sizes[][2] = { { 3, 5 }, { 17, 33 }, { 64, 48 }, { 233, 187 }, { 700, 500 } };

#define KINDS (T_LEN(samplings) * T_LEN(sizes))

static struct case_picture sliced[KINDS], plain[KINDS];
static struct fl_entry_table entries[KINDS]; // of plain

/* A JPEG as it is, and its entry points. */
static void load_plain(size_t n, struct fl_direct *direct, uint8_t *jpeg, size_t len)
{
    struct case_picture *const p = &plain[n];
    struct fl_slice_parts parts;
    FlError err = { 0 };

    p->jpeg = jpeg;
    p->len = len;
    T_EQ(fl_direct_entries(direct, jpeg, len, &parts, &err), 0);
    p->blob = malloc(parts.blob.len);
    memcpy(p->blob, parts.blob.data, parts.blob.len);
    T_EQ(fl_entry_unpack(&entries[n], p->blob, parts.blob.len), 0);
    for (int i = 0; i < FL_ENTRY_STRINGS; i++) // as the loader has them, not as the file does
        T_EQ(fl_gpu_jpeg_header_add(&p->header, parts.headers[i].data, parts.headers[i].len, &err),
             0);
    T_EQ(fl_gpu_jpeg_header_finish(&p->header, entries[n].frame.width, entries[n].frame.height,
                                   entries[n].interval, &err),
         0);
    p->table.frame = entries[n].frame;
    p->table.data_offset = entries[n].data_offset;
    p->table.data_length = len - entries[n].data_offset;
}

static void make_pictures(void)
{
    struct fl_slicer *const slicer = fl_slicer_new();
    struct fl_direct *const direct = fl_direct_new(0, 0, FL_CPU_BEST);
    size_t n = 0, len;

    for (size_t s = 0; s < T_LEN(samplings); s++)
        for (size_t i = 0; i < T_LEN(sizes); i++, n++) {
            const uint32_t w = (uint32_t)sizes[i][0], h = (uint32_t)sizes[i][1];
            const uint32_t row =
                (w + 8u * (uint32_t)samplings[s].h[0] - 1) / (8u * (uint32_t)samplings[s].h[0]);
            uint8_t *jpeg = case_jpeg(&samplings[s], w, h, 50 + (int)(i * 10),
                                      (uint32_t)(s * 7 + i), false, &len);
            T_OK(case_slice(&sliced[n], slicer, jpeg, len));
            free(jpeg);
            // without restart markers, with one behind each row, and behind every second row
            jpeg = case_jpeg_restart(&samplings[s], w, h, 60 + (int)(i * 8), (uint32_t)(s * 5 + i),
                                     n % 3 * row, &len);
            load_plain(n, direct, jpeg, len);
        }
    fl_slicer_free(slicer);
    fl_direct_free(direct);
}

/* A view of picture i, some of each kind. */
static struct fl_crop view(const struct case_picture *p, uint32_t i, int orientation)
{
    const int32_t w = (int32_t)p->table.frame.width, h = (int32_t)p->table.frame.height;
    const uint32_t r = case_hash(i * 7919 + 1), q = case_hash(r);
    const int32_t bw = 1 + (int32_t)(r % (uint32_t)w), bh = 1 + (int32_t)(q % (uint32_t)h);
    const int32_t rw = orientation < 5 ? WIDTH : HEIGHT, rh = orientation < 5 ? HEIGHT : WIDTH;
    const struct fl_rect box = { (int32_t)(r >> 8) % (w - bw + 1), (int32_t)(q >> 8) % (h - bh + 1),
                                 bw, bh };
    const struct fl_crop middle = { { 0, 0, w, h }, rw + 9, rh + 6, { 4, 3, rw, rh }, i & 2 };

    return i % 5 == 4 ? middle : (struct fl_crop){ box, rw, rh, { 0, 0, rw, rh }, i & 1 };
}

struct setting {
    const char *name;
    FlDtype dtype;
    FlLayout layout;
    int32_t channels;
    enum fl_gpu_jpeg_copy copy;
    unsigned grid;
    bool points; // unmodified JPEGs
};

/* What a crop of an unmodified picture needs, in place of case_request(). lie: some points are nonsense. */
static void points_request(size_t n, const struct fl_crop *crop, bool exact, uint32_t lie,
                           struct fl_jpeg_plan *plan, struct fl_gpu_jpeg_picture *in)
{
    const int scale = fl_resize_scale(crop->box.w, crop->box.h, crop->rw, crop->rh, exact);
    struct fl_jpeg_segment *const at = plan->entries + plan->n_entries;
    struct fl_entry_range r;
    FlError err = { 0 };

    T_EQ(fl_entry_range(&entries[n], crop->box, scale, &r), 0);
    *in = (struct fl_gpu_jpeg_picture){ .header = &plain[n].header,
                                        .bytes = plain[n].jpeg + r.offset,
                                        .length = (uint32_t)r.length,
                                        .crop = *crop,
                                        .exact = exact };
    T_OK(fl_gpu_jpeg_entries(&entries[n], &r, at, plan->room.segments - plan->n_entries, in, &err) >
         0);
    for (uint32_t k = 0; lie && k < in->n_entries; k += 3) {
        at[k].offset = k % 2 ? 0xfffffff0u + k : at[k].offset + case_hash(lie + k) % 64;
        at[k].length = k % 4 ? at[k].length : 0x7fffffff;
        at[k].bit = (uint8_t)(case_hash(lie * 7 + k) % 12);
        at[k].pred[k % 3] = (int16_t)case_hash(k);
    }
}

static void add_all(const struct setting *s, struct fl_jpeg_plan *plan,
                    const uint8_t *device_bytes[], uint32_t n, bool damage)
{
    for (uint32_t i = 0; i < n; i++) {
        const struct case_picture *const p = &(s->points ? plain : sliced)[i % KINDS];
        const int orientation = 1 + (int)(i % 8);
        const struct fl_crop crop = view(p, i, orientation);
        struct fl_gpu_jpeg_picture in;
        FlError err = { 0 };

        if (s->points)
            points_request(i % KINDS, &crop, i % 3 == 0, damage && i % 4 == 2 ? i : 0, plan, &in);
        else
            T_EQ(case_request(p, &crop, i % 3 == 0, &in), 0);
        in.bytes = device_bytes[i % KINDS] + (in.bytes - p->jpeg);
        in.orientation = (uint8_t)orientation;
        in.row = MOST - 1 - i;
        T_EQ(fl_jpeg_plan_add(plan, &in, &err), i);
    }
}

/* The element that pixel x, y, channel c of a row must be. */
static uint32_t expected(const struct fl_normalize *norm, const uint8_t *pixels, size_t at, int c)
{
    const uint32_t v = pixels[at * (size_t)norm->channels + (size_t)c];

    return norm->dtype == FL_U8 ? v : norm->bits[c][v];
}

/* Elements of a row of the batch that differ from the host's. */
static uint32_t compare_row(const struct fl_normalize *norm, const uint8_t *pixels, const void *row)
{
    const size_t n = WIDTH * HEIGHT, size = fl_dtype_bytes(norm->dtype);
    uint32_t bad = 0;

    for (size_t at = 0; at < n; at++)
        for (int c = 0; c < norm->channels; c++) {
            const size_t place = norm->layout == FL_NHWC ? at * (size_t)norm->channels + (size_t)c
                                                         : (size_t)c * n + at;
            uint32_t got = 0;
            memcpy(&got, (const uint8_t *)row + place * size, size);
            bad += got != expected(norm, pixels, at, c);
        }
    return bad;
}

static void tables_of(const struct fl_normalize *norm, uint8_t *out)
{
    const size_t size = fl_dtype_bytes(norm->dtype);

    for (int c = 0; c < norm->channels; c++)
        for (int i = 0; i < 256; i++)
            memcpy(out + ((size_t)c * 256 + (size_t)i) * size, &norm->bits[c][i], size);
}

/* All pictures in one batch of one setting; with `damage`, some are spoilt first. */
static void run(const struct setting *s, uint32_t n, bool damage)
{
    const float mean[3] = { 0.485f, 0.456f, 0.406f }, std[3] = { 0.229f, 0.224f, 0.225f };
    const size_t row = WIDTH * HEIGHT * (size_t)s->channels * fl_dtype_bytes(s->dtype);
    const struct fl_gpu_jpeg_room room = fl_gpu_jpeg_room_for(MOST, 400000, 400000, WIDTH, HEIGHT);
    uint8_t table[3 * 256 * 4], *pixels = malloc(WIDTH * HEIGHT * 3), *host = malloc(MOST * row);
    size_t total = 0;
    uint8_t *pinned = NULL;
    const struct case_picture *const pictures = s->points ? plain : sliced;
    const uint8_t *bytes[KINDS];
    struct fl_normalize norm;
    struct fl_gpu_jpeg *dec = NULL;
    FlError err = { 0 };
    void *out = NULL;
    uint32_t differ = 0, flags_differ = 0, flagged = 0;

    t_case(s->name);
    fl_normalize_init(&norm, s->dtype, s->layout, s->channels, mean, std);
    tables_of(&norm, table);
    const struct fl_gpu_jpeg_cfg cfg = {
        .lanes = 1,
        .room = room,
        .width = WIDTH,
        .height = HEIGHT,
        .channels = s->channels,
        .dtype = s->dtype,
        .layout = s->layout,
        .table = s->dtype == FL_U8 ? NULL : table,
        .copy = s->copy,
        .grid = s->grid,
    };
    for (size_t i = 0; i < KINDS; i++)
        total += pictures[i].len;
    // One block, as the read arena is; kernels read it by 16 bytes.
    G_CUDA(cudaHostAlloc((void **)&pinned, (total + 15) & ~(size_t)15, 0));
    for (size_t i = 0, at = 0; i < KINDS; at += pictures[i++].len) {
        memcpy(pinned + at, pictures[i].jpeg, pictures[i].len);
        for (uint32_t k = 0; damage && i % 2 && k < 9; k++)
            pinned[at + pictures[i].table.data_offset +
                   case_hash(k + (uint32_t)i) % pictures[i].table.data_length] ^= 0x55;
        bytes[i] = pinned + at;
    }
    T_EQ(fl_gpu_jpeg_open(&dec, &cfg, &err), 0);
    G_CUDA(cudaMalloc(&out, MOST * row));
    G_CUDA(cudaMemset(out, 0xcc, MOST * row));
    struct fl_jpeg_plan *const plan = fl_gpu_jpeg_begin(dec, 0);
    add_all(s, plan, bytes, n, damage);
    T_EQ(plan->used.pics, n);
    n = plan->used.pics;
    T_EQ(fl_gpu_jpeg_submit(dec, 0, NULL, NULL, out, &err), 0);
    if (err.code)
        fprintf(stderr, "%s\n", err.message);
    G_CUDA(cudaDeviceSynchronize());
    G_CUDA(cudaMemcpy(host, out, MOST * row, cudaMemcpyDeviceToHost));
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t want = host_decode(plan, i, pixels), got = fl_gpu_jpeg_flags(dec, 0)[i];
        const uint8_t *const at = host + (MOST - 1 - i) * row;
        flags_differ += !want != !got;
        flagged += want != 0;
        if (!want)
            differ += compare_row(&norm, pixels, at) != 0;
        for (size_t k = 0; want && k < row; k++)
            differ += at[k] != 0;
    }
    T_EQ(differ, 0);
    T_EQ(flags_differ, 0);
    T_OK(damage ? flagged > n / 10 : flagged == 0);
    fl_gpu_jpeg_close(&dec);
    G_CUDA(cudaFree(out));
    G_CUDA(cudaFreeHost(pinned));
    free(pixels);
    free(host);
}

int main(void)
{
    static const struct setting settings[] = {
        { "u8 nhwc", FL_U8, FL_NHWC, 3, FL_GPU_JPEG_COPY_ENGINE, 0, false },
        { "u8 nchw, by the kernel", FL_U8, FL_NCHW, 3, FL_GPU_JPEG_COPY_KERNEL, 0, false },
        { "bf16 nhwc", FL_BF16, FL_NHWC, 3, FL_GPU_JPEG_COPY_AUTO, 0, false },
        { "f16 nchw", FL_F16, FL_NCHW, 3, FL_GPU_JPEG_COPY_AUTO, 7, false },
        { "f32 nhwc", FL_F32, FL_NHWC, 3, FL_GPU_JPEG_COPY_AUTO, 0, false },
        { "f32 nchw luma", FL_F32, FL_NCHW, 1, FL_GPU_JPEG_COPY_AUTO, 1, false },
        { "u8 luma", FL_U8, FL_NHWC, 1, FL_GPU_JPEG_COPY_KERNEL, 0, false },
        { "points, u8 nhwc", FL_U8, FL_NHWC, 3, FL_GPU_JPEG_COPY_ENGINE, 0, true },
        { "points, u8 nchw, by the kernel", FL_U8, FL_NCHW, 3, FL_GPU_JPEG_COPY_KERNEL, 0, true },
        { "points, bf16 nhwc luma", FL_BF16, FL_NHWC, 1, FL_GPU_JPEG_COPY_AUTO, 3, true },
    };

    g_require();
    make_pictures();
    const uint32_t many = g_short() ? 60 : 240;
    for (size_t i = 0; i < T_LEN(settings); i++)
        run(&settings[i], i < 3 || settings[i].points ? many : 60, false);
    for (size_t i = 0; i < T_LEN(settings); i++)
        if (i < 2 || settings[i].points)
            run(&settings[i], many, true);
    for (size_t i = 0; i < KINDS; i++) {
        case_free(&sliced[i]);
        case_free(&plain[i]);
    }
    return t_done();
}
