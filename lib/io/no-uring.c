/* SPDX-License-Identifier: Apache-2.0 */
/* In place of io/uring.c in builds without liburing. */
#include "io/io.h"

#include "base/err.h"

static int open_refuses(struct fl_io **out, const struct fl_io_cfg *cfg)
{
    (void)out;
    (void)cfg;
    return fl_err(FL_ERR(ENOSYS), FL_STAGE_READ, "this build has no io_uring (FL_URING=off)");
}

const struct fl_io_ops fl_io_uring = { .name = "io_uring", .open = open_refuses };
