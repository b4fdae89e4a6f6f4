/* SPDX-License-Identifier: Apache-2.0 */
#include "index/picture.h"

/* The usual arrangements, where chroma is 1x1, by the luma's factors; anything else is 0. */
static uint8_t sampling_of(const struct fl_jpeg_header *h)
{
    if (h->components != 3)
        return 0;
    for (int i = 1; i < 3; i++)
        if (h->comp[i].h != 1 || h->comp[i].v != 1)
            return 0;
    return (uint8_t)(h->comp[0].h << 4 | h->comp[0].v);
}

bool fl_picture_of_header(const struct fl_jpeg_header *h, struct fl_index_image *image)
{
    const bool progressive =
        h->sof == FL_SOF_PROGRESSIVE || h->sof == FL_SOF_ARITHMETIC_PROGRESSIVE;

    *image = (struct fl_index_image){ 0 };
    if (h->width > UINT16_MAX || h->height > UINT16_MAX)
        return false;
    *image = (struct fl_index_image){
        .width = (uint16_t)h->width,
        .height = (uint16_t)h->height,
        .components = h->components,
        .orientation = h->orientation,
        .sampling = sampling_of(h),
        .flags = progressive ? FL_IMAGE_PROGRESSIVE : 0,
    };
    return true;
}

bool fl_picture_of_bytes(const void *data, size_t len, struct fl_index_image *image)
{
    struct fl_jpeg_header h;

    *image = (struct fl_index_image){ 0 };
    return len >= 4 && !fl_jpeg_parse(data, len, &h, NULL) && fl_picture_of_header(&h, image);
}
