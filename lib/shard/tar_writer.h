/* SPDX-License-Identifier: Apache-2.0 */
/* Writing plain tar archives whose bytes depend on names and contents only: POSIX ustar headers with
 * mode 0644, user, group and time 0 and no names of users; a pax record where a name is longer than a
 * ustar header can hold, or a member is larger than 8 GiB - 1. */
#ifndef FL_SHARD_TAR_WRITER_H
#define FL_SHARD_TAR_WRITER_H

#include <stddef.h>
#include <stdint.h>

#define FL_TAR_BLOCK 512u
#define FL_TAR_NAME_MAX 4095u // bytes of a name
#define FL_TAR_HEADER_MAX (12u * FL_TAR_BLOCK)

/* Header bytes of one member: one block, or three and more where a pax record is needed. Returns how many
 * bytes of `out` were filled, a multiple of 512; 0 if the name is empty, too long or holds a NUL. */
size_t fl_tar_header(uint8_t out[FL_TAR_HEADER_MAX], const char *name, size_t name_len,
                     uint64_t size);

/* Bytes that a member takes in the archive: header, content, padding. */
uint64_t fl_tar_member_bytes(const char *name, size_t name_len, uint64_t size);

struct fl_tar_writer {
    int fd;           // not owned
    const char *path; // for messages; not owned
    uint64_t offset;  // bytes of archive so far, those still in the buffer included
    uint64_t started; // bytes that the kernel was asked to begin writing back
    uint8_t *buf;
    size_t used;
};

/* Write an archive to `fd`, which stands at its beginning. Returns 0 or FL_ERR(ENOMEM). */
int fl_tar_writer_init(struct fl_tar_writer *w, int fd, const char *path);
void fl_tar_writer_fini(struct fl_tar_writer *w);

/* Append a member; *offset gets the place of its first content byte.
 * FL_ERR(EINVAL): the name cannot be stored; FL_ERR(ENOSPC), FL_ERR(EIO). */
int fl_tar_writer_member(struct fl_tar_writer *w, const char *name, size_t name_len,
                         const void *data, uint64_t size, uint64_t *offset);

/* End the archive (two zero blocks) and hand everything to the kernel; w->offset is its size then. */
int fl_tar_writer_finish(struct fl_tar_writer *w);

#endif
