/* SPDX-License-Identifier: Apache-2.0 */
/* Requests to extents: sorting, alignment, coalescing, memory. All or nothing for each sample. */
#define _GNU_SOURCE
#include "read_state.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"

static const uint8_t nothing[1]; // where the data of empty requests is

static uint64_t align_down(uint64_t v, uint32_t a)
{
    return v - v % a;
}

static uint64_t align_up(uint64_t v, uint32_t a)
{
    return align_down(v + a - 1, a);
}

void fl_read_push_done(struct fl_read *r, struct fl_sample *s)
{
    s->next = NULL;
    *r->done_end = s;
    r->done_end = &s->next;
}

void fl_read_fail(struct fl_read *r, struct fl_read_req *req, int code, uint64_t offset,
                  const char *what)
{
    struct fl_sample *s = req->sample;

    if (s->err.code)
        return;
    const char *path = fl_files_path(&r->files, req->container);
    fl_err_set(&s->err, code, FL_STAGE_READ, "%s: %s at offset %llu (%llu bytes from %llu wanted)",
               path, what, (unsigned long long)offset, (unsigned long long)req->length,
               (unsigned long long)req->offset);
    fl_err_at(&s->err, path, offset);
    s->err.sample = s->id;
    s->err.position = s->position;
    for (unsigned i = 0; i < s->n_fields; i++)
        if (s->fields[i].read == (int)(req - s->reads))
            s->err_column = (int)i;
}

static void undo_begin(struct fl_read *r, struct fl_read_undo *u)
{
    *u = (struct fl_read_undo){ .mark = fl_ring_mark(&r->arena),
                                .open = r->open,
                                .used_granules = r->used_granules };
    u->ready_end = &u->ready;
    if (r->open) {
        u->open_copy = *r->open;
        u->open_refs = atomic_load_explicit(&r->open->block->refs, memory_order_relaxed);
    }
}

static void undo_all(struct fl_read *r, struct fl_read_undo *u)
{
    fl_granule_undo(r, u);
    // Extents made by this plan: each holds its file once.
    for (struct fl_extent *x = u->ready; x; x = x->next)
        if (x != u->open)
            fl_files_put(&r->files, x->file);
    if (r->open && r->open != u->open)
        fl_files_put(&r->files, r->open->file);
    r->open = u->open;
    if (u->open) {
        *u->open = u->open_copy;
        *u->open->reqs_end = NULL;
        atomic_store_explicit(&u->open->block->refs, u->open_refs, memory_order_relaxed);
    }
    fl_ring_undo(&r->arena, &u->mark);
}

void fl_extent_set_aside(struct fl_read_undo *u, struct fl_extent *x)
{
    x->next = NULL;
    *u->ready_end = x;
    u->ready_end = &x->next;
}

/* Nothing more joins the open extent. */
static void set_open_aside(struct fl_read *r, struct fl_read_undo *u)
{
    if (r->open)
        fl_extent_set_aside(u, r->open);
    r->open = NULL;
}

void fl_extent_enqueue(struct fl_read *r, struct fl_extent *x)
{
    x->next = NULL;
    *r->issue_end = x;
    r->issue_end = &x->next;
}

void fl_extent_close_open(struct fl_read *r)
{
    if (r->open)
        fl_extent_enqueue(r, r->open);
    r->open = NULL;
}

void fl_extent_attach(struct fl_extent *x, struct fl_read_req *req)
{
    req->next = NULL;
    *x->reqs_end = req;
    x->reqs_end = &req->next;
    x->n_reqs++;
    req->data = x->mem + (req->offset - x->start);
    req->block = NULL;
    if (x->block->bytes) {
        req->block = x->block;
        fl_block_get(x->block);
    }
}

/* True: the request joined the open extent. */
static bool coalesce(struct fl_read *r, struct fl_file *file, struct fl_read_req *req)
{
    struct fl_extent *x = r->open;

    if (!x || r->cfg.coalesce == 1 || x->file != file || req->offset < x->start ||
        req->offset > x->end + r->cfg.gap)
        return false;
    const uint64_t end = align_up(req->offset + req->length, file->round);
    if (end > x->end) {
        if (end - x->start > r->cfg.coalesce || !fl_ring_grow(&r->arena, x->block, end - x->start))
            return false;
        x->end = end;
    }
    fl_extent_attach(x, req);
    return true;
}

static struct fl_extent *fill_extent(struct fl_read *r, struct fl_block *b, struct fl_file *file,
                                     uint64_t start, uint64_t end, uint8_t *mem)
{
    struct fl_extent *x = &r->extents[fl_block_index(&r->arena, b)];

    *x = (struct fl_extent){
        .file = file, .block = b, .mem = mem, .start = start, .end = end, .buf_slot = -1
    };
    x->reqs_end = &x->reqs;
    return x;
}

struct fl_extent *fl_extent_new(struct fl_read *r, struct fl_file *file, uint64_t start,
                                uint64_t end)
{
    // Whole pages make shorter lists for the drive; small records would waste too much by it.
    const size_t align = end - start >= 32768    ? 4096
                         : file->mem_align > 512 ? file->mem_align
                                                 : 512;
    struct fl_block *b = fl_ring_alloc(&r->arena, (size_t)(end - start), align);

    return b ? fill_extent(r, b, file, start, end, b->data) : NULL;
}

/* Bytes that may be read to req->dst as it stands, 0: it must go through the arena. */
static uint64_t fits_dst(const struct fl_file *file, const struct fl_read_req *req, bool lend)
{
    // What is lent shares its read with nobody, so a short one loses nothing.
    if (!req->dst || req->length < (lend ? FL_READ_LEND_DST : FL_READ_DIRECT_DST) ||
        req->offset % file->align || (uintptr_t)req->dst % file->mem_align)
        return 0;
    const uint64_t bytes = align_up(req->length, file->align);
    return bytes <= req->dst_size ? bytes : 0;
}

/* 1: the request waits for a read, 0: its bytes are there, -EAGAIN: no room. Takes over the caller's hold on the file
 * unless there is no room. */
static int place(struct fl_read *r, struct fl_read_undo *u, struct fl_file *file,
                 struct fl_read_req *req, bool lend)
{
    const uint64_t direct = fits_dst(file, req, lend);
    bool waits = true;

    if (!direct) {
        const int code = lend ? 0 : fl_granule_place(r, u, file, req, &waits);
        if (code)
            return code < 0 ? code : waits;
        if (coalesce(r, file, req)) {
            fl_files_put(&r->files, file); // the extent has its own
            return 1;
        }
    }
    set_open_aside(r, u);
    struct fl_extent *x = NULL;
    if (direct) {
        struct fl_block *b = fl_ring_alloc(&r->arena, 0, 1);
        if (b)
            x = fill_extent(r, b, file, req->offset, req->offset + direct, req->dst);
    } else {
        // As the drive likes it, or as it must be where memory is that tight.
        uint32_t to = file->round;
        if (req->length + 2 * (uint64_t)to > r->arena.slab.bytes)
            to = file->align;
        x = fl_extent_new(r, file, align_down(req->offset, to),
                          align_up(req->offset + req->length, to));
    }
    if (!x)
        return -EAGAIN;
    r->open = x;
    fl_extent_attach(x, req);
    if (direct)
        set_open_aside(r, u); // nothing can join it
    return 1;
}

/* By container and offset, so that the fields of a sample can share a read whatever order they were
 * asked in. */
static unsigned sort_requests(struct fl_sample *s, struct fl_read_req **out)
{
    unsigned n = 0;

    for (unsigned i = 0; i < s->n_reads; i++) {
        struct fl_read_req *q = &s->reads[i];
        q->sample = s;
        q->block = NULL;
        q->data = nothing;
        if (!q->length)
            continue;
        unsigned k = n++;
        for (; k && (out[k - 1]->container > q->container ||
                     (out[k - 1]->container == q->container && out[k - 1]->offset > q->offset));
             k--)
            out[k] = out[k - 1];
        out[k] = q;
    }
    return n;
}

/* The request's file, held. 0, -EAGAIN, or FL_ERR(e) with the sample's error set. */
static int get_file(struct fl_read *r, struct fl_read_req *req, struct fl_file **out)
{
    FlError err = { 0 };
    const int code = fl_files_get(&r->files, req->container, out, &err);

    if (code == -EAGAIN)
        return code;
    if (code) {
        err.code = code;
        err.sample = req->sample->id;
        err.position = req->sample->position;
        req->sample->err = err;
        return code;
    }
    atomic_store_explicit(&r->n_direct, r->files.n_direct, memory_order_relaxed);
    atomic_store_explicit(&r->n_buffered, r->files.n_buffered, memory_order_relaxed);
    if (req->offset <= (*out)->size && req->length <= (*out)->size - req->offset)
        return 0;
    char what[96];
    snprintf(what, sizeof(what), "the file ends at %llu, the index points behind it",
             (unsigned long long)(*out)->size);
    fl_read_fail(r, req, FL_ERR(EBADMSG), req->offset, what);
    fl_files_put(&r->files, *out);
    return FL_ERR(EBADMSG);
}

static int too_large(struct fl_read *r, struct fl_read_req *const *reqs, unsigned n)
{
    uint64_t bytes = 0;

    for (unsigned i = 0; i < n; i++)
        bytes += reqs[i]->length;
    struct fl_sample *s = reqs[0]->sample;
    const char *path = fl_files_path(&r->files, reqs[0]->container);
    fl_err_set(
        &s->err, FL_ERR(E2BIG), FL_STAGE_READ,
        "%s: the sample at offset %llu has %llu bytes, more than the read memory of %zu bytes: "
        "raise read_bytes (and memory_limit)",
        path, (unsigned long long)reqs[0]->offset, (unsigned long long)bytes, r->arena.slab.bytes);
    fl_err_at(&s->err, path, reqs[0]->offset);
    s->err.sample = s->id;
    s->err.position = s->position;
    return FL_ERR(E2BIG);
}

/* No room for all of a sample: later, or never. */
static int no_room(struct fl_read *r, struct fl_read_req *const *reqs, unsigned n)
{
    uint64_t bytes = 0;

    for (unsigned i = 0; i < n; i++)
        bytes += reqs[i]->length;
    if (!r->arena.count || bytes > r->arena.slab.bytes)
        return too_large(r, reqs, n);
    // Wake-ups cost more than they bring if they come for every sample that was released.
    const uint64_t some = r->arena.slab.bytes / 16;
    // With granules, what samples hold may be less than that: any of it then.
    r->wants_room = fl_ring_want(&r->arena, r->used_granules ? 1 : bytes > some ? bytes : some);
    if (!r->wants_room)
        fl_read_wake(r); // freed meanwhile: the wait that follows must not sleep
    return -EAGAIN;
}

/* Reads in flight give descriptors back; without any there is nothing to wait for. */
static int no_descriptor(struct fl_read *r, struct fl_read_req *req)
{
    const unsigned lent = atomic_load(&r->n_lent);

    if (r->open || r->issue || r->inflight || r->op_retry)
        return -EAGAIN;
    if (lent) { // a borrower gives back the file, and then its block, which wakes us
        if (!fl_ring_want(&r->arena, 1) || atomic_load(&r->n_lent) != lent)
            fl_read_wake(r);
        return -EAGAIN;
    }
    fl_read_fail(r, req, FL_ERR(EMFILE), req->offset,
                 "no descriptor left to open it (ulimit -n); needed");
    return FL_ERR(EMFILE);
}

/* One attempt. 0: all requests found room, *waiting of them wait for a read; -EAGAIN: no room, nothing has changed;
 * -EMFILE: no descriptor now, likewise; FL_ERR(e): the sample's error is set, nothing else has changed. */
static int plan_once(struct fl_read *r, struct fl_read_req *const *reqs, unsigned n,
                     unsigned *waiting)
{
    struct fl_read_undo undo;
    struct fl_file *file;
    int code = 0;

    undo_begin(r, &undo);
    *waiting = 0;
    for (unsigned i = 0; i < n && code >= 0; i++) {
        code = get_file(r, reqs[i], &file);
        if (code) {
            code = code == -EAGAIN ? FL_ERR(EMFILE) : code;
            break;
        }
        code = place(r, &undo, file, reqs[i], false);
        if (code < 0)
            fl_files_put(&r->files, file);
        else
            *waiting += (unsigned)code;
    }
    if (code < 0) {
        undo_all(r, &undo);
        return code;
    }
    for (struct fl_extent *x = undo.ready, *next; x; x = next) {
        next = x->next;
        fl_extent_enqueue(r, x);
    }
    return 0;
}

/* Hold the files of all requests. */
static bool hold_files(struct fl_read *r, struct fl_read_req *const *reqs, unsigned n,
                       struct fl_file **files)
{
    unsigned held = 0;

    while (held < n && !get_file(r, reqs[held], &files[held]))
        held++;
    if (held == n)
        return true;
    while (held)
        fl_files_put(&r->files, files[--held]);
    reqs[0]->sample->err.code = 0; // whoever tries next will say it
    return false;
}

/* Plan a sample that whoever gets it is to copy. As plan_once(), or 1: it must be read instead. */
static int lend_once(struct fl_read *r, struct fl_read_req *const *reqs, unsigned n,
                     unsigned *waiting)
{
    struct fl_file *files[FL_MAX_COLUMNS];
    struct fl_read_undo undo;
    unsigned placed = 0;

    if (!hold_files(r, reqs, n, files))
        return 1;
    const bool cached = fl_cached_all(r, reqs, files, n);
    undo_begin(r, &undo);
    set_open_aside(r, &undo); // nobody joins the read of another
    while (cached && placed < n && place(r, &undo, files[placed], reqs[placed], true) > 0)
        placed++;
    if (placed < n) {
        for (unsigned i = placed; i < n; i++)
            fl_files_put(&r->files, files[i]);
        undo_all(r, &undo);
        return cached ? -EAGAIN : 1;
    }
    set_open_aside(r, &undo);
    struct fl_extent *x = undo.ready;
    if (undo.open) {
        x = x->next;
        fl_extent_enqueue(r, undo.open);
    }
    fl_cached_lend(r, reqs[0]->sample, x);
    *waiting = n;
    return 0;
}

int fl_extent_plan(struct fl_read *r, struct fl_sample *s)
{
    struct fl_read_req *reqs[FL_MAX_COLUMNS];
    uint64_t wanted = 0;
    unsigned waiting;
    int code;

    atomic_store(&r->arena.wake_at, UINT64_MAX); // awake: taking back a plan must not wake us again
    fl_ring_reclaim(&r->arena);
    const unsigned n = sort_requests(s, reqs);
    const bool ask = fl_cached_worth_asking(r, reqs, n);
    for (;;) {
        code = ask ? lend_once(r, reqs, n, &waiting) : 1;
        if (code == 1)
            code = plan_once(r, reqs, n, &waiting);
        if (code == FL_ERR(EMFILE) && !s->err.code)
            code = no_descriptor(r, reqs[0]);
        else if (code == -EAGAIN && !fl_granule_shed(r))
            code = no_room(r, reqs, n);
        else if (code == -EAGAIN)
            continue;
        // The wake-up was asked for; if granules alone hold the tail by now, it will not come.
        if (code != -EAGAIN || !fl_granule_shed(r))
            break;
    }
    for (unsigned i = 0; i < n; i++) {
        wanted += reqs[i]->length;
        if (code)
            reqs[i]->block = NULL, reqs[i]->data = NULL;
    }
    if (code)
        return code;
    s->reads_left = waiting;
    fl_count(&r->bytes_wanted, wanted);
    return 0;
}

void fl_extent_finish(struct fl_read *r, struct fl_extent *x)
{
    for (struct fl_read_req *q = x->reqs, *next; q; q = next) {
        next = q->next; // the sample may be handed on
        if (!--q->sample->reads_left)
            fl_read_push_done(r, q->sample);
    }
    fl_files_put(&r->files, x->file);
    struct fl_block *b = x->block;
    fl_granule_finished(x);
    fl_block_put(b);
}
