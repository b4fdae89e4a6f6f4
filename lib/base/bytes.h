/* SPDX-License-Identifier: Apache-2.0 */
/* A byte array that grows; for what is made before or beside the hot path. Zeroed memory is an
 * empty one. */
#ifndef FL_BASE_BYTES_H
#define FL_BASE_BYTES_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct fl_bytes {
    uint8_t *data;
    size_t len, cap;
};

/* Room for `n` bytes more at data + len, which len does not count yet. NULL: out of memory, nothing
 * changed. */
static inline void *fl_bytes_room(struct fl_bytes *b, size_t n)
{
    if (n > b->cap - b->len) {
        size_t cap = b->cap + b->cap / 2 + 256;
        if (n > SIZE_MAX / 2 - b->len)
            return NULL;
        if (cap < b->len + n)
            cap = b->len + n;
        uint8_t *data = realloc(b->data, cap);
        if (!data)
            return NULL;
        b->data = data;
        b->cap = cap;
    }
    return b->data + b->len;
}

/* Append; returns 0 or -1 when out of memory. */
static inline int fl_bytes_add(struct fl_bytes *b, const void *data, size_t n)
{
    void *to = n ? fl_bytes_room(b, n) : NULL;

    if (!n)
        return 0;
    if (!to)
        return -1;
    memcpy(to, data, n);
    b->len += n;
    return 0;
}

/* Append `n` items made of the same `size` bytes. */
static inline int fl_bytes_fill(struct fl_bytes *b, const void *item, size_t size, size_t n)
{
    if (!n)
        return 0;
    if (n > SIZE_MAX / 2 / size || !fl_bytes_room(b, n * size))
        return -1;
    for (size_t i = 0; i < n; i++, b->len += size)
        memcpy(b->data + b->len, item, size);
    return 0;
}

static inline void fl_bytes_free(struct fl_bytes *b)
{
    free(b->data);
    *b = (struct fl_bytes){ 0 };
}

#endif
