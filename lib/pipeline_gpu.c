/* SPDX-License-Identifier: Apache-2.0 */
/* JPEG on the GPU: which pictures go there, and a batch's trip through the decoder.
 *
 *   worker          fl_gpu_decode_prepare(): checksums and header of a picture; its bytes stay in read memory
 *   device thread   fl_gpu_decode_submit(): the batch's plan and kernels, between the copies of its other
 *                   rows and the normalising kernels; fl_gpu_decode_settle(): its errors, when it has ended
 *
 * Rows are decoded as uint8 pixels to where the copies of the other rows go, so that from there on nothing
 * can tell them apart. */
#include "pipeline.h"

#include <stdlib.h>

#include "base/err.h"
#include "gpu/jpeg.h"
#include "index/dataset.h"
#include "jpeg/exif.h"
#include "pipeline_room.h"

struct gpu_column {
    struct fl_gpu_jpeg *decoder;        // NULL: not a column of pictures that can be decoded here
    struct fl_gpu_jpeg_header *headers; // {slots, rows}
    int64_t *numbers; // {lanes, rows}: number of a row's picture in the plan, -1: none
    uint8_t *skip;    // {lanes, rows}: 1: decoded here
};

struct fl_gpu_decode {
    struct gpu_column columns[FL_MAX_COLUMNS];
    struct fl_decode
        fallback; // the device thread's own: what does not fit a plan is decoded on the CPU
    bool fallback_open;
    _Atomic int64_t decoded, bytes;      // pictures, and what went to the device for them
    _Atomic int64_t left[FL_N_GPU_LEFT]; // pictures that the CPU decoded, by reason
    int64_t rows;                        // of a batch
    uint64_t device_bytes, taken;        // taken: of the loader's budget
};

/* ---- opening ------------------------------------------------------------------------------------- */

/* Take memory out of the budget. */
static int take(struct fl_pipeline *p, struct fl_gpu_decode *g, uint64_t bytes, const char *what)
{
    const int err = fl_budget_take(&p->pool->budget, bytes, what);

    g->taken += err ? 0 : bytes;
    return err;
}

static int open_column(struct fl_pipeline *p, struct fl_gpu_decode *g, const struct fl_column *c)
{
    const FlImage *im = &c->cfg.image;
    const struct fl_io_region arena = fl_read_arena(p->read);
    struct gpu_column *gc = &g->columns[c->index];
    const size_t rows = (size_t)g->rows;
    FlError err;

    const struct fl_gpu_jpeg_cfg cfg = {
        .lanes = FL_GPU_LANES,
        .room = fl_gpu_decode_room(p->settings, c, (uint32_t)rows),
        .width = im->width,
        .height = im->height,
        .channels = im->channels,
        .dtype = FL_U8,
        .layout = FL_NHWC,
        .block = arena.base,
        .block_bytes = arena.bytes,
        .grid = (unsigned)p->settings->cfg.gpu_blocks,
    };
    gc->headers = calloc(p->pool->n_slots * rows, sizeof(*gc->headers));
    gc->numbers = calloc(FL_GPU_LANES * rows, sizeof(*gc->numbers));
    gc->skip = calloc(FL_GPU_LANES * rows, 1);
    if (!gc->headers || !gc->numbers || !gc->skip)
        return fl_err(FL_ERR(ENOMEM), FL_STAGE_DEVICE,
                      "no memory for the GPU decoder of column \"%s\"", c->cfg.field);
    g->device_bytes += fl_gpu_jpeg_device_bytes(&cfg);
    int code =
        take(p, g, fl_gpu_jpeg_pinned_bytes(&cfg) + p->pool->n_slots * rows * sizeof(*gc->headers),
             "the GPU decoder's plans");
    if (code)
        return code;
    code = fl_gpu_jpeg_open(&gc->decoder, &cfg, &err);
    return code ? fl_err_raise(&err) : 0;
}

/* Are some of the column's pictures sliced, or do they have entry points? */
static bool has_segments(const struct fl_column *c)
{
    return c->cfg.kind == FL_COLUMN_IMAGE && (c->sliced || c->points);
}

static bool any_segments(const struct fl_settings *s)
{
    for (unsigned i = 0; i < s->n_columns; i++)
        if (has_segments(&s->columns[i]))
            return true;
    return false;
}

static int open_decoder(struct fl_pipeline *p)
{
    const struct fl_settings *s = p->settings;
    const struct fl_io_region arena = fl_read_arena(p->read);
    struct fl_gpu_decode *g = calloc(1, sizeof(*g));
    struct fl_device_scope scope;
    uint64_t bytes;
    int err;

    if (!g)
        return fl_err(FL_ERR(ENOMEM), FL_STAGE_DEVICE, "no memory for the GPU decoder");
    p->gpu = g;
    g->rows = s->cfg.batch_size;
    if ((err = fl_device_pin(p->device, arena.base, arena.bytes)) ||
        (err = fl_decode_open(&g->fallback, s, &bytes)))
        return err;
    g->fallback_open = true;
    if ((err = take(p, g, bytes, "the device thread's scratch")) ||
        (err = fl_device_enter(p->device, &scope)))
        return err;
    for (unsigned i = 0; i < s->n_columns && !err; i++)
        if (has_segments(&s->columns[i]))
            err = open_column(p, g, &s->columns[i]);
    fl_device_leave(p->device, &scope);
    return err;
}

int fl_gpu_decode_open(struct fl_pipeline *p)
{
    const FlDecode decode = p->settings->cfg.decode;
    int err;

    if (decode == FL_DECODE_CPU || (decode == FL_DECODE_AUTO && !any_segments(p->settings)))
        return 0;
    if (!any_segments(p->settings))
        return fl_err(
            FL_ERR(EINVAL), FL_STAGE_DECODE,
            "decode = gpu, but no picture of this dataset is a sliced JPEG or has entry "
            "points; `feedline shard` makes the ones, `feedline index --entry-points` the "
            "others");
    if ((err = open_decoder(p)) != FL_ERR(ENOMEM) || decode != FL_DECODE_AUTO)
        return err;
    fl_log(&p->log, FL_LOG_WARNING, "pictures are decoded on the CPU: %s",
           fl_last_error()->message);
    if (p->gpu)
        fl_budget_give(&p->pool->budget, p->gpu->taken);
    fl_gpu_decode_close(p);
    return 0;
}

void fl_gpu_decode_close(struct fl_pipeline *p)
{
    struct fl_gpu_decode *g = p->gpu;
    struct fl_device_scope scope;

    if (!g)
        return;
    const bool entered = !fl_device_enter(p->device, &scope);
    for (unsigned i = 0; i < FL_MAX_COLUMNS; i++) {
        if (entered)
            fl_gpu_jpeg_close(&g->columns[i].decoder);
        free(g->columns[i].headers);
        free(g->columns[i].numbers);
        free(g->columns[i].skip);
    }
    if (entered)
        fl_device_leave(p->device, &scope);
    if (g->fallback_open)
        fl_decode_close(&g->fallback);
    free(g);
    p->gpu = NULL;
}

int64_t fl_gpu_decode_count(const struct fl_pipeline *p)
{
    return p->gpu ? atomic_load_explicit(&p->gpu->decoded, memory_order_relaxed) : 0;
}

uint64_t fl_gpu_decode_bytes(const struct fl_pipeline *p)
{
    return p->gpu ? (uint64_t)atomic_load_explicit(&p->gpu->bytes, memory_order_relaxed) : 0;
}

int64_t fl_gpu_decode_left(const struct fl_pipeline *p, enum fl_gpu_left why)
{
    return p->gpu ? atomic_load_explicit(&p->gpu->left[why], memory_order_relaxed) : 0;
}

uint64_t fl_gpu_decode_device_bytes(const struct fl_pipeline *p)
{
    return p->gpu ? p->gpu->device_bytes : 0;
}

/* ---- the worker's part ---------------------------------------------------------------------------- */

/* The picture's header, ready for the plan. False: the GPU cannot decode it. */
static bool read_header(const struct fl_column *c, const struct fl_sample_field *f,
                        struct fl_gpu_jpeg_header *h)
{
    const struct fl_frame *frame = f->sliced ? &f->table.frame : &f->entries.frame;
    const uint32_t interval = f->sliced ? f->table.interval : f->entries.interval;
    FlError err;

    if (f->points && !fl_gpu_jpeg_entries_fit(&f->entries))
        return false;
    *h = (struct fl_gpu_jpeg_header){ 0 };
    for (int i = 0; i < FL_SLICE_HEADERS; i++)
        if (fl_gpu_jpeg_header_add(h, f->headers[i].data, f->headers[i].len, &err))
            return false;
    return !fl_gpu_jpeg_header_finish(h, frame->width, frame->height, interval, &err) &&
           fl_gpu_jpeg_takes(h, c->cfg.image.channels);
}

static int check_rows(const struct fl_source *from, const struct fl_sample_field *f,
                      const uint8_t *bytes, FlError *err)
{
    if (f->sliced)
        return from->checksums ? fl_slice_check_groups(&f->table, &f->range, bytes, err) : 0;
    return from->row_sums ? fl_entry_check(&f->entries, &f->entry_range, bytes, err) : 0;
}

/* A stand-in is drawn before the batch is whole, but the GPU's word on a picture comes when it has been through: where
 * bad samples are to be substituted, what has no checksum to tell beforehand stays with the workers. */
static bool too_late(const struct fl_pipeline *p, const struct fl_source *from,
                     const struct fl_sample_field *f)
{
    return p->settings->cfg.bad_sample == FL_BAD_SUBSTITUTE &&
           !(f->sliced ? from->checksums : from->row_sums);
}

/* Is this row one of those that the workers decode while the device is behind? 167 is odd: they lie evenly. */
static bool balance(const struct fl_pipeline *p, const struct fl_sample *s)
{
    return p->settings->cfg.decode == FL_DECODE_AUTO && p->n_workers &&
           (s->row * 167u & 255) < atomic_load_explicit(&p->pool->cpu_share, memory_order_relaxed);
}

static void leave(struct fl_pipeline *p, enum fl_gpu_left why)
{
    fl_meter_add(&p->gpu->left[why], 1);
}

void fl_gpu_decode_prepare(struct fl_pipeline *p, struct fl_sample *s)
{
    struct fl_gpu_decode *g = p->gpu;

    s->on_gpu = 0;
    if (!g || s->err.code)
        return;
    for (unsigned i = 0; i < p->settings->n_columns; i++) {
        const struct fl_column *c = &p->settings->columns[i];
        const struct fl_sample_field *f = &s->fields[i];
        struct fl_gpu_jpeg_header *h =
            g->columns[i].headers + s->slot->out.index * g->rows + s->row;
        if (!g->columns[i].decoder || !f->present)
            continue;
        if ((!f->sliced && !f->points) || c->cfg.image.tolerate ||
            too_late(p, &c->from[s->part], f) || !read_header(c, f, h))
            leave(p, FL_GPU_LEFT_KIND);
        else if (balance(p, s))
            leave(p, FL_GPU_LEFT_BALANCE);
        else if (check_rows(&c->from[s->part], f, s->reads[f->read].data, &s->err)) {
            s->err_column = (int)i;
            fl_decode_locate(f, &s->err);
            return;
        } else
            s->on_gpu |= 1u << i;
    }
}

/* ---- the device thread's part --------------------------------------------------------------------- */

/* Restart segments of a slice, or what lies between entry points. */
static int take_segments(const struct fl_sample_field *f, struct fl_jpeg_plan *plan,
                         struct fl_gpu_jpeg_picture *picture, FlError *err)
{
    if (f->points) {
        const int64_t n =
            fl_gpu_jpeg_entries(&f->entries, &f->entry_range, plan->entries + plan->n_entries,
                                plan->room.segments - plan->n_entries, picture, err);
        return n < 0 ? (int)n : 0;
    }
    picture->group_row = f->range.group_row;
    picture->first_row = f->range.first_row;
    picture->n_rows = f->range.n_rows;
    picture->first_segment = f->range.first_segment;
    picture->n_segments = f->range.n_segments;
    return 0;
}

static int add_picture(struct fl_gpu_decode *g, const struct fl_column *c,
                       const struct fl_sample *s, struct fl_jpeg_plan *plan, FlError *err)
{
    const struct fl_sample_field *f = &s->fields[c->index];
    const struct fl_read_req *req = &s->reads[f->read];
    const FlImage *im = &c->cfg.image;
    const int orientation = im->orient && f->orientation ? f->orientation : 1;
    struct fl_gpu_jpeg_picture picture = {
        .header = &g->columns[c->index].headers[s->slot->out.index * g->rows + s->row],
        .bytes = req->data,
        .length = (uint32_t)req->length,
        .crop = fl_orient_crop(orientation, f->width, f->height, f->crop),
        .orientation = (uint8_t)orientation,
        .exact = im->exact == FL_ON,
        .row = s->row,
    };
    const int code = take_segments(f, plan, &picture, err);

    return code ? code : fl_jpeg_plan_add(plan, &picture, err);
}

/* Decode a sample's column on the CPU after all, into its row of the host slot. */
static void fall_back(struct fl_pipeline *p, struct fl_sample *s)
{
    struct fl_slot *slot = s->slot;
    uint8_t *rows[FL_MAX_COLUMNS];
    int64_t lengths[FL_MAX_COLUMNS], *where[FL_MAX_COLUMNS];

    // The other columns come out as they did before; their lengths have been packed by now.
    for (unsigned c = 0; c < p->settings->n_columns; c++) {
        rows[c] = fl_slot_row(p->pool, slot, c, s->row);
        where[c] = &lengths[c];
    }
    const unsigned other = ~s->on_gpu;
    s->on_gpu = other; // decode what was left to the GPU, and only that
    fl_meter_add(&p->decoded, 1);
    fl_decode_sample(&p->gpu->fallback, s, rows, where);
    s->on_gpu = 0;
}

static int plan_column(struct fl_pipeline *p, struct fl_slot *slot, const struct fl_column *c,
                       unsigned lane)
{
    struct fl_gpu_decode *g = p->gpu;
    struct gpu_column *gc = &g->columns[c->index];
    struct fl_jpeg_plan *plan = fl_gpu_jpeg_begin(gc->decoder, lane);
    int64_t *numbers = gc->numbers + lane * g->rows;
    uint8_t *skip = gc->skip + lane * g->rows;
    int pictures = 0;
    FlError err;

    for (int64_t row = 0; row < slot->out.plan.rows; row++) {
        struct fl_sample *s = &slot->samples[row];
        numbers[row] = -1;
        skip[row] = 0;
        if (row >= slot->out.plan.samples || s->err.code || !(s->on_gpu & 1u << c->index))
            continue;
        const int n = add_picture(g, c, s, plan, &err);
        if (n < 0) { // the plan is full, or this picture is too large for it
            leave(p, FL_GPU_LEFT_ROOM);
            fall_back(p, s);
            continue;
        }
        numbers[row] = n;
        skip[row] = 1;
        pictures++;
    }
    fl_meter_add(&g->decoded, pictures);
    fl_meter_add(&g->bytes, plan->used.bytes);
    return pictures;
}

int fl_gpu_decode_submit(struct fl_pipeline *p, struct fl_slot *slot, struct fl_device_job *job,
                         unsigned lane)
{
    struct fl_gpu_decode *g = p->gpu;
    int pictures[FL_MAX_COLUMNS] = { 0 }, err;
    struct fl_device_view view;
    struct fl_device_scope scope;
    FlError why;

    for (unsigned i = 0; i < p->settings->n_columns; i++) {
        if (!g->columns[i].decoder)
            continue;
        pictures[i] = plan_column(p, slot, &p->settings->columns[i], lane);
        job->skip[i] = g->columns[i].skip + lane * g->rows;
    }
    if ((err = fl_device_begin(p->device, job)) || (err = fl_device_enter(p->device, &scope)))
        return err;
    fl_device_view(p->device, job->device_slot, &view);
    for (unsigned i = 0; i < p->settings->n_columns && !err; i++)
        if (pictures[i] &&
            (err = fl_gpu_jpeg_submit(g->columns[i].decoder, lane, fl_device_copy_stream(p->device),
                                      fl_device_stream(p->device), view.pixels[i], &why)))
            fl_err_raise(&why);
    fl_device_leave(p->device, &scope);
    return err ? err : fl_device_finish(p->device, job);
}

/* A picture that the GPU found damaged is decoded once more on the CPU, whose word counts. */
static bool settle_row(struct fl_pipeline *p, struct fl_slot *slot, int64_t row, uint32_t flags)
{
    struct fl_sample *s = &slot->samples[row];

    fl_log(&p->log, FL_LOG_DEBUG, "the GPU gave sample %lld back, flags %#x", (long long)s->id,
           flags);
    leave(p, FL_GPU_LEFT_AGAIN);
    fall_back(p, s);
    if (!s->err.code)
        return true;
    fl_request_describe(p->settings, s);
    fl_meter_add(&p->bad, 1);
    fl_pool_note_bad(p->pool, s);
    slot->out.valid[row] = 0;
    slot->out.bad++;
    if (!slot->out.err.code)
        slot->out.err = s->err;
    return true;
}

bool fl_gpu_decode_settle(struct fl_pipeline *p, struct fl_slot *slot, unsigned lane)
{
    struct fl_gpu_decode *g = p->gpu;
    bool again = false;

    for (unsigned i = 0; i < p->settings->n_columns; i++) {
        const struct gpu_column *gc = &g->columns[i];
        if (!gc->decoder)
            continue;
        const uint32_t *flags = fl_gpu_jpeg_flags(gc->decoder, lane);
        for (int64_t row = 0; row < slot->out.plan.samples; row++) {
            const int64_t n = gc->numbers[lane * g->rows + row];
            if (n >= 0 && flags[n])
                again |= settle_row(p, slot, row, flags[n]);
        }
    }
    return again;
}

void fl_gpu_decode_release(struct fl_pipeline *p, struct fl_slot *slot)
{
    for (int64_t row = 0; p->gpu && row < slot->out.plan.samples; row++) {
        struct fl_sample *s = &slot->samples[row];
        if (s->keeps_reads)
            fl_read_release(s);
        s->keeps_reads = false;
    }
}
