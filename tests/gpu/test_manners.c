/* SPDX-License-Identifier: Apache-2.0 */
/* What the stage must not do to its host program: touch a thread's current device, give a thread a context,
 * break a graph capture, or answer a mistake with anything but a sentence. */
#define _GNU_SOURCE
#include "gpu_test.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <feedline/feedline.h>

#include "base/clock.h"
#include "device.h"
#include "unit/make_set.h"

static uint32_t table[3][256];

static struct fl_device_cfg small_cfg(void)
{
    struct fl_device_cfg cfg = {
        .device = FL_CUDA(0), .n_slots = 2, .n_host_slots = 1, .max_rows = 8, .n_columns = 1
    };

    cfg.columns[0] = (struct fl_device_column){ .op = FL_DEVICE_IMAGE,
                                                .height = 64,
                                                .width = 64,
                                                .channels = 3,
                                                .dtype = FL_F32,
                                                .layout = FL_NHWC,
                                                .table = table };
    return cfg;
}

static void *current_context(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW), *context = NULL;
    int (*get)(void **) = NULL;
    void *p = library ? dlsym(library, "cuCtxGetCurrent") : NULL;

    memcpy(&get, &p, sizeof(p));
    if (get)
        get(&context);
    return context;
}

/* In a thread that CUDA has never seen. */
static void *untouched(void *arg)
{
    struct fl_device *dev = NULL;
    const struct fl_device_cfg cfg = small_cfg();

    (void)arg;
    T_OK(current_context() == NULL);
    T_EQ(fl_device_open(&dev, &cfg), 0);
    T_OK(current_context() == NULL);
    T_EQ(fl_device_acquire(dev, 0, NULL), 0);
    T_EQ(fl_device_release(dev, 0, NULL), 0);
    T_OK(current_context() == NULL);
    fl_device_close(&dev);
    T_OK(current_context() == NULL);
    return NULL;
}

static volatile int capturing, copies_done;

/* Opens, pins, copies and waits while the main thread captures in the strictest mode. */
static void *busy(void *arg)
{
    struct fl_device *dev = NULL;
    const struct fl_device_cfg cfg = small_cfg();
    const size_t bytes = 8 * 64 * 64 * 3 + 4096;
    uint8_t *host = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    (void)arg;
    T_EQ(fl_device_open(&dev, &cfg), 0);
    T_EQ(fl_device_pin(dev, host, (bytes + 4095) / 4096 * 4096), 0);
    for (unsigned i = 0; i < 50; i++) {
        const struct fl_device_job job = {
            .device_slot = i % 2, .rows = 8, .src = { host }, .valid = host + 8 * 64 * 64 * 3
        };
        T_EQ(fl_device_copy(dev, &job), 0);
        T_EQ(fl_device_wait_copied(dev, 0, INT64_MAX), 0);
        T_EQ(fl_device_wait_ready(dev, i % 2, INT64_MAX), 0);
    }
    copies_done = capturing;
    fl_device_close(&dev);
    munmap(host, bytes);
    return NULL;
}

static void test_capture(void)
{
    struct fl_device *dev = NULL;
    const struct fl_device_cfg cfg = small_cfg();
    cudaStream_t stream, other;
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    pthread_t thread;
    uint64_t *sum;

    t_case("graph capture");
    G_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    G_CUDA(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    G_CUDA(cudaMalloc((void **)&sum, 8));
    g_checksum(sum, 0, sum, stream); // loads the kernels before the capture
    g_spin(1, stream);
    G_CUDA(cudaStreamSynchronize(stream));
    T_EQ(fl_device_open(&dev, &cfg), 0);
    G_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    capturing = 1;
    pthread_create(&thread, NULL, busy, NULL);
    g_spin(1, stream);
    T_EQ(fl_device_acquire(dev, 0, stream), FL_ERR(EINVAL));
    T_HAS(fl_last_error()->message, "CUDA graph");
    T_EQ(fl_device_release(dev, 0, stream), FL_ERR(EINVAL));
    T_EQ(fl_device_acquire(dev, 0, other), 0); // another stream may go on meanwhile
    T_EQ(fl_device_release(dev, 0, other), 0);
    pthread_join(thread, NULL);
    T_EQ(copies_done, 1);
    G_CUDA(cudaStreamEndCapture(stream, &graph)); // was not invalidated
    capturing = 0;
    G_CUDA(cudaGraphInstantiate(&exec, graph, 0));
    G_CUDA(cudaGraphLaunch(exec, stream));
    G_CUDA(cudaStreamSynchronize(stream));
    fl_device_close(&dev);
    cudaGraphExecDestroy(exec);
    cudaGraphDestroy(graph);
    cudaFree(sum);
    cudaStreamDestroy(stream);
    cudaStreamDestroy(other);
}

static void test_errors(void)
{
    struct fl_device *dev = NULL;
    struct fl_device_cfg cfg = small_cfg();

    t_case("no such device");
    cfg.device = FL_CUDA(99);
    T_EQ(fl_device_open(&dev, &cfg), FL_ERR(ENODEV));
    T_HAS(fl_last_error()->message, "there is no CUDA device 99");
    t_case("out of memory");
    cfg = small_cfg();
    cfg.max_rows = 64 << 20;
    cfg.budget = (uint64_t)5 << 30;
    T_EQ(fl_device_open(&dev, &cfg), FL_ERR(ENOMEM));
    T_HAS(fl_last_error()->message, "memory_limit is 5.00 GiB");
    T_HAS(fl_last_error()->message, "device_slots");
    t_case("after an error");
    cfg = small_cfg();
    T_EQ(fl_device_open(&dev, &cfg), 0);
    G_CUDA(cudaGetLastError()); // ours never show up as the caller's
    t_case("refused pin");
    struct fl_device_stats stats;
    T_EQ(fl_device_pin(dev, (void *)(uintptr_t)0x10000, 4096), 0); // no memory there
    fl_device_stats(dev, &stats);
    T_EQ(stats.pageable_bytes, 4096);
    T_EQ(stats.pinned_bytes, 0);
    t_case("pinned by somebody else");
    void *theirs = NULL;
    G_CUDA(cudaHostAlloc(&theirs, 1 << 16, 0));
    T_EQ(fl_device_pin(dev, theirs, 1 << 16), 0);
    fl_device_stats(dev, &stats);
    T_EQ(stats.pinned_bytes, 1 << 16);
    fl_device_close(&dev);
    G_CUDA(cudaFreeHost(theirs));
}

/* A child that was forked after CUDA started gets a sentence, not a crash. */
static void test_fork(void)
{
    int status = 0;

    t_case("forked child");
    const pid_t pid = fork();
    if (pid == 0) {
        struct fl_device *dev = NULL;
        const struct fl_device_cfg cfg = small_cfg();
        const int e = fl_device_open(&dev, &cfg);
        _exit(e == FL_ERR(ENODEV) && strstr(fl_last_error()->message, "forked") ? 0 : 1);
    }
    T_OK(waitpid(pid, &status, 0) == pid);
    T_OK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* A loader for host memory makes no CUDA call: the driver is not even loaded. */
static int cpu_child(void)
{
    char dir[256], line[512];
    FlConfig cfg = FL_CONFIG_DEFAULT;
    FlDataset *ds = NULL;
    FlLoader *l = NULL;
    FlBatch batch = { 0 };
    int found = 0;

    ms_tar(ms_temp(dir, sizeof(dir), "cpu"), 20, -1);
    cfg.batch_size = 4;
    fl_config_image(&cfg, "jpg", &(FlImage){ .width = 16, .height = 16, .dtype = FL_BF16 });
    int err = fl_dataset_open(&ds, dir, NULL);
    if (!err)
        err = fl_loader_open(&l, ds, &cfg);
    if (!err)
        err = fl_loader_next(l, &batch, NULL);
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof(line), maps))
        found += strstr(line, "libcuda.so") != NULL;
    if (maps)
        fclose(maps);
    fl_batch_release(&batch, NULL);
    fl_loader_close(&l);
    fl_dataset_close(&ds);
    ms_remove(dir);
    return err || !maps || found;
}

/* The process shows no device: as after CUDA_VISIBLE_DEVICES= in a job's environment. */
static int child(void)
{
    struct fl_device *dev = NULL;
    const struct fl_device_cfg cfg = small_cfg();

    if (fl_device_open(&dev, &cfg) != FL_ERR(ENODEV))
        return 1;
    return strstr(fl_last_error()->message, "sees no device (CUDA_VISIBLE_DEVICES is \"\")") ? 0
                                                                                             : 1;
}

static void test_invisible(const char *self)
{
    char command[4096];

    t_case("no device visible");
    snprintf(command, sizeof(command), "CUDA_VISIBLE_DEVICES= '%s' child", self);
    T_EQ(system(command), 0);
    t_case("host memory alone");
    snprintf(command, sizeof(command), "'%s' cpu", self);
    T_EQ(system(command), 0);
}

int main(int argc, char **argv)
{
    pthread_t thread;

    if (argc > 1)
        return strcmp(argv[1], "cpu") ? child() : cpu_child();
    g_require();
    t_case("a thread without a context");
    pthread_create(&thread, NULL, untouched, NULL);
    pthread_join(thread, NULL);
    test_capture();
    test_errors();
    test_fork();
    test_invisible(argv[0]);
    return t_done();
}
