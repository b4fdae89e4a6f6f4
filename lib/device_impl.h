/* SPDX-License-Identifier: Apache-2.0 */
/* What device.c (the work) and device_open.c (memory, opening, closing) share. */
#ifndef FL_DEVICE_IMPL_H
#define FL_DEVICE_IMPL_H

#include <pthread.h>

#include "device.h"
#include "gpu/gpu.h"

#define FL_DEVICE_SLABS 64

struct fl_device_slot {
    struct fl_device_view view;
    void *prepared, *ready; // on the work stream: the kernels may begin, they have ended
    void *released;         // on the consumer's stream
};

/* The last copy out of a host slot. Its events are its own: when the device slot that it went to is on its
 * next batch already, as the host sees it, the copy may still be to come on the device. */
struct fl_device_trip {
    void *started, *copied;  // on the copy stream: the consumer has let go, the last byte is there
    void *prepared, *worked; // on the work stream, clocks around the kernels
    bool copy_untimed, work_untimed; // recorded, and not read yet
};

struct fl_device {
    const struct fl_gpu_ops *ops;
    struct fl_device_cfg cfg;
    void *context;
    int32_t processors;
    uint8_t *memory;                                   // all slots, then the tables
    struct fl_gpu_normalize normalize[FL_MAX_COLUMNS]; // all but source, destination and rows
    void *copy_stream, *work_stream;
    struct fl_device_slot *slots;
    struct fl_device_trip *trips;

    struct {
        void *base;
        bool ours; // registered by us, to be unregistered by us
    } slabs[FL_DEVICE_SLABS];
    unsigned n_slabs;
    bool stopped;

    pthread_mutex_t lock; // the numbers below
    struct fl_device_stats stats;
    int64_t copies_timed, works_timed; // batches in stats.h2d_seconds and stats.kernel_seconds
};

/* Offsets in device memory. */
struct fl_device_layout {
    uint64_t column[FL_MAX_COLUMNS], pixels[FL_MAX_COLUMNS], valid, slot_bytes; // in a slot
    uint64_t table[FL_MAX_COLUMNS], total;
};

/* @return false if the sizes overflow or make no sense. */
bool fl_device_lay_out(const struct fl_device_cfg *cfg, struct fl_device_layout *layout);

/* Does the column need a place for its pixels beside its final form? */
static inline bool fl_device_staged(const struct fl_device_column *c)
{
    return c->op == FL_DEVICE_IMAGE &&
           (c->dtype != FL_U8 || (c->layout == FL_NCHW && c->channels > 1));
}

/* Bytes of one u8 picture. */
static inline uint64_t fl_device_picture(const struct fl_device_column *c)
{
    return (uint64_t)c->height * (uint64_t)c->width * (uint64_t)c->channels;
}

/* Report a failed call of the runtime; `what` completes "CUDA device 0 failed ...". Returns its code. */
int fl_device_error(const struct fl_device *dev, int code, const char *what);

#endif
