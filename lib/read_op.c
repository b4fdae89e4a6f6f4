/* SPDX-License-Identifier: Apache-2.0 */
/* Extents to operations and back: issuing, short reads, refusals, errors. */
#define _GNU_SOURCE
#include "read_state.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"

#define TRIES_AT_ONCE 3 // after EAGAIN or EINTR, before the backend is asked to block
#define TRIES_MAX 14    // with pauses that double from 1 ms: 4 s in all
#define STUCK_MAX 3     // reads that brought nothing new

static void submit(struct fl_read *r, struct fl_read_op *op)
{
    op->inflight = true;
    op->retry_at = 0;
    op->io.started = fl_now_ns();
    if (!r->inflight++)
        r->progress_ns = op->io.started;
    r->inflight_bytes += op->io.length;
    r->unkicked++;
    fl_count_one(&r->reads);
    r->ops->submit(r->io, &op->io);
}

/* Ask for reached .. target, from an aligned offset on. The extent's memory has room for whole
 * blocks. */
static void ask(struct fl_read *r, struct fl_read_op *op)
{
    const struct fl_extent *x = op->extent;
    const uint32_t align = x->file->align;
    const uint64_t from = op->reached - op->reached % align;
    const uint64_t to = (op->target + align - 1) / align * align;

    op->io.fd = x->file->fd;
    op->io.file_slot = x->file->registered ? (int)x->file->slot : -1;
    op->io.offset = from;
    op->io.length = (uint32_t)((to < op->end ? to : op->end) - from);
    op->io.buf = x->mem + (from - x->start);
    submit(r, op);
}

static void begin(struct fl_read *r, struct fl_read_op *op, struct fl_extent *x)
{
    const uint64_t left = x->end - x->start - x->issued;
    const uint64_t from = x->start + x->issued,
                   n = left < FL_READ_OP_BYTES ? left : FL_READ_OP_BYTES;

    *op = (struct fl_read_op){
        .extent = x, .begin = from, .end = from + n, .target = from + n, .reached = from
    };
    op->io.buf_slot = x->buf_slot;
    x->issued += n;
    x->ops++;
    ask(r, op);
}

/* Is the drive busy enough without another operation? */
static bool deep_enough(const struct fl_read *r)
{
    return !r->op_free ||
           (r->by_bytes && r->inflight >= FL_READ_DEPTH_MIN && r->inflight_bytes >= FL_READ_FLIGHT);
}

void fl_op_pump(struct fl_read *r)
{
    while (r->issue && !deep_enough(r)) {
        struct fl_extent *x = r->issue;
        struct fl_read_op *op = r->op_free;
        if (!x->issued)
            x->buf_slot = r->ops->find_buffer(r->io, x->mem, (size_t)(x->end - x->start));
        r->op_free = op->next;
        begin(r, op, x);
        if (x->issued == x->end - x->start && !(r->issue = x->next))
            r->issue_end = &r->issue;
    }
}

static void end_op(struct fl_read *r, struct fl_read_op *op)
{
    struct fl_extent *x = op->extent;

    op->extent = NULL;
    op->next = r->op_free;
    r->op_free = op;
    if (!--x->ops && x->issued == x->end - x->start)
        fl_extent_finish(r, x);
}

/* The part of a request that lies in the operation's share, from `from` on. False: none. */
static bool overlap(const struct fl_read_op *op, const struct fl_read_req *q, uint64_t from,
                    uint64_t *begin_, uint64_t *end_)
{
    const uint64_t end = q->offset + q->length;

    *begin_ = q->offset > from ? q->offset : from;
    *end_ = end < op->end ? end : op->end;
    return *begin_ < *end_;
}

/* After a split: on to the next request's part. Requests may be in any order; the lowest part comes
 * next. */
static bool next_part(struct fl_read_op *op, uint64_t from)
{
    uint64_t best = UINT64_MAX, b, e;

    for (const struct fl_read_req *q = op->extent->reqs; q; q = q->next)
        if (overlap(op, q, from, &b, &e) && b < best) {
            best = b;
            op->target = e;
        }
    op->reached = best;
    op->tries = 0;
    op->reopened = false;
    return best != UINT64_MAX;
}

static void part_done(struct fl_read *r, struct fl_read_op *op)
{
    if (op->split && next_part(op, op->target))
        ask(r, op);
    else
        end_op(r, op);
}

/* What is being read now will not come: tell whoever wanted a byte of it. */
static void give_up(struct fl_read *r, struct fl_read_op *op, int code, const char *what)
{
    struct fl_extent *x = op->extent;
    const uint64_t from = op->reached, to = op->target;
    uint64_t b, e;

    fl_granule_flawed(r, x);
    // A read that serves several samples must not take all of them down: each by itself then.
    if (!op->split && x->n_reqs > 1) {
        op->split = true;
        if (next_part(op, from)) {
            ask(r, op);
            return;
        }
    }
    for (struct fl_read_req *q = x->reqs; q; q = q->next)
        if (overlap(op, q, from, &b, &e) && b < to)
            fl_read_fail(r, q, code, b, what);
    part_done(r, op);
}

static void again(struct fl_read *r, struct fl_read_op *op)
{
    fl_count_one(&r->retries);
    ask(r, op);
}

static void again_later(struct fl_read *r, struct fl_read_op *op)
{
    const unsigned pauses = op->tries - TRIES_AT_ONCE;

    fl_count_one(&r->retries);
    op->retry_at = fl_now_ns() + (1000000ll << (pauses < 9 ? pauses : 9));
    op->next = r->op_retry;
    r->op_retry = op;
}

int64_t fl_op_retry_due(struct fl_read *r, int64_t now)
{
    struct fl_read_op *list = r->op_retry, *op;
    int64_t due = INT64_MAX;

    r->op_retry = NULL;
    while ((op = list)) {
        list = op->next;
        if (op->retry_at <= now) {
            ask(r, op);
            continue;
        }
        if (op->retry_at < due)
            due = op->retry_at;
        op->next = r->op_retry;
        r->op_retry = op;
    }
    return due;
}

static bool is_refusal_of_direct(int err)
{
    return err == EINVAL || err == EOPNOTSUPP || err == ENOTBLK || err == EFAULT;
}

/* A read failed. Everything here is tried a bounded number of times for each operation. */
static void failed(struct fl_read *r, struct fl_read_op *op, int err)
{
    struct fl_file *file = op->extent->file;
    char what[128];

    if (err == EAGAIN || err == EINTR || (err == ECANCELED && !r->stopped)) {
        // ECANCELED: the thread that submitted it ended (inline reads from changing threads).
        if (op->tries++ < TRIES_AT_ONCE) {
            again(r, op);
            return;
        }
        op->io.flags |= FL_IO_BLOCKING;
        if (op->tries < TRIES_MAX) {
            again_later(r, op);
            return;
        }
    } else if (is_refusal_of_direct(err) && op->io.buf_slot >= 0) {
        op->io.buf_slot = -1; // a registered buffer at an offset that this kernel does not like
        again(r, op);
        return;
    } else if (is_refusal_of_direct(err) && op->tries++ == 0 && r->cfg.direct != FL_ON) {
        fl_files_go_buffered(&r->files, file, err); // or another read has done so already
        atomic_store_explicit(&r->n_direct, r->files.n_direct, memory_order_relaxed);
        atomic_store_explicit(&r->n_buffered, r->files.n_buffered, memory_order_relaxed);
        again(r, op);
        return;
    } else if ((err == ESTALE || err == EIO) && !op->reopened) {
        op->reopened = true;
        fl_files_reopen(&r->files, file); // or another read has done so already
        again(r, op);
        return;
    }
    snprintf(what, sizeof(what), "read failed: %s%s", strerror(err),
             file->direct && r->cfg.direct == FL_ON && err == EINVAL ? " (direct = on)" : "");
    give_up(r, op, -err, what);
}

/* The file ended before the range did. Fine where nobody wanted the rest: direct reads ask for
 * whole blocks. */
static void ended_early(struct fl_read *r, struct fl_read_op *op)
{
    uint64_t b, e, need = op->reached;
    char what[96];

    for (const struct fl_read_req *q = op->extent->reqs; q; q = q->next)
        if (overlap(op, q, op->reached, &b, &e) && b < op->target && e > need)
            need = e;
    if (need <= op->reached) {
        if (op->reached < op->extent->file->size)
            fl_granule_flawed(r, op->extent);
        part_done(r, op);
        return;
    }
    snprintf(what, sizeof(what), "the file was cut while in use: it had %llu bytes and now ends",
             (unsigned long long)op->extent->file->size);
    give_up(r, op, FL_ERR(EBADMSG), what);
}

void fl_op_ended(struct fl_read *r, struct fl_read_op *op)
{
    const int64_t result = op->io.result;
    struct fl_file *file = op->extent->file;

    op->inflight = false;
    r->inflight--;
    r->inflight_bytes -= op->io.length;
    if (result < 0) {
        failed(r, op, (int)-result);
        return;
    }
    fl_count(&r->bytes_read, (uint64_t)result);
    const uint64_t reached = op->io.offset + (uint64_t)result;
    if (reached >= op->target) {
        part_done(r, op);
        return;
    }
    // Short. The rest is asked for from the last whole block on, so nothing new means no progress.
    if (reached > op->reached) {
        op->reached = reached;
        op->tries = 0;
        if (reached >= file->size)
            ended_early(r, op);
        else
            again(r, op);
        return;
    }
    if (!result && !file->direct) {
        ended_early(r, op);
        return;
    }
    if (op->tries++ < STUCK_MAX) {
        if (r->cfg.direct != FL_ON)
            fl_files_go_buffered(&r->files, file, 0);
        again(r, op);
    } else {
        ended_early(r, op);
    }
}
