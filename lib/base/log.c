/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>

void fl_log(const struct fl_log *log, FlLogLevel level, const char *format, ...)
{
    char line[1024];
    va_list ap;

    if (!log || !log->fn)
        return;
    va_start(ap, format);
    vsnprintf(line, sizeof(line), format, ap);
    va_end(ap);
    if (log->lock)
        pthread_mutex_lock(log->lock);
    log->fn(log->cookie, level, line);
    if (log->lock)
        pthread_mutex_unlock(log->lock);
}
