/* SPDX-License-Identifier: Apache-2.0 */
/* MCU rows from the restart segments of a slice. */
#include "jpeg/direct_internal.h"

#include <string.h>

#include "base/err.h"

#define MAX_HEADER 8192 // of a slice: more than all tables of a baseline file take

static int damaged(const struct fl_direct *d, struct fl_slice_bytes part, FlError *err)
{
    const uint64_t at = d->cursor.offset + (uint64_t)(part.data - d->cursor.bytes);

    fl_err_set(err, FL_ERR(EBADMSG), FL_STAGE_DECODE,
               "a restart segment of MCU row %u of the sliced JPEG (from byte %llu of the file) is "
               "damaged",
               d->row, (unsigned long long)at);
    err->offset = at;
    return err->code;
}

/* A reader at MCU `begin` of a segment whose first one is x; its bytes go to *at, which moves on. */
static bool open_segment(struct fl_direct *d, struct fl_slice_bytes part, uint32_t skip,
                         uint8_t **at, struct fl_bit_reader *b, int dc[4])
{
    size_t used, n = fl_unstuff(part.data, part.len, *at, &used);

    fl_reader_start(b, *at, n, 0);
    *at += n + FL_ENTROPY_PAD;
    fl_skip_mcus(b, &d->mcu, skip, dc);
    return used == part.len;
}

/* The needed part of a restart segment in one MCU row or in two: MCUs x to x + d->interval - 1. */
static bool decode_segments(struct fl_direct *d, uint32_t x, const struct fl_slice_bytes *parts[2],
                            uint32_t rows)
{
    const uint32_t begin = x < d->mx0 ? d->mx0 : x;
    const uint32_t end = x + d->interval < d->mx1 ? x + d->interval : d->mx1;
    uint8_t *at = d->bits + 2 * d->n_segments * sizeof(*d->parts);
    struct fl_bit_reader b[2];
    int dc[2][4] = { { 0 } };
    bool good = true;

    for (uint32_t r = 0; r < rows; r++)
        good = good && open_segment(d, *parts[r], begin - x, &at, &b[r], dc[r]);
    if (!good || !(rows == 2 ? fl_direct_two_rows(d, b, begin, end - begin, dc)
                             : fl_direct_mcus(d, &b[0], begin, end - begin, dc[0])))
        return false;
    // A segment that was read to its end has nothing left but padding.
    for (uint32_t r = 0; r < rows && end == x + d->interval; r++)
        good = good && fl_reader_left(&b[r]) < 8;
    return good;
}

static int slice_rows(struct fl_direct *d, FlError *err)
{
    const uint32_t rows = d->my1 - d->row < 2 ? 1 : 2;

    for (uint32_t i = 0; i < rows * d->n_segments; i++) {
        const int more = fl_slice_next(&d->cursor, err);
        if (more < 0)
            return more;
        if (!more)
            return damaged(d, (struct fl_slice_bytes){ d->cursor.bytes, 0 }, err);
        d->parts[i] = (struct fl_slice_bytes){ d->cursor.segment, d->cursor.length };
    }
    for (uint32_t i = 0; i < d->n_segments; i++) {
        const uint32_t x = (d->first_segment + i) * d->interval;
        const struct fl_slice_bytes *parts[2] = { &d->parts[i], &d->parts[d->n_segments + i] };
        if (x >= d->mx1 || x + d->interval <= d->mx0)
            continue; // libjpeg needs wider slices than this decoder
        if (!decode_segments(d, x, parts, rows))
            return damaged(d, *parts[0], err);
    }
    d->row += rows;
    return 0;
}

int fl_direct_slice(struct fl_direct *d, const struct fl_slice_table *table,
                    const struct fl_slice_range *range,
                    const struct fl_slice_bytes headers[FL_SLICE_HEADERS], const uint8_t *bytes,
                    const struct fl_direct_view *view, FlError *err)
{
    uint8_t header[MAX_HEADER];
    const size_t len = fl_slice_header_bytes(headers);
    struct fl_jpeg_header h;
    int code;

    if (len > sizeof(header))
        return fl_err_set(err, FL_ERR(ENOTSUP), FL_STAGE_DECODE,
                          "JPEG: a header of %zu bytes without metadata", len);
    code = fl_slice_header(table, range, headers, header, err);
    if (!code)
        code = fl_direct_header(d, header, len, &h, err);
    if (code)
        return code;
    // The strings and the table come from different places of the index: they must speak of the same.
    if (d->frame.n_components != table->frame.n_components ||
        memcmp(d->frame.h, table->frame.h, table->frame.n_components) ||
        memcmp(d->frame.v, table->frame.v, table->frame.n_components))
        return fl_err_set(err, FL_ERR(EBADMSG), FL_STAGE_DECODE,
                          "the slice table and the header string of the index differ in sampling");
    d->frame = table->frame;
    code = fl_direct_view(d, view, 2,
                          (size_t)range->length + 2 * FL_ENTROPY_PAD +
                              2 * range->n_segments * sizeof(*d->parts),
                          err);
    if (code)
        return code;
    d->parts = (struct fl_slice_bytes *)(void *)d->bits;
    if (d->my0 < range->first_row || d->my1 > range->first_row + range->n_rows ||
        d->mx0 < range->first_segment * table->interval ||
        d->mx1 > (range->first_segment + range->n_segments) * table->interval)
        return fl_err_set(err, FL_ERR(EINVAL), FL_STAGE_DECODE,
                          "the view does not lie in the range that was read");
    d->source = slice_rows;
    d->interval = table->interval;
    d->first_segment = range->first_segment;
    d->n_segments = range->n_segments;
    d->cursor = fl_slice_start(table, range, bytes);
    for (d->row = range->first_row; d->row < d->my0; d->row++)
        for (uint32_t i = 0; i < d->n_segments; i++)
            if ((code = fl_slice_next(&d->cursor, err)) < 0)
                return code;
    return 0;
}
