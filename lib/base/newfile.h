/* SPDX-License-Identifier: Apache-2.0 */
/* A file that is written piece by piece and appears whole under its name, or not at all. */
#ifndef FL_BASE_NEWFILE_H
#define FL_BASE_NEWFILE_H

#include <stdbool.h>

struct fl_new_file {
    int fd; // write here
    char *path, *temporary;
    bool unnamed; // the file has no name yet
};

/* Create a file in the folder of `path`: without a name where the file system can do that, so that a killed
 * process leaves nothing, else under a temporary one. Every function reports one sentence through fl_err(). */
int fl_new_file_open(struct fl_new_file *f, const char *path);

/* fsync, rename over `path`, fsync the folder. On error nothing is left behind and `path` is as it
 * was, but for a failure of the last step, which leaves the new file there. */
int fl_new_file_commit(struct fl_new_file *f);

/* A file without a name in the folder of `path`, for reading and writing; it is gone once it is closed. A
 * descriptor, or -1: there can be none. */
int fl_scratch_file(const char *path);

/* Remove the temporary file. */
void fl_new_file_discard(struct fl_new_file *f);

#endif
