/* SPDX-License-Identifier: Apache-2.0 */
#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* One error per thread, like errno: fixed size, so that reporting "out of memory" needs none. */
static _Thread_local FlError last_error;

static const struct {
    int code;
    const char *text;
} texts[] = {
    { 0, "success" },
    { FL_EPOCH_END, "the epoch is over" },
    { FL_ERR(EINVAL), "an option or argument is wrong" },
    { FL_ERR(ENOENT), "not found" },
    { FL_ERR(EEXIST), "already there" },
    { FL_ERR(ENOMEM), "out of memory or budget" },
    { FL_ERR(ENOSPC), "the disk is full" },
    { FL_ERR(EACCES), "permission denied" },
    { FL_ERR(EIO), "input/output error" },
    { FL_ERR(EBADMSG), "data is damaged" },
    { FL_ERR(ESTALE), "the index does not fit its containers" },
    { FL_ERR(ENOTSUP), "not supported" },
    { FL_ERR(E2BIG), "a limit was reached" },
    { FL_ERR(EBUSY), "every slot is held" },
    { FL_ERR(EAGAIN), "not ready yet" },
    { FL_ERR(ETIMEDOUT), "no progress in time" },
    { FL_ERR(ECANCELED), "stopped" },
    { FL_ERR(ECHILD), "opened by another process" },
    { FL_ERR(ENODEV), "no such device" },
};

static const char *const stage_names[FL_N_STAGES] = {
    "plan", "read", "decode", "augment", "batch", "device", "consumer",
};

const char *fl_stage_name(FlStage stage)
{
    return (unsigned)stage < FL_N_STAGES ? stage_names[stage] : "?";
}

const char *fl_strerror(int code)
{
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        if (texts[i].code == code)
            return texts[i].text;
    return "unexpected error";
}

FlError *fl_err_slot(void)
{
    return &last_error;
}

const FlError *fl_last_error(void)
{
    return &last_error;
}

static int set(FlError *err, int code, FlStage stage, const char *format, va_list ap)
{
    *err = (FlError){
        .code = code, .stage = stage, .sample = -1, .position = -1, .offset = UINT64_MAX
    };
    vsnprintf(err->message, sizeof(err->message), format, ap);
    return code;
}

int fl_err(int code, FlStage stage, const char *format, ...)
{
    va_list ap;

    va_start(ap, format);
    set(&last_error, code, stage, format, ap);
    va_end(ap);
    return code;
}

int fl_err_set(FlError *err, int code, FlStage stage, const char *format, ...)
{
    va_list ap;

    va_start(ap, format);
    set(err, code, stage, format, ap);
    va_end(ap);
    return code;
}

void fl_err_at(FlError *err, const char *container, uint64_t offset)
{
    const size_t n = strlen(container), room = sizeof(err->container);

    err->offset = offset;
    if (n < room) {
        memcpy(err->container, container, n + 1);
        return;
    }
    // The end of a path says more than its beginning. Skip UTF-8 continuation bytes at the cut.
    const char *tail = container + (n - (room - 4));
    while ((*tail & 0xC0) == 0x80)
        tail++;
    memcpy(err->container, "...", 3);
    memcpy(err->container + 3, tail, strlen(tail) + 1);
}

int fl_err_raise(const FlError *err)
{
    last_error = *err;
    return err->code;
}
