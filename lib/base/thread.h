/* SPDX-License-Identifier: Apache-2.0 */
/* Threads of ours, and how many of them a process may use. */
#ifndef FL_BASE_THREAD_H
#define FL_BASE_THREAD_H

#include <pthread.h>
#include <stdint.h>

/* Start a thread with every signal blocked (handlers stay with the caller's threads) and a name of
 * at most 15 bytes. Returns 0 or a negative errno. */
int fl_thread_start(pthread_t *thread, const char *name, void *(*body)(void *), void *arg);

/* The calling thread gives way: a thread of usual priority that wants its processor gets nine tenths of it. For those
 * that decode, so that as many of them as there are processors do not slow the thread that launches the training
 * step; with nobody else about they lose nothing. */
void fl_thread_give_way(void);

/* pthread_cond_t that waits on CLOCK_MONOTONIC. Returns 0 or a negative errno. */
int fl_cond_init(pthread_cond_t *cond);

/* Wait until `deadline` (fl_now_ns() scale); INT64_MAX waits without limit. Returns 0 or
 * -ETIMEDOUT. */
int fl_cond_wait_until(pthread_cond_t *cond, pthread_mutex_t *lock, int64_t deadline);

/* Processors that this process may use: the smaller of its affinity mask and its cgroup's CPU quota
 * (rounded up), divided by LOCAL_WORLD_SIZE where a launcher set it; at least 1. */
int fl_cpu_count(void);

#endif
