/* SPDX-License-Identifier: Apache-2.0 */
/* libjpeg's memory manager on top of the engine's arenas. Private to jpeg/engine.c. */
#ifndef FL_JPEG_ENGINE_MEMORY_H
#define FL_JPEG_ENGINE_MEMORY_H

#include "jpeg/engine.h"

/* Make the engine's memory come from its arenas from now on. */
void fl_engine_memory(struct fl_engine *e);

#endif
