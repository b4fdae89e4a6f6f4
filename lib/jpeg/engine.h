/* SPDX-License-Identifier: Apache-2.0 */
/* A decompressor of libjpeg-turbo for one picture after another: errors come back by longjmp, memory comes
 * from an arena, bytes from memory. Nothing is printed, nothing allocated beyond the bound. Private to jpeg/. */
#ifndef FL_JPEG_ENGINE_H
#define FL_JPEG_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <jpeglib.h>

#include <feedline/error.h>

#include "jpeg/arena.h"
#include "jpeg/codec.h"

struct fl_engine {
    struct fl_codec codec;               // errors and warnings: first, so that cinfo.err leads here
    struct jpeg_decompress_struct cinfo; // client_data points back to this struct
    struct jpeg_source_mgr src;
    struct jpeg_memory_mgr mem;        // ours: cinfo.mem while decoding
    struct jpeg_memory_mgr *first_mem; // libjpeg's own: has what was made at open
    struct fl_arena permanent;         // tables that libjpeg keeps from one picture to the next
    struct fl_arena arena;             // all that ends with the picture
    struct jvirt_barray_control *virtual_blocks; // asked for, not yet realised
};

/* reserve and limit: of the arena, bytes. Returns 0; FL_ERR(ENOMEM). */
int fl_engine_init(struct fl_engine *e, size_t reserve, size_t limit);
void fl_engine_fini(struct fl_engine *e); // zeroed memory is fine

/* Ready for a picture at data. Call before setjmp(e->codec.jump). */
void fl_engine_begin(struct fl_engine *e, const uint8_t *data, size_t len, bool tolerate,
                     int max_scans);

/* Forget the picture; after success and after a jump alike. */
void fl_engine_end(struct fl_engine *e);

/* From the arena, or a jump. */
void *fl_engine_alloc(struct fl_engine *e, size_t size);

/* Byte of the data up to which the codec has read. */
size_t fl_engine_offset(const struct fl_engine *e, size_t len);

#endif
