/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a tar archive, with the sums of its headers made good: members lie inside, twice the same. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "formats/format.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int look(void *cookie, struct fl_source *src, const struct fl_member *m)
{
    ++*(int *)cookie;
    if (m->offset > src->size || m->size > src->size - m->offset || m->header > m->offset ||
        strlen(m->name) != m->name_len)
        abort();
    return 0;
}

static int walk(const uint8_t *bytes, size_t size, int *members, uint64_t *hash)
{
    struct fl_source src = { 0 };
    struct fl_skips skips = { 0 };
    const int fd = memfd_create("tar", MFD_CLOEXEC);

    *members = 0;
    if (fd < 0 || write(fd, bytes, size) != (ssize_t)size ||
        fl_source_borrow(&src, fd, "fuzz.tar", 1024))
        abort();
    const int err = fl_format_tar.walk(&src, false, look, members, &skips, hash);
    fl_source_free(&src);
    close(fd);
    return err;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *copy = malloc(size + 1);
    int members[2];
    uint64_t hash[2];

    memcpy(copy, data, size);
    for (size_t at = 0; at + 512 <= size; at += 512) {
        unsigned sum = 0;
        if (memcmp(copy + at + 257, "ustar", 5)) // contents stay as they are
            continue;
        memset(copy + at + 148, ' ', 8);
        for (int i = 0; i < 512; i++)
            sum += copy[at + i];
        snprintf((char *)copy + at + 148, 8, "%06o", sum);
    }
    const int err = walk(copy, size, &members[0], &hash[0]);
    if (walk(copy, size, &members[1], &hash[1]) != err || members[0] != members[1] ||
        hash[0] != hash[1])
        abort();
    free(copy);
    return 0;
}
