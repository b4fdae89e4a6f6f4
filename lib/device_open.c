/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "device_impl.h"

#define GIB (1024.0 * 1024.0 * 1024.0)

/* Reserve `bytes` at the next aligned place. */
static bool place(uint64_t *end, uint64_t bytes, uint64_t *offset)
{
    uint64_t rounded;

    *offset = *end;
    return !__builtin_add_overflow(bytes, (uint64_t)FL_DEVICE_ALIGN - 1, &rounded) &&
           !__builtin_add_overflow(*end, rounded / FL_DEVICE_ALIGN * FL_DEVICE_ALIGN, end);
}

static bool place_column(const struct fl_device_cfg *cfg, const struct fl_device_column *c,
                         uint64_t *end, uint64_t *column, uint64_t *pixels)
{
    const uint64_t size = fl_dtype_bytes(c->dtype);
    uint64_t bytes, raw;

    *pixels = UINT64_MAX;
    if (c->op == FL_DEVICE_COPY)
        return place(end, c->capacity, column);
    if (c->height < 1 || c->width < 1 || (c->channels != 1 && c->channels != 3) ||
        (c->dtype != FL_U8 && c->dtype != FL_F16 && c->dtype != FL_BF16 && c->dtype != FL_F32) ||
        (c->dtype != FL_U8 && !c->table))
        return false;
    if (__builtin_mul_overflow((uint64_t)c->height, (uint64_t)c->width, &raw) ||
        __builtin_mul_overflow(raw, (uint64_t)c->channels * (uint64_t)cfg->max_rows, &raw) ||
        __builtin_mul_overflow(raw, size, &bytes) || !place(end, bytes, column))
        return false;
    if (!fl_device_staged(c)) {
        *pixels = *column;
        return true;
    }
    return place(end, raw, pixels);
}

bool fl_device_lay_out(const struct fl_device_cfg *cfg, struct fl_device_layout *l)
{
    uint64_t end = 0;

    if (cfg->max_rows < 1 || cfg->max_rows > INT32_MAX || cfg->n_slots < 1 ||
        cfg->n_columns > FL_MAX_COLUMNS)
        return false;
    for (unsigned i = 0; i < cfg->n_columns; i++)
        if (!place_column(cfg, &cfg->columns[i], &end, &l->column[i], &l->pixels[i]))
            return false;
    if (!place(&end, (uint64_t)cfg->max_rows, &l->valid))
        return false;
    l->slot_bytes = end;
    if (__builtin_mul_overflow(end, (uint64_t)cfg->n_slots, &end))
        return false;
    for (unsigned i = 0; i < cfg->n_columns; i++) {
        const struct fl_device_column *c = &cfg->columns[i];
        const bool table = c->op == FL_DEVICE_IMAGE && c->dtype != FL_U8;

        if (!place(&end, table ? 256U * (uint64_t)c->channels * fl_dtype_bytes(c->dtype) : 0,
                   &l->table[i]))
            return false;
    }
    l->total = end;
    return true;
}

uint64_t fl_device_bytes(const struct fl_device_cfg *cfg)
{
    struct fl_device_layout l;

    return fl_device_lay_out(cfg, &l) ? l.total : 0;
}

int fl_device_numa_node(FlDevice device)
{
    const struct fl_gpu_ops *ops = fl_gpu_ops();

    return ops && device.type == FL_DEVICE_CUDA ? ops->numa_node(device.ordinal) : -1;
}

int fl_device_error(const struct fl_device *dev, int code, const char *what)
{
    return fl_err(code == FL_GPU_NO_MEMORY ? FL_ERR(ENOMEM) : FL_ERR(EIO), FL_STAGE_DEVICE,
                  "CUDA device %d failed %s: %s (CUDA error %d)", dev->cfg.device.ordinal, what,
                  dev->ops->error_text(code), code);
}

static int out_of_memory(const struct fl_device *dev, uint64_t bytes)
{
    const struct fl_device_cfg *cfg = &dev->cfg;
    size_t free_bytes = 0, total = 0;
    char budget[64] = "no memory_limit is set";

    dev->ops->mem_info(&free_bytes, &total);
    if (cfg->budget)
        snprintf(budget, sizeof(budget), "memory_limit is %.2f GiB", (double)cfg->budget / GIB);
    return fl_err(
        FL_ERR(ENOMEM), FL_STAGE_DEVICE,
        "CUDA device %d cannot give %.2f GiB for %u device slots of %lld rows: %.2f of its "
        "%.2f GiB are free; the loader takes %.2f GiB of host memory beside that and %s; "
        "lower device_slots or batch_size",
        cfg->device.ordinal, (double)bytes / GIB, cfg->n_slots, (long long)cfg->max_rows,
        (double)free_bytes / GIB, (double)total / GIB, (double)cfg->host_bytes / GIB, budget);
}

static int allocate(struct fl_device *dev, const struct fl_device_layout *l)
{
    void *memory = NULL;
    const int e = dev->ops->mem_alloc(&memory, l->total);

    if (e)
        return e == FL_GPU_NO_MEMORY ? out_of_memory(dev, l->total)
                                     : fl_device_error(dev, e, "to allocate memory");
    dev->memory = memory;
    dev->stats.device_bytes = l->total;
    for (unsigned s = 0; s < dev->cfg.n_slots; s++) {
        uint8_t *base = dev->memory + s * l->slot_bytes;
        struct fl_device_view *v = &dev->slots[s].view;

        for (unsigned i = 0; i < dev->cfg.n_columns; i++) {
            v->column[i] = base + l->column[i];
            v->pixels[i] = l->pixels[i] == UINT64_MAX ? NULL : base + l->pixels[i];
        }
        v->valid = base + l->valid;
    }
    return 0;
}

static int make_events(struct fl_device *dev)
{
    const struct fl_gpu_ops *ops = dev->ops;
    int e = 0;

    for (unsigned s = 0; s < dev->cfg.n_slots && !e; s++) {
        struct fl_device_slot *slot = &dev->slots[s];

        if (!(e = ops->event_create(&slot->prepared, 0)) &&
            !(e = ops->event_create(&slot->ready, 0)))
            e = ops->event_create(&slot->released, 0);
    }
    for (unsigned h = 0; h < dev->cfg.n_host_slots && !e; h++) {
        struct fl_device_trip *trip = &dev->trips[h];

        if (!(e = ops->event_create(&trip->started, 1)) &&
            !(e = ops->event_create(&trip->copied, 1)) &&
            !(e = ops->event_create(&trip->prepared, 1)))
            e = ops->event_create(&trip->worked, 1);
    }
    return e ? fl_device_error(dev, e, "to create events") : 0;
}

static int make_streams(struct fl_device *dev)
{
    int e = dev->ops->stream_create(&dev->copy_stream, 1); // copies are in nobody's way

    if (!e)
        e = dev->ops->stream_create(&dev->work_stream, dev->cfg.high_priority);
    return e ? fl_device_error(dev, e, "to create streams") : 0;
}

static void describe(struct fl_device *dev, const struct fl_device_column *c, void *table,
                     struct fl_gpu_normalize *n)
{
    *n = (struct fl_gpu_normalize){ .table = c->dtype == FL_U8 ? NULL : table,
                                    .pixels = (int64_t)c->height * c->width,
                                    .channels = c->channels,
                                    .dtype = c->dtype,
                                    .layout = c->layout,
                                    .processors = dev->processors };
    if (c->dtype != FL_U8 && c->std[0] != 0)
        fl_gpu_normalize_compute(n, c->table, c->mean, c->std);
}

static int copy_tables(struct fl_device *dev, const struct fl_device_layout *l)
{
    int e = 0;

    for (unsigned i = 0; i < dev->cfg.n_columns && !e; i++) {
        struct fl_device_column *c = &dev->cfg.columns[i];

        if (c->op != FL_DEVICE_IMAGE)
            continue;
        describe(dev, c, dev->memory + l->table[i], &dev->normalize[i]);
        if (c->dtype != FL_U8)
            e = dev->ops->copy(dev->memory + l->table[i], c->table,
                               256U * (size_t)c->channels * fl_dtype_bytes(c->dtype),
                               dev->work_stream);
        c->table = NULL; // the caller's memory: not ours after open
    }
    if (!e)
        e = dev->ops->stream_sync(dev->work_stream);
    return e ? fl_device_error(dev, e, "to copy the normalising tables") : 0;
}

/* With the device current. */
static int set_up(struct fl_device *dev, const struct fl_device_layout *l)
{
    int e = allocate(dev, l);

    if (!e)
        e = make_streams(dev);
    if (!e)
        e = make_events(dev);
    if (!e)
        e = copy_tables(dev, l);
    return e;
}

static void free_event(const struct fl_gpu_ops *ops, void *event)
{
    if (event)
        ops->event_destroy(event);
}

static void tear_down(struct fl_device *dev)
{
    for (unsigned s = 0; s < dev->cfg.n_slots; s++) {
        free_event(dev->ops, dev->slots[s].prepared);
        free_event(dev->ops, dev->slots[s].ready);
        free_event(dev->ops, dev->slots[s].released);
    }
    for (unsigned h = 0; h < dev->cfg.n_host_slots; h++) {
        free_event(dev->ops, dev->trips[h].started);
        free_event(dev->ops, dev->trips[h].copied);
        free_event(dev->ops, dev->trips[h].prepared);
        free_event(dev->ops, dev->trips[h].worked);
    }
    if (dev->copy_stream)
        dev->ops->stream_destroy(dev->copy_stream);
    if (dev->work_stream)
        dev->ops->stream_destroy(dev->work_stream);
    if (dev->memory)
        dev->ops->mem_free(dev->memory);
}

static int enter_failed(struct fl_device *dev, int code)
{
    return fl_device_error(dev, code, "to become the current device");
}

int fl_device_enter(struct fl_device *dev, struct fl_device_scope *scope)
{
    const int e = dev->ops->enter(dev->context, &scope->capture_mode);

    return e ? enter_failed(dev, e) : 0;
}

void fl_device_leave(struct fl_device *dev, struct fl_device_scope *scope)
{
    dev->ops->leave(dev->context, scope->capture_mode);
}

static void free_host_side(struct fl_device *dev)
{
    pthread_mutex_destroy(&dev->lock);
    free(dev->slots);
    free(dev->trips);
    free(dev);
}

static int make_host_side(struct fl_device **out, const struct fl_device_cfg *cfg)
{
    struct fl_device *dev = calloc(1, sizeof(*dev));

    if (!dev)
        return fl_err(FL_ERR(ENOMEM), FL_STAGE_DEVICE, "out of host memory");
    pthread_mutex_init(&dev->lock, NULL);
    dev->cfg = *cfg;
    dev->ops = cfg->ops ? cfg->ops : fl_gpu_ops();
    dev->slots = calloc(cfg->n_slots, sizeof(*dev->slots));
    dev->trips = calloc(cfg->n_host_slots ? cfg->n_host_slots : 1, sizeof(*dev->trips));
    if (!dev->slots || !dev->trips) {
        free_host_side(dev);
        return fl_err(FL_ERR(ENOMEM), FL_STAGE_DEVICE, "out of host memory");
    }
    *out = dev;
    return 0;
}

int fl_device_open(struct fl_device **out, const struct fl_device_cfg *cfg)
{
    struct fl_device_layout layout = { 0 };
    struct fl_device_scope scope;
    struct fl_device *dev = NULL;
    FlError err;
    int e;

    if (!cfg->ops && !fl_gpu_ops())
        return fl_err(FL_ERR(ENODEV), FL_STAGE_DEVICE,
                      "this build of feedline has no CUDA, and device is cuda:%d; build it where "
                      "nvcc is found, or use the CPU",
                      cfg->device.ordinal);
    if (!fl_device_lay_out(cfg, &layout))
        return fl_err(FL_ERR(EINVAL), FL_STAGE_DEVICE,
                      "the columns of a batch of %lld rows do not fit a device",
                      (long long)cfg->max_rows);
    e = make_host_side(&dev, cfg);
    if (e)
        return e;
    e = dev->ops->open(cfg->device.ordinal, &dev->context, &dev->processors, &err);
    if (e) {
        free_host_side(dev);
        return fl_err_raise(&err);
    }
    e = fl_device_enter(dev, &scope);
    if (!e) {
        e = set_up(dev, &layout);
        if (e)
            tear_down(dev);
        fl_device_leave(dev, &scope);
    }
    if (e) {
        dev->ops->close(dev->context);
        free_host_side(dev);
        return e;
    }
    dev->stats.numa_node = dev->ops->numa_node(cfg->device.ordinal);
    *out = dev;
    return 0;
}

/* Memory that somebody registered already is as good, if that covers all of it. */
static int pin(struct fl_device *dev, uint8_t *base, uint64_t bytes, bool *ours)
{
    const int e = dev->ops->host_register(base, bytes);

    *ours = e == 0;
    if (e && dev->ops->host_pinned(base) && dev->ops->host_pinned(base + bytes - 1))
        return 0;
    return e;
}

int fl_device_pin(struct fl_device *dev, void *base, uint64_t bytes)
{
    struct fl_device_scope scope;
    bool ours = false;
    int e;

    if (!base || !bytes || (uintptr_t)base % 4096)
        return fl_err(FL_ERR(EINVAL), FL_STAGE_DEVICE, "only whole pages can be pinned");
    if (dev->n_slabs == FL_DEVICE_SLABS)
        return fl_err(FL_ERR(E2BIG), FL_STAGE_DEVICE, "more than %d slabs to pin", FL_DEVICE_SLABS);
    e = fl_device_enter(dev, &scope);
    if (e)
        return e;
    e = pin(dev, base, bytes, &ours);
    fl_device_leave(dev, &scope);
    pthread_mutex_lock(&dev->lock);
    if (e)
        dev->stats.pageable_bytes += bytes;
    else
        dev->stats.pinned_bytes += bytes;
    pthread_mutex_unlock(&dev->lock);
    if (e) {
        fl_log(
            &dev->cfg.log, FL_LOG_WARNING,
            "the CUDA driver refused to pin %.2f GiB of host memory (%s): it stays pageable, and "
            "copies to the device will be several times slower",
            (double)bytes / GIB, dev->ops->error_text(e));
        return 0;
    }
    dev->slabs[dev->n_slabs].base = base;
    dev->slabs[dev->n_slabs++].ours = ours;
    return 0;
}

void fl_device_stop(struct fl_device *dev)
{
    struct fl_device_scope scope;

    if (dev->stopped)
        return;
    dev->stopped = true;
    if (fl_device_enter(dev, &scope))
        return; // the device is gone: so are its copies
    dev->ops->stream_sync(dev->copy_stream);
    dev->ops->stream_sync(dev->work_stream);
    for (unsigned i = 0; i < dev->n_slabs; i++)
        if (dev->slabs[i].ours)
            dev->ops->host_unregister(dev->slabs[i].base);
    dev->n_slabs = 0;
    fl_device_leave(dev, &scope);
}

void fl_device_close(struct fl_device **device)
{
    struct fl_device *dev = *device;
    struct fl_device_scope scope;

    if (!dev)
        return;
    fl_device_stop(dev);
    if (!fl_device_enter(dev, &scope)) {
        for (unsigned s = 0; s < dev->cfg.n_slots; s++)
            dev->ops->event_sync(dev->slots[s].released); // never recorded: returns at once
        tear_down(dev);
        fl_device_leave(dev, &scope);
    }
    dev->ops->close(dev->context);
    free_host_side(dev);
    *device = NULL;
}
