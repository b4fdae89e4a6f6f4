/* SPDX-License-Identifier: Apache-2.0 */
#include "jpeg/engine.h"

#include <stdlib.h>
#include <string.h>

#include <jerror.h>

#include "jpeg/engine_memory.h"

void *fl_engine_alloc(struct fl_engine *e, size_t size)
{
    void *p = fl_arena_alloc(&e->arena, size);

    if (p)
        return p;
    if (e->arena.refused)
        fl_codec_fail(&e->codec, FL_ERR(E2BIG),
                      "the picture needs %zu bytes to be decoded, the limit is %zu (max_pixels)",
                      e->arena.refused, e->arena.limit);
    fl_codec_fail(&e->codec, FL_ERR(ENOMEM), "no memory for %zu bytes", size);
}

/* ---- bytes ---- */

static void start_source(j_decompress_ptr cinfo)
{
    (void)cinfo;
}

/* All bytes were there from the start, so the file is cut. An end marker makes the codec stop in bounded time. */
static boolean fill_input(j_decompress_ptr cinfo)
{
    static const JOCTET end[2] = { 0xFF, JPEG_EOI };

    cinfo->err->msg_code = JWRN_JPEG_EOF;
    cinfo->err->emit_message((j_common_ptr)cinfo, -1);
    cinfo->src->next_input_byte = end;
    cinfo->src->bytes_in_buffer = sizeof(end);
    return TRUE;
}

static void skip_input(j_decompress_ptr cinfo, long n)
{
    struct jpeg_source_mgr *src = cinfo->src;

    if (n <= 0)
        return;
    if ((size_t)n > src->bytes_in_buffer) {
        fill_input(cinfo);
        return;
    }
    src->next_input_byte += n;
    src->bytes_in_buffer -= (size_t)n;
}

size_t fl_engine_offset(const struct fl_engine *e, size_t len)
{
    return e->src.bytes_in_buffer < len ? len - e->src.bytes_in_buffer : 0;
}

/* ---- life ---- */

int fl_engine_init(struct fl_engine *e, size_t reserve, size_t limit)
{
    enum { permanent = 64 << 10 };
    int err;

    memset(e, 0, sizeof(*e));
    if ((err = fl_arena_init(&e->permanent, permanent, permanent)) ||
        (err = fl_arena_init(&e->arena, reserve, limit)))
        return err;
    e->cinfo.err = fl_codec_init(&e->codec);
    e->cinfo.client_data = e; // jpeg_create_decompress() keeps these two
    if (setjmp(e->codec.jump))
        return e->codec.code;
    jpeg_create_decompress(&e->cinfo);
    e->first_mem = e->cinfo.mem;
    fl_engine_memory(e);
    e->src = (struct jpeg_source_mgr){
        .init_source = start_source,
        .fill_input_buffer = fill_input,
        .skip_input_data = skip_input,
        .resync_to_restart = jpeg_resync_to_restart,
        .term_source = start_source,
    };
    return 0;
}

void fl_engine_fini(struct fl_engine *e)
{
    if (e->first_mem) {
        e->cinfo.mem = e->first_mem;
        jpeg_destroy_decompress(&e->cinfo);
    }
    fl_arena_fini(&e->permanent);
    fl_arena_fini(&e->arena);
}

void fl_engine_begin(struct fl_engine *e, const uint8_t *data, size_t len, bool tolerate,
                     int max_scans)
{
    e->src.next_input_byte = data;
    e->src.bytes_in_buffer = len;
    e->cinfo.src = &e->src;
    fl_codec_limit_scans(&e->codec, &e->cinfo, max_scans);
    e->codec.strict = !tolerate;
    e->codec.code = 0;
    e->arena.refused = 0;
}

void fl_engine_end(struct fl_engine *e)
{
    e->cinfo.mem = &e->mem;
    jpeg_abort_decompress(&e->cinfo);
}
