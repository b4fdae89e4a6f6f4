/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "buffer.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/err.h"
#include "t.h"

static void test_budget(void)
{
    struct fl_budget b = { .limit = 100 };

    t_case("budget");
    T_EQ(fl_budget_take(&b, 60, "slots"), 0);
    T_EQ(fl_budget_take(&b, 41, "read memory"), FL_ERR(ENOMEM));
    T_HAS(fl_last_error()->message, "memory_limit");
    T_HAS(fl_last_error()->message, "read memory");
    T_EQ(fl_budget_take(&b, 40, "slots"), 0);
    T_EQ(fl_budget_take(&b, UINT64_MAX, "slots"), FL_ERR(ENOMEM));
    fl_budget_give(&b, 70);
    T_EQ(b.used, 30);
    T_EQ(b.high_water, 100);
    T_EQ(fl_budget_take(NULL, 1, "nothing"), 0);
}

static void test_slab(void)
{
    static const size_t sizes[] = { 1, 4096, 5000, 2 << 20, (2 << 20) + 1, 9 << 20 };
    struct fl_budget b = { .limit = 64 << 20 };
    struct fl_slab slab;

    for (size_t i = 0; i < T_LEN(sizes); i++) {
        t_case("slab");
        T_EQ(fl_slab_open(&slab, sizes[i], -1, &b, "a slab"), 0);
        T_OK(slab.bytes >= sizes[i] && slab.bytes % 4096 == 0);
        T_EQ((uintptr_t)slab.base % (sizes[i] >= 2 << 20 ? 2 << 20 : 4096), 0);
        T_EQ(b.used, slab.bytes);
        slab.base[0] = slab.base[slab.bytes - 1] = 1;
        fl_slab_close(&slab);
        fl_slab_close(&slab);
        T_EQ(b.used, 0);
    }
    t_case("slab over the limit");
    T_EQ(fl_slab_open(&slab, 65 << 20, -1, &b, "a slab"), FL_ERR(ENOMEM));
    T_OK(!slab.base);
    T_EQ(fl_slab_open(&slab, 0, -1, &b, "a slab"), FL_ERR(EINVAL));
    T_EQ(fl_slab_open(&slab, SIZE_MAX, -1, &b, "a slab"), FL_ERR(EINVAL));
    t_case("slab on a node that does not exist");
    T_EQ(fl_slab_open(&slab, 4096, 1000, &b, "a slab"), 0);
    T_EQ(slab.node, -1);
    fl_slab_close(&slab);
    T_EQ(b.used, 0);
}

static void *write_rows(void *arg)
{
    struct fl_slab *slab = arg;
    static _Atomic size_t next;

    for (size_t at; (at = atomic_fetch_add(&next, 300000)) + 300000 <= slab->bytes;) {
        fl_slab_ahead(slab, at + 300000 + (4 << 20));
        memset(slab->base + at, 0x5A, 300000);
    }
    return NULL;
}

/* Memory that comes later: what is written before, meanwhile and behind it stays. */
static void test_lazy(void)
{
    const size_t bytes = (23 << 20) + 8192;
    struct fl_budget b = { 0 };
    struct fl_slab slab;
    pthread_t t[3];

    t_case("lazy slab");
    T_EQ(fl_slab_open_lazy(&slab, bytes, 2 << 20, -1, &b, "a slab"), 0);
    T_EQ(b.used, bytes);
    T_EQ(slab.touched, 2 << 20);
    for (size_t i = 0; i < T_LEN(t); i++)
        T_EQ(pthread_create(&t[i], NULL, write_rows, &slab), 0);
    for (size_t upto = 3 << 20; slab.touched < bytes; upto += 3 << 20)
        T_EQ(fl_slab_touch(&slab, upto), 0);
    for (size_t i = 0; i < T_LEN(t); i++)
        pthread_join(t[i], NULL);
    T_OK(slab.claimed >= bytes);
    size_t wrong = 0;
    for (size_t i = 0; i < bytes / 300000 * 300000; i++)
        wrong += slab.base[i] != 0x5A;
    T_EQ(wrong, 0);
    T_EQ(fl_slab_touch(&slab, 2 * bytes), 0);
    fl_slab_ahead(&slab, SIZE_MAX);
    fl_slab_close(&slab);
    T_EQ(b.used, 0);
}

/* A child does not see the slab: touching it is a fault, so ask the kernel instead. */
static void test_slab_not_forked(void)
{
    struct fl_slab slab;
    int fds[2];

    t_case("fork");
    T_EQ(fl_slab_open(&slab, 8192, -1, NULL, "a slab"), 0);
    T_EQ(pipe(fds), 0);
    const pid_t child = fork();
    if (!child)
        _exit(write(fds[1], slab.base, 1) < 0 && errno == EFAULT ? 0 : 1);
    int status = -1;
    waitpid(child, &status, 0);
    T_EQ(status, 0);
    close(fds[0]);
    close(fds[1]);
    fl_slab_close(&slab);
}

static void test_arena_ring(void)
{
    struct fl_ring a;
    struct fl_block *b[8];

    t_case("arena ring");
    T_EQ(fl_ring_open(&a, 64 << 10, -1, false, NULL, NULL, NULL), 0);
    T_OK(!fl_ring_alloc(&a, (64 << 10) + 1, 1));
    T_OK((b[0] = fl_ring_alloc(&a, 64 << 10, 4096)) != NULL);
    T_OK(!fl_ring_alloc(&a, 1, 1));
    fl_block_put(b[0]);
    fl_ring_reclaim(&a);
    for (int i = 0; i < 4; i++)
        T_OK((b[i] = fl_ring_alloc(&a, 15000, 512)) != NULL);
    T_EQ((uintptr_t)b[1]->data % 512, 0);
    T_EQ(b[1]->data - b[0]->data, 15360);
    T_OK(!fl_ring_alloc(&a, 15000, 512)); // 4456 bytes left at the end, none at the front
    fl_block_put(b[1]);                   // freed out of order: waits for the tail
    fl_ring_reclaim(&a);
    T_OK(!fl_ring_alloc(&a, 15000, 512));
    fl_block_put(b[0]);
    fl_ring_reclaim(&a);
    T_OK((b[4] = fl_ring_alloc(&a, 15000, 512)) != NULL); // begins again at the front
    T_OK(b[4]->data == a.slab.base);
    T_OK(!fl_ring_grow(&a, b[3], 15001)); // not the newest
    T_OK(!fl_ring_grow(&a, b[4], 40000)); // b[2] is in the way
    T_OK(fl_ring_grow(&a, b[4], 20000));
    for (int i = 2; i < 5; i++)
        fl_block_put(b[i]);
    fl_ring_reclaim(&a);
    T_EQ(a.used, 0);
    T_EQ(a.count, 0);
    T_OK(fl_ring_alloc(&a, 64 << 10, 4096) != NULL); // an empty arena offers all of itself
    fl_ring_close(&a);
}

static void test_arena_undo(void)
{
    struct fl_ring a;

    t_case("arena undo");
    T_EQ(fl_ring_open(&a, 1 << 20, -1, false, NULL, NULL, NULL), 0);
    struct fl_block *first = fl_ring_alloc(&a, 1000, 512);
    const struct fl_ring_mark m = fl_ring_mark(&a);
    T_OK(fl_ring_grow(&a, first, 3000));
    T_OK(fl_ring_alloc(&a, 5000, 512) != NULL);
    T_OK(fl_ring_alloc(&a, 0, 1) != NULL);
    fl_ring_undo(&a, &m);
    T_EQ(first->bytes, 1000);
    T_EQ(a.used, 1000);
    T_EQ(a.count, 1);
    fl_block_put(first);
    fl_ring_reclaim(&a);
    T_EQ(a.used, 0);
    T_EQ(a.allocated, a.freed);
    fl_ring_close(&a);
}

static void test_arena_descriptors(void)
{
    struct fl_ring a;
    struct fl_block *b[256];

    t_case("arena runs out of descriptors before bytes");
    T_EQ(fl_ring_open(&a, 64 << 10, -1, false, NULL, NULL, NULL), 0);
    for (int i = 0; i < 256; i++)
        T_OK((b[i] = fl_ring_alloc(&a, i % 2 ? 16 : 0, 1)) != NULL);
    T_OK(!fl_ring_alloc(&a, 16, 1));
    T_OK(fl_ring_want(&a, 1 << 20));
    for (int i = 0; i < 256; i++)
        fl_block_put(b[i]);
    T_EQ(a.wake_at, UINT64_MAX); // all that was held has gone, so the wish came true
    fl_ring_reclaim(&a);
    T_EQ(a.count, 0);
    T_OK(!fl_ring_want(&a, 1));
    fl_ring_close(&a);
}

/* A thread frees what the owner allocates, in another order; the owner sleeps when there is no
 * room. */
struct shared {
    pthread_mutex_t lock;
    pthread_cond_t cond;
    struct fl_block *queue[64];
    unsigned n;
    bool woken, done;
    uint64_t wakes;
};

static void wake(void *ctx)
{
    struct shared *s = ctx;

    pthread_mutex_lock(&s->lock);
    s->woken = true;
    s->wakes++;
    pthread_cond_broadcast(&s->cond);
    pthread_mutex_unlock(&s->lock);
}

static void *free_blocks(void *arg)
{
    struct shared *s = arg;
    unsigned turn = 0;

    pthread_mutex_lock(&s->lock);
    while (s->n || !s->done) {
        if (!s->n) {
            pthread_cond_wait(&s->cond, &s->lock);
            continue;
        }
        const unsigned i = turn++ * 7 % s->n;
        struct fl_block *b = s->queue[i];
        s->queue[i] = s->queue[--s->n];
        pthread_cond_broadcast(&s->cond);
        pthread_mutex_unlock(&s->lock);
        for (size_t k = 0; k < b->bytes; k++)
            if (b->data[k] != (uint8_t)(b->bytes + k))
                abort();
        fl_block_put(b);
        pthread_mutex_lock(&s->lock);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

static struct fl_block *alloc_waiting(struct fl_ring *a, struct shared *s, size_t bytes)
{
    for (;;) {
        fl_ring_reclaim(a);
        struct fl_block *b = fl_ring_alloc(a, bytes, 512);
        if (b)
            return b;
        if (!fl_ring_want(a, bytes))
            continue;
        pthread_mutex_lock(&s->lock);
        while (!s->woken)
            pthread_cond_wait(&s->cond, &s->lock);
        s->woken = false;
        pthread_mutex_unlock(&s->lock);
    }
}

static void test_arena_threads(void)
{
    struct shared s = { .lock = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER };
    struct fl_ring a;
    pthread_t threads[2];

    t_case("arena with two threads that free");
    T_EQ(fl_ring_open(&a, 64 << 10, -1, false, NULL, wake, &s), 0);
    for (size_t i = 0; i < T_LEN(threads); i++)
        T_EQ(pthread_create(&threads[i], NULL, free_blocks, &s), 0);
    for (unsigned i = 0; i < 20000; i++) {
        struct fl_block *b = alloc_waiting(&a, &s, 1 + i * 2654435761u % 9000);
        for (size_t k = 0; k < b->bytes; k++)
            b->data[k] = (uint8_t)(b->bytes + k);
        pthread_mutex_lock(&s.lock);
        while (s.n == T_LEN(s.queue))
            pthread_cond_wait(&s.cond, &s.lock);
        s.queue[s.n++] = b;
        pthread_cond_broadcast(&s.cond);
        pthread_mutex_unlock(&s.lock);
    }
    pthread_mutex_lock(&s.lock);
    s.done = true;
    pthread_cond_broadcast(&s.cond);
    pthread_mutex_unlock(&s.lock);
    for (size_t i = 0; i < T_LEN(threads); i++)
        pthread_join(threads[i], NULL);
    fl_ring_reclaim(&a);
    T_EQ(a.used, 0);
    T_OK(a.high_water <= a.slab.bytes);
    fl_ring_close(&a);
}

int main(void)
{
    test_budget();
    test_slab();
    test_lazy();
    test_slab_not_forked();
    test_arena_ring();
    test_arena_undo();
    test_arena_descriptors();
    test_arena_threads();
    return t_done();
}
