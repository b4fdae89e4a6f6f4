/* SPDX-License-Identifier: Apache-2.0 */
/* Two JPEGs, pixel by pixel. */
#include "jpeg/slice_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"

struct side {
    struct jpeg_decompress_struct cinfo;
    struct fl_codec codec;
    JSAMPLE *row;
    bool failed;
};

/* Header and start of decoding. After a failure side->failed is set and its codec has the words. */
static void begin(struct side *s, const void *data, size_t len)
{
    s->cinfo.err = fl_codec_init(&s->codec);
    if (setjmp(s->codec.jump)) {
        s->failed = true;
        return;
    }
    jpeg_create_decompress(&s->cinfo);
    jpeg_mem_src(&s->cinfo, data, (unsigned long)len);
    jpeg_read_header(&s->cinfo, TRUE);
    jpeg_start_decompress(&s->cinfo);
    s->row = malloc((size_t)s->cinfo.output_width * (size_t)s->cinfo.output_components);
    if (!s->row) {
        s->codec.code = FL_ERR(ENOMEM);
        s->failed = true;
    }
}

static void next_row(struct side *s)
{
    JSAMPROW rows[1] = { s->row };

    if (setjmp(s->codec.jump)) {
        s->failed = true;
        return;
    }
    if (jpeg_read_scanlines(&s->cinfo, rows, 1) != 1)
        s->failed = true;
}

static void end(struct side *s)
{
    free(s->row);
    jpeg_destroy_decompress(&s->cinfo);
}

static int broken(const struct side *s, const char *name, FlError *err)
{
    if (s->codec.code == FL_ERR(ENOMEM))
        return fl_err_set(err, FL_ERR(ENOMEM), FL_STAGE_DECODE,
                          "no memory to compare two pictures");
    return fl_err_set(err, FL_ERR(EBADMSG), FL_STAGE_DECODE, "the %s picture cannot be decoded: %s",
                      name, s->codec.message);
}

static int compare(struct side *a, struct side *b, FlError *err)
{
    const struct jpeg_decompress_struct *p = &a->cinfo, *q = &b->cinfo;

    if (a->failed)
        return broken(a, "first", err);
    if (b->failed)
        return broken(b, "second", err);
    if (p->output_width != q->output_width || p->output_height != q->output_height ||
        p->output_components != q->output_components)
        return fl_err_set(err, FL_ERR(EBADMSG), FL_STAGE_DECODE,
                          "%ux%u pixels of %d components in one picture, %ux%u of %d in the other",
                          p->output_width, p->output_height, p->output_components, q->output_width,
                          q->output_height, q->output_components);
    for (JDIMENSION y = 0; y < p->output_height; y++) {
        next_row(a);
        next_row(b);
        if (a->failed)
            return broken(a, "first", err);
        if (b->failed)
            return broken(b, "second", err);
        if (memcmp(a->row, b->row, (size_t)p->output_width * (size_t)p->output_components))
            return fl_err_set(err, FL_ERR(EBADMSG), FL_STAGE_DECODE, "pixels of row %u differ", y);
    }
    if (fl_codec_warned(&a->codec) != fl_codec_warned(&b->codec))
        return fl_err_set(err, FL_ERR(EBADMSG), FL_STAGE_DECODE,
                          "the codec warns about one picture only: %s%s", a->codec.message,
                          b->codec.message);
    return 0;
}

int fl_slice_compare(const void *a, size_t a_len, const void *b, size_t b_len, FlError *err)
{
    struct side *sides = calloc(2, sizeof(*sides)); // the codec's objects are too large for a stack
    int result;

    if (!sides)
        return fl_err_set(err, FL_ERR(ENOMEM), FL_STAGE_DECODE,
                          "no memory to compare two pictures");
    begin(&sides[0], a, a_len);
    begin(&sides[1], b, b_len);
    result = compare(&sides[0], &sides[1], err);
    end(&sides[0]);
    end(&sides[1]);
    free(sides);
    return result;
}
