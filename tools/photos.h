/* SPDX-License-Identifier: Apache-2.0 */
/* A folder of class folders full of made photos, for `feedline synth` and `feedline bench --synthetic`. */
#ifndef FL_TOOLS_PHOTOS_H
#define FL_TOOLS_PHOTOS_H

#include <stdint.h>

#include "cli.h"

struct photos {
    const char *dir; // made if it is not there; must be empty
    int64_t count;
    int32_t classes;   // 1 to 1,000
    int32_t n_threads; // 0: as many as the process may use
    uint64_t seed;
    struct cli_bar *bar; // may be NULL
    uint64_t bytes;      // out: of all files
};

/* Write them. Returns 0, or 1 after one sentence about what failed. */
int photos_write(struct photos *p, const char *command);

#endif
