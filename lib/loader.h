/* SPDX-License-Identifier: Apache-2.0 */
/* The one door of the loader that is not public. */
#ifndef FL_LOADER_H
#define FL_LOADER_H

#include <feedline/loader.h>

#include "io/io.h"

/* As fl_loader_open_mixture(), but reading through the memory backend with these faults, for tests: they must
 * outlive the loader. NULL: as everybody else. */
int fl_loader_open_faulty(FlLoader **out, const FlPart *parts, int32_t n_parts, const FlConfig *cfg,
                          const struct fl_io_faults *faults);

#endif
