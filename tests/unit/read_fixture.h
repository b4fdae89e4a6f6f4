/* SPDX-License-Identifier: Apache-2.0 */
/* Files of known bytes, samples over them, and a feeder that checks what the read stage brings. */
#ifndef FL_TESTS_READ_FIXTURE_H
#define FL_TESTS_READ_FIXTURE_H

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/rng.h"
#include "read.h"
#include "t.h"

#define FX_FILES 12
#define FX_SAMPLES 48 // in flight at most

struct fx_file {
    char path[300];
    uint8_t *bytes;
    size_t size;
    int64_t mtime_ns;
};

struct fx {
    char dir[256];
    struct fx_file files[256];
    unsigned n;
    int checks;    // calls of check()
    int check_err; // what it answers
};

static const size_t fx_sizes[FX_FILES] = { 3000001, 1,      511,    512,     513,    4096,
                                           65536,   100000, 262144, 1048577, 700001, 2097152 };

static inline int fx_container(void *ctx, uint32_t id, struct fl_container *out, FlError *err)
{
    struct fx *fx = ctx;

    (void)err;
    *out = (struct fl_container){ fx->files[id].path, fx->files[id].size, fx->files[id].mtime_ns };
    return 0;
}

static inline int fx_check(void *ctx, uint32_t id, int fd, FlError *err)
{
    struct fx *fx = ctx;
    char byte;

    fx->checks++;
    if (pread(fd, &byte, 1, 0) != 1 || (uint8_t)byte != fx->files[id].bytes[0])
        return fl_err_set(err, FL_ERR(ESTALE), FL_STAGE_READ, "%s: other bytes",
                          fx->files[id].path);
    if (fx->check_err)
        return fl_err_set(err, fx->check_err, FL_STAGE_READ, "%s: refused", fx->files[id].path);
    return 0;
}

static inline void fx_write(struct fx_file *f)
{
    struct stat st;
    const int fd = open(f->path, O_WRONLY | O_CREAT | O_TRUNC, 0644);

    if (fd < 0 || write(fd, f->bytes, f->size) != (ssize_t)f->size || fsync(fd) || fstat(fd, &st)) {
        perror(f->path);
        exit(1);
    }
    f->mtime_ns = st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
    close(fd);
}

/* What n files in fx->dir hold; sizes cycle through fx_sizes or are all the same. */
static inline void fx_fill(struct fx *fx, unsigned n, size_t size)
{
    struct fl_rng r;

    fx->n = n;
    for (unsigned i = 0; i < n; i++) {
        struct fx_file *f = &fx->files[i];
        snprintf(f->path, sizeof(f->path), "%s/%u.bin", fx->dir, i);
        f->mtime_ns = INT64_MIN;
        f->size = size ? size : fx_sizes[i % FX_FILES];
        f->bytes = malloc(f->size + 1);
        fl_rng_init(&r, 7, 0, i, FL_RNG_USER, 0);
        for (size_t k = 0; k < f->size; k += 4) {
            const uint32_t v = fl_rng_u32(&r);
            memcpy(f->bytes + k, &v, f->size - k < 4 ? f->size - k : 4);
        }
    }
}

/* n files in a new folder below `where`. */
static inline void fx_make(struct fx *fx, const char *where, unsigned n, size_t size)
{
    memset(fx, 0, sizeof(*fx));
    snprintf(fx->dir, sizeof(fx->dir), "%s/feedline-read-XXXXXX", where);
    if (!mkdtemp(fx->dir)) {
        perror(fx->dir);
        exit(1);
    }
    fx_fill(fx, n, size);
    for (unsigned i = 0; i < n; i++)
        fx_write(&fx->files[i]);
}

static inline void fx_remove(struct fx *fx)
{
    for (unsigned i = 0; i < fx->n; i++) {
        unlink(fx->files[i].path);
        free(fx->files[i].bytes);
    }
    rmdir(fx->dir);
}

/* Out of the page cache, so that automatic mode reads directly. */
static inline void fx_evict(struct fx *fx)
{
    for (unsigned i = 0; i < fx->n; i++) {
        const int fd = open(fx->files[i].path, O_RDONLY);
        posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        close(fd);
    }
}

static inline void fx_warm(struct fx *fx)
{
    static char buf[65536];

    for (unsigned i = 0; i < fx->n; i++) {
        const int fd = open(fx->files[i].path, O_RDONLY);
        while (read(fd, buf, sizeof(buf)) > 0)
            ;
        close(fd);
    }
}

static inline struct fl_read_cfg fx_cfg(struct fx *fx)
{
    return (struct fl_read_cfg){ .bytes = 8 << 20,
                                 .numa_node = -1,
                                 .source = { fx, fx->n, fx_container, fx_check } };
}

/* The machine that runs the test refuses io_uring; the tests of it are left out there. */
static inline bool fx_no_uring(int err)
{
    return err == FL_ERR(EPERM) || err == FL_ERR(ENOSYS) || err == FL_ERR(EACCES);
}

/* Where the tests' files go: on a disk rather than in memory. */
static inline const char *fx_where(void)
{
    const char *build = getenv("FL_TEST_BUILD");
    return build ? build : "/tmp";
}

/* Fill a sample with random requests: neighbours, overlaps, empty ones, single bytes, whole files.
 */
static inline void fx_draw(struct fx *fx, struct fl_sample *s, struct fl_rng *r)
{
    s->n_reads = 1 + (unsigned)fl_rng_below(r, 4);
    uint32_t c = (uint32_t)fl_rng_below(r, fx->n);
    uint64_t at = fl_rng_below(r, fx->files[c].size);
    for (unsigned i = 0; i < s->n_reads; i++) {
        struct fl_read_req *q = &s->reads[i];
        if (fl_rng_below(r, 3) == 0) {
            c = (uint32_t)fl_rng_below(r, fx->n);
            at = fl_rng_below(r, fx->files[c].size);
        }
        const uint64_t left = fx->files[c].size - at, most = left < 200000 ? left : 200000;
        *q = (struct fl_read_req){ .container = c,
                                   .offset = at,
                                   .length = fl_rng_below(r, most + 1) };
        if (!i && fl_rng_below(r, 20) == 0)
            q->offset = 0, q->length = fx->files[c].size;
        at = q->offset + q->length;
        if (at >= fx->files[c].size)
            at = 0;
    }
}

static inline int fx_same(struct fx *fx, struct fl_sample *s)
{
    for (unsigned i = 0; i < s->n_reads; i++) {
        struct fl_read_req *q = &s->reads[i];
        if (!q->data || memcmp(q->data, fx->files[q->container].bytes + q->offset, q->length))
            return 0;
    }
    return 1;
}

/* A sample whose bytes are there: check and release it. Returns 1 if it is good. */
static inline int fx_take(struct fx *fx, struct fl_sample *s)
{
    const int good = !s->err.code;

    if (good)
        T_OK(fx_same(fx, s));
    fl_read_release(s);
    return good;
}

/* Feed n samples drawn by draw() through r, check each, release it. Returns samples that came back
 * good. */
static inline int64_t fx_run(struct fx *fx, struct fl_read *r, int64_t n, uint64_t seed,
                             void (*draw)(struct fx *, struct fl_sample *, struct fl_rng *))
{
    static struct fl_sample pool[FX_SAMPLES];
    struct fl_sample *spare[FX_SAMPLES], *done[16], *next = NULL;
    unsigned n_spare = 0;
    int64_t sent = 0, back = 0, good = 0;

    memset(pool, 0, sizeof(pool));
    while (n_spare < FX_SAMPLES)
        spare[n_spare] = &pool[n_spare], n_spare++;
    while (back < n) {
        for (;;) {
            if (!next && n_spare && sent < n) {
                struct fl_rng rng;
                fl_rng_init(&rng, seed, 0, (uint64_t)sent, FL_RNG_USER, 0);
                next = spare[--n_spare];
                next->position = next->id = sent++;
                draw(fx, next, &rng);
            }
            if (!next)
                break;
            const int err = fl_read_submit(r, next);
            if (err == -EAGAIN)
                break;
            T_EQ(err, err == 1 && next->unread);
            if (err == 1 && fl_read_copy(r, next)) { // lent
                good += fx_take(fx, next);
                spare[n_spare++] = next;
                back++;
            }
            next = NULL;
        }
        if (back == n)
            break;
        if (sent == n && !next)
            fl_read_flush(r);
        const int got = fl_read_wait(r, done, T_LEN(done), fl_now_ns() + 20000000000);
        T_OK(got >= 0);
        if (got < 0) {
            fprintf(stderr, "%s\n", fl_last_error()->message);
            return good;
        }
        for (int i = 0; i < got; i++) {
            good += fx_take(fx, done[i]);
            spare[n_spare++] = done[i];
        }
        back += got;
    }
    T_EQ(fl_read_pending(r), 0);
    return good;
}

#endif
