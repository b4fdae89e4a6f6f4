/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "io/files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/err.h"
#include "io/cached.h"

#define FILES_MAX 4096
#define DRIVE_BLOCK 4096u
#define WANT_DIOALIGN 0x2000u // STATX_DIOALIGN, Linux 6.1

/* struct statx up to the alignments, for C libraries whose own ends before them. */
struct stat_dio {
    uint32_t mask, blksize;
    uint64_t attributes;
    uint32_t nlink, uid, gid;
    uint16_t mode, pad1;
    uint64_t ino, size, blocks, attributes_mask;
    struct {
        int64_t sec;
        uint32_t nsec;
        int32_t pad;
    } atime, btime, ctime, mtime;
    uint32_t rdev_major, rdev_minor, dev_major, dev_minor;
    uint64_t mnt_id;
    uint32_t dio_mem_align, dio_offset_align;
    uint64_t spare[12];
};
_Static_assert(sizeof(struct stat_dio) == 256, "the kernel's struct statx has 256 bytes");

unsigned fl_files_max(const struct fl_files_cfg *cfg)
{
    struct rlimit limit;
    unsigned max = cfg->max;

    // A quarter: the trainer and other loaders of the process need descriptors too.
    if (!max && !getrlimit(RLIMIT_NOFILE, &limit))
        max = limit.rlim_cur / 4 > FILES_MAX ? FILES_MAX : (unsigned)(limit.rlim_cur / 4);
    if (max < 2)
        max = 2;
    if (max > cfg->source.n_containers)
        max = cfg->source.n_containers ? cfg->source.n_containers : 1;
    return max;
}

static unsigned buckets_for(unsigned max)
{
    unsigned n = 16;

    while (n < 2 * max)
        n *= 2;
    return n;
}

uint64_t fl_files_bytes(const struct fl_files_cfg *cfg)
{
    const unsigned max = fl_files_max(cfg);

    return max * sizeof(struct fl_file) + buckets_for(max) * sizeof(uint32_t) +
           cfg->source.n_containers / 8 + 1;
}

int fl_files_open(struct fl_files *f, const struct fl_files_cfg *cfg)
{
    *f = (struct fl_files){ .cfg = *cfg, .max = fl_files_max(cfg) };
    f->n_table = f->max;
    f->n_buckets = buckets_for(f->max);
    f->table = calloc(f->n_table, sizeof(*f->table));
    f->buckets = calloc(f->n_buckets, sizeof(*f->buckets));
    f->accepted = calloc(cfg->source.n_containers / 8 + 1, 1);
    if (!f->table || !f->buckets || !f->accepted) {
        fl_files_close(f);
        return fl_err(FL_ERR(ENOMEM), FL_STAGE_READ, "no memory for the table of open files");
    }
    for (unsigned i = 0; i < f->n_table; i++) { // all spare, linked by `older`
        f->table[i].fd = -1;
        f->table[i].slot = i;
        f->table[i].older = i + 1 < f->n_table ? i + 2 : 0;
    }
    f->spare = 1;
    return 0;
}

/* --- order of use and hash: lists by place + 1, 0 ends them --- */

static uint32_t *bucket_of(struct fl_files *f, uint32_t container)
{
    return &f->buckets[(container * 2654435761u) & (f->n_buckets - 1)];
}

static void use_unlink(struct fl_files *f, struct fl_file *file)
{
    *(file->newer ? &f->table[file->newer - 1].older : &f->newest) = file->older;
    *(file->older ? &f->table[file->older - 1].newer : &f->oldest) = file->newer;
}

static void use_push(struct fl_files *f, struct fl_file *file)
{
    file->newer = 0;
    file->older = f->newest;
    *(f->newest ? &f->table[f->newest - 1].newer : &f->oldest) = file->slot + 1;
    f->newest = file->slot + 1;
}

static struct fl_file *find(struct fl_files *f, uint32_t container)
{
    for (uint32_t i = *bucket_of(f, container); i; i = f->table[i - 1].hash_next)
        if (f->table[i - 1].container == container)
            return &f->table[i - 1];
    return NULL;
}

static void file_drop(struct fl_files *f, struct fl_file *file)
{
    uint32_t *link = bucket_of(f, file->container);

    while (*link != file->slot + 1)
        link = &f->table[*link - 1].hash_next;
    *link = file->hash_next;
    use_unlink(f, file);
    if (f->cfg.set)
        f->cfg.set(f->cfg.set_ctx, file->slot, -1);
    close(file->fd);
    *file = (struct fl_file){ .fd = -1, .slot = file->slot, .older = f->spare };
    f->spare = file->slot + 1;
    f->n_used--;
}

/* Close the file that was not needed for longest. False: all are in use. */
static bool evict(struct fl_files *f)
{
    for (uint32_t i = f->oldest; i; i = f->table[i - 1].newer)
        // Acquire: who gave it back last is through with the descriptor (fl_files_put).
        if (!atomic_load_explicit(&f->table[i - 1].refs, memory_order_acquire)) {
            file_drop(f, &f->table[i - 1]);
            return true;
        }
    return false;
}

void fl_files_close(struct fl_files *f)
{
    for (unsigned i = 0; f->table && i < f->n_table; i++)
        if (f->table[i].fd >= 0)
            close(f->table[i].fd);
    free(f->table);
    free(f->buckets);
    free(f->accepted);
    *f = (struct fl_files){ 0 };
}

/* --- opening --- */

static void note(struct fl_files *f, const char *what, int errno_)
{
    if (f->note[0])
        return;
    if (errno_)
        snprintf(f->note, sizeof(f->note), "%s (%s)", what, strerror(errno_));
    else
        snprintf(f->note, sizeof(f->note), "%s", what);
}

/* Why the file must be read through the page cache, NULL: O_DIRECT is on now. *errno_ is left 0
 * where no call failed. */
static const char *try_direct(struct fl_file *file, const struct stat_dio *st, int *errno_)
{
    const bool known = st->mask & WANT_DIOALIGN;

    if (known && !st->dio_offset_align)
        return "the file system has no direct reads";
    // Kernels before 6.1 do not say: 4,096 suits every drive.
    const uint32_t align = known ? st->dio_offset_align : 4096;
    const uint32_t mem_align = known && st->dio_mem_align ? st->dio_mem_align : align;
    if (align > 65536 || mem_align > 4096)
        return "the file system wants a larger alignment than is supported";
    if (fcntl(file->fd, F_SETFL, O_DIRECT)) {
        *errno_ = errno;
        return "the file system refuses O_DIRECT";
    }
    file->align = align;
    file->mem_align = mem_align;
    file->round = align < DRIVE_BLOCK && DRIVE_BLOCK % align == 0 ? DRIVE_BLOCK : align;
    file->direct = true;
    return NULL;
}

static int choose_mode(struct fl_files *f, struct fl_file *file, const struct stat_dio *st,
                       const char *path, FlError *err)
{
    int errno_ = 0;

    file->align = file->mem_align = file->round = 1;
    file->direct = false;
    // Random reads gain nothing from read-ahead, and even asking what is cached would start it.
    posix_fadvise(file->fd, 0, 0, POSIX_FADV_RANDOM);
    // Read past the page cache what is not in it; copying what is in it is cheaper than asking the
    // drive.
    const bool cached = f->cfg.direct == FL_AUTO && fl_cached_share(file->fd, st->size) >= 50;
    const char *why = cached ? "the data is in the page cache" : "direct reads are off";
    if (!cached && f->cfg.direct != FL_OFF)
        why = try_direct(file, st, &errno_);
    if (!why)
        return 0;
    if (f->cfg.direct == FL_ON) {
        fl_err_set(err, errno_ ? -errno_ : FL_ERR(ENOTSUP), FL_STAGE_READ,
                   "direct = on, but %s: %s%s%s", path, why, errno_ ? ": " : "",
                   errno_ ? strerror(errno_) : "");
        fl_err_at(err, path, 0);
        return err->code;
    }
    if (f->cfg.direct == FL_AUTO)
        note(f, why, errno_);
    // Without O_NONBLOCK, which only the open needed.
    if (fcntl(file->fd, F_SETFL, 0))
        return fl_err_set(err, -errno, FL_STAGE_READ, "%s: cannot set flags: %s", path,
                          strerror(errno));
    return 0;
}

static int is_stale(struct fl_files *f, uint32_t id, const struct fl_container *c, int fd,
                    const struct stat_dio *st, FlError *err)
{
    const int64_t mtime = st->mtime.sec * 1000000000 + st->mtime.nsec;

    if ((st->mode & S_IFMT) != S_IFREG)
        fl_err_set(err, FL_ERR(EINVAL), FL_STAGE_READ, "%s is not a regular file", c->path);
    else if (st->size != c->size)
        fl_err_set(err, FL_ERR(ESTALE), FL_STAGE_READ,
                   "%s has %llu bytes, but the index was made for %llu: build the index anew",
                   c->path, (unsigned long long)st->size, (unsigned long long)c->size);
    else if (c->mtime_ns == INT64_MIN || c->mtime_ns == mtime || !f->cfg.source.check ||
             f->accepted[id / 8] & 1 << id % 8)
        return 0;
    else if (!f->cfg.source.check(f->cfg.source.ctx, id, fd, err)) {
        f->accepted[id / 8] |= (uint8_t)(1 << id % 8);
        return 0;
    }
    fl_err_at(err, c->path, 0);
    return err->code;
}

/* Open and look; no state is changed but for eviction. Returns the descriptor, -EAGAIN, or
 * FL_ERR(e) with *err. */
static int open_checked(struct fl_files *f, uint32_t id, const struct fl_container *c,
                        struct stat_dio *st, FlError *err)
{
    int fd, code;

    // Not blocking: a FIFO in a dataset's place must not hang the loader.
    while ((fd = open(c->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)) < 0) {
        if (errno == EINTR)
            continue;
        if (errno == EMFILE || errno == ENFILE) {
            if (evict(f))
                continue;
            if (f->n_used) { // reads in flight will end and free one
                f->max = f->n_used;
                return -EAGAIN;
            }
        }
        code = -errno;
        fl_err_set(err, code, FL_STAGE_READ, "%s cannot be opened: %s%s", c->path, strerror(errno),
                   errno == EMFILE ? " (ulimit -n)" : "");
        fl_err_at(err, c->path, 0);
        return code;
    }
    memset(st, 0, sizeof(*st));
    if (syscall(SYS_statx, fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS | WANT_DIOALIGN, st)) {
        code = fl_err_set(err, -errno, FL_STAGE_READ, "%s: statx failed: %s", c->path,
                          strerror(errno));
        fl_err_at(err, c->path, 0);
    } else {
        code = is_stale(f, id, c, fd, st, err);
    }
    if (!code)
        return fd;
    close(fd);
    return code;
}

static int container_of(struct fl_files *f, uint32_t id, struct fl_container *c, FlError *err)
{
    if (id >= f->cfg.source.n_containers)
        return fl_err_set(err, FL_ERR(EBADMSG), FL_STAGE_READ, "the index names container %u of %u",
                          id, f->cfg.source.n_containers);
    return f->cfg.source.container(f->cfg.source.ctx, id, c, err);
}

static int open_file(struct fl_files *f, uint32_t container, struct fl_file **out, FlError *err);

int fl_files_get(struct fl_files *f, uint32_t container, struct fl_file **out, FlError *err)
{
    struct fl_file *file = find(f, container);

    if (file) {
        if (f->newest != file->slot + 1) {
            use_unlink(f, file);
            use_push(f, file);
        }
        // Relaxed: its holders get it from this thread, by other means.
        atomic_fetch_add_explicit(&file->refs, 1, memory_order_relaxed);
        *out = file;
        return 0;
    }
    // A network file system may take its time here: let others see what we are at.
    atomic_store_explicit(&f->opening, (int64_t)container + 1, memory_order_relaxed);
    const int code = open_file(f, container, out, err);
    atomic_store_explicit(&f->opening, 0, memory_order_relaxed);
    return code;
}

static int open_file(struct fl_files *f, uint32_t container, struct fl_file **out, FlError *err)
{
    struct fl_file *file;
    struct fl_container c;
    struct stat_dio st;
    int code = container_of(f, container, &c, err);

    if (code)
        return code;
    if (f->n_used >= f->max && !evict(f))
        return -EAGAIN;
    const int fd = open_checked(f, container, &c, &st, err);
    if (fd < 0)
        return fd;
    file = &f->table[f->spare - 1];
    const uint32_t spare = file->older;
    *file = (struct fl_file){
        .container = container, .fd = fd, .slot = file->slot, .refs = 1, .size = st.size
    };
    code = choose_mode(f, file, &st, c.path, err);
    if (code) {
        close(fd);
        *file = (struct fl_file){ .fd = -1, .slot = file->slot, .older = spare };
        return code;
    }
    f->spare = spare;
    f->n_used++;
    f->opened++;
    *(file->direct ? &f->n_direct : &f->n_buffered) += 1;
    file->hash_next = *bucket_of(f, container);
    *bucket_of(f, container) = file->slot + 1;
    use_push(f, file);
    file->registered = f->cfg.set && f->cfg.set(f->cfg.set_ctx, file->slot, fd);
    *out = file;
    return 0;
}

void fl_files_put(struct fl_files *f, struct fl_file *file)
{
    (void)f;
    // Release: this holder's use of the descriptor comes before it is closed (evict).
    atomic_fetch_sub_explicit(&file->refs, 1, memory_order_release);
}

bool fl_files_go_buffered(struct fl_files *f, struct fl_file *file, int errno_)
{
    if (!file->direct || fcntl(file->fd, F_SETFL, 0))
        return false;
    file->direct = false;
    file->align = file->mem_align = file->round = 1;
    f->n_direct--;
    f->n_buffered++;
    note(f, "a direct read failed", errno_);
    return true;
}

int fl_files_reopen(struct fl_files *f, struct fl_file *file)
{
    struct fl_container c;
    struct stat_dio st;
    FlError err;

    if (file->reopened)
        return FL_ERR(EIO);
    file->reopened = true;
    if (container_of(f, file->container, &c, &err))
        return err.code;
    const int fd = open_checked(f, file->container, &c, &st, &err);
    if (fd < 0)
        return fd == -EAGAIN ? FL_ERR(EMFILE) : fd;
    // The same number goes on meaning this container; a read that already began keeps the file it
    // has.
    const bool moved = dup3(fd, file->fd, O_CLOEXEC) >= 0;
    const int code = moved ? 0 : -errno;
    close(fd);
    if (code)
        return code;
    posix_fadvise(file->fd, 0, 0, POSIX_FADV_RANDOM);
    if (file->direct && fcntl(file->fd, F_SETFL, O_DIRECT))
        fl_files_go_buffered(f, file, errno);
    else if (!file->direct)
        fcntl(file->fd, F_SETFL, 0);
    file->registered = f->cfg.set && f->cfg.set(f->cfg.set_ctx, file->slot, file->fd);
    return 0;
}

const char *fl_files_path(struct fl_files *f, uint32_t container)
{
    struct fl_container c;
    FlError err;

    return container_of(f, container, &c, &err) ? "a container that has no name" : c.path;
}
