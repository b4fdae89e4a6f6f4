/* SPDX-License-Identifier: Apache-2.0 */
/* XXH3-64 and its low half, the checksum of fields and index blocks. */
#ifndef FL_BASE_HASH_H
#define FL_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

uint64_t fl_hash64(const void *data, size_t len, uint64_t seed);

/* Low 32 bits of XXH3-64 with seed 0. */
uint32_t fl_checksum32(const void *data, size_t len);

#endif
