/* SPDX-License-Identifier: Apache-2.0 */
/* The restart segments of a slice, and the slice as a JPEG of its own. */
#include "jpeg/slice_internal.h"

#include <string.h>

#include "base/err.h"

struct fl_slice_cursor fl_slice_start(const struct fl_slice_table *t,
                                      const struct fl_slice_range *r, const uint8_t *bytes)
{
    return (struct fl_slice_cursor){
        .bytes = bytes,
        .p = bytes,
        .end = bytes + r->length,
        .offset = r->offset,
        .index = r->group_row * t->segments,
        .last = r->first_group + r->n_groups == t->n_groups,
        .skip = (uint64_t)(r->first_row - r->group_row) * t->segments + r->first_segment,
        .total = (uint64_t)(r->n_rows - 1) * t->segments + r->n_segments,
        .stride = t->segments,
        .wanted = r->n_segments,
    };
}

int fl_slice_next(struct fl_slice_cursor *c, FlError *err)
{
    while (c->i < c->skip + c->total) {
        const uint8_t *m = fl_slice_next_marker(c->p, c->end);
        const uint64_t i = c->i++;
        // The range ends behind a marker, or with the picture's last segment.
        if (c->p == c->end || (m == c->end ? !c->last : m[1] != FL_M_RST0 + (c->index & 7))) {
            fl_err_set(
                err, FL_ERR(EBADMSG), FL_STAGE_DECODE,
                "restart segment %u of the sliced JPEG (from byte %llu of the file) does not "
                "end with its marker",
                c->index, (unsigned long long)(c->offset + (uint64_t)(c->p - c->bytes)));
            err->offset = c->offset + (uint64_t)(c->p - c->bytes);
            return err->code;
        }
        c->segment = c->p;
        c->length = (size_t)(m - c->p);
        c->p = m == c->end ? m : m + 2;
        c->index++;
        if (i >= c->skip && (i - c->skip) % c->stride < c->wanted)
            return 1;
    }
    return 0;
}

int fl_slice_segments(const struct fl_slice_table *t, const struct fl_slice_range *r,
                      const uint8_t *bytes, struct fl_slice_segment *segments, size_t cap,
                      FlError *err)
{
    struct fl_slice_cursor c = fl_slice_start(t, r, bytes);
    int more;

    if ((uint64_t)r->n_rows * r->n_segments > cap)
        return fl_err_set(err, FL_ERR(E2BIG), FL_STAGE_DECODE,
                          "%u rows of %u restart segments, room for %zu", r->n_rows, r->n_segments,
                          cap);
    while ((more = fl_slice_next(&c, err)) > 0) {
        segments->offset = (uint32_t)(c.segment - bytes);
        segments->length = (uint32_t)c.length;
        segments++;
    }
    return more;
}

/* ---- the header ---------------------------------------------------------------------------------- */

size_t fl_slice_header_bytes(const struct fl_slice_bytes headers[FL_SLICE_HEADERS])
{
    return headers[0].len + FL_SLICE_DRI_BYTES + headers[1].len;
}

size_t fl_slice_cut_bytes(const struct fl_slice_range *r,
                          const struct fl_slice_bytes headers[FL_SLICE_HEADERS])
{
    // Every segment keeps a marker of its own size; what is left out only makes it shorter.
    return fl_slice_header_bytes(headers) + (size_t)r->length + 4;
}

static int no_header(FlError *err)
{
    return fl_err_set(err, FL_ERR(EBADMSG), FL_STAGE_DECODE,
                      "the header strings of the index do not make a JPEG header");
}

int fl_slice_join(const struct fl_slice_bytes headers[FL_SLICE_HEADERS], unsigned n, uint32_t width,
                  uint32_t height, uint32_t interval, uint8_t *out, FlError *err)
{
    const struct fl_slice_bytes a = headers[0], b = headers[1];
    const size_t sof = fl_slice_sof_bytes(n), sos = 8 + 2 * (size_t)n;
    uint8_t *p = out;

    if (a.len < 2 + sof || b.len < sos || a.data[a.len - sof] != 0xFF ||
        (a.data[a.len - sof + 1] & 0xFE) != FL_M_SOF0 || a.data[a.len - sof + 9] != n ||
        b.data[b.len - sos] != 0xFF || b.data[b.len - sos + 1] != FL_M_SOS)
        return no_header(err);
    memcpy(p, a.data, a.len);
    p += a.len;
    fl_put_be16(p - sof + 5, height);
    fl_put_be16(p - sof + 7, width);
    p[0] = 0xFF;
    p[1] = FL_M_DRI;
    fl_put_be16(p + 2, 4);
    fl_put_be16(p + 4, interval);
    memcpy(p + FL_SLICE_DRI_BYTES, b.data, b.len);
    return 0;
}

int fl_slice_header(const struct fl_slice_table *t, const struct fl_slice_range *r,
                    const struct fl_slice_bytes headers[FL_SLICE_HEADERS], uint8_t *out,
                    FlError *err)
{
    return fl_slice_join(headers, t->frame.n_components, (uint32_t)r->rect.w, (uint32_t)r->rect.h,
                         t->interval, out, err);
}

/* ---- the cut ------------------------------------------------------------------------------------- */

int fl_slice_cut(const struct fl_slice_table *t, const struct fl_slice_range *r,
                 const struct fl_slice_bytes headers[FL_SLICE_HEADERS], const uint8_t *bytes,
                 uint8_t *out, size_t cap, size_t *out_len, FlError *err)
{
    struct fl_slice_cursor c = fl_slice_start(t, r, bytes);
    const size_t most = fl_slice_cut_bytes(r, headers);
    uint8_t *p = out;
    unsigned n = 0;
    int more;

    if (cap < most)
        return fl_err_set(err, FL_ERR(E2BIG), FL_STAGE_DECODE,
                          "a slice of up to %zu bytes, room for %zu", most, cap);
    if (fl_slice_header(t, r, headers, out, err))
        return err->code;
    p += fl_slice_header_bytes(headers);
    while ((more = fl_slice_next(&c, err)) > 0) {
        // NOLINTNEXTLINE(clang-analyzer-core.NonNullParamChecker): next has set it
        memcpy(p, c.segment, c.length);
        p += c.length;
        *p++ = 0xFF;
        *p++ = (uint8_t)(FL_M_RST0 + (n++ & 7));
    }
    p[-1] = FL_M_EOI; // in place of the last restart marker
    *out_len = (size_t)(p - out);
    return more;
}
