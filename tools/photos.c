/* SPDX-License-Identifier: Apache-2.0 */
/* `feedline synth`: photo-like JPEGs in class folders. */
#define _GNU_SOURCE // sched_getaffinity
#include "photos.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "commands.h"
#include "synth/synth.h"

struct work {
    struct photos *photos;
    atomic_llong next;   // number of the next photo; relaxed: it only hands out numbers
    atomic_ullong bytes; // relaxed: read for the bar, and after the threads have ended
    atomic_int err;      // first errno; relaxed, for the same reason
};

static int write_file(const char *path, const unsigned char *data, size_t size)
{
    FILE *f = fopen(path, "wbx");
    int err = 0;

    if (!f)
        return errno;
    if (fwrite(data, 1, size, f) != size)
        err = errno ? errno : EIO;
    if (fclose(f) && !err)
        err = errno;
    return err;
}

static int write_photo(struct work *w, struct synth *synth, int64_t i)
{
    const struct photos *p = w->photos;
    const int class = (int)(i % p->classes);
    const unsigned char *data;
    char path[PATH_MAX];
    size_t size;
    int err;

    if (synth_photo(synth, p->seed, (uint64_t)i, (unsigned)class, &data, &size))
        return ENOMEM;
    if (snprintf(path, sizeof(path), "%s/class%03d/photo%06lld.jpg", p->dir, class, (long long)i) >=
        (int)sizeof(path))
        return ENAMETOOLONG;
    err = write_file(path, data, size);
    if (!err)
        atomic_fetch_add_explicit(&w->bytes, size, memory_order_relaxed);
    return err;
}

static void *run(void *arg)
{
    struct work *w = arg;
    struct synth synth = { 0 };
    int64_t i;

    while (!atomic_load_explicit(&w->err, memory_order_relaxed) &&
           (i = atomic_fetch_add_explicit(&w->next, 1, memory_order_relaxed)) < w->photos->count) {
        const int err = write_photo(w, &synth, i);
        if (err)
            atomic_store_explicit(&w->err, err, memory_order_relaxed);
    }
    synth_free(&synth);
    return NULL;
}

static int make_folders(const struct photos *p)
{
    char path[PATH_MAX];

    if (mkdir(p->dir, 0777) && errno != EEXIST)
        return errno;
    for (int i = 0; i < p->classes && i < p->count; i++) {
        if (snprintf(path, sizeof(path), "%s/class%03d", p->dir, i) >= (int)sizeof(path))
            return ENAMETOOLONG;
        if (mkdir(path, 0777))
            return errno; // EEXIST too: photos of another run must not be mixed in
    }
    return 0;
}

static int processors(void)
{
    cpu_set_t set;

    return sched_getaffinity(0, sizeof(set), &set) ? 1 : CPU_COUNT(&set);
}

/* The bar, until the last photo has been handed out. */
static void watch(struct work *w)
{
    const struct timespec tick = { .tv_nsec = 100000000 };
    FlProgress progress = { .what = "making photos", .total = w->photos->count };
    int64_t done;

    while (!atomic_load_explicit(&w->err, memory_order_relaxed) &&
           (done = atomic_load_explicit(&w->next, memory_order_relaxed)) < progress.total) {
        progress.done = done;
        progress.bytes = atomic_load_explicit(&w->bytes, memory_order_relaxed);
        cli_progress(w->photos->bar, &progress);
        nanosleep(&tick, NULL);
        progress.seconds += 0.1;
    }
    cli_bar_end(w->photos->bar);
}

int photos_write(struct photos *p, const char *command)
{
    enum { MAX_THREADS = 64 };
    struct work w = { .photos = p };
    pthread_t threads[MAX_THREADS];
    int wanted = p->n_threads ? p->n_threads : processors(), n = 0, err = make_folders(p);

    if (err)
        return cli_failed(command, "cannot make class folders in %s: %s", p->dir, strerror(err));
    while (n < wanted && n < MAX_THREADS && !pthread_create(&threads[n], NULL, run, &w))
        n++;
    if (n == 0)
        run(&w);
    else if (p->bar)
        watch(&w);
    while (n > 0)
        pthread_join(threads[--n], NULL);
    err = atomic_load(&w.err);
    p->bytes = atomic_load(&w.bytes);
    if (err)
        return cli_failed(command, "cannot write photos to %s: %s", p->dir, strerror(err));
    return 0;
}

int command_synth(int argc, char **argv)
{
    const char *dir;
    struct cli_bar bar = { 0 };
    struct photos p = { .count = 1000, .classes = 8, .seed = 1, .bar = &bar };
    const struct cli_option options[] = {
        CLI_OPTION("count", CLI_LONG, &p.count, "photos to make (1000)", .min = 1, .max = 1e9),
        CLI_OPTION("classes", CLI_INT, &p.classes, "class folders (8)", .min = 1, .max = 1000),
        CLI_OPTION("seed", CLI_SEED, &p.seed, "another seed, other photos (1)"),
        CLI_OPTION("threads", CLI_INT, &p.n_threads, "0: as many as the process may use (0)",
                   .min = 0, .max = 64),
        CLI_OPTION("quiet", CLI_FLAG, &bar.quiet, "no progress"),
    };
    const struct cli cli = {
        "synth",
        "DIR [OPTION ...]",
        "Make photo-like JPEGs (about 500 x 375 pixels, 110 KB) in class folders, for trying "
        "things out.\n"
        "The same options give the same bytes.",
        options,
        sizeof(options) / sizeof(options[0]),
        &dir,
        1,
        1,
    };
    const int parsed = cli_parse(&cli, argc, argv);
    char count[32], bytes[16];

    if (parsed < 0)
        return cli_exit(parsed);
    p.dir = dir;
    if (photos_write(&p, "synth"))
        return 1;
    printf("%s: %s photos in %d classes, %s\n", dir, cli_count(count, p.count),
           p.classes < p.count ? p.classes : (int)p.count, cli_bytes(bytes, (double)p.bytes));
    return 0;
}
