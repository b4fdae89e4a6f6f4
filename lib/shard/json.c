/* SPDX-License-Identifier: Apache-2.0 */
#include "shard/json.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

void fl_json_fini(struct fl_json *j)
{
    free(j->text);
    *j = (struct fl_json){ 0 };
}

static void put(struct fl_json *j, const char *s, size_t n)
{
    if (j->failed)
        return;
    if (j->cap - j->len <= n) {
        const size_t cap = (j->cap + n + 1) * 2;
        char *text = realloc(j->text, cap);
        if (!text) {
            j->failed = true;
            return;
        }
        j->text = text;
        j->cap = cap;
    }
    memcpy(j->text + j->len, s, n);
    j->len += n;
    j->text[j->len] = 0;
}

static void puts_(struct fl_json *j, const char *s)
{
    put(j, s, strlen(s));
}

static void put_string(struct fl_json *j, const char *s)
{
    puts_(j, "\"");
    while (*s) {
        const unsigned char c = (unsigned char)*s;
        const size_t n = fl_utf8_len((const unsigned char *)s);
        char escape[8];

        if (c == '"' || c == '\\') {
            snprintf(escape, sizeof(escape), "\\%c", c);
            puts_(j, escape);
        } else if (c < 0x20 || c == 0x7F) {
            snprintf(escape, sizeof(escape), "\\u%04x", c);
            puts_(j, escape);
        } else if (!n) {
            puts_(j, "\xEF\xBF\xBD");
        } else {
            put(j, s, n);
        }
        s += n ? n : 1;
    }
    puts_(j, "\"");
}

/* Comma, line and indent before an item, then its key. */
static void item(struct fl_json *j, const char *key)
{
    if (j->depth) {
        if (!j->level[j->depth - 1].empty)
            puts_(j, ",");
        if (j->level[j->depth - 1].flat) {
            puts_(j, j->level[j->depth - 1].empty ? "" : " ");
        } else {
            puts_(j, "\n");
            for (int i = 0; i < j->depth; i++)
                puts_(j, "  ");
        }
        j->level[j->depth - 1].empty = false;
    }
    if (key) {
        put_string(j, key);
        puts_(j, ": ");
    }
}

void fl_json_begin(struct fl_json *j, const char *key, char bracket, bool flat)
{
    item(j, key);
    put(j, &bracket, 1);
    if (j->depth == FL_JSON_DEPTH) {
        j->failed = true;
        return;
    }
    const bool outer = j->depth && j->level[j->depth - 1].flat;
    j->level[j->depth].close = bracket == '{' ? '}' : ']';
    j->level[j->depth].flat = flat || outer;
    j->level[j->depth].empty = true;
    j->depth++;
}

void fl_json_end(struct fl_json *j)
{
    if (j->failed || !j->depth)
        return;
    j->depth--;
    if (!j->level[j->depth].flat && !j->level[j->depth].empty) {
        puts_(j, "\n");
        for (int i = 0; i < j->depth; i++)
            puts_(j, "  ");
    }
    put(j, &j->level[j->depth].close, 1);
    if (!j->depth)
        puts_(j, "\n");
}

void fl_json_string(struct fl_json *j, const char *key, const char *value)
{
    item(j, key);
    put_string(j, value);
}

void fl_json_int(struct fl_json *j, const char *key, int64_t value)
{
    char digits[32];

    snprintf(digits, sizeof(digits), "%" PRId64, value);
    item(j, key);
    puts_(j, digits);
}

void fl_json_uint(struct fl_json *j, const char *key, uint64_t value)
{
    char digits[32];

    snprintf(digits, sizeof(digits), "%" PRIu64, value);
    item(j, key);
    puts_(j, digits);
}

void fl_json_bool(struct fl_json *j, const char *key, bool value)
{
    item(j, key);
    puts_(j, value ? "true" : "false");
}
