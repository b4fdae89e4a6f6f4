/* SPDX-License-Identifier: Apache-2.0 */
#include "settings.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/hash.h"
#include "base/thread.h"
#include "decoders/decoder.h"
#include "index/dataset.h"
#include "span.h"

#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)

#define INVALID(...) fl_err(FL_ERR(EINVAL), FL_STAGE_PLAN, __VA_ARGS__)

static int resolve_image(struct fl_column *c, const FlConfig *cfg)
{
    FlImage *im = &c->cfg.image;
    const char *name = c->cfg.field;

    if (im->width < 1 || im->height < 1 || im->width > 16384 || im->height > 16384)
        return INVALID("column \"%s\": size %dx%d is outside 1 to 16384 pixels", name, im->width,
                       im->height);
    if (im->dtype != FL_U8 && im->dtype != FL_F32 && im->dtype != FL_F16 && im->dtype != FL_BF16)
        return INVALID("column \"%s\": dtype %s; pictures are uint8, float32, float16 or bfloat16",
                       name, fl_dtype_name(im->dtype));
    if ((unsigned)im->layout > FL_NCHW || (unsigned)im->crop > FL_CROP_CENTER ||
        (unsigned)im->exact > FL_OFF)
        return INVALID("column \"%s\": layout, crop or exact is not one of its values", name);
    im->channels = im->channels ? im->channels : 3;
    if (im->channels != 1 && im->channels != 3)
        return INVALID("column \"%s\": %d channels; 1 (grey) and 3 (RGB) are possible", name,
                       im->channels);
    if (!im->scale[0] && !im->scale[1])
        im->scale[0] = 0.08f, im->scale[1] = 1;
    if (!im->ratio[0] && !im->ratio[1])
        im->ratio[0] = 3.0f / 4, im->ratio[1] = 4.0f / 3;
    if (!(im->scale[0] > 0 && im->scale[0] <= im->scale[1] && im->scale[1] <= 1))
        return INVALID("column \"%s\": scale %g to %g is not a range within 0 to 1", name,
                       im->scale[0], im->scale[1]);
    if (!(im->ratio[0] > 0 && im->ratio[0] <= im->ratio[1] && im->ratio[1] < 1e4f))
        return INVALID("column \"%s\": ratio %g to %g is not a range of positive numbers", name,
                       im->ratio[0], im->ratio[1]);
    if (!(im->flip >= 0 && im->flip <= 1))
        return INVALID("column \"%s\": flip %g is not a probability", name, im->flip);
    if (!im->resize) {
        const int side = im->width > im->height ? im->width : im->height;
        im->resize = (int32_t)lrint(side * 256.0 / 224.0);
    }
    if (im->resize < 1 || im->resize > 65535)
        return INVALID("column \"%s\": resize %d is outside 1 to 65535 pixels", name, im->resize);
    if (im->exact == FL_AUTO)
        im->exact = im->crop == FL_CROP_RANDOM_RESIZED ? FL_OFF : FL_ON;
    for (int i = 0; i < 3; i++) {
        im->std[i] = im->std[i] ? im->std[i] : 1;
        if (!isfinite(im->mean[i]) || !isfinite(im->std[i]) || im->std[i] < 0)
            return INVALID("column \"%s\": mean and std must be finite, and std positive", name);
        if (im->mean[i] > 1.5f || im->std[i] > 2)
            return INVALID("column \"%s\": mean %g and std %g look like those of values 0 to 255; "
                           "they are of values scaled to 0..1",
                           name, im->mean[i], im->std[i]);
    }
    // The GPU normalises: a quarter of the bytes travel.
    const bool cuda = cfg->device.type == FL_DEVICE_CUDA;
    c->dtype = cuda ? FL_U8 : im->dtype;
    c->layout = cuda ? FL_NHWC : im->layout;
    c->row_bytes = (uint64_t)im->width * (uint64_t)im->height * (uint64_t)im->channels *
                   fl_dtype_bytes(c->dtype);
    c->decoder = &fl_decoder_jpeg;
    fl_normalize_init(&c->normalize, c->dtype, c->layout, im->channels, im->mean, im->std);
    return 0;
}

static int resolve_raw(struct fl_column *c)
{
    uint64_t bytes = fl_dtype_bytes(c->cfg.dtype);

    if (!bytes)
        return INVALID("column \"%s\": dtype %d is not known", c->cfg.field, (int)c->cfg.dtype);
    for (int i = 0; i < c->cfg.ndim; i++)
        if (c->cfg.shape[i] < 1 ||
            __builtin_mul_overflow(bytes, (uint64_t)c->cfg.shape[i], &bytes) || bytes > 64 * GIB)
            return INVALID("column \"%s\": axis %d has length %lld", c->cfg.field, i,
                           (long long)c->cfg.shape[i]);
    c->dtype = c->cfg.dtype;
    c->row_bytes = bytes;
    c->decoder = c->zstd ? &fl_decoder_zstd : &fl_decoder_raw;
    return 0;
}

static int resolve_bytes(struct fl_column *c)
{
    int64_t *max = &c->cfg.max_bytes;

    if (*max < 0)
        return INVALID("column \"%s\": max_bytes %lld is negative", c->cfg.field, (long long)*max);
    if (!*max && c->zstd)
        return INVALID("column \"%s\": a compressed field needs max_bytes, the longest value when "
                       "decompressed",
                       c->cfg.field);
    *max = *max ? *max : (int64_t)c->largest;
    c->dtype = FL_U8;
    c->max_row = (uint64_t)*max;
    c->decoder = c->zstd ? &fl_decoder_zstd : &fl_decoder_raw;
    return 0;
}

/* Room for what the index keeps of a picture besides its size: the longest, but not that of a few odd ones,
 * which are then read whole. */
static size_t blob_room(const struct fl_index_field *f)
{
    const uint64_t strings = 2048, usual = 8192, n = f->entries > 0 ? (uint64_t)f->entries : 1;
    uint64_t most = 4 * (f->entry_bytes / n);

    if (!f->has_entries)
        return f->has_slices ? usual : 0;
    most = most > 32768 ? most : 32768;
    most = most < MIB ? most : MIB;
    most = f->longest_entries < most ? f->longest_entries : most;
    return most + strings > usual ? (most + strings + 63) / 64 * 64 : usual;
}

/* Find the column's field in one dataset. */
static int resolve_source(struct fl_settings *s, struct fl_column *c, const struct fl_part *part,
                          struct fl_source *from)
{
    const struct fl_index *ix = fl_dataset_index(part->ds);
    FlDatasetInfo info;
    int err = fl_dataset_info(part->ds, &info);

    if (err)
        return err;
    from->field = fl_index_find(ix, c->cfg.field);
    if (from->field < 0)
        return fl_err(FL_ERR(ENOENT), FL_STAGE_PLAN,
                      "dataset %s has no field \"%s\"; `feedline inspect` lists its fields",
                      info.path, c->cfg.field);
    const struct fl_index_field *field = fl_index_field(ix, from->field);
    from->kind = field->kind;
    from->checksums = field->has_checksum && s->cfg.checksum != FL_OFF;
    from->sliced = field->has_slices;
    from->points = field->has_entries;
    from->row_sums = s->cfg.checksum != FL_OFF;
    from->is_image = field->is_image;
    c->sliced |= from->sliced;
    c->points |= from->points;
    if (c->cfg.kind == FL_COLUMN_IMAGE && blob_room(field) > c->blob_room)
        c->blob_room = blob_room(field);
    c->largest = field->max_bytes > c->largest ? field->max_bytes : c->largest;
    if (from->kind == FL_FIELD_INT && c->cfg.kind != FL_COLUMN_LABEL)
        return INVALID("column \"%s\": the field holds integers; make it a label column",
                       c->cfg.field);
    return 0;
}

static int resolve_column(struct fl_settings *s, unsigned i)
{
    struct fl_column *c = &s->columns[i];
    int err = 0;

    c->cfg = s->cfg.columns[i];
    c->index = i;
    const size_t len = strlen(c->cfg.field);
    c->zstd = len > 4 && !strcmp(c->cfg.field + len - 4, ".zst");
    for (unsigned k = 0; k < s->n_parts; k++)
        if ((err = resolve_source(s, c, &s->parts[k], &c->from[k])))
            return err;
    switch (c->cfg.kind) {
    case FL_COLUMN_IMAGE:
        err = resolve_image(c, &s->cfg);
        break;
    case FL_COLUMN_LABEL:
        c->dtype = FL_I64;
        c->row_bytes = 8;
        c->decoder = &fl_decoder_label;
        break;
    case FL_COLUMN_RAW:
        err = resolve_raw(c);
        break;
    case FL_COLUMN_BYTES:
        err = resolve_bytes(c);
        break;
    default:
        err = INVALID("column \"%s\": kind %d is not known", c->cfg.field, (int)c->cfg.kind);
    }
    if (err)
        return err;
    if (c->row_bytes)
        c->max_row = c->row_bytes;
    if (__builtin_mul_overflow(c->max_row, (uint64_t)s->cfg.batch_size, &c->bytes) ||
        c->bytes > 1024 * GIB)
        return INVALID("column \"%s\": batch_size %lld times %llu bytes is more than memory holds",
                       c->cfg.field, (long long)s->cfg.batch_size, (unsigned long long)c->max_row);
    return 0;
}

static int resolve_columns(struct fl_settings *s)
{
    uint64_t at = 0;
    int err;

    if (s->cfg.n_columns < 1 || s->cfg.n_columns > FL_MAX_COLUMNS)
        return INVALID("%d columns; 1 to %d are possible, see fl_config_image() and its like",
                       s->cfg.n_columns, FL_MAX_COLUMNS);
    s->n_columns = (unsigned)s->cfg.n_columns;
    for (unsigned i = 0; i < s->n_columns; i++) {
        struct fl_column *c = &s->columns[i];
        if ((err = resolve_column(s, i)))
            return err;
        c->offset = at;
        at += (c->bytes + FL_SLOT_ALIGN - 1) / FL_SLOT_ALIGN * FL_SLOT_ALIGN;
    }
    s->slot_bytes = at;
    return 0;
}

static int resolve_order(struct fl_settings *s)
{
    FlConfig *c = &s->cfg;

    if (c->batch_size < 1 || c->batch_size > INT32_MAX)
        return INVALID("batch_size is %lld; it must be at least 1", (long long)c->batch_size);
    c->world_size = c->world_size ? c->world_size : 1;
    if (c->world_size < 1 || c->rank < 0 || c->rank >= c->world_size)
        return INVALID("rank %d of world_size %d: a rank is at least 0 and below world_size",
                       c->rank, c->world_size);
    if ((unsigned)c->shuffle > FL_SHUFFLE_BLOCK || (unsigned)c->tail > FL_TAIL_PAD ||
        (unsigned)c->bad_sample > FL_BAD_SUBSTITUTE)
        return INVALID("shuffle, tail or bad_sample is not one of its values");
    if (c->seed == FL_SEED_UNSET) {
        if (c->world_size > 1 && c->shuffle != FL_SHUFFLE_NONE)
            return INVALID("seed is not set: with world_size %d every rank must shuffle alike, so "
                           "give all of them the same seed",
                           c->world_size);
        c->seed = 0;
    }
    if (c->epochs < 0 || c->n_exclude < 0 || (c->n_exclude && !c->exclude))
        return INVALID("epochs %lld or n_exclude %lld is negative", (long long)c->epochs,
                       (long long)c->n_exclude);
    if (c->n_subset < 0 || (c->n_subset && !c->subset))
        return INVALID("n_subset is %lld, but subset is %s", (long long)c->n_subset,
                       c->subset ? "there" : "NULL");
    if (c->weights && c->balance[0])
        return INVALID("weights and balance exclude each other");
    if (s->n_parts > 1 && (c->subset || c->exclude || c->weights || c->balance[0]))
        return INVALID(
            "subset, exclude, weights and balance belong to one dataset: in a mixture each "
            "part has its own");
    if (c->epoch_samples < 0 ||
        (c->epoch_samples && s->n_parts == 1 && !c->weights && !c->balance[0]))
        return INVALID("epoch_samples is %lld; it needs weights, balance or a mixture",
                       (long long)c->epoch_samples);
    if (c->block_bytes < 0 || c->window < 0)
        return INVALID("block_bytes or window is negative");
    if (!(c->max_bad_rate >= 0 && c->max_bad_rate <= 1) || c->max_bad < 0)
        return INVALID("max_bad %lld or max_bad_rate %g is out of range", (long long)c->max_bad,
                       c->max_bad_rate);
    return 0;
}

static void resolve_limits(FlConfig *c)
{
    c->max_pixels = c->max_pixels > 0 ? c->max_pixels : 178956970;
    c->max_scans = c->max_scans > 0 ? c->max_scans : 100;
    c->max_field_bytes = c->max_field_bytes > 0 ? c->max_field_bytes : (int64_t)GIB;
    c->max_window_log = c->max_window_log > 0 ? c->max_window_log : 27;
    c->window = c->window ? c->window : 64;
    c->block_bytes = c->block_bytes ? c->block_bytes : 256 * 1024;
}

/* Mean bytes of a sample's fields that are read, and the most that one sample can need. */
static void field_bytes(const struct fl_settings *s, double *mean, uint64_t *largest)
{
    int64_t n = 0;

    *mean = 0;
    *largest = 0;
    for (unsigned k = 0; k < s->n_parts; k++)
        n += s->parts[k].n;
    for (unsigned i = 0; i < s->n_columns; i++) {
        const struct fl_column *c = &s->columns[i];
        for (unsigned k = 0; k < s->n_parts; k++)
            if (c->from[k].kind == FL_FIELD_BYTES)
                *mean += (double)fl_index_field(fl_dataset_index(s->parts[k].ds), c->from[k].field)
                             ->bytes /
                         (double)n;
        *largest += c->largest + 2 * FL_SLOT_ALIGN; // alignment at both ends
    }
}

static int resolve_memory(struct fl_settings *s)
{
    FlConfig *c = &s->cfg;
    uint64_t largest;
    double mean;

    if ((c->gpu_priority != FL_PRIORITY_LOW && c->gpu_priority != FL_PRIORITY_HIGH) ||
        c->gpu_blocks < 0)
        return INVALID("gpu_priority %d or gpu_blocks %d is out of range", (int)c->gpu_priority,
                       c->gpu_blocks);
    if (c->decode == FL_DECODE_GPU && c->device.type != FL_DEVICE_CUDA)
        return INVALID("decode = gpu needs a CUDA device to decode on, and device is the CPU");
    if (c->host_slots < 0 || c->host_slots > 64 || c->device_slots < 0 || c->device_slots > 64)
        return INVALID("host_slots %d or device_slots %d is outside 0 to 64", c->host_slots,
                       c->device_slots);
    // A batch that the GPU decodes stays in its slots until its errors are known: one or two more.
    bool gpu = false;
    for (unsigned i = 0; i < s->n_columns; i++)
        gpu |= c->device.type == FL_DEVICE_CUDA && c->decode != FL_DECODE_CPU &&
               s->columns[i].blob_room;
    c->device_slots = c->device_slots ? c->device_slots : gpu ? 4 : 2;
    s->n_slots = c->host_slots ? (unsigned)c->host_slots : gpu ? 5 : 3;
    c->host_slots = (int32_t)s->n_slots;
    field_bytes(s, &mean, &largest);
    s->block = mean > 0 ? (int64_t)ceil((double)c->block_bytes / mean) : 1;
    for (unsigned k = 0; k < s->n_parts; k++)
        s->block = s->block < s->parts[k].n ? s->block : s->parts[k].n;
    s->read_bytes = c->read_bytes;
    if (s->read_bytes)
        return 0;
    double want = (gpu ? s->n_slots : 2) * mean * (double)c->batch_size;
    // Two neighbouring windows of blocks, in pieces that reach over their ends.
    const double near = 3.0 * (double)c->window * (double)c->block_bytes;
    want = c->shuffle == FL_SHUFFLE_BLOCK && near > want ? near : want;
    want = want > (double)GIB ? (double)GIB : want;
    s->read_bytes = want > 64.0 * MIB ? (uint64_t)want : 64 * MIB;
    s->read_bytes = s->read_bytes > largest ? s->read_bytes : largest;
    s->read_bytes = (s->read_bytes + 4095) / 4096 * 4096;
    const uint64_t slots = s->n_slots * s->slot_bytes;
    if (c->memory_limit && slots + s->read_bytes + 4 * MIB > c->memory_limit) {
        if (slots + largest + 4 * MIB > c->memory_limit)
            return fl_err(
                FL_ERR(ENOMEM), FL_STAGE_PLAN,
                "memory_limit is %llu bytes, but %u slots take %llu and the largest sample "
                "%llu: give more, or lower batch_size or host_slots",
                (unsigned long long)c->memory_limit, s->n_slots, (unsigned long long)slots,
                (unsigned long long)largest);
        s->read_bytes = c->memory_limit - slots - 4 * MIB;
        s->read_bytes = s->read_bytes / 4096 * 4096;
    }
    return 0;
}

/* What decides the bytes of a batch, as text: the hash of it is part of a saved state. */
static uint64_t fingerprint(const struct fl_settings *s)
{
    uint64_t h = 0;
    char text[512];

    for (unsigned i = 0; i < s->n_columns; i++) {
        const FlColumnConfig *c = &s->columns[i].cfg;
        const FlImage *im = &c->image;
        int n = snprintf(text, sizeof(text), "%s %d %d", c->field, (int)c->kind, c->optional);
        if (c->kind == FL_COLUMN_IMAGE)
            n += snprintf(text + n, sizeof(text) - (size_t)n,
                          " %d %d %d %d %a %a %a %a %a %d %d %d %d", im->width, im->height,
                          (int)im->crop, im->resize, (double)im->scale[0], (double)im->scale[1],
                          (double)im->ratio[0], (double)im->ratio[1], (double)im->flip,
                          im->channels, (int)im->exact, im->orient, im->tolerate);
        if (c->kind == FL_COLUMN_RAW)
            for (int k = 0; k < c->ndim; k++)
                n += snprintf(text + n, sizeof(text) - (size_t)n, " %" PRId64, c->shape[k]);
        h = fl_hash64(text, (size_t)n, h);
    }
    return h;
}

static int resolve_parts(struct fl_settings *s, const FlPart *parts, int32_t n_parts)
{
    uint64_t containers = 0;
    FlDatasetInfo info;
    int err;

    if (!parts || n_parts < 1 || n_parts > FL_MIXTURE_PARTS)
        return INVALID("a mixture has 1 to %d parts, not %d", FL_MIXTURE_PARTS, n_parts);
    s->n_parts = (unsigned)n_parts;
    for (unsigned k = 0; k < s->n_parts; k++) {
        if (!parts[k].dataset)
            return INVALID("part %u has no dataset", k);
        if ((err = fl_dataset_info(parts[k].dataset, &info)))
            return err;
        if (info.n_samples < 1)
            return INVALID("dataset %s has no samples", info.path);
        s->parts[k] = (struct fl_part){ .ds = parts[k].dataset,
                                        .n = info.n_samples,
                                        .container_base = (uint32_t)containers,
                                        .n_containers = (uint32_t)info.n_containers,
                                        .cfg = parts[k] };
        containers += (uint64_t)info.n_containers;
        s->fingerprint = k ? fl_hash64(&info.fingerprint, 8, s->fingerprint) : info.fingerprint;
    }
    if (containers >= FL_NO_CONTAINER)
        return INVALID("the parts have %llu files together, more than can be counted",
                       (unsigned long long)containers);
    return 0;
}

int fl_settings_resolve(struct fl_settings *s, const FlPart *parts, int32_t n_parts,
                        const FlConfig *cfg)
{
    int err;

    memset(s, 0, sizeof(*s));
    if (!cfg || cfg->struct_size != sizeof(FlConfig))
        return INVALID("FlConfig.struct_size is %zu; start from FL_CONFIG_DEFAULT",
                       cfg ? cfg->struct_size : (size_t)0);
    s->cfg = *cfg;
    s->numa_node = -1;
    s->reports = cfg->bad_report != NULL;
    if ((err = resolve_parts(s, parts, n_parts)) || (err = resolve_order(s)))
        return err;
    resolve_limits(&s->cfg);
    if (cfg->n_workers < -1 || cfg->n_workers > 1024)
        return INVALID("n_workers is %d; it is -1 (automatic) or 0 to 1024", cfg->n_workers);
    s->n_workers = cfg->n_workers < 0 ? (unsigned)fl_cpu_count() : (unsigned)cfg->n_workers;
    s->inline_all = s->n_workers == 0;
    if ((err = resolve_columns(s)) || (err = resolve_memory(s)))
        return err;
    s->pipeline_fingerprint = fingerprint(s);
    return 0;
}
