/* SPDX-License-Identifier: Apache-2.0 */
/* MCU rows from a whole baseline file, from its beginning or from entry points; and making those. */
#include "jpeg/direct_internal.h"

#include <string.h>

#include "base/err.h"
#include "jpeg/entry_internal.h"

static int damaged(const struct fl_direct *d, FlError *err)
{
    const struct fl_file_source *s = &d->file;

    fl_err_set(err, FL_ERR(EBADMSG), FL_STAGE_DECODE,
               "JPEG: the scan is damaged or cut in MCU row %u", d->row);
    err->offset = s->scan_offset;
    return err->code;
}

/* Bits from `bit` of s->scan on, up to the next marker. */
static void open_bits(struct fl_direct *d, unsigned bit)
{
    struct fl_file_source *s = &d->file;
    size_t used, n = fl_unstuff(s->scan, (size_t)(s->end - s->scan), d->bits, &used);

    s->segment = s->scan;
    s->scan += used;
    fl_reader_start(&s->bits, d->bits, n, bit);
    s->open = true;
}

/* Begin the restart segment (or the only one) at s->scan. False: the file ends, or the marker between
 * is missing or the wrong one. */
static bool open_segment(struct fl_direct *d)
{
    struct fl_file_source *s = &d->file;
    const uint32_t index = s->interval ? (uint32_t)(s->at / s->interval) : 0;

    if (s->at) {
        while (s->end - s->scan >= 2 && s->scan[0] == 0xFF && s->scan[1] == 0xFF)
            s->scan++; // fill bytes
        if (s->end - s->scan < 2 || s->scan[0] != 0xFF ||
            s->scan[1] != FL_M_RST0 + ((index - 1) & 7))
            return false;
        s->scan += 2;
    }
    open_bits(d, 0);
    memset(s->dc, 0, sizeof(s->dc));
    return true;
}

/* Go over MCUs until `to`, storing those of them that are needed if `store`. */
static bool advance(struct fl_direct *d, uint64_t to, bool store)
{
    struct fl_file_source *s = &d->file;

    while (s->at < to) {
        const uint64_t border = s->interval ? (s->at / s->interval + 1) * s->interval : UINT64_MAX;
        const uint32_t n = (uint32_t)((border < to ? border : to) - s->at);
        if (!s->open && !open_segment(d))
            return false;
        if (store) {
            if (!fl_direct_mcus(d, &s->bits, (uint32_t)(s->at % s->mcus_per_row), n, s->dc))
                return false;
        } else {
            fl_skip_mcus(&s->bits, &d->mcu, n, s->dc);
            if (s->bits.failed || fl_reader_overrun(&s->bits))
                return false;
        }
        s->at += n;
        if (s->at == border) {
            if (fl_reader_left(&s->bits) >= 8)
                return false; // libjpeg warns of such bytes
            s->open = false;
        }
    }
    return true;
}

/* Go on at the last entry point before the row's first needed MCU. */
static bool enter(struct fl_direct *d)
{
    struct fl_file_source *s = &d->file;
    const struct fl_entry_table *t = &s->entries;
    const uint32_t first = d->mx0 / t->every, last = (d->mx1 + t->every - 1) / t->every;
    const struct fl_entry_point from = fl_entry_at(t, d->row, first);
    const struct fl_entry_point to = fl_entry_at(t, d->row, last);
    const uint64_t begin = from.bit >> 3;
    const uint64_t end = ((uint64_t)to.bit >> 3) + 2; // its byte may be stuffed
    const uint64_t bytes = (uint64_t)(s->data_end - s->data);

    if (begin >= end || begin >= bytes)
        return false;
    s->scan = s->data + begin;
    s->end = s->data + (end < bytes ? end : bytes);
    s->at = (uint64_t)d->row * s->mcus_per_row + first * t->every;
    open_bits(d, from.bit & 7);
    for (int c = 0; c < 3; c++)
        s->dc[c] = from.dc[c];
    return true;
}

static int file_row(struct fl_direct *d, FlError *err)
{
    const uint64_t first = (uint64_t)d->row * d->file.mcus_per_row;

    if (d->file.entries.points && !enter(d))
        return damaged(d, err);
    if (!advance(d, first + d->mx0, false) || !advance(d, first + d->mx1, true))
        return damaged(d, err);
    d->row++;
    return 0;
}

static void open_file(struct fl_direct *d, const uint8_t *jpeg, size_t len,
                      const struct fl_jpeg_header *h)
{
    d->file = (struct fl_file_source){
        .scan = jpeg + h->scan_offset,
        .end = jpeg + len,
        .data = jpeg + h->scan_offset,
        .data_end = jpeg + len,
        .scan_offset = h->scan_offset,
        .interval = h->restart,
        .mcus_per_row = (d->frame.width + 8u * d->frame.h_max - 1) / (8u * d->frame.h_max),
    };
    d->source = file_row;
}

int fl_direct_file(struct fl_direct *d, const uint8_t *jpeg, size_t len,
                   struct fl_slice_bytes entries, const struct fl_direct_view *view, FlError *err)
{
    struct fl_jpeg_header h;
    int code = fl_direct_header(d, jpeg, len, &h, err);

    if (code)
        return code;
    code = fl_direct_view(d, view, 1, len - h.scan_offset + FL_ENTROPY_PAD, err);
    if (code)
        return code;
    open_file(d, jpeg, len, &h);
    if (!entries.len)
        return 0;
    struct fl_entry_table *t = &d->file.entries;
    if (fl_entry_unpack(t, entries.data, entries.len) || t->frame.width != d->frame.width ||
        t->frame.height != d->frame.height || t->frame.n_components != d->frame.n_components ||
        memcmp(t->frame.h, d->frame.h, d->frame.n_components) ||
        memcmp(t->frame.v, d->frame.v, d->frame.n_components) || t->data_offset != h.scan_offset ||
        t->interval != h.restart)
        return fl_err_set(err, FL_ERR(EBADMSG), FL_STAGE_DECODE,
                          "JPEG: the entry points of the index are not those of this file");
    return 0;
}

/* ---- making entry points -------------------------------------------------------------------------- */

/* Counts the stuffed zeros before the reader's place, going forward only. */
struct place {
    const uint8_t *segment; // stuffed bytes to which the count belongs
    const uint8_t *counted; // unstuffed bytes that have been looked at
    uint32_t zeros;
};

/* Bit of the file at which the next MCU's bits begin. */
static uint64_t place_of(struct fl_direct *d, struct place *p)
{
    struct fl_file_source *s = &d->file;
    const uint64_t bit = (uint64_t)(s->bits.p - d->bits) * 8 - s->bits.n;
    const uint8_t *const at = d->bits + (bit >> 3);

    if (p->segment != s->segment)
        *p = (struct place){ .segment = s->segment, .counted = d->bits };
    // NOLINTNEXTLINE(clang-analyzer-core.NonNullParamChecker): the bits are there before the first MCU is
    while ((p->counted = memchr(p->counted, 0xFF, (size_t)(at - p->counted)))) {
        p->zeros++;
        p->counted++;
    }
    p->counted = at;
    return ((uint64_t)(s->segment - s->data) + p->zeros) * 8 + bit;
}

/* Writes rows of points: bases, predictors, and 32-bit deltas. False: damaged. */
static bool note_points(struct fl_direct *d, const struct fl_entry_table *t, uint8_t *blob,
                        uint32_t *widest)
{
    struct fl_file_source *s = &d->file;
    const size_t n_dc = t->frame.n_components;
    struct place place = { 0 };

    for (d->row = 0; d->row < t->mcu_rows; d->row++) {
        uint32_t base = 0;
        for (uint32_t i = 0; i < t->points; i++) {
            const size_t n = (size_t)d->row * t->points + i;
            uint32_t bit;
            if (!advance(d, (uint64_t)d->row * t->mcus + i * t->every, false) ||
                (!s->open && !open_segment(d)))
                return false;
            bit = (uint32_t)place_of(d, &place);
            if (i == 0)
                fl_put_le32(blob + (t->bases - blob) + 4 * (size_t)d->row, base = bit);
            *widest = bit - base > *widest ? bit - base : *widest;
            fl_put_le32(blob + (t->deltas - blob) + 4 * n, bit - base);
            for (size_t c = 0; c < n_dc; c++) {
                const int16_t dc = (int16_t)s->dc[c];
                if (dc != s->dc[c])
                    return false;
                memcpy(blob + (t->dcs - blob) + 2 * (n * n_dc + c), &dc, 2);
            }
        }
    }
    if (!advance(d, (uint64_t)t->mcu_rows * t->mcus, false) || fl_reader_left(&s->bits) >= 8)
        return false;
    fl_put_le32(blob + 24, (uint32_t)place_of(d, &place));
    return s->end - s->scan >= 2 && s->scan[0] == 0xFF && s->scan[1] == FL_M_EOI;
}

static void put_fixed(const struct fl_direct *d, uint32_t data_offset, uint8_t *blob)
{
    const struct fl_frame *f = &d->frame;

    memset(blob, 0, FL_ENTRY_FIXED);
    blob[0] = FL_ENTRY_VERSION;
    blob[1] = f->n_components;
    blob[2] = FL_ENTRY_EVERY;
    blob[3] = 1; // wide, until the deltas are known
    for (int c = 0; c < f->n_components; c++)
        blob[4 + c] = (uint8_t)(f->h[c] << 4 | f->v[c]);
    fl_put_le32(blob + 8, f->width);
    fl_put_le32(blob + 12, f->height);
    fl_put_le32(blob + 16, d->file.interval);
    fl_put_le32(blob + 20, data_offset);
}

int fl_direct_entries(struct fl_direct *d, const uint8_t *jpeg, size_t len,
                      struct fl_slice_bytes *blob, FlError *err)
{
    struct fl_jpeg_header h;
    struct fl_entry_table t;
    uint32_t widest = 0;
    size_t n, size;
    int code = fl_direct_header(d, jpeg, len, &h, err);

    if (code)
        return code;
    if (len >= (size_t)1 << 29)
        return fl_err_set(err, FL_ERR(E2BIG), FL_STAGE_DECODE,
                          "JPEG: entry points reach 512 MiB, the file has %zu bytes", len);
    open_file(d, jpeg, len, &h);
    n = (size_t)((d->file.mcus_per_row + FL_ENTRY_EVERY - 1) / FL_ENTRY_EVERY);
    n *= (d->frame.height + 8u * d->frame.v_max - 1) / (8u * d->frame.v_max);
    size = FL_ENTRY_FIXED + 4 * (size_t)((d->frame.height + 7) / 8) +
           n * (2u * d->frame.n_components + 4u);
    if (fl_slice_memory_reserve(&d->memory, size + len + FL_ENTROPY_PAD))
        return fl_err_set(err, FL_ERR(ENOMEM), FL_STAGE_DECODE, "no memory for entry points");
    uint8_t *const out = d->memory.data;
    d->bits = out + size;
    put_fixed(d, (uint32_t)h.scan_offset, out);
    size = FL_ENTRY_FIXED + n * (2u * d->frame.n_components + 4u) +
           4 * (size_t)((d->frame.height + 8u * d->frame.v_max - 1) / (8u * d->frame.v_max));
    if (fl_entry_unpack(&t, out, size) || !note_points(d, &t, out, &widest))
        return damaged(d, err);
    if (widest <= UINT16_MAX) {
        uint8_t *const deltas = out + (t.deltas - out);
        for (size_t i = 0; i < n; i++) // in place: the shorter ones never overtake
            memmove(deltas + 2 * i, deltas + 4 * i, 2);
        out[3] = 0;
        size -= 2 * n;
    }
    *blob = (struct fl_slice_bytes){ out, size };
    return 0;
}
