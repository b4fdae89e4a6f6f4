/* SPDX-License-Identifier: Apache-2.0 */
#include "jpeg/limits.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/err.h"

#define DEFAULT_MAX_PIXELS 178956970
#define DEFAULT_MAX_SCANS 100
#define DEFAULT_RESERVE ((size_t)4 << 20)

struct fl_jpeg_limits fl_jpeg_limits_of(const struct fl_jpeg_limits *limits)
{
    struct fl_jpeg_limits l = limits ? *limits : (struct fl_jpeg_limits){ 0 };

    if (l.max_pixels <= 0)
        l.max_pixels = DEFAULT_MAX_PIXELS;
    if (l.max_scans <= 0)
        l.max_scans = DEFAULT_MAX_SCANS;
    if (!l.reserve)
        l.reserve = DEFAULT_RESERVE;
    // A progressive picture is held as 16-bit coefficients, four components at most.
    if (!l.max_memory)
        l.max_memory = (size_t)l.max_pixels * 8 + ((size_t)64 << 20);
    return l;
}

int fl_jpeg_refuse(FlError *err, int code, const char *what, size_t offset)
{
    fl_err_set(err, code, FL_STAGE_DECODE, "JPEG: %s", what);
    err->offset = offset;
    return code;
}

static int check_kind(const struct fl_jpeg_header *h, FlError *err)
{
    static const char *const kinds[16] = {
        [3] = "lossless",
        [5] = "hierarchical",
        [6] = "hierarchical",
        [7] = "hierarchical",
        [11] = "arithmetic-coded lossless",
        [13] = "arithmetic-coded hierarchical",
        [14] = "arithmetic-coded hierarchical",
        [15] = "arithmetic-coded hierarchical",
    };
    char text[96];

    if (kinds[h->sof & 15])
        snprintf(text, sizeof(text), "unsupported: a %s file", kinds[h->sof & 15]);
    else if (h->precision != 8)
        snprintf(text, sizeof(text), "unsupported: %d bits per sample, not 8", h->precision);
    else if (h->colour == FL_JPEG_UNKNOWN)
        snprintf(text, sizeof(text), "unsupported: %d components", h->components);
    else
        return 0;
    return fl_jpeg_refuse(err, FL_ERR(ENOTSUP), text, h->sof_offset);
}

/* Blocks across a side of one component, without the padding to whole MCUs. */
static uint64_t blocks_of(uint32_t side, int factor, int most)
{
    const uint64_t unit = 8u * (uint64_t)most;
    return ((uint64_t)side * (uint64_t)factor + unit - 1) / unit;
}

static uint64_t count_blocks(const struct fl_jpeg_header *h)
{
    uint64_t n = 0;

    for (int i = 0; i < h->components; i++)
        n += blocks_of(h->width, h->comp[i].h, h->max_h) *
             blocks_of(h->height, h->comp[i].v, h->max_v);
    return n;
}

static int check_scans(const uint8_t *data, size_t len, const struct fl_jpeg_header *h, int most,
                       FlError *err)
{
    const int scans = fl_jpeg_count_scans(data, len, h, most);
    const uint64_t bytes = len - h->scan_offset, work = count_blocks(h) * (uint64_t)scans;
    char text[160];

    if (scans > most) {
        snprintf(text, sizeof(text), "more than %d scans (max_scans)", most);
        return fl_jpeg_refuse(err, FL_ERR(E2BIG), text, h->sos_offset);
    }
    // Flat pictures reach about 100 blocks a byte; 16 million are a fraction of a second.
    if (work <= ((uint64_t)1 << 24) + 256 * bytes)
        return 0;
    snprintf(text, sizeof(text),
             "%d scans of %u x %u pixels are too much work for %" PRIu64 " bytes (max_scans)",
             scans, h->width, h->height, bytes);
    return fl_jpeg_refuse(err, FL_ERR(E2BIG), text, h->sos_offset);
}

int fl_jpeg_check(const uint8_t *data, size_t len, const struct fl_jpeg_header *h,
                  const struct fl_jpeg_limits *limits, bool tolerate, FlError *err)
{
    const bool progressive =
        h->sof == FL_SOF_PROGRESSIVE || h->sof == FL_SOF_ARITHMETIC_PROGRESSIVE;
    const uint64_t bytes = len - h->scan_offset;
    const int unsupported = check_kind(h, err);
    char text[160];

    if (unsupported)
        return unsupported;
    if ((int64_t)h->width * h->height > limits->max_pixels) {
        snprintf(text, sizeof(text),
                 "%u x %u pixels are more than the limit of %" PRId64 " (max_pixels)", h->width,
                 h->height, limits->max_pixels);
        return fl_jpeg_refuse(err, FL_ERR(E2BIG), text, h->sof_offset);
    }
    // A block of a sequential Huffman scan takes at least two bits: its DC code and the end of block.
    if (h->sof <= FL_SOF_EXTENDED && bytes < count_blocks(h) / 4 && !tolerate) {
        snprintf(text, sizeof(text),
                 "%" PRIu64 " bytes of scan cannot hold %u x %u pixels: the file is cut", bytes,
                 h->width, h->height);
        return fl_jpeg_refuse(err, FL_ERR(EBADMSG), text, len);
    }
    return progressive ? check_scans(data, len, h, limits->max_scans, err) : 0;
}
