/* SPDX-License-Identifier: Apache-2.0 */
#include "jpeg/codec.h"

#include <stdarg.h>
#include <string.h>

#include <feedline/error.h>

#include <jerror.h>

/* The codec's own message table lies in the object file of jpeg_std_error(); this is made from the
 * same public header. */
#define JCOPYRIGHT_SHORT "" // of the codec's private version header
#define JVERSION ""
#define JMESSAGE(code, string) string,
static const char *const messages[] = {
#include <jerror.h>
    NULL
};

static void format_message(j_common_ptr cinfo, char *buffer)
{
    const struct jpeg_error_mgr *m = cinfo->err;
    const char *text = m->msg_code >= 0 && m->msg_code <= m->last_jpeg_message
                           ? m->jpeg_message_table[m->msg_code]
                           : NULL;

    if (!text)
        snprintf(buffer, JMSG_LENGTH_MAX, "codec message %d", m->msg_code);
    else if (strstr(text, "%s"))
        snprintf(buffer, JMSG_LENGTH_MAX, text, m->msg_parm.s);
    else
        snprintf(buffer, JMSG_LENGTH_MAX, text, m->msg_parm.i[0], m->msg_parm.i[1],
                 m->msg_parm.i[2], m->msg_parm.i[3], m->msg_parm.i[4], m->msg_parm.i[5],
                 m->msg_parm.i[6], m->msg_parm.i[7]);
}

/* What the caller of the library should be told. */
static int code_of(int msg)
{
    switch (msg) {
    case JERR_OUT_OF_MEMORY:
        return FL_ERR(ENOMEM);
    case JERR_SOF_UNSUPPORTED:
    case JERR_BAD_PRECISION:
    case JERR_ARITH_NOTIMPL:
    case JERR_NOT_COMPILED:
    case JERR_NOTIMPL:
    case JERR_CCIR601_NOTIMPL:
    case JERR_FRACT_SAMPLE_NOTIMPL:
    case JERR_CONVERSION_NOTIMPL:
    case JERR_COMPONENT_COUNT:
        return FL_ERR(ENOTSUP);
    case JERR_IMAGE_TOO_BIG:
    case JERR_WIDTH_OVERFLOW:
        return FL_ERR(E2BIG);
    default:
        return FL_ERR(EBADMSG);
    }
}

static void error_exit(j_common_ptr cinfo)
{
    struct fl_codec *c = (struct fl_codec *)cinfo->err;

    format_message(cinfo, c->message);
    c->code = code_of(c->mgr.msg_code);
    longjmp(c->jump, 1);
}

_Noreturn void fl_codec_fail(struct fl_codec *c, int code, const char *format, ...)
{
    va_list ap;

    va_start(ap, format);
    vsnprintf(c->message, sizeof(c->message), format, ap);
    va_end(ap);
    c->code = code;
    longjmp(c->jump, 1);
}

/* Stray bytes between the segments before the first scan change no pixel; behind it they are what is
 * left of entropy-coded data that did not decode as it was coded. */
static bool is_harmless(j_common_ptr cinfo)
{
    return cinfo->err->msg_code == JWRN_EXTRANEOUS_DATA && cinfo->is_decompressor &&
           ((j_decompress_ptr)cinfo)->input_scan_number == 0;
}

static void emit_message(j_common_ptr cinfo, int level)
{
    struct fl_codec *c = (struct fl_codec *)cinfo->err;

    if (level >= 0)
        return; // a trace message
    if (!c->mgr.num_warnings++)
        format_message(cinfo, c->message);
    if (c->strict && !is_harmless(cinfo)) {
        format_message(cinfo, c->message);
        c->code = FL_ERR(EBADMSG);
        longjmp(c->jump, 1);
    }
}

static void output_message(j_common_ptr cinfo)
{
    (void)cinfo;
}

static void reset_error_mgr(j_common_ptr cinfo)
{
    struct fl_codec *c = (struct fl_codec *)cinfo->err;

    c->mgr.num_warnings = 0;
    c->mgr.msg_code = 0;
    c->message[0] = '\0';
}

struct jpeg_error_mgr *fl_codec_init(struct fl_codec *c)
{
    memset(c, 0, sizeof(*c));
    c->mgr.error_exit = error_exit;
    c->mgr.emit_message = emit_message;
    c->mgr.output_message = output_message;
    c->mgr.format_message = format_message;
    c->mgr.reset_error_mgr = reset_error_mgr;
    c->mgr.jpeg_message_table = messages;
    c->mgr.last_jpeg_message = JMSG_LASTMSGCODE - 1;
    return &c->mgr;
}

static void count_scans(j_common_ptr cinfo)
{
    struct fl_codec *c = (struct fl_codec *)cinfo->err;

    if (!cinfo->is_decompressor || c->max_scans <= 0 ||
        ((j_decompress_ptr)cinfo)->input_scan_number <= c->max_scans)
        return;
    fl_codec_fail(c, FL_ERR(E2BIG), "more than %d scans (max_scans)", c->max_scans);
}

void fl_codec_limit_scans(struct fl_codec *c, j_decompress_ptr cinfo, int max_scans)
{
    c->max_scans = max_scans;
    c->progress.progress_monitor = count_scans;
    cinfo->progress = &c->progress;
}
