/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "base/thread.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

int fl_thread_start(pthread_t *thread, const char *name, void *(*body)(void *), void *arg)
{
    sigset_t all, old;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old); // the new thread inherits the mask
    const int err = pthread_create(thread, NULL, body, arg);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (err)
        return -err;
    char cut[16]; // the kernel takes no more
    strncpy(cut, name, sizeof(cut) - 1);
    cut[sizeof(cut) - 1] = 0;
    pthread_setname_np(*thread, cut);
    return 0;
}

void fl_thread_give_way(void)
{
    // On Linux 0 is the calling thread. What a caller has lowered already stays below it; 19 is the most.
    errno = 0;
    const int now = getpriority(PRIO_PROCESS, 0);
    if (now != -1 || !errno)
        setpriority(PRIO_PROCESS, 0, now + 10);
}

int fl_cond_init(pthread_cond_t *cond)
{
    pthread_condattr_t attr;
    int err = pthread_condattr_init(&attr);

    if (err)
        return -err;
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    err = pthread_cond_init(cond, &attr);
    pthread_condattr_destroy(&attr);
    return -err;
}

int fl_cond_wait_until(pthread_cond_t *cond, pthread_mutex_t *lock, int64_t deadline)
{
    if (deadline == INT64_MAX)
        return -pthread_cond_wait(cond, lock);
    const struct timespec t = { .tv_sec = deadline / 1000000000, .tv_nsec = deadline % 1000000000 };
    return -pthread_cond_timedwait(cond, lock, &t);
}

/* Quota of a cgroup as whole processors, 0 if there is none. `line` is "QUOTA PERIOD" or "max ...".
 */
static int quota_of(const char *line)
{
    long long quota, period;

    if (sscanf(line, "%lld %lld", &quota, &period) != 2 || quota <= 0 || period <= 0)
        return 0;
    return (int)((quota + period - 1) / period);
}

static int read_line(const char *path, char *line, size_t size)
{
    FILE *f = fopen(path, "re");

    if (!f)
        return -errno;
    const char *got = fgets(line, (int)size, f);
    fclose(f);
    return got ? 0 : -EIO;
}

static int cgroup_quota(void)
{
    char line[128], quota[64], period[64];

    // Version 2 first; in a container the process's own group is the root of what it sees.
    if (!read_line("/sys/fs/cgroup/cpu.max", line, sizeof(line)))
        return quota_of(line);
    if (!read_line("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", quota, sizeof(quota)) &&
        !read_line("/sys/fs/cgroup/cpu/cpu.cfs_period_us", period, sizeof(period))) {
        quota[strcspn(quota, "\n")] = 0;
        snprintf(line, sizeof(line), "%s %s", quota, period);
        return quota_of(line);
    }
    return 0;
}

int fl_cpu_count(void)
{
    cpu_set_t set;
    int n = 1;

    if (!sched_getaffinity(0, sizeof(set), &set))
        n = CPU_COUNT(&set);
    const int quota = cgroup_quota();
    if (quota > 0 && quota < n)
        n = quota;
    const char *local = getenv("LOCAL_WORLD_SIZE");
    const int ranks = local ? atoi(local) : 1;
    if (ranks > 1)
        n /= ranks;
    return n > 0 ? n : 1;
}
