/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "shard/target.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/err.h"
#include "base/file.h"
#include "index/format.h"
#include "index/unfinished.h"

#define BEGIN_ATTEMPTS 200
#define BEGIN_WAIT_NS 25000000

static int no_memory(void)
{
    return fl_err(FL_ERR(ENOMEM), FL_STAGE_PLAN, "no memory for the target's paths");
}

static void unlock(struct fl_target *t)
{
    if (t->lock >= 0)
        close(t->lock);
    t->lock = -1;
}

int fl_target_init(struct fl_target *t, const char *dir)
{
    t->dir = strdup(dir);
    t->work = fl_path_join(dir, FL_RUN_FOLDER);
    t->lock_path = fl_path_join(dir, FL_RUN_FOLDER "/lock");
    t->lock = -1;
    return t->dir && t->work && t->lock_path ? 0 : no_memory();
}

void fl_target_fini(struct fl_target *t)
{
    free(t->dir);
    free(t->work);
    free(t->lock_path);
    unlock(t);
    *t = (struct fl_target){ .lock = -1 };
}

/* Is `inner` the folder `outer`, or in it? Both are absolute and free of links. */
static bool inside(const char *inner, const char *outer)
{
    const size_t n = strlen(outer);

    return !strncmp(inner, outer, n) && (!inner[n] || inner[n] == '/' || outer[n - 1] == '/');
}

/* Where a folder that may not be there yet will lie: the nearest folder above it that is. NULL: no memory. */
static char *nearest(const char *dir, bool *exists)
{
    char *path = strdup(dir), *real = NULL;

    *exists = true;
    while (path && !(real = realpath(path, NULL)) && errno == ENOENT) {
        char *slash = strrchr(path, '/');
        *exists = false;
        if (slash == path)
            path[1] = 0;
        else if (slash)
            *slash = 0;
        else if (strcmp(path, "."))
            memcpy(path, ".", 2); // a relative path of one part; it is at least one byte long
        else
            break;
    }
    free(path);
    return real;
}

int fl_target_apart(const struct fl_target *t, const char *source)
{
    bool exists, there;
    char *from = nearest(source, &there), *to = nearest(t->dir, &exists);
    int err = 0;

    if (from && to && (inside(to, from) || (exists && inside(from, to))))
        err = fl_err(FL_ERR(EINVAL), FL_STAGE_PLAN,
                     "source %s and target %s must be two folders, neither inside the other",
                     source, t->dir);
    free(from);
    free(to);
    return err;
}

/* mkdir -p */
static int make_folders(const char *dir)
{
    char *path = strdup(dir);
    int err = path ? 0 : no_memory();

    for (char *p = path; !err && p; p++) {
        p = strchr(*p == '/' ? p + 1 : p, '/');
        if (p)
            *p = 0;
        if (mkdir(path, 0777) && errno != EEXIST)
            err = fl_err_file(errno, "create", path);
        if (!p)
            break;
        *p = '/';
    }
    free(path);
    return err;
}

/* "shard-NNNNNN.tar"? Its number, -1 if not. */
static int64_t shard_number(const char *name)
{
    int64_t shard;
    char rest[8];

    if (sscanf(name, "shard-%" SCNd64 ".%7s", &shard, rest) != 2 || shard < 0 ||
        strcmp(rest, "tar"))
        return -1;
    return shard;
}

/* What is there before we come: bits. */
enum found { FOUND_MARK = 1, FOUND_DATASET = 2, FOUND_OTHER = 4 };

static int look(const char *dir, unsigned *found)
{
    DIR *d = opendir(dir);
    struct dirent *e;

    *found = 0;
    if (!d)
        return fl_err_file(errno, "open", dir);
    errno = 0;
    while ((e = readdir(d))) {
        if (!strcmp(e->d_name, FL_UNFINISHED_NAME))
            *found |= FOUND_MARK;
        else if (!strcmp(e->d_name, FL_INDEX_NAME) || !strcmp(e->d_name, FL_DATASET_JSON) ||
                 shard_number(e->d_name) >= 0)
            *found |= FOUND_DATASET;
        else if (e->d_name[0] != '.' && strcmp(e->d_name, "lost+found"))
            *found |= FOUND_OTHER;
    }
    const int err = errno;
    closedir(d);
    return err ? fl_err_file(err, "read", dir) : 0;
}

static int taken(const struct fl_target *t, const char *why)
{
    return fl_err(FL_ERR(EEXIST), FL_STAGE_PLAN, "%s holds %s", t->dir, why);
}

/* May the run begin here? *same: it has begun already. */
static int check(const struct fl_target *t, const struct fl_run *run, bool overwrite, bool *same)
{
    struct fl_run old;
    char difference[192], why[320];
    unsigned found;
    int err = look(t->dir, &found);

    *same = false;
    if (err || !(found & FOUND_MARK)) {
        if (!err && found & FOUND_DATASET && !overwrite)
            err = taken(t, "a dataset already; overwrite it or choose another folder");
        else if (!err && found & FOUND_OTHER && !(found & FOUND_DATASET))
            err = taken(t, "other files and no dataset; choose an empty folder");
        return err;
    }
    err = fl_run_read(&old, t->dir);
    if (err)
        return overwrite && err != FL_ERR(ENOMEM) ? 0 : err;
    fl_run_difference(&old, run, difference, sizeof(difference));
    *same = old.hash == run->hash;
    fl_run_fini(&old);
    if (*same || overwrite)
        return 0;
    snprintf(why, sizeof(why),
             "an unfinished run with other input or options (%s); overwrite it or choose another "
             "folder",
             difference);
    return taken(t, why);
}

static int remove_file(const char *dir, const char *name)
{
    char *path = fl_path_join(dir, name);

    if (!path)
        return no_memory();
    const int err = unlink(path) && errno != ENOENT ? fl_err_file(errno, "remove", path) : 0;
    free(path);
    return err;
}

bool fl_target_has(const struct fl_target *t, const struct fl_run *run, int64_t shard,
                   struct fl_record_header *header)
{
    char record_name[32], tar_name[32];

    fl_run_shard_name(record_name, shard, "record");
    fl_run_shard_name(tar_name, shard, "tar");
    char *record = fl_path_join(t->work, record_name), *tar = fl_path_join(t->dir, tar_name);
    struct stat st;
    const bool has = record && tar && !fl_record_peek(record, run->hash, (uint64_t)shard, header) &&
                     !stat(tar, &st) && (uint64_t)st.st_size == header->counts.bytes_out;
    free(record);
    free(tar);
    return has;
}

/* Shards and index of an earlier dataset, or of another run. A tar is under its final name only when its
 * record is there, so that nothing that another part of this run writes just now is taken for old. */
static int remove_old(const struct fl_target *t, const struct fl_run *run)
{
    struct fl_record_header header;
    DIR *d = opendir(t->dir);
    struct dirent *e;
    int err = 0;

    if (!d)
        return fl_err_file(errno, "open", t->dir);
    while (!err && (e = readdir(d))) {
        const int64_t shard = shard_number(e->d_name);
        if (!strcmp(e->d_name, FL_INDEX_NAME) || !strcmp(e->d_name, FL_DATASET_JSON) ||
            (shard >= 0 && !fl_target_has(t, run, shard, &header)))
            err = remove_file(t->dir, e->d_name);
    }
    closedir(d);
    return err;
}

int fl_target_lock(struct fl_target *t, bool alone)
{
    struct stat ours, named;

    if (t->lock < 0)
        t->lock = open(t->lock_path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (t->lock < 0)
        return fl_err_file(errno, "create", t->lock_path);
    // A file system without locks (ENOLCK, ENOSYS, EOPNOTSUPP) is no reason to refuse the work.
    if (flock(t->lock, (alone ? LOCK_EX : LOCK_SH) | LOCK_NB) && errno == EWOULDBLOCK)
        return fl_err(FL_ERR(EBUSY), FL_STAGE_PLAN,
                      "another process is at work on %s; try again when it has ended", t->dir);
    // Whoever ends a run takes the lock's file away with it.
    if (fstat(t->lock, &ours) || stat(t->lock_path, &named) || ours.st_ino != named.st_ino)
        return fl_err(FL_ERR(EBUSY), FL_STAGE_PLAN, "another process has just completed %s",
                      t->dir);
    return 0;
}

/* Set the mark and clear away what was there. The lock is held, alone unless the mark is there. */
static int set_mark(struct fl_target *t, struct fl_run *run)
{
    struct fl_bytes text = { 0 };
    int err = fl_run_text(run, &text);

    // The same bytes again where the run is continued: harmless, and one way for both.
    if (!err)
        err = fl_file_replace(t->dir, FL_UNFINISHED_NAME, text.data, text.len);
    if (!err)
        err = remove_old(t, run);
    fl_bytes_free(&text);
    return err ? err : fl_target_lock(t, false);
}

/* One attempt. FL_ERR(EBUSY): another part is just beginning, or another run is at work. */
static int try_begin(struct fl_target *t, struct fl_run *run, bool overwrite)
{
    bool same, still;
    int err = check(t, run, overwrite, &same);

    if (!err)
        err = make_folders(t->work);
    if (!err)
        err = fl_target_lock(t, !same);
    if (err)
        return err;
    // Look again now that nobody can begin or end a run meanwhile.
    err = check(t, run, overwrite, &still);
    if (!err && same && !still)
        return fl_err(FL_ERR(EBUSY), FL_STAGE_PLAN, "another process has just completed %s",
                      t->dir);
    if (err && !still && !same) { // the working folder is ours alone, and empty
        unlink(t->lock_path);
        rmdir(t->work);
    }
    return err ? err : set_mark(t, run);
}

int fl_target_begin(struct fl_target *t, struct fl_run *run, bool overwrite)
{
    struct fl_bytes text = { 0 };
    int err = fl_run_text(run, &text); // for its hash

    fl_bytes_free(&text);
    if (!err)
        err = make_folders(t->dir);
    if (err)
        return err;
    // Parts that start together each find an empty folder; one of them sets the mark, the others wait.
    for (int attempt = 0;; attempt++) {
        err = try_begin(t, run, overwrite);
        if (err)
            unlock(t);
        if (err != FL_ERR(EBUSY) || attempt == BEGIN_ATTEMPTS)
            return err;
        nanosleep(&(struct timespec){ .tv_nsec = BEGIN_WAIT_NS }, NULL);
    }
}

/* A temporary file of fl_file_replace(), left by a process that was killed? */
static bool is_left_over(const char *name)
{
    static const char *const ours[] = { "." FL_UNFINISHED_NAME ".", "." FL_DATASET_JSON ".",
                                        "." FL_INDEX_NAME "." };
    const size_t n = strlen(name);

    if (n < 4 || strcmp(name + n - 4, ".tmp"))
        return false;
    for (size_t i = 0; i < sizeof(ours) / sizeof(ours[0]); i++)
        if (!strncmp(name, ours[i], strlen(ours[i])))
            return true;
    return false;
}

static int remove_left_over(const struct fl_target *t)
{
    DIR *d = opendir(t->dir);
    struct dirent *e;
    int err = 0;

    if (!d)
        return fl_err_file(errno, "open", t->dir);
    while (!err && (e = readdir(d)))
        if (is_left_over(e->d_name))
            err = remove_file(t->dir, e->d_name);
    closedir(d);
    return err;
}

static int remove_work(const struct fl_target *t)
{
    DIR *d = opendir(t->work);
    struct dirent *e;
    int err = 0;

    if (!d)
        return errno == ENOENT ? 0 : fl_err_file(errno, "open", t->work);
    while (!err && (e = readdir(d)))
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, ".."))
            err = remove_file(t->work, e->d_name);
    closedir(d);
    if (!err && rmdir(t->work))
        err = fl_err_file(errno, "remove", t->work);
    return err;
}

int fl_target_end(const struct fl_target *t)
{
    int err = remove_left_over(t); // nobody else writes: the lock is ours alone

    if (!err)
        err = remove_file(t->dir, FL_UNFINISHED_NAME); // from here on it is a dataset
    if (!err)
        err = fl_fsync_dir(t->dir);
    return err ? err : remove_work(t);
}
