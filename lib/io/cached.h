/* SPDX-License-Identifier: Apache-2.0 */
/* What is in the page cache, found out and copied without ever waiting for a drive. Any thread. */
#ifndef FL_IO_CACHED_H
#define FL_IO_CACHED_H

#include <stdint.h>

/* How a file can be asked. */
enum fl_cached_how {
    FL_CACHED_UNTRIED = 0,
    FL_CACHED_STAT,   // cachestat(2) knows every page of a range
    FL_CACHED_NOWAIT, // reads of single bytes that refuse to wait know the pages that they touch
    FL_CACHED_MEMORY, // the file system is made of memory: tmpfs
    FL_CACHED_NEVER,  // the file system has no reads that refuse to wait
};

/* The best way that works for this file. */
enum fl_cached_how fl_cached_how(int fd);

/* 1: offset .. offset + length was in the page cache a moment ago; 0: not all of it. With
 * FL_CACHED_NOWAIT the middle is taken to be as its ends are. */
int fl_cached(int fd, enum fl_cached_how how, uint64_t offset, uint64_t length);

/* Copy what is in the page cache. Bytes, fewer than length where the cache (or the file) ends;
 * -EAGAIN: not even the first; another negative errno. */
int64_t fl_cached_read(int fd, enum fl_cached_how how, uint8_t *buf, uint64_t length,
                       uint64_t offset);

/* Share (0 to 100) of the file's pages that are in the page cache, looked up at a few places; -1:
 * unknown. */
int fl_cached_share(int fd, uint64_t size);

#endif
