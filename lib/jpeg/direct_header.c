/* SPDX-License-Identifier: Apache-2.0 */
/* Headers: tables, components, and what this decoder takes. */
#include "jpeg/direct_internal.h"

#include <string.h>

#include "base/err.h"

static const uint8_t natural[64] = {
    0,  1,  8,  16, 9,  2,  3,  10, 17, 24, 32, 25, 18, 11, 4,  5,  12, 19, 26, 33, 40, 48,
    41, 34, 27, 20, 13, 6,  7,  14, 21, 28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23,
    30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63,
};

static int refuse(FlError *err, int code, const char *what)
{
    return fl_err_set(err, code, FL_STAGE_DECODE, "JPEG: %s", what);
}

/* One DQT segment from its length bytes on; defined: a bit for each table. */
static bool read_quant(struct fl_direct *d, const uint8_t *p, size_t len, unsigned *defined)
{
    const uint8_t *const end = p + len;

    for (p += 2; p < end;) {
        const unsigned id = p[0] & 15, wide = p[0] >> 4;
        if (id > 3 || wide > 1 || (size_t)(end - p) < 1 + 64 * (1 + wide))
            return false;
        p++;
        for (int i = 0; i < 64; i++, p += 1 + wide)
            d->quants[id][natural[i]] = (int16_t)(wide ? fl_be16(p) : p[0]);
        *defined |= 1u << id;
    }
    return true;
}

/* All tables before the scan. */
static int read_tables(struct fl_direct *d, const uint8_t *jpeg, const struct fl_jpeg_header *h,
                       unsigned *quants, FlError *err)
{
    const uint8_t *p = jpeg + 2, *const end = jpeg + h->sos_offset;

    fl_huff_reset(&d->huff);
    while (end - p >= 4) {
        const size_t len = fl_be16(p + 2);
        int code = 0;
        if (p[0] != 0xFF || p[1] < 0xC0 || len < 2 || len > (size_t)(end - p) - 2)
            return refuse(err, FL_ERR(ENOTSUP), "stray bytes in the header");
        if (p[1] == FL_M_DHT)
            code = fl_huff_read(&d->huff, p + 2, len);
        else if (p[1] == FL_M_DQT && !read_quant(d, p + 2, len, quants))
            code = FL_ERR(EBADMSG);
        if (code)
            return refuse(err, code,
                          p[1] == FL_M_DHT ? "Huffman tables that do not decode"
                                           : "a broken quantisation table");
        p += 2 + len;
    }
    return 0;
}

/* Blocks of one component in the MCU. */
static bool add_component(struct fl_direct *d, unsigned c, unsigned tables)
{
    const struct fl_huff_dc *dc = &d->huff.dc[tables >> 4 & 3];
    const struct fl_huff_ac *ac = &d->huff.ac[tables & 3];

    if ((tables & 0xCC) || !dc->code.defined || !ac->code.defined)
        return false;
    for (uint8_t y = 0; y < d->frame.v[c]; y++)
        for (uint8_t x = 0; x < d->frame.h[c]; x++) {
            const unsigned k = d->mcu.n_blocks++;
            if (k >= FL_MAX_MCU_BLOCKS)
                return false;
            d->mcu.component[k] = (uint8_t)c;
            d->mcu.dc[k] = dc;
            d->mcu.ac[k] = ac;
            d->place_x[k] = x;
            d->place_y[k] = y;
        }
    return true;
}

static bool read_scan(struct fl_direct *d, const uint8_t *sos, size_t len,
                      const struct fl_jpeg_header *h, unsigned quants)
{
    const unsigned n = h->components;

    if (len < 8 + 2 * n || fl_be16(sos + 2) != 6 + 2 * n || sos[4] != n || sos[5 + 2 * n] != 0 ||
        sos[6 + 2 * n] != 63 || sos[7 + 2 * n] != 0)
        return false;
    d->mcu.n_blocks = 0;
    for (unsigned c = 0; c < n; c++) {
        // A scan has its components in the order of the frame.
        if (sos[5 + 2 * c] != h->comp[c].id || h->comp[c].quant > 3 ||
            !(quants >> h->comp[c].quant & 1) || !add_component(d, c, sos[6 + 2 * c]))
            return false;
        d->quant[c] = d->quants[h->comp[c].quant];
    }
    return true;
}

int fl_direct_header(struct fl_direct *d, const uint8_t *jpeg, size_t len, struct fl_jpeg_header *h,
                     FlError *err)
{
    struct fl_frame *f = &d->frame;
    unsigned quants = 0;
    int code = fl_jpeg_parse(jpeg, len, h, err);

    if (code)
        return code == FL_ERR(EAGAIN) ? FL_ERR(EBADMSG) : code;
    if ((h->sof != FL_SOF_BASELINE && h->sof != FL_SOF_EXTENDED) || h->precision != 8 ||
        (h->components != 1 && h->components != 3) ||
        (h->components == 3 && h->colour != FL_JPEG_YCBCR && h->colour != FL_JPEG_RGB))
        return refuse(err, FL_ERR(ENOTSUP), "not a baseline file of one or three components");
    if (!h->scan_offset)
        return refuse(err, FL_ERR(EBADMSG), "the file ends in its header");
    f->width = h->width;
    f->height = h->height;
    f->n_components = h->components;
    f->h_max = f->v_max = 1;
    for (int c = 0; c < h->components; c++) {
        f->h[c] = h->components == 1 ? 1 : h->comp[c].h;
        f->v[c] = h->components == 1 ? 1 : h->comp[c].v;
        f->h_max = f->h[c] > f->h_max ? f->h[c] : f->h_max;
        f->v_max = f->v[c] > f->v_max ? f->v[c] : f->v_max;
    }
    d->colour = h->colour;
    code = read_tables(d, jpeg, h, &quants, err);
    if (code)
        return code;
    if (!read_scan(d, jpeg + h->sos_offset, h->scan_offset - h->sos_offset, h, quants))
        return refuse(err, FL_ERR(ENOTSUP), "not one scan of all components, with all its tables");
    return 0;
}
