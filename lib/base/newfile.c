/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "base/newfile.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/file.h"

static void forget(struct fl_new_file *f)
{
    if (f->fd >= 0)
        close(f->fd);
    free(f->path);
    free(f->temporary);
    *f = (struct fl_new_file){ .fd = -1 };
}

/* Folder of a path, malloced. */
static char *folder_of(const char *path)
{
    const char *slash = strrchr(path, '/');

    if (!slash)
        return strdup(".");
    return slash == path ? strdup("/") : strndup(path, (size_t)(slash - path));
}

/* A file without a name: if the process is killed, nothing is left. -1 where that cannot be had. */
static int open_unnamed(const char *path)
{
    char *folder = folder_of(path);
    int fd = -1;

    // Giving it a name later needs /proc.
    if (folder && !access("/proc/self/fd", X_OK))
        fd = open(folder, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666);
    free(folder);
    return fd;
}

int fl_scratch_file(const char *path)
{
    char *folder = folder_of(path);
    int fd = folder ? open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600) : -1;
    char *name = fd < 0 && folder ? fl_path_join(folder, ".feedline-XXXXXX") : NULL;

    if (name && (fd = mkostemp(name, O_CLOEXEC)) >= 0)
        unlink(name);
    free(name);
    free(folder);
    return fd;
}

int fl_new_file_open(struct fl_new_file *f, const char *path)
{
    const size_t len = strlen(path);
    int err = 0;

    *f = (struct fl_new_file){ .fd = -1, .path = strdup(path), .temporary = malloc(len + 48) };
    if (!f->path || !f->temporary) {
        forget(f);
        return fl_err_file(ENOMEM, "create", path);
    }
    if ((f->fd = open_unnamed(path)) >= 0) {
        f->unnamed = true;
        return 0;
    }
    // A name of its own: several processes may be making the same file.
    snprintf(f->temporary, len + 48, "%s.tmp-XXXXXX", path);
    f->fd = mkostemp(f->temporary, O_CLOEXEC);
    if (f->fd < 0) {
        err = fl_err_file(errno, "create", path);
        forget(f);
    } else if (fchmod(f->fd, 0644)) {
        // mkostemp() gives 0600, but others read this file. The process's mask can only be read by
        // setting it, which other threads would see: so take what nearly every mask gives.
        err = fl_err_file(errno, "set permissions of", path);
        fl_new_file_discard(f);
    }
    return err;
}

/* Give the unnamed file its temporary name, for the moment before the rename. 0 or an errno. */
static int name_it(struct fl_new_file *f)
{
    const size_t room = strlen(f->path) + 48;
    char self[64];

    snprintf(self, sizeof(self), "/proc/self/fd/%d", f->fd);
    for (int n = 0; n < 1000; n++) {
        snprintf(f->temporary, room, "%s.tmp-%ld-%d", f->path, (long)getpid(), n);
        if (!linkat(AT_FDCWD, self, AT_FDCWD, f->temporary, AT_SYMLINK_FOLLOW)) {
            f->unnamed = false;
            return 0;
        }
        if (errno != EEXIST)
            break;
    }
    return errno;
}

void fl_new_file_discard(struct fl_new_file *f)
{
    if (f->temporary && !f->unnamed)
        unlink(f->temporary);
    forget(f);
}

int fl_new_file_commit(struct fl_new_file *f)
{
    char *folder = folder_of(f->path);
    int err, error = 0;

    if (!folder) {
        err = fl_err_file(ENOMEM, "rename the new file to", f->path);
    } else if (fsync(f->fd)) {
        err = fl_err_file(errno, "flush", f->path);
    } else if ((f->unnamed && (error = name_it(f))) || rename(f->temporary, f->path)) {
        err = fl_err_file(error ? error : errno, "rename the new file to", f->path);
    } else {
        err = fl_fsync_dir(folder);
        free(folder);
        forget(f);
        return err;
    }
    free(folder);
    fl_new_file_discard(f);
    return err;
}
