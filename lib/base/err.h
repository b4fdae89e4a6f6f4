/* SPDX-License-Identifier: Apache-2.0 */
/* Failures: a code for the caller's program and one sentence for the person. */
#ifndef FL_BASE_ERR_H
#define FL_BASE_ERR_H

#include <feedline/error.h>

/* The calling thread's last failure; fl_last_error() shows it to the user. */
FlError *fl_err_slot(void);

/* Forget what is known and begin a new failure: code, stage, message; everything else "not
 * concerned". Returns code, so that `return fl_err(...)` reads well. */
int fl_err(int code, FlStage stage, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Fill a failure that travels with its sample, without touching the thread's slot. Returns code. */
int fl_err_set(FlError *err, int code, FlStage stage, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Where it happened: path of the container (cut from the left when too long) and byte offset. */
void fl_err_at(FlError *err, const char *container, uint64_t offset);

/* "EBADMSG" for FL_ERR(EBADMSG); "?" for a code that error.h does not list. Static string. */
const char *fl_err_name(int code);

/* Show a stored failure as the calling thread's last one. Returns its code. */
int fl_err_raise(const FlError *err);

#endif
