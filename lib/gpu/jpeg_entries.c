/* SPDX-License-Identifier: Apache-2.0 */
/* Entry points: where in a JPEG's entropy-coded bytes an MCU begins, and the DC predictors there. */
#include "gpu/jpeg.h"

#include "base/err.h"
#include "gpu/jpeg_stage.h"

/* Bits of the scan, and where they come from. */
struct source {
    const uint8_t *bytes;
    size_t at, end;  // next byte
    uint64_t buf;    // the next bit is the highest
    uint32_t n;      // bits in buf
    uint64_t loaded; // clean bytes that went into buf
    uint64_t zeros;  // of them were added behind the end
    size_t from[16]; // where the last ones stand in `bytes`
};

struct scan {
    struct source src;
    struct fl_jpeg_lut luts[4];
    int16_t pred[3];
    struct fl_jpeg_segment *out;
    size_t n, cap;
};

static void fill(struct source *s)
{
    while (s->n <= 56) {
        uint64_t byte = 0;
        const bool stuffed = s->at + 1 < s->end && s->bytes[s->at] == 0xff && !s->bytes[s->at + 1];
        s->from[s->loaded % 16] = s->at;
        if (s->at >= s->end || (s->bytes[s->at] == 0xff && !stuffed)) {
            s->zeros++; // a marker, or the end
        } else {
            byte = s->bytes[s->at];
            s->at += stuffed ? 2 : 1;
        }
        s->loaded++;
        s->buf |= byte << (56 - s->n);
        s->n += 8;
    }
}

static uint64_t consumed(const struct source *s)
{
    return 8 * s->loaded - s->n;
}

/* The byte in which the next bit stands, and which of its bits that is. */
static size_t place(const struct source *s, uint32_t *bit)
{
    *bit = (uint32_t)(consumed(s) % 8);
    return consumed(s) / 8 < s->loaded ? s->from[consumed(s) / 8 % 16] : s->at;
}

/* Take one code and the bits behind it. Returns its entry, 0 if it is none. */
static uint32_t symbol(struct scan *sc, uint32_t t, int32_t *value)
{
    struct source *const s = &sc->src;
    struct fl_walk walk = { 0 };
    uint32_t where;

    fill(s);
    const uint32_t win = (uint32_t)(s->buf >> 32);
    uint32_t e = sc->luts[t].fast[win >> (32 - FL_JPEG_LOOK)];
    if (!e && !(e = fl_stage_long(&sc->luts[t], t < 2, win)))
        return 0;
    *value = fl_walk_symbol(&walk, win, e, &where);
    s->buf <<= e & 31;
    s->n -= e & 31;
    return e;
}

static bool block(struct scan *sc, const struct fl_gpu_jpeg_header *h, unsigned c)
{
    int32_t v;
    uint32_t e = symbol(sc, h->dc[c], &v);

    if (!e)
        return false;
    sc->pred[c] = (int16_t)(sc->pred[c] + v);
    for (uint32_t k = 1; k < 64; k += (e >> 10) + 1)
        if (!(e = symbol(sc, h->ac[c] + 2u, &v)))
            return false;
    return true;
}

static bool mcu(struct scan *sc, const struct fl_gpu_jpeg_header *h)
{
    for (unsigned c = 0; c < h->n_comp; c++)
        for (unsigned i = 0; i < (unsigned)h->h[c] * h->v[c]; i++)
            if (!block(sc, h, c))
                return false;
    return consumed(&sc->src) <= 8 * (sc->src.loaded - sc->src.zeros);
}

/* The segment that is open ends here; before a marker the rest of the byte is padding. */
static void close_segment(struct scan *sc, bool marker)
{
    struct fl_jpeg_segment *const s = sc->n ? &sc->out[sc->n - 1] : NULL;
    uint32_t bit;
    const size_t at = place(&sc->src, &bit);

    if (!s)
        return;
    s->length = (uint32_t)((marker ? sc->src.at : at + (bit > 0)) - s->offset);
    s->end_bit = (uint8_t)(marker ? 0 : bit ? bit : 8);
}

static bool open_segment(struct scan *sc, uint32_t first)
{
    struct fl_jpeg_segment *const s = &sc->out[sc->n];
    uint32_t bit;

    if (sc->n == sc->cap)
        return false;
    *s =
        (struct fl_jpeg_segment){ .mcu = first, .pred = { sc->pred[0], sc->pred[1], sc->pred[2] } };
    s->offset = (uint32_t)place(&sc->src, &bit);
    s->bit = (uint8_t)bit;
    sc->n++;
    return true;
}

/* Pass over the restart marker of number `index`. */
static bool restart(struct scan *sc, uint32_t index)
{
    struct source *const s = &sc->src;

    fill(s);
    if (8 * (s->loaded - s->zeros) - consumed(s) >= 8 || s->at + 2 > s->end ||
        s->bytes[s->at] != 0xff || s->bytes[s->at + 1] != (0xd0 | (index & 7)))
        return false;
    s->at += 2;
    s->buf = s->n = 0;
    s->loaded = s->zeros = 0;
    sc->pred[0] = sc->pred[1] = sc->pred[2] = 0;
    return true;
}

static int damaged(FlError *err, const struct scan *sc)
{
    fl_err_set(err, FL_ERR(EBADMSG), FL_STAGE_DECODE, "the JPEG's entropy-coded data is damaged");
    fl_err_at(err, "", sc->src.at);
    return FL_ERR(EBADMSG);
}

static int walk_mcus(struct scan *sc, const struct fl_gpu_jpeg_header *h, uint32_t interval,
                     FlError *err)
{
    const uint32_t row = (h->width + 8u * h->h_max - 1) / (8u * h->h_max);
    const uint32_t rows = (h->height + 8u * h->v_max - 1) / (8u * h->v_max);

    for (uint32_t i = 0; i < row * rows; i++) {
        const bool marker = h->interval && i && i % h->interval == 0;
        if (marker) {
            fill(&sc->src);
            close_segment(sc, true);
            if (!restart(sc, i / h->interval - 1))
                return damaged(err, sc);
        }
        if (marker || i % row % interval == 0) {
            fill(&sc->src);
            if (!marker)
                close_segment(sc, false);
            if (!open_segment(sc, i))
                return fl_err_set(err, FL_ERR(E2BIG), FL_STAGE_DECODE,
                                  "a JPEG has more than %zu entry points", sc->cap);
        }
        if (!mcu(sc, h))
            return damaged(err, sc);
        sc->out[sc->n - 1].mcus++;
    }
    fill(&sc->src);
    close_segment(sc, true);
    return 0;
}

int64_t fl_gpu_jpeg_entries(const struct fl_gpu_jpeg_header *h, const uint8_t *bytes, size_t length,
                            uint32_t interval, struct fl_jpeg_segment *out, size_t cap,
                            FlError *err)
{
    struct scan sc = { .src = { .bytes = bytes, .end = length }, .out = out, .cap = cap };

    if (!interval || interval > 65535 || length > UINT32_MAX)
        return fl_err_set(err, FL_ERR(EINVAL), FL_STAGE_DECODE, "entry points: out of range");
    for (uint32_t t = 0; t < 4; t++) {
        const struct fl_jpeg_huff *const huff = fl_stage_huff(&h->tables, t);
        fl_huff_limits(huff, sc.luts[t].limit, sc.luts[t].first);
        for (uint32_t i = 0; i < 256; i++)
            sc.luts[t].vals[i] = huff->vals[i];
        for (uint32_t i = 0; i < 1u << FL_JPEG_LOOK; i++)
            sc.luts[t].fast[i] = (uint16_t)fl_stage_fast(&sc.luts[t], t, i);
    }
    const int rc = walk_mcus(&sc, h, interval, err);
    return rc ? rc : (int64_t)sc.n;
}

size_t fl_gpu_jpeg_entries_of(const struct fl_gpu_jpeg_header *h, const struct fl_jpeg_segment *all,
                              size_t n, uint32_t first_row, uint32_t n_rows,
                              struct fl_jpeg_segment *out, uint32_t *offset, uint32_t *length)
{
    const uint32_t row = (h->width + 8u * h->h_max - 1) / (8u * h->h_max);
    const uint32_t first = first_row * row, end = first + n_rows * row;
    size_t count = 0;

    *offset = *length = 0;
    for (size_t i = 0; i < n; i++) {
        if (all[i].mcu < first || all[i].mcu >= end)
            continue;
        *offset = count ? *offset : all[i].offset;
        *length = all[i].offset + all[i].length - *offset;
        out[count] = all[i];
        out[count].mcu -= first;
        out[count].offset -= *offset;
        count++;
    }
    return count;
}
