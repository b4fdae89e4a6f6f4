/* SPDX-License-Identifier: Apache-2.0 */
/* MCU rows of an unmodified baseline file from its entry points. */
#include "jpeg/direct_internal.h"

#include <string.h>

#include "base/err.h"

#define MAX_HEADER 8192 // from its strings: more than all tables of a baseline file take

static int damaged(const struct fl_direct *d, FlError *err)
{
    fl_err_set(
        err, FL_ERR(EBADMSG), FL_STAGE_DECODE,
        "MCU row %u of the JPEG (row groups from byte %llu of the file) is damaged, or its entry "
        "points in the index are",
        d->row, (unsigned long long)d->range->offset);
    err->offset = d->range->offset;
    return err->code;
}

/* What of the range lies between the points around the needed MCUs of row y. False: not in the range. */
static bool find_bytes(const struct fl_direct *d, uint32_t y, struct fl_entry_point *from,
                       struct fl_slice_bytes *bytes)
{
    const struct fl_entry_table *t = d->entries;
    const struct fl_entry_range *r = d->range;
    const uint64_t origin = r->offset - t->data_offset;
    const struct fl_entry_point to = fl_entry_at(t, y, r->first_point + r->n_points);

    *from = fl_entry_at(t, y, r->first_point);
    const uint64_t begin = from->bit >> 3, end = ((uint64_t)to.bit >> 3) + 2; // it may be stuffed
    if (begin < origin || begin >= end || end - origin > r->length)
        return false;
    *bytes = (struct fl_slice_bytes){ d->range_bytes + (begin - origin), (size_t)(end - begin) };
    return true;
}

/* A reader before the first needed MCU of row y; its bytes go to *at, which moves on. */
static bool open_row(struct fl_direct *d, uint32_t y, uint8_t **at, struct fl_bit_reader *b,
                     int dc[4])
{
    struct fl_entry_point from;
    struct fl_slice_bytes bytes;
    size_t n, used;

    if (!find_bytes(d, y, &from, &bytes))
        return false;
    n = fl_unstuff(bytes.data, bytes.len, *at, &used);
    fl_reader_start(b, *at, n, from.bit & 7);
    *at += n + FL_ENTROPY_PAD;
    for (int c = 0; c < 3; c++)
        dc[c] = from.dc[c];
    fl_skip_mcus(b, &d->mcu, d->mx0 - d->range->first_point * d->entries->every, dc);
    return true;
}

/* Restart markers, if there are any, stand between MCU rows: two rows at once. */
static int point_rows(struct fl_direct *d, FlError *err)
{
    const uint32_t rows = d->my1 - d->row < 2 ? 1 : 2, n = d->mx1 - d->mx0;
    uint8_t *at = d->bits;
    struct fl_bit_reader b[2];
    int dc[2][4] = { { 0 } };

    for (uint32_t i = 0; i < rows; i++)
        if (!open_row(d, d->row + i, &at, &b[i], dc[i]))
            return damaged(d, err);
    if (!(rows == 2 ? fl_direct_two_rows(d, b, d->mx0, n, dc)
                    : fl_direct_mcus(d, &b[0], d->mx0, n, dc[0])))
        return damaged(d, err);
    d->row += rows;
    return 0;
}

/* Restart markers anywhere: one row, as in a file. */
static int marked_row(struct fl_direct *d, FlError *err)
{
    struct fl_file_source *s = &d->file;
    const uint64_t first = (uint64_t)d->row * s->mcus_per_row;
    struct fl_entry_point from;
    struct fl_slice_bytes bytes;

    if (!find_bytes(d, d->row, &from, &bytes))
        return damaged(d, err);
    s->scan = bytes.data;
    s->end = bytes.data + bytes.len;
    s->at = first + (uint64_t)d->range->first_point * d->entries->every;
    fl_file_bits(d, from.bit & 7);
    for (int c = 0; c < 3; c++)
        s->dc[c] = from.dc[c];
    if (!fl_file_advance(d, first + d->mx0, false) || !fl_file_advance(d, first + d->mx1, true))
        return damaged(d, err);
    d->row++;
    return 0;
}

static bool same_frame(const struct fl_frame *a, const struct fl_frame *b)
{
    return a->width == b->width && a->height == b->height && a->n_components == b->n_components &&
           !memcmp(a->h, b->h, a->n_components) && !memcmp(a->v, b->v, a->n_components);
}

/* Does the range, whoever made it, hold what the view needs? */
static bool covers(const struct fl_direct *d, const struct fl_entry_table *t,
                   const struct fl_entry_range *r)
{
    const uint64_t last = (uint64_t)r->first_point + r->n_points;

    return d->my0 >= r->first_row && d->my1 <= (uint64_t)r->first_row + r->n_rows &&
           d->my1 <= t->mcu_rows && last <= t->points &&
           d->mx0 >= (uint64_t)r->first_point * t->every && d->mx1 <= last * t->every &&
           r->offset >= t->data_offset;
}

int fl_direct_points(struct fl_direct *d, const struct fl_entry_table *table,
                     const struct fl_entry_range *range,
                     const struct fl_slice_bytes headers[FL_ENTRY_STRINGS], const uint8_t *bytes,
                     const struct fl_direct_view *view, FlError *err)
{
    const struct fl_frame *f = &table->frame;
    const bool inside = table->interval && table->interval % table->mcus != 0;
    const size_t len = fl_slice_header_bytes(headers);
    uint8_t header[MAX_HEADER];
    struct fl_jpeg_header h;
    int code;

    if (len > sizeof(header))
        return fl_err_set(err, FL_ERR(ENOTSUP), FL_STAGE_DECODE,
                          "JPEG: a header of %zu bytes without metadata", len);
    code =
        fl_slice_join(headers, f->n_components, f->width, f->height, table->interval, header, err);
    if (!code)
        code = fl_direct_header(d, header, len, &h, err);
    if (code)
        return code;
    // The strings and the points come from different places of the index: they must speak of the same.
    if (!same_frame(f, &d->frame))
        return fl_err_set(err, FL_ERR(EBADMSG), FL_STAGE_DECODE,
                          "the entry points and the header string of the index differ in sampling");
    code =
        fl_direct_view(d, view, inside ? 1 : 2, 2 * ((size_t)range->length + FL_ENTROPY_PAD), err);
    if (code)
        return code;
    if (!covers(d, table, range))
        return fl_err_set(err, FL_ERR(EINVAL), FL_STAGE_DECODE,
                          "the view does not lie in the range that was read");
    d->entries = table;
    d->range = range;
    d->range_bytes = bytes;
    d->file = (struct fl_file_source){ .interval = table->interval, .mcus_per_row = table->mcus };
    d->source = inside ? marked_row : point_rows;
    return 0;
}
