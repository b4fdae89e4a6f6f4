/* SPDX-License-Identifier: Apache-2.0 */
/* Data that is in the page cache: whoever needs it copies it.
 *
 * A copy out of the page cache happens in the thread that asks for it, and one thread copies no more
 * than a few GB/s. So a sample all of whose bytes are cached is lent: it leaves fl_read_submit()
 * with its extents planned, its memory reserved and nothing read, and the thread that is about to
 * decode it copies them (fl_read_copy), which also leaves the bytes in that processor's own caches.
 * A page that was evicted in between sends the sample back: its extents join the others, and it
 * comes out of fl_read_wait() like any other. Nothing here ever waits for a drive.
 *
 * Whether a range is cached is asked range by range, so that cold data gets the full depth of the
 * backend at once. Where data is cold again and again it is asked ever more rarely: this is the way
 * back to lending, when it has become warm. */
#define _GNU_SOURCE
#include "read_state.h"

#include <errno.h>

#include "base/clock.h"

#define PATIENCE 6 // after so many cold samples in a row one in 2^6 is looked at

/* --- the feeder's part --- */

static bool range_cached(struct fl_read *r, struct fl_file *file, const struct fl_read_req *q)
{
    if (file->direct)
        return false;
    if (r->ops->cached)
        return r->ops->cached(r->io, q->offset, q->length);
    if (file->how == FL_CACHED_UNTRIED)
        file->how = fl_cached_how(file->fd);
    return fl_cached(file->fd, file->how, q->offset, q->length);
}

/* Short, and a neighbour of the sample before it, or of those around it: many share one read. */
static bool shares(struct fl_read *r, struct fl_read_req *const *reqs, unsigned n)
{
    const struct fl_read_req *last = reqs[n - 1];
    const bool follows = reqs[0]->container == r->last_container &&
                         reqs[0]->offset >= r->last_end &&
                         reqs[0]->offset - r->last_end <= r->cfg.gap;
    uint64_t bytes = 0;

    for (unsigned i = 0; i < n; i++)
        bytes += reqs[i]->length;
    r->last_container = last->container;
    r->last_end = last->offset + last->length;
    return bytes < FL_READ_LEND_BYTES && (follows || r->cfg.around);
}

bool fl_cached_worth_asking(struct fl_read *r, struct fl_read_req *const *reqs, unsigned n)
{
    if (!r->cfg.lend || !n || shares(r, reqs, n))
        return false;
    if (r->cold_skip) {
        r->cold_skip--;
        return false;
    }
    return true;
}

bool fl_cached_all(struct fl_read *r, struct fl_read_req *const *reqs, struct fl_file *const *files,
                   unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        if (!range_cached(r, files[i], reqs[i])) {
            r->cold_streak += r->cold_streak < PATIENCE;
            r->cold_skip = (1u << r->cold_streak) - 1;
            return false;
        }
    r->cold_streak = 0;
    return true;
}

void fl_cached_lend(struct fl_read *r, struct fl_sample *s, struct fl_extent *extents)
{
    unsigned n = 0;

    for (const struct fl_extent *x = extents; x; x = x->next)
        n++;
    s->unread = extents;
    atomic_fetch_add(&r->n_lent, n);
}

void fl_cached_take_back(struct fl_read *r)
{
    // Acquire: pairs with the release in give_back(), so that the extents are seen as they were left.
    struct fl_sample *s = atomic_load_explicit(&r->returned, memory_order_relaxed), *later;

    if (!s)
        return;
    for (s = atomic_exchange_explicit(&r->returned, NULL, memory_order_acquire); s; s = later) {
        struct fl_extent *next;
        later = s->next;
        for (struct fl_extent *x = s->unread; x; x = next) {
            next = x->next;
            fl_extent_enqueue(r, x);
            atomic_fetch_sub(&r->n_lent, 1);
        }
        s->unread = NULL;
        r->pending++;
    }
}

/* --- the borrower's part --- */

static struct fl_read *reader_of(const struct fl_extent *x)
{
    return (struct fl_read *)((uint8_t *)x->block->ring - offsetof(struct fl_read, arena));
}

/* The extent is over, read or dropped. The block goes last: a feeder that waits for a descriptor is
 * woken by it (no_descriptor), and x may be another one's afterwards. */
static void end_loan(struct fl_read *r, struct fl_extent *x)
{
    fl_files_put(&r->files, x->file);
    atomic_fetch_sub(&r->n_lent, 1);
    fl_block_put(x->block);
}

void fl_cached_drop(struct fl_sample *s)
{
    struct fl_extent *x;

    while ((x = s->unread)) {
        s->unread = x->next;
        end_loan(reader_of(x), x);
    }
}

/* False: not all of it is in the page cache any more. What was copied stays copied. */
static bool copy(struct fl_read *r, struct fl_extent *x)
{
    const uint64_t bytes = x->end - x->start;

    while (x->issued < bytes) {
        const struct fl_io_op op = { .fd = x->file->fd,
                                     .file_slot = x->file->registered ? (int)x->file->slot : -1,
                                     .buf_slot = -1,
                                     .offset = x->start + x->issued,
                                     .length = (uint32_t)(bytes - x->issued < FL_READ_OP_BYTES
                                                              ? bytes - x->issued
                                                              : FL_READ_OP_BYTES),
                                     .buf = x->mem + x->issued };
        const int64_t n = r->ops->copy
                              ? r->ops->copy(r->io, &op)
                              : fl_cached_read(op.fd, x->file->how, op.buf, op.length, op.offset);
        if (n == -EINTR)
            continue;
        if (n <= 0)
            return false; // the feeder sees what it is: EAGAIN, an error, the end of a cut file
        x->issued += (uint64_t)n;
    }
    return true;
}

static void give_back(struct fl_read *r, struct fl_sample *s)
{
    struct fl_sample *first = atomic_load_explicit(&r->returned, memory_order_relaxed);

    atomic_fetch_add_explicit(&r->returns, 1, memory_order_relaxed);
    do
        s->next = first;
    while (!atomic_compare_exchange_weak_explicit(&r->returned, &first, s, memory_order_release,
                                                  memory_order_relaxed));
    fl_read_wake(r);
}

bool fl_read_copy(struct fl_read *r, struct fl_sample *s)
{
    const int64_t t0 = fl_now_ns();
    uint64_t bytes = 0;
    int64_t reads = 0;
    struct fl_extent *x;
    bool all = true;

    while (all && (x = s->unread)) {
        const uint64_t before = x->issued;
        all = copy(r, x);
        bytes += x->issued - before;
        reads++;
        if (!all)
            break;
        s->unread = x->next;
        s->reads_left -= x->n_reqs;
        end_loan(r, x);
    }
    // Relaxed: statistics order nothing.
    atomic_fetch_add_explicit(&r->copies, reads, memory_order_relaxed);
    atomic_fetch_add_explicit(&r->copied_bytes, bytes, memory_order_relaxed);
    atomic_fetch_add_explicit(&r->copy_ns, (uint64_t)(fl_now_ns() - t0), memory_order_relaxed);
    if (!all)
        give_back(r, s);
    return all;
}
