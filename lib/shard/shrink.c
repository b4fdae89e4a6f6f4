/* SPDX-License-Identifier: Apache-2.0 */
#include "shard/shrink.h"

#include <string.h>

#include "base/err.h"
#include "jpeg/encode.h"
#include "kernels/kernels.h"

#define ICC_HEAD 14 // "ICC_PROFILE", NUL, number of this chunk from 1, number of chunks

void fl_shrinker_fini(struct fl_shrinker *s)
{
    fl_jpeg_decoder_free(s->decoder);
    fl_bytes_free(&s->pixels);
    fl_bytes_free(&s->icc);
    fl_bytes_free(&s->out);
    *s = (struct fl_shrinker){ 0 };
}

void fl_shrink_size(int32_t w, int32_t h, int32_t max_side, int32_t *rw, int32_t *rh)
{
    const int32_t side = w < h ? w : h;

    *rw = w;
    *rh = h;
    if (!max_side || side <= max_side)
        return;
    *rw = (int32_t)(((int64_t)w * max_side * 2 + side) / (2 * (int64_t)side));
    *rh = (int32_t)(((int64_t)h * max_side * 2 + side) / (2 * (int64_t)side));
}

/* Next marker segment's payload; returns the marker, 0 at the first scan or where structure ends. */
static int next_segment(const uint8_t *data, size_t len, size_t *at, const uint8_t **payload,
                        size_t *n)
{
    size_t i = *at;

    while (i + 1 < len && data[i] == 0xFF && data[i + 1] == 0xFF)
        i++; // fill bytes
    if (i + 4 > len || data[i] != 0xFF)
        return 0;
    const int marker = data[i + 1];
    const size_t size = (size_t)data[i + 2] << 8 | data[i + 3];
    if (marker == 0xDA || size < 2 || i + 2 + size > len)
        return 0;
    *payload = data + i + 4;
    *n = size - 2;
    *at = i + 2 + size;
    return marker;
}

int fl_icc_find(const uint8_t *data, size_t len, struct fl_bytes *icc)
{
    const uint8_t *p;
    size_t n, at = 2;
    int marker;
    unsigned expected = 1, chunks = 0;

    icc->len = 0;
    while ((marker = next_segment(data, len, &at, &p, &n))) {
        if (marker != 0xE2 || n < ICC_HEAD || memcmp(p, "ICC_PROFILE", 12))
            continue;
        if (p[12] != expected++ || (chunks && p[13] != chunks)) {
            icc->len = 0; // out of turn: not worth guessing
            return 0;
        }
        chunks = p[13];
        if (fl_bytes_add(icc, p + ICC_HEAD, n - ICC_HEAD))
            return FL_ERR(ENOMEM);
    }
    if (expected - 1 != chunks)
        icc->len = 0;
    return 0;
}

static int no_memory(FlError *err)
{
    return fl_err_set(err, FL_ERR(ENOMEM), FL_STAGE_DECODE, "no memory to shrink a picture");
}

static int decode(struct fl_shrinker *s, const uint8_t *data, size_t len,
                  const struct fl_jpeg_header *h, struct fl_jpeg_encode *e, FlError *err)
{
    const int32_t w = (int32_t)e->width, height = (int32_t)e->height;
    const struct fl_rect whole = { 0, 0, w, height };
    struct fl_jpeg_request req = {
        .crop = { .box = { 0, 0, (int32_t)h->width, (int32_t)h->height },
                  .rw = w,
                  .rh = height,
                  .window = whole },
        .exact = true,
        .channels = (uint8_t)e->channels,
        .stride = (ptrdiff_t)w * e->channels,
    };

    if (!s->decoder && fl_jpeg_decoder_new(&s->decoder, &(struct fl_jpeg_limits){ 0 },
                                           fl_kernels_get(FL_CPU_BEST)))
        return no_memory(err);
    s->pixels.len = 0;
    req.dst = fl_bytes_room(&s->pixels, (size_t)req.stride * (size_t)height + FL_RESIZE_PAD);
    if (!req.dst)
        return no_memory(err);
    return fl_jpeg_decode(s->decoder, data, len, &req, err, NULL);
}

int fl_shrink(struct fl_shrinker *s, const uint8_t *data, size_t len, int32_t max_side,
              int32_t quality, FlError *err)
{
    struct fl_jpeg_header h;
    int32_t w, height;
    int code = fl_jpeg_parse(data, len, &h, err);

    if (code)
        return code == FL_ERR(EAGAIN) ? fl_err_set(err, FL_ERR(EBADMSG), FL_STAGE_DECODE,
                                                   "the JPEG ends inside its header")
                                      : code;
    if (h.colour == FL_JPEG_UNKNOWN || h.width > 65500 || h.height > 65500)
        return fl_err_set(err, FL_ERR(ENOTSUP), FL_STAGE_DECODE, "a JPEG of %u components",
                          h.components);
    fl_shrink_size((int32_t)h.width, (int32_t)h.height, max_side, &w, &height);
    if (w == (int32_t)h.width && height == (int32_t)h.height && (max_side || !quality))
        return 0;

    struct fl_jpeg_encode e = { .width = (uint32_t)w,
                                .height = (uint32_t)height,
                                .channels = h.components == 1 ? 1 : 3,
                                .quality = quality ? quality : FL_SHRINK_QUALITY,
                                .h = 1,
                                .v = 1 };
    // Ratios that chroma of 1x1 can state; whatever else there is becomes 4:4:4.
    if (h.colour == FL_JPEG_YCBCR && h.comp[1].h && h.comp[1].v) {
        e.h = h.comp[0].h / h.comp[1].h == 2 ? 2 : 1;
        e.v = h.comp[0].v / h.comp[1].v == 2 ? 2 : 1;
    }
    if ((code = decode(s, data, len, &h, &e, err)))
        return code;
    s->icc.len = 0;
    if (h.components != 4 && fl_icc_find(data, len, &s->icc))
        return no_memory(err);
    e.icc = s->icc.data;
    e.icc_len = s->icc.len;
    s->out.len = 0;
    code = fl_jpeg_encode(s->pixels.data, (size_t)w * (size_t)e.channels, &e, &s->out, err);
    return code ? code : 1;
}
