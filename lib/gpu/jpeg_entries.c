/* SPDX-License-Identifier: Apache-2.0 */
/* Entry points of a file that is not sliced, as segments for the GPU. */
#include "gpu/jpeg.h"

#include "base/err.h"
#include "jpeg/entry_blob.h"

bool fl_gpu_jpeg_entries_fit(const struct fl_entry_table *t)
{
    return !t->interval || t->interval % t->mcus == 0 ||
           (t->mcus % t->interval == 0 && t->interval % t->every == 0);
}

/* From one point to the next, `mcu` being the first one's MCU in the picture. */
static struct fl_jpeg_segment segment_of(const struct fl_entry_table *t, struct fl_entry_point from,
                                         struct fl_entry_point to, uint32_t mcu, uint32_t n,
                                         uint32_t origin)
{
    const uint32_t next = mcu + n;
    const bool marker = t->interval && next % t->interval == 0 && next < t->mcus * t->mcu_rows;
    struct fl_jpeg_segment s = { .offset = from.bit >> 3, .mcus = (uint16_t)n };

    s.bit = from.bit & 7;
    for (int c = 0; c < 3; c++)
        s.pred[c] = from.dc[c];
    const uint32_t end = marker ? (to.bit >> 3) - 2 : (uint32_t)(((uint64_t)to.bit + 7) >> 3);
    s.length = end > s.offset ? end - s.offset : 0;
    s.end_bit = marker ? 0 : to.bit & 7 ? to.bit & 7 : 8;
    s.offset -= origin; // what wraps is outside the bytes, which the device looks at
    return s;
}

int64_t fl_gpu_jpeg_entries(const struct fl_entry_table *t, const struct fl_entry_range *r,
                            struct fl_jpeg_segment *out, size_t cap,
                            struct fl_gpu_jpeg_picture *picture, FlError *err)
{
    const uint32_t origin = (uint32_t)(r->offset - t->data_offset),
                   column = r->first_point * t->every;
    const uint32_t end = (r->first_point + r->n_points) * t->every;
    const uint32_t mcus = (end < t->mcus ? end : t->mcus) - column;
    const uint64_t n = (uint64_t)r->n_rows * r->n_points;
    struct fl_jpeg_segment *s = out;

    if (n > cap)
        return fl_err_set(err, FL_ERR(E2BIG), FL_STAGE_DECODE,
                          "GPU JPEG: a crop with %llu entry points", (unsigned long long)n);
    if (!fl_gpu_jpeg_entries_fit(t))
        return fl_err_set(
            err, FL_ERR(ENOTSUP), FL_STAGE_DECODE,
            "the GPU does not decode files whose restart markers stand between points");
    for (uint32_t y = 0; y < r->n_rows; y++) {
        struct fl_entry_walk walk = fl_entry_walk(t, r->first_row + y, r->first_point);
        struct fl_entry_point from = fl_entry_step(&walk);
        for (uint32_t i = 0; i < r->n_points; i++, s++) {
            const uint32_t at = i * t->every, k = mcus - at < t->every ? mcus - at : t->every;
            const struct fl_entry_point to = fl_entry_step(&walk);
            *s = segment_of(t, from, to, (r->first_row + y) * t->mcus + column + at, k, origin);
            s->mcu = y * mcus + at;
            from = to;
        }
    }
    picture->entries = out;
    picture->n_entries = (uint32_t)n;
    picture->first_row = r->first_row;
    picture->n_rows = r->n_rows;
    picture->first_mcu = column;
    picture->n_mcus = mcus;
    return (int64_t)n;
}
