/* SPDX-License-Identifier: Apache-2.0 */
/* Using every part of an index that may be damaged: for the unit test and the fuzz target. */
#ifndef FL_TESTS_INDEX_USE_H
#define FL_TESTS_INDEX_USE_H

#include <stddef.h>
#include <string.h>

#include <feedline/error.h>

#include "base/hash.h"
#include "index/index.h"

/* Use everything: with damaged bytes nothing but error codes may come of it. Returns 1 if anything failed. */
static inline int index_use(const struct fl_index *ix)
{
    const struct fl_index_info *info = fl_index_info(ix);
    int failed = 0;
    char text[5000];
    size_t len;
    int64_t bad, value;

    for (int64_t i = 0; i < info->n_samples && i < 64; i++) {
        for (int32_t f = 0; f < info->n_fields; f++) {
            struct fl_span span;
            struct fl_index_image image;
            if (fl_index_field(ix, f)->kind == FL_FIELD_INT)
                failed |= fl_index_int(ix, f, i, &value) == FL_ERR(EBADMSG);
            else
                failed |= fl_index_span(ix, f, i, &span) != 0;
            failed |= fl_index_image(ix, f, i, &image) != 0;
            failed |= fl_index_slices(ix, f, i, text, sizeof(text), &len) != 0;
            failed |= fl_index_entries(ix, f, i, text, sizeof(text), &len) != 0;
        }
        failed |= fl_index_key(ix, i, text, sizeof(text)) < 0;
    }
    for (uint32_t i = 0; i < info->n_containers && i < 16; i++)
        failed |= fl_index_container_path(ix, i, text, sizeof(text)) < 0;
    for (uint32_t i = 0; i < info->n_headers && i < 16; i++)
        failed |= fl_index_header(ix, i, text, sizeof(text), &len) != 0;
    for (int64_t i = 0; i < info->n_dirs && i < 16; i++) {
        struct fl_index_dir dir;
        failed |= fl_index_dir(ix, i, &dir, text, sizeof(text)) < 0;
    }
    for (int32_t i = 0; i < info->n_classes; i++)
        failed |= strlen(fl_index_class(ix, i)) > 4096;
    return failed | (fl_index_check(ix, &bad) != 0);
}

/* Make all checksums fit again, so that what is behind them is reached. */
static inline void index_reseal(uint8_t *bytes, size_t size)
{
    struct fl_index_header h;
    const size_t table = sizeof(h);

    memcpy(&h, bytes, sizeof(h));
    // The payload, block by block, as far as it lies in the file.
    for (uint64_t at = h.data, block = 0; at < size && size - at > 8 && h.payload <= size;
         block++) {
        uint64_t len = h.payload - block * FL_INDEX_PAYLOAD;
        if (block * FL_INDEX_PAYLOAD >= h.payload)
            break;
        if (len > FL_INDEX_PAYLOAD)
            len = FL_INDEX_PAYLOAD;
        if (at + len + 8 > size)
            break;
        const uint64_t sum = fl_hash64(bytes + at, len, block);
        memcpy(bytes + at + len, &sum, 8);
        at += len + 8;
    }
    const size_t head = table + h.n_sections * sizeof(struct fl_index_section);
    if (head > size)
        return;
    memset(bytes + offsetof(struct fl_index_header, checksum), 0, 8);
    const uint64_t sum = fl_hash64(bytes, head, 0);
    memcpy(bytes + offsetof(struct fl_index_header, checksum), &sum, 8);
}

#endif
