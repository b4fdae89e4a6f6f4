/* SPDX-License-Identifier: Apache-2.0 */
/* Class labels: int64, from the index or from decimal digits. */
#include "decoders/decoder.h"

#include <string.h>

#include "base/err.h"

/* A decimal integer with spaces or line ends around it; nothing else. */
static bool parse(const uint8_t *p, size_t len, int64_t *value)
{
    size_t i = 0;
    bool negative = false;
    int64_t v = 0;

    while (len && (p[len - 1] == '\n' || p[len - 1] == '\r' || p[len - 1] == ' '))
        len--;
    while (i < len && p[i] == ' ')
        i++;
    if (i < len && (p[i] == '-' || p[i] == '+'))
        negative = p[i++] == '-';
    if (i == len)
        return false;
    for (; i < len; i++) {
        if (p[i] < '0' || p[i] > '9' || __builtin_mul_overflow(v, 10, &v) ||
            __builtin_sub_overflow(v, p[i] - '0', &v)) // downwards, so that INT64_MIN fits
            return false;
    }
    if (!negative && __builtin_sub_overflow((int64_t)0, v, &v))
        return false;
    *value = v;
    return true;
}

static int decode(void *ctx, struct fl_decode_job *job, FlError *err)
{
    int64_t value = job->field->value;

    (void)ctx;
    if (job->column->from[job->sample->part].kind == FL_FIELD_BYTES &&
        !parse(job->data, job->len, &value))
        return fl_err_set(err, FL_ERR(EBADMSG), FL_STAGE_DECODE,
                          "field \"%s\" is no decimal integer: \"%.*s\"", job->column->cfg.field,
                          (int)(job->len < 20 ? job->len : 20), (const char *)job->data);
    memcpy(job->row, &value, sizeof(value));
    job->row_len = sizeof(value);
    return 0;
}

const struct fl_decoder fl_decoder_label = { .name = "label", .decode = decode };
