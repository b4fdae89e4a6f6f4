/* SPDX-License-Identifier: Apache-2.0 */
/* Weights that make every class come up equally often. */
#ifndef FL_BALANCE_H
#define FL_BALANCE_H

#include <feedline/dataset.h>

#include "order.h"

/* Weights as fl_order_cfg has them, for each sample that takes part in `cfg` (subset and exclude): one over
 * the number of those with the same value of the integer field. *weights is the caller's to free.
 * Returns 0; FL_ERR(ENOENT): no such field, or a sample lacks it; FL_ERR(EINVAL): no integers;
 * FL_ERR(ENOMEM). */
int fl_balance_weights(const FlDataset *ds, const struct fl_order_cfg *cfg, const char *field,
                       double **weights);

#endif
