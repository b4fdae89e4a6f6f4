/* SPDX-License-Identifier: Apache-2.0 */
/* zstd frames, one after another, decompressed into the row. The row's room caps the output, whatever
 * the frames declare; a frame's own checksum is compared where it has one. */
#include "decoders/decoder.h"

#include <zstd.h>
#include <zstd_errors.h>

#include "base/err.h"

static int open_context(void **ctx, const struct fl_column *column,
                        const struct fl_settings *settings, uint64_t *bytes)
{
    ZSTD_DCtx *d = ZSTD_createDCtx();

    if (!d)
        return fl_err(FL_ERR(ENOMEM), FL_STAGE_DECODE, "no memory for zstd, column \"%s\"",
                      column->cfg.field);
    ZSTD_DCtx_setParameter(d, ZSTD_d_windowLogMax, settings->cfg.max_window_log);
    *bytes = ZSTD_sizeof_DCtx(d); // one-shot decompression needs no window
    *ctx = d;
    return 0;
}

static void close_context(void *ctx)
{
    ZSTD_freeDCtx(ctx);
}

static int fail(const struct fl_decode_job *job, FlError *err, size_t result)
{
    const char *field = job->column->cfg.field;

    switch (ZSTD_getErrorCode(result)) {
    case ZSTD_error_dstSize_tooSmall:
        return fl_err_set(err, FL_ERR(E2BIG), FL_STAGE_DECODE,
                          "field \"%s\" is longer than %llu bytes when decompressed", field,
                          (unsigned long long)job->row_room);
    case ZSTD_error_frameParameter_windowTooLarge:
        return fl_err_set(err, FL_ERR(E2BIG), FL_STAGE_DECODE,
                          "field \"%s\" was compressed with a window larger than max_window_log "
                          "allows",
                          field);
    case ZSTD_error_dictionary_wrong:
        return fl_err_set(err, FL_ERR(ENOTSUP), FL_STAGE_DECODE,
                          "field \"%s\" needs zstd dictionary %u", field,
                          ZSTD_getDictID_fromFrame(job->data, job->len));
    default:
        return fl_err_set(err, FL_ERR(EBADMSG), FL_STAGE_DECODE, "field \"%s\": zstd says: %s",
                          field, ZSTD_getErrorName(result));
    }
}

static int decode(void *ctx, struct fl_decode_job *job, FlError *err)
{
    const uint64_t need = job->column->row_bytes; // 0: any length

    ZSTD_DCtx_reset(ctx, ZSTD_reset_session_only);
    // One shot: no window buffer is needed, all frames are taken, skippable ones passed over.
    const size_t n = ZSTD_decompressDCtx(ctx, job->row, job->row_room, job->data, job->len);
    if (ZSTD_isError(n))
        return fail(job, err, n);
    if (need && n != need)
        return fl_err_set(
            err, FL_ERR(EBADMSG), FL_STAGE_DECODE,
            "field \"%s\" has %zu bytes when decompressed, but the column's shape needs "
            "%llu",
            job->column->cfg.field, n, (unsigned long long)need);
    job->row_len = n;
    return 0;
}

const struct fl_decoder fl_decoder_zstd = {
    .name = "zstd", .open = open_context, .decode = decode, .close = close_context
};
