/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/jpeg.h"

#include <string.h>

#include "base/err.h"

static const uint8_t zigzag[64] = {
    0,  1,  8,  16, 9,  2,  3,  10, 17, 24, 32, 25, 18, 11, 4,  5,  12, 19, 26, 33, 40, 48,
    41, 34, 27, 20, 13, 6,  7,  14, 21, 28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23,
    30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63,
};

static int broken(FlError *err, const char *what)
{
    return fl_err_set(err, FL_ERR(EBADMSG), FL_STAGE_DECODE, "the JPEG header is broken: %s", what);
}

static int unsupported(FlError *err, const char *what)
{
    return fl_err_set(err, FL_ERR(ENOTSUP), FL_STAGE_DECODE, "the GPU does not decode %s", what);
}

static int add_quant(struct fl_gpu_jpeg_header *h, const uint8_t *p, size_t n, FlError *err)
{
    while (n > 0) {
        const unsigned wide = p[0] >> 4, id = p[0] & 15;
        const size_t size = wide ? 129 : 65;

        if (wide > 1 || id > 3 || n < size)
            return broken(err, "a quantisation table");
        for (size_t i = 0; i < 64; i++)
            h->quant[id][zigzag[i]] =
                wide ? (uint16_t)(p[1 + 2 * i] << 8 | p[2 + 2 * i]) : p[1 + i];
        h->seen_quant |= (uint8_t)(1 << id);
        p += size;
        n -= size;
    }
    return 0;
}

/* A prefix code without the pattern of all ones, and values that a decoder can use? */
static bool huff_is_sound(const struct fl_jpeg_huff *t, bool dc)
{
    uint32_t code = 0, count = 0;

    for (int l = 1; l <= 16; l++) {
        code = (code << 1) + t->bits[l - 1];
        count += t->bits[l - 1];
        if (t->bits[l - 1] && code >= 1u << l)
            return false;
    }
    for (uint32_t i = 0; dc && i < count && i < 256; i++)
        if (t->vals[i] > 15)
            return false;
    return count <= 256;
}

static int add_huff(struct fl_gpu_jpeg_header *h, const uint8_t *p, size_t n, FlError *err)
{
    while (n > 0) {
        const unsigned class = p[0] >> 4, id = p[0] & 15;
        size_t count = 0;

        if (class > 1 || id > 3 || n < 17)
            return broken(err, "a Huffman table");
        for (int l = 1; l <= 16; l++)
            count += p[l];
        if (count > 256 || n < 17 + count)
            return broken(err, "a Huffman table");

        struct fl_jpeg_huff *const t = &h->huff[class][id];
        memcpy(t->bits, p + 1, 16);
        memcpy(t->vals, p + 17, count);
        memset(t->vals + count, 0, 256 - count);
        if (!huff_is_sound(t, class == 0))
            return broken(err, "a Huffman table");
        *(class ? &h->seen_ac : &h->seen_dc) |= (uint8_t)(1 << id);
        p += 17 + count;
        n -= 17 + count;
    }
    return 0;
}

static int add_frame(struct fl_gpu_jpeg_header *h, const uint8_t *p, size_t n, FlError *err)
{
    if (h->sof || n < 6 || n < 6 + 3 * (size_t)p[5])
        return broken(err, "the frame header");
    if (p[0] != 8)
        return unsupported(err, "JPEGs of other than 8 bits");
    if (p[5] != 1 && p[5] != 3)
        return unsupported(err, "JPEGs of other than 1 or 3 components");
    h->sof = 1;
    h->height = (uint32_t)p[1] << 8 | p[2];
    h->width = (uint32_t)p[3] << 8 | p[4];
    h->n_comp = p[5];
    for (unsigned c = 0; c < h->n_comp; c++) {
        const uint8_t *const q = p + 6 + 3 * c;
        h->id[c] = q[0];
        h->h[c] = q[1] >> 4;
        h->v[c] = q[1] & 15;
        h->tq[c] = q[2];
        if (h->h[c] < 1 || h->h[c] > 4 || h->v[c] < 1 || h->v[c] > 4 || q[2] > 3)
            return broken(err, "the frame header");
    }
    return 0;
}

static int add_scan(struct fl_gpu_jpeg_header *h, const uint8_t *p, size_t n, FlError *err)
{
    if (h->sos || n < 1 || n < 4 + 2 * (size_t)p[0])
        return broken(err, "the scan header");
    if (p[0] != 1 && p[0] != 3)
        return unsupported(err, "JPEGs of several scans");
    h->sos = 1;
    h->n_scan = p[0];
    for (unsigned c = 0; c < h->n_scan; c++) {
        h->scan_id[c] = p[1 + 2 * c];
        h->scan_tables[c] = p[2 + 2 * c];
    }
    return 0;
}

static void add_app(struct fl_gpu_jpeg_header *h, unsigned marker, const uint8_t *p, size_t n)
{
    if (marker == 0xe0 && n >= 5 && !memcmp(p, "JFIF", 5))
        h->jfif = 1;
    if (marker == 0xee && n >= 12 && !memcmp(p, "Adobe", 5))
        h->adobe = (int8_t)(p[11] < 2 ? p[11] + 1 : 3); // 0: no such marker
}

static int add_segment(struct fl_gpu_jpeg_header *h, unsigned marker, const uint8_t *p, size_t n,
                       FlError *err)
{
    switch (marker) {
    case 0xdb:
        return add_quant(h, p, n, err);
    case 0xc4:
        return add_huff(h, p, n, err);
    case 0xc0:
    case 0xc1:
        return add_frame(h, p, n, err);
    case 0xda:
        return add_scan(h, p, n, err);
    case 0xdd:
        if (n < 2)
            return broken(err, "the restart interval");
        h->interval = (uint32_t)p[0] << 8 | p[1];
        return 0;
    default:
        if (marker >= 0xc2 && marker <= 0xcf && marker != 0xc8 && marker != 0xcc)
            return unsupported(err, "progressive, lossless or arithmetic-coded JPEGs");
        add_app(h, marker, p, n);
        return 0;
    }
}

int fl_gpu_jpeg_header_add(struct fl_gpu_jpeg_header *h, const uint8_t *data, size_t len,
                           FlError *err)
{
    size_t at = 0;

    while (at < len && !h->sos) {
        if (data[at] != 0xff || at + 2 > len)
            return broken(err, "no marker where one should be");
        const unsigned marker = data[at + 1];
        if (marker == 0xff) {
            at++; // a fill byte
            continue;
        }
        if (marker == 0xd8) {
            at += 2;
            continue;
        }
        if (at + 4 > len)
            return broken(err, "it ends inside a segment");
        const size_t size = (size_t)data[at + 2] << 8 | data[at + 3];
        if (size < 2 || size > len - at - 2)
            return broken(err, "it ends inside a segment");
        const int rc = add_segment(h, marker, data + at + 4, size - 2, err);
        if (rc)
            return rc;
        at += 2 + size;
    }
    return 0;
}

/* The two places of a class of Huffman tables: which of the four goes where. */
static int place_table(struct fl_gpu_jpeg_header *h, unsigned class, unsigned id, int8_t used[2],
                       uint8_t *slot, FlError *err)
{
    const unsigned seen = class ? h->seen_ac : h->seen_dc;

    if (id > 3 || !(seen >> id & 1))
        return broken(err, "a Huffman table is missing");
    for (uint8_t i = 0; i < 2; i++) {
        if (used[i] < 0) {
            used[i] = (int8_t)id;
            (class ? h->tables.ac : h->tables.dc)[i] = h->huff[class][id];
        }
        if (used[i] == (int8_t)id) {
            *slot = i;
            return 0;
        }
    }
    return unsupported(err, "JPEGs of more than two Huffman tables of a kind");
}

/* libjpeg's decision: JFIF, then Adobe, then the component identifiers. */
static uint8_t colour_of(const struct fl_gpu_jpeg_header *h)
{
    if (h->n_comp == 1)
        return 1;
    if (h->jfif)
        return 2;
    if (h->adobe)
        return h->adobe - 1 == 0 ? 3 : 2;
    return h->id[0] == 'R' && h->id[1] == 'G' && h->id[2] == 'B' ? 3 : 2;
}

int fl_gpu_jpeg_header_finish(struct fl_gpu_jpeg_header *h, uint32_t width, uint32_t height,
                              uint32_t interval, FlError *err)
{
    int8_t dc_used[2] = { -1, -1 }, ac_used[2] = { -1, -1 };

    if (!h->sof || !h->sos)
        return broken(err, "frame or scan header are missing");
    if (h->n_scan != h->n_comp)
        return unsupported(err, "JPEGs of several scans");
    h->width = width ? width : h->width;
    h->height = height ? height : h->height;
    h->interval = interval ? interval : h->interval;
    if (!h->width || !h->height || h->width > 65535 || h->height > 65535)
        return broken(err, "the picture has no size");

    h->h_max = h->v_max = 1;
    for (unsigned c = 0; c < h->n_comp; c++) {
        if (h->n_comp == 1)
            h->h[c] = h->v[c] = 1; // blocks of a single component are not grouped
        h->h_max = h->h[c] > h->h_max ? h->h[c] : h->h_max;
        h->v_max = h->v[c] > h->v_max ? h->v[c] : h->v_max;
        if (h->scan_id[c] != h->id[c])
            return unsupported(err, "JPEGs whose scan has components in another order");
        if (!(h->seen_quant >> h->tq[c] & 1))
            return broken(err, "a quantisation table is missing");
        memcpy(h->tables.quant[c], h->quant[h->tq[c]], sizeof(h->tables.quant[c]));
        int rc = place_table(h, 0, h->scan_tables[c] >> 4, dc_used, &h->dc[c], err);
        if (!rc)
            rc = place_table(h, 1, h->scan_tables[c] & 15, ac_used, &h->ac[c], err);
        if (rc)
            return rc;
    }
    if (h->n_comp == 3 &&
        h->h[0] * h->v[0] + h->h[1] * h->v[1] + h->h[2] * h->v[2] > FL_JPEG_BLOCKS)
        return broken(err, "too many blocks in an MCU");
    h->colour = colour_of(h);
    return 0;
}
