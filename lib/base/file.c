/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"

char *fl_path_join(const char *dir, const char *name)
{
    const size_t n = strlen(dir), m = strlen(name);
    const size_t slash = n && dir[n - 1] != '/';
    char *path = malloc(n + slash + m + 1);

    if (!path)
        return NULL;
    memcpy(path, dir, n);
    if (slash)
        path[n] = '/';
    memcpy(path + n + slash, name, m + 1);
    return path;
}

int fl_err_file(int err, const char *verb, const char *path)
{
    char reason[128];

    if (err == ENOSPC || err == EDQUOT)
        return fl_err(FL_ERR(ENOSPC), FL_STAGE_PLAN, "cannot %s %s: the disk is full", verb, path);
    // Other codes of the operating system are not part of the contract of error.h.
    const int code = err == ENOENT || err == EACCES || err == EEXIST || err == ENOMEM ? err : EIO;
    return fl_err(FL_ERR(code), FL_STAGE_PLAN, "cannot %s %s: %s", verb, path,
                  strerror_r(err, reason, sizeof(reason)));
}

int fl_write_all(int fd, const void *data, size_t len)
{
    const char *p = data;

    while (len) {
        const ssize_t n = write(fd, p, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        if (!n)
            return -EIO;
        p += n;
        len -= (size_t)n;
    }
    return 0;
}

int fl_fsync_dir(const char *dir)
{
    const int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0)
        return fl_err_file(errno, "open", dir);
    // EINVAL: this file system has no such operation (some network and FUSE ones).
    const int err = fsync(fd) && errno != EINVAL && errno != ENOTSUP ? errno : 0;
    close(fd);
    return err ? fl_err_file(err, "flush", dir) : 0;
}

static int write_file(const char *path, const void *data, size_t len)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);

    if (fd < 0)
        return fl_err_file(errno, "create", path);
    int err = -fl_write_all(fd, data, len);
    if (!err && fsync(fd))
        err = errno;
    if (close(fd) && !err)
        err = errno;
    return err ? fl_err_file(err, "write", path) : 0;
}

/* Names of this process, so that two of them never write the same temporary file. */
static char *temporary_name(const char *dir, const char *name)
{
    char *path = NULL;
    const size_t n = strlen(dir);
    const char *slash = n && dir[n - 1] != '/' ? "/" : "";

    return asprintf(&path, "%s%s.%s.%ld.tmp", dir, slash, name, (long)getpid()) < 0 ? NULL : path;
}

int fl_file_replace(const char *dir, const char *name, const void *data, size_t len)
{
    char *path = fl_path_join(dir, name), *tmp = temporary_name(dir, name);
    int err;

    if (!path || !tmp)
        err = fl_err(FL_ERR(ENOMEM), FL_STAGE_PLAN, "no memory for the path of %s", name);
    else if (!(err = write_file(tmp, data, len)) && rename(tmp, path))
        err = fl_err_file(errno, "rename to", path);
    if (err && tmp)
        unlink(tmp);
    if (!err)
        err = fl_fsync_dir(dir);
    free(path);
    free(tmp);
    return err;
}

static int read_fd(int fd, const char *path, size_t max, void **data, size_t *len)
{
    struct stat st;

    if (fstat(fd, &st))
        return fl_err_file(errno, "read", path);
    if (!S_ISREG(st.st_mode))
        return fl_err(FL_ERR(EIO), FL_STAGE_PLAN, "cannot read %s: not a regular file", path);
    if ((uint64_t)st.st_size > max)
        return fl_err(FL_ERR(E2BIG), FL_STAGE_PLAN, "cannot read %s: %lld bytes, the limit is %zu",
                      path, (long long)st.st_size, max);
    char *buf = malloc((size_t)st.st_size + 1);
    if (!buf)
        return fl_err(FL_ERR(ENOMEM), FL_STAGE_PLAN, "no memory to read %s", path);
    size_t got = 0;
    while (got < (size_t)st.st_size) {
        const ssize_t n = read(fd, buf + got, (size_t)st.st_size - got);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            free(buf);
            return n ? fl_err_file(errno, "read", path)
                     : fl_err(FL_ERR(EIO), FL_STAGE_PLAN, "%s became shorter while it was read",
                              path);
        }
        got += (size_t)n;
    }
    buf[got] = 0;
    *data = buf;
    *len = got;
    return 0;
}

int fl_file_read(const char *path, size_t max, void **data, size_t *len)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return fl_err_file(errno, "open", path);
    const int err = read_fd(fd, path, max, data, len);
    close(fd);
    return err;
}
