/* SPDX-License-Identifier: Apache-2.0 */
/* The GPU decoder's memory, as the loader sizes it, takes the batches of real photos: by entry points, at every
 * kind of view. Needs FL_TEST_SHARED, but no GPU. */
#define _GNU_SOURCE
#include <unistd.h>

#include "gpu_jpeg_host.h"
#include "jpeg/exif.h"
#include "pipeline_room.h"
#include "request.h"
#include "t.h"
#include "unit/make_set.h"

static const struct {
    const char *name;
    FlImage image;
    int64_t batch;
} views[] = {
    { "224, random crops",
      { .width = 224, .height = 224, .crop = FL_CROP_RANDOM_RESIZED, .flip = 0.5f },
      256 },
    { "the same, small batches",
      { .width = 224, .height = 224, .crop = FL_CROP_RANDOM_RESIZED, .flip = 0.5f },
      16 },
    { "64, random crops", { .width = 64, .height = 64, .crop = FL_CROP_RANDOM_RESIZED }, 64 },
    { "32, random crops at full scale",
      { .width = 32, .height = 32, .crop = FL_CROP_RANDOM_RESIZED, .exact = FL_ON },
      64 },
    { "small crops",
      { .width = 224, .height = 224, .crop = FL_CROP_RANDOM_RESIZED, .scale = { 0.05f, 0.1f } },
      64 },
    { "evaluation", { .width = 224, .height = 224, .crop = FL_CROP_CENTER }, 100 },
    { "whole pictures to 12 x 12", { .width = 12, .height = 12 }, 50 },
    { "grey, upright", { .width = 30, .height = 30, .channels = 1, .orient = true }, 20 },
    { "whole pictures at reduced scale", { .width = 48, .height = 48, .exact = FL_OFF }, 30 },
};

/* Add the sample's picture as the device thread does. Returns fl_jpeg_plan_add()'s number or error. */
static int add(const struct fl_settings *settings, struct fl_sample *s, struct fl_jpeg_plan *plan,
               uint32_t row, FlError *err)
{
    static uint8_t byte; // the plan does not look at bytes
    const struct fl_sample_field *f = &s->fields[0];
    const FlImage *im = &settings->columns[0].cfg.image;
    const int orientation = im->orient && f->orientation ? f->orientation : 1;
    struct fl_gpu_jpeg_header h = { 0 };
    struct fl_gpu_jpeg_picture in = { .header = &h,
                                      .bytes = &byte,
                                      .length = (uint32_t)s->reads[0].length,
                                      .crop =
                                          fl_orient_crop(orientation, f->width, f->height, f->crop),
                                      .orientation = (uint8_t)orientation,
                                      .exact = im->exact == FL_ON,
                                      .row = row };
    int64_t n;

    for (int i = 0; i < FL_ENTRY_STRINGS; i++)
        T_EQ(fl_gpu_jpeg_header_add(&h, f->headers[i].data, f->headers[i].len, err), 0);
    T_EQ(fl_gpu_jpeg_header_finish(&h, f->entries.frame.width, f->entries.frame.height,
                                   f->entries.interval, err),
         0);
    n = fl_gpu_jpeg_entries(&f->entries, &f->entry_range, plan->entries + plan->n_entries,
                            plan->room.segments - plan->n_entries, &in, err);
    return n < 0 ? (int)n : fl_jpeg_plan_add(plan, &in, err);
}

static void test_view(FlDataset *ds, size_t v)
{
    FlConfig cfg = FL_CONFIG_DEFAULT;
    const FlPart part = { .dataset = ds };
    struct fl_settings *settings = malloc(sizeof(*settings));
    struct fl_sample_field field = { 0 };
    struct fl_sample s = { .fields = &field, .n_fields = 1 };
    uint8_t *rows[FL_MAX_COLUMNS] = { NULL };
    int refused = 0, all = 0;
    FlError err = { 0 };

    t_case(views[v].name);
    cfg.batch_size = views[v].batch;
    T_EQ(fl_config_image(&cfg, "jpg", &views[v].image), 0);
    T_EQ(fl_settings_resolve(settings, &part, 1, &cfg), 0);
    const struct fl_column *c = &settings->columns[0];
    const FlImage *im = &c->cfg.image;
    const struct fl_gpu_jpeg_room room = fl_gpu_decode_room(settings, c, (uint32_t)cfg.batch_size);
    struct fl_jpeg_plan *plan = host_plan(room, im->width, im->height, im->channels == 1);
    field.blob_room = c->blob_room;
    field.blob = malloc(c->blob_room);
    for (s.epoch = 0; s.epoch < 3; s.epoch++)
        for (int64_t i = 0; i < settings->parts[0].n; i++) {
            const uint32_t row = (uint32_t)(i % cfg.batch_size);
            s.position = i;
            s.id = (i * 193 + s.epoch * 71) % settings->parts[0].n;
            if (!row)
                fl_jpeg_plan_clear(plan);
            fl_request_sample(settings, &s, rows);
            T_EQ(s.err.code, 0);
            T_EQ(field.points, true);
            all++;
            if (add(settings, &s, plan, row, &err) < 0 && !refused++)
                printf("%s: the first that finds no room: %s\n", views[v].name, err.message);
        }
    printf("%s: %d of %d pictures found no room; %.0f MB for a batch\n", views[v].name, refused,
           all,
           ((double)room.blocks * 128 + (double)room.planes * 16 + room.bytes + room.axis) * 1e-6);
    // A ratio of more than 60 pixels to one, as 12 pixels take it, is too much for a tile's memory.
    T_OK(refused * (views[v].image.width == 12 ? 20 : 100) <= all);
    host_plan_free(plan);
    free(field.blob);
    free(settings);
}

int main(void)
{
    FlDatasetOptions opt = FL_DATASET_OPTIONS_DEFAULT;
    const char *shared = getenv("FL_TEST_SHARED");
    char dir[256], index[300], photos[600];
    FlDataset *ds = NULL;

    snprintf(photos, sizeof(photos), "%s/photos", shared ? shared : "");
    if (!shared || access(photos, R_OK)) {
        printf("skipped: needs FL_TEST_SHARED/photos\n");
        return 77;
    }
    ms_temp(dir, sizeof(dir), "room");
    snprintf(index, sizeof(index), "%s/index.fli", dir);
    opt.index_path = index;
    opt.entry_points = true;
    T_EQ(fl_dataset_open(&ds, photos, &opt), 0);
    for (size_t v = 0; ds && v < T_LEN(views); v++)
        test_view(ds, v);
    fl_dataset_close(&ds);
    ms_remove(dir);
    return t_done();
}
