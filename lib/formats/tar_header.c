/* SPDX-License-Identifier: Apache-2.0 */
#include "formats/tar_header.h"

#include <string.h>

#include <feedline/error.h>

/* Places in a header block (POSIX.1-2017, pax, "ustar Interchange Format"). */
enum {
    NAME = 0,
    NAME_LEN = 100,
    SIZE = 124,
    SIZE_LEN = 12,
    CHECKSUM = 148,
    CHECKSUM_LEN = 8,
    TYPE = 156,
    MAGIC = 257,
    PREFIX = 345,
    PREFIX_LEN = 155,
};

bool fl_tar_is_zero(const uint8_t block[FL_TAR_BLOCK])
{
    for (size_t i = 0; i < FL_TAR_BLOCK; i++)
        if (block[i])
            return false;
    return true;
}

/* Big-endian two's complement; the first byte's highest bit only marks it. */
static int base256(const uint8_t *field, size_t len, uint64_t *value)
{
    uint64_t v = field[0] & 0x7F;

    if (field[0] & 0x40)
        return FL_ERR(ERANGE); // negative
    for (size_t i = 1; i < len; i++) {
        if (v >> 55) // the next shift would leave 63 bits
            return FL_ERR(ERANGE);
        v = v << 8 | field[i];
    }
    *value = v;
    return 0;
}

int fl_tar_number(const uint8_t *field, size_t len, uint64_t *value)
{
    uint64_t v = 0;
    size_t i = 0;

    if (field[0] & 0x80)
        return base256(field, len, value);
    while (i < len && field[i] == ' ')
        i++;
    for (; i < len && field[i] >= '0' && field[i] <= '7'; i++) {
        if (v >> 60)
            return FL_ERR(ERANGE);
        v = v << 3 | (uint64_t)(field[i] - '0');
    }
    if (i < len && field[i] != ' ' && field[i] != 0)
        return FL_ERR(EBADMSG);
    *value = v;
    return 0;
}

/* The sum of all bytes with the checksum field as spaces; some old writers summed signed bytes. */
static bool checksum_fits(const uint8_t *block)
{
    uint64_t stored;
    int64_t plain = 0, with_sign = 0;

    if (fl_tar_number(block + CHECKSUM, CHECKSUM_LEN, &stored))
        return false;
    for (size_t i = 0; i < FL_TAR_BLOCK; i++) {
        const bool own = i >= CHECKSUM && i < CHECKSUM + CHECKSUM_LEN;
        plain += own ? ' ' : block[i];
        with_sign += own ? ' ' : (int8_t)block[i];
    }
    return (int64_t)stored == plain || (int64_t)stored == with_sign;
}

static size_t text_len(const uint8_t *field, size_t len)
{
    const uint8_t *end = memchr(field, 0, len);

    return end ? (size_t)(end - field) : len;
}

int fl_tar_parse(const uint8_t block[FL_TAR_BLOCK], struct fl_tar_header *h, const char **why)
{
    size_t prefix = 0;

    if (!checksum_fits(block)) {
        *why = "its checksum does not fit: it is no tar header";
        return FL_ERR(EBADMSG);
    }
    if (fl_tar_number(block + SIZE, SIZE_LEN, &h->size)) {
        *why = "its size field holds no number that a size can be";
        return FL_ERR(EBADMSG);
    }
    // Only POSIX has a prefix: GNU archives ("ustar  ") keep times at its place.
    if (!memcmp(block + MAGIC, "ustar", 6))
        prefix = text_len(block + PREFIX, PREFIX_LEN);
    memcpy(h->name, block + PREFIX, prefix);
    if (prefix)
        h->name[prefix++] = '/';
    const size_t len = text_len(block + NAME, NAME_LEN);
    memcpy(h->name + prefix, block + NAME, len);
    h->name_len = prefix + len;
    h->name[h->name_len] = 0;
    h->type = block[TYPE] ? (char)block[TYPE] : '0';
    if (h->type == '7')
        h->type = '0'; // contiguous file: a regular one
    if (h->type == '0' && len && block[NAME + len - 1] == '/')
        h->type = '5'; // v7 has no type for directories
    return 0;
}

/* Decimal digits up to `end`; false if there is anything else or it is too large. */
static bool decimal(const uint8_t *s, const uint8_t *end, uint64_t *value)
{
    uint64_t v = 0;

    if (s == end)
        return false;
    for (; s < end; s++) {
        if (*s < '0' || *s > '9' || v > (uint64_t)(INT64_MAX - (*s - '0')) / 10)
            return false;
        v = v * 10 + (uint64_t)(*s - '0');
    }
    *value = v;
    return true;
}

static bool is_key(const uint8_t *key, size_t len, const char *name)
{
    return len == strlen(name) && !memcmp(key, name, len);
}

/* One record's key and value. */
static int take(const uint8_t *key, size_t key_len, const uint8_t *value, size_t len,
                struct fl_tar_ext *ext, const char **why)
{
    const bool sparse_name = is_key(key, key_len, "GNU.sparse.name");

    if (key_len > 11 && !memcmp(key, "GNU.sparse.", 11))
        ext->sparse = true;
    if (is_key(key, key_len, "SCHILY.filetype") && len == 6 && !memcmp(value, "sparse", 6))
        ext->sparse = true;
    if (is_key(key, key_len, "path") || sparse_name) {
        if (len >= sizeof(ext->name)) {
            *why = "its pax header holds a name longer than 4,095 bytes";
            return FL_ERR(EBADMSG);
        }
        if (memchr(value, 0, len)) {
            *why = "its pax header holds a name with a zero byte";
            return FL_ERR(EBADMSG);
        }
        memcpy(ext->name, value, len);
        ext->name[len] = 0;
        ext->name_len = len;
        ext->has_name = len > 0; // an empty value takes the record back
    } else if (is_key(key, key_len, "size")) {
        ext->has_size = len > 0;
        if (len && !decimal(value, value + len, &ext->size)) {
            *why = "its pax header holds a size that is no number";
            return FL_ERR(EBADMSG);
        }
    }
    return 0;
}

int fl_tar_pax(const uint8_t *records, size_t len, struct fl_tar_ext *ext, const char **why)
{
    const uint8_t *p = records, *const end = records + len;

    while (p < end) {
        const uint8_t *space = memchr(p, ' ', (size_t)(end - p));
        uint64_t n;
        if (!*p && !space)
            break; // padding that some writers count in
        // The number counts itself, the space and the line end.
        if (!space || !decimal(p, space, &n) || n > (uint64_t)(end - p) ||
            n < (uint64_t)(space - p) + 3 || p[n - 1] != '\n') {
            *why = "its pax header is malformed";
            return FL_ERR(EBADMSG);
        }
        const uint8_t *key = space + 1, *const stop = p + n - 1;
        const uint8_t *equals = memchr(key, '=', (size_t)(stop - key));
        if (!equals) {
            *why = "its pax header is malformed";
            return FL_ERR(EBADMSG);
        }
        const int err =
            take(key, (size_t)(equals - key), equals + 1, (size_t)(stop - equals - 1), ext, why);
        if (err)
            return err;
        p += n;
    }
    return 0;
}
