/* SPDX-License-Identifier: Apache-2.0 */
/* Memory: slabs made at open, the budget that they count against, and the read arena on top of one.
 *
 *   slab    page-aligned anonymous memory: huge pages asked for, populated, not inherited by children
 *   ring    the read arena: one slab, used as a ring of blocks of any size
 *
 *            tail                             head              lap            end of the slab
 *   .........[block][block, free][block][block]..................|.................|
 *            ^ reclaimed in order by the owner, once free         ^ where the next lap begins if most of
 *                                          ^ allocated in order     the ring is idle: what is touched stays in the caches
 *
 * A ring has bounded bytes, takes any size up to the whole of it, and cannot fragment. The price: a block that
 * is held long holds up the reuse of those behind it; samples are worked on nearly in order, so it is small. */
#ifndef FL_BUFFER_H
#define FL_BUFFER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One loader's memory. Slabs are taken when it opens; limit 0: no limit, only counted. Any thread.
 */
struct fl_budget {
    uint64_t limit;              // bytes, memory_limit
    _Atomic uint64_t used;       // bytes taken now
    _Atomic uint64_t high_water; // most bytes taken at one time
};

/* Count bytes in. 0, or FL_ERR(ENOMEM) with a sentence that names `what`, the bytes and
 * memory_limit. */
int fl_budget_take(struct fl_budget *b, uint64_t bytes, const char *what);
void fl_budget_give(struct fl_budget *b, uint64_t bytes);

struct fl_slab {
    uint8_t *base;          // page aligned (2 MiB aligned from 2 MiB on); NULL: not open
    size_t bytes;           // as asked for, rounded up to pages
    int huge;               // 1: the kernel backs it with huge pages, 0: it does not
    int node;               // NUMA node preferred and accepted by the kernel, or -1
    _Atomic size_t touched; // bytes from base on whose pages are there
    _Atomic size_t claimed; // bytes from base on that somebody has populated or is at it
    struct fl_budget *budget;
};

/* Map and populate `bytes`. node: NUMA node to prefer, -1: none (a kernel that refuses is no
 * error). budget may be NULL. base and bytes may be registered elsewhere (CUDA, io_uring) while the
 * slab is open. Returns 0 or FL_ERR(ENOMEM) with a sentence that names `what`. */
int fl_slab_open(struct fl_slab *slab, size_t bytes, int node, struct fl_budget *budget,
                 const char *what);

/* The same, but only the first `first` bytes are populated: the first batch need not wait for the
 * memory of the third. The rest comes with fl_slab_touch(), or when somebody writes to it. */
int fl_slab_open_lazy(struct fl_slab *slab, size_t bytes, size_t first, int node,
                      struct fl_budget *budget, const char *what);

/* See to it that what lies before `upto` is populated or somebody is at it: for those about to write
 * there, a little ahead of them. Threads share the work huge page by huge page; if each found its own
 * way by page faults, two that write side by side would both clear the same page. Any thread. */
void fl_slab_ahead(struct fl_slab *slab, size_t upto);

/* Populate up to `upto` bytes from the beginning, for certain. One thread at a time; others may use the
 * slab meanwhile. 0, or a negative errno: no memory left; whoever writes there will find out. */
int fl_slab_touch(struct fl_slab *slab, size_t upto);

/* Zeroed or closed slabs are fine. */
void fl_slab_close(struct fl_slab *slab);

/* Largest piece of a slab that io_uring takes as one registered buffer. */
#define FL_PIECE_BYTES ((size_t)1 << 30)

/* A piece of the arena in use. Reference-counted: one read may serve several samples. */
struct fl_block {
    _Atomic uint32_t refs; // 0: free, waiting to be reclaimed
    uint8_t *data;
    size_t bytes;      // usable from data on
    size_t begin;      // where its part of the ring begins: data, or what was skipped to align it
    size_t ring_bytes; // bytes and what was skipped
    struct fl_ring *ring;
    _Atomic bool kept; // the owner holds it for later users: the last other holder matters too
};

/* One owner thread allocates, grows, undoes and reclaims; fl_block_put() from any thread. No lock.
 */
struct fl_ring {
    struct fl_slab slab;
    struct fl_block *blocks;  // ring of descriptors, in allocation order
    uint32_t n_blocks;        // a power of two
    uint32_t first, count;    // descriptors in use: first .. first + count - 1
    size_t head, tail;        // where the next block begins; where the oldest one does
    size_t lap;               // preferred end of the ring
    bool wrapped;             // head is in the lap after tail's
    size_t used, high_water;  // bytes in use, skipped ones included; most at one time
    uint64_t allocated;       // weight ever allocated, see freed
    _Atomic uint64_t freed;   // weight of all blocks whose last holder left: ring_bytes and 64 each
    _Atomic uint64_t wake_at; // value of freed at which wake() is due; UINT64_MAX: nobody waits
    void (*wake)(void *ctx);  // called by the thread that freed the block; any thread
    void *wake_ctx;
};

/* A moment of the arena, to undo allocations that nobody else has seen. */
struct fl_ring_mark {
    uint32_t count;
    size_t head, used;
    bool wrapped;
    size_t last_bytes, last_ring_bytes; // of the newest block, which may have grown
    uint64_t allocated;
};

/* Bytes that are populated at once where the rest is left for later; a piece that io_uring registers
 * at a time. */
#define FL_FIRST_BYTES ((size_t)8 << 20)

/* wake may be NULL. lazy: populate FL_FIRST_BYTES only. The descriptors count against the budget
 * too. */
int fl_ring_open(struct fl_ring *a, size_t bytes, int node, bool lazy, struct fl_budget *budget,
                 void (*wake)(void *ctx), void *wake_ctx);
void fl_ring_close(struct fl_ring *a);

/* Bytes that fl_ring_open() counts against the budget. */
uint64_t fl_ring_bytes(size_t bytes);

/* Descriptors that an arena of so many bytes has. */
uint32_t fl_ring_blocks(size_t bytes);

/* A block of `bytes` (0 is legal: a descriptor alone) at an address that is a multiple of `align`
 * (a power of two, at most 4096), with one reference. It straddles no multiple of FL_PIECE_BYTES of
 * the slab unless it is larger than that. NULL: no room now; if the arena is empty, there never
 * will be. Owner only. */
struct fl_block *fl_ring_alloc(struct fl_ring *a, size_t bytes, size_t align);

/* Make a block longer in place. False: no room behind it, or it is not the newest. Owner only. */
bool fl_ring_grow(struct fl_ring *a, struct fl_block *b, size_t bytes);

struct fl_ring_mark fl_ring_mark(const struct fl_ring *a);

/* Forget blocks allocated since the mark; nothing may have been reclaimed in between. Owner only.
 */
void fl_ring_undo(struct fl_ring *a, const struct fl_ring_mark *m);

/* Take back free blocks at the tail. Owner only. */
void fl_ring_reclaim(struct fl_ring *a);

/* Ask for one wake() when about `bytes` more have been freed (all that is in use, if that is less).
 * False: it has happened already, or nothing is in use. Owner only. */
bool fl_ring_want(struct fl_ring *a, size_t bytes);

/* The oldest block, NULL if there is none. Owner only. */
static inline struct fl_block *fl_ring_tail(const struct fl_ring *a)
{
    return a->count ? &a->blocks[a->first] : NULL;
}

/* Place of a block in the ring of descriptors, 0 <= i < n_blocks: for tables beside it. */
static inline uint32_t fl_block_index(const struct fl_ring *a, const struct fl_block *b)
{
    return (uint32_t)(b - a->blocks);
}

/* One more holder. Owner only, while it holds the block itself. */
static inline void fl_block_get(struct fl_block *b)
{
    atomic_fetch_add_explicit(&b->refs, 1, memory_order_relaxed);
}

/* One holder less. Any thread; the block must not be touched afterwards. NULL is fine. */
void fl_block_put(struct fl_block *b);

#endif
