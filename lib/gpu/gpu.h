/* SPDX-License-Identifier: Apache-2.0 */
/* The few calls of a GPU runtime that the device stage makes, as a table: the CUDA runtime fills it in
 * cuda.c, tests fill it with a recording fake. Calls return 0 or the runtime's own error number; numbers
 * that the stage has to tell apart are named here. Streams, events and contexts are opaque pointers. */
#ifndef FL_GPU_GPU_H
#define FL_GPU_GPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <feedline/error.h>
#include <feedline/types.h>

enum {
    FL_GPU_NO_MEMORY = 2,             // cudaErrorMemoryAllocation
    FL_GPU_BAD_HANDLE = 400,          // cudaErrorInvalidResourceHandle
    FL_GPU_NOT_READY = 600,           // cudaErrorNotReady
    FL_GPU_CAPTURE_UNSUPPORTED = 900, // cudaErrorStreamCaptureUnsupported
    FL_GPU_CAPTURE_IMPLICIT = 906,    // cudaErrorStreamCaptureImplicit
};

/* u8 {rows, pixels, channels} to {rows, pixels, channels} or {rows, channels, pixels} of dtype. */
struct fl_gpu_normalize {
    const uint8_t *src; // both aligned to 16 bytes
    void *dst;
    const void *table; // {channels, 256} of dtype, on the device; NULL for FL_U8
    int64_t rows, pixels;
    int32_t channels; // 1 or 3
    FlDtype dtype;
    FlLayout layout;
    int32_t processors; // multiprocessors of the device

    /* Set by fl_gpu_normalize_compute(): arithmetic gives every entry of the table. */
    bool compute;
    float mean[3], std[3], recip[3];
};

struct fl_gpu_ops {
    /* Find the driver, make or join the device's primary context. Errors are complete sentences. */
    int (*open)(int ordinal, void **context, int32_t *processors, FlError *err);
    void (*close)(void *context);
    int (*enter)(void *context, int *capture_mode); // current, and relaxed capture mode
    void (*leave)(void *context, int capture_mode);
    int (*numa_node)(int ordinal); // -1: unknown

    int (*mem_alloc)(void **ptr, size_t bytes);
    void (*mem_free)(void *ptr);
    void (*mem_info)(size_t *free_bytes, size_t *total);
    int (*host_register)(void *base, size_t bytes);
    void (*host_unregister)(void *base);
    int (*host_pinned)(const void *ptr); // 1: the driver knows this address as pinned

    int (*stream_create)(void **stream, int high); // non-blocking; high: before ordinary streams
    void (*stream_destroy)(void *stream);
    int (*stream_sync)(void *stream);
    int (*stream_wait)(void *stream, void *event);
    int (*stream_capturing)(void *stream, int *capturing);

    int (*event_create)(void **event, int timed);
    void (*event_destroy)(void *event);
    int (*event_record)(void *event, void *stream);
    int (*event_query)(void *event); // 0, FL_GPU_NOT_READY, or an error
    int (*event_sync)(void *event);  // sleeps, does not spin
    int (*event_elapsed)(float *ms, void *from, void *to);

    int (*copy)(void *dst, const void *src, size_t bytes, void *stream); // host to device
    int (*zero)(void *dst, size_t bytes, void *stream);
    int (*normalize)(const struct fl_gpu_normalize *n, void *stream);
    const char *(*error_text)(int code);
};

/* The build's own: CUDA, or NULL in a build without it. */
const struct fl_gpu_ops *fl_gpu_ops(void);

#ifdef __cplusplus
extern "C" {
#endif

/* The kernels behind ops->normalize. Returns a cudaError_t. */
int fl_gpu_normalize(const struct fl_gpu_normalize *n, void *stream);

/* May the kernels compute instead of looking up? They do if that gives the same bits for each of the 256 values
 * of each channel, which is tried here. table: n->channels x 256 elements of n->dtype, on the host; mean,
 * std: what it was made from. */
void fl_gpu_normalize_compute(struct fl_gpu_normalize *n, const void *table, const float mean[3],
                              const float std[3]);

#ifdef __cplusplus
}
#endif
#endif
