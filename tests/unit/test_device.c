/* SPDX-License-Identifier: Apache-2.0 */
/* The device stage over a GPU that runs everything as late, as early and as mixed up as the events allow. */
#define _POSIX_C_SOURCE 200809L
#include "device.h"

#include "base/clock.h"
#include "fake_gpu.h"

#define ROWS 4
#define H 3
#define W 5
#define PICTURE (H * W * 3)

static uint16_t table[3][256];

static struct fl_device_cfg small_cfg(void)
{
    struct fl_device_cfg cfg = { 0 };

    for (int c = 0; c < 3; c++)
        for (int x = 0; x < 256; x++)
            table[c][x] = (uint16_t)(c * 1000 + 3 * x + 1);
    cfg.device = FL_CUDA(0);
    cfg.n_slots = 2;
    cfg.n_host_slots = 3;
    cfg.max_rows = ROWS;
    cfg.n_columns = 2;
    cfg.columns[0] = (struct fl_device_column){ .op = FL_DEVICE_IMAGE,
                                                .height = H,
                                                .width = W,
                                                .channels = 3,
                                                .dtype = FL_F16,
                                                .layout = FL_NCHW,
                                                .table = table };
    cfg.columns[1] =
        (struct fl_device_column){ .op = FL_DEVICE_COPY, .capacity = ROWS * sizeof(int64_t) };
    cfg.ops = &fake_ops;
    return cfg;
}

/* A host slot of batch n, and what the consumer must see of it. */
struct host {
    uint8_t pixels[ROWS * PICTURE];
    int64_t labels[ROWS];
    uint8_t valid[ROWS];
};

static uint8_t pixel(int64_t batch, int i)
{
    return (uint8_t)(batch * 37 + i * 11);
}

static void fill(struct host *h, int64_t batch)
{
    for (int i = 0; i < ROWS * PICTURE; i++)
        h->pixels[i] = pixel(batch, i);
    for (int r = 0; r < ROWS; r++) {
        h->labels[r] = batch * 100 + r;
        h->valid[r] = (batch + r) % 3 != 0;
    }
}

static struct fl_device_job job_of(const struct host *h, unsigned host_slot, unsigned device_slot)
{
    return (struct fl_device_job){ .host_slot = host_slot,
                                   .device_slot = device_slot,
                                   .rows = ROWS,
                                   .src = { h->pixels, h->labels },
                                   .bytes = { 0, sizeof(h->labels) },
                                   .valid = h->valid };
}

struct seen {
    struct fl_device_view view;
    int64_t batch;
    int wrong, runs;
};

/* The consumer's kernel: reads the slot when its stream gets there. */
static void look(void *arg)
{
    struct seen *s = arg;
    const uint16_t *out = s->view.column[0];
    const int64_t *labels = s->view.column[1];

    s->runs++;
    for (int r = 0; r < ROWS; r++) {
        s->wrong += labels[r] != s->batch * 100 + r;
        s->wrong += s->view.valid[r] != ((s->batch + r) % 3 != 0);
        for (int p = 0; p < H * W; p++)
            for (int c = 0; c < 3; c++)
                s->wrong +=
                    out[(r * 3 + c) * H * W + p] !=
                    (s->view.valid[r] ? table[c][pixel(s->batch, (r * H * W + p) * 3 + c)] : 0);
    }
}

enum { BATCHES = 60 };

/* Host slots are refilled as soon as the stage says so, device slots as soon as the consumer let go. */
static void test_stream(uint64_t seed, bool omit_release_wait)
{
    static struct host hosts[3];
    static struct seen seen[BATCHES];
    struct fl_device *dev = NULL;
    struct fl_device_cfg cfg = small_cfg();
    struct fl_device_stats stats;
    struct fl_gpu_ops ops = fake_ops;
    int wrong = 0;

    fake_reset(seed);
    cfg.ops = &ops;
    T_EQ(fl_device_open(&dev, &cfg), 0);
    const int made = fake.made;
    for (int b = 0; b < BATCHES; b++) {
        const unsigned h = (unsigned)b % 3, d = (unsigned)b % 2;
        // Consumers on the null stream and on one of their own.
        void *stream = b % 5 == 0 ? NULL : (void *)&fake.streams[1];

        T_EQ(fl_device_wait_copied(dev, h, INT64_MAX), 0);
        T_EQ(fl_device_copied(dev, h), 1);
        fill(&hosts[h], b);
        struct fl_device_job job = job_of(&hosts[h], h, d);
        if (omit_release_wait) // a stage that forgets one edge must be caught by this very test
            for (int i = 0; i < FAKE_EVENTS; i++)
                if (fake.events[i].used && fake.events[i].recorded > fake.events[i].done)
                    fake.events[i].done = fake.events[i].recorded;
        T_EQ(fl_device_copy(dev, &job), 0);
        T_EQ(fl_device_acquire(dev, d, stream), 0);
        seen[b] = (struct seen){ .batch = b };
        fl_device_view(dev, d, &seen[b].view);
        fake_launch(stream, look, &seen[b]);
        T_EQ(fl_device_release(dev, d, stream), 0);
        for (uint32_t n = fl_rng_u32(&fake.rng) % 8; n > 0; n--)
            fake_run_one();
    }
    fl_device_stop(dev);
    while (fake_run_one())
        ;
    fl_device_stats(dev, &stats);
    T_EQ(stats.batches, BATCHES);
    T_EQ(stats.h2d_bytes, BATCHES * (ROWS * PICTURE + ROWS * 8 + ROWS));
    T_OK(stats.h2d_seconds > 0 && stats.kernel_seconds > 0);
    T_EQ(stats.numa_node, 1);
    T_EQ(fake.made, made); // all of it at open
    fl_device_close(&dev);
    T_OK(dev == NULL);
    for (int b = 0; b < BATCHES; b++) {
        T_EQ(seen[b].runs, 1);
        wrong += seen[b].wrong != 0;
    }
    if (!omit_release_wait)
        T_EQ(wrong, 0);
    else
        T_OK(wrong > 0);
    fake_check_clean();
}

/* A held slot is waited for on the device only, and a wait on the host ends at its deadline. */
/* Kernels stand behind a training step's unless asked for; copies are in nobody's way. */
static void test_priority(void)
{
    t_case("priority");
    for (int high = 0; high < 2; high++) {
        struct fl_device *dev = NULL;
        struct fl_device_cfg cfg = small_cfg();

        fake_reset(1);
        cfg.high_priority = high;
        T_EQ(fl_device_open(&dev, &cfg), 0);
        T_EQ(((struct fake_stream *)fl_device_stream(dev))->high, high);
        T_EQ(((struct fake_stream *)fl_device_copy_stream(dev))->high, 1);
        fl_device_close(&dev);
    }
}

static void test_held(void)
{
    static struct host hosts[2];
    struct fl_device *dev = NULL;
    const struct fl_device_cfg cfg = small_cfg();

    t_case("held slot");
    fake_reset(1);
    T_EQ(fl_device_open(&dev, &cfg), 0);
    struct fl_device_job job = job_of(&hosts[0], 0, 0);
    T_EQ(fl_device_copy(dev, &job), 0);
    T_EQ(fl_device_acquire(dev, 0, NULL), 0);
    // The consumer's stream is behind something that never ends for now.
    struct fake_event gate = { .used = true, .recorded = 1 };
    *fake_push(NULL) = (struct fake_op){ .kind = FAKE_WAIT, .event = &gate, .version = 1 };
    T_EQ(fl_device_release(dev, 0, NULL), 0);
    job = job_of(&hosts[1], 1, 0);
    T_EQ(fl_device_copy(dev, &job), 0);
    while (fake_run_one())
        ;
    T_EQ(fl_device_copied(dev, 0), 1);
    T_EQ(fl_device_copied(dev, 1), 0);
    T_EQ(fl_device_is_ready(dev, 0), 0);
    const int64_t start = fl_now_ns();
    T_EQ(fl_device_wait_copied(dev, 1, start + 20000000), FL_ERR(ETIMEDOUT));
    T_OK(fl_now_ns() - start < 5000000000);
    gate.done = 1;
    while (fake_run_one())
        ;
    T_EQ(fl_device_wait_copied(dev, 1, INT64_MAX), 0);
    T_EQ(fl_device_wait_ready(dev, 0, INT64_MAX), 0);
    T_EQ(fl_device_is_ready(dev, 0), 1);
    fl_device_close(&dev);
    fake_check_clean();
}

static bool second_is_absent(const void *cookie, unsigned column, int64_t row)
{
    return column == *(const unsigned *)cookie && row == 1;
}

/* A valid row without the field is zeros too, in its final form. */
static void test_absent(void)
{
    static struct host host;
    struct fl_device *dev = NULL;
    const struct fl_device_cfg cfg = small_cfg();
    const unsigned column = 0;
    struct fl_device_view view;

    t_case("absent field");
    fill(&host, 3);
    fake_reset(5);
    T_EQ(fl_device_open(&dev, &cfg), 0);
    struct fl_device_job job = job_of(&host, 0, 0);
    memset(host.valid, 1, ROWS);
    job.absent = second_is_absent;
    job.cookie = &column;
    T_EQ(fl_device_copy(dev, &job), 0);
    T_EQ(fl_device_wait_ready(dev, 0, INT64_MAX), 0);
    fl_device_view(dev, 0, &view);
    const uint16_t *out = view.column[0];
    for (int r = 0; r < ROWS; r++)
        for (int i = 0; i < PICTURE; i++)
            T_EQ(out[r * PICTURE + i] == 0, r == 1); // no entry of the table is 0
    fl_device_close(&dev);
    fake_check_clean();
}

/* Rows that the device decodes are not copied over. */
static void test_skip(void)
{
    static struct host host;
    static const struct {
        const char *name;
        uint8_t skip[ROWS];
        int copies;
    } cases[] = {
        { "none", { 0, 0, 0, 0 }, 1 },   { "all", { 1, 1, 1, 1 }, 0 },
        { "first", { 1, 0, 0, 0 }, 1 },  { "last", { 0, 0, 0, 1 }, 1 },
        { "middle", { 0, 1, 1, 0 }, 2 }, { "every other", { 1, 0, 1, 0 }, 2 },
    };

    fill(&host, 7);
    for (size_t i = 0; i < T_LEN(cases); i++) {
        struct fl_device *dev = NULL;
        const struct fl_device_cfg cfg = small_cfg();
        struct fl_device_view view;

        t_case(cases[i].name);
        fake_reset(i);
        T_EQ(fl_device_open(&dev, &cfg), 0);
        const uint64_t before = fake.copies;
        struct fl_device_job job = job_of(&host, 0, 1);
        job.skip[0] = cases[i].skip;
        fl_device_view(dev, 1, &view);
        memset(view.pixels[0], 0xA5, ROWS * PICTURE);
        T_EQ(fl_device_begin(dev, &job), 0);
        T_EQ(fake.copies - before, (uint64_t)cases[i].copies + 2); // labels and valid too
        while (fake_run_one())
            ;
        for (int r = 0; r < ROWS; r++)
            T_EQ(view.pixels[0][r * PICTURE], cases[i].skip[r] ? 0xA5 : host.pixels[r * PICTURE]);
        T_EQ(fl_device_finish(dev, &job), 0);
        fl_device_close(&dev);
        fake_check_clean();
    }
}

static void test_capture(void)
{
    struct fl_device *dev = NULL;
    const struct fl_device_cfg cfg = small_cfg();

    t_case("capturing stream");
    fake_reset(1);
    T_EQ(fl_device_open(&dev, &cfg), 0);
    fake.streams[1].capturing = true;
    T_EQ(fl_device_acquire(dev, 0, &fake.streams[1]), FL_ERR(EINVAL));
    T_HAS(fl_last_error()->message, "captured into a CUDA graph");
    T_EQ(fl_device_release(dev, 0, &fake.streams[1]), FL_ERR(EINVAL));
    T_EQ(fake.streams[1].tail, 0); // nothing was put on it
    fake.fail_at = fake.calls + 3; // enter, capturing, wait
    fake.fail_code = FL_GPU_BAD_HANDLE;
    T_EQ(fl_device_acquire(dev, 0, NULL), FL_ERR(EINVAL));
    T_HAS(fl_last_error()->message, "does not belong to CUDA device 0");
    fake.fail_at = fake.calls + 2;
    fake.fail_code = FL_GPU_CAPTURE_IMPLICIT;
    T_EQ(fl_device_acquire(dev, 0, NULL), FL_ERR(EINVAL));
    T_HAS(fl_last_error()->message, "legacy default stream");
    fl_device_close(&dev);
    fake_check_clean();
}

static void test_pin(void)
{
    static uint8_t pages[8192] __attribute__((aligned(4096)));
    static const struct {
        const char *name;
        int code, host_pinned;
        uint64_t pinned, pageable;
        int registered;
    } cases[] = {
        { "pinned", 0, 0, 8192, 0, 1 },
        { "by somebody else", 712, 1, 8192, 0, 0 },
        { "refused", 801, 0, 0, 8192, 0 },
    };

    for (size_t i = 0; i < T_LEN(cases); i++) {
        struct fl_device *dev = NULL;
        const struct fl_device_cfg cfg = small_cfg();
        struct fl_device_stats stats;

        t_case(cases[i].name);
        fake_reset(1);
        T_EQ(fl_device_open(&dev, &cfg), 0);
        fake.register_code = cases[i].code;
        fake.host_pinned = cases[i].host_pinned;
        T_EQ(fl_device_pin(dev, pages, sizeof(pages)), 0);
        T_EQ(fl_device_pin(dev, pages + 1, 100), FL_ERR(EINVAL));
        T_EQ(fake.registered, cases[i].registered);
        fl_device_stats(dev, &stats);
        T_EQ(stats.pinned_bytes, cases[i].pinned);
        T_EQ(stats.pageable_bytes, cases[i].pageable);
        fl_device_stop(dev);
        T_EQ(fake.registered, 0); // before the memory is freed
        T_EQ(fl_device_acquire(dev, 0, NULL), 0);
        T_EQ(fl_device_release(dev, 0, NULL), 0);
        fl_device_close(&dev);
        fake_check_clean();
    }
}

/* Whichever call fails, open says so and leaves nothing behind. */
static void test_open_fails(void)
{
    struct fl_device *dev = NULL;
    struct fl_device_cfg cfg = small_cfg();

    t_case("open fails");
    for (int at = 1;; at++) {
        fake_reset(1);
        fake.fail_at = at;
        fake.fail_code = 999;
        const int e = fl_device_open(&dev, &cfg);
        if (fake.calls < at) {
            T_EQ(e, 0);
            T_OK(at > 15);
            fl_device_close(&dev);
            fake_check_clean();
            break;
        }
        T_OK(e < 0);
        T_OK(fl_last_error()->message[0] != 0);
        fake_check_clean();
    }
    t_case("out of memory");
    fake_reset(1);
    fake.limit = 4096;
    cfg.budget = (uint64_t)3 << 30;
    T_EQ(fl_device_open(&dev, &cfg), FL_ERR(ENOMEM));
    T_HAS(fl_last_error()->message, "memory_limit is 3.00 GiB");
    T_HAS(fl_last_error()->message, "2 device slots of 4 rows");
    fake_check_clean();
}

static void test_sizes(void)
{
    struct fl_device_cfg cfg = small_cfg();
    uint64_t bytes = fl_device_bytes(&cfg);

    t_case("sizes");
    // pixels out 4*45*2, pixels in 4*45, labels, valid: a multiple of 512 each; two slots; two tables' places
    T_EQ(bytes, 2 * 4 * 512 + 3 * 512);
    cfg.columns[0].dtype = FL_U8;
    cfg.columns[0].layout = FL_NHWC;
    T_EQ(fl_device_bytes(&cfg), 2 * 3 * 512);
    cfg.max_rows = INT32_MAX;
    cfg.columns[0].height = cfg.columns[0].width = INT32_MAX;
    T_EQ(fl_device_bytes(&cfg), 0);
    cfg = small_cfg();
    cfg.columns[0].channels = 4;
    T_EQ(fl_device_bytes(&cfg), 0);
    cfg = small_cfg();
    cfg.columns[0].dtype = FL_I64;
    T_EQ(fl_device_bytes(&cfg), 0);
    cfg = small_cfg();
    cfg.columns[1].capacity = UINT64_MAX - 5;
    T_EQ(fl_device_bytes(&cfg), 0);
}

/* The build's own calls, on a machine without a driver or in a build without CUDA. */
static void test_no_driver(void)
{
    struct fl_device *dev = NULL;
    struct fl_device_cfg cfg = small_cfg();

    t_case("no driver");
    cfg.ops = NULL;
    if (fl_device_open(&dev, &cfg) == 0) { // tests/gpu has the rest
        fl_device_close(&dev);
        return;
    }
    T_EQ(fl_last_error()->code, FL_ERR(ENODEV));
    T_EQ(fl_last_error()->stage, FL_STAGE_DEVICE);
    T_OK(strstr(fl_last_error()->message, "no CUDA") || strstr(fl_last_error()->message, "driver"));
    T_EQ(fl_device_numa_node(FL_CUDA(0)), -1);
    T_EQ(fl_device_numa_node(FL_CPU), -1);
}

int main(void)
{
    test_no_driver();
    t_case("in order");
    for (uint64_t seed = 0; seed < 40; seed++)
        test_stream(seed, false);
    t_case("an edge left out");
    test_stream(3, true);
    test_held();
    test_priority();
    test_absent();
    test_skip();
    test_capture();
    test_pin();
    test_open_fails();
    test_sizes();
    return t_done();
}
