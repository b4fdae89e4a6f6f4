/* SPDX-License-Identifier: Apache-2.0 */
/* Small ustar archives for tests, by stdio alone. */
#ifndef FL_TESTS_MAKE_TAR_H
#define FL_TESTS_MAKE_TAR_H

#include <stdint.h>
#include <stdio.h>
#include <string.h>

static inline void tar_member(FILE *f, const char *name, const void *data, size_t size)
{
    static const uint8_t zeros[512];
    uint8_t h[512] = { 0 };
    unsigned sum = 0;

    snprintf((char *)h, 100, "%s", name);
    memcpy(h + 100,
           "0000644\0"
           "0000000\0"
           "0000000\0",
           24);
    snprintf((char *)h + 124, 12, "%011o", (unsigned)size);
    memcpy(h + 136, "00000000000", 11);
    h[156] = '0';
    memcpy(h + 257, "ustar\00000", 8);
    memset(h + 148, ' ', 8);
    for (int i = 0; i < 512; i++)
        sum += h[i];
    snprintf((char *)h + 148, 8, "%06o", sum);
    fwrite(h, 1, 512, f);
    fwrite(data, 1, size, f);
    fwrite(zeros, 1, (512 - size % 512) % 512, f);
}

static inline void tar_end(FILE *f)
{
    static const uint8_t zeros[1024];

    fwrite(zeros, 1, sizeof(zeros), f);
}

/* A JPEG that has a header and nothing behind it: 7 x 5 pixels, grey. */
static const uint8_t tar_tiny_jpeg[] = { 0xFF, 0xD8, 0xFF, 0xC0, 0, 11,   8,    0,   5, 0,
                                         7,    1,    1,    0x11, 0, 0xFF, 0xDA, 0,   8, 1,
                                         1,    0,    0,    63,   0, 0,    0xFF, 0xD9 };

#endif
