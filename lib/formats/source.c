/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "formats/source.h"

#include <fcntl.h>
#include <inttypes.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/file.h"

int fl_source_borrow(struct fl_source *s, int fd, const char *path, size_t window)
{
    struct stat st;

    if (fstat(fd, &st))
        return fl_err_file(errno, "look at", path);
    if (!S_ISREG(st.st_mode))
        return fl_err(FL_ERR(EINVAL), FL_STAGE_READ, "%s is no regular file", path);
    s->fd = fd;
    s->path = path;
    s->size = (uint64_t)st.st_size;
    s->mtime_ns = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
    s->window = window;
    s->at = 0;
    s->buf.len = 0;
    return 0;
}

int fl_source_open(struct fl_source *s, const char *path, size_t window)
{
    // O_NONBLOCK: opening a pipe by mistake must not wait for its other end.
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    int err;

    if (fd < 0)
        return fl_err_file(errno, "open", path);
    if ((err = fl_source_borrow(s, fd, path, window))) {
        close(fd);
        return err;
    }
    // We jump from header to header: reading ahead would fetch what nobody looks at. Only advice.
    if (s->size > window)
        (void)posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
    return 0;
}

void fl_source_close(struct fl_source *s)
{
    close(s->fd);
    s->fd = -1;
    s->buf.len = 0;
}

void fl_source_free(struct fl_source *s)
{
    fl_bytes_free(&s->buf);
}

const uint8_t *fl_source_get(struct fl_source *s, uint64_t offset, size_t len, size_t *got)
{
    if (offset < s->at || offset + len > s->at + s->buf.len) {
        size_t want = len > s->window ? len : s->window;
        if (want > s->size - offset)
            want = s->size - offset;
        s->buf.len = 0;
        s->at = offset;
        if (!fl_bytes_room(&s->buf, want)) {
            fl_err(FL_ERR(ENOMEM), FL_STAGE_READ, "%s: no memory for %zu bytes", s->path, want);
            return NULL;
        }
        while (s->buf.len < want) {
            const ssize_t n = pread(s->fd, s->buf.data + s->buf.len, want - s->buf.len,
                                    (off_t)(offset + s->buf.len));
            if (n < 0 && errno == EINTR)
                continue;
            if (n < 0) {
                fl_err_file(errno, "read", s->path);
                return NULL;
            }
            if (!n)
                break;
            s->buf.len += (size_t)n;
            s->bytes_read += (uint64_t)n;
        }
        if (s->buf.len < len) {
            fl_err(FL_ERR(EBADMSG), FL_STAGE_READ,
                   "%s was cut while it was read: it ends at byte %" PRIu64, s->path,
                   offset + s->buf.len);
            return NULL;
        }
    }
    if (got)
        *got = (size_t)(s->at + s->buf.len - offset);
    return s->buf.data + (offset - s->at);
}
