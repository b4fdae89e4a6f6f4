/* SPDX-License-Identifier: Apache-2.0 */
/* How much memory the GPU decoder of a column needs for a batch: plain C, in every build. */
#ifndef FL_PIPELINE_ROOM_H
#define FL_PIPELINE_ROOM_H

#include "gpu/jpeg.h"
#include "settings.h"

/* By the sizes of some of the dataset's pictures and by the crop's settings, so that few batches have pictures
 * that do not fit. */
struct fl_gpu_jpeg_room fl_gpu_decode_room(const struct fl_settings *settings,
                                           const struct fl_column *column, uint32_t rows);

#endif
