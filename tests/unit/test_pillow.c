/* SPDX-License-Identifier: Apache-2.0 */
/* Exact mode against Pillow, where python3 has it: crop + resize within one level on photos and on JPEGs
 * made here; the pixels of odd JPEGs equal. */
#define _GNU_SOURCE
#include <dirent.h>
#include <unistd.h>

#include "jpeg/decode.h"

#include "make_jpeg.h"
#include "t.h"

enum { MAX_CASES = 400, MAX_PATH = 512 };

static struct {
    char path[MAX_PATH];
    struct fl_rect box; // w 0: the whole picture
    int w, h;
    bool may_fail; // a damaged file: both may refuse it
} cases[MAX_CASES];
static int n_cases;
static char dir[] = "/tmp/feedline-pillow-XXXXXX";

static uint32_t seed = 3;

static int rnd(int n)
{
    return (int)(mj_noise(&seed) % (uint32_t)n);
}

static uint8_t *read_file(const char *path, size_t *len)
{
    FILE *f = fopen(path, "rb");

    if (!f)
        return NULL;
    fseek(f, 0, SEEK_END);
    *len = (size_t)ftell(f);
    rewind(f);
    uint8_t *p = malloc(*len + 1);
    if (fread(p, 1, *len, f) != *len)
        *len = 0;
    fclose(f);
    return p;
}

static void add(const char *path, int w, int h, bool whole)
{
    static const int sizes[][2] = { { 224, 224 }, { 32, 48 }, { 300, 100 }, { 1, 1 },
                                    { 500, 7 },   { 224, 1 }, { 64, 64 } };
    const int k = rnd((int)T_LEN(sizes));

    if (n_cases == MAX_CASES || (!whole && (w < 1 || h < 1)))
        return;
    snprintf(cases[n_cases].path, MAX_PATH, "%s", path);
    cases[n_cases].may_fail = whole;
    if (!whole) {
        struct fl_rect *b = &cases[n_cases].box;
        b->w = 1 + rnd(w);
        b->h = 1 + rnd(h);
        b->x = rnd(w - b->w + 1);
        b->y = rnd(h - b->h + 1);
        cases[n_cases].w = sizes[k][0];
        cases[n_cases].h = sizes[k][1];
    }
    n_cases++;
}

/* Every `step`th file of a folder of FL_TEST_SHARED. */
static void add_folder(const char *name, int step, bool whole)
{
    char path[MAX_PATH];
    const char *shared = getenv("FL_TEST_SHARED");
    int i = 0;

    snprintf(path, sizeof(path), "%.200s/%s", shared ? shared : "/nonexistent", name);
    DIR *d = opendir(path);
    if (!d) {
        printf("%s is not there: left out\n", path);
        return;
    }
    for (const struct dirent *e; (e = readdir(d));) {
        struct fl_jpeg_header h;
        size_t len;
        if (e->d_name[0] == '.' || i++ % step)
            continue;
        snprintf(path, sizeof(path), "%.200s/%s/%.200s", shared, name, e->d_name);
        uint8_t *p = read_file(path, &len);
        if (p && !fl_jpeg_parse(p, len, &h, NULL))
            add(path, (int)h.width, (int)h.height, whole);
        free(p);
    }
    closedir(d);
}

static void add_made(void)
{
    static const struct mj_spec specs[] = {
        { .name = "420", .w = 333, .h = 222, .components = 3, .sh = 2, .sv = 2 },
        { .name = "444", .w = 100, .h = 400, .components = 3 },
        { .name = "grey", .w = 91, .h = 90, .components = 1 },
        { .name = "cmyk", .w = 91, .h = 90, .components = 4 },
        { .name = "ycck", .w = 91, .h = 90, .components = 4, .ycck = true },
        { .name = "progressive", .w = 120, .h = 99, .components = 3, .progressive = true },
        { .name = "wide", .w = 3000, .h = 9, .components = 3 },
    };
    char path[MAX_PATH];

    for (size_t i = 0; i < T_LEN(specs); i++) {
        struct mj_bytes j = mj_make(&specs[i]);
        snprintf(path, sizeof(path), "%s/%s.jpg", dir, specs[i].name);
        FILE *f = fopen(path, "wb");
        T_OK(f && fwrite(j.data, 1, j.len, f) == j.len);
        if (f)
            fclose(f);
        for (int k = 0; k < 12; k++)
            add(path, specs[i].w, specs[i].h, false);
        free(j.data);
    }
}

static FILE *ask(void)
{
    char command[2 * MAX_PATH], path[MAX_PATH];
    const char *source = getenv("FL_TEST_SOURCE");

    snprintf(path, sizeof(path), "%s/cases", dir);
    FILE *f = fopen(path, "w");
    for (int i = 0; f && i < n_cases; i++)
        fprintf(f, "%s %d %d %d %d %d %d\n", cases[i].path, cases[i].box.x, cases[i].box.y,
                cases[i].box.w, cases[i].box.h, cases[i].w, cases[i].h);
    if (f)
        fclose(f);
    snprintf(command, sizeof(command),
             "python3 '%.300s/tests/unit/pillow_oracle.py' < %.100s/cases", source ? source : ".",
             dir);
    return popen(command, "r");
}

/* Largest difference of one case; -1: we refuse the file. */
static int difference(struct fl_jpeg_decoder *dec, int i, const uint8_t *want, int w, int h)
{
    struct fl_rect box = cases[i].box;
    size_t len = 0;
    uint8_t *p = read_file(cases[i].path, &len), *got = malloc((size_t)w * (size_t)h * 3);
    int worst = 0;
    FlError err;

    if (!box.w)
        box = (struct fl_rect){ 0, 0, w, h };
    struct fl_jpeg_request req = {
        .crop = { .box = box, .rw = w, .rh = h, .window = { 0, 0, w, h } },
        .exact = true,
        .channels = 3,
        .dst = got,
        .stride = (ptrdiff_t)w * 3,
    };
    const int r = fl_jpeg_decode(dec, p, len, &req, &err, NULL);
    for (size_t k = 0; !r && k < (size_t)w * (size_t)h * 3; k++) {
        const int d = abs((int)got[k] - (int)want[k]);
        worst = d > worst ? d : worst;
    }
    if (r) {
        printf("%s: %s\n", cases[i].path, err.message);
        T_OK(r == FL_ERR(EBADMSG) || r == FL_ERR(ENOTSUP));
        T_OK(strlen(err.message) > 10);
        req.tolerate = true; // the pixels that there are, as Pillow gives them
        T_EQ(fl_jpeg_decode(dec, p, len, &req, &err, NULL), 0);
        T_OK(!memcmp(got, want, (size_t)w * (size_t)h * 3));
    }
    free(p);
    free(got);
    return r ? -1 : worst;
}

static void compare(FILE *answers)
{
    struct fl_jpeg_decoder *dec = NULL;
    int refused = 0, by_level[2] = { 0 };
    char line[64];

    T_EQ(fl_jpeg_decoder_new(&dec, NULL, NULL), 0);
    for (int i = 0; i < n_cases && fgets(line, sizeof(line), answers); i++) {
        int w = 0, h = 0;
        t_case(cases[i].path);
        if (sscanf(line, "ok %d %d", &w, &h) != 2) {
            T_OK(cases[i].may_fail);
            continue;
        }
        uint8_t *want = malloc((size_t)w * (size_t)h * 3);
        T_EQ(fread(want, (size_t)w * 3, (size_t)h, answers), h);
        const int d = difference(dec, i, want, w, h);
        T_OK(d <= (cases[i].may_fail ? 0 : 1));
        T_OK(d >= 0 || cases[i].may_fail);
        refused += d < 0;
        by_level[d == 1] += d >= 0;
        free(want);
    }
    printf("%d views: %d equal, %d within one level, %d refused\n", n_cases, by_level[0],
           by_level[1], refused);
    T_OK(refused <= 1); // of the odd ones: hopper_bad_exif.jpg, which is damaged
    fl_jpeg_decoder_free(dec);
}

int main(void)
{
    char line[64], command[MAX_PATH];

    T_OK(mkdtemp(dir) != NULL);
    add_made();
    add_folder("photos", 10, false);
    add_folder("odd-jpegs", 1, true);
    FILE *answers = ask();
    const bool there = answers && fgets(line, sizeof(line), answers) && !strncmp(line, "Pillow", 6);
    if (there) {
        printf("%s", line);
        compare(answers);
    }
    if (answers)
        pclose(answers);
    snprintf(command, sizeof(command), "rm -rf %s", dir);
    T_EQ(system(command), 0);
    if (!there)
        T_SKIP("python3 has no Pillow");
    return t_done();
}
