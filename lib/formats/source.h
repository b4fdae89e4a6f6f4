/* SPDX-License-Identifier: Apache-2.0 */
/* A container that is being walked: small reads at rising offsets through one buffer. */
#ifndef FL_FORMATS_SOURCE_H
#define FL_FORMATS_SOURCE_H

#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"

struct fl_source {
    int fd;
    const char *path; // for messages
    uint64_t size;    // of the file
    int64_t mtime_ns;
    size_t window;       // bytes of one read, if not more are asked for
    struct fl_bytes buf; // holds [at, at + buf.len) of the file; kept from one file to the next
    uint64_t at;
    uint64_t bytes_read;
};

/* Open a regular file. Zero *s before its first use; path must live as long. Errors have a sentence. */
int fl_source_open(struct fl_source *s, const char *path, size_t window);

/* The same on a descriptor that stays the caller's. */
int fl_source_borrow(struct fl_source *s, int fd, const char *path, size_t window);

/* Close the file; the buffer stays. */
void fl_source_close(struct fl_source *s);
void fl_source_free(struct fl_source *s);

/* `len` bytes at `offset`, which must lie in the file: valid until the next call. More than asked for may be
 * there: *got, if not NULL, says how many. NULL on error (cut meanwhile, EIO, no memory), with a sentence. */
const uint8_t *fl_source_get(struct fl_source *s, uint64_t offset, size_t len, size_t *got);

#endif
