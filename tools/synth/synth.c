/* SPDX-License-Identifier: Apache-2.0 */
/* A picture is a gradient, some soft-edged shapes on it, and noise whose strength falls with its
 * frequency as it does in photographs; integers alone, so that every machine draws the same. */
#include "synth.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>

struct rng {
    uint64_t state;
};

static uint64_t mix(uint64_t x) // the finaliser of splitmix64 (Steele, Lea, Flood 2014)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

static uint32_t next(struct rng *r)
{
    r->state += UINT64_C(0x9e3779b97f4a7c15);
    return (uint32_t)(mix(r->state) >> 32);
}

static int between(struct rng *r, int low, int high)
{
    return low + (int)(next(r) % (uint32_t)(high - low + 1));
}

struct shape {
    int x, y, rx, ry; // middle and radii, pixels
    int round;        // an ellipse, else a rectangle
    int rgb[3];       // added inside
    int texture;      // strength of the noise inside, 256: as elsewhere
};

enum { MAX_SHAPES = 24, MAX_WIDTH = 640 };

struct scene {
    int width, height;
    int corner[4][3]; // colours of the gradient
    int n_shapes;
    struct shape shapes[MAX_SHAPES];
    int grain; // strength of the finest noise
    int quality;
    int subsampled; // 4:2:0, else 4:4:4
};

static void plan_scene(struct scene *c, struct rng *r, unsigned kind)
{
    static const struct {
        int16_t width, height, share; // of 100
    } sizes[] = { { 500, 375, 52 }, { 375, 500, 14 }, { 500, 333, 14 }, { 333, 500, 5 },
                  { 500, 500, 6 },  { 320, 240, 4 },  { 640, 480, 3 },  { 400, 300, 2 } };
    int pick = between(r, 0, 99);
    size_t i = 0;

    while (pick >= sizes[i].share)
        pick -= sizes[i++].share;
    c->width = sizes[i].width;
    c->height = sizes[i].height;
    for (int k = 0; k < 12; k++)
        c->corner[k / 3][k % 3] = between(r, 40, 175) + ((kind >> k % 3) & 1) * 40;
    c->n_shapes = between(r, 6, MAX_SHAPES);
    for (int k = 0; k < c->n_shapes; k++) {
        struct shape *s = &c->shapes[k];
        s->x = between(r, 0, c->width);
        s->y = between(r, 0, c->height);
        s->rx = between(r, 8, c->width / 3);
        s->ry = between(r, 8, c->height / 3);
        s->round = between(r, 0, 3) != 0;
        for (int j = 0; j < 3; j++)
            s->rgb[j] = between(r, -70, 70);
        s->texture = between(r, 40, 400);
    }
    c->grain = between(r, 160, 1300);
    c->quality = between(r, 89, 97);
    c->subsampled = between(r, 0, 99) < 22;
}

/* Value noise of one octave, added to `field`: random numbers on a grid of `cell` pixels (a power of
 * two), bilinear in between, times `strength` / 256. */
static void add_octave(int16_t *field, int width, int height, int cell, int strength, uint64_t key)
{
    const int shift = __builtin_ctz((unsigned)cell);

    for (int y = 0; y < height; y++) {
        const int gy = y >> shift, fy = y & (cell - 1);
        int left = 0, right = 0;
        for (int x = 0; x < width; x++) {
            const int gx = x >> shift, fx = x & (cell - 1);
            if (fx == 0) { // the two ends of this stretch, already weighed by the row
                const uint64_t at = ((uint64_t)(unsigned)gy << 20) + (unsigned)gx;
                const int a = (int)(mix(key + at) >> 56) - 128;
                const int b = (int)(mix(key + at + (1 << 20)) >> 56) - 128;
                const int c = (int)(mix(key + at + 1) >> 56) - 128;
                const int d = (int)(mix(key + at + (1 << 20) + 1) >> 56) - 128;
                left = (a * (cell - fy) + b * fy) >> shift;
                right = (c * (cell - fy) + d * fy) >> shift;
            }
            field[(size_t)y * (size_t)width + (size_t)x] +=
                (int16_t)((((left * (cell - fx) + right * fx) >> shift) * strength) >> 8);
        }
    }
}

static unsigned char clamp(int v)
{
    return (unsigned char)(v < 0 ? 0 : v > 255 ? 255 : v);
}

/* A row of the picture before the noise. */
struct row {
    int colour[MAX_WIDTH][3];
    int texture[MAX_WIDTH]; // strength of the noise here, 256: full
};

static void gradient(const struct scene *c, int y, struct row *row)
{
    const int v = y * 256 / c->height;

    for (int x = 0; x < c->width; x++) {
        const int u = x * 256 / c->width;
        for (int j = 0; j < 3; j++) {
            const int top = c->corner[0][j] * (256 - u) + c->corner[1][j] * u;
            const int low = c->corner[2][j] * (256 - u) + c->corner[3][j] * u;
            row->colour[x][j] = (top * (256 - v) + low * v) >> 16;
        }
        row->texture[x] = 256;
    }
}

/* Lay the shape over the row; its edge is soft over a sixteenth of its size. */
static void lay(const struct shape *s, int y, int width, struct row *row)
{
    const int dy = abs(y - s->y) * 256 / s->ry;
    const int first = s->x - s->rx < 0 ? 0 : s->x - s->rx;
    const int end = s->x + s->rx > width ? width : s->x + s->rx;

    for (int x = first; x < end && dy < 256; x++) {
        const int dx = abs(x - s->x) * 256 / s->rx;
        const int d = s->round ? (dx * dx + dy * dy) >> 8 : dx > dy ? dx : dy;
        const int in = d >= 256 ? 0 : d < 240 ? 256 : (256 - d) * 16;
        for (int j = 0; j < 3; j++)
            row->colour[x][j] += s->rgb[j] * in / 256;
        row->texture[x] += (s->texture - row->texture[x]) * in / 256;
    }
}

static void draw(const struct scene *c, const int16_t *field, unsigned char *rgb)
{
    struct row row = { 0 };

    for (int y = 0; y < c->height; y++) {
        gradient(c, y, &row);
        for (int k = 0; k < c->n_shapes; k++)
            lay(&c->shapes[k], y, c->width, &row);
        for (int x = 0; x < c->width; x++, rgb += 3) {
            // The noise is mostly luma; a little of it is turned into colour.
            const int n = *field++ * row.texture[x] / 256;
            rgb[0] = clamp(row.colour[x][0] + n + n / 8);
            rgb[1] = clamp(row.colour[x][1] + n);
            rgb[2] = clamp(row.colour[x][2] + n - n / 6);
        }
    }
}

struct failure {
    struct jpeg_error_mgr mgr;
    jmp_buf out;
};

static void on_error(j_common_ptr cinfo)
{
    longjmp(((struct failure *)cinfo->err)->out, 1);
}

static void on_message(j_common_ptr cinfo, int level)
{
    (void)cinfo;
    (void)level;
}

static void no_text(j_common_ptr cinfo)
{
    (void)cinfo;
}

static int encode(struct synth *s, const struct scene *c, size_t *size)
{
    struct jpeg_compress_struct cinfo = { 0 };
    struct failure failure = { .mgr = { .error_exit = on_error,
                                        .emit_message = on_message,
                                        .output_message = no_text,
                                        .reset_error_mgr = no_text } };
    unsigned long length = (unsigned long)s->jpeg_size;
    unsigned char *buffer = s->jpeg;

    cinfo.err = &failure.mgr;
    if (setjmp(failure.out)) {
        jpeg_destroy_compress(&cinfo);
        return -1;
    }
    jpeg_create_compress(&cinfo);
    jpeg_mem_dest(&cinfo, &buffer,
                  &length); // stays in our buffer: it has room for the worst picture
    cinfo.image_width = (JDIMENSION)c->width;
    cinfo.image_height = (JDIMENSION)c->height;
    cinfo.input_components = 3;
    cinfo.in_color_space = JCS_RGB;
    jpeg_set_defaults(&cinfo);
    jpeg_set_quality(&cinfo, c->quality, TRUE);
    cinfo.comp_info[0].h_samp_factor = cinfo.comp_info[0].v_samp_factor = c->subsampled ? 2 : 1;
    cinfo.optimize_coding = TRUE; // tables of its own for every picture, as in most photographs
    jpeg_start_compress(&cinfo, TRUE);
    while (cinfo.next_scanline < cinfo.image_height) {
        JSAMPROW row = s->rgb + (size_t)cinfo.next_scanline * (size_t)c->width * 3;
        jpeg_write_scanlines(&cinfo, &row, 1);
    }
    jpeg_finish_compress(&cinfo);
    jpeg_destroy_compress(&cinfo);
    if (buffer != s->jpeg) {
        free(buffer);
        return -1;
    }
    *size = length;
    return 0;
}

static int make_room(struct synth *s, const struct scene *c)
{
    const size_t pixels = (size_t)c->width * (size_t)c->height;

    if (pixels > s->pixels) {
        synth_free(s);
        s->rgb = malloc(pixels * 3);
        s->field = malloc(pixels * sizeof(*s->field));
        s->jpeg_size = pixels * 6 + 65536;
        s->jpeg = malloc(s->jpeg_size);
        s->pixels = pixels;
    }
    if (s->rgb && s->field && s->jpeg)
        return 0;
    synth_free(s);
    return -1;
}

int synth_photo(struct synth *s, uint64_t seed, uint64_t number, unsigned kind,
                const unsigned char **data, size_t *size)
{
    // Strength of each octave from cells of 128 pixels down to 4: about a power law.
    static const int strengths[] = { 110, 84, 64, 50, 40, 32 };
    struct rng r = { mix(seed ^ UINT64_C(0x6665656431)) + mix(number + 1) };
    struct scene c;
    int err;

    plan_scene(&c, &r, kind);
    if ((err = make_room(s, &c)))
        return err;
    memset(s->field, 0, (size_t)c.width * (size_t)c.height * sizeof(*s->field));
    for (int i = 0; i < 6; i++) {
        const uint64_t key = mix(((uint64_t)next(&r) << 32) | next(&r));
        add_octave(s->field, c.width, c.height, 128 >> i, strengths[i], key);
    }
    add_octave(s->field, c.width, c.height, 2, c.grain / 8, mix(r.state));
    draw(&c, s->field, s->rgb);
    err = encode(s, &c, size);
    *data = s->jpeg;
    return err;
}

void synth_free(struct synth *s)
{
    free(s->rgb);
    free(s->field);
    free(s->jpeg);
    *s = (struct synth){ 0 };
}
