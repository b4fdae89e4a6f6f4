/* SPDX-License-Identifier: Apache-2.0 */
/* MCU rows from a whole baseline file, from its beginning on. */
#include "jpeg/direct_internal.h"

#include <string.h>

#include "base/err.h"

static int damaged(const struct fl_direct *d, FlError *err)
{
    const struct fl_file_source *s = &d->file;

    fl_err_set(err, FL_ERR(EBADMSG), FL_STAGE_DECODE,
               "JPEG: the scan is damaged or cut in MCU row %u", d->row);
    err->offset = s->scan_offset;
    return err->code;
}

void fl_file_bits(struct fl_direct *d, unsigned bit)
{
    struct fl_file_source *s = &d->file;
    size_t used, n = fl_unstuff(s->scan, (size_t)(s->end - s->scan), d->bits, &used);

    s->segment = s->scan;
    s->scan += used;
    fl_reader_start(&s->bits, d->bits, n, bit);
    s->open = true;
}

bool fl_file_open(struct fl_direct *d)
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
    fl_file_bits(d, 0);
    memset(s->dc, 0, sizeof(s->dc));
    return true;
}

bool fl_file_advance(struct fl_direct *d, uint64_t to, bool store)
{
    struct fl_file_source *s = &d->file;

    while (s->at < to) {
        const uint64_t border = s->interval ? (s->at / s->interval + 1) * s->interval : UINT64_MAX;
        const uint32_t n = (uint32_t)((border < to ? border : to) - s->at);
        if (!s->open && !fl_file_open(d))
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

static int file_row(struct fl_direct *d, FlError *err)
{
    const uint64_t first = (uint64_t)d->row * d->file.mcus_per_row;

    if (!fl_file_advance(d, first + d->mx0, false) || !fl_file_advance(d, first + d->mx1, true))
        return damaged(d, err);
    d->row++;
    return 0;
}

void fl_file_start(struct fl_direct *d, const uint8_t *jpeg, size_t len,
                   const struct fl_jpeg_header *h)
{
    d->file = (struct fl_file_source){
        .scan = jpeg + h->scan_offset,
        .end = jpeg + len,
        .data = jpeg + h->scan_offset,
        .scan_offset = h->scan_offset,
        .interval = h->restart,
        .mcus_per_row = (d->frame.width + 8u * d->frame.h_max - 1) / (8u * d->frame.h_max),
    };
    d->source = file_row;
}

int fl_direct_file(struct fl_direct *d, const uint8_t *jpeg, size_t len,
                   const struct fl_direct_view *view, FlError *err)
{
    struct fl_jpeg_header h;
    int code = fl_direct_header(d, jpeg, len, &h, err);

    if (!code)
        code = fl_direct_view(d, view, 1, len - h.scan_offset + FL_ENTROPY_PAD, err);
    if (!code)
        fl_file_start(d, jpeg, len, &h);
    return code;
}
