/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of one decoder: handed out by moving a pointer, taken back all at once, bounded. One thread. */
#ifndef FL_JPEG_ARENA_H
#define FL_JPEG_ARENA_H

#include <stddef.h>

#define FL_ARENA_CHUNKS 40 // chunks double, so this many never run out

struct fl_arena_chunk {
    char *mem;
    size_t size;
};

struct fl_arena {
    struct fl_arena_chunk chunks[FL_ARENA_CHUNKS]; // [0] is the reserve
    unsigned n, current;
    size_t used;    // of the current chunk
    size_t held;    // all chunks
    size_t limit;   // held never exceeds it
    size_t refused; // bytes that the arena would have had to hold when it last said no; 0: never
};

/* Take the reserve, and touch it so that no page fault falls into a decode. Returns 0; FL_ERR(ENOMEM). */
int fl_arena_init(struct fl_arena *a, size_t reserve, size_t limit);
void fl_arena_fini(struct fl_arena *a); // zeroed memory is fine

/* 64-byte aligned, not cleared. NULL: the limit (a->refused says how much was wanted) or the system's. */
void *fl_arena_alloc(struct fl_arena *a, size_t size);

/* Take everything back. What an unusual picture needed beyond four times the reserve is given up. */
void fl_arena_reset(struct fl_arena *a);

#endif
