/* SPDX-License-Identifier: Apache-2.0 */
/* Loaders that are opened and closed again and again, some in the middle, some with a batch held, leave nothing behind:
 * no memory, no descriptor, no thread. */
#define _GNU_SOURCE
#include <feedline/feedline.h>

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include "make_tar.h"
#include "t.h"

enum { TURNS = 1000, WARM = 100 };

static int entries(const char *dir)
{
    DIR *d = opendir(dir);
    int n = 0;

    while (d && readdir(d))
        n++;
    if (d)
        closedir(d);
    return n;
}

/* Pages that a thousand turns may leave: 4 MiB; a slot that leaks each time would be 30. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define LEEWAY                                                                                     \
    1000000 // sanitizers keep freed memory and shadows of it; they find leaks by themselves
#else
#define LEEWAY 1024
#endif

/* Pages of anonymous memory that this process has. */
static long anonymous(void)
{
    long kib = -1;
    char line[256];
    FILE *f = fopen("/proc/self/status", "r");

    while (f && fgets(line, sizeof(line), f))
        if (sscanf(line, "RssAnon: %ld", &kib) == 1)
            break;
    if (f)
        fclose(f);
    return kib / 4;
}

static void one_turn(FlDataset *ds, int turn)
{
    FlConfig cfg = FL_CONFIG_DEFAULT;
    FlLoader *l = NULL;
    FlBatch b = { 0 };

    cfg.batch_size = 4;
    cfg.n_workers = turn % 4;
    cfg.read_bytes = 1 << 20;
    cfg.io = turn % 8 < 4 ? FL_IO_AUTO : FL_IO_PREAD;
    cfg.shuffle = FL_SHUFFLE_GLOBAL;
    cfg.seed = 1;
    fl_config_bytes(&cfg, "bin", turn % 50 == 7 ? 3 : 0); // 3: too few, the first batch is an error
    T_EQ(fl_loader_open(&l, ds, &cfg), 0);
    for (int i = turn % 3; i; i--) {
        fl_batch_release(&b, NULL);
        const int err = fl_loader_next(l, &b, NULL);
        T_EQ(err, turn % 50 == 7 ? FL_ERR(EBADMSG) : 0);
    }
    if (turn % 5)
        fl_batch_release(&b, NULL);
    fl_loader_close(&l);
    fl_batch_release(&b, NULL); // a batch may outlive its loader
}

int main(void)
{
    char dir[] = "/tmp/feedline-reopen-XXXXXX", path[64], name[32], bytes[9000];
    FlDataset *ds = NULL;

    if (!mkdtemp(dir))
        return 1;
    snprintf(path, sizeof(path), "%s/000.tar", dir);
    FILE *f = fopen(path, "wb");
    memset(bytes, 'x', sizeof(bytes));
    for (int i = 0; i < 40; i++) {
        snprintf(name, sizeof(name), "%d.bin", i);
        tar_member(f, name, bytes, sizeof(bytes));
    }
    tar_end(f);
    fclose(f);
    T_EQ(fl_dataset_open(&ds, dir, NULL), 0);
    for (int i = 0; i < WARM; i++)
        one_turn(ds, i);
    const int files = entries("/proc/self/fd"), threads = entries("/proc/self/task");
    const long before = anonymous();
    for (int i = WARM; i < TURNS; i++)
        one_turn(ds, i);
    T_EQ(entries("/proc/self/fd"), files);
    T_EQ(entries("/proc/self/task"), threads);
    T_OK(anonymous() - before < LEEWAY);
    fl_dataset_close(&ds);
    snprintf(name, sizeof(name), "index.fli");
    unlink(path);
    snprintf(path, sizeof(path), "%s/index.fli", dir);
    unlink(path);
    rmdir(dir);
    return t_done();
}
