/* SPDX-License-Identifier: Apache-2.0 */
#include "jpeg/pixels.h"

const struct fl_pixel_ops *fl_pixel_ops_get(enum fl_cpu most)
{
    (void)most;
    return &fl_pixel_ops_c;
}
