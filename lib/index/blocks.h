/* SPDX-License-Identifier: Apache-2.0 */
/* The payload of an index: checked blocks in a cache of bounded size.
 *
 * Where the cache holds the whole payload every block has its own frame, which is never evicted: a
 * hit is one acquire load. Otherwise frames form sets of FL_BLOCK_WAYS; a hit pins its frame by one
 * compare-and-swap while it copies, and a miss evicts an unpinned frame under the set's lock. */
#ifndef FL_INDEX_BLOCKS_H
#define FL_INDEX_BLOCKS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FL_BLOCK_WAYS 8
#define FL_BLOCK_LOCKS 64

struct fl_blocks {
    int fd;                 // -1: the index is in memory
    const char *name;       // for messages; owned by the index
    uint64_t data, payload; // as in the header
    uint64_t n_blocks;
    bool resident;       // every block has its own frame
    uint8_t *frames;     // FL_INDEX_BLOCK bytes each
    size_t frames_bytes; // mapped; 0: frames belong to the memory index
    uint64_t n_frames;
    _Atomic uint64_t
        *tags; // resident: 1 = checked; else (block + 1) << 17 | referenced << 16 | pins
    pthread_mutex_t locks[FL_BLOCK_LOCKS];
    int n_locks; // initialised
};

/* data and payload were checked against the size of the file. cache_bytes as fl_index_open(). */
int fl_blocks_init(struct fl_blocks *b, int fd, uint8_t *memory, const char *name, uint64_t data,
                   uint64_t payload, uint64_t cache_bytes);
void fl_blocks_fini(struct fl_blocks *b);

/* Copy `len` bytes at logical offset `offset`, which must lie in the payload. Any thread. */
int fl_blocks_read(struct fl_blocks *b, uint64_t offset, void *to, size_t len);

/* Read and check one block from the file, past the cache; `frame` has room for FL_INDEX_BLOCK
 * bytes. */
int fl_blocks_check(const struct fl_blocks *b, uint64_t block, uint8_t *frame);

/* pread until `len` bytes are there. 0; FL_ERR(EBADMSG): the file ends early; FL_ERR(EIO). `name`
 * is for the message. */
int fl_pread_all(int fd, void *to, size_t len, uint64_t offset, const char *name);

#endif
