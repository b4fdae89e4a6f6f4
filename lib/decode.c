/* SPDX-License-Identifier: Apache-2.0 */
#include "decode.h"

#include <string.h>

#include "base/err.h"
#include "base/hash.h"
#include "decoders/decoder.h"

int fl_decode_open(struct fl_decode *d, const struct fl_settings *settings, uint64_t *bytes)
{
    int err = 0;

    *d = (struct fl_decode){ .settings = settings };
    *bytes = 0;
    for (unsigned i = 0; i < settings->n_columns && !err; i++) {
        const struct fl_decoder *dec = settings->columns[i].decoder;
        uint64_t n = 0;
        if (dec->open)
            err = dec->open(&d->ctx[i], &settings->columns[i], settings, &n);
        *bytes += n;
    }
    if (err)
        fl_decode_close(d);
    return err;
}

void fl_decode_close(struct fl_decode *d)
{
    for (unsigned i = 0; d->settings && i < d->settings->n_columns; i++)
        if (d->ctx[i])
            d->settings->columns[i].decoder->close(d->ctx[i]);
    *d = (struct fl_decode){ 0 };
}

static int check_bytes(const struct fl_column *c, unsigned part, const struct fl_sample_field *f,
                       const struct fl_read_req *req, FlError *err)
{
    if (!c->from[part].checksums || !f->whole)
        return 0;
    const uint32_t sum = fl_checksum32(req->data, (size_t)req->length);
    return sum == f->span.checksum
               ? 0
               : fl_err_set(
                     err, FL_ERR(EBADMSG), FL_STAGE_READ,
                     "field \"%s\" has checksum %08x, but the index says %08x: its %llu bytes "
                     "have changed",
                     c->cfg.field, sum, f->span.checksum, (unsigned long long)req->length);
}

static int decode_column(struct fl_decode *d, const struct fl_column *c, struct fl_sample *s,
                         uint8_t *row, int64_t *length)
{
    struct fl_sample_field *f = &s->fields[c->index];
    struct fl_decode_job job = {
        .column = c, .sample = s, .field = f, .row = row, .row_room = c->max_row
    };
    int err;

    if (!f->present) { // an optional column
        if (c->row_bytes)
            memset(row, 0, c->row_bytes);
        return 0;
    }
    if (f->read >= 0) {
        const struct fl_read_req *req = &s->reads[f->read];
        if ((err = check_bytes(c, s->part, f, req, &s->err)))
            return err;
        job.data = req->data;
        job.len = (size_t)req->length;
        if (req->dst)
            job.row = NULL; // it is there already
    }
    if ((err = c->decoder->decode(d->ctx[c->index], &job, &s->err)))
        return err;
    if (length)
        *length = (int64_t)job.row_len;
    return 0;
}

/* Of a slice the codec sees a file that was put together in memory: then the field has to do. */
void fl_decode_locate(const struct fl_sample_field *f, FlError *err)
{
    const bool known = err->offset <= f->span.length && f->whole && !f->sliced;

    err->offset = f->span.offset + (known ? err->offset : 0);
}

void fl_decode_sample(struct fl_decode *d, struct fl_sample *s, uint8_t *const rows[FL_MAX_COLUMNS],
                      int64_t *const lengths[FL_MAX_COLUMNS])
{
    for (unsigned i = 0; i < d->settings->n_columns && !s->err.code; i++) {
        const struct fl_column *c = &d->settings->columns[i];
        if (s->on_gpu & 1u << i)
            continue;
        if (!decode_column(d, c, s, rows[i], lengths[i]))
            continue;
        s->err_column = (int)i;
        if (s->fields[i].read >= 0)
            fl_decode_locate(&s->fields[i], &s->err);
    }
}
