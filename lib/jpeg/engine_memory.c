/* SPDX-License-Identifier: Apache-2.0 */
#include "jpeg/engine_memory.h"

#include <string.h>

/* A whole picture's coefficients, for files with several scans. All of it stays in memory. */
struct jvirt_barray_control {
    JBLOCKARRAY rows;
    JDIMENSION blocks, n_rows;
    boolean clear;
    struct jvirt_barray_control *next;
};

/* libjpeg asks for whole pictures of samples only where two-pass quantisation is wanted, never here. */
struct jvirt_sarray_control {
    int unused;
};

static void *alloc(j_common_ptr cinfo, int pool, size_t size)
{
    struct fl_engine *e = cinfo->client_data;

    if (pool != JPOOL_PERMANENT)
        return fl_engine_alloc(e, size);
    void *p = fl_arena_alloc(&e->permanent, size);
    if (!p)
        fl_codec_fail(&e->codec, FL_ERR(ENOMEM), "the codec's tables need more than %zu bytes",
                      e->permanent.limit);
    return p;
}

/* Rows of one allocation; their length is a multiple of 64 bytes, as the SIMD code expects. */
static void *alloc_rows(j_common_ptr cinfo, int pool, size_t row_bytes, JDIMENSION n, void **rows)
{
    row_bytes = (row_bytes + 63) & ~(size_t)63;
    if (n && row_bytes > SIZE_MAX / 2 / n)
        fl_codec_fail((struct fl_codec *)cinfo->err, FL_ERR(E2BIG),
                      "the picture is too large (max_pixels)");
    char *mem = alloc(cinfo, pool, row_bytes * n);
    for (JDIMENSION i = 0; i < n; i++)
        rows[i] = mem + row_bytes * i;
    return rows;
}

static JSAMPARRAY alloc_sarray(j_common_ptr cinfo, int pool, JDIMENSION samples, JDIMENSION n)
{
    return alloc_rows(cinfo, pool, samples, n, alloc(cinfo, pool, n * sizeof(void *)));
}

static JBLOCKARRAY alloc_barray(j_common_ptr cinfo, int pool, JDIMENSION blocks, JDIMENSION n)
{
    return alloc_rows(cinfo, pool, (size_t)blocks * sizeof(JBLOCK), n,
                      alloc(cinfo, pool, n * sizeof(void *)));
}

static jvirt_sarray_ptr request_sarray(j_common_ptr cinfo, int pool, boolean clear,
                                       JDIMENSION samples, JDIMENSION n, JDIMENSION most)
{
    (void)pool, (void)clear, (void)samples, (void)n, (void)most;
    fl_codec_fail((struct fl_codec *)cinfo->err, FL_ERR(ENOTSUP),
                  "the codec wants a buffer it never needs");
}

static jvirt_barray_ptr request_barray(j_common_ptr cinfo, int pool, boolean clear,
                                       JDIMENSION blocks, JDIMENSION n, JDIMENSION most)
{
    struct fl_engine *e = cinfo->client_data;
    struct jvirt_barray_control *v = alloc(cinfo, pool, sizeof(*v));

    (void)most;
    *v = (struct jvirt_barray_control){
        .blocks = blocks, .n_rows = n, .clear = clear, .next = e->virtual_blocks
    };
    e->virtual_blocks = v;
    return v;
}

static void realize(j_common_ptr cinfo)
{
    struct fl_engine *e = cinfo->client_data;

    for (struct jvirt_barray_control *v = e->virtual_blocks; v; v = v->next) {
        v->rows = alloc_barray(cinfo, JPOOL_IMAGE, v->blocks, v->n_rows);
        for (JDIMENSION i = 0; v->clear && i < v->n_rows; i++)
            memset(v->rows[i], 0, (size_t)v->blocks * sizeof(JBLOCK));
    }
    e->virtual_blocks = NULL;
}

static JSAMPARRAY access_sarray(j_common_ptr cinfo, jvirt_sarray_ptr v, JDIMENSION start,
                                JDIMENSION n, boolean writable)
{
    (void)v, (void)start, (void)n, (void)writable;
    fl_codec_fail((struct fl_codec *)cinfo->err, FL_ERR(ENOTSUP),
                  "the codec wants a buffer it never needs");
}

static JBLOCKARRAY access_barray(j_common_ptr cinfo, jvirt_barray_ptr v, JDIMENSION start,
                                 JDIMENSION n, boolean writable)
{
    (void)writable;
    if (!v->rows || start > v->n_rows || n > v->n_rows - start)
        fl_codec_fail((struct fl_codec *)cinfo->err, FL_ERR(EBADMSG),
                      "blocks outside of the picture");
    return v->rows + start;
}

static void free_pool(j_common_ptr cinfo, int pool)
{
    struct fl_engine *e = cinfo->client_data;

    if (pool == JPOOL_PERMANENT)
        return;
    e->virtual_blocks = NULL;
    fl_arena_reset(&e->arena);
}

static void self_destruct(j_common_ptr cinfo)
{
    (void)cinfo; // fl_codec_fini() owns the arenas
}

void fl_engine_memory(struct fl_engine *e)
{
    e->mem = (struct jpeg_memory_mgr){
        .alloc_small = alloc,
        .alloc_large = alloc,
        .alloc_sarray = alloc_sarray,
        .alloc_barray = alloc_barray,
        .request_virt_sarray = request_sarray,
        .request_virt_barray = request_barray,
        .realize_virt_arrays = realize,
        .access_virt_sarray = access_sarray,
        .access_virt_barray = access_barray,
        .free_pool = free_pool,
        .self_destruct = self_destruct,
        .max_memory_to_use = e->first_mem->max_memory_to_use,
        .max_alloc_chunk = e->first_mem->max_alloc_chunk,
    };
    e->cinfo.mem = &e->mem;
}
