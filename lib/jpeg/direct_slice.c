/* SPDX-License-Identifier: Apache-2.0 */
/* MCU rows from the restart segments of a slice. */
#include "jpeg/direct_internal.h"

#include <string.h>

#include "base/err.h"

#define MAX_HEADER 8192 // of a slice: more than all tables of a baseline file take

static int damaged(const struct fl_slice_cursor *c, FlError *err)
{
    const uint64_t at = c->offset + (uint64_t)(c->segment - c->bytes);

    fl_err_set(err, FL_ERR(EBADMSG), FL_STAGE_DECODE,
               "restart segment %u of the sliced JPEG (from byte %llu of the file) is damaged",
               c->index - 1, (unsigned long long)at);
    err->offset = at;
    return err->code;
}

/* The part of one restart segment, MCUs x to x + d->interval - 1, that is needed. */
static bool decode_segment(struct fl_direct *d, uint32_t x)
{
    const uint32_t begin = x < d->mx0 ? d->mx0 : x;
    const uint32_t end = x + d->interval < d->mx1 ? x + d->interval : d->mx1;
    struct fl_bit_reader b;
    int dc[4] = { 0 };
    size_t used, n;

    n = fl_unstuff(d->cursor.segment, d->cursor.length, d->bits, &used);
    if (used != d->cursor.length)
        return false;
    fl_reader_start(&b, d->bits, n, 0);
    fl_skip_mcus(&b, &d->mcu, begin - x, dc);
    if (!fl_direct_mcus(d, &b, begin, end - begin, dc))
        return false;
    // A segment that was read to its end has nothing left but padding.
    return end < x + d->interval || fl_reader_left(&b) < 8;
}

static int slice_row(struct fl_direct *d, FlError *err)
{
    for (uint32_t i = 0; i < d->n_segments; i++) {
        const uint32_t x = (d->first_segment + i) * d->interval;
        const int more = fl_slice_next(&d->cursor, err);
        if (more < 0)
            return more;
        if (x >= d->mx1 || x + d->interval <= d->mx0)
            continue; // libjpeg needs wider slices than this decoder
        if (!more || !decode_segment(d, x))
            return damaged(&d->cursor, err);
    }
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
    code = fl_direct_view(d, view, (size_t)range->length + FL_ENTROPY_PAD, err);
    if (code)
        return code;
    if (d->my0 < range->first_row || d->my1 > range->first_row + range->n_rows ||
        d->mx0 < range->first_segment * table->interval ||
        d->mx1 > (range->first_segment + range->n_segments) * table->interval)
        return fl_err_set(err, FL_ERR(EINVAL), FL_STAGE_DECODE,
                          "the view does not lie in the range that was read");
    d->source = slice_row;
    d->interval = table->interval;
    d->first_segment = range->first_segment;
    d->n_segments = range->n_segments;
    d->cursor = fl_slice_start(table, range, bytes);
    for (d->row = range->first_row; d->row < d->my0; d->row++)
        for (uint32_t i = 0; i < d->n_segments; i++)
            if ((code = fl_slice_next(&d->cursor, err)) <= 0)
                return code ? code : damaged(&d->cursor, err);
    return 0;
}
