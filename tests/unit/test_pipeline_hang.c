/* SPDX-License-Identifier: Apache-2.0 */
/* A file system that stops answering while a container is being opened: the loader says which one it waits for, and goes
 * on when the file system does. FUSE with a daemon that is stopped plays the network file system. */
#define _GNU_SOURCE
#include <feedline/feedline.h>

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/wait.h>

#include "make_set.h"
#include "t.h"

enum { N = 20 };

static bool is_mounted(const char *where, const char *top)
{
    struct stat a, b;

    return !stat(where, &a) && !stat(top, &b) && a.st_dev != b.st_dev;
}

static pid_t serve(const char *from, const char *to)
{
    const pid_t pid = fork();

    if (!pid) {
        if (freopen("/dev/null", "w", stderr))
            execlp("bindfs", "bindfs", "-f", from, to, (char *)NULL);
        _exit(127);
    }
    for (int i = 0; i < 200 && !is_mounted(to, from) && !waitpid(pid, NULL, WNOHANG); i++)
        usleep(10000);
    return pid;
}

static void test_open(const char *to, pid_t daemon)
{
    FlConfig cfg = FL_CONFIG_DEFAULT;
    FlDataset *ds = NULL;
    FlLoader *l = NULL;
    FlBatch b = { 0 };
    int64_t seen = 0;
    int err;

    t_case("opening hangs");
    T_EQ(fl_dataset_open(&ds, to, NULL), 0);
    cfg.batch_size = 8;
    cfg.n_workers = 1;
    cfg.epochs = 1;
    cfg.stall_timeout_ms = 100;
    fl_config_label(&cfg, "cls");
    fl_config_bytes(&cfg, "bin", 0);
    kill(daemon, SIGSTOP);
    T_EQ(fl_loader_open(&l, ds, &cfg), 0);
    T_EQ(fl_loader_next(l, &b, NULL), FL_ERR(ETIMEDOUT));
    T_HAS(fl_last_error()->message, "shard-000000.tar");
    T_HAS(fl_last_error()->message, "opening it has not returned");
    T_EQ(fl_last_error()->stage, FL_STAGE_READ);
    kill(daemon, SIGCONT);
    do {
        err = fl_loader_next(l, &b, NULL);
        seen += err ? 0 : b.size;
        fl_batch_release(&b, NULL);
    } while (!err || err == FL_ERR(ETIMEDOUT));
    T_EQ(err, FL_EPOCH_END);
    T_EQ(seen, N);
    fl_loader_close(&l);
    fl_dataset_close(&ds);
}

int main(void)
{
    char top[256], from[300], to[300];

    if (geteuid() || unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL))
        T_SKIP("mounts need root");
    ms_temp(top, sizeof(top), "hang");
    snprintf(from, sizeof(from), "%s/from", top);
    snprintf(to, sizeof(to), "%s/to", top);
    mkdir(from, 0755);
    mkdir(to, 0755);
    ms_tar(from, N, -1);
    const pid_t daemon = serve(from, to);
    const bool mounted = is_mounted(to, from);
    if (mounted)
        test_open(to, daemon);
    umount2(to, MNT_DETACH);
    kill(daemon, SIGTERM);
    waitpid(daemon, NULL, 0);
    ms_remove(top);
    if (!mounted)
        T_SKIP("no bindfs, or no /dev/fuse");
    return t_done();
}
