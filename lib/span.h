/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes in a container: the one thing that every format becomes. */
#ifndef FL_SPAN_H
#define FL_SPAN_H

#include <stdint.h>

#define FL_NO_CONTAINER UINT32_MAX

/* As stored in the index, 24 bytes, little endian. */
struct fl_span {
    uint64_t offset;    // bytes
    uint64_t length;    // bytes
    uint32_t container; // FL_NO_CONTAINER: the sample has no such field
    uint32_t checksum;  // low 32 bits of XXH3-64, where the section says that spans have one
};

#endif
