/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a JPEG: parsed, then decoded twice (strict, tolerant) into a guarded row. The first bytes of the input
 * choose the view. */
#include <stdlib.h>
#include <string.h>

#include "jpeg/decode.h"

enum { SIDE = 48, HEAD = 8 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct fl_jpeg_decoder *decoder(void)
{
    static struct fl_jpeg_decoder *dec;
    const struct fl_jpeg_limits limits = { .max_pixels = 1 << 20, .max_scans = 20 };

    if (!dec && fl_jpeg_decoder_new(&dec, &limits, NULL))
        abort();
    return dec;
}

/* A part of the picture, or a little more than it. */
static struct fl_rect box_of(const struct fl_jpeg_header *h, const uint8_t *choice)
{
    const int w = (int)h->width, hh = (int)h->height;
    struct fl_rect r = { choice[0] * w / 256, choice[1] * hh / 256, 0, 0 };

    r.w = 1 + choice[2] * (w - r.x) / 255;
    r.h = 1 + choice[3] * (hh - r.y) / 255;
    return r;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fl_jpeg_header h;
    FlError err;

    if (size < HEAD || fl_jpeg_parse(data + HEAD, size - HEAD, &h, &err))
        return 0;
    const int w = 1 + data[4] % SIDE, hh = 1 + data[5] % SIDE;
    const int channels = data[6] & 1 ? 3 : 1;
    uint8_t *row = malloc((size_t)SIDE * SIDE * 3);
    struct fl_jpeg_request req = {
        .crop = { box_of(&h, data), w, hh, { 0, 0, w, hh }, data[6] & 2 },
        .exact = data[6] & 4,
        .channels = (uint8_t)channels,
        .orientation = data[7] % 9,
        .dst = row,
        .stride = (ptrdiff_t)SIDE * channels,
    };
    for (int tolerate = 0; tolerate < 2; tolerate++) {
        struct fl_jpeg_info info;
        req.tolerate = tolerate;
        const int r = fl_jpeg_decode(decoder(), data + HEAD, size - HEAD, &req, &err, &info);
        if (r > 0 || (r < 0 && !memchr(err.message, 0, sizeof(err.message))))
            abort();
    }
    free(row);
    return 0;
}
