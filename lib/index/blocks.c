/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "index/blocks.h"

#include <inttypes.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/err.h"
#include "base/hash.h"
#include "index/format.h"

#define DEFAULT_CACHE (256u << 20)
#define LEAST_FRAMES 32u

#define PIN ((uint64_t)1)
#define PINS (((uint64_t)1 << 16) - 1)
#define REFERENCED ((uint64_t)1 << 16)
#define BLOCK_SHIFT 17

int fl_pread_all(int fd, void *to, size_t len, uint64_t offset, const char *name)
{
    size_t done = 0;

    while (done < len) {
        const ssize_t n = pread(fd, (char *)to + done, len - done, (off_t)(offset + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return fl_err(FL_ERR(EIO), FL_STAGE_READ, "%s: reading at byte %" PRIu64 " failed: %s",
                          name, offset + done, strerror(errno));
        if (!n)
            return fl_err(FL_ERR(EBADMSG), FL_STAGE_READ,
                          "%s is cut: it ends at byte %" PRIu64 ", where more was expected", name,
                          offset + done);
        done += (size_t)n;
    }
    return 0;
}

static size_t payload_of(const struct fl_blocks *b, uint64_t block)
{
    const uint64_t left = b->payload - block * FL_INDEX_PAYLOAD;

    return left < FL_INDEX_PAYLOAD ? (size_t)left : FL_INDEX_PAYLOAD;
}

static int verify(const struct fl_blocks *b, uint64_t block, const uint8_t *frame)
{
    const size_t len = payload_of(b, block);
    uint64_t sum;

    memcpy(&sum, frame + len, sizeof(sum));
    if (fl_hash64(frame, len, block) == sum)
        return 0;
    return fl_err(FL_ERR(EBADMSG), FL_STAGE_PLAN,
                  "%s is damaged: checksum of block %" PRIu64 " (bytes %" PRIu64 " to %" PRIu64
                  ") does not fit",
                  b->name, block, b->data + block * FL_INDEX_BLOCK,
                  b->data + block * FL_INDEX_BLOCK + len + 8);
}

int fl_blocks_check(const struct fl_blocks *b, uint64_t block, uint8_t *frame)
{
    if (b->fd < 0)
        return verify(b, block, b->frames + block * FL_INDEX_BLOCK);
    const int err = fl_pread_all(b->fd, frame, payload_of(b, block) + 8,
                                 b->data + block * FL_INDEX_BLOCK, b->name);
    return err ? err : verify(b, block, frame);
}

/* Memory for frames and tags: mapped, so that untouched frames cost nothing. */
static int map_frames(struct fl_blocks *b)
{
    void *p;

    b->frames_bytes = b->n_frames * FL_INDEX_BLOCK;
    p = mmap(NULL, b->frames_bytes, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) {
        b->frames_bytes = 0;
        return fl_err(FL_ERR(ENOMEM), FL_STAGE_PLAN, "%s: no memory for %" PRIu64 " index blocks",
                      b->name, b->n_frames);
    }
    b->frames = p;
    return 0;
}

int fl_blocks_init(struct fl_blocks *b, int fd, uint8_t *memory, const char *name, uint64_t data,
                   uint64_t payload, uint64_t cache_bytes)
{
    const uint64_t n = (payload + FL_INDEX_PAYLOAD - 1) / FL_INDEX_PAYLOAD;
    uint64_t frames = (cache_bytes ? cache_bytes : DEFAULT_CACHE) / FL_INDEX_BLOCK;
    int err;

    *b = (struct fl_blocks){
        .fd = fd, .name = name, .data = data, .payload = payload, .n_blocks = n
    };
    if (frames < LEAST_FRAMES)
        frames = LEAST_FRAMES;
    b->resident = memory || n <= frames;
    b->n_frames = b->resident ? n : frames / FL_BLOCK_WAYS * FL_BLOCK_WAYS;
    for (; b->n_locks < FL_BLOCK_LOCKS; b->n_locks++)
        if ((err = pthread_mutex_init(&b->locks[b->n_locks], NULL)))
            return fl_err(-err, FL_STAGE_PLAN, "%s: no lock: %s", name, strerror(err));
    if (!n)
        return 0;
    b->tags = calloc(b->n_frames, sizeof(*b->tags));
    if (!b->tags)
        return fl_err(FL_ERR(ENOMEM), FL_STAGE_PLAN, "%s: no memory for %" PRIu64 " index blocks",
                      name, b->n_frames);
    if (memory)
        b->frames = memory + data;
    else if ((err = map_frames(b)))
        return err;
    return 0;
}

void fl_blocks_fini(struct fl_blocks *b)
{
    if (b->frames_bytes)
        munmap(b->frames, b->frames_bytes);
    free(b->tags);
    while (b->n_locks > 0)
        pthread_mutex_destroy(&b->locks[--b->n_locks]);
    memset(b, 0, sizeof(*b));
}

/* First use of a resident block. The lock keeps two threads from filling one frame. */
static int load_resident(struct fl_blocks *b, uint64_t block, uint8_t *frame)
{
    pthread_mutex_t *lock = &b->locks[block % FL_BLOCK_LOCKS];
    int err = 0;

    pthread_mutex_lock(lock);
    if (!atomic_load_explicit(&b->tags[block], memory_order_relaxed)) {
        err = fl_blocks_check(b, block, frame);
        if (!err) // release: the frame's bytes before its tag; pairs with read_resident()
            atomic_store_explicit(&b->tags[block], 1, memory_order_release);
    }
    pthread_mutex_unlock(lock);
    return err;
}

static int read_resident(struct fl_blocks *b, uint64_t block, size_t at, void *to, size_t len)
{
    uint8_t *frame = b->frames + block * FL_INDEX_BLOCK;
    int err;

    // acquire: pairs with the release in load_resident()
    if (!atomic_load_explicit(&b->tags[block], memory_order_acquire) &&
        (err = load_resident(b, block, frame)))
        return err;
    memcpy(to, frame + at, len);
    return 0;
}

/* Pin the frame of `block` if one of its set's ways holds it; returns the way or -1. No lock: a tag
 * names the block, so a successful exchange proves that the frame holds it, and the pin keeps it
 * there. */
static int pin(_Atomic uint64_t *tags, uint64_t block)
{
    for (int way = 0; way < FL_BLOCK_WAYS; way++) {
        uint64_t tag = atomic_load_explicit(&tags[way], memory_order_relaxed);
        while (tag >> BLOCK_SHIFT == block + 1 && (tag & PINS) < PINS)
            // acquire: the frame's bytes were written before the tag
            if (atomic_compare_exchange_weak_explicit(&tags[way], &tag, (tag | REFERENCED) + PIN,
                                                      memory_order_acquire, memory_order_relaxed))
                return way;
    }
    return -1;
}

/* Under the set's lock: empty a way that nobody has pinned, sparing those used since the last
 * visit. */
static int evict(_Atomic uint64_t *tags)
{
    for (int round = 0; round < 2 * FL_BLOCK_WAYS; round++) {
        const int way = round % FL_BLOCK_WAYS;
        uint64_t tag = atomic_load_explicit(&tags[way], memory_order_relaxed);
        if (tag & PINS)
            continue;
        if (tag & REFERENCED && round < FL_BLOCK_WAYS) {
            atomic_fetch_and_explicit(&tags[way], ~REFERENCED, memory_order_relaxed);
            continue;
        }
        // acquire: readers' copies end (release in read_cached) before we overwrite the frame
        if (atomic_compare_exchange_strong_explicit(&tags[way], &tag, 0, memory_order_acquire,
                                                    memory_order_relaxed))
            return way;
    }
    return -1;
}

/* Bring `block` into its set, pinned. Returns the way, -1 if every way is pinned just now, or an
 * error below -1 in *err. */
static int load_cached(struct fl_blocks *b, uint64_t block, uint64_t set, int *err)
{
    _Atomic uint64_t *tags = &b->tags[set * FL_BLOCK_WAYS];
    pthread_mutex_t *lock = &b->locks[set % FL_BLOCK_LOCKS];
    int way;

    *err = 0;
    pthread_mutex_lock(lock);
    way = pin(tags, block); // another thread may have brought it meanwhile
    if (way < 0 && (way = evict(tags)) >= 0) {
        uint8_t *frame = b->frames + (set * FL_BLOCK_WAYS + (uint64_t)way) * FL_INDEX_BLOCK;
        *err = fl_blocks_check(b, block, frame);
        if (!*err) // release: the frame's bytes before its tag; pairs with pin()
            atomic_store_explicit(&tags[way], (block + 1) << BLOCK_SHIFT | REFERENCED | PIN,
                                  memory_order_release);
    }
    pthread_mutex_unlock(lock);
    return way;
}

static int read_cached(struct fl_blocks *b, uint64_t block, size_t at, void *to, size_t len)
{
    const uint64_t set = block % (b->n_frames / FL_BLOCK_WAYS);
    _Atomic uint64_t *tags = &b->tags[set * FL_BLOCK_WAYS];
    int err, way = pin(tags, block);

    while (way < 0) {
        way = load_cached(b, block, set, &err);
        if (err)
            return err;
        if (way < 0)
            sched_yield(); // all ways pinned: pins last as long as a memcpy
    }
    memcpy(to, b->frames + (set * FL_BLOCK_WAYS + (uint64_t)way) * FL_INDEX_BLOCK + at, len);
    // release: our copy ends before the frame may be overwritten; pairs with evict()
    atomic_fetch_sub_explicit(&tags[way], PIN, memory_order_release);
    return 0;
}

int fl_blocks_read(struct fl_blocks *b, uint64_t offset, void *to, size_t len)
{
    uint64_t block = offset / FL_INDEX_PAYLOAD;
    size_t at = (size_t)(offset % FL_INDEX_PAYLOAD);

    while (len) {
        const size_t n = len < FL_INDEX_PAYLOAD - at ? len : FL_INDEX_PAYLOAD - at;
        const int err =
            b->resident ? read_resident(b, block, at, to, n) : read_cached(b, block, at, to, n);
        if (err)
            return err;
        to = (char *)to + n;
        len -= n;
        block++;
        at = 0;
    }
    return 0;
}
