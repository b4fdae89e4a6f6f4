/* SPDX-License-Identifier: Apache-2.0 */
/* GPU JPEG, host side: memory of the lanes, copies and launches. */
#include "gpu/jpeg.h"

#include <stdlib.h>
#include <string.h>

#include <cuda_runtime_api.h>

#include "base/err.h"
#include "gpu/jpeg_device.h"

#define MAX_LANES 8
#define ALIGN 256

/* Where the parts of a lane's memory begin. */
struct layout {
    uint64_t pics, tables, entries,
        items[3];       // both in pinned and in device memory; items[0]: the plan's groups
    uint64_t staged;    // bytes of these
    uint64_t flags;     // both
    uint64_t unordered; // pinned: the plan's items[0]
    uint64_t pinned;    // bytes of a lane
    uint64_t data, segments, marks, luts, coefs, planes, axis;
    uint64_t device; // bytes of a lane
};

struct lane {
    struct fl_jpeg_plan plan;
    uint8_t *pinned, *device;
    uint32_t *flags; // pinned
    cudaEvent_t copied;
    cudaEvent_t marks[FL_GPU_JPEG_STAGES + 1]; // timing
};

struct fl_gpu_jpeg {
    struct fl_gpu_jpeg_cfg cfg;
    struct layout layout;
    uint8_t *pinned, *device;
    void *table; // device
    bool timed;
    struct lane lanes[MAX_LANES];
};

static uint64_t part(uint64_t *at, uint64_t n, uint64_t size)
{
    const uint64_t begin = *at;

    *at += (n * size + ALIGN - 1) / ALIGN * ALIGN;
    return begin;
}

static struct layout layout_of(const struct fl_gpu_jpeg_room *r)
{
    struct layout l;
    uint64_t at = 0;

    l.pics = part(&at, r->pics, sizeof(struct fl_jpeg_pic));
    l.tables = part(&at, r->pics, sizeof(struct fl_jpeg_tables));
    l.entries = part(&at, r->segments, sizeof(struct fl_jpeg_segment));
    for (int i = 0; i < 3; i++)
        l.items[i] = part(&at, r->items[i], sizeof(struct fl_jpeg_item));
    l.staged = at;
    l.flags = part(&at, r->pics, sizeof(uint32_t));
    l.unordered = at; // pinned only
    l.pinned =
        at + ((uint64_t)r->items[0] * sizeof(struct fl_jpeg_item) + ALIGN - 1) / ALIGN * ALIGN;
    l.data = part(&at, (uint64_t)r->bytes + ALIGN, 1);
    l.segments = part(&at, r->segments, sizeof(struct fl_jpeg_segment));
    l.marks = part(&at, r->marks, sizeof(uint32_t));
    l.luts = part(&at, r->pics, 4 * sizeof(struct fl_jpeg_lut));
    l.coefs = part(&at, r->blocks, 128);
    l.planes = part(&at, r->planes, 16);
    l.axis = part(&at, r->axis, 1);
    l.device = at;
    return l;
}

static uint64_t table_bytes(const struct fl_gpu_jpeg_cfg *cfg)
{
    return (uint64_t)cfg->channels * 256 * fl_dtype_bytes(cfg->dtype);
}

uint64_t fl_gpu_jpeg_device_bytes(const struct fl_gpu_jpeg_cfg *cfg)
{
    return cfg->lanes * layout_of(&cfg->room).device + table_bytes(cfg);
}

uint64_t fl_gpu_jpeg_pinned_bytes(const struct fl_gpu_jpeg_cfg *cfg)
{
    return cfg->lanes * layout_of(&cfg->room).pinned;
}

static int driver_error(FlError *err, int rc, const char *doing)
{
    const int code = rc == cudaErrorMemoryAllocation ? FL_ERR(ENOMEM) : FL_ERR(EIO);

    return fl_err_set(err, code, FL_STAGE_DEVICE, "GPU JPEG: %s: %s", doing,
                      cudaGetErrorString((cudaError_t)rc));
}

static int check_cfg(const struct fl_gpu_jpeg_cfg *cfg, FlError *err)
{
    const bool floats = cfg->dtype == FL_F32 || cfg->dtype == FL_F16 || cfg->dtype == FL_BF16;

    if (cfg->lanes < 1 || cfg->lanes > MAX_LANES || cfg->width < 1 || cfg->height < 1 ||
        cfg->width > 65535 || cfg->height > 65535 || (cfg->channels != 1 && cfg->channels != 3) ||
        (!floats && cfg->dtype != FL_U8) || (floats && !cfg->table) || cfg->room.pics > 65535 ||
        (int64_t)cfg->width * cfg->height > INT32_MAX / 4)
        return fl_err_set(err, FL_ERR(EINVAL), FL_STAGE_DEVICE,
                          "GPU JPEG: a setting is out of range");
    return 0;
}

static int open_lane(struct fl_gpu_jpeg *dec, unsigned number)
{
    struct lane *const lane = &dec->lanes[number];
    const struct layout *const l = &dec->layout;
    struct fl_jpeg_plan *const plan = &lane->plan;

    lane->pinned = dec->pinned + number * l->pinned;
    lane->device = dec->device + number * l->device;
    lane->flags = (uint32_t *)(lane->pinned + l->flags);
    plan->room = dec->cfg.room;
    plan->width = dec->cfg.width;
    plan->height = dec->cfg.height;
    plan->luma = dec->cfg.channels == 1;
    plan->block = dec->cfg.block;
    plan->block_bytes = dec->cfg.block_bytes;
    plan->tile_bytes = FL_GPU_JPEG_TILE_BYTES;
    plan->pics = (struct fl_jpeg_pic *)(lane->pinned + l->pics);
    plan->tables = (struct fl_jpeg_tables *)(lane->pinned + l->tables);
    plan->entries = (struct fl_jpeg_segment *)(lane->pinned + l->entries);
    for (int i = 0; i < 3; i++)
        plan->items[i] = (struct fl_jpeg_item *)(lane->pinned + (i ? l->items[i] : l->unordered));
    plan->groups = (struct fl_jpeg_item *)(lane->pinned + l->items[0]);
    fl_jpeg_plan_clear(plan);
    return (int)cudaEventCreateWithFlags(&lane->copied, cudaEventDisableTiming);
}

static int open_memory(struct fl_gpu_jpeg *dec, const char **doing)
{
    const struct fl_gpu_jpeg_cfg *const cfg = &dec->cfg;
    int rc;

    *doing = "allocating device memory";
    if ((rc = (int)cudaMalloc((void **)&dec->device, cfg->lanes * dec->layout.device)))
        return rc;
    *doing = "allocating pinned memory";
    if ((rc = (int)cudaHostAlloc((void **)&dec->pinned, cfg->lanes * dec->layout.pinned,
                                 cudaHostAllocPortable)))
        return rc;
    *doing = "copying the table";
    if (cfg->dtype != FL_U8 &&
        ((rc = (int)cudaMalloc(&dec->table, table_bytes(cfg))) ||
         (rc = (int)cudaMemcpy(dec->table, cfg->table, table_bytes(cfg), cudaMemcpyHostToDevice))))
        return rc;
    *doing = "preparing the kernels";
    if ((rc = fl_jpeg_allow_tiles(FL_GPU_JPEG_TILE_BYTES + 16)))
        return rc;
    for (unsigned i = 0; i < cfg->lanes; i++)
        if ((rc = open_lane(dec, i)))
            return rc;
    return 0;
}

int fl_gpu_jpeg_open(struct fl_gpu_jpeg **out, const struct fl_gpu_jpeg_cfg *cfg, FlError *err)
{
    const char *doing = "";
    int rc = check_cfg(cfg, err);

    if (rc)
        return rc;
    struct fl_gpu_jpeg *dec = calloc(1, sizeof(*dec));
    if (!dec)
        return fl_err_set(err, FL_ERR(ENOMEM), FL_STAGE_DEVICE, "GPU JPEG: out of memory");
    dec->cfg = *cfg;
    dec->layout = layout_of(&cfg->room);
    if ((rc = open_memory(dec, &doing))) {
        fl_gpu_jpeg_close(&dec);
        return driver_error(err, rc, doing);
    }
    *out = dec;
    return 0;
}

void fl_gpu_jpeg_close(struct fl_gpu_jpeg **out)
{
    struct fl_gpu_jpeg *const dec = *out;

    *out = NULL;
    if (!dec)
        return;
    for (unsigned i = 0; i < dec->cfg.lanes; i++) {
        if (dec->lanes[i].copied)
            cudaEventDestroy(dec->lanes[i].copied);
        for (int k = 0; k <= FL_GPU_JPEG_STAGES; k++)
            if (dec->lanes[i].marks[k])
                cudaEventDestroy(dec->lanes[i].marks[k]);
    }
    cudaFree(dec->table);
    cudaFree(dec->device);
    cudaFreeHost(dec->pinned);
    free(dec);
}

struct fl_jpeg_plan *fl_gpu_jpeg_begin(struct fl_gpu_jpeg *dec, unsigned lane)
{
    struct fl_jpeg_plan *const plan = &dec->lanes[lane].plan;

    fl_jpeg_plan_clear(plan);
    return plan;
}

/* ---- submit ----------------------------------------------------------------------------------- */

/* Copy what the plan has staged of a part. */
static int stage(const struct lane *lane, uint64_t at, uint64_t bytes, cudaStream_t stream)
{
    return bytes ? (int)cudaMemcpyAsync(lane->device + at, lane->pinned + at, bytes,
                                        cudaMemcpyHostToDevice, stream)
                 : 0;
}

static int stage_plan(const struct fl_gpu_jpeg *dec, const struct lane *lane, cudaStream_t stream)
{
    const struct layout *const l = &dec->layout;
    const struct fl_jpeg_plan *const p = &lane->plan;
    int rc;

    if ((rc = stage(lane, l->pics, p->used.pics * sizeof(*p->pics), stream)) ||
        (rc = stage(lane, l->tables, p->n_tables * sizeof(*p->tables), stream)) ||
        (rc = stage(lane, l->entries, p->n_entries * sizeof(*p->entries), stream)))
        return rc;
    for (int i = 0; i < 3 && !rc; i++)
        rc = stage(lane, l->items[i], p->used.items[i] * sizeof(*p->items[i]), stream);
    return rc;
}

/* The compressed bytes by the copy engine; pictures that the plan placed at the distance that they
 * have in host memory go together. */
static int copy_bytes(const struct fl_gpu_jpeg *dec, const struct lane *lane, cudaStream_t stream)
{
    const struct fl_jpeg_plan *const plan = &lane->plan;
    uint8_t *const data = lane->device + dec->layout.data;
    uint32_t i = 0;

    while (i < plan->used.pics) {
        const struct fl_jpeg_pic *const first = &plan->pics[i], *last = first;
        for (i++; i < plan->used.pics && plan->pics[i].joined; i++)
            last = &plan->pics[i];
        const int rc = (int)cudaMemcpyAsync(data + first->data, (const void *)(uintptr_t)first->src,
                                            last->src + last->length - first->src,
                                            cudaMemcpyHostToDevice, stream);
        if (rc)
            return rc;
    }
    return 0;
}

/* A call for each run takes longer than the copy itself where runs are short. */
static bool by_engine(const struct fl_gpu_jpeg *dec, const struct lane *lane)
{
    return dec->cfg.copy == FL_GPU_JPEG_COPY_ENGINE ||
           (dec->cfg.copy == FL_GPU_JPEG_COPY_AUTO &&
            lane->plan.n_copies <= lane->plan.used.pics / 8 + 1);
}

static struct fl_jpeg_device device_of(const struct fl_gpu_jpeg *dec, const struct lane *lane,
                                       void *out)
{
    const struct fl_gpu_jpeg_cfg *const cfg = &dec->cfg;
    const struct layout *const l = &dec->layout;
    uint8_t *const base = lane->device;
    const uint32_t pixels = (uint32_t)cfg->width * (uint32_t)cfg->height;
    const bool planar = cfg->layout == FL_NCHW;

    return (struct fl_jpeg_device){
        .pics = (const struct fl_jpeg_pic *)(base + l->pics),
        .tables = (const struct fl_jpeg_tables *)(base + l->tables),
        .entries = (const struct fl_jpeg_segment *)(base + l->entries),
        .items = { (const struct fl_jpeg_item *)(base + l->items[0]),
                   (const struct fl_jpeg_item *)(base + l->items[1]),
                   (const struct fl_jpeg_item *)(base + l->items[2]) },
        .n_pics = lane->plan.used.pics,
        .n_items = { lane->plan.used.items[0], lane->plan.used.items[1], lane->plan.used.items[2] },
        .fetch = !by_engine(dec, lane),
        .grid = cfg->grid,
        .data = base + l->data,
        .segments = (struct fl_jpeg_segment *)(base + l->segments),
        .marks = (uint32_t *)(base + l->marks),
        .luts = (struct fl_jpeg_lut *)(base + l->luts),
        .coefs = (int16_t *)(base + l->coefs),
        .planes = base + l->planes,
        .axis = base + l->axis,
        .flags = (uint32_t *)(base + l->flags),
        .out = out,
        .table = dec->table,
        .row = (uint64_t)pixels * (uint32_t)cfg->channels,
        .step = planar ? 1 : (uint32_t)cfg->channels,
        .plane = planar ? pixels : 1,
        .channels = (uint32_t)cfg->channels,
        .size = (uint32_t)fl_dtype_bytes(cfg->dtype),
    };
}

static void mark(const struct fl_gpu_jpeg *dec, const struct lane *lane, int i, cudaStream_t stream)
{
    if (dec->timed)
        cudaEventRecord(lane->marks[i], stream);
}

static int run_kernels(const struct fl_gpu_jpeg *dec, struct lane *lane, cudaStream_t stream,
                       void *out)
{
    const struct fl_jpeg_device d = device_of(dec, lane, out);
    const struct fl_jpeg_plan *const p = &lane->plan;
    int rc;

    if ((rc = fl_jpeg_launch_prepare(&d, stream)))
        return rc;
    mark(dec, lane, 2, stream);
    if ((rc = fl_jpeg_launch_huffman(&d, stream)))
        return rc;
    mark(dec, lane, 3, stream);
    if ((rc = fl_jpeg_launch_idct(&d, stream)))
        return rc;
    mark(dec, lane, 4, stream);
    if ((rc = fl_jpeg_launch_pixels(&d, p->tile_most + 16, stream)))
        return rc;
    mark(dec, lane, 5, stream);
    return (int)cudaMemcpyAsync(lane->flags, d.flags, p->used.pics * sizeof(uint32_t),
                                cudaMemcpyDeviceToHost, stream);
}

int fl_gpu_jpeg_submit(struct fl_gpu_jpeg *dec, unsigned number, void *copy_stream, void *stream,
                       void *out, FlError *err)
{
    struct lane *const lane = &dec->lanes[number];
    cudaStream_t const cs = copy_stream, ks = stream;
    uint32_t *const flags = (uint32_t *)(lane->device + dec->layout.flags);
    int rc;

    if (!lane->plan.used.pics)
        return 0;
    fl_jpeg_plan_finish(&lane->plan);
    mark(dec, lane, 0, cs);
    if ((rc = (int)cudaMemsetAsync(flags, 0, lane->plan.used.pics * sizeof(*flags), cs)) ||
        (rc = stage_plan(dec, lane, cs)) ||
        (by_engine(dec, lane) && (rc = copy_bytes(dec, lane, cs))))
        return driver_error(err, rc, "copying to the device");
    mark(dec, lane, 1, cs);
    if (cs != ks && ((rc = (int)cudaEventRecord(lane->copied, cs)) ||
                     (rc = (int)cudaStreamWaitEvent(ks, lane->copied, 0))))
        return driver_error(err, rc, "ordering copies and kernels");
    if ((rc = run_kernels(dec, lane, ks, out)))
        return driver_error(err, rc, "decoding");
    return 0;
}

const uint32_t *fl_gpu_jpeg_flags(const struct fl_gpu_jpeg *dec, unsigned lane)
{
    return dec->lanes[lane].flags;
}

int fl_gpu_jpeg_time(struct fl_gpu_jpeg *dec)
{
    for (unsigned i = 0; i < dec->cfg.lanes; i++)
        for (int k = 0; k <= FL_GPU_JPEG_STAGES; k++)
            if (!dec->lanes[i].marks[k] && cudaEventCreate(&dec->lanes[i].marks[k]))
                return FL_ERR(ENOMEM);
    dec->timed = true;
    return 0;
}

int fl_gpu_jpeg_times(struct fl_gpu_jpeg *dec, unsigned number, float ms[FL_GPU_JPEG_STAGES])
{
    const struct lane *const lane = &dec->lanes[number];

    for (int k = 0; k < FL_GPU_JPEG_STAGES; k++)
        if (!dec->timed || cudaEventElapsedTime(&ms[k], lane->marks[k], lane->marks[k + 1]))
            return FL_ERR(EIO);
    return 0;
}
