/* SPDX-License-Identifier: Apache-2.0 */
/* The table of a sliced JPEG: from a file, into a blob, and out of a blob.
 *
 *   u32 id[2]          dictionary ids of the header strings
 *   u8  version        1
 *   u8  n_components   1 or 3
 *   u8  h << 4 | v     of each component
 *   varint             width, height, interval, data_offset, n_groups
 *   varint             MCU rows, bytes: of each group
 *   u32 checksum       of each group */
#include "jpeg/slice_internal.h"

#include <string.h>

#include "base/err.h"
#include "base/hash.h"

#define VERSION 1
#define FIXED (4 * FL_SLICE_HEADERS + 2)
#define MAX_VARINT 10

const uint8_t *fl_slice_next_marker(const uint8_t *p, const uint8_t *end)
{
    while (p < end && (p = memchr(p, 0xFF, (size_t)(end - p)))) {
        if (end - p < 2)
            break;
        if (p[1] != 0x00 && p[1] != 0xFF)
            return p;
        p += p[1] == 0x00 ? 2 : 1;
    }
    return end;
}

uint8_t *fl_slice_put_varint(uint8_t *p, uint64_t v)
{
    for (; v >= 0x80; v >>= 7)
        *p++ = (uint8_t)(v | 0x80);
    *p++ = (uint8_t)v;
    return p;
}

const uint8_t *fl_slice_get_varint(const uint8_t *p, const uint8_t *end, uint64_t *v)
{
    *v = 0;
    for (unsigned shift = 0; p && p < end && shift < 64; shift += 7) {
        const uint8_t b = *p++;
        *v |= (uint64_t)(b & 0x7F) << shift;
        if (!(b & 0x80))
            return p;
    }
    return NULL;
}

/* ---- from a file --------------------------------------------------------------------------------- */

struct file {
    const uint8_t *data, *end;
    const uint8_t *sof, *sos, *scan; // markers; first entropy-coded byte
    uint32_t interval;
    struct fl_slice_table t; // as far as it is known; groups and checksums unused
};

/* Calls `each` for the marker segments before the scan. False: not a JPEG of plain structure. */
static bool walk(struct file *f,
                 bool (*each)(struct file *f, const uint8_t *seg, size_t len, uint8_t **out),
                 uint8_t **out)
{
    const uint8_t *p = f->data + 2;

    while (f->end - p >= 4 && p[0] == 0xFF) {
        const size_t len = 2 + (size_t)fl_be16(p + 2);
        if (p[1] < 0xC0 || (p[1] >= FL_M_RST0 && p[1] <= FL_M_EOI) || len < 4 ||
            len > (size_t)(f->end - p))
            return false;
        if (!each(f, p, len, out))
            return false;
        if (p[1] == FL_M_SOS)
            return true;
        p += len;
    }
    return false;
}

static bool read_frame(struct file *f, const uint8_t *seg, size_t len)
{
    struct fl_slice_table *t = &f->t;
    const unsigned n = len > 9 ? seg[9] : 0;

    if (f->sof || (n != 1 && n != 3) || len != fl_slice_sof_bytes(n) || seg[4] != 8)
        return false;
    f->sof = seg;
    t->frame.height = fl_be16(seg + 5);
    t->frame.width = fl_be16(seg + 7);
    t->frame.n_components = (uint8_t)n;
    for (unsigned i = 0; i < n; i++) {
        t->frame.h[i] = n == 1 ? 1 : seg[11 + 3 * i] >> 4;
        t->frame.v[i] = n == 1 ? 1 : seg[11 + 3 * i] & 15;
    }
    return true;
}

static bool note_segment(struct file *f, const uint8_t *seg, size_t len, uint8_t **out)
{
    (void)out;
    switch (seg[1]) {
    case FL_M_SOF0:
    case FL_M_SOF1:
        return read_frame(f, seg, len);
    case FL_M_DRI:
        f->interval = len == 6 ? fl_be16(seg + 4) : 0;
        return true;
    case FL_M_SOS: // one scan, of everything
        f->sos = seg;
        f->scan = seg + len;
        return f->sof && len == 8 + 2 * (size_t)f->t.frame.n_components &&
               seg[4] == f->t.frame.n_components && seg[len - 3] == 0 && seg[len - 2] == 63 &&
               seg[len - 1] == 0;
    case FL_M_DHT:
    case FL_M_DQT:
        return true;
    default: // any other frame, DNL, DHP, ... ends it; what applications add does not
        return seg[1] >= FL_M_APP0;
    }
}

/* Derived fields; false where the numbers are no picture that can be sliced. */
static bool complete_table(struct fl_slice_table *t)
{
    uint32_t mcus;

    if (!t->frame.width || !t->frame.height || t->frame.width > 65535 || t->frame.height > 65535)
        return false;
    t->frame.h_max = t->frame.v_max = 1;
    for (int i = 0; i < t->frame.n_components; i++) {
        if (t->frame.h[i] < 1 || t->frame.h[i] > 4 || t->frame.v[i] < 1 || t->frame.v[i] > 4)
            return false;
        t->frame.h_max = t->frame.h[i] > t->frame.h_max ? t->frame.h[i] : t->frame.h_max;
        t->frame.v_max = t->frame.v[i] > t->frame.v_max ? t->frame.v[i] : t->frame.v_max;
    }
    mcus = (t->frame.width + 8u * t->frame.h_max - 1) / (8u * t->frame.h_max);
    t->mcu_rows = (t->frame.height + 8u * t->frame.v_max - 1) / (8u * t->frame.v_max);
    if (!t->interval || t->interval > mcus || mcus % t->interval)
        return false;
    t->segments = mcus / t->interval;
    return true;
}

/* ---- the header strings -------------------------------------------------------------------------- */

static uint8_t *append(uint8_t *out, const uint8_t *data, size_t len)
{
    memcpy(out, data, len);
    return out + len;
}

static bool put_quantisation(struct file *f, const uint8_t *seg, size_t len, uint8_t **out)
{
    (void)f;
    if (seg[1] == FL_M_DQT)
        *out = append(*out, seg, len);
    return true;
}

static bool put_huffman(struct file *f, const uint8_t *seg, size_t len, uint8_t **out)
{
    (void)f;
    if (seg[1] == FL_M_DHT)
        *out = append(*out, seg, len);
    return true;
}

static bool put_adobe(struct file *f, const uint8_t *seg, size_t len, uint8_t **out)
{
    (void)f;
    if (seg[1] == FL_M_APP14 && len >= 16 && !memcmp(seg + 4, "Adobe", 5))
        *out = append(*out, seg, len);
    return true;
}

static bool has_jfif(struct file *f, const uint8_t *seg, size_t len, uint8_t **out)
{
    (void)f;
    if (seg[1] == FL_M_APP0 && len >= 16 && !memcmp(seg + 4, "JFIF", 5))
        *out = NULL;
    return true;
}

/* Both strings, one after the other, no longer than the file's header and a JFIF marker. */
static uint8_t *put_headers(struct file *f, uint8_t *out,
                            struct fl_slice_bytes headers[FL_SLICE_HEADERS])
{
    static const uint8_t soi[] = { 0xFF, FL_M_SOI };
    // Version and pixel density decide nothing: one and the same JFIF marker for all.
    static const uint8_t jfif[] = { 0xFF, FL_M_APP0, 0, 16, 'J', 'F', 'I', 'F', 0,
                                    1,    1,         0, 0,  1,   0,   1,   0,   0 };
    uint8_t *const first = out, *second, *probe = out;

    out = append(out, soi, sizeof(soi));
    walk(f, has_jfif, &probe);
    if (!probe)
        out = append(out, jfif, sizeof(jfif));
    walk(f, put_adobe, &out);
    walk(f, put_quantisation, &out);
    out = append(out, f->sof, fl_slice_sof_bytes(f->t.frame.n_components));
    memset(out - fl_slice_sof_bytes(f->t.frame.n_components) + 5, 0, 4);
    second = out;
    walk(f, put_huffman, &out);
    out = append(out, f->sos, (size_t)(f->scan - f->sos));
    headers[0] = (struct fl_slice_bytes){ first, (size_t)(second - first) };
    headers[1] = (struct fl_slice_bytes){ second, (size_t)(out - second) };
    return out;
}

bool fl_slice_strings(const uint8_t *jpeg, size_t len, uint8_t *out,
                      struct fl_slice_bytes headers[FL_SLICE_HEADERS])
{
    struct file f = { .data = jpeg, .end = jpeg + len };

    if (len < 4 || jpeg[0] != 0xFF || jpeg[1] != FL_M_SOI || !walk(&f, note_segment, NULL) ||
        !f.sof)
        return false;
    put_headers(&f, out, headers);
    return true;
}

/* ---- the row groups ------------------------------------------------------------------------------ */

/* End of the MCU row that begins with restart segment `*count` at p, with the RST marker that follows
 * it, if one does. NULL: a marker is missing or out of turn. */
static const uint8_t *row_end(const struct file *f, const uint8_t *p, uint64_t *count)
{
    const uint64_t total = (uint64_t)f->t.segments * f->t.mcu_rows;

    for (uint32_t i = 0; i < f->t.segments; i++) {
        const uint8_t *m = fl_slice_next_marker(p, f->end);
        const unsigned want = ++*count == total ? FL_M_EOI : FL_M_RST0 + ((*count - 1) & 7);
        if (f->end - m < 2 || m[1] != want)
            return NULL;
        if (want == FL_M_EOI)
            return m;
        p = m + 2;
    }
    return p;
}

/* Group table and checksums behind `out`. Returns its end, NULL for a file that is not sliced. */
static uint8_t *put_groups(struct file *f, uint8_t *out, uint8_t *sums)
{
    const uint8_t *p = f->scan, *begin = f->scan;
    uint8_t *const first_sum = sums;
    uint32_t rows = 0;
    uint64_t count = 0;

    f->t.n_groups = 0;
    for (uint32_t y = 0; y < f->t.mcu_rows; y++) {
        if (!(p = row_end(f, p, &count)))
            return NULL;
        rows++;
        if (p - begin < FL_SLICE_GROUP_BYTES && y + 1 < f->t.mcu_rows)
            continue;
        out = fl_slice_put_varint(out, rows);
        out = fl_slice_put_varint(out, (uint64_t)(p - begin));
        fl_put_le32(sums, fl_checksum32(begin, (size_t)(p - begin)));
        sums += 4;
        f->t.n_groups++;
        begin = p;
        rows = 0;
    }
    f->t.data_length = (uint64_t)(p - f->scan);
    memmove(out, first_sum, (size_t)(sums - first_sum));
    return out + (sums - first_sum);
}

static uint8_t *put_fixed(const struct fl_slice_table *t, uint8_t *out)
{
    memset(out, 0, 4 * FL_SLICE_HEADERS);
    out += 4 * FL_SLICE_HEADERS;
    *out++ = VERSION;
    *out++ = t->frame.n_components;
    for (int i = 0; i < t->frame.n_components; i++)
        *out++ = (uint8_t)(t->frame.h[i] << 4 | t->frame.v[i]);
    out = fl_slice_put_varint(out, t->frame.width);
    out = fl_slice_put_varint(out, t->frame.height);
    out = fl_slice_put_varint(out, t->interval);
    out = fl_slice_put_varint(out, t->data_offset);
    return fl_slice_put_varint(out, t->n_groups);
}

int fl_slicer_table(struct fl_slicer *s, const void *jpeg, size_t len, struct fl_slice_parts *parts)
{
    struct file f = { .data = jpeg, .end = (const uint8_t *)jpeg + len };
    size_t most;
    uint8_t *out, *blob, *groups, *end;

    if (len < 4 || len > UINT32_MAX || f.data[0] != 0xFF || f.data[1] != FL_M_SOI ||
        !walk(&f, note_segment, NULL))
        return FL_ERR(ENOTSUP);
    f.t.interval = f.interval;
    f.t.data_offset = (uint32_t)(f.scan - f.data);
    if (!complete_table(&f.t))
        return FL_ERR(ENOTSUP);
    // headers, blob, and behind it the groups twice: they move once their number is known
    most = (size_t)(f.scan - f.data) + 64 + FIXED + 3 + 6 * MAX_VARINT +
           2 * (size_t)f.t.mcu_rows * (2 * MAX_VARINT + 4);
    if (fl_slice_memory_reserve(&s->table, most))
        return FL_ERR(ENOMEM);
    blob = put_headers(&f, s->table.data, parts->headers);
    groups = blob + FIXED + 3 + 6 * MAX_VARINT;
    end = put_groups(&f, groups, groups + (size_t)f.t.mcu_rows * 2 * MAX_VARINT);
    if (!end)
        return FL_ERR(ENOTSUP);
    out = put_fixed(&f.t, blob);
    memmove(out, groups, (size_t)(end - groups));
    parts->blob = (struct fl_slice_bytes){ blob, (size_t)(out - blob) + (size_t)(end - groups) };
    return 0;
}

/* ---- out of a blob ------------------------------------------------------------------------------- */

int fl_slice_blob_set_ids(uint8_t *blob, size_t len, const uint32_t ids[FL_SLICE_HEADERS])
{
    if (len < FIXED)
        return FL_ERR(EBADMSG);
    for (int i = 0; i < FL_SLICE_HEADERS; i++)
        fl_put_le32(blob + 4 * i, ids[i]);
    return 0;
}

int fl_slice_blob_ids(const uint8_t *blob, size_t len, uint32_t ids[FL_SLICE_HEADERS])
{
    if (len < FIXED)
        return FL_ERR(EBADMSG);
    for (int i = 0; i < FL_SLICE_HEADERS; i++)
        ids[i] = fl_le32(blob + 4 * i);
    return 0;
}

static const uint8_t *get_u32(const uint8_t *p, const uint8_t *end, uint32_t *v)
{
    uint64_t wide;

    p = fl_slice_get_varint(p, end, &wide);
    *v = (uint32_t)wide;
    return wide <= UINT32_MAX ? p : NULL;
}

/* Do the groups make up the picture, and the blob's last bytes? */
static bool check_table(struct fl_slice_table *t, const uint8_t *end)
{
    const uint8_t *p = t->groups;
    uint64_t rows = 0;

    t->data_length = 0;
    for (uint32_t i = 0; i < t->n_groups; i++) {
        uint32_t r, n;
        p = get_u32(p, end, &r);
        p = get_u32(p, end, &n);
        if (!p || !r || !n)
            return false;
        rows += r;
        t->data_length += n;
    }
    t->checksums = p;
    return rows == t->mcu_rows && (uint64_t)(end - p) == 4 * (uint64_t)t->n_groups &&
           t->data_offset + t->data_length <= UINT32_MAX;
}

int fl_slice_table_unpack(struct fl_slice_table *t, const uint8_t *blob, size_t len)
{
    const uint8_t *p = blob, *const end = blob + len;

    memset(t, 0, sizeof(*t));
    if (fl_slice_blob_ids(blob, len, t->header_ids))
        return FL_ERR(EBADMSG);
    p += 4 * FL_SLICE_HEADERS;
    t->frame.n_components = p[1];
    if (p[0] != VERSION || (t->frame.n_components != 1 && t->frame.n_components != 3))
        return FL_ERR(EBADMSG);
    p += 2;
    if (end - p < t->frame.n_components)
        return FL_ERR(EBADMSG);
    for (int i = 0; i < t->frame.n_components; i++, p++) {
        t->frame.h[i] = *p >> 4;
        t->frame.v[i] = *p & 15;
    }
    p = get_u32(p, end, &t->frame.width);
    p = get_u32(p, end, &t->frame.height);
    p = get_u32(p, end, &t->interval);
    p = get_u32(p, end, &t->data_offset);
    p = get_u32(p, end, &t->n_groups);
    if (!p || !complete_table(t) || t->n_groups > t->mcu_rows)
        return FL_ERR(EBADMSG);
    t->groups = p;
    return check_table(t, end) ? 0 : FL_ERR(EBADMSG);
}
