/* SPDX-License-Identifier: Apache-2.0 */
/* Making the entry points of a baseline file: one pass over its scan. */
#include "jpeg/direct_internal.h"

#include <string.h>

#include "base/err.h"
#include "base/hash.h"
#include "jpeg/entry_blob.h"

/* What the pass found, before it is packed. */
struct notes {
    uint32_t mcus, mcu_rows, every, points;
    uint32_t *bases;  // mcu_rows
    uint32_t *deltas; // points of each row
    int16_t *dcs;     // points of each row, components of each
    uint32_t end;
};

static int damaged(const struct fl_direct *d, FlError *err)
{
    fl_err_set(err, FL_ERR(EBADMSG), FL_STAGE_DECODE,
               "JPEG: the scan is damaged or cut in MCU row %u", d->row);
    err->offset = d->file.scan_offset;
    return err->code;
}

/* MCUs between two points, so that the points of a row are alike: about FL_ENTRY_PIXELS wide. Where
 * restart markers stand inside of rows at the same places in each, points stand at them all, if that
 * does not make too many: a GPU thread cannot pass over a marker. */
static uint32_t spacing(uint32_t mcus, uint32_t mcu_width, uint32_t interval)
{
    const uint32_t want = FL_ENTRY_PIXELS > mcu_width ? FL_ENTRY_PIXELS / mcu_width : 1;
    const uint32_t points = mcus > want + want / 2 ? (mcus + want / 2) / want : 1;
    const uint32_t every = (mcus + points - 1) / points;

    if (interval && interval < mcus && mcus % interval == 0)
        for (uint32_t n = every + every / 2; n >= (want + 1) / 2; n--)
            if (interval % n == 0)
                return n;
    return every ? every : 1; // a row has one MCU at least
}

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

/* Go over the scan and note the points. False: damaged. */
static bool note_points(struct fl_direct *d, struct notes *n)
{
    struct fl_file_source *s = &d->file;
    const unsigned n_dc = d->frame.n_components;
    struct place place = { 0 };
    int16_t *dc = n->dcs;

    for (d->row = 0; d->row < n->mcu_rows; d->row++)
        for (uint32_t i = 0; i < n->points; i++) {
            if (!fl_file_advance(d, (uint64_t)d->row * n->mcus + i * n->every, false) ||
                (!s->open && !fl_file_open(d)))
                return false;
            const uint32_t bit = (uint32_t)place_of(d, &place);
            if (i == 0)
                n->bases[d->row] = bit;
            n->deltas[(size_t)d->row * n->points + i] = bit - n->bases[d->row];
            for (unsigned c = 0; c < n_dc; c++, dc++) {
                *dc = (int16_t)s->dc[c];
                if (*dc != s->dc[c])
                    return false;
            }
        }
    if (!fl_file_advance(d, (uint64_t)n->mcu_rows * n->mcus, false) ||
        fl_reader_left(&s->bits) >= 8)
        return false;
    n->end = (uint32_t)place_of(d, &place);
    return s->end - s->scan >= 2 && s->scan[0] == 0xFF && s->scan[1] == FL_M_EOI;
}

/* ---- packing -------------------------------------------------------------------------------------- */

static uint32_t bits_for(uint32_t most)
{
    return most ? 32 - (uint32_t)__builtin_clz(most) : 0;
}

/* Everything before the packed arrays. */
static void put_fixed(const struct fl_direct *d, const struct notes *n, struct fl_entry_table *t,
                      uint8_t *blob)
{
    const struct fl_frame *f = &d->frame;
    const size_t all = (size_t)n->mcu_rows * n->points;
    uint32_t most = 0;

    memset(blob, 0, FL_ENTRY_FIXED);
    for (size_t i = 0; i < all; i++)
        most = n->deltas[i] > most ? n->deltas[i] : most;
    t->base_bits = bits_for(n->bases[n->mcu_rows - 1]);
    t->delta_bits = t->record_bits = bits_for(most);
    for (unsigned c = 0; c < f->n_components; c++) {
        int least = INT16_MAX, largest = INT16_MIN;
        for (size_t i = c; i < all * f->n_components; i += f->n_components) {
            least = n->dcs[i] < least ? n->dcs[i] : least;
            largest = n->dcs[i] > largest ? n->dcs[i] : largest;
        }
        t->dc_least[c] = least;
        t->dc_bits[c] = bits_for((uint32_t)(largest - least));
        t->record_bits += t->dc_bits[c];
        blob[13 + c] = (uint8_t)t->dc_bits[c];
        blob[16 + c] = (uint8_t)(f->h[c] << 4 | f->v[c]);
        blob[20 + 2 * c] = (uint8_t)least;
        blob[21 + 2 * c] = (uint8_t)((unsigned)least >> 8);
    }
    blob[8] = FL_ENTRY_VERSION;
    blob[9] = f->n_components;
    blob[10] = (uint8_t)n->every;
    blob[11] = (uint8_t)t->base_bits;
    blob[12] = (uint8_t)t->delta_bits;
    const uint32_t shorts[3] = { d->file.interval, f->width, f->height };
    for (int i = 0; i < 3; i++) {
        blob[26 + 2 * i] = (uint8_t)shorts[i];
        blob[27 + 2 * i] = (uint8_t)(shorts[i] >> 8);
    }
    fl_put_le32(blob + 32, (uint32_t)d->file.scan_offset);
    fl_put_le32(blob + 36, n->end);
}

/* Bases, then points. Returns their end. */
static uint8_t *put_points(const struct notes *n, const struct fl_entry_table *t, unsigned n_dc,
                           uint8_t *out)
{
    const size_t all = (size_t)n->mcu_rows * n->points;
    const size_t bases = ((size_t)n->mcu_rows * t->base_bits + 7) / 8;
    const size_t records = (all * t->record_bits + 7) / 8;
    uint64_t at = 0;

    memset(out, 0, bases + records + 8);
    for (uint32_t y = 0; y < n->mcu_rows; y++)
        fl_entry_put_bits(out, (uint64_t)y * t->base_bits, n->bases[y]);
    out += bases;
    for (size_t i = 0; i < all; i++) {
        fl_entry_put_bits(out, at, n->deltas[i]);
        at += t->delta_bits;
        for (unsigned c = 0; c < n_dc; c++) {
            fl_entry_put_bits(out, at, (uint32_t)(n->dcs[i * n_dc + c] - t->dc_least[c]));
            at += t->dc_bits[c];
        }
    }
    return out + records;
}

/* The row groups with their checksums. Returns the blob's end. */
static uint8_t *put_groups(const struct fl_direct *d, const struct notes *n, uint8_t *blob,
                           uint8_t *out)
{
    uint32_t first = 0, groups = 0;
    uint64_t begin, end;

    for (uint32_t y = 1; y <= n->mcu_rows; y++) {
        const uint32_t bit = y < n->mcu_rows ? n->bases[y] : n->end;
        fl_entry_span(n->bases[first], bit, &begin, &end);
        if (end - begin < FL_ENTRY_GROUP_BYTES && y < n->mcu_rows)
            continue;
        out[0] = (uint8_t)(y - first);
        out[1] = (uint8_t)((y - first) >> 8);
        fl_put_le32(out + 2, fl_checksum32(d->file.data + begin, (size_t)(end - begin)));
        out += FL_ENTRY_GROUP;
        groups++;
        first = y;
    }
    fl_put_le32(blob + 40, groups);
    memset(out, 0, FL_ENTRY_TAIL);
    return out + FL_ENTRY_TAIL;
}

/* ---- the whole ------------------------------------------------------------------------------------ */

/* Where the parts of the decoder's memory lie: notes, strings, blob, bits. */
static int carve(struct fl_direct *d, const struct fl_jpeg_header *h, size_t len, struct notes *n,
                 uint8_t **strings, uint8_t **blob)
{
    const size_t all = (size_t)n->mcu_rows * n->points, n_dc = d->frame.n_components;
    const size_t notes = 4 * (size_t)n->mcu_rows + all * (4 + 2 * n_dc);
    const size_t most =
        FL_ENTRY_FIXED + 16 + (size_t)n->mcu_rows * (4 + FL_ENTRY_GROUP) + all * (4 + 2 * n_dc);

    if (fl_slice_memory_reserve(&d->memory,
                                notes + h->scan_offset + 64 + most + len + FL_ENTROPY_PAD))
        return FL_ERR(ENOMEM);
    n->bases = (uint32_t *)(void *)d->memory.data;
    n->deltas = n->bases + n->mcu_rows;
    n->dcs = (int16_t *)(void *)(n->deltas + all);
    *strings = d->memory.data + notes;
    *blob = *strings + h->scan_offset + 64;
    d->bits = *blob + most;
    return 0;
}

int fl_direct_entries(struct fl_direct *d, const uint8_t *jpeg, size_t len,
                      struct fl_slice_parts *parts, FlError *err)
{
    struct fl_jpeg_header h;
    struct fl_entry_table t = { 0 };
    struct notes n = { 0 };
    uint8_t *strings, *blob, *end;
    int code = fl_direct_header(d, jpeg, len, &h, err);

    if (code)
        return code;
    if (len >= (size_t)1 << 29)
        return fl_err_set(err, FL_ERR(E2BIG), FL_STAGE_DECODE,
                          "JPEG: entry points reach 512 MiB, the file has %zu bytes", len);
    fl_file_start(d, jpeg, len, &h);
    n.mcus = d->file.mcus_per_row;
    n.mcu_rows = (h.height + 8u * d->frame.v_max - 1) / (8u * d->frame.v_max);
    n.every = spacing(n.mcus, 8u * d->frame.h_max, h.restart);
    n.points = (n.mcus + n.every - 1) / n.every;
    if (carve(d, &h, len, &n, &strings, &blob))
        return fl_err_set(err, FL_ERR(ENOMEM), FL_STAGE_DECODE, "no memory for entry points");
    if (!fl_slice_strings(jpeg, len, strings, parts->headers))
        return fl_err_set(err, FL_ERR(ENOTSUP), FL_STAGE_DECODE,
                          "JPEG: the header is not of plain structure");
    if (!note_points(d, &n))
        return damaged(d, err);
    put_fixed(d, &n, &t, blob);
    end = put_points(&n, &t, d->frame.n_components, blob + FL_ENTRY_FIXED);
    end = put_groups(d, &n, blob, end);
    parts->blob = (struct fl_slice_bytes){ blob, (size_t)(end - blob) };
    return 0;
}
