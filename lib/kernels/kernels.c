/* SPDX-License-Identifier: Apache-2.0 */
/* For CPUs without versions of their own. */
#include "kernels/kernels.h"

#include "kernels/variants.h"

const struct fl_kernels *fl_kernels_get(enum fl_cpu most)
{
    (void)most;
    return &fl_kernels_c;
}
