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

int fl_new_file_open(struct fl_new_file *f, const char *path)
{
    const size_t len = strlen(path);
    int err = 0;

    *f = (struct fl_new_file){ .fd = -1, .path = strdup(path), .temporary = malloc(len + 16) };
    if (!f->path || !f->temporary) {
        forget(f);
        return fl_err_file(ENOMEM, "create", path);
    }
    // A name of its own: several processes may be making the same file.
    snprintf(f->temporary, len + 16, "%s.tmp-XXXXXX", path);
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

void fl_new_file_discard(struct fl_new_file *f)
{
    if (f->temporary)
        unlink(f->temporary);
    forget(f);
}

int fl_new_file_commit(struct fl_new_file *f)
{
    int err;

    if (fsync(f->fd)) {
        err = fl_err_file(errno, "flush", f->path);
    } else if (rename(f->temporary, f->path)) {
        err = fl_err_file(errno, "rename the new file to", f->path);
    } else {
        char *slash = strrchr(f->path, '/');
        if (slash)
            slash[slash == f->path] = 0;
        err = fl_fsync_dir(slash ? f->path : ".");
        forget(f);
        return err;
    }
    fl_new_file_discard(f);
    return err;
}
