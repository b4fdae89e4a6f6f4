/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "buffer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/err.h"

/* Under address sanitizer, memory that was given back must not be touched: the arena says so
 * itself. */
#if defined(__SANITIZE_ADDRESS__)
#define FL_HAVE_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define FL_HAVE_ASAN 1
#endif
#endif
#ifdef FL_HAVE_ASAN
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(p, n) ((void)(p), (void)(n))
#define ASAN_UNPOISON_MEMORY_REGION(p, n) ((void)(p), (void)(n))
#endif

#define HUGE_PAGE ((size_t)2 << 20)
#define ADVISE_POPULATE_WRITE 23 // MADV_POPULATE_WRITE, Linux 5.14
#define POLICY_PREFERRED 1       // MPOL_PREFERRED
#define BLOCK_WEIGHT 64          // what a block of no bytes counts in arena.freed

int fl_budget_take(struct fl_budget *b, uint64_t bytes, const char *what)
{
    if (!b)
        return 0;
    // Relaxed: the counters order nothing, they only add up.
    uint64_t used = atomic_load_explicit(&b->used, memory_order_relaxed);
    do {
        if (b->limit && (bytes > b->limit || used > b->limit - bytes))
            return fl_err(
                FL_ERR(ENOMEM), FL_STAGE_PLAN,
                "memory_limit of %llu bytes is too small: %s needs %llu bytes and %llu are taken",
                (unsigned long long)b->limit, what, (unsigned long long)bytes,
                (unsigned long long)used);
    } while (!atomic_compare_exchange_weak_explicit(&b->used, &used, used + bytes,
                                                    memory_order_relaxed, memory_order_relaxed));
    uint64_t high = atomic_load_explicit(&b->high_water, memory_order_relaxed);
    while (high < used + bytes &&
           !atomic_compare_exchange_weak_explicit(&b->high_water, &high, used + bytes,
                                                  memory_order_relaxed, memory_order_relaxed))
        ;
    return 0;
}

void fl_budget_give(struct fl_budget *b, uint64_t bytes)
{
    if (b)
        atomic_fetch_sub_explicit(&b->used, bytes, memory_order_relaxed);
}

/* Touch every page: what MADV_POPULATE_WRITE does where the kernel has it. */
static int populate(uint8_t *base, size_t bytes)
{
    if (!madvise(base, bytes, ADVISE_POPULATE_WRITE))
        return 0;
    if (errno != EINVAL)
        return -errno;
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    for (size_t i = 0; i < bytes; i += page)
        *(volatile uint8_t *)(base + i) = 0;
    return 0;
}

/* 1 if the range is backed by huge pages, 0 if not. PAGEMAP_SCAN (Linux 6.7) looks at this range
 * alone; /proc/self/smaps would walk all memory of the process, which takes long in a trainer. */
static int backed_by_huge(const uint8_t *base, size_t bytes)
{
    struct region {
        uint64_t start, end, categories;
    } found = { 0 };
    struct {
        uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages;
        uint64_t category_inverted, category_mask, category_anyof_mask, return_mask;
    } scan = { .size = sizeof(scan),
               .start = (uint64_t)(uintptr_t)base,
               .end = (uint64_t)(uintptr_t)base + bytes,
               .vec = (uint64_t)(uintptr_t)&found,
               .vec_len = 1,
               .category_mask = 1u << 6, // PAGE_IS_HUGE
               .return_mask = 1u << 6 };
    const int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return 0;
    const int n = ioctl(fd, _IOWR('f', 16, scan), &scan);
    close(fd);
    return n > 0 && found.end - found.start >= bytes / 2;
}

/* The page tables decide what is possible: mmap gives page alignment, huge pages want 2 MiB. */
static uint8_t *map_aligned(size_t bytes)
{
    const size_t extra = bytes >= HUGE_PAGE ? HUGE_PAGE : 0;
    uint8_t *p =
        mmap(NULL, bytes + extra, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (p == MAP_FAILED)
        return NULL;
    if (!extra)
        return p;
    uint8_t *base = (uint8_t *)(((uintptr_t)p + extra - 1) & ~(uintptr_t)(extra - 1));
    if (base > p)
        munmap(p, (size_t)(base - p));
    if (base < p + extra)
        munmap(base + bytes, (size_t)(p + extra - base));
    return base;
}

static int prefer_node(uint8_t *base, size_t bytes, int node)
{
    unsigned long mask[16] = { 0 };
    const size_t bits = 8 * sizeof(mask[0]);

    if (node < 0 || (size_t)node >= bits * 16)
        return -1;
    mask[(size_t)node / bits] = 1ul << ((size_t)node % bits);
    // Containers often forbid mbind; then the kernel's own choice has to do.
    return syscall(SYS_mbind, base, bytes, POLICY_PREFERRED, mask, bits * 16, 0) ? -1 : node;
}

int fl_slab_open(struct fl_slab *slab, size_t bytes, int node, struct fl_budget *budget,
                 const char *what)
{
    return fl_slab_open_lazy(slab, bytes, bytes, node, budget, what);
}

void fl_slab_ahead(struct fl_slab *slab, size_t upto)
{
    size_t at = atomic_load_explicit(&slab->claimed, memory_order_relaxed);

    upto = upto < slab->bytes ? upto : slab->bytes;
    while (at < upto) {
        size_t end = (at / HUGE_PAGE + 1) * HUGE_PAGE;
        end = end < slab->bytes ? end : slab->bytes;
        // Relaxed: whether a page is there changes its cost, not its content.
        if (!atomic_compare_exchange_weak_explicit(&slab->claimed, &at, end, memory_order_relaxed,
                                                   memory_order_relaxed))
            continue;
        madvise(slab->base + at, end - at, ADVISE_POPULATE_WRITE);
        at = end;
    }
}

int fl_slab_touch(struct fl_slab *slab, size_t upto)
{
    const size_t from = atomic_load_explicit(&slab->touched, memory_order_relaxed);

    upto = (upto + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    upto = upto < slab->bytes ? upto : slab->bytes;
    if (upto <= from)
        return 0;
    if (atomic_load_explicit(&slab->claimed, memory_order_relaxed) < upto)
        atomic_store_explicit(&slab->claimed, upto,
                              memory_order_relaxed); // a hint: races cost time
    // Without MADV_POPULATE_WRITE (before Linux 5.14) the pages come when they are used: others may be
    // writing here.
    if (madvise(slab->base + from, upto - from, ADVISE_POPULATE_WRITE) && errno != EINVAL)
        return -errno;
    atomic_store_explicit(&slab->touched, upto, memory_order_release);
    return 0;
}

int fl_slab_open_lazy(struct fl_slab *slab, size_t bytes, size_t first, int node,
                      struct fl_budget *budget, const char *what)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t rounded = (bytes + page - 1) / page * page;

    *slab = (struct fl_slab){ .node = -1 };
    if (!rounded || rounded < bytes)
        return fl_err(FL_ERR(EINVAL), FL_STAGE_PLAN, "%s of %zu bytes cannot be allocated", what,
                      bytes);
    const int err = fl_budget_take(budget, rounded, what);
    if (err)
        return err;
    uint8_t *base = map_aligned(rounded);
    if (!base)
        goto fail;
    madvise(base, rounded, MADV_HUGEPAGE); // advice: works without
    const int got_node = prefer_node(base, rounded, node);
    // A child must not share these pages: while it does, a page that the drive writes to may be
    // copied away.
    first = first < rounded ? (first + page - 1) / page * page : rounded;
    if (madvise(base, rounded, MADV_DONTFORK) || (first && populate(base, first))) {
        munmap(base, rounded);
        goto fail;
    }
    *slab = (struct fl_slab){ .base = base,
                              .bytes = rounded,
                              .huge = first && backed_by_huge(base, first),
                              .node = got_node,
                              .touched = first,
                              .claimed = first,
                              .budget = budget };
    return 0;
fail:
    fl_budget_give(budget, rounded);
    return fl_err(FL_ERR(ENOMEM), FL_STAGE_PLAN, "the system has no %zu bytes of memory for %s",
                  rounded, what);
}

void fl_slab_close(struct fl_slab *slab)
{
    if (slab->base) {
        munmap(slab->base, slab->bytes);
        fl_budget_give(slab->budget, slab->bytes);
    }
    *slab = (struct fl_slab){ .node = -1 };
}

/* One descriptor for 4 KiB, so that small records run out of bytes first. */
uint32_t fl_ring_blocks(size_t bytes)
{
    uint32_t n = 256;

    while (n < 65536 && (size_t)n * 4096 < bytes)
        n *= 2;
    return n;
}

static size_t whole_pages(size_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return (bytes + page - 1) / page * page;
}

uint64_t fl_ring_bytes(size_t bytes)
{
    return whole_pages(bytes) + fl_ring_blocks(bytes) * sizeof(struct fl_block);
}

int fl_ring_open(struct fl_ring *a, size_t bytes, int node, bool lazy, struct fl_budget *budget,
                 void (*wake)(void *ctx), void *wake_ctx)
{
    *a = (struct fl_ring){ .n_blocks = fl_ring_blocks(bytes), .wake = wake, .wake_ctx = wake_ctx };
    atomic_init(&a->wake_at, UINT64_MAX);
    const uint64_t table = a->n_blocks * sizeof(struct fl_block);
    int err = fl_budget_take(budget, table, "the table of read blocks");

    if (err)
        return err;
    a->blocks = calloc(a->n_blocks, sizeof(struct fl_block));
    err = a->blocks
              ? fl_slab_open_lazy(&a->slab, bytes, lazy ? FL_FIRST_BYTES : bytes, node, budget,
                                  "read memory (read_bytes)")
              : fl_err(FL_ERR(ENOMEM), FL_STAGE_READ, "no memory for the table of read blocks");
    if (err) {
        free(a->blocks);
        a->blocks = NULL;
        fl_budget_give(budget, table);
        return err;
    }
    a->lap = a->slab.bytes / 4;
    for (uint32_t i = 0; i < a->n_blocks; i++)
        a->blocks[i].ring = a;
    ASAN_POISON_MEMORY_REGION(a->slab.base, a->slab.bytes);
    return 0;
}

void fl_ring_close(struct fl_ring *a)
{
    if (!a->blocks)
        return;
    ASAN_UNPOISON_MEMORY_REGION(a->slab.base, a->slab.bytes);
    fl_budget_give(a->slab.budget, a->n_blocks * sizeof(struct fl_block));
    fl_slab_close(&a->slab);
    free(a->blocks);
    a->blocks = NULL;
}

/* Where a block of `bytes` would begin at `from` or behind it. */
static size_t place(size_t from, size_t bytes, size_t align)
{
    const size_t pos = (from + align - 1) & ~(align - 1);

    // A registered buffer ends at each piece; a block across the border could use neither.
    if (bytes <= FL_PIECE_BYTES && pos / FL_PIECE_BYTES != (pos + bytes - 1) / FL_PIECE_BYTES)
        return (pos + bytes - 1) / FL_PIECE_BYTES * FL_PIECE_BYTES;
    return pos;
}

/* Finds the place of the next block and moves to the next lap if it lies there. False: no room. */
static bool find_room(struct fl_ring *a, size_t bytes, size_t align, size_t *begin, size_t *pos)
{
    *begin = a->head;
    *pos = place(a->head, bytes, align);
    if (a->wrapped)
        return *pos + bytes <= a->tail;
    // Most of the lap is idle: its front, used a moment ago, is still in the caches.
    const bool fits = *pos + bytes <= a->slab.bytes;
    const bool early = *pos + bytes > a->lap && a->used <= a->head / 2;
    if (fits && !early)
        return true;
    if (bytes <= a->tail) {
        *begin = *pos = 0;
        a->wrapped = true;
        return true;
    }
    return fits;
}

struct fl_block *fl_ring_alloc(struct fl_ring *a, size_t bytes, size_t align)
{
    size_t begin, pos;

    if (a->count == a->n_blocks || bytes > a->slab.bytes)
        return NULL;
    if (!a->count) {
        a->head = a->tail = 0;
        a->wrapped = false;
    }
    begin = pos = a->head;
    if (bytes && !find_room(a, bytes, align, &begin, &pos))
        return NULL;
    fl_slab_ahead(&a->slab, pos + bytes);
    struct fl_block *b = &a->blocks[(a->first + a->count) & (a->n_blocks - 1)];
    b->data = a->slab.base + pos;
    b->bytes = bytes;
    b->begin = begin;
    b->ring_bytes = pos - begin + bytes;
    atomic_store_explicit(&b->refs, 1, memory_order_relaxed);
    atomic_store_explicit(&b->kept, false, memory_order_relaxed);
    a->count++;
    a->allocated += b->ring_bytes + BLOCK_WEIGHT;
    a->head = pos + bytes;
    a->used += b->ring_bytes;
    if (bytes)
        ASAN_UNPOISON_MEMORY_REGION(b->data, bytes);
    if (a->used > a->high_water)
        a->high_water = a->used;
    return b;
}

bool fl_ring_grow(struct fl_ring *a, struct fl_block *b, size_t bytes)
{
    const size_t at = (size_t)(b->data - a->slab.base), more = bytes - b->bytes;

    if (b != &a->blocks[(a->first + a->count - 1) & (a->n_blocks - 1)] ||
        at + bytes > (a->wrapped ? a->tail : a->slab.bytes) ||
        at / FL_PIECE_BYTES != (at + bytes - 1) / FL_PIECE_BYTES)
        return false;
    ASAN_UNPOISON_MEMORY_REGION(b->data + b->bytes, more);
    b->bytes = bytes;
    b->ring_bytes += more;
    a->head += more;
    a->used += more;
    a->allocated += more;
    if (a->used > a->high_water)
        a->high_water = a->used;
    return true;
}

struct fl_ring_mark fl_ring_mark(const struct fl_ring *a)
{
    const struct fl_block *last = &a->blocks[(a->first + a->count - 1) & (a->n_blocks - 1)];

    return (struct fl_ring_mark){ .count = a->count,
                                  .head = a->head,
                                  .used = a->used,
                                  .wrapped = a->wrapped,
                                  .last_bytes = last->bytes,
                                  .last_ring_bytes = last->ring_bytes,
                                  .allocated = a->allocated };
}

void fl_ring_undo(struct fl_ring *a, const struct fl_ring_mark *m)
{
    while (a->count > m->count) {
        struct fl_block *b = &a->blocks[(a->first + --a->count) & (a->n_blocks - 1)];
        atomic_store_explicit(&b->refs, 0, memory_order_relaxed);
    }
    struct fl_block *last = &a->blocks[(a->first + m->count - 1) & (a->n_blocks - 1)];
    if (m->count && last->bytes != m->last_bytes) { // grown since, so nobody else holds it yet
        last->bytes = m->last_bytes;
        last->ring_bytes = m->last_ring_bytes;
    }
    a->head = m->head;
    a->used = m->used;
    a->wrapped = m->wrapped;
    a->allocated = m->allocated;
}

void fl_ring_reclaim(struct fl_ring *a)
{
    while (a->count) {
        struct fl_block *b = &a->blocks[a->first];
        // Acquire: what the last holder did with the bytes comes before the next read into them
        // (fl_block_put).
        if (atomic_load_explicit(&b->refs, memory_order_acquire))
            return;
        ASAN_POISON_MEMORY_REGION(b->data, b->bytes);
        a->used -= b->ring_bytes;
        a->first = (a->first + 1) & (a->n_blocks - 1);
        if (!--a->count)
            return; // the next block begins at the front
        const size_t next = a->blocks[a->first].begin;
        if (next < a->tail)
            a->wrapped = false;
        a->tail = next;
    }
}

/* Dekker's handshake with fl_block_put(): each side writes its word and then looks at the other's,
 * both in sequentially consistent order, so that at least one of them sees the other. */
bool fl_ring_want(struct fl_ring *a, size_t bytes)
{
    const uint64_t freed = atomic_load(&a->freed), held = a->allocated - freed;
    const uint64_t at = freed + (bytes < held ? bytes : held);

    if (!held)
        return false;
    atomic_store(&a->wake_at, at);
    if (atomic_load(&a->freed) < at)
        return true;
    atomic_store(&a->wake_at, UINT64_MAX);
    return false;
}

static void wake_owner(struct fl_ring *a)
{
    if (atomic_exchange(&a->wake_at, UINT64_MAX) != UINT64_MAX && a->wake)
        a->wake(a->wake_ctx);
}

void fl_block_put(struct fl_block *b)
{
    if (!b)
        return;
    // Before the count falls: afterwards the block may be another one's.
    struct fl_ring *a = b->ring;
    const uint64_t weight = b->ring_bytes + BLOCK_WEIGHT;
    const bool kept = atomic_load_explicit(&b->kept, memory_order_relaxed);
    // Release: this holder's reads of the bytes come before their reuse (fl_ring_reclaim). Sequentially consistent for
    // the handshake of kept blocks: the owner asks for a wake-up and then looks at the count.
    const uint32_t before = atomic_fetch_sub(&b->refs, 1);
    if (before == 2 && kept) { // now the owner alone has it, and can let go
        if (atomic_load(&a->wake_at) != UINT64_MAX)
            wake_owner(a);
        return;
    }
    if (before != 1)
        return;
    if (atomic_fetch_add(&a->freed, weight) + weight >= atomic_load(&a->wake_at))
        wake_owner(a);
}
