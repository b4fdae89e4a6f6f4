/* SPDX-License-Identifier: Apache-2.0 */
/* What an index says of a JPEG; one place for whoever indexes files and whoever writes them. */
#ifndef FL_INDEX_PICTURE_H
#define FL_INDEX_PICTURE_H

#include "index/index.h"
#include "jpeg/header.h"

/* From a header that was parsed. False, and all zero: too large for an index. */
bool fl_picture_of_header(const struct fl_jpeg_header *h, struct fl_index_image *image);

/* From a whole file. False, and all zero: not a JPEG whose header can be understood. */
bool fl_picture_of_bytes(const void *data, size_t len, struct fl_index_image *image);

#endif
