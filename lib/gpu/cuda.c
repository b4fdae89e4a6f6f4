/* SPDX-License-Identifier: Apache-2.0 */
/* The device stage's calls, made by the CUDA runtime, which is linked statically: its last error and its
 * state are ours alone, while contexts, streams and events are the driver's and so shared with whatever
 * runtime the caller uses. */
#include "gpu/gpu.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

#include <cuda_runtime_api.h>

#include "base/err.h"
#include "gpu/driver.h"

_Static_assert((int)FL_GPU_NO_MEMORY == (int)cudaErrorMemoryAllocation, "gpu.h");
_Static_assert((int)FL_GPU_BAD_HANDLE == (int)cudaErrorInvalidResourceHandle, "gpu.h");
_Static_assert((int)FL_GPU_NOT_READY == (int)cudaErrorNotReady, "gpu.h");
_Static_assert((int)FL_GPU_CAPTURE_UNSUPPORTED == (int)cudaErrorStreamCaptureUnsupported, "gpu.h");
_Static_assert((int)FL_GPU_CAPTURE_IMPLICIT == (int)cudaErrorStreamCaptureImplicit, "gpu.h");

#define LEAST_CAPABILITY 75 // what the kernels are compiled for

struct context {
    struct fl_cuda_driver driver;
    void *primary;
    int ordinal;
};

/* A failed call leaves its number behind for the next cudaGetLastError() of this runtime: take it away, so
 * that a kernel launch does not report what an earlier call has reported already. */
static int code(cudaError_t e)
{
    if (e != cudaSuccess)
        (void)cudaGetLastError();
    return (int)e;
}

static int check_version(const struct fl_cuda_driver *d, FlError *err)
{
    int driver = 0;

    if (d->version(&driver) == 0 && driver / 1000 >= CUDART_VERSION / 1000)
        return 0;
    return fl_err_set(err, FL_ERR(ENODEV), FL_STAGE_DEVICE,
                      "the CUDA driver is older than this build: it supports CUDA %d.%d, and CUDA "
                      "%d.%d or newer is needed; update the driver, or build with an older toolkit",
                      driver / 1000, driver % 1000 / 10, CUDART_VERSION / 1000, 0);
}

static int check_device(int ordinal, int32_t *processors, FlError *err)
{
    int n = 0, major = 0, minor = 0, sm = 0;
    const cudaError_t e = cudaGetDeviceCount(&n);

    if (e != cudaSuccess)
        return fl_err_set(err, FL_ERR(ENODEV), FL_STAGE_DEVICE, "CUDA does not start: %s",
                          cudaGetErrorString((cudaError_t)code(e)));
    if (ordinal < 0 || ordinal >= n)
        return fl_err_set(err, FL_ERR(ENODEV), FL_STAGE_DEVICE,
                          "there is no CUDA device %d: the driver shows %d", ordinal, n);
    if (code(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, ordinal)) ||
        code(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, ordinal)) ||
        code(cudaDeviceGetAttribute(&sm, cudaDevAttrMultiProcessorCount, ordinal)))
        return fl_err_set(err, FL_ERR(ENODEV), FL_STAGE_DEVICE,
                          "CUDA device %d does not answer questions about itself", ordinal);
    if (10 * major + minor < LEAST_CAPABILITY)
        return fl_err_set(
            err, FL_ERR(ENODEV), FL_STAGE_DEVICE,
            "CUDA device %d has compute capability %d.%d, and %d.%d or newer is needed", ordinal,
            major, minor, LEAST_CAPABILITY / 10, LEAST_CAPABILITY % 10);
    *processors = sm;
    return 0;
}

static int retain(struct context *c, FlError *err)
{
    const char *text = NULL;
    const int e = c->driver.retain(&c->primary, c->ordinal);

    if (!e)
        return 0;
    c->driver.error_text(e, &text);
    return fl_err_set(err, e == FL_GPU_NO_MEMORY ? FL_ERR(ENOMEM) : FL_ERR(ENODEV), FL_STAGE_DEVICE,
                      "CUDA device %d gives no context: %s", c->ordinal,
                      text ? text : "unknown error");
}

static int cuda_open(int ordinal, void **context, int32_t *processors, FlError *err)
{
    struct context *c = calloc(1, sizeof(*c));
    int e;

    if (!c)
        return fl_err_set(err, FL_ERR(ENOMEM), FL_STAGE_DEVICE, "out of host memory");
    c->ordinal = ordinal;
    e = fl_cuda_driver_load(&c->driver, err);
    if (!e)
        e = check_version(&c->driver, err);
    if (!e)
        e = check_device(ordinal, processors, err);
    if (!e)
        e = retain(c, err);
    if (e) {
        fl_cuda_driver_unload(&c->driver);
        free(c);
        return e;
    }
    *context = c;
    return 0;
}

static void cuda_close(void *context)
{
    struct context *c = context;

    c->driver.release(c->ordinal);
    fl_cuda_driver_unload(&c->driver);
    free(c);
}

/* push and pop rather than cudaSetDevice: that would give a thread which never touched CUDA a context on
 * device 0 when its "current device" is put back. */
static int cuda_enter(void *context, int *capture_mode)
{
    const struct context *c = context;
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    int e = c->driver.push(c->primary);

    if (e)
        return e;
    e = code(cudaThreadExchangeStreamCaptureMode(&mode));
    if (e) {
        void *popped;
        c->driver.pop(&popped);
    }
    *capture_mode = (int)mode;
    return e;
}

static void cuda_leave(void *context, int capture_mode)
{
    const struct context *c = context;
    enum cudaStreamCaptureMode mode = (enum cudaStreamCaptureMode)capture_mode;
    void *popped;

    code(cudaThreadExchangeStreamCaptureMode(&mode));
    c->driver.pop(&popped);
}

static int cuda_numa_node(int ordinal)
{
    struct fl_cuda_driver d;
    FlError err;
    char id[32] = "", path[96];
    int node = -1;

    if (fl_cuda_driver_load(&d, &err))
        return -1;
    if (d.pci_bus_id(id, sizeof(id), ordinal) == 0) {
        for (char *p = id; *p; p++)
            *p = (char)tolower((unsigned char)*p);
        snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/numa_node", id);
        FILE *f = fopen(path, "re");
        if (f) {
            if (fscanf(f, "%d", &node) != 1)
                node = -1;
            fclose(f);
        }
    }
    fl_cuda_driver_unload(&d);
    return node;
}

static int cuda_mem_alloc(void **ptr, size_t bytes)
{
    return code(cudaMalloc(ptr, bytes));
}

static void cuda_mem_free(void *ptr)
{
    code(cudaFree(ptr));
}

static void cuda_mem_info(size_t *free_bytes, size_t *total)
{
    if (code(cudaMemGetInfo(free_bytes, total)))
        *free_bytes = *total = 0;
}

static int cuda_host_register(void *base, size_t bytes)
{
    return code(cudaHostRegister(base, bytes, cudaHostRegisterPortable));
}

static void cuda_host_unregister(void *base)
{
    code(cudaHostUnregister(base));
}

static int cuda_host_pinned(const void *ptr)
{
    struct cudaPointerAttributes a;

    return !code(cudaPointerGetAttributes(&a, ptr)) && a.type == cudaMemoryTypeHost;
}

static int cuda_stream_create(void **stream, int high)
{
    int least = 0, greatest = 0;

    if (code(cudaDeviceGetStreamPriorityRange(&least, &greatest)))
        least = greatest = 0;
    return code(cudaStreamCreateWithPriority((cudaStream_t *)stream, cudaStreamNonBlocking,
                                             high ? greatest : least));
}

static void cuda_stream_destroy(void *stream)
{
    code(cudaStreamDestroy(stream));
}

static int cuda_stream_sync(void *stream)
{
    return code(cudaStreamSynchronize(stream));
}

static int cuda_stream_wait(void *stream, void *event)
{
    return code(cudaStreamWaitEvent(stream, event, 0));
}

static int cuda_stream_capturing(void *stream, int *capturing)
{
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    const int e = code(cudaStreamIsCapturing(stream, &status));

    *capturing = status != cudaStreamCaptureStatusNone;
    return e;
}

static int cuda_event_create(void **event, int timed)
{
    return code(cudaEventCreateWithFlags((cudaEvent_t *)event,
                                         cudaEventBlockingSync |
                                             (timed ? 0U : (unsigned)cudaEventDisableTiming)));
}

static void cuda_event_destroy(void *event)
{
    code(cudaEventDestroy(event));
}

static int cuda_event_record(void *event, void *stream)
{
    return code(cudaEventRecord(event, stream));
}

static int cuda_event_query(void *event)
{
    return code(cudaEventQuery(event));
}

static int cuda_event_sync(void *event)
{
    return code(cudaEventSynchronize(event));
}

static int cuda_event_elapsed(float *ms, void *from, void *to)
{
    return code(cudaEventElapsedTime(ms, from, to));
}

static int cuda_copy(void *dst, const void *src, size_t bytes, void *stream)
{
    return code(cudaMemcpyAsync(dst, src, bytes, cudaMemcpyHostToDevice, stream));
}

static int cuda_zero(void *dst, size_t bytes, void *stream)
{
    return code(cudaMemsetAsync(dst, 0, bytes, stream));
}

static const char *cuda_error_text(int e)
{
    return cudaGetErrorString((cudaError_t)e);
}

static const struct fl_gpu_ops ops = {
    .open = cuda_open,
    .close = cuda_close,
    .enter = cuda_enter,
    .leave = cuda_leave,
    .numa_node = cuda_numa_node,
    .mem_alloc = cuda_mem_alloc,
    .mem_free = cuda_mem_free,
    .mem_info = cuda_mem_info,
    .host_register = cuda_host_register,
    .host_unregister = cuda_host_unregister,
    .host_pinned = cuda_host_pinned,
    .stream_create = cuda_stream_create,
    .stream_destroy = cuda_stream_destroy,
    .stream_sync = cuda_stream_sync,
    .stream_wait = cuda_stream_wait,
    .stream_capturing = cuda_stream_capturing,
    .event_create = cuda_event_create,
    .event_destroy = cuda_event_destroy,
    .event_record = cuda_event_record,
    .event_query = cuda_event_query,
    .event_sync = cuda_event_sync,
    .event_elapsed = cuda_event_elapsed,
    .copy = cuda_copy,
    .zero = cuda_zero,
    .normalize = fl_gpu_normalize,
    .error_text = cuda_error_text,
};

const struct fl_gpu_ops *fl_gpu_ops(void)
{
    return &ops;
}
