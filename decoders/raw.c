/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes as they are. The plan has checked their number. */
#include "decoders/decoder.h"

#include <string.h>

static int decode(void *ctx, struct fl_decode_job *job, FlError *err)
{
    (void)ctx;
    (void)err;
    if (job->row && job->len)
        memcpy(job->row, job->data, job->len);
    job->row_len = job->len;
    return 0;
}

const struct fl_decoder fl_decoder_raw = { .name = "raw", .decode = decode };
