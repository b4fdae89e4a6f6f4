/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "index/stale.h"

#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/file.h"
#include "base/thread.h"
#include "formats/format.h"
#include "index/build.h"

#define MAX_THREADS 32

static int stale(const char *path, const char *why)
{
    return fl_err(FL_ERR(ESTALE), FL_STAGE_PLAN, "%s %s", path, why);
}

static int64_t mtime_of(const struct stat *st)
{
    return (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec;
}

static const struct fl_format *format_of(enum fl_index_kind kind)
{
    return kind == FL_KIND_FOLDER ? &fl_format_folder : &fl_format_tar;
}

int fl_container_hash(const struct fl_index *ix, int fd, const char *path, uint64_t *hash)
{
    struct fl_source src = { 0 };
    struct fl_skips skips = { 0 };
    int err = fl_source_borrow(&src, fd, path, 4096);

    if (!err)
        err = format_of(fl_index_info(ix)->kind)
                  ->walk(&src, fl_index_info(ix)->keep_sidecars, NULL, NULL, &skips, hash);
    fl_source_free(&src);
    return err;
}

/* ---- folders ---- */

static int check_dir(const struct fl_index *ix, const char *root, int64_t i)
{
    char path[FL_INDEX_MAX_NAME];
    struct fl_index_dir dir;
    struct stat st;
    int64_t mtime;
    uint64_t hash;
    int err = fl_index_dir(ix, i, &dir, path, sizeof(path));

    if (err < 0)
        return err;
    char *full = *path ? fl_path_join(root, path) : strdup(root);
    if (!full)
        return fl_err(FL_ERR(ENOMEM), FL_STAGE_PLAN, "%s: out of memory", root);
    if (stat(full, &st)) {
        err = errno == ENOENT || errno == ENOTDIR
                  ? stale(full, "is gone since the dataset was indexed")
                  : fl_err_file(errno, "look at", full);
    } else if (mtime_of(&st) != dir.mtime_ns) {
        // Our own index.fli changes the time of its folder; what counts are the names.
        err = fl_listing_dir(format_of(fl_index_info(ix)->kind), root, path,
                             fl_index_info(ix)->keep_sidecars, &mtime, &hash);
        if (!err && hash != dir.hash)
            err = stale(full, "has other files in it than when the dataset was indexed");
    } else {
        err = 0;
    }
    free(full);
    return err;
}

/* ---- archives ---- */

/* Archives whose time differs, hashed by several threads. */
struct rehash {
    const struct fl_index *ix;
    const char *root;
    const uint32_t *ids;
    uint32_t n;
    atomic_uint next;
    pthread_mutex_t lock; // of err
    FlError err;          // of the archive with the least number
    uint32_t err_id;
};

static int rehash_one(struct rehash *r, uint32_t id)
{
    char path[FL_INDEX_MAX_NAME];
    struct fl_index_container c;
    uint64_t hash = 0;
    int err, fd;

    if ((err = fl_index_container(r->ix, id, &c)) ||
        (err = fl_index_container_path(r->ix, id, path, sizeof(path))) < 0)
        return err;
    char *full = fl_path_join(r->root, path);
    if (!full)
        return fl_err(FL_ERR(ENOMEM), FL_STAGE_PLAN, "%s: out of memory", path);
    fd = open(full, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        err = fl_err_file(errno, "open", full);
    } else {
        err = fl_container_hash(r->ix, fd, full, &hash);
        if (!err && hash != c.hash)
            err = stale(full, "has other contents than when it was indexed");
        close(fd);
    }
    free(full);
    return err;
}

static void *rehash_some(void *arg)
{
    struct rehash *r = arg;
    uint32_t i;

    while ((i = atomic_fetch_add(&r->next, 1)) < r->n) {
        if (!rehash_one(r, r->ids[i]))
            continue;
        pthread_mutex_lock(&r->lock);
        if (!r->err.code || r->ids[i] < r->err_id) {
            r->err = *fl_err_slot();
            r->err_id = r->ids[i];
        }
        pthread_mutex_unlock(&r->lock);
    }
    return NULL;
}

static int rehash(const struct fl_index *ix, const char *root, const uint32_t *ids, uint32_t n)
{
    struct rehash r = { .ix = ix, .root = root, .ids = ids, .n = n };
    pthread_t threads[MAX_THREADS];
    const int cpus = 4 * fl_cpu_count();
    int want = cpus < MAX_THREADS ? cpus : MAX_THREADS, started = 0;

    if ((uint32_t)want > n)
        want = (int)n;
    pthread_mutex_init(&r.lock, NULL);
    while (started < want - 1 && !fl_thread_start(&threads[started], "fl-rehash", rehash_some, &r))
        started++;
    rehash_some(&r); // the caller helps, and does it alone if there are no threads to be had
    while (started > 0)
        pthread_join(threads[--started], NULL);
    pthread_mutex_destroy(&r.lock);
    return r.err.code ? fl_err_raise(&r.err) : 0;
}

/* Size and time of one archive. *changed: the time differs. */
static int check_archive(const struct fl_index *ix, const char *root, uint32_t id, int64_t *mtime,
                         bool *changed)
{
    char path[FL_INDEX_MAX_NAME];
    struct fl_index_container c;
    struct stat st;
    int err = fl_index_container(ix, id, &c);

    *mtime = FL_MTIME_NONE;
    if (err || (err = fl_index_container_path(ix, id, path, sizeof(path))) < 0)
        return err;
    char *full = fl_path_join(root, path);
    if (!full)
        return fl_err(FL_ERR(ENOMEM), FL_STAGE_PLAN, "%s: out of memory", path);
    err = 0;
    if (stat(full, &st))
        err = errno == ENOENT ? stale(full, "is gone since the dataset was indexed")
                              : fl_err_file(errno, "look at", full);
    else if ((uint64_t)st.st_size != c.size)
        err = fl_err(FL_ERR(ESTALE), FL_STAGE_PLAN,
                     "%s has %" PRIu64 " bytes, but had %" PRIu64 " when it was indexed", full,
                     (uint64_t)st.st_size, c.size);
    else
        *mtime = mtime_of(&st);
    *changed = !err && c.mtime_ns != FL_MTIME_NONE && *mtime != c.mtime_ns;
    free(full);
    return err;
}

static int check_archives(const struct fl_index *ix, const char *root, const struct fl_log *log,
                          int64_t **mtimes)
{
    const uint32_t n = (uint32_t)fl_index_info(ix)->n_containers;
    int64_t *times = malloc((n + 1) * sizeof(*times));
    uint32_t *ids = malloc((n + 1) * sizeof(*ids)), n_changed = 0;
    int err = times && ids ? 0 : fl_err(FL_ERR(ENOMEM), FL_STAGE_PLAN, "%s: out of memory", root);

    for (uint32_t i = 0; !err && i < n; i++) {
        bool changed = false;
        err = check_archive(ix, root, i, &times[i], &changed);
        if (changed)
            ids[n_changed++] = i;
    }
    if (!err && n_changed) {
        fl_log(log, FL_LOG_INFO,
               "%s: %u of %u archives have another time than when they were indexed; comparing "
               "their headers",
               root, n_changed, n);
        err = rehash(ix, root, ids, n_changed);
        if (!err) {
            *mtimes = times;
            times = NULL;
        }
    }
    free(times);
    free(ids);
    return err;
}

int fl_stale_check(const struct fl_index *ix, const char *root, const FlDatasetOptions *opt,
                   const struct fl_log *log, int64_t **mtimes)
{
    const struct fl_index_info *info = fl_index_info(ix);
    const FlDatasetOptions plain = FL_DATASET_OPTIONS_DEFAULT;
    const uint64_t asked = fl_options_hash(opt);
    int err = 0;

    // Whoever asks for nothing in particular takes the index as it is.
    if (info->options && info->options != asked && asked != fl_options_hash(&plain))
        return stale(root,
                     "was indexed with other options (class list, empty classes or sidecar files)");
    if (opt->entry_points && info->options && !info->entry_points)
        return stale(root, "was indexed without entry points");
    for (int64_t i = 0; !err && i < info->n_dirs; i++)
        err = check_dir(ix, root, i);
    if (!err && info->kind == FL_KIND_TAR)
        err = check_archives(ix, root, log, mtimes);
    return err;
}
