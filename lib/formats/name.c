/* SPDX-License-Identifier: Apache-2.0 */
#include "formats/name.h"

#include <string.h>
#include <strings.h>

#include <feedline/error.h>

/* Where the last path part begins. */
static size_t base_of(const char *name, size_t len)
{
    while (len && name[len - 1] != '/')
        len--;
    return len;
}

int fl_name_split(const char *name, size_t len, size_t *key_len, char field[FL_FIELD_NAME_MAX])
{
    size_t dot = base_of(name, len);

    while (dot < len && name[dot] == '.')
        dot++; // dots that begin the last part belong to the key
    while (dot < len && name[dot] != '.')
        dot++;
    if (dot + 1 >= len) // no dot, or nothing behind it
        return FL_ERR(ENOENT);
    const size_t n = len - dot - 1;
    if (n >= FL_FIELD_NAME_MAX)
        return FL_ERR(E2BIG);
    for (size_t i = 0; i < n; i++) {
        const char c = name[dot + 1 + i];
        field[i] = c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
    }
    field[n] = 0;
    *key_len = dot;
    return 0;
}

static bool is(const char *part, size_t len, const char *name)
{
    return len == strlen(name) && !strncasecmp(part, name, len);
}

static bool part_is_sidecar(const char *part, size_t len)
{
    static const char *const names[] = { ".DS_Store",       "__MACOSX",    "Thumbs.db",
                                         "ehthumbs.db",     "desktop.ini", ".AppleDouble",
                                         ".Spotlight-V100", ".Trashes",    ".fseventsd",
                                         "@eaDir",          "Icon\r" };

    if (len > 2 && part[0] == '.' && part[1] == '_')
        return true; // resource fork of the file named behind it
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (is(part, len, names[i]))
            return true;
    return false;
}

bool fl_name_is_sidecar(const char *name, size_t len)
{
    for (size_t at = 0; at < len;) {
        const char *slash = memchr(name + at, '/', len - at);
        const size_t n = slash ? (size_t)(slash - name) - at : len - at;
        if (part_is_sidecar(name + at, n))
            return true;
        at += n + 1;
    }
    return false;
}

bool fl_name_is_meta(const char *name, size_t len)
{
    const char *slash = memchr(name, '/', len);
    const size_t n = slash ? (size_t)(slash - name) : len;

    return n >= 4 && !memcmp(name, "__", 2) && !memcmp(name + n - 2, "__", 2);
}

/* Is the part behind the field name's last dot one of these? */
static bool last_part_in(const char *field, const char *const *names, size_t n)
{
    const char *dot = strrchr(field, '.'), *part = dot ? dot + 1 : field;

    for (size_t i = 0; i < n; i++)
        if (!strcasecmp(part, names[i]))
            return true;
    return false;
}

bool fl_name_is_image(const char *field)
{
    static const char *const names[] = { "jpg", "jpeg", "jpe", "jfif", "png",  "ppm",
                                         "bmp", "pgm",  "tif", "tiff", "webp", "img" };

    return last_part_in(field, names, sizeof(names) / sizeof(names[0]));
}

bool fl_name_is_int(const char *field)
{
    static const char *const names[] = { "cls",   "cls2", "class", "label",
                                         "index", "inx",  "count", "id" };

    return last_part_in(field, names, sizeof(names) / sizeof(names[0]));
}

bool fl_parse_int(const void *data, size_t len, long long *value)
{
    const char *s = data;
    long long v = 0;
    size_t i = 0;

    if (len && s[len - 1] == '\n')
        len--;
    const bool minus = len && s[0] == '-';
    if (minus)
        i = 1;
    // Canonical only, so that the digits can be written again as they were: no "007", "-0" or "+1".
    if (i == len || len - i > 18 || (s[i] == '0' && (minus || len - i > 1)))
        return false;
    for (; i < len; i++) {
        if (s[i] < '0' || s[i] > '9')
            return false;
        v = v * 10 + (s[i] - '0');
    }
    *value = minus ? -v : v;
    return true;
}
