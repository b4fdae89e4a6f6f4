/* SPDX-License-Identifier: Apache-2.0 */
#include "jpeg/arena.h"

#include <stdlib.h>
#include <string.h>

#include <feedline/error.h>

enum { ALIGN = 64, LEAST_CHUNK = 1 << 20 };

static int add_chunk(struct fl_arena *a, size_t size)
{
    if (a->n == FL_ARENA_CHUNKS || size > a->limit || a->held > a->limit - size) {
        a->refused = a->held + size;
        return FL_ERR(ENOMEM);
    }
    char *mem = aligned_alloc(ALIGN, size);
    if (!mem)
        return FL_ERR(ENOMEM);
    a->chunks[a->n++] = (struct fl_arena_chunk){ mem, size };
    a->held += size;
    return 0;
}

int fl_arena_init(struct fl_arena *a, size_t reserve, size_t limit)
{
    reserve = (reserve + ALIGN - 1) / ALIGN * ALIGN;
    *a = (struct fl_arena){ .limit = limit > reserve ? limit : reserve };
    const int err = add_chunk(a, reserve);
    if (!err)
        memset(a->chunks[0].mem, 0, reserve);
    return err;
}

void fl_arena_fini(struct fl_arena *a)
{
    for (unsigned i = 0; i < a->n; i++)
        free(a->chunks[i].mem);
    *a = (struct fl_arena){ 0 };
}

/* A chunk with room for size: the next one that is large enough, or a new one as large as all the others. */
static int advance(struct fl_arena *a, size_t size)
{
    while (a->current + 1 < a->n) {
        a->current++;
        a->used = 0;
        if (a->chunks[a->current].size >= size)
            return 0;
    }
    size_t want = size > LEAST_CHUNK ? size : LEAST_CHUNK;
    if (want < a->held && a->held <= a->limit - a->held)
        want = a->held;
    if (add_chunk(a, want) && (want == size || add_chunk(a, size)))
        return FL_ERR(ENOMEM);
    a->current = a->n - 1;
    a->used = 0;
    return 0;
}

void *fl_arena_alloc(struct fl_arena *a, size_t size)
{
    if (size > a->limit) {
        a->refused = size;
        return NULL;
    }
    size = (size + ALIGN - 1) / ALIGN * ALIGN;
    if (a->chunks[a->current].size - a->used < size && advance(a, size))
        return NULL;
    void *p = a->chunks[a->current].mem + a->used;
    a->used += size;
    return p;
}

void fl_arena_reset(struct fl_arena *a)
{
    const size_t keep = 4 * a->chunks[0].size;

    while (a->n > 1 && a->held > keep) {
        a->n--;
        a->held -= a->chunks[a->n].size;
        free(a->chunks[a->n].mem);
    }
    a->current = 0;
    a->used = 0;
}
