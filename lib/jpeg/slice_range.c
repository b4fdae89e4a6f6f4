/* SPDX-License-Identifier: Apache-2.0 */
/* Which part of a sliced JPEG a crop needs, and whether what was read is it. */
#include "jpeg/slice_internal.h"

#include "base/err.h"
#include "base/hash.h"

/* How one component reaches the size of the picture at a DCT scale, as libjpeg-turbo decides it
 * (jpeg_calc_output_dimensions() and jinit_upsampler()). */
struct upsampling {
    uint32_t block; // samples of a block side after the IDCT
    uint32_t h, v;  // factors that are left for the upsampler
    bool fancy;     // the triangle filter: one sample more is needed on every side
};

static struct upsampling upsampling_of(const struct fl_slice_table *t, int c, uint32_t scale)
{
    struct upsampling u = { .block = scale };

    while (u.block < 8 && (t->h_max * scale) % (t->h[c] * u.block * 2) == 0 &&
           (t->v_max * scale) % (t->v[c] * u.block * 2) == 0)
        u.block *= 2;
    u.h = t->h_max * scale / (t->h[c] * u.block);
    u.v = t->v_max * scale / (t->v[c] * u.block);
    u.fancy = scale > 1 && u.h <= 2 && u.v <= 2 && u.h * u.v > 1;
    return u;
}

/* One axis: MCUs [*first, *last] that hold pixels [from, to) with a margin, of `size` pixels in all. */
static void widen(uint32_t from, uint32_t to, uint32_t margin, uint32_t size, uint32_t unit,
                  uint32_t *first, uint32_t *last)
{
    from = from > margin ? from - margin : 0;
    to = size - to > margin ? to + margin : size;
    *first = from / unit;
    *last = (to - 1) / unit;
}

/* Below three samples in a row libjpeg-turbo turns fancy upsampling off, so a slice must not be narrower
 * unless the picture is. */
static void widen_narrow(const struct fl_slice_table *t, uint32_t scale, uint32_t *first,
                         uint32_t *last)
{
    const uint32_t unit = t->interval * 8 * t->h_max;

    for (int c = 0; c < t->n_components; c++) {
        const struct upsampling u = upsampling_of(t, c, scale);
        if (!u.fancy || u.h != 2)
            continue;
        for (;;) {
            const uint32_t end = (*last + 1) * unit < t->width ? (*last + 1) * unit : t->width;
            const uint64_t samples = (uint64_t)(end - *first * unit) * t->h[c] * u.block;
            if (samples > 2 * 8 * t->h_max || (*first == 0 && *last + 1 == t->segments))
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
    const uint32_t step = scale > 0 ? 8 / (uint32_t)scale : 0; // source pixels of a scaled one
    const uint32_t mcu_w = t->interval * 8 * t->h_max, mcu_h = 8 * t->v_max;
    uint32_t margin_x = 0, margin_y = 0, x1, y1, last_row, last_segment;

    if ((scale != 8 && scale != 4 && scale != 2 && scale != 1) || box.x < 0 || box.y < 0 ||
        box.w < 1 || box.h < 1 || (uint64_t)box.x + (uint64_t)box.w > t->width ||
        (uint64_t)box.y + (uint64_t)box.h > t->height)
        return FL_ERR(EINVAL);
    for (int c = 0; c < t->n_components; c++) {
        const struct upsampling u = upsampling_of(t, c, (uint32_t)scale);
        if (u.fancy && u.h == 2 && margin_x < 2 * step)
            margin_x = 2 * step;
        if (u.fancy && u.v == 2 && margin_y < 2 * step)
            margin_y = 2 * step;
    }
    x1 = ((uint32_t)(box.x + box.w) + step - 1) / step * step;
    y1 = ((uint32_t)(box.y + box.h) + step - 1) / step * step;
    widen((uint32_t)box.x / step * step, x1 < t->width ? x1 : t->width, margin_x, t->width, mcu_w,
          &r->first_segment, &last_segment);
    widen((uint32_t)box.y / step * step, y1 < t->height ? y1 : t->height, margin_y, t->height,
          mcu_h, &r->first_row, &last_row);
    widen_narrow(t, (uint32_t)scale, &r->first_segment, &last_segment);
    r->n_rows = last_row - r->first_row + 1;
    r->n_segments = last_segment - r->first_segment + 1;
    x1 = (last_segment + 1) * mcu_w < t->width ? (last_segment + 1) * mcu_w : t->width;
    y1 = (last_row + 1) * mcu_h < t->height ? (last_row + 1) * mcu_h : t->height;
    r->rect.x = (int32_t)(r->first_segment * mcu_w);
    r->rect.y = (int32_t)(r->first_row * mcu_h);
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
