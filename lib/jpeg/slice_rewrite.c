/* SPDX-License-Identifier: Apache-2.0 */
/* JPEG -> sliced JPEG through the codec's coefficient interface: nothing is requantised. */
#include "jpeg/slice_internal.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "jpeg/header.h"

#define MAX_BLOCKS_IN_MCU 10 // of an interleaved scan

uint32_t fl_slice_interval(uint32_t mcus, uint32_t mcu_width)
{
    uint32_t near = 0, below = 1, best = UINT32_MAX;

    for (uint32_t d = 1; d <= mcus; d++) {
        const uint32_t pixels = d * mcu_width;
        const uint32_t distance = pixels > 64 ? pixels - 64 : 64 - pixels;
        if (mcus % d)
            continue;
        if (pixels <= 64)
            below = d;
        if (pixels >= 48 && pixels <= 128 && distance < best) {
            near = d;
            best = distance;
        }
    }
    return near ? near : below;
}

struct fl_slicer *fl_slicer_new(void)
{
    return calloc(1, sizeof(struct fl_slicer));
}

void fl_slicer_free(struct fl_slicer *s)
{
    if (!s)
        return;
    free(s->out.data);
    free(s->table.data);
    free(s);
}

int fl_slice_memory_reserve(struct fl_slice_memory *m, size_t size)
{
    size_t cap = m->cap ? m->cap : 65536;
    uint8_t *grown;

    if (size <= m->cap)
        return 0;
    while (cap < size)
        cap *= 2;
    grown = realloc(m->data, cap);
    if (!grown)
        return FL_ERR(ENOMEM);
    m->data = grown;
    m->cap = cap;
    return 0;
}

/* ---- the codec's destination: memory that grows ------------------------------------------------- */

static void start_output(j_compress_ptr c)
{
    struct fl_slicer *s = c->client_data;

    c->dest->next_output_byte = s->out.data;
    c->dest->free_in_buffer = s->out.cap;
}

static boolean more_output(j_compress_ptr c)
{
    struct fl_slicer *s = c->client_data;
    const size_t used = s->out.cap; // the codec calls when all of the buffer is written

    if (fl_slice_memory_reserve(&s->out, used + 1)) {
        s->codec.code = FL_ERR(ENOMEM);
        longjmp(s->codec.jump, 1);
    }
    c->dest->next_output_byte = s->out.data + used;
    c->dest->free_in_buffer = s->out.cap - used;
    return TRUE;
}

static void end_output(j_compress_ptr c)
{
    struct fl_slicer *s = c->client_data;

    s->out.len = (size_t)(c->dest->next_output_byte - s->out.data);
}

/* ---- what can be sliced ------------------------------------------------------------------------- */

static void say(struct fl_slice_result *r, enum fl_slice_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void say(struct fl_slice_result *r, enum fl_slice_status status, const char *format, ...)
{
    va_list ap;

    r->status = status;
    va_start(ap, format);
    vsnprintf(r->reason, sizeof(r->reason), format, ap);
    va_end(ap);
}

/* After the header: false, with the reason, where the file stays as it is. */
static bool header_allows(const struct fl_slicer *s, const struct fl_slice_options *opt,
                          struct fl_slice_result *r)
{
    const struct jpeg_decompress_struct *d = &s->src;
    const uint64_t max_pixels = opt->max_pixels ? opt->max_pixels : 178956970;

    if (d->data_precision != 8)
        say(r, FL_SLICE_KEPT, "%d bits per sample", d->data_precision);
    else if (d->arith_code)
        say(r, FL_SLICE_KEPT, "arithmetic coding");
    else if (d->num_components != 1 && d->num_components != 3)
        say(r, FL_SLICE_KEPT, "%d components", d->num_components);
    else if ((uint64_t)d->image_width * d->image_height > max_pixels)
        say(r, FL_SLICE_KEPT, "%ux%u pixels are more than max_pixels (%llu)", d->image_width,
            d->image_height, (unsigned long long)max_pixels);
    else
        return true;
    return false;
}

/* After the last scan: a progressive file without its last refinements is smoothed by the decoder, which
 * a baseline one is not, so its pixels would change. */
static bool is_complete(const struct jpeg_decompress_struct *d)
{
    if (!d->progressive_mode || !d->coef_bits)
        return true;
    for (int c = 0; c < d->num_components; c++)
        for (int k = 0; k < DCTSIZE2; k++)
            if (d->coef_bits[c][k] != 0)
                return false;
    return true;
}

static int gcd(int a, int b)
{
    return b ? gcd(b, a % b) : a;
}

/* Sampling factors without a common divisor: the smallest MCU that holds the same coefficients. False
 * where even that one is too large for a scan of all components. */
static bool reduce_sampling(j_compress_ptr c)
{
    int h = 0, v = 0, blocks = 0;

    for (int i = 0; i < c->num_components; i++) {
        h = gcd(c->comp_info[i].h_samp_factor, h);
        v = gcd(c->comp_info[i].v_samp_factor, v);
    }
    for (int i = 0; i < c->num_components; i++) {
        c->comp_info[i].h_samp_factor /= h;
        c->comp_info[i].v_samp_factor /= v;
        blocks += c->comp_info[i].h_samp_factor * c->comp_info[i].v_samp_factor;
    }
    return blocks <= MAX_BLOCKS_IN_MCU;
}

/* ---- writing ------------------------------------------------------------------------------------- */

static uint32_t interval_of(j_compress_ptr c, const struct jpeg_decompress_struct *d,
                            const struct fl_slice_options *opt)
{
    uint32_t h_max = 1, mcus;

    for (int i = 0; i < c->num_components; i++)
        if ((uint32_t)c->comp_info[i].h_samp_factor > h_max)
            h_max = (uint32_t)c->comp_info[i].h_samp_factor;
    mcus = (d->image_width + 8 * h_max - 1) / (8 * h_max);
    return opt->interval ? opt->interval : fl_slice_interval(mcus, 8 * h_max);
}

/* Everything from jpeg_write_coefficients() on. False: kept, with the reason. */
static bool write_sliced(struct fl_slicer *s, jvirt_barray_ptr *coefficients,
                         const struct fl_slice_options *opt, struct fl_slice_result *r)
{
    j_decompress_ptr d = &s->src;
    j_compress_ptr c = &s->dst;

    jpeg_copy_critical_parameters(d, c);
    if (!reduce_sampling(c)) {
        say(r, FL_SLICE_KEPT, "its sampling factors do not fit one scan");
        return false;
    }
    c->write_JFIF_header = d->saw_JFIF_marker; // with these, readers choose the same colour space
    c->write_Adobe_marker = d->saw_Adobe_marker;
    c->optimize_coding = TRUE;
    c->restart_interval = interval_of(c, d, opt);
    jpeg_write_coefficients(c, coefficients);
    if (!opt->drop_icc)
        for (jpeg_saved_marker_ptr m = d->marker_list; m; m = m->next)
            if (m->data_length >= 14 && !memcmp(m->data, "ICC_PROFILE", 12))
                jpeg_write_marker(c, m->marker, m->data, m->data_length);
    jpeg_finish_compress(c);
    return true;
}

/* Body of the rewrite, left by longjmp where the codec fails. True: s->out is a sliced JPEG. */
static bool rewrite(struct fl_slicer *s, const void *src, size_t len,
                    const struct fl_slice_options *opt, struct fl_slice_result *r)
{
    j_decompress_ptr d = &s->src;
    jvirt_barray_ptr *coefficients;

    fl_codec_limit_scans(&s->codec, d, opt->max_scans ? opt->max_scans : 100);
    jpeg_mem_src(d, src, (unsigned long)len);
    jpeg_save_markers(d, JPEG_APP0 + 2, 0xFFFF);
    jpeg_read_header(d, TRUE);
    r->width = d->image_width;
    r->height = d->image_height;
    r->progressive = d->progressive_mode;
    if (!header_allows(s, opt, r))
        return false;
    coefficients = jpeg_read_coefficients(d);
    if (fl_codec_warned(&s->codec)) {
        say(r, FL_SLICE_DAMAGED, "%s", s->codec.message);
        return false;
    }
    if (!is_complete(d)) {
        say(r, FL_SLICE_KEPT, "a progressive file that ends before its last refinement");
        return false;
    }
    s->writing =
        true; // from here on a failure of the codec means that the picture is odd, not damaged
    return write_sliced(s, coefficients, opt, r);
}

static int open_codec(struct fl_slicer *s)
{
    struct jpeg_error_mgr *err = fl_codec_init(&s->codec);

    s->writing = false;
    s->src.err = s->dst.err = err;
    s->dest.init_destination = start_output;
    s->dest.empty_output_buffer = more_output;
    s->dest.term_destination = end_output;
    return fl_slice_memory_reserve(&s->out, 1);
}

/* What a failure of the codec means for the picture. */
static int failed(struct fl_slicer *s, struct fl_slice_result *r)
{
    if (s->codec.code == FL_ERR(ENOMEM))
        return FL_ERR(ENOMEM);
    if (s->codec.code == FL_ERR(EBADMSG) && !s->writing)
        say(r, FL_SLICE_DAMAGED, "%s", s->codec.message);
    else
        say(r, FL_SLICE_KEPT, "%s", s->codec.message);
    return 0;
}

static int run_codec(struct fl_slicer *s, const void *src, size_t len,
                     const struct fl_slice_options *opt, struct fl_slice_result *r, bool *written)
{
    int err = open_codec(s);

    if (err)
        return err;
    memset(&s->src, 0, sizeof(s->src));
    memset(&s->dst, 0, sizeof(s->dst));
    s->src.err = s->dst.err = &s->codec.mgr;
    if (setjmp(s->codec.jump)) {
        err = failed(s, r);
    } else {
        jpeg_create_decompress(&s->src);
        jpeg_create_compress(&s->dst);
        s->dst.client_data = s;
        s->dst.dest = &s->dest;
        *written = rewrite(s, src, len, opt, r);
    }
    jpeg_destroy_compress(&s->dst); // fine with objects that were never created
    jpeg_destroy_decompress(&s->src);
    return err;
}

int fl_slicer_rewrite(struct fl_slicer *s, const void *src, size_t len,
                      const struct fl_slice_options *opt, struct fl_slice_result *r)
{
    static const struct fl_slice_options defaults;
    struct fl_jpeg_header header;
    bool written = false;
    FlError why;
    int err;

    *r = (struct fl_slice_result){ .status = FL_SLICE_KEPT, .data = src, .len = len };
    r->orientation = 1;
    if (!fl_jpeg_parse(src, len, &header, NULL))
        r->orientation = header.orientation;
    if (!opt)
        opt = &defaults;
    err = run_codec(s, src, len, opt, r, &written);
    if (err || !written)
        return err;
    if (s->out.len == len && !memcmp(s->out.data, src, len)) {
        say(r, FL_SLICE_ALREADY, "it is a sliced JPEG");
        return 0;
    }
    if (opt->check && (err = fl_slice_compare(src, len, s->out.data, s->out.len, &why))) {
        say(r, FL_SLICE_KEPT, "slicing would change it: %s", why.message);
        return err == FL_ERR(ENOMEM) ? err : 0;
    }
    r->status = FL_SLICE_SLICED;
    r->data = s->out.data;
    r->len = s->out.len;
    return 0;
}
