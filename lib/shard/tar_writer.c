/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "shard/tar_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/file.h"

#define BUFFER_BYTES (1u << 20)
#define WRITEBACK_BYTES                                                                            \
    (16u << 20) // start writing back in steps of this, so that the last fsync is short
#define OCTAL_MAX 077777777777u // 11 digits: 8 GiB - 1

struct ustar {
    char name[100], mode[8], uid[8], gid[8], size[12], mtime[12], checksum[8], type, link[100];
    char magic[6], version[2], user[32], group[32], major[8], minor[8], prefix[155], pad[12];
};
_Static_assert(sizeof(struct ustar) == FL_TAR_BLOCK, "POSIX.1-1988");

static uint64_t round_up(uint64_t n)
{
    return (n + FL_TAR_BLOCK - 1) / FL_TAR_BLOCK * FL_TAR_BLOCK;
}

/* Where to cut a long name into prefix and name: index of the slash, 0 if it cannot be cut. */
static size_t cut_of(const char *name, size_t len)
{
    if (len > 155 + 1 + 100)
        return 0;
    // The last slash that leaves a prefix of at most 155 bytes: the shortest name.
    for (size_t i = len - 1 < 155 ? len - 1 : 155; i > 0; i--)
        if (name[i] == '/')
            return len - i - 1 <= 100 && i + 1 < len ? i : 0;
    return 0;
}

static void octal(char *field, size_t size, uint64_t value)
{
    char digits[32];

    snprintf(digits, sizeof(digits), "%0*" PRIo64, (int)size - 1, value);
    memcpy(field, digits, size); // with the NUL
}

/* One header block. The name must fit: its first 100 bytes are stored, after `cut` bytes of prefix. */
static void header_block(struct ustar *h, char type, const char *name, size_t len, size_t cut,
                         uint64_t size)
{
    memset(h, 0, sizeof(*h));
    const char *tail = cut ? name + cut + 1 : name;
    const size_t tail_len = cut ? len - cut - 1 : len;
    memcpy(h->prefix, name, cut);
    memcpy(h->name, tail, tail_len < sizeof(h->name) ? tail_len : sizeof(h->name));
    octal(h->mode, sizeof(h->mode), 0644);
    octal(h->uid, sizeof(h->uid), 0);
    octal(h->gid, sizeof(h->gid), 0);
    octal(h->size, sizeof(h->size), size <= OCTAL_MAX ? size : 0); // the pax record has the truth
    octal(h->mtime, sizeof(h->mtime), 0);
    h->type = type;
    memcpy(h->magic, "ustar", 6);
    memcpy(h->version, "00", 2);
    octal(h->major, sizeof(h->major), 0);
    octal(h->minor, sizeof(h->minor), 0);

    // The sum counts its own field as spaces.
    unsigned sum = 0;
    memset(h->checksum, ' ', sizeof(h->checksum));
    for (size_t i = 0; i < sizeof(*h); i++)
        sum += ((const unsigned char *)h)[i];
    octal(h->checksum, 7, sum);
}

/* "LENGTH KEYWORD=VALUE\n", where LENGTH counts its own digits. Returns the length. */
static size_t pax_record(char *out, const char *keyword, const char *value, size_t len)
{
    const size_t rest = 1 + strlen(keyword) + 1 + len + 1;
    size_t total = rest + 1;

    for (size_t digits = 1, limit = 10; total >= limit; limit *= 10)
        total = rest + ++digits;
    const int n = sprintf(out, "%zu %s=", total, keyword);
    memcpy(out + n, value, len);
    out[total - 1] = '\n';
    return total;
}

static size_t pax_header(uint8_t *out, const char *name, size_t len, uint64_t size, int long_name)
{
    char *records = (char *)out + FL_TAR_BLOCK;
    size_t n = 0;

    if (long_name)
        n += pax_record(records, "path", name, len);
    if (size > OCTAL_MAX) {
        char digits[32];
        const int k = snprintf(digits, sizeof(digits), "%" PRIu64, size);
        n += pax_record(records + n, "size", digits, (size_t)k);
    }
    memset(records + n, 0, round_up(n) - n);
    header_block((struct ustar *)out, 'x', "PaxHeader", 9, 0, n);
    return FL_TAR_BLOCK + round_up(n);
}

size_t fl_tar_header(uint8_t out[FL_TAR_HEADER_MAX], const char *name, size_t len, uint64_t size)
{
    if (!len || len > FL_TAR_NAME_MAX || memchr(name, 0, len))
        return 0;
    const size_t cut = len > 100 ? cut_of(name, len) : 0;
    const int long_name = len > 100 && !cut;
    size_t n = 0;

    if (long_name || size > OCTAL_MAX)
        n = pax_header(out, name, len, size, long_name);
    header_block((struct ustar *)(out + n), '0', name, len, cut, size);
    return n + FL_TAR_BLOCK;
}

uint64_t fl_tar_member_bytes(const char *name, size_t name_len, uint64_t size)
{
    uint8_t header[FL_TAR_HEADER_MAX];

    return fl_tar_header(header, name, name_len, size) + round_up(size);
}

int fl_tar_writer_init(struct fl_tar_writer *w, int fd, const char *path)
{
    *w = (struct fl_tar_writer){ .fd = fd, .path = path, .buf = malloc(BUFFER_BYTES) };
    return w->buf ? 0 : fl_err(FL_ERR(ENOMEM), FL_STAGE_PLAN, "no memory to write %s", path);
}

void fl_tar_writer_fini(struct fl_tar_writer *w)
{
    free(w->buf);
    *w = (struct fl_tar_writer){ .fd = -1 };
}

static int write_out(struct fl_tar_writer *w, const void *data, size_t len)
{
    const int err = fl_write_all(w->fd, data, len);

    return err ? fl_err_file(-err, "write", w->path) : 0;
}

static int flush(struct fl_tar_writer *w)
{
    const int err = w->used ? write_out(w, w->buf, w->used) : 0;

    w->used = 0;
    if (!err && w->offset - w->started >= WRITEBACK_BYTES) {
        // Only a hint: whatever it says, the fsync at the end decides.
        (void)sync_file_range(w->fd, (off_t)w->started, (off_t)(w->offset - w->started),
                              SYNC_FILE_RANGE_WRITE);
        w->started = w->offset;
    }
    return err;
}

static int append(struct fl_tar_writer *w, const void *data, size_t len)
{
    int err;

    if (len > BUFFER_BYTES - w->used && (err = flush(w)))
        return err;
    w->offset += len;
    if (len > BUFFER_BYTES)
        return write_out(w, data, len);
    memcpy(w->buf + w->used, data, len);
    w->used += len;
    return 0;
}

int fl_tar_writer_member(struct fl_tar_writer *w, const char *name, size_t name_len,
                         const void *data, uint64_t size, uint64_t *offset)
{
    static const uint8_t zeros[FL_TAR_BLOCK];
    uint8_t header[FL_TAR_HEADER_MAX];
    const size_t n = fl_tar_header(header, name, name_len, size);
    int err;

    if (!n)
        return fl_err(FL_ERR(EINVAL), FL_STAGE_PLAN,
                      "a name of %zu bytes cannot be stored in %s; 1 to %u without NUL can: %.80s",
                      name_len, w->path, FL_TAR_NAME_MAX, name);
    if ((err = append(w, header, n)))
        return err;
    *offset = w->offset;
    if (size && (err = append(w, data, size)))
        return err;
    return append(w, zeros, round_up(size) - size);
}

int fl_tar_writer_finish(struct fl_tar_writer *w)
{
    static const uint8_t zeros[2 * FL_TAR_BLOCK];
    const int err = append(w, zeros, sizeof(zeros));

    return err ? err : flush(w);
}
