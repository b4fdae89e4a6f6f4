/* SPDX-License-Identifier: Apache-2.0 */
#include "queue.h"

#include "t.h"

enum { N = 20000, THREADS = 4 };

static struct fl_queue queue;
static struct fl_sample samples[N];

static void *consume(void *arg)
{
    int64_t *sum = arg;
    const struct fl_sample *s;

    while ((s = fl_queue_pop(&queue))) {
        *sum += s->id;
        fl_queue_done(&queue);
    }
    return NULL;
}

int main(void)
{
    struct fl_sample *batch[7], *s;
    pthread_t threads[THREADS];
    int64_t sums[THREADS] = { 0 }, total = 0;

    t_case("order of one thread");
    T_EQ(fl_queue_init(&queue), 0);
    T_OK(fl_queue_try_pop(&queue) == NULL);
    for (int i = 0; i < 3; i++) {
        batch[i] = &samples[i];
        samples[i].id = i;
    }
    fl_queue_push(&queue, batch, 3);
    for (int i = 0; i < 3; i++) {
        s = fl_queue_try_pop(&queue);
        T_OK(s == &samples[i]);
        fl_queue_done(&queue);
    }
    T_OK(fl_queue_try_pop(&queue) == NULL);

    t_case("every sample goes to exactly one of several threads, and idle means idle");
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, consume, &sums[i]);
    for (int i = 0; i < N;) {
        unsigned n = 0;
        for (; n < 1 + (unsigned)i % 7 && i < N; n++, i++) {
            samples[i].id = i;
            batch[n] = &samples[i];
        }
        fl_queue_push(&queue, batch, n);
    }
    for (;;) { // drained by the threads, not by us
        pthread_mutex_lock(&queue.lock);
        const bool empty = !queue.head;
        pthread_mutex_unlock(&queue.lock);
        if (empty)
            break;
    }
    fl_queue_wait_idle(&queue);
    T_EQ(queue.busy, 0);
    fl_queue_close(&queue);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        total += sums[i];
    }
    T_EQ(total, (int64_t)N * (N - 1) / 2);

    t_case("closed");
    fl_queue_push(&queue, batch, 1);
    T_OK(fl_queue_pop(&queue) == NULL);
    fl_queue_fini(&queue);
    return t_done();
}
