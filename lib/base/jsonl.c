/* SPDX-License-Identifier: Apache-2.0 */
#include "base/jsonl.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

#define MAX_DEPTH 32

/* ---- writing ------------------------------------------------------------------------------------- */

static void put(struct fl_jsonl *j, const void *text, size_t n)
{
    if (!j->failed && fl_bytes_add(j->to, text, n))
        j->failed = true;
}

static void put_string(struct fl_jsonl *j, const char *text)
{
    const unsigned char *s = (const unsigned char *)text;
    char escape[8];

    put(j, "\"", 1);
    while (*s) {
        const size_t n = fl_utf8_len(s);
        if (!n)
            snprintf(escape, sizeof(escape), "\\udc%02x", *s);
        else if (*s == '"' || *s == '\\')
            snprintf(escape, sizeof(escape), "\\%c", *s);
        else if (*s < 0x20 || *s == 0x7F)
            snprintf(escape, sizeof(escape), "\\u%04x", *s);
        else
            escape[0] = 0;
        put(j, escape[0] ? escape : (const char *)s, escape[0] ? strlen(escape) : n);
        s += n ? n : 1;
    }
    put(j, "\"", 1);
}

static void name(struct fl_jsonl *j, const char *text)
{
    if (j->filled)
        put(j, ", ", 2);
    j->filled = true;
    put_string(j, text);
    put(j, ": ", 2);
}

void fl_jsonl_begin(struct fl_jsonl *j, struct fl_bytes *to)
{
    *j = (struct fl_jsonl){ .to = to, .start = to->len };
    put(j, "{", 1);
}

void fl_jsonl_string(struct fl_jsonl *j, const char *key, const char *value)
{
    name(j, key);
    put_string(j, value);
}

void fl_jsonl_int(struct fl_jsonl *j, const char *key, int64_t value)
{
    char digits[32];

    name(j, key);
    put(j, digits, (size_t)snprintf(digits, sizeof(digits), "%" PRId64, value));
}

void fl_jsonl_hex(struct fl_jsonl *j, const char *key, uint64_t value)
{
    char digits[32];

    name(j, key);
    put(j, digits, (size_t)snprintf(digits, sizeof(digits), "\"%016" PRIx64 "\"", value));
}

void fl_jsonl_open(struct fl_jsonl *j, const char *key)
{
    name(j, key);
    put(j, "{", 1);
    j->filled = false;
}

void fl_jsonl_close(struct fl_jsonl *j)
{
    put(j, "}", 1);
    j->filled = true;
}

int fl_jsonl_end(struct fl_jsonl *j)
{
    put(j, "}\n", 2);
    if (j->failed)
        j->to->len = j->start;
    return j->failed ? -1 : 0;
}

/* ---- reading ------------------------------------------------------------------------------------- */

static int blank(struct fl_jsonl_reader *r)
{
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\t' || *r->at == '\r'))
        r->at++;
    return r->at < r->end ? (unsigned char)*r->at : -1;
}

static int hex4(struct fl_jsonl_reader *r)
{
    int v = 0;

    if (r->end - r->at < 4)
        return -1;
    for (int i = 0; i < 4; i++) {
        const int c = (unsigned char)*r->at++;
        const int d = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                             : -1;
        if (d < 0)
            return -1;
        v = v << 4 | d;
    }
    return v;
}

/* The character of an escape, behind its backslash; -1: none. A byte that was escaped comes back as 0xDC00 and
 * the byte. */
static int32_t escape(struct fl_jsonl_reader *r)
{
    static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    const char *at = r->at < r->end && *r->at ? strchr(names, *r->at) : NULL;

    if (at) {
        r->at++;
        return values[at - names];
    }
    if (r->at == r->end || *r->at++ != 'u')
        return -1;
    const int32_t high = hex4(r);
    if (high < 0xD800 || high > 0xDBFF)
        return high;
    if (r->end - r->at < 6 || r->at[0] != '\\' || r->at[1] != 'u')
        return -1;
    r->at += 2;
    const int32_t low = hex4(r);
    return low < 0xDC00 || low > 0xDFFF ? -1 : 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
}

/* The bytes of a character. 0: it is none. */
static size_t encode(int32_t c, char out[4])
{
    if (c >= 0xDC80 && c <= 0xDCFF) {
        out[0] = (char)(c & 0xFF);
        return 1;
    }
    if (c <= 0 || (c >= 0xD800 && c <= 0xDFFF))
        return 0;
    const size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    if (n == 1) {
        out[0] = (char)c;
        return 1;
    }
    for (size_t i = n - 1; i > 0; i--, c >>= 6)
        out[i] = (char)(0x80 | (c & 0x3F));
    out[0] = (char)((0xF00 >> n) | c);
    return n;
}

/* A string into text; text NULL: stepped over. -1: damaged, or too long. */
static int string(struct fl_jsonl_reader *r, char *text, size_t room, size_t *len)
{
    char bytes[4];

    *len = 0;
    for (r->at++; r->at < r->end && *r->at != '"';) {
        size_t n = 1;
        bytes[0] = *r->at++;
        if ((unsigned char)bytes[0] < 0x20)
            return -1;
        if (bytes[0] == '\\' && !(n = encode(escape(r), bytes)))
            return -1;
        if (text && *len + n >= room)
            return -1;
        if (text)
            memcpy(text + *len, bytes, n);
        *len += n;
    }
    if (r->at == r->end)
        return -1;
    r->at++;
    if (text)
        text[*len] = 0;
    return 0;
}

/* A number, a word, a list or an object, to its end. */
static int step_over(struct fl_jsonl_reader *r)
{
    char stack[MAX_DEPTH];
    size_t len;
    int depth = 0;

    do {
        const int c = blank(r);
        if (c < 0)
            return -1;
        if (c == '"') {
            if (string(r, NULL, 0, &len))
                return -1;
            continue;
        }
        if (c == '{' || c == '[') {
            if (depth == MAX_DEPTH)
                return -1;
            stack[depth++] = c == '{' ? '}' : ']';
        } else if (c == '}' || c == ']') {
            if (!depth || stack[--depth] != c)
                return -1;
        } else if (!depth) { // a number or a word
            while (r->at < r->end && !strchr(",}] \t\r", *r->at))
                r->at++;
            return 0;
        }
        r->at++;
    } while (depth);
    return 0;
}

static int value(struct fl_jsonl_reader *r, struct fl_jsonl_item *item)
{
    const int c = blank(r);
    const char *from = r->at;
    int64_t v = 0;

    if (c == '"') {
        item->kind = FL_JSONL_STRING;
        return string(r, item->text, item->room, &item->len);
    }
    item->kind = FL_JSONL_OTHER;
    if (c < 0 || c == ',' || c == '}' || step_over(r))
        return -1;
    const char *digits = from + (*from == '-');
    if (digits == r->at || r->at - digits > 18)
        return 0;
    for (; digits < r->at && *digits >= '0' && *digits <= '9'; digits++)
        v = v * 10 + (*digits - '0');
    if (digits < r->at)
        return 0;
    item->kind = FL_JSONL_INT;
    item->number = *from == '-' ? -v : v;
    return 0;
}

int fl_jsonl_next(struct fl_jsonl_reader *r, struct fl_jsonl_item *item)
{
    size_t len;
    int c = blank(r);

    if (!r->begun && c != '{')
        return -1;
    if (c == '}') {
        r->at++;
        return blank(r) < 0 ? 0 : -1;
    }
    if (c != (r->begun ? ',' : '{'))
        return -1;
    r->at++;
    c = blank(r);
    if (c == '}' && !r->begun) {
        r->at++;
        return blank(r) < 0 ? 0 : -1;
    }
    r->begun = true;
    if (c != '"')
        return -1;
    const char *from = r->at;
    if (string(r, NULL, 0, &len))
        return -1;
    item->name[0] = 0;
    if (len < sizeof(item->name)) {
        r->at = from;
        (void)string(r, item->name, sizeof(item->name), &len);
    }
    if (blank(r) != ':')
        return -1;
    r->at++;
    return value(r, item) ? -1 : 1;
}
