/* SPDX-License-Identifier: Apache-2.0 */
#include "jpeg/huffman.h"

#include <string.h>

#include <feedline/error.h>

void fl_huff_reset(struct fl_huff_set *set)
{
    for (int i = 0; i < 4; i++)
        set->dc[i].code.defined = set->ac[i].code.defined = false;
}

/* Raw entry of a symbol without the length of its code; 0 where 8-bit samples have no such thing. */
static uint32_t entry_of(unsigned symbol, bool ac)
{
    const unsigned run = symbol >> 4, extra = symbol & 15;

    if (!ac)
        return symbol <= 11 ? extra | FL_HUFF_RAW | extra << 16 : 0;
    if (extra > 10)
        return 0;
    if (extra == 0)
        return FL_HUFF_RAW | (run == 15 ? 16u : FL_HUFF_END) << 8;
    return extra | FL_HUFF_RAW | (run + 1) << 8 | extra << 16;
}

/* First level for one code of l bits whose raw entry is e (length included): `room` bits follow it. */
static uint32_t *fill(uint32_t *fast, uint32_t e, unsigned room, bool ac)
{
    const unsigned extra = FL_HUFF_EXTRA(e);
    const uint32_t step = e & 0xFF3F; // without value and FL_HUFF_RAW

    if (!ac || extra > room) {
        for (uint32_t i = 0; i < 1u << room; i++)
            *fast++ = e;
        return fast;
    }
    for (int32_t v = 0; v < 1 << extra; v++) {
        const int32_t value = extra && v < 1 << (extra - 1) ? v + 1 - (1 << extra) : v;
        for (uint32_t i = 0; i < 1u << (room - extra); i++)
            *fast++ = step | (uint32_t)value << 16;
    }
    return fast;
}

/* counts: codes of 1 to 16 bits. fast has 1 << bits entries. */
static int build(struct fl_huff *h, const uint8_t *counts, const uint8_t *symbols, bool ac,
                 uint32_t *fast, unsigned bits)
{
    uint32_t *const end = fast + (1u << bits);
    uint32_t code = 0, n = 0;

    h->defined = false;
    for (unsigned l = 1; l <= 16; l++) {
        h->first[l] = (int32_t)n - (int32_t)code;
        for (unsigned i = 0; i < counts[l - 1]; i++, code++, n++) {
            const uint32_t e = entry_of(symbols[n], ac);
            if (!e)
                return FL_ERR(ENOTSUP);
            if (code >> l)
                return FL_ERR(EBADMSG); // more codes than there are
            h->symbols[n] = e;
            if (l <= bits)
                fast = fill(fast, e + l, bits - l, ac);
        }
        h->limit[l] = code << (16 - l);
        code <<= 1;
    }
    while (fast < end)
        *fast++ = FL_HUFF_LONG;
    h->limit[17] = UINT32_MAX;
    h->defined = true;
    return 0;
}

int fl_huff_read(struct fl_huff_set *set, const uint8_t *p, size_t len)
{
    const uint8_t *const end = p + len;

    for (p += 2; end - p >= 17;) {
        const unsigned id = p[0] & 15, class = p[0] >> 4;
        unsigned n = 0;
        int err;
        for (int i = 1; i <= 16; i++)
            n += p[i];
        if (id > 3 || class > 1 || n > 256 || (size_t)(end - p) < 17 + n)
            return FL_ERR(EBADMSG);
        err =
            class ? build(&set->ac[id].code, p + 1, p + 17, true, set->ac[id].fast, FL_HUFF_AC_BITS)
                  : build(&set->dc[id].code, p + 1, p + 17, false, set->dc[id].fast,
                          FL_HUFF_DC_BITS);
        if (err)
            return err;
        p += 17 + n;
    }
    return p == end ? 0 : FL_ERR(EBADMSG);
}

uint32_t fl_huff_long(const struct fl_huff *h, uint64_t bits)
{
    const uint32_t window = (uint32_t)(bits >> 48);
    unsigned l = 1;

    while (window >= h->limit[l])
        l++;
    if (l > 16)
        return 0;
    return h->symbols[h->first[l] + (int32_t)(window >> (16 - l))] + l;
}
