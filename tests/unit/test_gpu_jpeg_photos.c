/* SPDX-License-Identifier: Apache-2.0 */
/* The GPU decoder's arithmetic on real files: photos in random crops, and JPEGs with oddities, against
 * the CPU path. Needs FL_TEST_SHARED. */
#include <dirent.h>

#include "crop.h"
#include "gpu_jpeg_case.h"
#include "gpu_jpeg_host.h"
#include "jpeg/decode.h"
#include "t.h"

#define SIDE 96

static struct fl_slicer *slicer;
static struct fl_jpeg_decoder *cpu;
static int decoded, kept;

static uint8_t *slurp(const char *path, size_t *len)
{
    FILE *const f = fopen(path, "rb");
    uint8_t *p = NULL;

    *len = 0;
    if (f && !fseek(f, 0, SEEK_END)) {
        *len = (size_t)ftell(f);
        rewind(f);
        p = malloc(*len + 1);
        *len = p ? fread(p, 1, *len, f) : 0;
    }
    if (f)
        fclose(f);
    return p;
}

static void compare(const struct case_picture *p, struct fl_crop crop, bool exact)
{
    static uint8_t got[SIDE * SIDE * 3], want[SIDE * SIDE * 3];
    struct fl_gpu_jpeg_room room = fl_gpu_jpeg_room_for(16, 900000, 600000, SIDE, SIDE);
    room.items[2] = SIDE * SIDE; // whatever the ratio is
    struct fl_jpeg_plan *const plan = host_plan(room, SIDE, SIDE, false);
    const struct fl_jpeg_request req = { .crop = crop,
                                         .exact = exact,
                                         .channels = 3,
                                         .orientation = 1,
                                         .dst = want,
                                         .stride = SIDE * 3 };
    struct fl_gpu_jpeg_picture in;
    FlError err = { 0 };

    T_EQ(case_request(p, &crop, exact, &in), 0);
    const int number = fl_jpeg_plan_add(plan, &in, &err);
    if (number < 0)
        fprintf(stderr, "%s\n", err.message);
    T_EQ(number, 0);
    if (number == 0) {
        T_EQ(host_decode(plan, 0, got), 0);
        T_EQ(fl_jpeg_decode(cpu, p->jpeg, p->len, &req, &err, NULL), 0);
        T_OK(!memcmp(got, want, sizeof(got)));
        decoded++;
    }
    host_plan_free(plan);
}

/* One file: a random crop of it, if it can be sliced. */
static void try_file(const char *path, uint32_t number)
{
    static const float scale[2] = { 0.08f, 1 }, ratio[2] = { 0.75f, 4.0f / 3 };
    const struct fl_crop_key key = { .seed = 3, .position = number };
    struct case_picture p;
    size_t len;
    uint8_t *const jpeg = slurp(path, &len);

    t_case(path);
    if (jpeg && case_slice(&p, slicer, jpeg, len)) {
        const int32_t w = (int32_t)p.table.frame.width, h = (int32_t)p.table.frame.height;
        const struct fl_rect box = fl_crop_random_resized(&key, w, h, scale, ratio);
        compare(&p, (struct fl_crop){ box, SIDE, SIDE, { 0, 0, SIDE, SIDE }, number & 1 },
                number % 4 == 0);
    } else {
        kept++;
    }
    case_free(&p);
    free(jpeg);
}

static int try_folder(const char *folder, uint32_t step)
{
    DIR *const dir = opendir(folder);
    char path[4096];
    uint32_t n = 0;

    if (!dir)
        return 0;
    for (struct dirent *e; (e = readdir(dir));)
        if (e->d_name[0] != '.' && case_hash(n++) % step == 0) {
            snprintf(path, sizeof(path), "%s/%s", folder, e->d_name);
            try_file(path, n);
        }
    closedir(dir);
    return (int)n;
}

int main(void)
{
    const char *const shared = getenv("FL_TEST_SHARED");
    char path[4096];
    int found = 0;

    if (!shared)
        T_SKIP("FL_TEST_SHARED is not set");
    slicer = fl_slicer_new();
    T_OK(slicer != NULL);
    T_EQ(fl_jpeg_decoder_new(&cpu, &(struct fl_jpeg_limits){ 0 }, fl_kernels_get(FL_CPU_BEST)), 0);
    snprintf(path, sizeof(path), "%s/photos", shared);
    found += try_folder(path, 8);
    snprintf(path, sizeof(path), "%s/odd-jpegs", shared);
    found += try_folder(path, 1);
    fl_slicer_free(slicer);
    fl_jpeg_decoder_free(cpu);
    if (!found)
        T_SKIP("no photos/ and no odd-jpegs/ in FL_TEST_SHARED");
    printf("%d crops compared, %d files are not sliced\n", decoded, kept);
    T_OK(decoded > 30);
    return t_done();
}
