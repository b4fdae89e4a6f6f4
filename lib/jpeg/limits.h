/* SPDX-License-Identifier: Apache-2.0 */
/* What is refused after the header and before any allocation. Private to jpeg/. */
#ifndef FL_JPEG_LIMITS_H
#define FL_JPEG_LIMITS_H

#include "jpeg/decode.h"

/* The same with defaults in place of zeros. */
struct fl_jpeg_limits fl_jpeg_limits_of(const struct fl_jpeg_limits *limits);

/* Kinds that the codec cannot decode, and bombs: small files that claim or contain far more work than
 * a picture of their length can need. h is of the whole file, its scan reached; limits are resolved.
 * 0; FL_ERR(ENOTSUP), FL_ERR(E2BIG), FL_ERR(EBADMSG: cut) with *err filled. */
int fl_jpeg_check(const uint8_t *data, size_t len, const struct fl_jpeg_header *h,
                  const struct fl_jpeg_limits *limits, bool tolerate, FlError *err);

/* Fill *err: "JPEG: " and what, at a byte of the data. Returns code. */
int fl_jpeg_refuse(FlError *err, int code, const char *what, size_t offset);

#endif
