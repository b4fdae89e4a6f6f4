/* SPDX-License-Identifier: Apache-2.0 */
/* The same bytes from file systems that are no plain disk: overlayfs (containers), tmpfs, and FUSE, which stands in for
 * network file systems: no reads that refuse to wait, every read a trip to another process, files that may vanish. Mounts
 * need root and are made in a name space of this process's own, so nothing stays behind. */
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/wait.h>

#include "read_fixture.h"

static const struct fl_read_cfg cases[] = {
    { .io = FL_IO_AUTO },
    { .io = FL_IO_AUTO, .lend = true },
    { .io = FL_IO_AUTO, .direct = FL_OFF, .lend = true },
    { .io = FL_IO_PREAD, .lend = true, .around = 65536 },
};

static char top[256], path[4][300];

static const char *dir(int i, const char *name)
{
    snprintf(path[i], sizeof(path[i]), "%s/%s", top, name);
    mkdir(path[i], 0755);
    return path[i];
}

/* Every case over the files of fx: cold, warm; and with files that the mount refuses to read directly. */
static void read_all(struct fx *fx, bool lends)
{
    for (size_t i = 0; i < 2 * T_LEN(cases); i++) {
        struct fl_read_cfg cfg = fx_cfg(fx), c = cases[i / 2];
        struct fl_read *r = NULL;
        FlLoaderStats st = { 0 };
        c.source = cfg.source;
        c.bytes = cfg.bytes;
        c.numa_node = -1;
        if (i & 1)
            fx_warm(fx);
        else
            fx_evict(fx);
        T_EQ(fl_read_open(&r, &c), 0);
        if (!r)
            return;
        T_EQ(fx_run(fx, r, 200, i, fx_draw), 200);
        fl_read_stats(r, &st);
        T_OK(st.io_backend[0]);
        if (i & 1 && c.lend) // warm
            T_OK(lends ? st.cached_reads > 100 : !st.cached_reads);
        if (getenv("FL_TEST_VERBOSE"))
            printf("%-12s case %zu: %s direct %d, %lld of %lld reads by borrowers, %s\n", t_name, i,
                   st.io_backend, st.io_direct, (long long)st.cached_reads, (long long)st.reads,
                   st.io_reason);
        T_OK(fl_read_close(&r));
    }
}

/* direct = on is an error that names the file where the file system has no direct reads, and else it works. */
static void force_direct(struct fx *fx)
{
    struct fl_read_cfg cfg = fx_cfg(fx);
    struct fl_read *r = NULL;
    struct fl_sample s = { .n_reads = 1 }, *done = NULL;

    cfg.direct = FL_ON;
    T_EQ(fl_read_open(&r, &cfg), 0);
    s.reads[0] = (struct fl_read_req){ .container = 0, .offset = 4096, .length = 100000 };
    T_EQ(fl_read_submit(r, &s), 0);
    fl_read_flush(r);
    T_EQ(fl_read_wait(r, &done, 1, fl_now_ns() + 10000000000), 1);
    if (s.err.code)
        T_HAS(s.err.message, "0.bin");
    else
        T_OK(fx_same(fx, &s));
    fl_read_release(&s);
    T_OK(fl_read_close(&r));
}

static void over(const char *name, const char *where, bool lends)
{
    struct fx fx;

    t_case(name);
    fx_make(&fx, where, FX_FILES, 0);
    read_all(&fx, lends);
    force_direct(&fx);
    fx_remove(&fx);
}

static void overlay(void)
{
    char options[1024];

    snprintf(options, sizeof(options), "lowerdir=%s,upperdir=%s,workdir=%s", dir(0, "lower"),
             dir(1, "upper"), dir(2, "work"));
    if (mount("overlay", dir(3, "overlay"), "overlay", 0, options)) {
        printf("left out: overlayfs: %s\n", strerror(errno));
        return;
    }
    over("overlayfs", path[3], false);
    umount2(path[3], MNT_DETACH);
}

static void memory(void)
{
    if (mount("none", dir(3, "tmpfs"), "tmpfs", 0, "size=64m")) {
        printf("left out: tmpfs: %s\n", strerror(errno));
        return;
    }
    over("tmpfs", path[3], true);
    umount2(path[3], MNT_DETACH);
}

static bool is_mounted(const char *where)
{
    struct stat a, b;

    return !stat(where, &a) && !stat(top, &b) && a.st_dev != b.st_dev;
}

static void fuse(const char *name, const char *option)
{
    const char *from = dir(0, "from"), *to = dir(3, "fuse");
    const pid_t pid = fork();

    if (!pid) {
        freopen("/dev/null", "w", stderr);
        execlp("bindfs", "bindfs", "-f", "-o", option, from, to, (char *)NULL);
        _exit(127);
    }
    for (int i = 0; i < 200 && !is_mounted(to) && !waitpid(pid, NULL, WNOHANG); i++)
        usleep(10000);
    if (is_mounted(to))
        over(name, to, false);
    else
        printf("left out: %s: no bindfs, or no /dev/fuse\n", name);
    umount2(to, MNT_DETACH);
    kill(pid, SIGTERM);
    waitpid(pid, NULL, 0);
}

int main(void)
{
    if (geteuid() || unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL))
        T_SKIP("mounts need root");
    snprintf(top, sizeof(top), "%s/feedline-mounts-XXXXXX", fx_where());
    if (!mkdtemp(top))
        T_SKIP("no folder for mounts");
    memory();
    overlay();
    fuse("FUSE", "noatime");
    fuse("FUSE without the page cache", "direct_io");
    char command[300];
    snprintf(command, sizeof(command), "rm -rf '%s'", top);
    T_EQ(system(command), 0);
    return t_done();
}
