/* SPDX-License-Identifier: Apache-2.0 */
/* Files that others read are never half written: a temporary name, fsync, rename, fsync of the
 * folder. Every function here reports one sentence through fl_err() and returns its code. */
#ifndef FL_BASE_FILE_H
#define FL_BASE_FILE_H

#include <stddef.h>
#include <stdint.h>

/* "DIR/NAME" in new memory, NULL without memory. */
char *fl_path_join(const char *dir, const char *name);

/* Write all of it, however short the single writes are. Returns 0 or a negative errno, without a
 * sentence. */
int fl_write_all(int fd, const void *data, size_t len);

/* Make a rename in this folder survive a power cut. File systems that cannot are left alone. */
int fl_fsync_dir(const char *dir);

/* Replace dir/name by these bytes in one step: whoever opens it sees the old file or the whole new
 * one. */
int fl_file_replace(const char *dir, const char *name, const void *data, size_t len);

/* The whole file in new memory, with a NUL behind it that *len does not count.
 * FL_ERR(ENOENT); FL_ERR(E2BIG): more than `max` bytes; FL_ERR(EIO); FL_ERR(ENOMEM). */
int fl_file_read(const char *path, size_t max, void **data, size_t *len);

/* Report what the operating system refused: "cannot VERB PATH: reason". `err` is a positive errno.
 */
int fl_err_file(int err, const char *verb, const char *path);

#endif
