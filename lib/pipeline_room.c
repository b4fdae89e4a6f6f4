/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline_room.h"

#include <math.h>

#include "index/dataset.h"

#define PROBES 512 // pictures looked at

/* A column's pictures, from some that lie evenly over the dataset. */
struct sizes {
    double pixels, spread,
        side; // means of width x height and of the longer side; standard deviation of the first
    double bytes;
};

static struct sizes probe(const struct fl_settings *s, const struct fl_column *c)
{
    const struct fl_part *part = &s->parts[0];
    const struct fl_index *ix = fl_dataset_index(part->ds);
    const struct fl_index_field *f = fl_index_field(ix, c->from[0].field);
    const int64_t n = part->n < PROBES ? part->n : PROBES;
    struct fl_index_image image;
    double squares = 0;
    struct sizes z = { 0 };

    for (int64_t i = 0; i < n; i++) {
        if (fl_index_image(ix, c->from[0].field, i * (part->n / n), &image))
            continue;
        const double pixels = (double)image.width * image.height;
        z.pixels += pixels / (double)n;
        squares += pixels * pixels / (double)n;
        z.side += (double)(image.width > image.height ? image.width : image.height) / (double)n;
    }
    z.spread = sqrt(squares > z.pixels * z.pixels ? squares - z.pixels * z.pixels : 0);
    z.bytes = f->count ? (double)f->bytes / (double)f->count : 1;
    return z;
}

/* Memory for a batch of such pictures: the part of them that crops need, and four standard deviations. */
static struct fl_gpu_jpeg_room room_of(const struct sizes *z, const FlImage *im, uint32_t rows)
{
    const bool random = im->crop == FL_CROP_RANDOM_RESIZED;
    // MCUs and points around a crop are decoded too, and row groups are wider than it.
    const double area = random ? fmin(1, 0.1 + 1.2 * (im->scale[0] + im->scale[1]) / 2) : 1;
    const double share = area * (1 + 4 * z->spread / (z->pixels + 1) / sqrt(rows));
    const double bytes = fmin(1, area + 0.25) * (share / area) * z->bytes;
    struct fl_gpu_jpeg_room room = fl_gpu_jpeg_room_for(
        rows, (uint64_t)(share * z->pixels) + 1024, (uint64_t)bytes + 1024, im->width, im->height);
    // Full scale to a small picture: each output pixel has a weight for many of the source's.
    const double out = fmin(im->width, im->height), most = z->side * sqrt(fmax(1, share));
    const double taps = im->exact == FL_ON ? fmin(4 * most / out + 4, 4096) : 24;

    if (taps > 24)
        room.axis = (uint32_t)(rows * (double)(im->width + im->height) * (4 + 2 * taps));
    return room;
}

struct fl_gpu_jpeg_room fl_gpu_decode_room(const struct fl_settings *settings,
                                           const struct fl_column *column, uint32_t rows)
{
    const struct sizes sizes = probe(settings, column);

    return room_of(&sizes, &column->cfg.image, rows);
}
