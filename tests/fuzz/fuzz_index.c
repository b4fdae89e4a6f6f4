/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as an index, with their checksums made good: no read outside, no crash, bounded memory. */
#include <stdint.h>
#include <stdlib.h>

#include "unit/index_use.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fl_index *ix = NULL;
    uint8_t *copy = malloc(size + 1);

    memcpy(copy, data, size);
    if (size >= sizeof(struct fl_index_header))
        index_reseal(copy, size);
    if (!fl_index_open_memory(&ix, copy, size, "fuzz.fli"))
        index_use(ix);
    fl_index_close(&ix);
    return 0;
}
