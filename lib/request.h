/* SPDX-License-Identifier: Apache-2.0 */
/* Stage 1, plan, for one sample: what the index knows of it becomes read requests and crops. */
#ifndef FL_REQUEST_H
#define FL_REQUEST_H

#include <feedline/dataset.h>

#include "sample.h"
#include "settings.h"

/* Fill fields and reads of s from its id, epoch and position. rows[c]: where column c of the sample ends
 * up, so that plain records can be read straight there. A sample that cannot be had gets s->err. */
void fl_request_sample(const struct fl_settings *settings, struct fl_sample *s,
                       uint8_t *const rows[FL_MAX_COLUMNS]);

/* Complete s->err: which sample, key and file, and a message that stands alone. */
void fl_request_describe(const struct fl_settings *settings, struct fl_sample *s);

#endif
