/* SPDX-License-Identifier: Apache-2.0 */
#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* One error per thread, like errno: fixed size, so that reporting "out of memory" needs none. */
static _Thread_local FlError last_error;

#define ROW(name, text)                                                                            \
    {                                                                                              \
        FL_ERR(name), #name, text                                                                  \
    }

static const struct {
    int code;
    const char *name, *text;
} texts[] = {
    { 0, "OK", "success" },
    { FL_EPOCH_END, "EPOCH_END", "the epoch is over" },
    ROW(EINVAL, "an option or argument is wrong"),
    ROW(ENOENT, "not found"),
    ROW(EEXIST, "already there"),
    ROW(ENOMEM, "out of memory or budget"),
    ROW(ENOSPC, "the disk is full"),
    ROW(EACCES, "permission denied"),
    ROW(EIO, "input/output error"),
    ROW(EBADMSG, "data is damaged"),
    ROW(ESTALE, "the index does not fit its containers"),
    ROW(ENOTSUP, "not supported"),
    ROW(E2BIG, "a limit was reached"),
    ROW(EBUSY, "every slot is held"),
    ROW(EAGAIN, "not ready yet"),
    ROW(ETIMEDOUT, "no progress in time"),
    ROW(ECANCELED, "stopped"),
    ROW(ECHILD, "opened by another process"),
    ROW(ENODEV, "no such device"),
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

const char *fl_err_name(int code)
{
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        if (texts[i].code == code)
            return texts[i].name;
    return "?";
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
