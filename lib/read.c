/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "read.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/thread.h"
#include "read_state.h"

#define STOP_NS (5 * (int64_t)1000000000) // how long fl_read_stop() waits for reads in flight
#define KICK_EVERY 8                      // operations given to the backend before it must begin
#define LOW_WATER 4                       // operations in flight below which nothing is held back
#define PREAD_THREADS 32

/* --- open --- */

static unsigned or_default(unsigned value, unsigned otherwise)
{
    return value ? value : otherwise;
}

static void resolve(struct fl_read_cfg *c)
{
    c->depth = or_default(c->depth, FL_READ_DEPTH_MAX);
    c->bytes = c->bytes ? c->bytes : FL_READ_BYTES;
    c->coalesce = c->coalesce ? c->coalesce : FL_READ_COALESCE;
    c->gap = c->gap ? c->gap : FL_READ_GAP;
    if (c->coalesce > c->bytes / 4) // several reads must fit, or the drive waits for the decoders
        c->coalesce = c->bytes / 4;
    c->around = (c->around + 4095) / 4096 * 4096;
    if (c->around > c->bytes / 16) // a whole neighbourhood must fit several times
        c->around = c->bytes / 16 / 4096 * 4096;
    if (c->inline_reads)
        c->threads = 0;
    else if (!c->threads)
        c->threads = c->depth < PREAD_THREADS ? c->depth : PREAD_THREADS;
}

static struct fl_files_cfg files_cfg(const struct fl_read_cfg *c)
{
    struct fl_files_cfg f = { .source = c->source, .direct = c->direct };

    if (c->faults) { // files in memory: nothing to gain from O_DIRECT, and few at a time
        f.direct = FL_OFF;
        f.max = 64;
    }
    return f;
}

/* Everything but the arena. */
static uint64_t table_bytes(const struct fl_read_cfg *c)
{
    const struct fl_files_cfg f = files_cfg(c);

    return sizeof(struct fl_read) + fl_ring_blocks(c->bytes) * sizeof(struct fl_extent) +
           c->depth * sizeof(struct fl_read_op) + fl_files_bytes(&f) + fl_granule_bytes(c);
}

uint64_t fl_read_bytes(const struct fl_read_cfg *cfg)
{
    struct fl_read_cfg c = *cfg;

    resolve(&c);
    return fl_ring_bytes(c.bytes) + table_bytes(&c);
}

static bool set_file(void *ctx, unsigned slot, int fd)
{
    struct fl_read *r = ctx;
    const bool registered = r->ops->set_file(r->io, slot, fd);

    return registered && fd >= 0;
}

static void wake_for_room(void *ctx)
{
    fl_read_wake(ctx);
}

static int open_backend(struct fl_read *r, const struct fl_io_ops *ops)
{
    struct fl_io_region regions[64];
    unsigned n = 0;

    regions[n] = fl_read_arena(r);
    regions[n++].touched = &r->arena.slab.touched;
    for (unsigned i = 0; i < r->cfg.n_regions && n < sizeof(regions) / sizeof(regions[0]); i++)
        regions[n++] = r->cfg.regions[i];
    const struct fl_io_cfg io = {
        .depth = r->cfg.depth,
        .threads = r->cfg.threads,
        .any_thread = r->cfg.inline_reads,
        .n_files = r->cfg.no_register && !r->cfg.faults ? 0 : r->files.n_table,
        .regions = regions,
        .n_regions = r->cfg.no_register ? 0 : n,
        .faults = r->cfg.faults,
        .log = &r->cfg.log,
    };
    const int err = ops->open(&r->io, &io);
    if (!err)
        r->ops = ops;
    return err;
}

/* Say once what was chosen and why. */
static void explain(struct fl_read *r, const char *why)
{
    const struct fl_io_info *info = r->ops->info(r->io);

    snprintf(r->reason, sizeof(r->reason), "%.160s%s%s", why, info->note[0] ? "; " : "",
             info->note);
    fl_log(&r->cfg.log, FL_LOG_INFO, "reading by %s, depth %u: %s", info->name, info->depth,
           r->reason);
}

static int fall_back(struct fl_read *r)
{
    char why[200];

    snprintf(why, sizeof(why), "%.199s", fl_last_error()->message);
    const int err = open_backend(r, &fl_io_pread);
    if (err)
        return err;
    fl_log(&r->cfg.log, FL_LOG_WARNING, "falling back to pread: %s", why);
    snprintf(r->reason, sizeof(r->reason), "%s", why);
    return 0;
}

static int choose_backend(struct fl_read *r)
{
    const struct fl_read_cfg *c = &r->cfg;

    if (c->faults)
        return open_backend(r, &fl_io_memory);
    if (c->io == FL_IO_PREAD || (c->io == FL_IO_AUTO && c->inline_reads))
        return open_backend(r, &fl_io_pread);
    const int err = open_backend(r, &fl_io_uring);
    if (!err || c->io == FL_IO_URING)
        return err;
    return fall_back(r);
}

static const char *why_this(const struct fl_read_cfg *c)
{
    if (c->faults)
        return "the memory backend was asked for";
    if (c->io == FL_IO_AUTO && c->inline_reads)
        return "no threads: reads in the caller's thread";
    return c->io == FL_IO_AUTO ? "the kernel has it" : "asked for by io";
}

static void link_ops(struct fl_read *r)
{
    r->n_ops = r->ops->info(r->io)->depth;
    if (r->n_ops > r->cfg.depth)
        r->n_ops = r->cfg.depth;
    for (unsigned i = 0; i < r->n_ops; i++) {
        r->op_table[i].next = r->op_free;
        r->op_free = &r->op_table[i];
    }
}

static bool read_free(struct fl_read *r, bool drained)
{
    if (r->io && !r->ops->close(r->io))
        drained = false;
    fl_files_close(&r->files);
    if (!drained)
        return false; // the kernel may still write to the arena, and a thread to an operation:
                      // leave them be
    pthread_mutex_destroy(&r->io_lock);
    fl_budget_give(r->cfg.budget, r->table_bytes);
    fl_ring_close(&r->arena);
    fl_granule_close(r);
    free(r->extents);
    free(r->op_table);
    free(r);
    return true;
}

static int open_parts(struct fl_read *r)
{
    const struct fl_read_cfg *c = &r->cfg;
    struct fl_files_cfg files = files_cfg(c);
    int err = fl_ring_open(&r->arena, c->bytes, c->numa_node, c->lazy, c->budget, wake_for_room, r);

    if (!err)
        err = fl_budget_take(c->budget, table_bytes(c), "the tables of the read stage");
    if (err)
        return err;
    r->table_bytes = table_bytes(c);
    r->extents = calloc(r->arena.n_blocks, sizeof(*r->extents));
    r->op_table = calloc(c->depth, sizeof(*r->op_table));
    if (!r->extents || !r->op_table)
        return fl_err(FL_ERR(ENOMEM), FL_STAGE_READ, "no memory for the tables of the read stage");
    err = fl_granule_open(r);
    if (err)
        return err;
    files.set = set_file;
    files.set_ctx = r;
    err = fl_files_open(&r->files, &files);
    return err ? err : choose_backend(r);
}

int fl_read_open(struct fl_read **out, const struct fl_read_cfg *cfg)
{
    if (cfg->depth > 4096 || (cfg->bytes && cfg->bytes < 65536))
        return fl_err(FL_ERR(EINVAL), FL_STAGE_READ,
                      cfg->depth > 4096 ? "depth = %llu is more than 4,096"
                                        : "read_bytes = %llu is less than 64 KiB",
                      (unsigned long long)(cfg->depth > 4096 ? cfg->depth : cfg->bytes));
    struct fl_read *r = calloc(1, sizeof(*r));
    if (!r)
        return fl_err(FL_ERR(ENOMEM), FL_STAGE_READ, "no memory for the read stage");
    r->cfg = *cfg;
    resolve(&r->cfg);
    r->by_bytes = !cfg->depth;
    r->issue_end = &r->issue;
    r->done_end = &r->done;
    pthread_mutex_init(&r->io_lock, NULL);
    const int err = open_parts(r);
    if (err) {
        const FlError why = *fl_last_error();
        read_free(r, true);
        return fl_err_raise(&why);
    }
    if (!r->reason[0])
        explain(r, why_this(&r->cfg));
    link_ops(r);
    *out = r;
    return 0;
}

/* First call of the feeder: only now is it known which thread will own the ring. */
static int start(struct fl_read *r)
{
    struct fl_file *file = NULL;
    FlError ignored;

    if (r->started)
        return r->start_err;
    r->started = true;
    // The test of registered buffers reads a real file of the dataset into the real arena.
    if (r->cfg.source.n_containers && fl_files_get(&r->files, 0, &file, &ignored))
        file = NULL;
    struct fl_block *all = fl_ring_alloc(&r->arena, r->arena.slab.bytes, 4096);
    pthread_mutex_lock(&r->io_lock);
    int err = r->ops->start(r->io, file ? file->fd : -1, file ? file->size : 0);
    if (err && r->cfg.io == FL_IO_AUTO) {
        r->ops->close(r->io);
        r->io = NULL;
        err = fall_back(r);
        if (file)
            file->registered = false;
    }
    r->growing = !err && r->ops->grow;
    pthread_mutex_unlock(&r->io_lock);
    fl_block_put(all);
    fl_ring_reclaim(&r->arena);
    if (file)
        fl_files_put(&r->files, file);
    r->start_err = err;
    return err;
}

/* --- the feeder's calls --- */

static void kick(struct fl_read *r)
{
    if (r->unkicked)
        r->ops->kick(r->io);
    r->unkicked = 0;
}

int fl_read_submit(struct fl_read *r, struct fl_sample *s)
{
    int code = start(r);

    if (code)
        return code;
    if (r->issue) {
        fl_op_pump(r);
        if (r->issue)
            return -EAGAIN; // every operation is in flight
    }
    s->err.code = 0;
    s->unread = NULL;
    code = fl_extent_plan(r, s);
    if (code == -EAGAIN)
        return code;
    fl_count_one(&r->samples);
    if (s->unread)
        return 1;
    r->pending++;
    if (code || !s->reads_left) {
        fl_read_push_done(r, s);
        return 0;
    }
    fl_op_pump(r);
    if (r->unkicked >= KICK_EVERY)
        kick(r);
    return 0;
}

void fl_read_flush(struct fl_read *r)
{
    if (start(r))
        return; // wait will say it
    fl_extent_close_open(r);
    fl_op_pump(r);
    kick(r);
}

/* Memory that has been touched meanwhile gets registered. */
static void grow(struct fl_read *r)
{
    if (!r->growing)
        return;
    pthread_mutex_lock(&r->io_lock);
    r->growing = r->ops->grow(r->io);
    pthread_mutex_unlock(&r->io_lock);
}

static int take_done(struct fl_read *r, struct fl_sample **done, unsigned max)
{
    unsigned n = 0;

    while (n < max && r->done) {
        done[n++] = r->done;
        if (!(r->done = r->done->next))
            r->done_end = &r->done;
    }
    r->pending -= n;
    return (int)n;
}

static int stalled(struct fl_read *r)
{
    const struct fl_read_op *oldest = NULL;

    for (unsigned i = 0; i < r->cfg.depth; i++) {
        const struct fl_read_op *op = &r->op_table[i];
        if (op->inflight && (!oldest || op->io.started < oldest->io.started))
            oldest = op;
    }
    r->progress_ns = fl_now_ns(); // whoever goes on waiting gets as much time again
    if (!oldest)
        return fl_err(FL_ERR(ETIMEDOUT), FL_STAGE_READ,
                      "reading made no progress in stall_timeout");
    const char *path = fl_files_path(&r->files, oldest->extent->file->container);
    const int code =
        fl_err(FL_ERR(ETIMEDOUT), FL_STAGE_READ,
               "%s: no read ended for %.1f s (stall_timeout); the oldest is of %u bytes at "
               "offset %llu, %u are in flight",
               path, (double)r->cfg.stall_timeout_ns / 1e9, oldest->io.length,
               (unsigned long long)oldest->io.offset, r->inflight);
    fl_err_at(fl_err_slot(), path, oldest->io.offset);
    return code;
}

static int64_t earlier(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Sleep in the backend. Returns operations ended, 0: deadline, wake-up or retries due, or an error.
 */
static int sleep_and_reap(struct fl_read *r, int64_t deadline)
{
    struct fl_io_op *ended[FL_READ_REAP];
    const int64_t before = fl_now_ns();
    _Atomic uint64_t *spent = r->inflight || r->op_retry ? &r->busy_ns
                              : r->wants_room            ? &r->wait_out_ns
                                                         : &r->wait_in_ns;
    const int n = r->ops->wait(r->io, ended, FL_READ_REAP, deadline);

    r->unkicked = 0;
    const int64_t now = fl_now_ns();
    fl_count(spent, (uint64_t)(now - before));
    if (n > 0)
        r->progress_ns = now;
    for (int i = 0; i < n; i++)
        fl_op_ended(r, (struct fl_read_op *)ended[i]);
    return n;
}

int fl_read_wait(struct fl_read *r, struct fl_sample **done, unsigned max, int64_t deadline_ns)
{
    const int err = start(r);
    bool woken = false;

    if (err)
        return err;
    grow(r);
    for (;;) {
        fl_cached_take_back(r);
        if (r->open && r->inflight < LOW_WATER)
            fl_extent_close_open(r);
        fl_op_pump(r);
        if (r->done) {
            kick(r);
            return take_done(r, done, max);
        }
        if (woken)
            return 0;
        // Backends return for a wake-up too, but one that comes with operations that complete no sample must not be lost;
        // nor may wake-ups without end keep what has ended from being seen.
        woken = atomic_exchange(&r->woken, false);
        int64_t now = fl_now_ns();
        int64_t until = earlier(deadline_ns, fl_op_retry_due(r, now));
        if (r->cfg.stall_timeout_ns && r->inflight)
            until = earlier(until, r->progress_ns + r->cfg.stall_timeout_ns);
        const int n = sleep_and_reap(r, woken ? 0 : until);
        if (n < 0)
            return n;
        if (n)
            continue;
        if (woken)
            return 0;
        now = fl_now_ns();
        if (r->cfg.stall_timeout_ns && r->inflight &&
            now - r->progress_ns >= r->cfg.stall_timeout_ns)
            return stalled(r);
        if (now >= deadline_ns)
            return 0;
    }
}

void fl_read_wake(struct fl_read *r)
{
    atomic_store(&r->woken, true);
    pthread_mutex_lock(&r->io_lock);
    r->ops->wake(r->io);
    pthread_mutex_unlock(&r->io_lock);
}

unsigned fl_read_pending(const struct fl_read *r)
{
    return r->pending + !!atomic_load_explicit(&r->returned, memory_order_relaxed);
}

int64_t fl_read_opening(const struct fl_read *r)
{
    return atomic_load_explicit(&r->files.opening, memory_order_relaxed) - 1;
}

void fl_read_release(struct fl_sample *s)
{
    fl_cached_drop(s);
    for (unsigned i = 0; i < s->n_reads; i++) {
        struct fl_block *b = s->reads[i].block;
        s->reads[i].block = NULL;
        s->reads[i].data = NULL;
        fl_block_put(b);
    }
}

void fl_read_settle(struct fl_read_req *req)
{
    if (!req->dst || req->data == req->dst)
        return;
    memcpy(req->dst, req->data, (size_t)req->length);
}

/* --- the others --- */

struct fl_io_region fl_read_arena(const struct fl_read *r)
{
    return (struct fl_io_region){ .base = r->arena.slab.base, .bytes = r->arena.slab.bytes };
}

bool fl_read_touch(struct fl_read *r, size_t more)
{
    struct fl_slab *slab = &r->arena.slab;
    const size_t upto = atomic_load_explicit(&slab->touched, memory_order_relaxed) + more;

    return !fl_slab_touch(slab, upto) && upto < slab->bytes;
}

uint64_t fl_read_used(const struct fl_read *r)
{
    return r->arena.used;
}

static int32_t direct_state(const struct fl_read *r)
{
    const int64_t direct = atomic_load_explicit(&r->n_direct, memory_order_relaxed);
    const int64_t buffered = atomic_load_explicit(&r->n_buffered, memory_order_relaxed);

    return direct && buffered ? 2 : direct > 0;
}

void fl_read_stats(const struct fl_read *r, FlLoaderStats *out)
{
    FlStageStats *stage = &out->stages[FL_STAGE_READ];
    pthread_mutex_t *lock = (pthread_mutex_t *)&r->io_lock;

    pthread_mutex_lock(lock);
    const struct fl_io_info *info = r->ops->info(r->io);
    snprintf(out->io_backend, sizeof(out->io_backend), "%s", info->name);
    snprintf(out->io_reason, sizeof(out->io_reason), "%.*s", (int)sizeof(out->io_reason) - 1,
             r->reason);
    out->io_depth = (int32_t)info->depth;
    out->io_registered = info->files | info->buffers << 1;
    pthread_mutex_unlock(lock);
    out->io_direct = direct_state(r);
    out->cached_reads = atomic_load_explicit(&r->copies, memory_order_relaxed);
    out->cached_bytes = atomic_load_explicit(&r->copied_bytes, memory_order_relaxed);
    out->cached_seconds = (double)atomic_load_explicit(&r->copy_ns, memory_order_relaxed) / 1e9;
    out->bytes_read =
        atomic_load_explicit(&r->bytes_read, memory_order_relaxed) + out->cached_bytes;
    out->bytes_wanted = atomic_load_explicit(&r->bytes_wanted, memory_order_relaxed);
    out->reads = atomic_load_explicit(&r->reads, memory_order_relaxed) + out->cached_reads;
    out->retries = atomic_load_explicit(&r->retries, memory_order_relaxed);
    stage->busy = (double)atomic_load_explicit(&r->busy_ns, memory_order_relaxed) / 1e9;
    stage->wait_in = (double)atomic_load_explicit(&r->wait_in_ns, memory_order_relaxed) / 1e9;
    stage->wait_out = (double)atomic_load_explicit(&r->wait_out_ns, memory_order_relaxed) / 1e9;
    stage->items = atomic_load_explicit(&r->samples, memory_order_relaxed);
    stage->bytes = out->bytes_wanted;
    stage->threads = r->cfg.inline_reads ? 0 : 1;
}

bool fl_read_stop(struct fl_read *r)
{
    struct fl_io_op *ended[FL_READ_REAP];
    const int64_t deadline = fl_now_ns() + STOP_NS;

    if (r->stopped || !r->started)
        return !r->inflight;
    r->stopped = true;
    r->ops->cancel(r->io);
    while (r->inflight && fl_now_ns() < deadline) {
        const int n = r->ops->wait(r->io, ended, FL_READ_REAP, deadline);
        if (n < 0)
            break;
        r->inflight -= (unsigned)n;
    }
    return !r->inflight;
}

bool fl_read_close(struct fl_read **r)
{
    struct fl_read *it = *r;

    *r = NULL;
    if (!it)
        return true;
    const bool drained = fl_read_stop(it);
    return read_free(it, drained);
}
