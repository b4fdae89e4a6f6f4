/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs as the operating system sees them: killed without a word and started again from the last state; several on
 * one dataset, also while its index is being built. Every job is a process of its own, by exec. */
#include <feedline/feedline.h>

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "make_tar.h"
#include "t.h"

enum { N = 3000, BYTES = 64, EPOCHS = 2, BATCH = 24 };

static char dir[256], self[4096];

static void make_set(void)
{
    const char *tmp = getenv("TMPDIR");
    char path[300], name[64], text[32];
    uint8_t bytes[BYTES];

    snprintf(dir, sizeof(dir), "%s/feedline-jobs-XXXXXX", tmp ? tmp : "/tmp");
    if (!mkdtemp(dir))
        exit(1);
    snprintf(path, sizeof(path), "%s/set", dir);
    mkdir(path, 0755);
    for (int shard = 0; shard < 6; shard++) {
        snprintf(path, sizeof(path), "%s/set/s%d.tar", dir, shard);
        FILE *f = fopen(path, "wb");
        for (int i = shard * N / 6; i < (shard + 1) * N / 6; i++) {
            for (int k = 0; k < BYTES; k++)
                bytes[k] = (uint8_t)(i * 13 + k);
            snprintf(name, sizeof(name), "%05d.bin", i);
            tar_member(f, name, bytes, BYTES);
            snprintf(name, sizeof(name), "%05d.cls", i);
            tar_member(f, name, text, (size_t)snprintf(text, sizeof(text), "%d", i % 9));
        }
        tar_end(f);
        fclose(f);
    }
}

static FlLoader *open_loader(FlDataset **ds, const char *set)
{
    static const int64_t shape[] = { BYTES };
    FlConfig cfg = FL_CONFIG_DEFAULT;
    FlLoader *l = NULL;

    cfg.batch_size = BATCH;
    cfg.shuffle = FL_SHUFFLE_GLOBAL;
    cfg.seed = 8;
    cfg.epochs = EPOCHS;
    cfg.n_workers = 2;
    fl_config_raw(&cfg, "bin", FL_U8, 1, shape);
    fl_config_label(&cfg, "cls");
    if (fl_dataset_open(ds, set, NULL) || fl_loader_open(&l, *ds, &cfg)) {
        fprintf(stderr, "%s\n", fl_last_error()->message);
        exit(3);
    }
    return l;
}

/* Rows are what their numbers say. */
static bool rows_are_right(const FlBatch *b)
{
    for (int64_t i = 0; i < b->size; i++) {
        const uint8_t *row = (const uint8_t *)b->columns[0].data + i * BYTES;
        for (int k = 0; k < BYTES; k++)
            if (row[k] != (uint8_t)(b->ids[i] * 13 + k))
                return false;
        if (((const int64_t *)b->columns[1].data)[i] != b->ids[i] % 9)
            return false;
    }
    return true;
}

/* ---- the jobs ---------------------------------------------------------------------------------------- */

/* A trainer: goes on from DIR/state if there is one; every few batches it has "trained on" it saves its state, by
 * rename. What it was handed is in DIR/order, an int64 for each position; DIR/starts has where each life began. */
static int trainer(const char *base)
{
    char state_path[300], temp[300], path[300], state[FL_STATE_BYTES];
    FlDataset *ds = NULL;
    FlBatch b = { 0 };
    int err, size = 0;
    bool first = true;

    snprintf(state_path, sizeof(state_path), "%s/state", base);
    snprintf(temp, sizeof(temp), "%s/state.new", base);
    snprintf(path, sizeof(path), "%s/set", base);
    FlLoader *l = open_loader(&ds, path);
    const int in = open(state_path, O_RDONLY);
    if (in >= 0) {
        size = (int)read(in, state, sizeof(state));
        if (fl_loader_restore(l, state, (size_t)size, false))
            return 4;
        close(in);
    }
    snprintf(path, sizeof(path), "%s/order", base);
    const int order = open(path, O_WRONLY | O_CREAT, 0644);
    snprintf(path, sizeof(path), "%s/starts", base);
    const int starts = open(path, O_WRONLY | O_CREAT | O_APPEND, 0644);
    for (int64_t epoch = 0, k = 0; epoch < EPOCHS;) {
        if ((err = fl_loader_next(l, &b, NULL)) == FL_EPOCH_END) {
            epoch++;
            continue;
        }
        if (err || !rows_are_right(&b))
            return 5;
        epoch = b.epoch;
        const int64_t at = b.epoch * N + b.position;
        if (first && write(starts, &at, sizeof(at)) != sizeof(at))
            return 6;
        first = false;
        if (pwrite(order, b.ids, (size_t)b.size * 8, at * 8) != b.size * 8)
            return 6;
        fl_batch_release(&b, NULL);
        nanosleep(&(struct timespec){ .tv_nsec = 300000 }, NULL); // a step
        if (++k % 3)
            continue;
        size = fl_loader_state(l, state, sizeof(state));
        const int out = open(temp, O_WRONLY | O_CREAT | O_TRUNC, 0644);
        if (write(out, state, (size_t)size) != size || close(out) || rename(temp, state_path))
            return 6;
    }
    fl_loader_close(&l);
    fl_dataset_close(&ds);
    return 0;
}

/* Reads everything, prints the order's hash on its standard output. */
static int reader(const char *set)
{
    FlDataset *ds = NULL;
    FlLoader *l = open_loader(&ds, set);
    FlBatch b = { 0 };
    uint64_t h = 14695981039346656037u;
    int64_t rows = 0;

    for (int ends = 0; ends < EPOCHS;) {
        const int err = fl_loader_next(l, &b, NULL);
        if (err == FL_EPOCH_END) {
            ends++;
            continue;
        }
        if (err || !rows_are_right(&b))
            return 5;
        for (int64_t i = 0; i < b.size; i++, rows++)
            h = (h ^ (uint64_t)b.ids[i]) * 1099511628211u;
        fl_batch_release(&b, NULL);
    }
    fl_loader_close(&l);
    fl_dataset_close(&ds);
    printf("%016llx %lld\n", (unsigned long long)h, (long long)rows);
    return 0;
}

static pid_t start(const char *job, const char *arg, int out)
{
    fflush(stdout);
    const pid_t pid = fork();

    if (pid)
        return pid;
    if (out >= 0)
        dup2(out, STDOUT_FILENO);
    execl(self, self, job, arg, (char *)NULL);
    _exit(127);
}

/* ---- the tests --------------------------------------------------------------------------------------- */

/* What a run that nobody disturbs is handed. */
static void straight(int64_t *order)
{
    char path[300];
    FlDataset *ds = NULL;
    FlBatch b = { 0 };

    snprintf(path, sizeof(path), "%s/set", dir);
    FlLoader *l = open_loader(&ds, path);
    for (int ends = 0; ends < EPOCHS;) {
        if (fl_loader_next(l, &b, NULL) == FL_EPOCH_END) {
            ends++;
            continue;
        }
        memcpy(order + b.epoch * N + b.position, b.ids, (size_t)b.size * 8);
        fl_batch_release(&b, NULL);
    }
    fl_loader_close(&l);
    fl_dataset_close(&ds);
}

static void test_kill(void)
{
    static int64_t want[EPOCHS * N], got[EPOCHS * N], begun[1000];
    char path[300];
    int lives = 0, status = -1, killed = 0;

    t_case("killed and started again");
    straight(want);
    for (;; lives++) {
        const pid_t pid = start("trainer", dir, -1);
        // A little longer each time, so that it gets to its end on a slow machine too.
        const struct timespec life = { .tv_nsec = 20000000 + (lives * 7 % 11) * 8000000,
                                       .tv_sec = lives / 40 };
        nanosleep(&life, NULL);
        kill(pid, SIGKILL);
        T_EQ(waitpid(pid, &status, 0), pid);
        if (!WIFSIGNALED(status))
            break; // it was through before
        killed++;
        if (lives > 400)
            break;
    }
    T_EQ(status, 0);
    T_OK(killed >= 2);
    snprintf(path, sizeof(path), "%s/order", dir);
    int fd = open(path, O_RDONLY);
    T_EQ(read(fd, got, sizeof(got)), (ssize_t)sizeof(got));
    close(fd);
    T_OK(!memcmp(want, got, sizeof(got)));
    // No life began behind what had been saved, and it saved every third batch.
    snprintf(path, sizeof(path), "%s/starts", dir);
    fd = open(path, O_RDONLY);
    const ssize_t n = read(fd, begun, sizeof(begun)) / 8;
    close(fd);
    T_OK(n >= 1 && begun[0] == 0);
    for (ssize_t i = 1; i < n; i++)
        T_OK(begun[i] >= begun[i - 1] && begun[i] % N % (3 * BATCH) % BATCH == 0);
    printf("%d lives were ended\n", killed);
}

static void test_side_by_side(void)
{
    char path[300], index[300], line[3][64];
    int pipes[3][2];
    pid_t pids[3];

    snprintf(path, sizeof(path), "%s/set", dir);
    snprintf(index, sizeof(index), "%s/set/index.fli", dir);
    for (int fresh = 1; fresh >= 0; fresh--) {
        t_case(fresh ? "three jobs, and no index yet" : "three jobs");
        if (fresh)
            unlink(index);
        for (int i = 0; i < 3; i++) {
            T_EQ(pipe(pipes[i]), 0);
            pids[i] = start("reader", path, pipes[i][1]);
            close(pipes[i][1]);
        }
        for (int i = 0; i < 3; i++) {
            int status = -1;
            const ssize_t n = read(pipes[i][0], line[i], sizeof(line[i]) - 1);
            line[i][n > 0 ? n : 0] = 0;
            close(pipes[i][0]);
            waitpid(pids[i], &status, 0);
            T_EQ(status, 0);
            T_HAS(line[i], " 6000\n");
            T_STR(line[i], line[0]);
        }
        T_EQ(access(index, F_OK), 0);
    }
}

int main(int argc, char **argv)
{
    char command[400];

    if (argc == 3 && !strcmp(argv[1], "trainer"))
        return trainer(argv[2]);
    if (argc == 3 && !strcmp(argv[1], "reader"))
        return reader(argv[2]);
    const ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    if (n < 0)
        T_SKIP("no /proc here");
    self[n] = 0;
    make_set();
    test_side_by_side();
    test_kill();
    snprintf(command, sizeof(command), "rm -rf '%s'", dir);
    if (system(command))
        perror(command);
    return t_done();
}
