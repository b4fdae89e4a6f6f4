/* SPDX-License-Identifier: Apache-2.0 */
/* The crop law: which part of a picture a sample shows. Pure functions of keyed random numbers and
 * the picture's size; plain IEEE additions, products, quotients and square roots, so that every
 * host draws the same boxes. May use base/ and rect.h. */
#ifndef FL_CROP_H
#define FL_CROP_H

#include <feedline/config.h>

#include "rect.h"

/* Whose draw it is. */
struct fl_crop_key {
    uint64_t seed;
    uint32_t epoch;
    uint64_t position;
    uint32_t column;
};

/* torchvision's RandomResizedCrop.get_params: up to ten draws of an area (uniform in scale[0..1] of
 * the picture's) and an aspect ratio (log-uniform in ratio[0..1]), width and height rounded half to
 * even; the first that fits is placed uniformly; after ten the largest centre box whose ratio is
 * within bounds. w, h >= 1. */
struct fl_rect fl_crop_random_resized(const struct fl_crop_key *key, int32_t w, int32_t h,
                                      const float scale[2], const float ratio[2]);

/* torchvision's Resize(resize) + CenterCrop((out_h, out_w)): the shorter side becomes `resize`, the
 * longer one floor(resize * longer / shorter), and the window stands at round-half-even((side -
 * out) / 2). Where torchvision would pad (out larger than the resized side) the shorter side
 * becomes that large instead. */
struct fl_crop fl_crop_center(int32_t w, int32_t h, int32_t resize, int32_t out_w, int32_t out_h);

/* True with probability p. */
bool fl_crop_flip(const struct fl_crop_key *key, float p);

/* The view that an image column takes of a picture of the given upright size (swap the stored size
 * first where orientation is honoured: jpeg/exif.h). Zeros in `image` stand for their defaults. */
struct fl_crop fl_crop_draw(const FlImage *image, const struct fl_crop_key *key, int32_t w,
                            int32_t h);

/* exp and log from basic operations, relative error below 4e-16 for the arguments that occur here
 * (|x| < 700; positive normal x). Shared so that tests can compare them with libm. */
double fl_crop_exp(double x);
double fl_crop_log(double x);

#endif
