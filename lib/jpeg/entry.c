/* SPDX-License-Identifier: Apache-2.0 */
#include "jpeg/entry.h"

#include <string.h>

#include <feedline/error.h>

#include "jpeg/entry_internal.h"
#include "jpeg/slice_internal.h"

static bool read_frame(struct fl_frame *f, const uint8_t *blob)
{
    f->n_components = blob[1];
    if (f->n_components != 1 && f->n_components != 3)
        return false;
    f->h_max = f->v_max = 1;
    for (int c = 0; c < f->n_components; c++) {
        f->h[c] = blob[4 + c] >> 4;
        f->v[c] = blob[4 + c] & 15;
        if (f->h[c] < 1 || f->h[c] > 4 || f->v[c] < 1 || f->v[c] > 4)
            return false;
        f->h_max = f->h[c] > f->h_max ? f->h[c] : f->h_max;
        f->v_max = f->v[c] > f->v_max ? f->v[c] : f->v_max;
    }
    f->width = fl_le32(blob + 8);
    f->height = fl_le32(blob + 12);
    return f->width && f->height && f->width <= 65535 && f->height <= 65535;
}

int fl_entry_unpack(struct fl_entry_table *t, const uint8_t *blob, size_t len)
{
    uint64_t points;

    memset(t, 0, sizeof(*t));
    if (len < FL_ENTRY_FIXED || blob[0] != FL_ENTRY_VERSION || !blob[2] || blob[3] > 1 ||
        !read_frame(&t->frame, blob))
        return FL_ERR(EBADMSG);
    t->every = blob[2];
    t->wide = blob[3];
    t->interval = fl_le32(blob + 16);
    t->data_offset = fl_le32(blob + 20);
    t->end = fl_le32(blob + 24);
    t->mcus = (t->frame.width + 8u * t->frame.h_max - 1) / (8u * t->frame.h_max);
    t->mcu_rows = (t->frame.height + 8u * t->frame.v_max - 1) / (8u * t->frame.v_max);
    t->points = (t->mcus + t->every - 1) / t->every;
    points = (uint64_t)t->points * t->mcu_rows;
    t->bases = blob + FL_ENTRY_FIXED;
    t->dcs = t->bases + 4 * (size_t)t->mcu_rows;
    t->deltas = t->dcs + 2 * (size_t)points * t->frame.n_components;
    if (t->interval > 65535 || len != FL_ENTRY_FIXED + 4 * (uint64_t)t->mcu_rows +
                                          points * (2u * t->frame.n_components + (t->wide ? 4 : 2)))
        return FL_ERR(EBADMSG);
    return 0;
}

struct fl_entry_point fl_entry_at(const struct fl_entry_table *t, uint32_t y, uint32_t i)
{
    const size_t n = (size_t)y * t->points + i;
    struct fl_entry_point p = { 0 };
    uint16_t delta, dc;

    if (i >= t->points) {
        p.bit = y + 1 < t->mcu_rows ? fl_le32(t->bases + 4 * (size_t)(y + 1)) : t->end;
        return p;
    }
    p.bit = fl_le32(t->bases + 4 * (size_t)y);
    if (t->wide) {
        p.bit += fl_le32(t->deltas + 4 * n);
    } else {
        memcpy(&delta, t->deltas + 2 * n, 2);
        p.bit += delta;
    }
    for (int c = 0; c < t->frame.n_components; c++) {
        memcpy(&dc, t->dcs + 2 * (n * t->frame.n_components + (size_t)c), 2);
        p.dc[c] = (int16_t)dc;
    }
    return p;
}
