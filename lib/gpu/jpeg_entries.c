/* SPDX-License-Identifier: Apache-2.0 */
/* Entry points of a file that is not sliced, as segments for the GPU. */
#include "gpu/jpeg.h"

#include "base/err.h"

/* Do restart markers stand only where points are? A thread cannot pass over one. */
static bool markers_at_points(const struct fl_entry_table *t)
{
    return !t->interval || t->interval % t->mcus == 0 ||
           (t->mcus % t->interval == 0 && t->interval % t->every == 0);
}

/* Segment i of row y, counted from row `first`. */
static struct fl_jpeg_segment segment_of(const struct fl_entry_table *t, uint32_t first, uint32_t y,
                                         uint32_t i)
{
    const struct fl_entry_point from = fl_entry_at(t, y, i), to = fl_entry_at(t, y, i + 1);
    const uint32_t at = i * t->every, n = t->mcus - at < t->every ? t->mcus - at : t->every;
    const uint32_t next = y * t->mcus + at + n;
    const bool marker = t->interval && next % t->interval == 0 && next < t->mcus * t->mcu_rows;
    struct fl_jpeg_segment s = { .offset = from.bit >> 3, .mcus = (uint16_t)n };

    s.mcu = (y - first) * t->mcus + at;
    s.bit = from.bit & 7;
    for (int c = 0; c < 3; c++)
        s.pred[c] = from.dc[c];
    const uint32_t end = marker ? (to.bit >> 3) - 2 : (to.bit + 7) >> 3;
    s.length = end > s.offset ? end - s.offset : 0;
    s.end_bit = marker ? 0 : to.bit & 7 ? to.bit & 7 : 8;
    return s;
}

int64_t fl_gpu_jpeg_entries(const struct fl_entry_table *t, uint32_t first_row, uint32_t n_rows,
                            struct fl_jpeg_segment *out, size_t cap, uint32_t *offset,
                            uint32_t *length, FlError *err)
{
    const uint64_t n = (uint64_t)n_rows * t->points;

    if (!n || first_row > t->mcu_rows || n_rows > t->mcu_rows - first_row || n > cap)
        return fl_err_set(err, FL_ERR(EINVAL), FL_STAGE_DECODE,
                          "GPU JPEG: rows outside the picture, or more points than room");
    if (!markers_at_points(t))
        return fl_err_set(
            err, FL_ERR(ENOTSUP), FL_STAGE_DECODE,
            "the GPU does not decode files whose restart markers stand between points");
    for (uint32_t y = 0; y < n_rows; y++)
        for (uint32_t i = 0; i < t->points; i++)
            out[y * t->points + i] = segment_of(t, first_row, first_row + y, i);
    const struct fl_jpeg_segment *const last = &out[n - 1];
    *offset = out[0].offset;
    if (last->offset < *offset)
        return fl_err_set(err, FL_ERR(EBADMSG), FL_STAGE_DECODE, "entry points out of order");
    *length = last->offset + last->length - *offset;
    for (uint64_t i = 0; i < n; i++)
        out[i].offset -= *offset; // the device checks it against the length
    return (int64_t)n;
}
