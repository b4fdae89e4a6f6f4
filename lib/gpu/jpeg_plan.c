/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/jpeg.h"

#include <string.h>

#include "base/err.h"
#include "jpeg/upsampling.h"
#include "kernels/resize.h"

#define PAGE_BYTES 4096              // memory is pinned by the page, and read into whole ones
#define GAP_BYTES (2 * PAGE_BYTES)   // less than a copy of its own costs
#define MAX_BLOCKS (UINT32_MAX / 64) // coefficients are counted in 32 bits
#define PAD_BYTES 64                 // readable behind a picture's compressed bytes

static uint32_t div_up(uint64_t a, uint64_t b)
{
    return (uint32_t)((a + b - 1) / b);
}

struct fl_gpu_jpeg_room fl_gpu_jpeg_room_for(uint32_t pics, uint64_t pixels, uint64_t bytes,
                                             int32_t width, int32_t height)
{
    const uint64_t all = pics * pixels, all_bytes = pics * (bytes + PAD_BYTES + 32 + PAGE_BYTES);
    struct fl_gpu_jpeg_room room = {
        .pics = pics,
        .bytes = (uint32_t)(all_bytes < UINT32_MAX / 2 ? all_bytes : UINT32_MAX / 2),
        .segments = div_up(all, 384) + 8 * pics, // 64 x 8 pixels, and some shorter ones
        .marks = 2 * div_up(all, 384) + 16 * pics,
        .blocks = div_up(3 * all, 64) + 64 * pics,
        .planes = div_up(3 * all + all / 2, 16) + 64 * pics,
        .axis = pics * (uint32_t)(width + height) * (sizeof(int32_t) + 24 * sizeof(int16_t)),
    };

    room.items[0] = room.segments / FL_JPEG_GROUP + pics;
    room.items[1] = room.blocks / FL_JPEG_IDCT + 3 * pics;
    room.items[2] =
        pics * div_up((uint64_t)width, 64) * div_up((uint64_t)height, 8) + div_up(all, 512);
    return room;
}

void fl_jpeg_plan_clear(struct fl_jpeg_plan *plan)
{
    memset(&plan->used, 0, sizeof(plan->used));
    plan->n_tables = 0;
    plan->n_entries = 0;
    plan->tile_most = 0;
    plan->n_copies = 0;
}

static int full(FlError *err, const char *what)
{
    return fl_err_set(err, FL_ERR(E2BIG), FL_STAGE_DECODE, "the GPU decoder's memory is full: %s",
                      what);
}

static int invalid(FlError *err, const char *what)
{
    return fl_err_set(err, FL_ERR(EINVAL), FL_STAGE_DECODE, "GPU JPEG: %s", what);
}

/* ---- resampler -------------------------------------------------------------------------------- */

static void plan_axis(struct fl_jpeg_axis *a, const struct fl_axis_spec *spec)
{
    const int64_t n8 = (int64_t)spec->size * spec->scale, r8 = 8 * (int64_t)spec->resized;
    const int64_t reach = 2 * (n8 > r8 ? n8 : r8), unit = 2 * r8;

    a->b8 = spec->box * spec->scale;
    a->n8 = (int32_t)n8;
    a->r = spec->resized;
    a->first = spec->first;
    a->n = spec->n;
    a->bits = n8 >= 4 * r8 ? 16 : n8 >= 2 * r8 ? 15 : 14;
    fl_axis_reach(spec, &a->lo, &a->hi);
    a->taps = (int32_t)div_up(2 * (uint64_t)reach, (uint64_t)unit);
    if (a->taps > a->hi - a->lo)
        a->taps = a->hi - a->lo;
}

/* Decoded pixels that `n` neighbouring outputs read. */
static uint32_t reach_of(const struct fl_jpeg_axis *a, uint32_t n)
{
    const uint32_t most = (uint32_t)(a->hi - a->lo);
    const uint32_t reach =
        div_up((uint64_t)(n - 1) * (uint64_t)a->n8, 8 * (uint64_t)a->r) + (uint32_t)a->taps + 1;

    return reach < most ? reach : most;
}

/* Lay out the shared memory of a tile of tile_w x tile_h: the decoded pixels, a plane for each
 * channel, four rows to a word; the rows between the two passes, 8 bytes a pixel; the vertical weights,
 * 8 bytes for four rows. Returns its bytes. */
static uint64_t tile_layout(struct fl_jpeg_pic *p)
{
    p->rows_max = reach_of(&p->y, p->tile_h);
    p->cols_max = reach_of(&p->x, p->tile_w);
    p->quads = div_up(p->rows_max, 4);
    p->spans = div_up((uint64_t)p->y.taps + 3, 4);
    const uint64_t rgb = (12 * (uint64_t)p->quads * p->cols_max + 15) & ~(uint64_t)15;
    const uint64_t lines =
        ((uint64_t)p->tile_h + 3) & ~(uint64_t)3; // the last pass takes four at a time
    const uint64_t weights = rgb + ((8 * lines * p->cols_max + 15) & ~(uint64_t)15);

    p->between = (uint32_t)rgb;
    p->weights = (uint32_t)weights;
    return weights + 8 * (uint64_t)p->tile_h * p->spans;
}

/* Output pixels of a thread block: as many as its shared memory takes, rather high than wide. */
static int plan_tiles(const struct fl_jpeg_plan *plan, struct fl_jpeg_pic *p, FlError *err)
{
    p->tile_w = (uint32_t)p->x.n;
    p->tile_h = p->y.n < 16 ? (uint32_t)p->y.n : 16;
    while (tile_layout(p) > plan->tile_bytes) {
        if (p->tile_w > 64 || (p->tile_h == 1 && p->tile_w > 1))
            p->tile_w = (p->tile_w + 1) / 2;
        else if (p->tile_h > 1)
            p->tile_h = (p->tile_h + 1) / 2;
        else
            return fl_err_set(err, FL_ERR(E2BIG), FL_STAGE_DECODE,
                              "%d x %d pixels to %d x %d is too much for the GPU decoder",
                              p->x.n8 / 8, p->y.n8 / 8, p->x.r, p->y.r);
    }
    p->tiles_x = div_up((uint64_t)p->x.n, p->tile_w);
    p->tiles = p->tiles_x * div_up((uint64_t)p->y.n, p->tile_h);
    return 0;
}

/* Where pixel X, Y of the window goes in the row of the batch. */
static void plan_orient(struct fl_jpeg_pic *p, int orientation, bool flip, int32_t width)
{
    const int32_t w = p->x.n, h = p->y.n;
    int32_t u0 = 0, ux = 0, uy = 0, v0 = 0, vx = 0, vy = 0;

    if (orientation < 5) {
        const bool left = orientation == 2 || orientation == 3, up = orientation >= 3;
        u0 = left ? w - 1 : 0, ux = left ? -1 : 1;
        v0 = up ? h - 1 : 0, vy = up ? -1 : 1;
    } else {
        const bool left = orientation == 6 || orientation == 7, up = orientation >= 7;
        u0 = left ? h - 1 : 0, uy = left ? -1 : 1;
        v0 = up ? w - 1 : 0, vx = up ? -1 : 1;
    }
    if (flip)
        u0 = width - 1 - u0, ux = -ux, uy = -uy;
    p->o = v0 * width + u0;
    p->ox = vx * width + ux;
    p->oy = vy * width + uy;
}

static int plan_pixels(struct fl_jpeg_plan *plan, struct fl_jpeg_pic *p,
                       const struct fl_gpu_jpeg_picture *in, int32_t scale, FlError *err)
{
    const struct fl_crop *const c = &in->crop;
    const int orientation = in->orientation ? in->orientation : 1;
    const struct fl_axis_spec sx = { c->box.x, c->box.w, scale, c->rw, c->window.x, c->window.w };
    const struct fl_axis_spec sy = { c->box.y, c->box.h, scale, c->rh, c->window.y, c->window.h };

    if ((orientation < 5 ? c->window.w : c->window.h) != plan->width ||
        (orientation < 5 ? c->window.h : c->window.w) != plan->height || orientation > 8)
        return invalid(err, "the crop's window is not the size of a row");
    plan_axis(&p->x, &sx);
    plan_axis(&p->y, &sy);
    plan_orient(p, orientation, c->flip, plan->width);
    p->row = in->row;
    return plan_tiles(plan, p, err);
}

/* ---- components ------------------------------------------------------------------------------- */

/* libjpeg's choice of inverse DCT and upsampler. */
static int choose_upsampler(struct fl_jpeg_comp *k, const struct fl_gpu_jpeg_header *h, unsigned c,
                            uint32_t scale, FlError *err)
{
    const struct fl_frame frame = { h->width,
                                    h->height,
                                    h->n_comp,
                                    { h->h[0], h->h[1], h->h[2] },
                                    { h->v[0], h->v[1], h->v[2] },
                                    h->h_max,
                                    h->v_max };
    const struct fl_upsampling u = fl_upsampling_of(&frame, (int)c, scale);

    if (!u.whole || u.h > 255 || u.v > 255)
        return fl_err_set(err, FL_ERR(ENOTSUP), FL_STAGE_DECODE,
                          "the GPU does not decode fractional sampling ratios");
    k->size = (uint8_t)u.block;
    k->hx = (uint8_t)u.h;
    k->vx = (uint8_t)u.v;
    k->dw = (int32_t)div_up((uint64_t)h->width * k->h * u.block, h->h_max * 8u);
    k->dh = (int32_t)div_up((uint64_t)h->height * k->v * u.block, h->v_max * 8u);
    const bool wide = k->dw > 2; // below that libjpeg-turbo repeats samples
    k->mode = FL_JPEG_BOX;
    if (u.h == 1 && u.v == 1)
        k->mode = FL_JPEG_FULL;
    else if (u.fancy && u.h == 2 && u.v == 1 && wide)
        k->mode = FL_JPEG_H2V1;
    else if (u.fancy && u.h == 1 && u.v == 2)
        k->mode = FL_JPEG_H1V2;
    else if (u.fancy && u.h == 2 && u.v == 2 && wide)
        k->mode = FL_JPEG_H2V2;
    return 0;
}

/* Samples [*lo, *hi) that upsampling needs for the pixels [lo, hi). */
static void sample_range(bool triangle, int32_t expand, int32_t size, int32_t *lo, int32_t *hi)
{
    const int32_t last = *hi - 1;

    if (triangle) {
        *lo = (*lo >> 1) - !(*lo & 1);
        *hi = (last >> 1) + (last & 1) + 1;
    } else {
        *lo /= expand;
        *hi = last / expand + 1;
    }
    *lo = *lo < 0 ? 0 : *lo;
    *hi = *hi > size ? size : *hi;
}

bool fl_gpu_jpeg_takes(const struct fl_gpu_jpeg_header *h, int32_t channels)
{
    struct fl_jpeg_comp k = { 0 };
    FlError err;

    for (unsigned c = 0; c < h->n_comp && (channels == 3 || c == 0); c++)
        for (uint32_t scale = 8; scale; scale /= 2) {
            k.h = h->h[c];
            k.v = h->v[c];
            if (choose_upsampler(&k, h, c, scale, &err))
                return false;
        }
    return channels == 3 || h->colour != 3;
}

static int plan_component(struct fl_jpeg_pic *p, const struct fl_gpu_jpeg_picture *in, unsigned c,
                          uint32_t scale, FlError *err)
{
    const struct fl_gpu_jpeg_header *const h = in->header;
    struct fl_jpeg_comp *const k = &p->comp[c];
    int32_t x = p->x.lo, x_end = p->x.hi, y = p->y.lo, y_end = p->y.hi;

    k->h = h->h[c];
    k->v = h->v[c];
    k->dc = h->dc[c];
    k->ac = (uint8_t)(h->ac[c] + 2);
    if (c >= p->n_comp)
        return 0; // passed over, not transformed
    const int rc = choose_upsampler(k, h, c, scale, err);
    if (rc)
        return rc;
    const uint32_t size = k->size;
    sample_range(k->mode == FL_JPEG_H2V1 || k->mode == FL_JPEG_H2V2, k->hx, k->dw, &x, &x_end);
    sample_range(k->mode == FL_JPEG_H1V2 || k->mode == FL_JPEG_H2V2, k->vx, k->dh, &y, &y_end);

    const uint32_t slice_x = (in->entries ? in->first_mcu : in->first_segment * p->interval) * k->h;
    const uint32_t slice_y = in->first_row * k->v;
    const uint32_t bx = (uint32_t)x / size, by = (uint32_t)y / size;
    const uint32_t bx_end = div_up((uint64_t)x_end, size), by_end = div_up((uint64_t)y_end, size);

    if (x >= x_end || y >= y_end || bx < slice_x || by < slice_y ||
        bx_end - slice_x > p->row_mcus * k->h || by_end - slice_y > in->n_rows * k->v)
        return invalid(err, "the slice does not cover the crop");
    k->x0 = (int32_t)(bx * size);
    k->y0 = (int32_t)(by * size);
    k->bx = bx - slice_x;
    k->by = by - slice_y;
    k->bw = bx_end - bx;
    k->bh = by_end - by;
    k->pitch = (k->bw * size + 15) & ~15u;
    return 0;
}

/* ---- slice ------------------------------------------------------------------------------------ */

/* Do the entry points give every MCU of the slice, in order? */
static bool entries_cover(const struct fl_gpu_jpeg_picture *in, uint32_t mcus)
{
    uint64_t at = 0;

    for (uint32_t i = 0; i < in->n_entries; i++) {
        if (in->entries[i].mcu != at)
            return false;
        at += in->entries[i].mcus;
    }
    return at == mcus;
}

static int plan_slice(struct fl_jpeg_pic *p, const struct fl_gpu_jpeg_picture *in, FlError *err)
{
    const struct fl_gpu_jpeg_header *const h = in->header;
    const uint32_t mcus = div_up(h->width, 8u * h->h_max), rows = div_up(h->height, 8u * h->v_max);

    p->interval = in->entries ? mcus : h->interval;
    if (!p->interval || p->interval > 65535 || mcus % p->interval)
        return invalid(err, "the restart interval does not divide the row of MCUs");
    p->row_step = mcus / p->interval;
    p->row_take = in->entries ? 1 : in->n_segments;
    p->row_mcus = in->entries ? in->n_mcus : p->row_take * p->interval;
    p->mcus = in->n_rows * p->row_mcus;
    p->n_segments = in->entries ? in->n_entries : in->n_rows * in->n_segments;
    if (!in->n_rows || in->n_rows > rows || in->first_row > rows - in->n_rows || !p->row_take ||
        in->group_row > in->first_row ||
        (in->entries && (!in->n_mcus || in->n_mcus > mcus || in->first_mcu > mcus - in->n_mcus)) ||
        (!in->entries &&
         (in->n_segments > p->row_step || in->first_segment > p->row_step - in->n_segments)))
        return invalid(err, "the slice lies outside the picture");
    if (in->length > INT32_MAX / 2)
        return full(err, "compressed bytes of one picture");
    if (in->entries && !entries_cover(in, p->mcus))
        return invalid(err, "the entry points do not cover the slice");
    if (!in->entries) {
        p->skip = (in->first_row - in->group_row) * p->row_step + in->first_segment;
        p->n_marks = p->skip + (in->n_rows - 1) * p->row_step + in->n_segments;
        p->phase = in->group_row * p->row_step % 8;
    }
    return 0;
}

static void plan_mcu(struct fl_jpeg_pic *p, const struct fl_gpu_jpeg_header *h)
{
    p->blocks = 0;
    p->block_comp = 0;
    for (unsigned c = 0; c < h->n_comp; c++) {
        p->comp[c].first = (uint8_t)p->blocks;
        for (unsigned i = 0; i < (unsigned)h->h[c] * h->v[c]; i++)
            p->block_comp |= c << (2 * p->blocks++);
    }
}

/* ---- memory ----------------------------------------------------------------------------------- */

/* Take `n` units of what there is; false: they do not fit. */
static bool take(uint64_t n, uint32_t room, uint32_t *used, uint32_t *at)
{
    if (n > room - *used)
        return false;
    *at = *used;
    *used += (uint32_t)n;
    return true;
}

/* May one copy take everything from `begin` to `end`? Across a page boundary two pieces of pinned
 * memory may meet, which no copy may span; not so in the block. */
static bool one_piece(const struct fl_jpeg_plan *plan, uint64_t begin, uint64_t end)
{
    const uint64_t block = (uint64_t)(uintptr_t)plan->block;

    return (begin - 1) / PAGE_BYTES == end / PAGE_BYTES ||
           (begin > block && end - block < plan->block_bytes);
}

/* Place of the compressed bytes: right behind the predecessor's, and at the same distance as in host
 * memory where that is short, so that one copy takes both. */
static bool take_bytes(const struct fl_jpeg_plan *plan, struct fl_gpu_jpeg_room *used,
                       struct fl_jpeg_pic *p, uint64_t bytes)
{
    const struct fl_jpeg_pic *const before = used->pics ? &plan->pics[used->pics - 1] : NULL;
    const uint64_t src = p->src & ~(uint64_t)15;

    const uint64_t end = before ? before->src + before->length : 0;

    if (before && before->length && p->src >= end && p->src - end <= GAP_BYTES &&
        one_piece(plan, end, p->src)) {
        const uint64_t at = (before->data & ~15u) + (src - (before->src & ~(uint64_t)15));
        if (at + bytes <= plan->room.bytes) {
            p->data = (uint32_t)at;
            p->joined = 1;
            used->bytes = (uint32_t)(at + bytes);
            return true;
        }
    }
    return take(bytes, plan->room.bytes, &used->bytes, &p->data);
}

static int take_memory(const struct fl_jpeg_plan *plan, struct fl_gpu_jpeg_room *used,
                       struct fl_jpeg_pic *p, const struct fl_gpu_jpeg_picture *in, FlError *err)
{
    const struct fl_gpu_jpeg_room *const room = &plan->room;
    const uint32_t skew = (uint32_t)((uintptr_t)in->bytes & 15);
    const uint64_t bytes = ((uint64_t)skew + in->length + PAD_BYTES + 15) & ~(uint64_t)15;
    const uint64_t axis[2] = { (uint64_t)p->x.n * (4 + 2 * (uint64_t)p->x.taps),
                               (uint64_t)p->y.n * (4 + 2 * (uint64_t)p->y.taps) };
    uint32_t at;

    if (!take_bytes(plan, used, p, bytes))
        return full(err, "compressed bytes");
    p->data += skew;
    if (!take(p->n_segments, room->segments, &used->segments, &p->segment))
        return full(err, "restart segments");
    if (!take(p->n_marks, room->marks, &used->marks, &p->marks))
        return full(err, "restart markers");
    if (!take((uint64_t)p->mcus * p->blocks, room->blocks < MAX_BLOCKS ? room->blocks : MAX_BLOCKS,
              &used->blocks, &p->coef))
        return full(err, "coefficients");
    for (unsigned c = 0; c < p->n_comp; c++) {
        struct fl_jpeg_comp *const k = &p->comp[c];
        if (!take((uint64_t)k->pitch * k->bh * k->size / 16 + 1, room->planes, &used->planes,
                  &k->plane))
            return full(err, "samples");
    }
    for (int i = 0; i < 2; i++) {
        struct fl_jpeg_axis *const a = i ? &p->y : &p->x;
        if (!take((axis[i] + 15) & ~(uint64_t)15, room->axis, &used->axis, &at))
            return full(err, "resampling weights");
        a->starts = at / 4;
        a->weights = at / 2 + 2 * (uint32_t)a->n;
    }
    return 0;
}

static bool put_items(struct fl_jpeg_plan *plan, struct fl_gpu_jpeg_room *used, unsigned stage,
                      uint32_t pic, uint32_t comp, uint32_t n, uint32_t step)
{
    uint32_t at;

    if (!take(div_up(n, step), plan->room.items[stage], &used->items[stage], &at))
        return false;
    for (uint32_t i = 0; i < n; i += step)
        plan->items[stage][at++] =
            (struct fl_jpeg_item){ .pic = (uint16_t)pic, .comp = (uint16_t)comp, .first = i };
    return true;
}

static bool put_work(struct fl_jpeg_plan *plan, struct fl_gpu_jpeg_room *used,
                     const struct fl_jpeg_pic *p, uint32_t pic)
{
    bool fits = put_items(plan, used, 0, pic, 0, p->n_segments, FL_JPEG_GROUP) &&
                put_items(plan, used, 2, pic, 0, p->tiles, 1);

    for (unsigned c = 0; c < p->n_comp && fits; c++)
        fits = put_items(plan, used, 1, pic, c, p->comp[c].bw * p->comp[c].bh, FL_JPEG_IDCT);
    return fits;
}

/* ---- picture ---------------------------------------------------------------------------------- */

static int check_crop(const struct fl_gpu_jpeg_header *h, const struct fl_crop *c, FlError *err)
{
    if (c->box.x < 0 || c->box.y < 0 || c->box.w < 1 || c->box.h < 1 ||
        (int64_t)c->box.x + c->box.w > h->width || (int64_t)c->box.y + c->box.h > h->height)
        return invalid(err, "the crop lies outside the picture");
    if (c->rw < 1 || c->rh < 1 || c->rw > 65535 || c->rh > 65535 || c->window.x < 0 ||
        c->window.y < 0 || c->window.w < 1 || c->window.h < 1 ||
        (int64_t)c->window.x + c->window.w > c->rw || (int64_t)c->window.y + c->window.h > c->rh)
        return invalid(err, "the crop's window lies outside the resized picture");
    return 0;
}

static void put_tables(struct fl_jpeg_plan *plan, struct fl_jpeg_pic *p,
                       const struct fl_gpu_jpeg_header *h)
{
    struct fl_jpeg_tables *const next = plan->tables + plan->n_tables;

    p->own_tables = !plan->n_tables || memcmp(next - 1, &h->tables, sizeof(*next)) != 0;
    if (p->own_tables) {
        *next = h->tables;
        plan->n_tables++;
    }
    p->tables = plan->n_tables - 1;
}

static void put_entries(struct fl_jpeg_plan *plan, struct fl_jpeg_pic *p,
                        const struct fl_gpu_jpeg_picture *in)
{
    if (!in->entries)
        return;
    if (in->entries != plan->entries + plan->n_entries) // else they were made in place
        memcpy(plan->entries + plan->n_entries, in->entries, in->n_entries * sizeof(*in->entries));
    p->entries = plan->n_entries + 1;
    plan->n_entries += in->n_entries;
}

int fl_jpeg_plan_add(struct fl_jpeg_plan *plan, const struct fl_gpu_jpeg_picture *in, FlError *err)
{
    const struct fl_gpu_jpeg_header *const h = in->header;
    struct fl_gpu_jpeg_room used = plan->used;
    const uint32_t number = used.pics;
    int rc;

    if (number >= plan->room.pics || number >= 65535)
        return full(err, "pictures");
    struct fl_jpeg_pic *const p = &plan->pics[number];
    memset(p, 0, sizeof(*p));
    if ((rc = check_crop(h, &in->crop, err)))
        return rc;

    const int scale =
        fl_resize_scale(in->crop.box.w, in->crop.box.h, in->crop.rw, in->crop.rh, in->exact);
    p->src = (uint64_t)(uintptr_t)in->bytes;
    p->length = in->length;
    p->n_comp = plan->luma ? 1 : h->n_comp;
    p->colour = h->colour;
    if (plan->luma && h->colour == 3)
        return fl_err_set(err, FL_ERR(ENOTSUP), FL_STAGE_DECODE,
                          "the GPU does not decode JPEGs stored as RGB to grey");
    if ((rc = plan_slice(p, in, err)) || (rc = plan_pixels(plan, p, in, scale, err)))
        return rc;
    plan_mcu(p, h);
    for (unsigned c = 0; c < h->n_comp; c++)
        if ((rc = plan_component(p, in, c, (uint32_t)scale, err)))
            return rc;
    if ((rc = take_memory(plan, &used, p, in, err)))
        return rc;
    if (!put_work(plan, &used, p, number))
        return full(err, "thread blocks");

    put_tables(plan, p, h);
    put_entries(plan, p, in);
    const uint32_t tile = p->weights + 8 * p->tile_h * p->spans;
    plan->tile_most = tile > plan->tile_most ? tile : plan->tile_most;
    plan->n_copies += !p->joined;
    used.pics++;
    plan->used = used;
    return (int)number;
}

/* How long the longest segments of a group may be, roughly: groups are taken from the longest to the
 * shortest of a picture. */
static uint32_t group_rank(const struct fl_jpeg_plan *plan, const struct fl_jpeg_item *item)
{
    const struct fl_jpeg_pic *const p = &plan->pics[item->pic];
    const uint32_t seen = p->entries ? p->n_segments : p->n_marks;
    const uint64_t mean = p->length / (seen ? seen : 1);
    const uint64_t all = p->n_segments ? p->n_segments : 1; // a picture with work has one at least
    const uint64_t rank = mean * (2 * all - item->first) / all / 16;

    return FL_JPEG_RANKS - 1 - (uint32_t)(rank < FL_JPEG_RANKS ? rank : FL_JPEG_RANKS - 1);
}

void fl_jpeg_plan_finish(struct fl_jpeg_plan *plan)
{
    uint32_t place[FL_JPEG_RANKS + 1] = { 0 };
    const uint32_t n = plan->used.items[0];

    for (uint32_t i = 0; i < n; i++)
        place[group_rank(plan, &plan->items[0][i]) + 1]++;
    for (uint32_t i = 0; i < FL_JPEG_RANKS; i++)
        place[i + 1] += place[i];
    for (uint32_t i = 0; i < n; i++)
        plan->groups[place[group_rank(plan, &plan->items[0][i])]++] = plan->items[0][i];
}
