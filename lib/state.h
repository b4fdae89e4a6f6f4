/* SPDX-License-Identifier: Apache-2.0 */
/* A loader's saved state: a few dozen bytes, versioned and checksummed, little endian. */
#ifndef FL_STATE_H
#define FL_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fl_state {
    uint64_t dataset;  // fingerprint of the index
    uint64_t order;    // of shuffle, exclusions, number of positions
    uint64_t pipeline; // of the columns
    uint64_t seed;
    int64_t epoch,
        position;      // positions of the epoch that are behind the consumer, all ranks together
    int64_t bad, seen; // of this rank in the epoch so far
    uint32_t world, batch; // of the run that saved it; they may differ on restore
    /* since version 2 */
    uint64_t exclude;   // of the excluded samples alone; `order` covers them too
    int64_t n_excluded; // -1: not known, the state is of version 1
};

/* Bytes written, or FL_ERR(E2BIG). */
int fl_state_pack(const struct fl_state *st, void *buf, size_t size);

/* Takes version 1 too. 0; FL_ERR(EBADMSG): no state, damaged, or of a newer version; with a sentence. */
int fl_state_unpack(struct fl_state *st, const void *buf, size_t size);

/* 0, or FL_ERR(EINVAL) with a sentence that names what differs. */
int fl_state_compare(const struct fl_state *saved, const struct fl_state *now);

#endif
