/* SPDX-License-Identifier: Apache-2.0 */
/* Reads by io_uring. One ring, one thread that submits and reaps (issue order does not matter:
 * completions are matched by user_data alone). Never more operations in flight than the completion
 * queue holds. */
#define _GNU_SOURCE
#include "io/io.h"

#include <errno.h>
#include <liburing.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/thread.h"
#include "buffer.h"

#define EXTRA_ENTRIES 2 // the poll of the wake-up descriptor, a cancellation
#define MIN_DEPTH 4
#define WORKERS_MAX 16 // of the kernel, for reads that block
#define MAX_PIECES 512 // of registered memory; UIO_MAXIOV is 1,024
#define TEST_BYTES 65536
#define BROKEN_AFTER_NS (5 * (int64_t)1000000000)

/* user_data of what is no read; reads have the address of their struct. */
enum { TAG_WAKE = 1, TAG_CANCEL = 2 };

/* Memory that is registered in pieces of one size, from its beginning as far as its pages are there:
 * registering what nobody has touched yet would populate it. */
struct region {
    struct fl_io_region memory;
    unsigned first;       // slot of its first piece
    unsigned n, n_pieces; // pieces registered, and in all
};

struct uring {
    struct io_uring ring;
    struct fl_io_info info;
    struct region *regions;
    unsigned n_regions;
    size_t piece;
    unsigned n_files;
    unsigned flags;                          // IORING_SETUP_* that the kernel took
    unsigned inflight;                       // reads submitted and not reaped
    struct fl_io_op *backlog, **backlog_end; // taken while the submission queue was full
    int wake_fd;
    bool armed;         // the poll of wake_fd is in flight
    _Atomic bool woken; // a wake-up is on its way: further ones need no system call
};

static struct uring *self(struct fl_io *io)
{
    return (struct uring *)io;
}

/* --- open --- */

/* The ring with the best flags that this kernel knows, disabled until its thread starts it. Returns
 * 0 or -errno. */
static int make_ring(struct uring *u, unsigned entries, bool any_thread)
{
    static const unsigned flags[] = {
        // Completions are worked off when the ring's thread asks, not by interrupting it
        // (Linux 6.1).
        IORING_SETUP_R_DISABLED | IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN,
        IORING_SETUP_R_DISABLED | IORING_SETUP_COOP_TASKRUN, // Linux 5.19
        IORING_SETUP_R_DISABLED,                             // Linux 5.10
    };
    int err = -EINVAL;

    for (size_t i = any_thread; i < sizeof(flags) / sizeof(flags[0]) && err == -EINVAL; i++) {
        u->flags = flags[i];
        err = io_uring_queue_init(entries, &u->ring, flags[i]);
    }
    return err;
}

static unsigned entries_for(unsigned depth)
{
    unsigned n = 1;

    while (n < depth + EXTRA_ENTRIES)
        n *= 2;
    return n;
}

/* Smaller rings until the locked-memory limit allows one (kernels charge rings to it). */
static int make_ring_that_fits(struct uring *u, unsigned depth, bool any_thread)
{
    for (;;) {
        const int err = make_ring(u, entries_for(depth), any_thread);
        if (err != -ENOMEM || depth <= MIN_DEPTH) {
            u->info.depth = depth;
            return err;
        }
        depth /= 2;
    }
}

static void add_note(struct uring *u, const char *what, int err)
{
    const size_t n = strlen(u->info.note);

    snprintf(u->info.note + n, sizeof(u->info.note) - n, "%s%s: %s", n ? "; " : "", what,
             strerror(-err));
}

static void register_files(struct uring *u, unsigned n)
{
    if (!n)
        return;
    const int err = io_uring_register_files_sparse(&u->ring, n); // Linux 5.19
    if (err) {
        add_note(u, "files not registered", err);
        return;
    }
    u->n_files = n;
    u->info.files = true;
}

static unsigned pieces_of(size_t bytes, size_t piece)
{
    return (unsigned)((bytes + piece - 1) / piece);
}

/* Lay the regions out in slots. Returns the number of slots. */
static unsigned cut_in_pieces(struct uring *u, const struct fl_io_cfg *cfg)
{
    unsigned n;

    u->piece = FL_FIRST_BYTES;
    do {
        n = 0;
        for (unsigned i = 0; i < cfg->n_regions; i++) {
            const unsigned pieces = pieces_of(cfg->regions[i].bytes, u->piece);
            u->regions[i] =
                (struct region){ .memory = cfg->regions[i], .first = n, .n_pieces = pieces };
            n += pieces;
        }
    } while (n > MAX_PIECES && u->piece < FL_PIECE_BYTES && (u->piece *= 2));
    while (n > MAX_PIECES) { // more than half a TiB: what fits
        n -= u->regions[u->n_regions - 1].n_pieces;
        u->n_regions--;
    }
    return n;
}

static void note_memlock(struct uring *u, int err, uint64_t wanted)
{
    struct rlimit limit = { 0 };
    char what[96];

    getrlimit(RLIMIT_MEMLOCK, &limit);
    snprintf(what, sizeof(what),
             "buffers not registered (RLIMIT_MEMLOCK %llu KiB, %llu KiB wanted)",
             (unsigned long long)limit.rlim_cur / 1024, (unsigned long long)wanted / 1024);
    add_note(u, what, err);
}

/* Piece i of a region: its memory. */
static struct iovec piece_at(const struct uring *u, const struct region *g, unsigned i)
{
    const size_t at = i * u->piece, left = g->memory.bytes - at;

    return (struct iovec){ g->memory.base + at, left < u->piece ? left : u->piece };
}

/* Before Linux 5.19 a table of buffers is registered whole, or not at all. */
static int register_whole(struct uring *u, unsigned n)
{
    struct iovec *v = calloc(n, sizeof(*v));
    int err = v ? 0 : -ENOMEM;

    for (unsigned i = 0; i < u->n_regions && v; i++)
        for (unsigned k = 0; k < u->regions[i].n_pieces; k++)
            v[u->regions[i].first + k] = piece_at(u, &u->regions[i], k);
    if (v)
        err = io_uring_register_buffers(&u->ring, v, n);
    free(v);
    for (unsigned i = 0; i < u->n_regions && !err; i++)
        u->regions[i].n = u->regions[i].n_pieces;
    return err;
}

static uint64_t bytes_of(const struct uring *u)
{
    uint64_t bytes = 0;

    for (unsigned i = 0; i < u->n_regions; i++)
        bytes += u->regions[i].memory.bytes;
    return bytes;
}

/* Register the pieces whose pages are there by now. 0, or why that was refused. */
static int register_touched(struct uring *u)
{
    for (unsigned i = 0; i < u->n_regions; i++) {
        struct region *g = &u->regions[i];
        const size_t touched = g->memory.touched
                                   ? atomic_load_explicit(g->memory.touched, memory_order_acquire)
                                   : g->memory.bytes;
        for (; g->n < g->n_pieces; g->n++) {
            struct iovec v = piece_at(u, g, g->n);
            __u64 tag = 0;
            if (g->n * u->piece + v.iov_len > touched)
                break;
            const int n =
                io_uring_register_buffers_update_tag(&u->ring, g->first + g->n, &v, &tag, 1);
            if (n != 1)
                return n < 0 ? n : -EIO;
        }
    }
    return 0;
}

static bool all_registered(const struct uring *u)
{
    for (unsigned i = 0; i < u->n_regions; i++)
        if (u->regions[i].n < u->regions[i].n_pieces)
            return false;
    return true;
}

/* What is registered by now is all there will be. */
static void stop_registering(struct uring *u)
{
    for (unsigned i = 0; i < u->n_regions; i++)
        u->regions[i].n_pieces = u->regions[i].n;
}

static int register_buffers(struct uring *u, const struct fl_io_cfg *cfg)
{
    if (!cfg->n_regions)
        return 0;
    u->regions = calloc(cfg->n_regions, sizeof(*u->regions));
    if (!u->regions)
        return fl_err(FL_ERR(ENOMEM), FL_STAGE_READ,
                      "no memory for the table of registered buffers");
    u->n_regions = cfg->n_regions;
    const unsigned n = cut_in_pieces(u, cfg);
    int err = io_uring_register_buffers_sparse(&u->ring, n); // Linux 5.19
    err = err == -EINVAL ? register_whole(u, n) : err ? err : register_touched(u);
    u->info.buffers = u->n_regions && u->regions[0].n;
    if (err) {
        note_memlock(u, err, bytes_of(u));
        stop_registering(u);
    }
    return 0;
}

/* Later: the memory has been touched further. */
static bool uring_grow(struct fl_io *io)
{
    struct uring *u = (struct uring *)io;
    const int err = register_touched(u);

    if (err) {
        add_note(u, "not all buffers registered", err);
        stop_registering(u);
    }
    return !all_registered(u);
}

static int refused(int err)
{
    if (err == -ENOMEM)
        return fl_err(err, FL_STAGE_READ,
                      "io_uring: no locked memory left for a ring of %d entries (RLIMIT_MEMLOCK, "
                      "ulimit -l): %s",
                      MIN_DEPTH, strerror(-err));
    return fl_err(
        err, FL_STAGE_READ, "io_uring is refused here: io_uring_setup: %s%s", strerror(-err),
        err == -EPERM ? " (a container's seccomp profile, or sysctl kernel.io_uring_disabled)"
                      : "");
}

static void uring_free(struct uring *u)
{
    if (u->wake_fd >= 0)
        close(u->wake_fd);
    free(u->regions);
    free(u);
}

static int uring_open(struct fl_io **out, const struct fl_io_cfg *cfg)
{
    struct uring *u = calloc(1, sizeof(*u));
    int err;

    if (!u)
        return fl_err(FL_ERR(ENOMEM), FL_STAGE_READ, "no memory for the io_uring backend");
    u->backlog_end = &u->backlog;
    u->info.name = fl_io_uring.name;
    u->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (u->wake_fd < 0) {
        err = fl_err(-errno, FL_STAGE_READ, "eventfd: %s", strerror(errno));
        goto fail;
    }
    err = make_ring_that_fits(u, cfg->depth, cfg->any_thread);
    if (err) {
        refused(err);
        goto fail;
    }
    io_uring_ring_dontfork(&u->ring);
    register_files(u, cfg->n_files);
    err = register_buffers(u, cfg);
    if (err) {
        io_uring_queue_exit(&u->ring);
        goto fail;
    }
    unsigned workers[2] = { WORKERS_MAX, WORKERS_MAX };
    io_uring_register_iowq_max_workers(&u->ring, workers); // Linux 5.15; a bound, not a need
    *out = (struct fl_io *)u;
    return 0;
fail:
    uring_free(u);
    return err;
}

/* --- submission --- */

/* A free entry, NULL if the queue is full even after handing it to the kernel. */
static struct io_uring_sqe *entry(struct uring *u)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(&u->ring);

    if (sqe)
        return sqe;
    io_uring_submit(&u->ring);
    return io_uring_get_sqe(&u->ring);
}

static bool prepare(struct uring *u, struct fl_io_op *op)
{
    struct io_uring_sqe *sqe = entry(u);

    if (!sqe)
        return false;
    const bool fixed_file = op->file_slot >= 0;
    const int fd = fixed_file ? op->file_slot : op->fd;
    if (op->buf_slot >= 0)
        io_uring_prep_read_fixed(sqe, fd, op->buf, op->length, op->offset, op->buf_slot);
    else
        io_uring_prep_read(sqe, fd, op->buf, op->length, op->offset);
    unsigned flags = fixed_file ? IOSQE_FIXED_FILE : 0;
    // Never for mere copies out of the page cache: handing them to the kernel's workers cost a quarter of
    // the rate on 16 processors (docs/performance.md).
    if (op->flags & FL_IO_BLOCKING)
        flags |= IOSQE_ASYNC;
    io_uring_sqe_set_flags(sqe, flags);
    io_uring_sqe_set_data(sqe, op);
    return true;
}

static void uring_submit(struct fl_io *io, struct fl_io_op *op)
{
    struct uring *u = self(io);

    u->inflight++;
    if (!u->backlog && prepare(u, op))
        return;
    op->next = NULL;
    *u->backlog_end = op;
    u->backlog_end = &op->next;
}

static void arm_wake(struct uring *u)
{
    struct io_uring_sqe *sqe = u->armed ? NULL : entry(u);

    if (!sqe)
        return;
    io_uring_prep_poll_add(sqe, u->wake_fd, POLLIN);
    io_uring_sqe_set_data(sqe, (void *)(uintptr_t)TAG_WAKE);
    u->armed = true;
}

static void push_backlog(struct uring *u)
{
    while (u->backlog && prepare(u, u->backlog)) {
        u->backlog = u->backlog->next;
        if (!u->backlog)
            u->backlog_end = &u->backlog;
    }
}

static void uring_kick(struct fl_io *io)
{
    struct uring *u = self(io);

    push_backlog(u);
    if (io_uring_sq_ready(&u->ring))
        io_uring_submit(&u->ring); // EBUSY, EAGAIN: wait() reaps first and submits again
}

/* --- completion --- */

static void drain_wake(struct uring *u)
{
    uint64_t count;

    while (read(u->wake_fd, &count, sizeof(count)) < 0 && errno == EINTR)
        ;
    // Cleared after the read: a wake() before this found it set, wrote nothing, and is served by this
    // return, as the exchange reads what that one wrote; a wake() after it writes again. The other
    // way round, a wake() in between would be read at once and leave the flag set for good.
    atomic_exchange(&u->woken, false);
    u->armed = false;
}

/* Take what the completion queue holds. Returns reads taken; *woken: the wake-up was among them. */
static unsigned reap(struct uring *u, struct fl_io_op **done, unsigned max, bool *woken)
{
    struct io_uring_cqe *cqe;
    unsigned head, n = 0, seen = 0;

    io_uring_for_each_cqe(&u->ring, head, cqe)
    {
        const uint64_t data = cqe->user_data;
        if (data > TAG_CANCEL && n == max)
            break;
        seen++;
        if (data == TAG_WAKE) {
            drain_wake(u);
            *woken = true;
        } else if (data != TAG_CANCEL) {
            struct fl_io_op *op = (struct fl_io_op *)(uintptr_t)data;
            op->result = cqe->res;
            done[n++] = op;
        }
    }
    io_uring_cq_advance(&u->ring, seen);
    u->inflight -= n;
    return n;
}

/* Submit, and sleep until something completes or the deadline. 0, -ETIME, -EINTR, -EBUSY, -EAGAIN
 * or worse. */
static int enter(struct uring *u, int64_t deadline)
{
    struct io_uring_cqe *cqe;
    struct __kernel_timespec t, *limit = NULL;

    if (deadline != INT64_MAX) {
        const int64_t now = fl_now_ns(), left = deadline > now ? deadline - now : 0;
        if (!left) {
            const int err = io_uring_submit_and_get_events(&u->ring);
            return err < 0 ? err : io_uring_cq_ready(&u->ring) ? 0 : -ETIME;
        }
        t = (struct __kernel_timespec){ .tv_sec = left / 1000000000, .tv_nsec = left % 1000000000 };
        limit = &t;
    }
    const int err = io_uring_submit_and_wait_timeout(&u->ring, &cqe, 1, limit, NULL);
    return err < 0 ? err : 0;
}

static int uring_wait(struct fl_io *io, struct fl_io_op **done, unsigned max, int64_t deadline)
{
    struct uring *u = self(io);
    int64_t refused_since = 0;
    bool woken = false;

    for (;;) {
        const unsigned n = reap(u, done, max, &woken);
        push_backlog(u);
        arm_wake(u);
        if (n || woken) {
            if (io_uring_sq_ready(&u->ring))
                io_uring_submit(&u->ring);
            return (int)n;
        }
        const int err = enter(u, deadline);
        if (!err || io_uring_cq_ready(&u->ring))
            continue;
        if (err == -ETIME)
            return 0;
        if (err == -EINTR)
            continue;
        if (err != -EBUSY && err != -EAGAIN && err != -ENOMEM)
            return fl_err(err, FL_STAGE_READ, "io_uring_enter: %s", strerror(-err));
        // The kernel is short of something: what is in flight will end, or memory comes back.
        const int64_t now = fl_now_ns();
        if (!refused_since)
            refused_since = now;
        else if (now - refused_since > BROKEN_AFTER_NS)
            return fl_err(err, FL_STAGE_READ, "io_uring_enter goes on failing: %s", strerror(-err));
        nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
    }
}

static void uring_wake(struct fl_io *io)
{
    struct uring *u = self(io);
    const uint64_t one = 1;

    if (atomic_exchange(&u->woken, true))
        return;
    while (write(u->wake_fd, &one, sizeof(one)) < 0 && errno == EINTR)
        ;
}

/* --- registered files and buffers --- */

static bool uring_set_file(struct fl_io *io, unsigned slot, int fd)
{
    struct uring *u = self(io);

    return slot < u->n_files && io_uring_register_files_update(&u->ring, slot, &fd, 1) == 1;
}

static int uring_find_buffer(const struct fl_io *io, const uint8_t *buf, size_t bytes)
{
    const struct uring *u = (const struct uring *)io;

    for (unsigned i = 0; i < u->n_regions; i++) {
        const struct region *g = &u->regions[i];
        const uint8_t *base = g->memory.base;
        if (buf < base || buf + bytes > base + g->memory.bytes)
            continue;
        const size_t k = (size_t)(buf - base) / u->piece;
        const bool within = k == (size_t)(buf + bytes - 1 - base) / u->piece;
        return within && k < g->n ? (int)(g->first + k) : -1;
    }
    return -1;
}

/* One read from start to end, for the self-test. Returns its result or -errno. */
static int64_t read_once(struct uring *u, struct fl_io_op *op)
{
    struct fl_io_op *done;
    int n;

    uring_submit((struct fl_io *)u, op);
    do {
        n = uring_wait((struct fl_io *)u, &done, 1, INT64_MAX);
    } while (!n);
    return n < 0 ? n : op->result;
}

/* Registered buffers fail at some offsets on some kernels: read the same range with and without, at
 * the front, across huge-page borders and at the end of the first piece, and compare. 0, or what
 * went wrong. */
static int test_buffers(struct uring *u, int fd, uint64_t size)
{
    const struct iovec v = piece_at(u, &u->regions[0], 0);
    const struct fl_io_region b = { .base = v.iov_base, .bytes = v.iov_len };
    const uint32_t length = b.bytes < 2 * TEST_BYTES ? 4096 : TEST_BYTES;
    const size_t at[] = { 0, b.bytes / 2 / 4096 * 4096 - length / 8192 * 4096,
                          b.bytes / 3 / 512 * 512, (b.bytes - length) / 4096 * 4096 };
    uint8_t *plain = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int err = 0;

    if (b.bytes < 4096 || plain == MAP_FAILED)
        return plain == MAP_FAILED ? -ENOMEM : -EINVAL;
    for (size_t i = 0; i < sizeof(at) / sizeof(at[0]) && !err; i++) {
        const uint64_t offset = size > 2 * length ? (size / 2 / 4096 * 4096) * (i & 1) : 0;
        struct fl_io_op op = { .fd = fd,
                               .file_slot = -1,
                               .buf_slot = -1,
                               .offset = offset,
                               .length = length,
                               .buf = plain };
        const int64_t want = read_once(u, &op);
        op.buf = b.base + at[i];
        op.buf_slot = 0;
        const int64_t got = read_once(u, &op);
        if (got != want)
            err = got < 0 ? (int)got : -EIO;
        else if (want > 0 && memcmp(plain, op.buf, (size_t)want))
            err = -EBADMSG;
    }
    munmap(plain, length);
    return err;
}

static int uring_start(struct fl_io *io, int fd, uint64_t size)
{
    struct uring *u = self(io);
    bool woken = false;
    int err = io_uring_enable_rings(&u->ring);

    // The thread that enables the ring becomes the one that may submit.
    if (err)
        return fl_err(err, FL_STAGE_READ, "io_uring_register: %s", strerror(-err));
    struct io_uring_sqe *sqe = entry(u);
    if (!sqe)
        return fl_err(FL_ERR(EBUSY), FL_STAGE_READ, "io_uring: the kernel takes no entries");
    io_uring_prep_nop(sqe);
    io_uring_sqe_set_data(sqe, (void *)(uintptr_t)TAG_CANCEL);
    err = enter(u, fl_now_ns() + BROKEN_AFTER_NS);
    if (err)
        return fl_err(err, FL_STAGE_READ, "io_uring is refused here: io_uring_enter: %s",
                      strerror(-err));
    reap(u, NULL, 0, &woken);
    if (!u->info.buffers || fd < 0 || !size)
        return 0;
    err = test_buffers(u, fd, size);
    if (err) {
        io_uring_unregister_buffers(&u->ring);
        for (unsigned i = 0; i < u->n_regions; i++)
            u->regions[i].n = 0;
        stop_registering(u);
        u->info.buffers = false;
        add_note(u, "registered buffers failed their test", err);
    }
    return 0;
}

/* --- end --- */

static void uring_cancel(struct fl_io *io)
{
    struct uring *u = self(io);
    struct io_uring_sqe *sqe = entry(u);

    if (!sqe)
        return;
    // Linux 5.19; older kernels answer EINVAL, and reads of a drive end by themselves anyway.
    io_uring_prep_cancel(sqe, NULL, IORING_ASYNC_CANCEL_ANY | IORING_ASYNC_CANCEL_ALL);
    io_uring_sqe_set_data(sqe, (void *)(uintptr_t)TAG_CANCEL);
    io_uring_submit(&u->ring);
}

static bool uring_close(struct fl_io *io)
{
    struct uring *u = self(io);
    const bool drained = !u->inflight;

    if (drained) {
        if (u->info.buffers)
            io_uring_unregister_buffers(&u->ring);
        if (u->n_files)
            io_uring_unregister_files(&u->ring);
    }
    io_uring_queue_exit(&u->ring);
    uring_free(u);
    return drained;
}

static const struct fl_io_info *uring_info(const struct fl_io *io)
{
    return &((const struct uring *)io)->info;
}

const struct fl_io_ops fl_io_uring = {
    .name = "io_uring",
    .open = uring_open,
    .start = uring_start,
    .set_file = uring_set_file,
    .find_buffer = uring_find_buffer,
    .submit = uring_submit,
    .kick = uring_kick,
    .wait = uring_wait,
    .wake = uring_wake,
    .cancel = uring_cancel,
    .close = uring_close,
    .info = uring_info,
    .grow = uring_grow,
};
