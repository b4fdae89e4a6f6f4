/* SPDX-License-Identifier: Apache-2.0 */
/* A GPU without a GPU: streams are queues of operations that a random scheduler runs in any order that the
 * events allow, copies happen only when their turn comes. What is not ordered by an event will, in some
 * schedule, happen in the wrong order. Every call checks that the device was made current; everything made
 * is counted; any call can be told to fail. One thread. */
#ifndef FL_TESTS_FAKE_GPU_H
#define FL_TESTS_FAKE_GPU_H

#include "base/rng.h"
#include "gpu/gpu.h"
#include "t.h"

#define FAKE_STREAMS 8
#define FAKE_EVENTS 64
#define FAKE_OPS 4096

struct fake_event {
    bool used;
    uint64_t recorded, done;
};

enum fake_kind { FAKE_COPY, FAKE_ZERO, FAKE_RECORD, FAKE_WAIT, FAKE_NORMALIZE, FAKE_CALL };

struct fake_op {
    enum fake_kind kind;
    struct fake_event *event;
    uint64_t version;
    void *dst;
    const void *src;
    size_t bytes;
    struct fl_gpu_normalize normalize;
    void (*call)(void *arg);
    void *arg;
};

struct fake_stream {
    bool used, capturing, high;
    struct fake_op ops[FAKE_OPS]; // a ring
    uint64_t head, tail;
};

static struct {
    struct fake_stream streams[FAKE_STREAMS]; // 0 and 1: the consumer's
    struct fake_event events[FAKE_EVENTS];
    struct fl_rng rng;
    int depth;                             // of enter
    int contexts, allocations, registered; // alive
    size_t limit;                          // of one allocation; 0: none
    int register_code, host_pinned;        // what host_register and host_pinned answer
    int calls, fail_at, fail_code;         // the fail_at-th call fails (1-based), 0: none
    int wrong_context;                     // calls made without enter
    uint64_t copies;
    int made; // memory, registrations, streams, events: of what a steady state makes none
} fake;

static inline int fake_fails(void)
{
    fake.wrong_context += fake.depth < 1;
    return ++fake.calls == fake.fail_at ? fake.fail_code : 0;
}

static inline bool fake_runnable(const struct fake_stream *s)
{
    const struct fake_op *op = &s->ops[s->head % FAKE_OPS];

    return s->head < s->tail && (op->kind != FAKE_WAIT || op->event->done >= op->version);
}

static inline void fake_normalize_now(const struct fl_gpu_normalize *n)
{
    const size_t size = fl_dtype_bytes(n->dtype);
    const uint8_t *table = n->table;

    for (int64_t row = 0; row < n->rows; row++)
        for (int64_t p = 0; p < n->pixels; p++)
            for (int c = 0; c < n->channels; c++) {
                const uint8_t x = n->src[(row * n->pixels + p) * n->channels + c];
                const int64_t at = n->layout == FL_NHWC ? (row * n->pixels + p) * n->channels + c
                                                        : (row * n->channels + c) * n->pixels + p;

                memcpy((uint8_t *)n->dst + (size_t)at * size,
                       table ? table + ((size_t)c * 256 + x) * size : &x, size);
            }
}

static inline void fake_step(struct fake_stream *s)
{
    struct fake_op *op = &s->ops[s->head++ % FAKE_OPS];

    switch (op->kind) {
    case FAKE_COPY:
        memcpy(op->dst, op->src, op->bytes);
        break;
    case FAKE_ZERO:
        memset(op->dst, 0, op->bytes);
        break;
    case FAKE_RECORD:
        if (op->event->done < op->version)
            op->event->done = op->version;
        break;
    case FAKE_NORMALIZE:
        fake_normalize_now(&op->normalize);
        break;
    case FAKE_CALL:
        op->call(op->arg);
        break;
    case FAKE_WAIT:
        break;
    }
}

/* Run one operation of any stream that can go on. @return false: none can. */
static inline bool fake_run_one(void)
{
    const uint32_t first = fl_rng_u32(&fake.rng) % FAKE_STREAMS;

    for (uint32_t i = 0; i < FAKE_STREAMS; i++) {
        struct fake_stream *s = &fake.streams[(first + i) % FAKE_STREAMS];
        if (fake_runnable(s)) {
            fake_step(s);
            return true;
        }
    }
    return false;
}

static inline struct fake_op *fake_push(void *stream)
{
    // The null stream is stream 0.
    struct fake_stream *s = stream ? stream : &fake.streams[0];
    struct fake_op *op = &s->ops[s->tail % FAKE_OPS];

    if (s->tail - s->head == FAKE_OPS)
        abort();
    s->tail++;
    memset(op, 0, sizeof(*op));
    return op;
}

/* A kernel of the consumer: runs `call` when the stream gets there. */
static inline void fake_launch(void *stream, void (*call)(void *), void *arg)
{
    struct fake_op *op = fake_push(stream);

    op->kind = FAKE_CALL;
    op->call = call;
    op->arg = arg;
}

static int fake_open(int ordinal, void **context, int32_t *processors, FlError *err)
{
    (void)ordinal;
    if (++fake.calls == fake.fail_at) {
        *err = (FlError){ .code = FL_ERR(ENODEV), .message = "no driver" };
        return FL_ERR(ENODEV);
    }
    fake.contexts++;
    *context = &fake;
    *processors = 4;
    return 0;
}

static void fake_close(void *context)
{
    (void)context;
    fake.contexts--;
}

static int fake_enter(void *context, int *mode)
{
    (void)context;
    fake.depth++; // so that this call itself counts as made inside
    const int e = fake_fails();
    if (e)
        fake.depth--;
    *mode = 7;
    return e;
}

static void fake_leave(void *context, int mode)
{
    (void)context;
    T_EQ(mode, 7);
    fake.depth--;
}

static int fake_numa_node(int ordinal)
{
    (void)ordinal;
    return 1;
}

static int fake_mem_alloc(void **ptr, size_t bytes)
{
    const int e = fake_fails();

    if (e || (fake.limit && bytes > fake.limit))
        return e ? e : FL_GPU_NO_MEMORY;
    fake.allocations++;
    fake.made++;
    *ptr = aligned_alloc(512, (bytes + 511) / 512 * 512);
    return 0;
}

static void fake_mem_free(void *ptr)
{
    fake_fails();
    fake.allocations--;
    free(ptr);
}

static void fake_mem_info(size_t *free_bytes, size_t *total)
{
    *free_bytes = (size_t)1 << 30;
    *total = (size_t)4 << 30;
}

static int fake_host_register(void *base, size_t bytes)
{
    const int e = fake_fails();

    (void)base;
    (void)bytes;
    if (e || fake.register_code)
        return e ? e : fake.register_code;
    fake.registered++;
    fake.made++;
    return 0;
}

static void fake_host_unregister(void *base)
{
    (void)base;
    fake_fails();
    fake.registered--;
}

static int fake_host_pinned(const void *ptr)
{
    (void)ptr;
    return fake.host_pinned;
}

static int fake_stream_create(void **stream, int high)
{
    const int e = fake_fails();

    if (e)
        return e;
    for (int i = 2; i < FAKE_STREAMS; i++)
        if (!fake.streams[i].used) {
            fake.streams[i].used = true;
            fake.streams[i].high = high;
            fake.made++;
            *stream = &fake.streams[i];
            return 0;
        }
    abort();
}

static void fake_stream_destroy(void *stream)
{
    fake_fails();
    ((struct fake_stream *)stream)->used = false;
}

static int fake_stream_sync(void *stream)
{
    struct fake_stream *s = stream;
    const int e = fake_fails();

    while (!e && s->head < s->tail)
        if (!fake_run_one())
            abort(); // a deadlock
    return e;
}

static int fake_stream_wait(void *stream, void *event)
{
    const int e = fake_fails();

    if (e)
        return e;
    struct fake_op *op = fake_push(stream);
    op->kind = FAKE_WAIT;
    op->event = event;
    op->version = op->event->recorded;
    return 0;
}

static int fake_stream_capturing(void *stream, int *capturing)
{
    *capturing = (stream ? (struct fake_stream *)stream : &fake.streams[0])->capturing;
    return fake_fails();
}

static int fake_event_create(void **event, int timed)
{
    const int e = fake_fails();

    (void)timed;
    if (e)
        return e;
    for (int i = 0; i < FAKE_EVENTS; i++)
        if (!fake.events[i].used) {
            fake.events[i] = (struct fake_event){ .used = true };
            fake.made++;
            *event = &fake.events[i];
            return 0;
        }
    abort();
}

static void fake_event_destroy(void *event)
{
    fake_fails();
    ((struct fake_event *)event)->used = false;
}

static int fake_event_record(void *event, void *stream)
{
    const int e = fake_fails();

    if (e)
        return e;
    struct fake_op *op = fake_push(stream);
    op->kind = FAKE_RECORD;
    op->event = event;
    op->version = ++op->event->recorded;
    return 0;
}

static int fake_event_query(void *event)
{
    const struct fake_event *ev = event;
    const int e = fake_fails();

    for (uint32_t n = fl_rng_u32(&fake.rng) % 8; n > 0; n--)
        fake_run_one(); // time goes by
    return e ? e : ev->done < ev->recorded ? FL_GPU_NOT_READY : 0;
}

static int fake_event_sync(void *event)
{
    const struct fake_event *ev = event;
    const int e = fake_fails();

    while (!e && ev->done < ev->recorded)
        if (!fake_run_one())
            abort();
    return e;
}

static int fake_event_elapsed(float *ms, void *from, void *to)
{
    (void)from;
    (void)to;
    *ms = 2;
    return fake_fails();
}

static int fake_copy(void *dst, const void *src, size_t bytes, void *stream)
{
    const int e = fake_fails();

    if (e)
        return e;
    struct fake_op *op = fake_push(stream);
    op->kind = FAKE_COPY;
    op->dst = dst;
    op->src = src;
    op->bytes = bytes;
    fake.copies++;
    return 0;
}

static int fake_zero(void *dst, size_t bytes, void *stream)
{
    const int e = fake_fails();

    if (e)
        return e;
    struct fake_op *op = fake_push(stream);
    op->kind = FAKE_ZERO;
    op->dst = dst;
    op->bytes = bytes;
    return 0;
}

static int fake_normalize(const struct fl_gpu_normalize *n, void *stream)
{
    const int e = fake_fails();

    if (e)
        return e;
    struct fake_op *op = fake_push(stream);
    op->kind = FAKE_NORMALIZE;
    op->normalize = *n;
    return 0;
}

static const char *fake_error_text(int code)
{
    (void)code;
    return "a made-up error";
}

static const struct fl_gpu_ops fake_ops = {
    .open = fake_open,
    .close = fake_close,
    .enter = fake_enter,
    .leave = fake_leave,
    .numa_node = fake_numa_node,
    .mem_alloc = fake_mem_alloc,
    .mem_free = fake_mem_free,
    .mem_info = fake_mem_info,
    .host_register = fake_host_register,
    .host_unregister = fake_host_unregister,
    .host_pinned = fake_host_pinned,
    .stream_create = fake_stream_create,
    .stream_destroy = fake_stream_destroy,
    .stream_sync = fake_stream_sync,
    .stream_wait = fake_stream_wait,
    .stream_capturing = fake_stream_capturing,
    .event_create = fake_event_create,
    .event_destroy = fake_event_destroy,
    .event_record = fake_event_record,
    .event_query = fake_event_query,
    .event_sync = fake_event_sync,
    .event_elapsed = fake_event_elapsed,
    .copy = fake_copy,
    .zero = fake_zero,
    .normalize = fake_normalize,
    .error_text = fake_error_text,
};

static inline void fake_reset(uint64_t seed)
{
    memset(&fake, 0, sizeof(fake));
    fl_rng_init(&fake.rng, seed, 0, 0, FL_RNG_USER, 0);
}

/* Everything that was made is gone, and every call was made with the device current. */
static inline void fake_check_clean(void)
{
    int events = 0, streams = 0;

    for (int i = 0; i < FAKE_EVENTS; i++)
        events += fake.events[i].used;
    for (int i = 0; i < FAKE_STREAMS; i++)
        streams += fake.streams[i].used;
    T_EQ(events, 0);
    T_EQ(streams, 0);
    T_EQ(fake.allocations, 0);
    T_EQ(fake.registered, 0);
    T_EQ(fake.contexts, 0);
    T_EQ(fake.depth, 0);
    T_EQ(fake.wrong_context, 0);
}

#endif
