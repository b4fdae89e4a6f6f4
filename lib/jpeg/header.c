/* SPDX-License-Identifier: Apache-2.0 */
#include "jpeg/header.h"

#include <string.h>

#include "base/err.h"
#include "jpeg/exif.h"

/* Markers, ITU-T T.81 table B.1. */
enum {
    TEM = 0x01,
    SOF0 = 0xC0,
    DHT = 0xC4,
    JPG = 0xC8,
    DAC = 0xCC,
    RST0 = 0xD0,
    RST7 = 0xD7,
    SOI = 0xD8,
    EOI = 0xD9,
    SOS = 0xDA,
    DRI = 0xDD,
    APP0 = 0xE0,
    APP1 = 0xE1,
    APP14 = 0xEE,
};

struct parser {
    const uint8_t *data;
    size_t len, pos;
    struct fl_jpeg_header *h;
    bool frame, exif;
    FlError *err;
};

static unsigned get16(const uint8_t *p)
{
    return (unsigned)p[0] << 8 | p[1];
}

/* A failure at a byte of the data. */
static int broken(struct parser *p, int code, size_t at, const char *what)
{
    if (p->err) {
        fl_err_set(p->err, code, FL_STAGE_DECODE, "JPEG header: %s at byte %zu", what, at);
        p->err->offset = at;
    }
    return code;
}

static bool is_frame(int marker)
{
    return marker >= SOF0 && marker <= 0xCF && marker != DHT && marker != JPG && marker != DAC;
}

/* Move behind the next marker and return it; -1 at the end of the bytes. Bytes that are none (stray ones,
 * fill bytes 0xFF, stuffed zeros) are passed over, as libjpeg does. */
static int next_marker(struct parser *p)
{
    for (;;) {
        const uint8_t *ff =
            p->pos < p->len ? memchr(p->data + p->pos, 0xFF, p->len - p->pos) : NULL;
        if (!ff)
            return -1;
        p->pos = (size_t)(ff - p->data);
        while (p->pos < p->len && p->data[p->pos] == 0xFF)
            p->pos++;
        if (p->pos == p->len)
            return -1;
        if (p->data[p->pos++])
            return p->data[p->pos - 1];
    }
}

static int parse_frame(struct parser *p, int marker, const uint8_t *s, size_t n, size_t at)
{
    struct fl_jpeg_header *h = p->h;

    if (p->frame)
        return broken(p, FL_ERR(EBADMSG), at, "a second frame header");
    if (n < 6)
        return broken(p, FL_ERR(EBADMSG), at, "the frame header is too short");
    h->sof = (uint8_t)(marker - SOF0);
    h->precision = s[0];
    h->height = get16(s + 1);
    h->width = get16(s + 3);
    if (s[5] > 4)
        return broken(p, FL_ERR(ENOTSUP), at, "more than 4 components");
    h->components = s[5];
    if (n != 6 + 3 * (size_t)h->components)
        return broken(p, FL_ERR(EBADMSG), at, "the frame header has the wrong length");
    if (!h->components || !h->width)
        return broken(p, FL_ERR(EBADMSG), at, "a frame without columns or components");
    if (!h->height)
        return broken(p, FL_ERR(ENOTSUP), at, "a height that follows the scan (DNL)");
    for (int i = 0; i < h->components; i++) {
        const uint8_t *c = s + 6 + 3 * i;
        h->comp[i] = (struct fl_jpeg_component){ c[0], c[1] >> 4, c[1] & 15, c[2] };
        if (h->comp[i].h < 1 || h->comp[i].h > 4 || h->comp[i].v < 1 || h->comp[i].v > 4)
            return broken(p, FL_ERR(EBADMSG), at, "a sampling factor outside 1..4");
        h->max_h = h->comp[i].h > h->max_h ? h->comp[i].h : h->max_h;
        h->max_v = h->comp[i].v > h->max_v ? h->comp[i].v : h->max_v;
    }
    h->sof_offset = at;
    p->frame = true;
    return 0;
}

static void parse_app(struct parser *p, int marker, const uint8_t *s, size_t n)
{
    if (marker == APP0 && n >= 14 && !memcmp(s, "JFIF", 5))
        p->h->jfif = true;
    if (marker == APP14 && n >= 12 && !memcmp(s, "Adobe", 5))
        p->h->adobe = (int8_t)(s[11] <= 2 ? s[11] : 3);
    if (marker == APP1 && n >= 6 && !memcmp(s, "Exif\0", 6) && !p->exif) {
        p->h->orientation = (uint8_t)fl_exif_orientation(s, n);
        p->exif = true;
    }
}

/* The table by which libjpeg decides; unknown Adobe transforms (kept as 3) mean the usual ones. */
static enum fl_jpeg_colour colour_of(const struct fl_jpeg_header *h)
{
    switch (h->components) {
    case 1:
        return FL_JPEG_GREY;
    case 3:
        if (h->jfif)
            return FL_JPEG_YCBCR;
        if (h->adobe >= 0)
            return h->adobe == 0 ? FL_JPEG_RGB : FL_JPEG_YCBCR;
        return h->comp[0].id == 'R' && h->comp[1].id == 'G' && h->comp[2].id == 'B' ? FL_JPEG_RGB
                                                                                    : FL_JPEG_YCBCR;
    case 4:
        return h->adobe > 0 ? FL_JPEG_YCCK : FL_JPEG_CMYK;
    default:
        return FL_JPEG_UNKNOWN;
    }
}

/* The bytes ended before the scan. */
static int ended(struct parser *p)
{
    if (p->frame)
        return 0;
    return broken(p, FL_ERR(EAGAIN), p->len, "the bytes end before the frame header");
}

/* One marker segment. 1: go on; 0: the scan or the end of the bytes is reached; < 0: failure. */
static int parse_segment(struct parser *p)
{
    const int marker = next_marker(p);
    const size_t at = marker < 0 ? p->len : p->pos - 2;
    int err = 0;

    if (marker < 0)
        return ended(p);
    if (marker == TEM || (marker >= RST0 && marker <= RST7))
        return 1;
    if (marker == SOI)
        return broken(p, FL_ERR(EBADMSG), at, "a second start marker");
    if (marker == EOI)
        return broken(p, FL_ERR(EBADMSG), at, "the picture ends before its first scan");
    if (p->len - p->pos < 2)
        return ended(p);

    const size_t n = get16(p->data + p->pos);
    const uint8_t *s = p->data + p->pos + 2;
    if (n < 2)
        return broken(p, FL_ERR(EBADMSG), at, "a segment shorter than its length field");
    if (n > p->len - p->pos)
        return ended(p);
    if (is_frame(marker))
        err = parse_frame(p, marker, s, n - 2, at);
    else if (marker == DRI && n == 4)
        p->h->restart = (uint16_t)get16(s);
    else if (marker >= APP0 && marker <= APP14)
        parse_app(p, marker, s, n - 2);
    p->pos += n;
    if (marker != SOS)
        return err ? err : 1;
    if (!p->frame)
        return broken(p, FL_ERR(EBADMSG), at, "a scan before the frame header");
    p->h->sos_offset = at;
    p->h->scan_offset = p->pos;
    return 0;
}

int fl_jpeg_parse(const uint8_t *data, size_t len, struct fl_jpeg_header *h, FlError *err)
{
    struct parser p = { .data = data, .len = len, .h = h, .err = err };
    int r = 1;

    *h = (struct fl_jpeg_header){ .adobe = -1, .orientation = 1 };
    if (len < 2 && (len == 0 || data[0] == 0xFF))
        return broken(&p, FL_ERR(EAGAIN), len, "the bytes end before the start marker");
    if (len < 2 || data[0] != 0xFF || data[1] != SOI)
        return broken(&p, FL_ERR(EBADMSG), 0, "no start marker, so this is not a JPEG");
    p.pos = 2;
    while (r > 0)
        r = parse_segment(&p);
    if (!r)
        h->colour = (uint8_t)colour_of(h);
    return r;
}

int fl_jpeg_count_scans(const uint8_t *data, size_t len, const struct fl_jpeg_header *h, int most)
{
    struct parser p = { .data = data, .len = len, .pos = h->scan_offset };
    int scans = h->sos_offset ? 1 : 0, marker;

    // Entropy-coded data holds 0xFF only before a zero or as part of a restart marker.
    while (scans && scans <= most && (marker = next_marker(&p)) >= 0 && marker != EOI) {
        if (marker == TEM || (marker >= RST0 && marker <= RST7))
            continue;
        scans += marker == SOS;
        const size_t n = p.len - p.pos >= 2 ? get16(data + p.pos) : p.len;
        p.pos = n < p.len - p.pos ? p.pos + n : p.len;
    }
    return scans;
}

static bool is_sampled(const struct fl_jpeg_header *h, int y_h, int y_v)
{
    return h->comp[0].h == y_h && h->comp[0].v == y_v && h->comp[1].h == 1 && h->comp[1].v == 1 &&
           h->comp[2].h == 1 && h->comp[2].v == 1;
}

const char *fl_jpeg_layout_name(const struct fl_jpeg_header *h)
{
    static const struct {
        int h, v;
        const char *name;
    } names[] = {
        { 1, 1, "4:4:4" }, { 2, 1, "4:2:2" }, { 2, 2, "4:2:0" }, { 1, 2, "4:4:0" },
        { 4, 1, "4:1:1" }, { 4, 2, "4:1:0" }, { 1, 4, "4:4:1" },
    };

    if (h->colour == FL_JPEG_GREY)
        return "grey";
    if (h->colour == FL_JPEG_CMYK)
        return "CMYK";
    if (h->colour == FL_JPEG_YCCK)
        return "YCCK";
    if (h->colour == FL_JPEG_UNKNOWN)
        return "2 components";
    if (h->colour == FL_JPEG_RGB)
        return "RGB";
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (is_sampled(h, names[i].h, names[i].v))
            return names[i].name;
    return "unusual sampling";
}
