/* SPDX-License-Identifier: Apache-2.0 */
#include "jpeg/entry.h"

#include "base/err.h"
#include "base/hash.h"
#include "jpeg/entry_blob.h"
#include "jpeg/slice_internal.h"

static uint32_t le16(const uint8_t *p)
{
    return p[0] | (uint32_t)p[1] << 8;
}

static bool read_frame(struct fl_frame *f, const uint8_t *blob)
{
    f->n_components = blob[9];
    if (f->n_components != 1 && f->n_components != 3)
        return false;
    f->h_max = f->v_max = 1;
    for (int c = 0; c < f->n_components; c++) {
        f->h[c] = blob[16 + c] >> 4;
        f->v[c] = blob[16 + c] & 15;
        if (f->h[c] < 1 || f->h[c] > 4 || f->v[c] < 1 || f->v[c] > 4)
            return false;
        f->h_max = f->h[c] > f->h_max ? f->h[c] : f->h_max;
        f->v_max = f->v[c] > f->v_max ? f->v[c] : f->v_max;
    }
    f->width = le16(blob + 28);
    f->height = le16(blob + 30);
    return f->width && f->height;
}

static bool read_widths(struct fl_entry_table *t, const uint8_t *blob)
{
    t->base_bits = blob[11];
    t->delta_bits = blob[12];
    t->record_bits = t->delta_bits;
    for (int c = 0; c < 3; c++) {
        t->dc_bits[c] = blob[13 + c];
        t->dc_least[c] = (int16_t)le16(blob + 20 + 2 * c);
        if (t->dc_bits[c] > 16)
            return false;
        if (c < t->frame.n_components)
            t->record_bits += t->dc_bits[c];
    }
    return t->base_bits <= 32 && t->delta_bits <= 32;
}

/* Does every MCU row belong to a group? */
static bool groups_cover(const struct fl_entry_table *t)
{
    uint64_t rows = 0;

    for (uint32_t i = 0; i < t->n_groups; i++) {
        const uint32_t n = le16(t->groups + (size_t)FL_ENTRY_GROUP * i);
        if (!n)
            return false;
        rows += n;
    }
    return rows == t->mcu_rows;
}

int fl_entry_unpack(struct fl_entry_table *t, const uint8_t *blob, size_t len)
{
    uint64_t bases, records;

    memset(t, 0, sizeof(*t));
    if (len < FL_ENTRY_FIXED || blob[8] != FL_ENTRY_VERSION || !blob[10] ||
        !read_frame(&t->frame, blob) || !read_widths(t, blob))
        return FL_ERR(EBADMSG);
    for (int i = 0; i < FL_ENTRY_STRINGS; i++)
        t->header_ids[i] = fl_le32(blob + 4 * (size_t)i);
    t->every = blob[10];
    t->interval = le16(blob + 26);
    t->data_offset = fl_le32(blob + 32);
    t->end = fl_le32(blob + 36);
    t->n_groups = fl_le32(blob + 40);
    t->mcus = (t->frame.width + 8u * t->frame.h_max - 1) / (8u * t->frame.h_max);
    t->mcu_rows = (t->frame.height + 8u * t->frame.v_max - 1) / (8u * t->frame.v_max);
    t->points = (t->mcus + t->every - 1) / t->every;
    bases = ((uint64_t)t->mcu_rows * t->base_bits + 7) / 8;
    records = ((uint64_t)t->mcu_rows * t->points * t->record_bits + 7) / 8;
    if (!t->n_groups || t->n_groups > t->mcu_rows ||
        len != FL_ENTRY_FIXED + bases + records + (uint64_t)FL_ENTRY_GROUP * t->n_groups +
                   FL_ENTRY_TAIL)
        return FL_ERR(EBADMSG);
    t->bases = blob + FL_ENTRY_FIXED;
    t->records = t->bases + bases;
    t->groups = t->records + records;
    return groups_cover(t) ? 0 : FL_ERR(EBADMSG);
}

uint32_t fl_entry_row(const struct fl_entry_table *t, uint32_t y)
{
    return y < t->mcu_rows ? fl_entry_bits(t->bases, (uint64_t)y * t->base_bits, t->base_bits)
                           : t->end;
}

struct fl_entry_point fl_entry_at(const struct fl_entry_table *t, uint32_t y, uint32_t i)
{
    uint64_t at = ((uint64_t)y * t->points + i) * t->record_bits;
    struct fl_entry_point p = { 0 };

    if (i >= t->points) {
        p.bit = fl_entry_row(t, y + 1);
        return p;
    }
    p.bit = fl_entry_row(t, y) + fl_entry_bits(t->records, at, t->delta_bits);
    at += t->delta_bits;
    for (int c = 0; c < t->frame.n_components; c++) {
        const uint32_t v = fl_entry_bits(t->records, at, t->dc_bits[c]);
        p.dc[c] = (int16_t)(uint16_t)((uint32_t)t->dc_least[c] + v);
        at += t->dc_bits[c];
    }
    return p;
}

/* The row groups of rows [first_row, last_row]. */
static int find_groups(const struct fl_entry_table *t, uint32_t last_row, struct fl_entry_range *r)
{
    uint32_t row = 0, i = 0;
    uint64_t first, end, unused;

    while (row + le16(t->groups + (size_t)FL_ENTRY_GROUP * i) <= r->first_row)
        row += le16(t->groups + (size_t)FL_ENTRY_GROUP * i++);
    r->first_group = i;
    fl_entry_span(fl_entry_row(t, row), 0, &first, &end);
    while (row <= last_row) // every row is in some group
        row += le16(t->groups + (size_t)FL_ENTRY_GROUP * i++);
    r->n_groups = i - r->first_group;
    fl_entry_span(0, fl_entry_row(t, row), &unused, &end);
    if (first >= end)
        return FL_ERR(EBADMSG);
    r->offset = t->data_offset + first;
    r->length = end - first;
    return 0;
}

int fl_entry_range(const struct fl_entry_table *t, struct fl_rect box, int scale,
                   struct fl_entry_range *r)
{
    const struct fl_frame *f = &t->frame;
    const uint32_t w = 8u * f->h_max * t->every, h = 8u * f->v_max;
    struct fl_rect need;
    uint32_t last_row;

    if ((scale != 8 && scale != 4 && scale != 2 && scale != 1) || box.x < 0 || box.y < 0 ||
        box.w < 1 || box.h < 1 || (uint64_t)box.x + (uint64_t)box.w > f->width ||
        (uint64_t)box.y + (uint64_t)box.h > f->height)
        return FL_ERR(EINVAL);
    need = fl_upsampling_reach(f, box, (uint32_t)scale);
    r->first_row = (uint32_t)need.y / h;
    last_row = (uint32_t)(need.y + need.h - 1) / h;
    r->n_rows = last_row - r->first_row + 1;
    r->first_point = (uint32_t)need.x / w;
    r->n_points = (uint32_t)(need.x + need.w - 1) / w - r->first_point + 1;
    return find_groups(t, last_row, r);
}

static int differs(FlError *err, uint32_t group, uint64_t offset, uint64_t length)
{
    fl_err_set(
        err, FL_ERR(EBADMSG), FL_STAGE_DECODE,
        "row group %u of the JPEG (bytes %llu to %llu of the file) is not what it was when the "
        "dataset was indexed",
        group, (unsigned long long)offset, (unsigned long long)(offset + length - 1));
    err->offset = offset;
    return err->code;
}

int fl_entry_check(const struct fl_entry_table *t, const struct fl_entry_range *r,
                   const uint8_t *bytes, FlError *err)
{
    const uint64_t origin = r->offset - t->data_offset;
    uint32_t row = 0;

    for (uint32_t i = 0; i < r->first_group + r->n_groups; i++) {
        const uint8_t *const g = t->groups + (size_t)FL_ENTRY_GROUP * i;
        const uint32_t next = row + le16(g);
        uint64_t begin, end;
        if (i >= r->first_group) {
            fl_entry_span(fl_entry_row(t, row), fl_entry_row(t, next), &begin, &end);
            if (begin < origin || begin >= end || end - origin > r->length ||
                fl_checksum32(bytes + (begin - origin), (size_t)(end - begin)) != fl_le32(g + 2))
                return differs(err, i, t->data_offset + begin, end > begin ? end - begin : 1);
        }
        row = next;
    }
    return 0;
}
