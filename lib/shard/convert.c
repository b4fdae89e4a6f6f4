/* SPDX-License-Identifier: Apache-2.0 */
#include "shard/convert.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/hash.h"
#include "index/dataset.h"
#include "index/picture.h"
#include "shard/shrink.h"

struct fl_converter {
    struct fl_convert_cfg cfg;
    const struct fl_index *ix;
    struct fl_bytes in; // one field of the source
    struct fl_slicer *slicer;
    struct fl_shrinker shrinker;
};

int fl_converter_new(struct fl_converter **out, const struct fl_convert_cfg *cfg)
{
    struct fl_converter *c = calloc(1, sizeof(*c));

    if (c) {
        c->cfg = *cfg;
        c->ix = fl_dataset_index(cfg->source);
        c->slicer = fl_slicer_new();
    }
    if (!c || !c->slicer) {
        free(c);
        return fl_err(FL_ERR(ENOMEM), FL_STAGE_PLAN, "no memory for a sharding thread");
    }
    *out = c;
    return 0;
}

void fl_converter_free(struct fl_converter *c)
{
    if (!c)
        return;
    fl_slicer_free(c->slicer);
    fl_shrinker_fini(&c->shrinker);
    fl_bytes_free(&c->in);
    free(c);
}

void fl_prepared_fini(struct fl_prepared *p)
{
    fl_bytes_free(&p->bytes);
    free(p->fields);
    *p = (struct fl_prepared){ 0 };
}

static int no_memory(struct fl_prepared *p)
{
    return fl_err_set(&p->err, FL_ERR(ENOMEM), FL_STAGE_READ,
                      "no memory for a sample of %zu bytes and more (%.100s)", p->bytes.len,
                      p->key);
}

/* Copy bytes behind what the sample has so far. */
static int keep(struct fl_prepared *p, const void *data, size_t len, size_t *offset)
{
    *offset = p->bytes.len;
    return fl_bytes_add(&p->bytes, data, len) ? no_memory(p) : 0;
}

static int keep_content(struct fl_prepared *p, struct fl_prepared_field *f, const void *data,
                        size_t len)
{
    f->length = len;
    f->checksum = fl_checksum32(data, len);
    return keep(p, data, len, &f->offset);
}

/* Put the table of a sliced JPEG into the sample, if the file is one, whoever wrote it. */
static int keep_table(struct fl_converter *c, struct fl_prepared *p, struct fl_prepared_field *f)
{
    struct fl_slice_parts parts;
    int err = fl_slicer_table(c->slicer, p->bytes.data + f->offset, f->length, &parts);

    if (err == FL_ERR(ENOMEM))
        return no_memory(p);
    if (err)
        return 0;
    f->picture = FL_PICTURE_SLICED;
    f->blob_length = parts.blob.len;
    err = keep(p, parts.blob.data, parts.blob.len, &f->blob_offset);
    for (int i = 0; i < FL_SLICE_HEADERS && !err; i++) {
        f->header_length[i] = parts.headers[i].len;
        err = keep(p, parts.headers[i].data, parts.headers[i].len, &f->header_offset[i]);
    }
    return err;
}

static void damaged(struct fl_prepared *p, struct fl_prepared_field *f, const char *words)
{
    f->picture = FL_PICTURE_DAMAGED;
    snprintf(p->warning, sizeof(p->warning), "%s", words);
}

/* Something that is no JPEG: fine if it is another kind of picture, else nobody will decode it. */
static bool is_other_picture(const uint8_t *data, size_t len)
{
    static const struct {
        uint8_t at, n;
        const char *bytes;
    } signs[] = {
        { 0, 8, "\x89PNG\r\n\x1A\n" },
        { 0, 4, "GIF8" },
        { 0, 2, "BM" },
        { 8, 4, "WEBP" },
        { 0, 4, "II*\0" },
        { 0, 4, "MM\0*" },
        { 4, 4, "ftyp" },
        { 0, 2, "\xFF\x0A" },
        { 4, 4, "JXL " },
        { 4, 4, "jP  " },
        { 0, 4, "\xFF\x4F\xFF\x51" },
    };

    for (size_t i = 0; i < sizeof(signs) / sizeof(signs[0]); i++)
        if (len >= (size_t)signs[i].at + signs[i].n &&
            !memcmp(data + signs[i].at, signs[i].bytes, signs[i].n))
            return true;
    return false;
}

/* Make the picture smaller if that is asked for; *data and *len then are the new one. */
static int shrink(struct fl_converter *c, struct fl_prepared *p, struct fl_prepared_field *f,
                  const uint8_t **data, size_t *len)
{
    FlError why;

    if (!c->cfg.max_side && !c->cfg.quality)
        return 0;
    const int got = fl_shrink(&c->shrinker, *data, *len, c->cfg.max_side, c->cfg.quality, &why);
    if (got == FL_ERR(ENOMEM))
        return no_memory(p);
    if (got == FL_ERR(EBADMSG))
        damaged(p, f, why.message);
    f->shrunk = got == 1;
    if (f->shrunk) {
        *data = c->shrinker.out.data;
        *len = c->shrinker.out.len;
    }
    return 0;
}

/* Rewrite it as a sliced JPEG if that can be; *data and *len then are the new one. */
static int slice(struct fl_converter *c, struct fl_prepared *p, struct fl_prepared_field *f,
                 const uint8_t **data, size_t *len)
{
    const struct fl_slice_options opt = { .drop_icc = c->cfg.drop_icc, .check = c->cfg.check };
    struct fl_slice_result r;

    if (!c->cfg.slice || f->picture == FL_PICTURE_DAMAGED)
        return 0;
    if (fl_slicer_rewrite(c->slicer, *data, *len, &opt, &r))
        return no_memory(p);
    if (r.status == FL_SLICE_DAMAGED)
        damaged(p, f, r.reason);
    *data = r.data;
    *len = r.len;
    return 0;
}

static int convert_jpeg(struct fl_converter *c, struct fl_prepared *p, struct fl_prepared_field *f,
                        const uint8_t *data, size_t len)
{
    struct fl_jpeg_header h;
    FlError why;
    int err = fl_jpeg_parse(data, len, &h, &why);
    // From the source: a rewritten file has no EXIF any more.
    const uint8_t orientation = err ? 0 : h.orientation;

    if (err == FL_ERR(EAGAIN) || err == FL_ERR(EBADMSG))
        damaged(p, f, err == FL_ERR(EAGAIN) ? "the file ends inside the header" : why.message);
    if ((err = shrink(c, p, f, &data, &len)) || (err = slice(c, p, f, &data, &len)) ||
        (err = keep_content(p, f, data, len)))
        return err;
    if (f->picture != FL_PICTURE_DAMAGED && (err = keep_table(c, p, f)))
        return err;
    if (fl_picture_of_bytes(p->bytes.data + f->offset, f->length, &f->image))
        f->image.orientation = orientation;
    return 0;
}

static int convert_picture(struct fl_converter *c, struct fl_prepared *p,
                           struct fl_prepared_field *f, const uint8_t *data, size_t len)
{
    const bool jpeg = len >= 2 && data[0] == 0xFF && data[1] == 0xD8;
    int err;

    f->picture = FL_PICTURE_KEPT;
    if (!len)
        damaged(p, f, "the file is empty");
    else if (!jpeg && !is_other_picture(data, len))
        damaged(p, f, "it is no picture of any kind that is known");
    err = jpeg ? convert_jpeg(c, p, f, data, len) : keep_content(p, f, data, len);
    if (f->picture == FL_PICTURE_SLICED)
        f->image.flags |= FL_IMAGE_SLICED;
    if (f->picture == FL_PICTURE_DAMAGED)
        f->image.flags |= FL_IMAGE_DAMAGED;
    return err;
}

/* Fetch one field into c->in. */
static int read_field(struct fl_converter *c, struct fl_prepared *p, int32_t field, uint64_t length)
{
    size_t got = 0;

    c->in.len = 0;
    if (length > SIZE_MAX / 4 || !fl_bytes_room(&c->in, length ? length : 1))
        return no_memory(p);
    const int err = fl_dataset_read(c->cfg.source, p->sample, field, c->in.data, length, &got);
    if (err) {
        p->err = *fl_last_error();
        return err;
    }
    c->in.len = got;
    return 0;
}

static int convert_span(struct fl_converter *c, struct fl_prepared *p, struct fl_prepared_field *f)
{
    struct fl_span span;
    int err = fl_index_span(c->ix, f->field, p->sample, &span);

    if (err) {
        p->err = *fl_last_error();
        return err;
    }
    if (span.container == FL_NO_CONTAINER)
        return 0;
    if ((err = read_field(c, p, f->field, span.length)))
        return err;
    p->n_fields++;
    p->bytes_in += c->in.len;
    if (fl_index_field(c->ix, f->field)->is_image)
        return convert_picture(c, p, f, c->in.data, c->in.len);
    return keep_content(p, f, c->in.data, c->in.len);
}

static int convert_int(struct fl_converter *c, struct fl_prepared *p, struct fl_prepared_field *f)
{
    char digits[32];
    const int err = fl_index_int(c->ix, f->field, p->sample, &f->value);

    if (err == FL_ERR(ENOENT))
        return 0;
    if (err) {
        p->err = *fl_last_error();
        return err;
    }
    const int n = snprintf(digits, sizeof(digits), "%" PRId64, f->value);
    p->n_fields++;
    p->bytes_in += (uint64_t)n;
    return keep_content(p, f, digits, (size_t)n);
}

static int begin(struct fl_converter *c, int64_t sample, struct fl_prepared *p)
{
    p->err = (FlError){ 0 };
    p->sample = sample;
    p->bytes.len = 0;
    p->n_fields = 0;
    p->bytes_in = 0;
    p->warning[0] = 0;
    const int64_t len = fl_index_key(c->ix, sample, p->key, sizeof(p->key));
    if (len < 0) {
        p->err = *fl_last_error();
        return (int)len;
    }
    p->key_len = (size_t)len;
    if (!p->fields)
        p->fields = calloc((size_t)fl_index_info(c->ix)->n_fields, sizeof(*p->fields));
    return p->fields ? 0 : no_memory(p);
}

void fl_convert(struct fl_converter *c, int64_t sample, struct fl_prepared *p)
{
    int err = begin(c, sample, p);

    for (int32_t i = 0; i < fl_index_info(c->ix)->n_fields && !err; i++) {
        struct fl_prepared_field *f = &p->fields[p->n_fields];
        *f = (struct fl_prepared_field){ .field = i, .kind = fl_index_field(c->ix, i)->kind };
        err = f->kind == FL_FIELD_INT ? convert_int(c, p, f) : convert_span(c, p, f);
    }
    if (err && p->err.sample < 0)
        p->err.sample = sample;
}
