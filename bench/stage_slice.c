/* SPDX-License-Identifier: Apache-2.0 */
/* Sliced JPEG on one core: bytes, index bytes, and the speed of decoding random crops, each way of doing
 * it after the other for every picture, so that whatever else the machine does hits all of them alike.
 *
 *   stage_slice FOLDER [ROUNDS] [MCUS-PER-SEGMENT]
 *
 * Rounds of RandomResizedCrop(224) boxes over all JPEGs of the folder, from memory, decoded to RGB at the
 * smallest DCT scale that covers 224 x 224; no resampling. */
#define _GNU_SOURCE
#include <dirent.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "crop.h"
#include "jpeg/codec.h"
#include "jpeg/direct.h"
#include "jpeg/slice.h"
#include "kernels/resize.h"

struct picture {
    uint8_t *original, *sliced;
    size_t original_len, sliced_len;
    struct fl_slice_table table;
    struct fl_slice_bytes headers[FL_SLICE_HEADERS];
    uint8_t *table_memory;
    struct fl_entry_table points; // of the original; points 0: none
    struct fl_slice_bytes strings[FL_ENTRY_STRINGS];
};

enum way { FULL, REGION, SLICE, DIRECT, DIRECT_FILE, DIRECT_ENTRIES, WAYS };

static const char *const names[WAYS] = {
    [FULL] = "full decode, libjpeg-turbo",
    [REGION] = "region + scale, libjpeg-turbo",
    [SLICE] = "slice + scale, libjpeg-turbo",
    [DIRECT] = "slice + scale, own decoder",
    [DIRECT_FILE] = "region + scale of the original, own decoder",
    [DIRECT_ENTRIES] = "the same with entry points",
};

struct bench {
    struct picture *pictures;
    size_t n;
    uint8_t *rgb, *cut;
    struct fl_direct *direct;
    int64_t spent[WAYS];
    uint64_t fetched, file_bytes, segments_bytes;
    uint64_t sums[WAYS], refused;
};

static uint8_t *read_file(const char *path, size_t *len)
{
    FILE *f = fopen(path, "rb");
    uint8_t *data = NULL;
    long size;

    if (f && !fseek(f, 0, SEEK_END) && (size = ftell(f)) > 0 && !fseek(f, 0, SEEK_SET) &&
        (data = malloc((size_t)size)))
        *len = fread(data, 1, (size_t)size, f);
    if (f)
        fclose(f);
    return data;
}

static void read_rows(j_decompress_ptr d, JDIMENSION end, uint8_t *rgb)
{
    while (d->output_scanline < end) {
        JSAMPROW rows[8];
        for (int i = 0; i < 8; i++)
            rows[i] = rgb + (size_t)i * d->output_width * 3;
        rgb += (size_t)jpeg_read_scanlines(d, rows, 8) * d->output_width * 3;
    }
}

/* Rows y0 to y1 of columns x0 to x1 (decoded pixels) of a JPEG by libjpeg-turbo's own means. */
static bool libjpeg(const uint8_t *jpeg, size_t len, int scale, const int box[4], uint8_t *rgb)
{
    struct jpeg_decompress_struct d;
    struct fl_codec codec;
    JDIMENSION x, w;

    d.err = fl_codec_init(&codec);
    if (setjmp(codec.jump)) {
        jpeg_destroy_decompress(&d);
        return false;
    }
    jpeg_create_decompress(&d);
    jpeg_mem_src(&d, jpeg, (unsigned long)len);
    jpeg_read_header(&d, TRUE);
    d.scale_num = (unsigned)scale;
    d.scale_denom = 8;
    d.out_color_space = JCS_RGB;
    jpeg_start_decompress(&d);
    if (box) {
        x = (JDIMENSION)(box[0] > 2 ? box[0] - 2 : 0);
        w = (JDIMENSION)box[2] + 2 - x;
        w = x + w > d.output_width ? d.output_width - x : w;
        if (w < d.output_width)
            jpeg_crop_scanline(&d, &x, &w);
        if (box[1] > 2)
            jpeg_skip_scanlines(&d, (JDIMENSION)box[1] - 2);
    }
    read_rows(&d, box ? (JDIMENSION)box[3] : d.output_height, rgb);
    jpeg_abort_decompress(&d);
    jpeg_destroy_decompress(&d);
    return true;
}

static bool direct(struct bench *b)
{
    const int n = fl_direct_height(b->direct);
    const size_t w = (size_t)fl_direct_width(b->direct) * 3;
    FlError err;

    for (int y = 0; y < n; y++)
        if (fl_direct_row(b->direct, b->rgb + (size_t)y * w, &err)) {
            fprintf(stderr, "%s\n", err.message);
            return false;
        }
    return true;
}

/* From the entry points of the original. */
static bool points(struct bench *b, const struct picture *p, const struct fl_direct_view *view)
{
    struct fl_entry_range r;
    FlError err;

    if (!p->points.points || fl_entry_range(&p->points, view->box, view->scale, &r))
        return false;
    return !fl_entry_check(&p->points, &r, p->original + r.offset, &err) &&
           !fl_direct_points(b->direct, &p->points, &r, p->strings, p->original + r.offset, view,
                             &err);
}

static bool decode(struct bench *b, enum way way, const struct picture *p, struct fl_rect box,
                   int scale)
{
    const int decoded[4] = { box.x * scale / 8, box.y * scale / 8,
                             ((box.x + box.w) * scale + 7) / 8, ((box.y + box.h) * scale + 7) / 8 };
    const struct fl_direct_view view = { box, scale, 3 };
    struct fl_slice_range r;
    const uint8_t *bytes;
    FlError err;
    size_t n;

    switch (way) {
    case FULL:
        return libjpeg(p->original, p->original_len, 8, NULL, b->rgb);
    case REGION:
        return libjpeg(p->original, p->original_len, scale, decoded, b->rgb);
    case DIRECT_FILE:
        return !fl_direct_file(b->direct, p->original, p->original_len, &view, &err) && direct(b);
    case DIRECT_ENTRIES:
        return points(b, p, &view) && direct(b);
    default:
        break;
    }
    if (fl_slice_range(&p->table, box, scale, &r))
        return false;
    bytes = p->sliced + r.offset;
    if (fl_slice_check_groups(&p->table, &r, bytes, &err))
        return false;
    if (way == SLICE)
        return !fl_slice_cut(&p->table, &r, p->headers, bytes, b->cut, (size_t)64 << 20, &n,
                             &err) &&
               libjpeg(b->cut, n, scale, NULL, b->rgb);
    b->fetched += r.length;
    b->file_bytes += p->sliced_len;
    return !fl_direct_slice(b->direct, &p->table, &r, p->headers, bytes, &view, &err) && direct(b);
}

static void round_of(struct bench *b, uint32_t round)
{
    static const float area[2] = { 0.08f, 1 }, ratio[2] = { 3.f / 4, 4.f / 3 };

    for (size_t i = 0; i < b->n; i++) {
        const struct picture *p = &b->pictures[i];
        const struct fl_crop_key key = { 1, round, i, 0 };
        const struct fl_rect box = fl_crop_random_resized(
            &key, (int32_t)p->table.frame.width, (int32_t)p->table.frame.height, area, ratio);
        const int scale = fl_resize_scale(box.w, box.h, 224, 224, 0);
        for (int w = 0; w < WAYS; w++) {
            const enum way way = (enum way)((w + (int)i + (int)round) % WAYS);
            const int64_t begin = fl_thread_cpu_ns();
            if (!decode(b, way, p, box, scale)) {
                b->refused++;
                fprintf(stderr, "picture %zu, %s: no\n", i, names[way]);
            }
            b->spent[way] += fl_thread_cpu_ns() - begin;
        }
    }
}

/* Entry points of an original; none where libjpeg-turbo would warn of it. Returns their bytes. */
static uint64_t find_entries(struct bench *b, struct picture *p)
{
    struct fl_slice_parts made;
    FlError err;

    if (fl_direct_entries(b->direct, p->original, p->original_len, &made, &err))
        return 0;
    const uint8_t *const blob = memcpy(malloc(made.blob.len), made.blob.data, made.blob.len);
    for (int i = 0; i < FL_ENTRY_STRINGS; i++)
        p->strings[i] = (struct fl_slice_bytes){ memcpy(malloc(made.headers[i].len),
                                                        made.headers[i].data, made.headers[i].len),
                                                 made.headers[i].len };
    return fl_entry_unpack(&p->points, blob, made.blob.len) ? 0 : made.blob.len;
}

static void load(struct bench *b, const char *folder, uint32_t interval)
{
    struct fl_slicer *slicer = fl_slicer_new();
    const struct fl_slice_options opt = { .interval = interval };
    struct dirent **list;
    const int count = scandir(folder, &list, NULL, alphasort);
    uint64_t in = 0, out = 0, blobs = 0, entries = 0, headers[FL_SLICE_HEADERS] = { 0 },
             segments = 0;
    const int64_t begin = fl_now_ns();

    b->pictures = calloc(count > 0 ? (size_t)count : 1, sizeof(*b->pictures));
    for (int i = 0; i < count; i++) {
        struct picture *p = &b->pictures[b->n];
        struct fl_slice_result r;
        struct fl_slice_parts parts;
        char path[4096];
        snprintf(path, sizeof(path), "%s/%s", folder, list[i]->d_name);
        p->original = list[i]->d_name[0] == '.' ? NULL : read_file(path, &p->original_len);
        if (!p->original || fl_slicer_rewrite(slicer, p->original, p->original_len, &opt, &r) ||
            r.status > FL_SLICE_ALREADY || fl_slicer_table(slicer, r.data, r.len, &parts))
            continue;
        p->sliced = memcpy(malloc(r.len), r.data, r.len);
        p->sliced_len = r.len;
        p->table_memory = malloc(parts.blob.len + parts.headers[0].len + parts.headers[1].len);
        uint8_t *m = p->table_memory;
        memcpy(m, parts.blob.data, parts.blob.len);
        fl_slice_table_unpack(&p->table, m, parts.blob.len);
        m += parts.blob.len;
        for (int h = 0; h < FL_SLICE_HEADERS; h++, m += parts.headers[h - 1].len) {
            p->headers[h] = (struct fl_slice_bytes){ m, parts.headers[h].len };
            memcpy(m, parts.headers[h].data, parts.headers[h].len);
            headers[h] += parts.headers[h].len;
        }
        in += p->original_len;
        entries += find_entries(b, p);
        out += r.len;
        blobs += parts.blob.len;
        segments += (uint64_t)p->table.segments * p->table.mcu_rows;
        b->n++;
    }
    const double n = b->n ? (double)b->n : 1;
    printf("%zu pictures, rewritten at %.0f a second\n", b->n,
           n / ((double)(fl_now_ns() - begin) / 1e9));
    printf(
        "bytes: %llu original, %llu sliced: %.4f; %.0f restart segments of %.0f bytes a picture\n",
        (unsigned long long)in, (unsigned long long)out, (double)out / (double)in,
        (double)segments / n, (double)out / (double)segments);
    printf("index: blob %.0f bytes a picture, header strings %.0f + %.0f before deduplication\n",
           (double)blobs / n, (double)headers[0] / n, (double)headers[1] / n);
    printf("entry points of the originals: %.0f bytes a picture, %.4f of their size\n",
           (double)entries / n, (double)entries / (double)in);
    fl_slicer_free(slicer);
}

int main(int argc, char **argv)
{
    struct bench b = { 0 };
    const int rounds = argc > 2 ? atoi(argv[2]) : 3;

    if (argc < 2) {
        fprintf(stderr, "usage: stage_slice FOLDER [ROUNDS] [MCUS-PER-SEGMENT]\n");
        return 2;
    }
    b.rgb = malloc((size_t)128 << 20);
    b.cut = malloc((size_t)64 << 20);
    b.direct = fl_direct_new(0, 0, FL_CPU_BEST);
    load(&b, argv[1], argc > 3 ? (uint32_t)atoi(argv[3]) : 0);
    for (int i = 0; i < rounds; i++)
        round_of(&b, (uint32_t)i);
    printf("fetched for a crop: %.3f of the sliced file\n",
           (double)b.fetched / (double)b.file_bytes);
    for (int w = 0; w < WAYS; w++)
        printf("%-45s %7.0f pictures/s %5.2f\n", names[w],
               (double)b.n * rounds / ((double)b.spent[w] / 1e9),
               (double)b.spent[FULL] / (double)b.spent[w]);
    if (b.refused)
        printf("%llu decodes refused\n", (unsigned long long)b.refused);
    return b.refused != 0;
}
