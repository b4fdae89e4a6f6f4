/* SPDX-License-Identifier: Apache-2.0 */
/* The read stage alone: samples are released as soon as their bytes are in memory. bench/stage_read_fio.py runs it side
 * by side with fio on the same file.
 *
 *     stage_read [options] FILE...
 *
 *     --block BYTES        every sample is one block (128K); suffixes K, M, G
 *     --sizes FILE         a sample's bytes from this list, one a line, as members of a tar shard
 *     --order random|seq|block     (random)
 *     --order-block BYTES --window N   of the block order (256K, 64); --around BYTES: read pieces of so many bytes and keep them
 *     --total BYTES        to read (all of the files once)
 *     --depth N --bytes N --coalesce N --gap N --threads N     as in struct fl_read_cfg
 *     --io auto|uring|pread|memory   --direct auto|on|off   --no-register   --inline
 *     --cold | --warm      drop the files from the page cache first, or read them into it
 *     --json
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/rng.h"
#include "read.h"

#define MAX_FILES 4096
#define POOL 4096
#define REAP 64
#define TAR_BLOCK 512u

struct file {
    const char *path;
    uint64_t size;
};

struct span {
    uint32_t file;
    uint32_t length;
    uint64_t offset;
};

struct bench {
    struct file files[MAX_FILES];
    uint32_t n_files;
    uint64_t block, total;
    uint32_t *sizes;
    size_t n_sizes;
    uint64_t total_spans, order_block, window;
    enum { ORDER_RANDOM, ORDER_SEQ, ORDER_BLOCK } order;
    bool cold, warm, json;
    struct fl_read_cfg cfg;
    struct fl_io_faults faults;
    struct span *spans;
    size_t n_spans;
};

struct result {
    double seconds, open_seconds, user, sys;
    uint64_t bytes;
    int64_t samples;
    FlLoaderStats stats;
};

static void die(const char *what, const char *why)
{
    fprintf(stderr, "stage_read: %s: %s\n", what, why);
    exit(1);
}

static uint64_t parse_bytes(const char *s)
{
    char *end;
    uint64_t n = strtoull(s, &end, 10);

    switch (*end) {
    case 'G':
        n <<= 10; // fall through
    case 'M':
        n <<= 10; // fall through
    case 'K':
        n <<= 10;
        end++;
    }
    if (end == s || *end)
        die(s, "not a number of bytes");
    return n;
}

static unsigned parse_word(const char *option, const char *s, const char *const *words)
{
    for (unsigned i = 0; words[i]; i++)
        if (!strcmp(s, words[i]))
            return i;
    die(option, "no such value");
    return 0;
}

static void load_sizes(struct bench *b, const char *path)
{
    FILE *f = fopen(path, "re");
    unsigned long n;

    if (!f)
        die(path, strerror(errno));
    while (fscanf(f, "%lu", &n) == 1) {
        b->sizes = realloc(b->sizes, (b->n_sizes + 1) * sizeof(*b->sizes));
        if (!b->sizes)
            die(path, "out of memory");
        b->sizes[b->n_sizes++] = (uint32_t)n;
    }
    fclose(f);
    if (!b->n_sizes)
        die(path, "no sizes in it");
}

static void parse_io(struct bench *b, const char *value)
{
    static const char *const words[] = { "auto", "uring", "pread", "memory", NULL };
    const unsigned i = parse_word("--io", value, words);

    if (i == 3)
        b->cfg.faults = &b->faults;
    else
        b->cfg.io = (FlIo)i;
}

/* True: the option was one of those that take a number. */
static bool parse_number(struct bench *b, const char *name, const char *value)
{
    struct fl_read_cfg *c = &b->cfg;
    unsigned small = 0;
    uint64_t large = 0;
    const struct {
        const char *name;
        uint64_t *large;
        unsigned *small;
    } numbers[] = {
        { "--block", &b->block, NULL },
        { "--total", &b->total, NULL },
        { "--bytes", &c->bytes, NULL },
        { "--coalesce", &c->coalesce, NULL },
        { "--gap", &c->gap, NULL },
        { "--around", &c->around, NULL },
        { "--order-block", &b->order_block, NULL },
        { "--window", &b->window, NULL },
        { "--depth", NULL, &c->depth },
        { "--threads", NULL, &c->threads },
    };

    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        if (!strcmp(name, numbers[i].name)) {
            *(numbers[i].large ? numbers[i].large : &large) = parse_bytes(value);
            *(numbers[i].small ? numbers[i].small : &small) = (unsigned)parse_bytes(value);
            return true;
        }
    return false;
}

static bool parse_flag(struct bench *b, const char *name)
{
    const struct {
        const char *name;
        bool *flag;
    } flags[] = { { "--cold", &b->cold },
                  { "--warm", &b->warm },
                  { "--json", &b->json },
                  { "--inline", &b->cfg.inline_reads },
                  { "--no-register", &b->cfg.no_register } };

    for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++)
        if (!strcmp(name, flags[i].name))
            return *flags[i].flag = true;
    return false;
}

static void parse(struct bench *b, int argc, char **argv)
{
    static const char *const orders[] = { "random", "seq", "block", NULL };
    static const char *const directs[] = { "auto", "on", "off", NULL };

    for (int i = 1; i < argc; i++) {
        const char *a = argv[i], *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (a[0] != '-') {
            if (b->n_files == MAX_FILES)
                die(a, "too many files");
            b->files[b->n_files++].path = a;
        } else if (parse_flag(b, a)) {
            continue;
        } else if (!value) {
            die(a, "no such option, or its value is missing");
        } else if (!strcmp(a, "--sizes")) {
            load_sizes(b, value), i++;
        } else if (!strcmp(a, "--order")) {
            b->order = parse_word(a, value, orders), i++;
        } else if (!strcmp(a, "--direct")) {
            b->cfg.direct = (FlSwitch)parse_word(a, value, directs), i++;
        } else if (!strcmp(a, "--io")) {
            parse_io(b, value), i++;
        } else if (parse_number(b, a, value)) {
            i++;
        } else {
            die(a, "no such option");
        }
    }
    if (!b->n_files)
        die("usage", "stage_read [options] FILE...");
}

/* Put files in the wanted state of the page cache. */
static void prepare_file(struct bench *b, struct file *f)
{
    static uint8_t buf[1 << 20];
    struct stat st;
    const int fd = open(f->path, O_RDONLY | O_CLOEXEC);

    if (fd < 0 || fstat(fd, &st))
        die(f->path, strerror(errno));
    f->size = (uint64_t)st.st_size;
    if (b->cold)
        posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    for (uint64_t at = 0; b->warm && at < f->size; at += sizeof(buf))
        if (pread(fd, buf, sizeof(buf), (off_t)at) <= 0)
            die(f->path, "cannot be read into the page cache");
    close(fd);
}

static void add_span(struct bench *b, uint32_t file, uint64_t offset, uint32_t length)
{
    if (!(b->n_spans & (b->n_spans - 1))) {
        const size_t room = b->n_spans ? 2 * b->n_spans : 1;
        b->spans = realloc(b->spans, room * sizeof(*b->spans));
        if (!b->spans)
            die("spans", "out of memory");
    }
    b->spans[b->n_spans++] = (struct span){ file, length, offset };
}

static void shuffle(struct span *spans, size_t n, struct fl_rng *r)
{
    for (size_t i = n - 1; n && i; i--) {
        const size_t j = (size_t)fl_rng_below(r, i + 1);
        const struct span t = spans[i];
        spans[i] = spans[j];
        spans[j] = t;
    }
}

/* As FL_SHUFFLE_BLOCK: blocks of neighbours in random order, shuffled in windows of so many blocks. */
static void shuffle_blocks(struct bench *b, struct fl_rng *r)
{
    const uint64_t mean = b->total_spans / b->n_spans + 1;
    const size_t size = (size_t)(b->order_block / mean) + 1, blocks = b->n_spans / size;
    struct span *out = malloc(b->n_spans * sizeof(*out));
    size_t *order = malloc(blocks * sizeof(*order));

    if (!out || !order || !blocks)
        die("--order block", blocks ? "out of memory" : "fewer samples than one block");
    for (size_t i = 0; i < blocks; i++)
        order[i] = i;
    for (size_t i = blocks - 1; i; i--) {
        const size_t j = (size_t)fl_rng_below(r, i + 1), t = order[i];
        order[i] = order[j];
        order[j] = t;
    }
    for (size_t i = 0; i < blocks; i++)
        memcpy(out + i * size, b->spans + order[i] * size, size * sizeof(*out));
    for (size_t i = 0; i < blocks; i += b->window)
        shuffle(out + i * size, size * (i + b->window < blocks ? b->window : blocks - i), r);
    b->n_spans = blocks * size;
    memcpy(b->spans, out, b->n_spans * sizeof(*out));
    free(order);
    free(out);
}

/* As a sharder lays them out: header and content of the picture, header and content of its label. */
static void make_spans(struct bench *b)
{
    size_t k = 0;

    for (uint32_t i = 0; i < b->n_files; i++) {
        const uint64_t size = b->files[i].size;
        for (uint64_t at = 0; at < size;) {
            if (!b->n_sizes) {
                if (at + b->block > size)
                    break;
                add_span(b, i, at, (uint32_t)b->block);
                at += b->block;
                continue;
            }
            const uint32_t n = b->sizes[k++ % b->n_sizes];
            if (at + TAR_BLOCK + n > size)
                break;
            add_span(b, i, at + TAR_BLOCK, n);
            at += TAR_BLOCK + (n + TAR_BLOCK - 1) / TAR_BLOCK * TAR_BLOCK + 2 * TAR_BLOCK;
        }
    }
    if (!b->n_spans)
        die("files", "too small for one sample");
    struct fl_rng r;
    fl_rng_init(&r, 1, 0, 0, FL_RNG_ORDER, 0);
    for (size_t i = 0; i < b->n_spans; i++)
        b->total_spans += b->spans[i].length;
    if (b->order == ORDER_RANDOM)
        shuffle(b->spans, b->n_spans, &r);
    else if (b->order == ORDER_BLOCK)
        shuffle_blocks(b, &r);
}

static int container(void *ctx, uint32_t id, struct fl_container *out, FlError *err)
{
    const struct bench *b = ctx;

    (void)err;
    *out = (struct fl_container){ b->files[id].path, b->files[id].size, INT64_MIN };
    return 0;
}

static double seconds_of(struct timeval t)
{
    return (double)t.tv_sec + (double)t.tv_usec / 1e6;
}

static void feed(struct bench *b, struct fl_read *r, struct result *out)
{
    static struct fl_sample pool[POOL];
    static struct fl_sample *spare[POOL];
    struct fl_sample *done[REAP];
    size_t n_spare = 0, at = 0;
    uint64_t sent = 0;
    int64_t inflight = 0;

    while (n_spare < POOL)
        spare[n_spare] = &pool[n_spare], n_spare++;
    while (sent < b->total || inflight) {
        while (sent < b->total && n_spare) {
            const struct span *p = &b->spans[at];
            struct fl_sample *s = spare[n_spare - 1];
            s->n_reads = 1;
            s->reads[0] = (struct fl_read_req){ .container = p->file,
                                                .offset = p->offset,
                                                .length = p->length };
            const int err = fl_read_submit(r, s);
            if (err == -EAGAIN)
                break;
            if (err)
                die("submit", fl_last_error()->message);
            n_spare--;
            inflight++;
            sent += p->length;
            at = at + 1 < b->n_spans ? at + 1 : 0;
        }
        if (sent >= b->total)
            fl_read_flush(r);
        const int n = fl_read_wait(r, done, REAP, INT64_MAX);
        if (n < 0)
            die("wait", fl_last_error()->message);
        for (int i = 0; i < n; i++) {
            if (done[i]->err.code)
                die("read", done[i]->err.message);
            out->bytes += done[i]->reads[0].length;
            fl_read_release(done[i]);
            spare[n_spare++] = done[i];
        }
        inflight -= n;
        out->samples += n;
    }
}

static void run(struct bench *b, struct result *out)
{
    struct rusage before, after;
    struct fl_read *r;
    const int64_t t0 = fl_now_ns();

    if (fl_read_open(&r, &b->cfg))
        die("open", fl_last_error()->message);
    const int64_t t1 = fl_now_ns();
    getrusage(RUSAGE_SELF, &before);
    feed(b, r, out);
    getrusage(RUSAGE_SELF, &after);
    out->seconds = (double)(fl_now_ns() - t1) / 1e9;
    out->open_seconds = (double)(t1 - t0) / 1e9;
    out->user = seconds_of(after.ru_utime) - seconds_of(before.ru_utime);
    out->sys = seconds_of(after.ru_stime) - seconds_of(before.ru_stime);
    fl_read_stats(r, &out->stats);
    fl_read_close(&r);
}

static void report(const struct bench *b, const struct result *v)
{
    const double gb = (double)v->bytes / 1e9;
    const char *format =
        b->json ? "{\"mb_s\": %.1f, \"samples_s\": %.0f, \"cpu_s_gb\": %.4f, \"user_s\": %.3f, "
                  "\"sys_s\": %.3f, "
                  "\"read_ratio\": %.3f, \"reads\": %lld, \"backend\": \"%s\", \"direct\": %d, "
                  "\"registered\": %d, \"seconds\": %.3f, \"open_s\": %.4f}\n"
                : "%.1f MB/s, %.0f samples/s, %.4f CPU s/GB (user %.3f, system %.3f), read / "
                  "wanted %.3f, "
                  "%lld reads; %s, direct %d, registered %d; %.3f s, open %.4f s\n";

    printf(format, gb * 1e3 / v->seconds, (double)v->samples / v->seconds, (v->user + v->sys) / gb,
           v->user, v->sys, (double)v->stats.bytes_read / (double)v->bytes,
           (long long)v->stats.reads, v->stats.io_backend, v->stats.io_direct,
           v->stats.io_registered, v->seconds, v->open_seconds);
}

int main(int argc, char **argv)
{
    static struct bench b;
    struct result result = { 0 };

    b.block = 128 << 10;
    b.order_block = 256 << 10;
    b.window = 64;
    b.cfg.numa_node = -1;
    parse(&b, argc, argv);
    for (uint32_t i = 0; i < b.n_files; i++)
        prepare_file(&b, &b.files[i]);
    make_spans(&b);
    b.total = b.total ? b.total : b.total_spans;
    b.cfg.source =
        (struct fl_read_source){ .ctx = &b, .n_containers = b.n_files, .container = container };
    run(&b, &result);
    report(&b, &result);
    return 0;
}
