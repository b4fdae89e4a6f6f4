/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "io/cached.h"

#include <errno.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <unistd.h>

#define SYSCALL_CACHESTAT 451 // Linux 6.5, the same number on every architecture
#define TMPFS 0x01021994
#define WINDOWS 16
#define WINDOW_BYTES 65536

/* Pages of the range in the cache, by cachestat(2). -1: the kernel has no such call or refuses
 * (newer kernels want the file to be the caller's own). */
static int64_t pages_cached(int fd, uint64_t offset, uint64_t length)
{
    struct {
        uint64_t offset, length;
    } range = { offset, length };
    struct {
        uint64_t cached, dirty, writeback, evicted, recently_evicted;
    } got;

    return syscall(SYSCALL_CACHESTAT, fd, &range, &got, 0) ? -1 : (int64_t)got.cached;
}

static uint64_t page_size(void)
{
    return (uint64_t)sysconf(_SC_PAGESIZE);
}

static uint64_t pages_of(uint64_t offset, uint64_t length)
{
    const uint64_t page = page_size();

    return (offset + length + page - 1) / page - offset / page;
}

/* One byte, without waiting. 1: there, 0: the file ends before it, -errno. */
static int64_t touch(int fd, uint64_t offset)
{
    uint8_t byte;

    return fl_cached_read(fd, FL_CACHED_NOWAIT, &byte, 1, offset);
}

int64_t fl_cached_read(int fd, enum fl_cached_how how, uint8_t *buf, uint64_t length,
                       uint64_t offset)
{
    const struct iovec v = { .iov_base = buf, .iov_len = (size_t)length };
    const int flags = how == FL_CACHED_MEMORY ? 0 : RWF_NOWAIT; // tmpfs does not know it
    const ssize_t n = preadv2(fd, &v, 1, (off_t)offset, flags);

    return n < 0 ? -errno : n;
}

enum fl_cached_how fl_cached_how(int fd)
{
    struct statfs fs;

    if (!fstatfs(fd, &fs) && fs.f_type == TMPFS)
        return FL_CACHED_MEMORY;
    const int64_t got = touch(fd, 0);
    if (got < 0 && got != -EAGAIN)
        return FL_CACHED_NEVER; // EOPNOTSUPP: FUSE, overlayfs, some network file systems
    return pages_cached(fd, 0, 1) < 0 ? FL_CACHED_NOWAIT : FL_CACHED_STAT;
}

int fl_cached(int fd, enum fl_cached_how how, uint64_t offset, uint64_t length)
{
    if (how == FL_CACHED_STAT)
        return pages_cached(fd, offset, length) >= (int64_t)pages_of(offset, length);
    if (how == FL_CACHED_MEMORY)
        return 1;
    return how == FL_CACHED_NOWAIT && touch(fd, offset + length - 1) == 1 &&
           (pages_of(offset, length) == 1 || touch(fd, offset) == 1);
}

static int share_by_stat(int fd, uint64_t size)
{
    const unsigned n = size <= WINDOWS * (uint64_t)WINDOW_BYTES ? 1 : WINDOWS;
    const uint64_t length = n == 1 ? size : WINDOW_BYTES;
    uint64_t cached = 0, pages = 0;

    for (unsigned i = 0; i < n; i++) {
        const uint64_t page = page_size();
        const uint64_t offset = n == 1 ? 0 : (size - length) / (n - 1) * i / page * page;
        const int64_t got = pages_cached(fd, offset, length);
        if (got < 0)
            return -1;
        cached += (uint64_t)got;
        pages += pages_of(offset, length);
    }
    return pages ? (int)(100 * cached / pages) : -1;
}

static int share_by_touch(int fd, uint64_t size)
{
    int hits = 0;

    for (unsigned i = 0; i < WINDOWS; i++) {
        const int64_t got = touch(fd, (size - 1) / WINDOWS * i);
        if (got < 0 && got != -EAGAIN)
            return -1;
        hits += got == 1;
    }
    return 100 * hits / WINDOWS;
}

int fl_cached_share(int fd, uint64_t size)
{
    if (!size)
        return -1;
    const int share = share_by_stat(fd, size);
    return share >= 0 ? share : share_by_touch(fd, size);
}
