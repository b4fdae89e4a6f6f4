/* SPDX-License-Identifier: Apache-2.0 */
/* Granules: aligned pieces of containers, read whole and kept while there is room, so that an order that stays in a
 * neighbourhood for a while (FL_SHUFFLE_BLOCK) reads long pieces once instead of many short ones.
 *
 * A granule is an extent with one holder more. Granules stand in the order of their memory in the ring, so that the
 * oldest, which the order has left behind, are the first to go; they go when a sample finds no room, not before. */
#define _GNU_SOURCE
#include "read_state.h"

#include <errno.h>
#include <stdlib.h>

#include "base/err.h"

static uint32_t table_size(const struct fl_read_cfg *c)
{
    uint32_t n = 64;

    while (c->around && n < 65536 && n < 2 * (c->bytes / c->around))
        n *= 2;
    return c->around ? n : 0;
}

uint64_t fl_granule_bytes(const struct fl_read_cfg *c)
{
    return table_size(c) * (sizeof(struct fl_granule) + 2 * sizeof(uint32_t));
}

int fl_granule_open(struct fl_read *r)
{
    r->n_granules = table_size(&r->cfg);
    if (!r->n_granules)
        return 0;
    r->granules = calloc(r->n_granules, sizeof(*r->granules));
    r->granule_buckets = calloc(2 * r->n_granules, sizeof(*r->granule_buckets));
    if (r->granules && r->granule_buckets)
        return 0;
    return fl_err(FL_ERR(ENOMEM), FL_STAGE_READ, "no memory for the table of pieces kept");
}

void fl_granule_close(struct fl_read *r)
{
    free(r->granules);
    free(r->granule_buckets);
}

static uint32_t *bucket_of(const struct fl_read *r, uint32_t container, uint64_t index)
{
    const uint64_t h = (index * 0x9E3779B97F4A7C15u) ^ ((uint64_t)container * 0xC2B2AE3D27D4EB4Fu);

    return &r->granule_buckets[(h >> 32) & (2 * r->n_granules - 1)];
}

static struct fl_granule *find(const struct fl_read *r, uint32_t container, uint64_t index)
{
    for (uint32_t i = *bucket_of(r, container, index); i; i = r->granules[i - 1].hash_next) {
        struct fl_granule *g = &r->granules[i - 1];
        if (g->container == container && g->index == index)
            return g;
    }
    return NULL;
}

/* Nobody finds it any more; its place in the ring is given back in order. */
static void unlink_granule(struct fl_read *r, struct fl_granule *g)
{
    uint32_t *link = bucket_of(r, g->container, g->index);
    const uint32_t self = (uint32_t)(g - r->granules) + 1;

    while (*link != self)
        link = &r->granules[*link - 1].hash_next;
    *link = g->hash_next;
    g->extent->granule = NULL;
    g->extent = NULL;
}

static void let_go(struct fl_read *r, struct fl_granule *g)
{
    struct fl_block *b = g->extent->block;

    unlink_granule(r, g);
    fl_block_put(b);
}

static void let_oldest_go(struct fl_read *r)
{
    struct fl_granule *g = &r->granules[r->first_granule];

    if (g->extent)
        let_go(r, g);
    r->first_granule = (r->first_granule + 1) & (r->n_granules - 1);
    r->used_granules--;
}

static struct fl_granule *add(struct fl_read *r, uint32_t container, uint64_t index,
                              struct fl_extent *x)
{
    struct fl_granule *g =
        &r->granules[(r->first_granule + r->used_granules) & (r->n_granules - 1)];
    uint32_t *bucket = bucket_of(r, container, index);

    *g = (struct fl_granule){
        .container = container, .index = index, .extent = x, .hash_next = *bucket
    };
    *bucket = (uint32_t)(g - r->granules) + 1;
    r->used_granules++;
    x->granule = g;
    fl_block_get(x->block);
    atomic_store_explicit(&x->block->kept, true,
                          memory_order_relaxed); // before anybody else has the block
    return g;
}

static bool make(struct fl_read *r, struct fl_read_undo *u, struct fl_file *file, uint64_t index)
{
    const uint64_t start = index * r->cfg.around,
                   size = (file->size + file->align - 1) / file->align * file->align;
    const uint64_t end = start + r->cfg.around < size ? start + r->cfg.around : size;

    if (r->used_granules == r->n_granules)
        return false;
    struct fl_extent *x = fl_extent_new(r, file, start, end);
    if (!x)
        return false;
    add(r, file->container, index, x);
    fl_extent_set_aside(u, x);
    return true;
}

int fl_granule_place(struct fl_read *r, struct fl_read_undo *u, struct fl_file *file,
                     struct fl_read_req *req, bool *waits)
{
    const uint64_t around = r->cfg.around;
    const uint64_t index = around ? req->offset / around : 0;

    if (!around || req->length > around / 2 || (req->offset + req->length - 1) / around != index)
        return 0;
    struct fl_granule *g = find(r, req->container, index);
    if (g) {
        fl_files_put(&r->files, file); // the granule has its own hold as long as it needs it
    } else {
        if (!make(r, u, file, index))
            return -EAGAIN;
        g = find(r, req->container, index);
    }
    struct fl_extent *x = g->extent;
    u->joined[u->n_joined].extent = x;
    u->joined[u->n_joined++].reqs_end = x->finished ? NULL : x->reqs_end;
    *waits = !x->finished;
    fl_extent_attach(x, req);
    if (x->finished) { // served at once: the list is over
        x->reqs = NULL;
        x->reqs_end = &x->reqs;
    }
    return 1;
}

void fl_granule_undo(struct fl_read *r, struct fl_read_undo *u)
{
    while (u->n_joined) {
        struct fl_extent *x = u->joined[--u->n_joined].extent;
        struct fl_read_req **end = u->joined[u->n_joined].reqs_end;
        x->n_reqs--;
        fl_block_put(x->block);
        if (end) {
            x->reqs_end = end;
            *end = NULL;
        }
    }
    while (r->used_granules >
           u->used_granules) { // made by this plan; the ring forgets their memory
        const uint32_t last = (r->first_granule + r->used_granules - 1) & (r->n_granules - 1);
        unlink_granule(r, &r->granules[last]);
        r->used_granules--;
    }
}

bool fl_granule_shed(struct fl_read *r)
{
    bool any = false;

    if (r->n_granules && r->used_granules == r->n_granules) {
        let_oldest_go(r);
        any = true;
    }
    for (struct fl_block *b; r->n_granules && (b = fl_ring_tail(&r->arena));) {
        const struct fl_extent *x = &r->extents[fl_block_index(&r->arena, b)];
        // A holder beside us will leave, and wakes us then (fl_block_put).
        if (!x->granule || !x->finished || atomic_load(&b->refs) != 1)
            return any;
        let_go(r, x->granule);
        while (r->used_granules && !r->granules[r->first_granule].extent)
            let_oldest_go(r);
        fl_ring_reclaim(&r->arena);
        any = true;
    }
    return any;
}

void fl_granule_flawed(struct fl_read *r, struct fl_extent *x)
{
    if (x->granule)
        let_go(r, x->granule);
}

void fl_granule_finished(struct fl_extent *x)
{
    x->finished = true;
    x->reqs = NULL;
    x->reqs_end = &x->reqs;
}
