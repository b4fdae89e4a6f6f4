/* SPDX-License-Identifier: Apache-2.0 */
/* Which part of a sliced JPEG a crop needs, and whether what was read is it. */
#include "jpeg/slice_internal.h"

#include "base/err.h"
#include "base/hash.h"

/* Below three samples in a row libjpeg-turbo turns fancy upsampling off, so a slice must not be narrower
 * unless the picture is. */
static void widen_narrow(const struct fl_slice_table *t, uint32_t scale, uint32_t *first,
                         uint32_t *last)
{
    const uint32_t unit = t->interval * 8 * t->frame.h_max;

    for (int c = 0; c < t->frame.n_components; c++) {
        const struct fl_upsampling u = fl_upsampling_of(&t->frame, c, scale);
        if (!u.fancy || u.h != 2)
            continue;
        for (;;) {
            const uint32_t end =
                (*last + 1) * unit < t->frame.width ? (*last + 1) * unit : t->frame.width;
            const uint64_t samples = (uint64_t)(end - *first * unit) * t->frame.h[c] * u.block;
            if (samples > 2 * 8 * t->frame.h_max || (*first == 0 && *last + 1 == t->segments))
                break;
            if (*first)
                --*first;
            else
                ++*last;
        }
    }
}

/* Bytes and groups of the MCU rows [first_row, last_row]. */
static void find_groups(const struct fl_slice_table *t, uint32_t last_row, struct fl_slice_range *r)
{
    const uint8_t *p = t->groups;
    uint64_t rows, bytes, offset = t->data_offset;
    uint32_t row = 0, i = 0;

    for (;; i++) { // the table was checked: every row is in some group
        p = fl_slice_get_varint(p, t->checksums, &rows);
        p = fl_slice_get_varint(p, t->checksums, &bytes);
        if (r->first_row < row + rows)
            break;
        row += (uint32_t)rows;
        offset += bytes;
    }
    r->first_group = i;
    r->group_row = row;
    r->offset = offset;
    r->length = bytes;
    for (row += (uint32_t)rows; row <= last_row; row += (uint32_t)rows, i++) {
        p = fl_slice_get_varint(p, t->checksums, &rows);
        p = fl_slice_get_varint(p, t->checksums, &bytes);
        r->length += bytes;
    }
    r->n_groups = i - r->first_group + 1;
}

int fl_slice_range(const struct fl_slice_table *t, struct fl_rect box, int scale,
                   struct fl_slice_range *r)
{
    const struct fl_frame *f = &t->frame;
    const uint32_t w = t->interval * 8 * f->h_max, h = 8 * f->v_max; // of a segment's pixels
    struct fl_rect need;
    uint32_t x1, y1, last_row, last_segment;

    if ((scale != 8 && scale != 4 && scale != 2 && scale != 1) || box.x < 0 || box.y < 0 ||
        box.w < 1 || box.h < 1 || (uint64_t)box.x + (uint64_t)box.w > f->width ||
        (uint64_t)box.y + (uint64_t)box.h > f->height)
        return FL_ERR(EINVAL);
    need = fl_upsampling_reach(f, box, (uint32_t)scale);
    r->first_segment = (uint32_t)need.x / w;
    last_segment = (uint32_t)(need.x + need.w - 1) / w;
    r->first_row = (uint32_t)need.y / h;
    last_row = (uint32_t)(need.y + need.h - 1) / h;
    widen_narrow(t, (uint32_t)scale, &r->first_segment, &last_segment);
    r->n_rows = last_row - r->first_row + 1;
    r->n_segments = last_segment - r->first_segment + 1;
    x1 = (last_segment + 1) * w < f->width ? (last_segment + 1) * w : f->width;
    y1 = (last_row + 1) * h < f->height ? (last_row + 1) * h : f->height;
    r->rect.x = (int32_t)(r->first_segment * w);
    r->rect.y = (int32_t)(r->first_row * h);
    r->rect.w = (int32_t)x1 - r->rect.x;
    r->rect.h = (int32_t)y1 - r->rect.y;
    find_groups(t, last_row, r);
    return 0;
}

int fl_slice_check_groups(const struct fl_slice_table *t, const struct fl_slice_range *r,
                          const uint8_t *bytes, FlError *err)
{
    const uint8_t *p = t->groups;
    uint64_t rows, n, offset = 0;

    for (uint32_t i = 0; i < r->first_group + r->n_groups; i++) {
        p = fl_slice_get_varint(p, t->checksums, &rows);
        p = fl_slice_get_varint(p, t->checksums, &n);
        if (i < r->first_group)
            continue;
        if (fl_checksum32(bytes + offset, (size_t)n) != fl_le32(t->checksums + 4 * (size_t)i)) {
            fl_err_set(err, FL_ERR(EBADMSG), FL_STAGE_DECODE,
                       "row group %u of the sliced JPEG (bytes %llu to %llu of the file) does not "
                       "match its checksum",
                       i, (unsigned long long)(r->offset + offset),
                       (unsigned long long)(r->offset + offset + n - 1));
            err->offset = r->offset + offset;
            return err->code;
        }
        offset += n;
    }
    return 0;
}
