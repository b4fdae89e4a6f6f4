/* SPDX-License-Identifier: Apache-2.0 */
/* Archives that were copied have other times; once their headers were compared, the index takes the new times, so
 * that the next open need not compare again. The file is replaced as a whole; nothing but times changes. */
#include "index/stale.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/newfile.h"
#include "index/reader.h"

/* Bytes [from, from + len) of the payload are `bytes`: put those of them that lie in the block. */
static void patch(uint8_t *frame, uint64_t block, uint64_t from, const void *bytes, size_t len)
{
    const uint64_t begin = block * FL_INDEX_PAYLOAD;

    for (size_t i = 0; i < len; i++)
        if (from + i >= begin && from + i < begin + FL_INDEX_PAYLOAD)
            frame[from + i - begin] = ((const uint8_t *)bytes)[i];
}

/* Put the times of all containers that touch the block. */
static void patch_block(const struct fl_index *ix, const int64_t *mtimes, uint64_t block,
                        uint8_t *frame)
{
    const struct fl_section *s = &ix->containers;
    const uint64_t begin = block * FL_INDEX_PAYLOAD, end = begin + FL_INDEX_PAYLOAD;
    uint64_t i = begin > s->offset ? (begin - s->offset) / s->item : 0;

    for (; i < s->count && s->offset + i * s->item < end; i++)
        patch(frame, block, s->offset + i * s->item + offsetof(struct fl_index_file, mtime_ns),
              &mtimes[i], sizeof(mtimes[i]));
}

/* Header and table, up to block 0, as they are. */
static int copy_head(const struct fl_index *ix, int fd)
{
    const size_t len = ix->blocks->data;
    uint8_t *head = malloc(len);
    int err;

    if (!head)
        return fl_err(FL_ERR(ENOMEM), FL_STAGE_PLAN, "%s: out of memory", ix->path);
    if (!(err = fl_pread_all(ix->fd, head, len, 0, ix->path)) &&
        (err = fl_write_all(fd, head, len)))
        err = fl_err_file(-err, "write", ix->path);
    free(head);
    return err;
}

static int copy_blocks(const struct fl_index *ix, const int64_t *mtimes, int fd)
{
    uint8_t *frame = malloc(FL_INDEX_BLOCK);
    int err = frame ? 0 : fl_err(FL_ERR(ENOMEM), FL_STAGE_PLAN, "%s: out of memory", ix->path);

    for (uint64_t i = 0; !err && i < ix->blocks->n_blocks; i++) {
        const uint64_t left = ix->blocks->payload - i * FL_INDEX_PAYLOAD;
        const size_t len = left < FL_INDEX_PAYLOAD ? (size_t)left : FL_INDEX_PAYLOAD;
        if ((err = fl_blocks_check(ix->blocks, i, frame)))
            break; // a damaged block must not get a good checksum
        patch_block(ix, mtimes, i, frame);
        const uint64_t sum = fl_hash64(frame, len, i);
        memcpy(frame + len, &sum, sizeof(sum));
        if ((err = fl_write_all(fd, frame, len + sizeof(sum))))
            err = fl_err_file(-err, "write", ix->path);
    }
    free(frame);
    return err;
}

int fl_index_retime(const struct fl_index *ix, const int64_t *mtimes)
{
    struct fl_new_file file;
    int err;

    if (ix->fd < 0)
        return 0;
    if ((err = fl_new_file_open(&file, ix->path)))
        return err;
    if ((err = copy_head(ix, file.fd)) || (err = copy_blocks(ix, mtimes, file.fd))) {
        fl_new_file_discard(&file);
        return err;
    }
    return fl_new_file_commit(&file);
}
