/* SPDX-License-Identifier: Apache-2.0 */
/* Small datasets for the tests of the pipeline: the same samples as a tar shard or as class folders. */
#ifndef FL_TESTS_MAKE_SET_H
#define FL_TESTS_MAKE_SET_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <feedline/feedline.h>

#include "make_jpeg.h"

#define MS_CLASSES 5
#define MS_RAW 96 // bytes of the `bin` field

/* A fresh folder below the build's temporary ones. */
static inline const char *ms_temp(char *path, size_t size, const char *name)
{
    const char *base = getenv("TMPDIR");

    snprintf(path, size, "%s/feedline-%s-XXXXXX", base ? base : "/tmp", name);
    if (!mkdtemp(path)) {
        perror(path);
        exit(1);
    }
    return path;
}

static inline void ms_remove(const char *path)
{
    char command[4200];

    snprintf(command, sizeof(command), "rm -rf '%s'", path);
    if (system(command))
        perror(command);
}

static inline FlDataset *ms_open(const char *path)
{
    FlDataset *ds = NULL;

    if (fl_dataset_open(&ds, path, NULL)) {
        fprintf(stderr, "%s\n", fl_last_error()->message);
        exit(1);
    }
    return ds;
}

static inline void ms_write(const char *path, const void *data, size_t len)
{
    FILE *f = fopen(path, "wb");

    if (!f || fwrite(data, 1, len, f) != len || fclose(f)) {
        perror(path);
        exit(1);
    }
}

/* One ustar member, padded to 512 bytes. */
static inline void ms_member(FILE *tar, const char *name, const void *data, size_t len)
{
    char h[512] = { 0 };
    unsigned sum = 0;
    static const char zeros[512];

    snprintf(h, 100, "%s", name);
    snprintf(h + 100, 8, "%07o", 0644);
    snprintf(h + 108, 8, "%07o", 0);
    snprintf(h + 116, 8, "%07o", 0);
    snprintf(h + 124, 12, "%011zo", len);
    snprintf(h + 136, 12, "%011o", 0);
    memset(h + 148, ' ', 8);
    h[156] = '0';
    memcpy(h + 257, "ustar\00000", 8);
    for (int i = 0; i < 512; i++)
        sum += (unsigned char)h[i];
    snprintf(h + 148, 8, "%06o", sum);
    fwrite(h, 1, 512, tar);
    fwrite(data, 1, len, tar);
    fwrite(zeros, 1, (512 - len % 512) % 512, tar);
}

static inline int ms_class(int i)
{
    return i * 3 % MS_CLASSES;
}

/* Picture i: sizes and samplings vary. */
static inline struct mj_bytes ms_picture(int i)
{
    const struct mj_spec spec = { .w = 40 + i * 7 % 61,
                                  .h = 33 + i * 11 % 53,
                                  .components = i % 7 == 3 ? 1 : 3,
                                  .sh = 1 + i % 2,
                                  .sv = 1 + i / 2 % 2,
                                  .progressive = i % 5 == 4 };
    struct mj_spec grey = spec;

    grey.sh = grey.sv = 1;
    return mj_make(spec.components == 1 ? &grey : &spec);
}

static inline void ms_raw(int i, uint8_t raw[MS_RAW])
{
    for (int k = 0; k < MS_RAW; k++)
        raw[k] = (uint8_t)(i * 31 + k * 7);
}

/* Text of sample i, 0 to 19 bytes. */
static inline size_t ms_text(int i, char *text)
{
    const size_t len = (size_t)(i * 5 % 20);

    for (size_t k = 0; k < len; k++)
        text[k] = (char)('a' + (i + (int)k) % 26);
    return len;
}

/* Sample `bad` (-1: none) has a JPEG that is cut in the middle. */
static inline void ms_tar(const char *dir, int n, int bad)
{
    char path[4200], name[64], text[32];
    uint8_t raw[MS_RAW];

    snprintf(path, sizeof(path), "%s/shard-000000.tar", dir);
    FILE *tar = fopen(path, "wb");
    for (int i = 0; i < n; i++) {
        struct mj_bytes jpeg = ms_picture(i);
        snprintf(name, sizeof(name), "%06d.jpg", i);
        ms_member(tar, name, jpeg.data, i == bad ? jpeg.len / 2 : jpeg.len);
        free(jpeg.data);
        snprintf(name, sizeof(name), "%06d.cls", i);
        ms_member(tar, name, text, (size_t)snprintf(text, sizeof(text), "%d", ms_class(i)));
        ms_raw(i, raw);
        snprintf(name, sizeof(name), "%06d.bin", i);
        ms_member(tar, name, raw, MS_RAW);
        snprintf(name, sizeof(name), "%06d.txt", i);
        ms_member(tar, name, text, ms_text(i, text));
    }
    static const char end[1024];
    fwrite(end, 1, sizeof(end), tar);
    fclose(tar);
}

/* Class folders c0 .. c4; the files of a class are in the tar's order, so sample numbers differ. */
static inline void ms_folder(const char *dir, int n, int bad)
{
    char path[4200];

    for (int c = 0; c < MS_CLASSES; c++) {
        snprintf(path, sizeof(path), "%s/c%d", dir, c);
        mkdir(path, 0755);
    }
    for (int i = 0; i < n; i++) {
        struct mj_bytes jpeg = ms_picture(i);
        snprintf(path, sizeof(path), "%s/c%d/%06d.jpg", dir, ms_class(i), i);
        ms_write(path, jpeg.data, i == bad ? jpeg.len / 2 : jpeg.len);
        free(jpeg.data);
    }
}

#endif
