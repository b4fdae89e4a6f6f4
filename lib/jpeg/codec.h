/* SPDX-License-Identifier: Apache-2.0 */
/* What every use of libjpeg-turbo in the library needs: an error manager of our own.
 * jpeg_std_error() is never called, so that the codec's archive and another copy of it in the
 * process stay apart, and nothing is ever printed. An error jumps, a warning is counted and its
 * words are kept. */
#ifndef FL_JPEG_CODEC_H
#define FL_JPEG_CODEC_H

#include <setjmp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <jpeglib.h>

struct fl_codec {
    struct jpeg_error_mgr mgr; // first: the codec hands back a pointer to it
    jmp_buf jump;              // set by the caller before any call that may fail
    int code;      // FL_ERR of the failure that jumped: EBADMSG, ENOTSUP, ENOMEM or E2BIG
    int max_scans; // of a progressive file; 0: no limit
    bool strict;   // a warning jumps as well, but for stray bytes before the first scan
    struct jpeg_progress_mgr progress;
    char message[JMSG_LENGTH_MAX]; // words of the first warning, or of the failure
};

/* Set *c up and return what belongs into cinfo->err. */
struct jpeg_error_mgr *fl_codec_init(struct fl_codec *c);

/* Let a decompressor fail with FL_ERR(E2BIG) beyond max_scans scans. After
 * jpeg_create_decompress(). */
void fl_codec_limit_scans(struct fl_codec *c, j_decompress_ptr cinfo, int max_scans);

/* Fail from inside a call of the codec, as the codec itself would. */
_Noreturn void fl_codec_fail(struct fl_codec *c, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static inline bool fl_codec_warned(const struct fl_codec *c)
{
    return c->mgr.num_warnings > 0;
}

#endif
