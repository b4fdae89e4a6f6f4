/* SPDX-License-Identifier: Apache-2.0 */
/* Opening a dataset: find its index, see whether it fits, or build it. */
#define _GNU_SOURCE
#include "index/dataset.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/file.h"
#include "base/log.h"
#include "formats/scan.h"
#include "index/build.h"
#include "index/stale.h"
#include "index/unfinished.h"

struct FlDataset {
    atomic_int owners;
    pid_t pid;  // of the process that opened it
    char *path; // as given
    char *root; // folder that containers are relative to
    struct fl_index *ix;
    int64_t *mtimes; // of archives that were compared by their headers; NULL: as in the index
};

/* What happens while a dataset is being opened. */
struct opening {
    const char *path;
    FlDatasetOptions opt;
    struct fl_log log;
    char *index_path, *root;
    struct fl_index *ix;
    int64_t *mtimes;
};

static int no_memory(const char *path)
{
    return fl_err(FL_ERR(ENOMEM), FL_STAGE_PLAN, "%s: out of memory while opening the dataset",
                  path);
}

/* The folder of a dataset: the path itself, or where the one archive lies. */
static char *root_of(const char *path)
{
    const char *slash = strrchr(path, '/');

    if (fl_is_directory(path))
        return strdup(path);
    if (!slash)
        return strdup(".");
    return slash == path ? strdup("/") : strndup(path, (size_t)(slash - path));
}

static bool is_there(const char *root, const char *name)
{
    char *path = fl_path_join(root, name);
    const bool there = path && !access(path, F_OK);

    free(path);
    return there;
}

int fl_dataset_check_finished(const char *root)
{
    if (is_there(root, FL_UNFINISHED_NAME))
        return fl_err(FL_ERR(EBADMSG), FL_STAGE_PLAN,
                      "%s is the unfinished output of `feedline shard`; run the same command again "
                      "to finish it",
                      root);
    return 0;
}

/* Open the index file and compare it with the dataset. */
static int try_index(struct opening *o)
{
    int err = fl_index_open(&o->ix, o->index_path, o->opt.index_cache);

    if (!err && (err = fl_stale_check(o->ix, o->root, &o->opt, &o->log, &o->mtimes))) {
        const FlError why = *fl_err_slot();
        o->opt.entry_points |= fl_index_info(o->ix)->entry_points; // of the one that is made anew
        fl_index_close(&o->ix);
        fl_err_raise(&why);
    }
    return err;
}

/* May what is wrong be put right by building the index anew? */
static bool may_rebuild(const struct opening *o, int err)
{
    if (o->opt.index != FL_INDEX_AUTO)
        return false;
    if (err == FL_ERR(ENOENT))
        return true;
    // Slice tables and checksums of the sharder cannot be found again by walking archives.
    return (err == FL_ERR(ESTALE) || err == FL_ERR(EBADMSG) || err == FL_ERR(ENOTSUP)) &&
           !is_there(o->root, "dataset.json");
}

/* Add what can be done to the sentence in the thread's slot. */
static int advise(const struct opening *o, int err)
{
    const FlError why = *fl_err_slot();

    if (err == FL_ERR(ENOENT))
        return fl_err(err, FL_STAGE_PLAN, "%s has no index (%s); `feedline index %s` makes it",
                      o->path, o->index_path, o->path);
    if (err == FL_ERR(ESTALE) || err == FL_ERR(EBADMSG) || err == FL_ERR(ENOTSUP))
        return fl_err(err, FL_STAGE_PLAN, "%.400s; `feedline index %s` makes the index anew",
                      why.message, o->path);
    return err;
}

/* The folder of the index, to be freed. */
static char *index_folder(const struct opening *o)
{
    const char *slash = strrchr(o->index_path, '/');

    return slash ? strndup(o->index_path, (size_t)(slash - o->index_path) + 1) : strdup(".");
}

/* Nobody may write into the folder. To root the kernel says otherwise, but what opens a dataset by itself
 * should not use that: whoever took the bits away meant it. */
static bool protected(const struct opening *o)
{
    char *folder = index_folder(o);
    struct stat st;
    const bool is = folder && !stat(folder, &st) && !(st.st_mode & 0222);

    free(folder);
    return is;
}

static int write_index(const struct opening *o, struct fl_index_writer *w)
{
    if (protected(o))
        return fl_err(FL_ERR(EACCES), FL_STAGE_PLAN, "%s: its folder is write-protected",
                      o->index_path);
    return fl_index_writer_write(w, o->index_path, NULL);
}

/* Build the index in memory, write it if that can be done, open it. */
static int build_index(struct opening *o)
{
    struct fl_index_writer *w = NULL;
    void *bytes = NULL;
    size_t size = 0;
    int err = fl_build(&w, o->path, &o->opt, &o->log);

    if (!err && !write_index(o, w)) {
        fl_index_writer_free(&w);
        return fl_index_open(&o->ix, o->index_path, o->opt.index_cache);
    }
    if (!err) {
        fl_log(&o->log, FL_LOG_WARNING, "the index of %s is kept in memory only: %s", o->path,
               fl_last_error()->message);
        err = fl_index_writer_memory(w, &bytes, &size);
    }
    fl_index_writer_free(&w);
    return err ? err : fl_index_open_memory(&o->ix, bytes, size, o->index_path);
}

/* Another process has the lock. There is no way to wait for one that can be woken, so look ten times a second and
 * let the caller say that it has had enough. What try_index() says in the end, or FL_ERR(ECANCELED). */
static int wait_for_other(struct opening *o, int fd)
{
    const struct timespec pause = { .tv_nsec = 100000000 };
    const int64_t begun = fl_now_ns();

    fl_log(&o->log, FL_LOG_INFO, "another process is indexing %s: waiting for it", o->path);
    while (flock(fd, LOCK_EX | LOCK_NB) && (errno == EWOULDBLOCK || errno == EINTR)) {
        const FlProgress p = { .what = "waiting for another process to index",
                               .total = -1,
                               .seconds = (double)(fl_now_ns() - begun) * 1e-9 };
        if (o->opt.progress && o->opt.progress(o->opt.progress_cookie, &p))
            return fl_err(FL_ERR(ECANCELED), FL_STAGE_PLAN,
                          "%s: waiting for its index was stopped by the caller", o->path);
        nanosleep(&pause, NULL);
    }
    return try_index(o);
}

/* One process builds; the others on this machine wait for it and take what it made. The lock is on the folder
 * itself, so nothing is left behind; a file system without locks lets them all build. */
static int build_once(struct opening *o)
{
    char *folder = index_folder(o);
    const int fd = folder ? open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    int err = FL_ERR(ENOENT);

    free(folder);
    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK)
        err = wait_for_other(o, fd);
    if (err && err != FL_ERR(ECANCELED))
        err = build_index(o);
    if (fd >= 0)
        close(fd); // unlocks
    return err;
}

static int find_index(struct opening *o)
{
    struct stat st;
    int err;

    if (stat(o->path, &st))
        return fl_err_file(errno, "open dataset", o->path);
    o->index_path = fl_index_path(o->path, &o->opt);
    o->root = root_of(o->path);
    if (!o->index_path || !o->root)
        return no_memory(o->path);
    if ((err = fl_dataset_check_finished(o->root)))
        return err;
    if (!(err = try_index(o))) {
        // The comparison need not be made again at the next open; if the times cannot be written, it is.
        if (o->mtimes && o->opt.index == FL_INDEX_AUTO && !protected(o) &&
            !fl_index_retime(o->ix, o->mtimes))
            fl_log(&o->log, FL_LOG_INFO, "%s has the archives' new times now", o->index_path);
        return 0;
    }
    if (!may_rebuild(o, err))
        return advise(o, err);
    if (err != FL_ERR(ENOENT))
        fl_log(&o->log, FL_LOG_WARNING, "%s; indexing it anew", fl_last_error()->message);
    return build_once(o);
}

int fl_dataset_open(FlDataset **out, const char *path, const FlDatasetOptions *options)
{
    struct opening o = { .path = path };
    const FlError before = *fl_err_slot();
    FlDataset *ds;
    int err;

    if (!out || !path)
        return fl_err(FL_ERR(EINVAL), FL_STAGE_PLAN, "fl_dataset_open: %s is NULL",
                      out ? "path" : "out");
    if ((err = fl_dataset_options(&o.opt, options)))
        return err;
    o.log = (struct fl_log){ o.opt.log, o.opt.log_cookie, NULL };
    err = find_index(&o);
    free(o.index_path);
    ds = err ? NULL : calloc(1, sizeof(*ds));
    if (!err && (!ds || !(ds->path = strdup(path))))
        err = no_memory(path);
    if (err) {
        fl_index_close(&o.ix);
        free(o.root);
        free(o.mtimes);
        free(ds);
        return err;
    }
    atomic_init(&ds->owners, 1);
    ds->pid = getpid();
    ds->root = o.root;
    ds->ix = o.ix;
    ds->mtimes = o.mtimes;
    *out = ds;
    *fl_err_slot() = before; // what was tried on the way is no failure of this call
    return 0;
}

FlDataset *fl_dataset_retain(FlDataset *ds)
{
    atomic_fetch_add_explicit(&ds->owners, 1, memory_order_relaxed);
    return ds;
}

void fl_dataset_release(FlDataset *ds)
{
    // acq_rel: whoever frees sees everything that the other owners did.
    if (!ds || atomic_fetch_sub_explicit(&ds->owners, 1, memory_order_acq_rel) != 1)
        return;
    fl_index_close(&ds->ix);
    free(ds->path);
    free(ds->root);
    free(ds->mtimes);
    free(ds);
}

void fl_dataset_close(FlDataset **ds)
{
    if (!ds)
        return;
    fl_dataset_release(*ds);
    *ds = NULL;
}

const struct fl_index *fl_dataset_index(const FlDataset *ds)
{
    return ds->ix;
}

const char *fl_dataset_root(const FlDataset *ds)
{
    return ds->root;
}

const char *fl_dataset_path(const FlDataset *ds)
{
    return ds->path;
}

int fl_dataset_check_process(const FlDataset *ds)
{
    if (ds->pid == getpid())
        return 0;
    return fl_err(FL_ERR(ECHILD), FL_STAGE_PLAN,
                  "%s was opened by process %ld; after a fork open it again in the child", ds->path,
                  (long)ds->pid);
}

int fl_dataset_container_path(const FlDataset *ds, uint32_t id, char *buf, size_t size)
{
    const size_t root = strlen(ds->root), slash = root && ds->root[root - 1] != '/';
    int len;

    if (root + slash >= size)
        return fl_err(FL_ERR(E2BIG), FL_STAGE_PLAN, "%s: the path is longer than %zu bytes",
                      ds->root, size);
    memcpy(buf, ds->root, root);
    if (slash)
        buf[root] = '/';
    len = fl_index_container_path(ds->ix, id, buf + root + slash, size - root - slash);
    return len < 0 ? len : len + (int)(root + slash);
}

/* What an archive's time must be; FL_MTIME_NONE: whatever it is. */
static int64_t expected_mtime(const FlDataset *ds, uint32_t id, const struct fl_index_container *c)
{
    return ds->mtimes ? ds->mtimes[id] : c->mtime_ns;
}

int fl_dataset_check_container(const FlDataset *ds, uint32_t id, int fd, FlError *err)
{
    char path[FL_INDEX_MAX_NAME + 1024];
    struct fl_index_container c;
    struct stat st;
    uint64_t hash;

    if (fl_index_container(ds->ix, id, &c) ||
        fl_dataset_container_path(ds, id, path, sizeof(path)) < 0) {
        *err = *fl_err_slot();
        return err->code;
    }
    if (fstat(fd, &st)) {
        fl_err_set(err, FL_ERR(EIO), FL_STAGE_READ, "%s: no file status: %s", path,
                   strerror(errno));
    } else if ((uint64_t)st.st_size != c.size) {
        fl_err_set(err, FL_ERR(ESTALE), FL_STAGE_READ,
                   "%s has %" PRIu64 " bytes, but had %" PRIu64 " when it was indexed", path,
                   (uint64_t)st.st_size, c.size);
    } else {
        const int64_t want = expected_mtime(ds, id, &c);
        if (want == FL_MTIME_NONE ||
            want == (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec)
            return 0;
        if (fl_container_hash(ds->ix, fd, path, &hash))
            *err = *fl_err_slot();
        else if (hash == c.hash)
            return 0;
        else
            fl_err_set(err, FL_ERR(ESTALE), FL_STAGE_READ,
                       "%s has other contents than when it was indexed", path);
    }
    fl_err_at(err, path, UINT64_MAX);
    return err->code;
}
