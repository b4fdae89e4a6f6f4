/* SPDX-License-Identifier: Apache-2.0 */
#include "jpeg/exif.h"

#include <string.h>

/* TIFF 6.0: the tag, and the type that it should have. */
enum { TAG_ORIENTATION = 0x0112, TYPE_SHORT = 3, TYPE_LONG = 4 };

struct tiff {
    const uint8_t *data;
    size_t len;
    bool little;
};

static uint32_t get(const struct tiff *t, size_t at, int bytes)
{
    uint32_t v = 0;

    for (int i = 0; i < bytes; i++)
        v = v << 8 | t->data[at + (size_t)(t->little ? bytes - 1 - i : i)];
    return v;
}

int fl_exif_orientation(const uint8_t *data, size_t len)
{
    // "Exif\0\0", then a TIFF header of 8 bytes: order, 42, offset of the first directory.
    if (len < 14 || memcmp(data, "Exif\0", 6))
        return 1;
    struct tiff t = { .data = data + 6, .len = len - 6 };
    if (!memcmp(t.data, "II", 2))
        t.little = true;
    else if (memcmp(t.data, "MM", 2))
        return 1;
    if (get(&t, 2, 2) != 42)
        return 1;

    const uint32_t dir = get(&t, 4, 4);
    if (dir > t.len || t.len - dir < 2)
        return 1;
    const size_t entries = get(&t, dir, 2), room = (t.len - dir - 2) / 12;
    for (size_t i = 0; i < entries && i < room; i++) {
        const size_t at = dir + 2 + 12 * i;
        if (get(&t, at, 2) != TAG_ORIENTATION)
            continue;
        const uint32_t type = get(&t, at + 2, 2);
        if (type != TYPE_SHORT && type != TYPE_LONG)
            return 1;
        const uint32_t v = get(&t, at + 8, type == TYPE_SHORT ? 2 : 4);
        return v >= 1 && v <= 8 ? (int)v : 1;
    }
    return 1;
}

struct fl_orient fl_orient_of(int orientation)
{
    // What stands where in the stored picture: EXIF 2.3, table of the Orientation tag.
    static const struct fl_orient table[9] = {
        { false, false, false }, // no orientation
        { false, false, false }, // 1: upright
        { false, true, false },  // 2: mirrored left to right
        { false, true, true },   // 3: turned by half
        { false, false, true },  // 4: mirrored top to bottom
        { true, false, false },  // 5: transposed
        { true, false, true },   // 6: to be turned clockwise
        { true, true, true },    // 7: transposed across the other diagonal
        { true, true, false },   // 8: to be turned anticlockwise
    };
    return table[orientation >= 1 && orientation <= 8 ? orientation : 0];
}

void fl_orient_size(int orientation, int32_t *w, int32_t *h)
{
    const int32_t old = *w;

    if (!fl_orient_of(orientation).transpose)
        return;
    *w = *h;
    *h = old;
}

struct fl_rect fl_orient_box(int orientation, int32_t stored_w, int32_t stored_h,
                             struct fl_rect upright)
{
    const struct fl_orient o = fl_orient_of(orientation);
    struct fl_rect r = upright;

    if (o.transpose)
        r = (struct fl_rect){ upright.y, upright.x, upright.h, upright.w };
    if (o.mirror_u)
        r.x = stored_w - r.x - r.w;
    if (o.mirror_v)
        r.y = stored_h - r.y - r.h;
    return r;
}

struct fl_crop fl_orient_crop(int orientation, int32_t stored_w, int32_t stored_h,
                              struct fl_crop upright)
{
    struct fl_crop c = upright;

    fl_orient_size(orientation, &c.rw, &c.rh);
    c.box = fl_orient_box(orientation, stored_w, stored_h, upright.box);
    c.window = fl_orient_box(orientation, c.rw, c.rh, upright.window);
    return c;
}
