/* SPDX-License-Identifier: Apache-2.0 */
/* Processors, memory and what the kernel allows. */
#define _GNU_SOURCE
#include "doctor.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

/* First number in a file, or `otherwise`. */
static long long number_in(const char *path, const char *format, long long otherwise)
{
    FILE *f = fopen(path, "re");
    long long n;

    if (!f)
        return otherwise;
    if (fscanf(f, format, &n) != 1)
        n = otherwise;
    fclose(f);
    return n;
}

/* The quota of a cgroup of version 2, else of version 1, as seen from inside a container. */
static double cpu_quota(void)
{
    long long quota, period;
    FILE *f = fopen("/sys/fs/cgroup/cpu.max", "re");

    if (f) {
        const int n = fscanf(f, "%lld %lld", &quota, &period); // "max 100000" where there is none
        fclose(f);
        return n == 2 && period > 0 ? (double)quota / (double)period : 0;
    }
    quota = number_in("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "%lld", -1);
    period = number_in("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "%lld", 0);
    return quota > 0 && period > 0 ? (double)quota / (double)period : 0;
}

static uint64_t available_memory(void)
{
    char line[128];
    unsigned long long kib = 0;
    FILE *f = fopen("/proc/meminfo", "re");

    while (f && fgets(line, sizeof(line), f))
        if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1)
            break;
    if (f)
        fclose(f);
    return (uint64_t)kib * 1024;
}

static int numa_nodes(void)
{
    char path[64];
    int n = 0;

    do
        snprintf(path, sizeof(path), "/sys/devices/system/node/node%d", n);
    while (access(path, F_OK) == 0 && ++n < 1024);
    return n;
}

/* Ask for the smallest ring there is. 120 bytes of parameters, all zero. */
static int uring_error(void)
{
#ifdef SYS_io_uring_setup
    char params[120] = { 0 };
    const long fd = syscall(SYS_io_uring_setup, 2, params);

    if (fd < 0)
        return errno;
    close((int)fd);
    return 0;
#else
    return ENOSYS;
#endif
}

void doctor_look_at_host(struct doctor_host *h)
{
    struct rlimit lock;
    cpu_set_t set;

    h->online = (int)sysconf(_SC_NPROCESSORS_ONLN);
    h->affinity = sched_getaffinity(0, sizeof(set), &set) ? h->online : CPU_COUNT(&set);
    h->quota = cpu_quota();
    h->available = available_memory();
    h->memlock = getrlimit(RLIMIT_MEMLOCK, &lock) || lock.rlim_cur == RLIM_INFINITY ? UINT64_MAX
                                                                                    : lock.rlim_cur;
    h->nodes = numa_nodes();
    h->uring_error = uring_error();
    h->uring_disabled = (int)number_in("/proc/sys/kernel/io_uring_disabled", "%lld", -1);
}
