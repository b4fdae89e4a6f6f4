/* SPDX-License-Identifier: Apache-2.0 */
/* Entry points that lie, over any JPEG: the points are made where the file has them, then bits of points and of
 * bytes are turned as the first bytes of the input say, and the crop is decoded by the CPU and by what the GPU's
 * threads do. Good points over good bytes must give a picture. */
#include <stdlib.h>
#include <string.h>

#include "jpeg/direct.h"
#include "kernels/resize.h"
#include "unit/gpu_jpeg_host.h"

enum { SIDE = 24, HEAD = 16 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void turn(uint8_t *bytes, size_t from, size_t n, const uint8_t *choice, unsigned times)
{
    for (unsigned i = 0; i < times && n > from; i++) {
        const size_t at = ((size_t)choice[2 * i] << 8 | choice[2 * i + 1]) * 31u;
        bytes[from + at % (n - from)] ^= (uint8_t)(1u << (choice[2 * i + 1] & 7));
    }
}

static int decode(struct fl_direct *d, const struct fl_entry_table *t,
                  const struct fl_entry_range *r, const struct fl_slice_parts *parts,
                  const uint8_t *bytes, const struct fl_direct_view *v)
{
    FlError err;
    int code = fl_direct_points(d, t, r, parts->headers, bytes, v, &err);
    uint8_t *row = code ? NULL : malloc((size_t)fl_direct_width(d) * (size_t)v->channels);

    for (int y = 0; !code && y < fl_direct_height(d); y++)
        code = fl_direct_row(d, row, &err);
    free(row);
    return code;
}

static void on_gpu(const struct fl_entry_table *t, const struct fl_entry_range *r,
                   const struct fl_slice_parts *parts, const uint8_t *bytes, struct fl_rect box)
{
    static struct fl_jpeg_segment some[4096];
    static uint8_t out[SIDE * SIDE * 3];
    const struct fl_gpu_jpeg_room room = fl_gpu_jpeg_room_for(2, 1 << 18, 1 << 20, SIDE, SIDE);
    struct fl_jpeg_plan *plan = host_plan(room, SIDE, SIDE, false);
    struct fl_gpu_jpeg_header h = { 0 };
    struct fl_gpu_jpeg_picture in = {
        .header = &h,
        .bytes = bytes,
        .length = (uint32_t)r->length,
        .crop = { box, SIDE, SIDE, { 0, 0, SIDE, SIDE }, false },
        .exact = true,
    };
    FlError err;

    for (int i = 0; i < FL_ENTRY_STRINGS; i++)
        if (fl_gpu_jpeg_header_add(&h, parts->headers[i].data, parts->headers[i].len, &err))
            goto out;
    if (!fl_gpu_jpeg_header_finish(&h, t->frame.width, t->frame.height, t->interval, &err) &&
        fl_gpu_jpeg_takes(&h, 3) &&
        fl_gpu_jpeg_entries(t, r, some, sizeof(some) / sizeof(some[0]), &in, &err) > 0 &&
        fl_jpeg_plan_add(plan, &in, &err) == 0)
        (void)host_decode(plan, 0, out);
out:
    host_plan_free(plan);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct fl_direct *makes, *decodes;
    struct fl_slice_parts parts;
    struct fl_entry_table t;
    struct fl_entry_range r;
    struct fl_jpeg_header h;
    FlError err;

    if (!makes && (!(makes = fl_direct_new(0, 1 << 26, FL_CPU_BEST)) ||
                   !(decodes = fl_direct_new(0, 1 << 26, FL_CPU_BEST))))
        abort();
    if (size < HEAD || fl_jpeg_parse(data + HEAD, size - HEAD, &h, &err) ||
        (uint64_t)h.width * h.height > 1 << 18 ||
        fl_direct_entries(makes, data + HEAD, size - HEAD, &parts, &err))
        return 0;
    const unsigned lies = data[0] % 5, damage = data[1] % 3;
    uint8_t *blob = malloc(parts.blob.len);
    memcpy(blob, parts.blob.data, parts.blob.len);
    turn(blob, 8, parts.blob.len, data + 2, lies);
    struct fl_direct_view v = { .scale = 8 >> (data[12] & 3), .channels = data[12] & 4 ? 1 : 3 };
    v.box.x = data[13] * (int)h.width / 256;
    v.box.y = data[14] * (int)h.height / 256;
    v.box.w = 1 + data[15] * ((int)h.width - v.box.x - 1) / 255;
    v.box.h = 1 + data[11] * ((int)h.height - v.box.y - 1) / 255;
    if (!fl_entry_unpack(&t, blob, parts.blob.len) && !fl_entry_range(&t, v.box, v.scale, &r) &&
        r.offset <= size - HEAD && r.length <= size - HEAD - r.offset) {
        uint8_t *bytes = malloc((size_t)r.length); // to the byte
        memcpy(bytes, data + HEAD + r.offset, (size_t)r.length);
        turn(bytes, 0, (size_t)r.length, data + 5, damage);
        const int code = decode(decodes, &t, &r, &parts, bytes, &v);
        if (!lies && !damage && (code || fl_entry_check(&t, &r, bytes, &err)))
            abort();
        if (v.scale == 8)
            on_gpu(&t, &r, &parts, bytes, v.box);
        free(bytes);
    }
    free(blob);
    return 0;
}
