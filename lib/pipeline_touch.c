/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that the first batch does not need is populated behind it, by a thread that then ends: a fresh page costs up to
 * 10 us in a virtual machine, a batch of 256 float pictures has 38,000 of them, and there are three such slots. */
#define _GNU_SOURCE
#include "pipeline.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/thread.h"

#define STEP ((size_t)16 << 20) // between two looks at p->stop
#define NICE 15                 // decoding goes first, and is at +10

static bool stopping(const struct fl_pipeline *p)
{
    return atomic_load_explicit(&p->stop, memory_order_acquire);
}

/* Until a batch is there, or will not come. */
static void wait_for_batch(struct fl_pipeline *p)
{
    pthread_mutex_lock(&p->pool->lock);
    while (!stopping(p) && !p->fatal.code &&
           !atomic_load_explicit(&p->meters[FL_STAGE_BATCH].items, memory_order_relaxed))
        pthread_cond_wait(&p->pool->ready, &p->pool->lock);
    pthread_mutex_unlock(&p->pool->lock);
}

static void *touch(void *arg)
{
    struct fl_pipeline *p = arg;
    struct fl_slab *slabs[] = { &p->pool->rest, &p->pool->columns };
    size_t upto;

    setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), NICE);
    wait_for_batch(p);
    while (!stopping(p) && fl_read_touch(p->read, STEP))
        ;
    for (unsigned i = 0; i < 2; i++)
        for (upto = STEP; !stopping(p) && !fl_slab_touch(slabs[i], upto) && upto < slabs[i]->bytes;)
            upto += STEP;
    return NULL;
}

int fl_touch_start(struct fl_pipeline *p)
{
    const int err = p->pool->lazy ? fl_thread_start(&p->toucher, "fl-touch", touch, p) : 0;

    p->toucher_started = p->pool->lazy && !err;
    return err;
}
