/* SPDX-License-Identifier: Apache-2.0 */
/* Messages to the caller's callback. */
#ifndef FL_BASE_LOG_H
#define FL_BASE_LOG_H

#include <feedline/log.h>
#include <pthread.h>

struct fl_log {
    FlLogFn fn; // NULL: nobody listens
    void *cookie;
    pthread_mutex_t *lock; // one call at a time; NULL where only one thread logs
};

void fl_log(const struct fl_log *log, FlLogLevel level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
