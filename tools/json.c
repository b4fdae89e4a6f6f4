/* SPDX-License-Identifier: Apache-2.0 */
#include "json.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Bytes of the UTF-8 character at s, 0: there is none (RFC 3629). */
static int utf8(const unsigned char *s)
{
    if (s[0] < 0x80)
        return 1;
    if (s[0] >= 0xC2 && s[0] <= 0xDF)
        return (s[1] & 0xC0) == 0x80 ? 2 : 0;
    if ((s[0] & 0xF0) == 0xE0) {
        if ((s[1] & 0xC0) != 0x80 || (s[2] & 0xC0) != 0x80)
            return 0;
        if ((s[0] == 0xE0 && s[1] < 0xA0) || (s[0] == 0xED && s[1] > 0x9F)) // overlong; surrogates
            return 0;
        return 3;
    }
    if (s[0] >= 0xF0 && s[0] <= 0xF4) {
        if ((s[1] & 0xC0) != 0x80 || (s[2] & 0xC0) != 0x80 || (s[3] & 0xC0) != 0x80)
            return 0;
        if ((s[0] == 0xF0 && s[1] < 0x90) || (s[0] == 0xF4 && s[1] > 0x8F))
            return 0;
        return 4;
    }
    return 0;
}

static void text(const char *value)
{
    putchar('"');
    for (const unsigned char *s = (const unsigned char *)value; *s;) {
        const int n = utf8(s);
        if (!n)
            fputs("\\ufffd", stdout);
        else if (*s == '"' || *s == '\\')
            printf("\\%c", *s);
        else if (*s < 0x20)
            printf("\\u%04x", *s);
        else
            fwrite(s, 1, (size_t)n, stdout);
        s += n ? n : 1;
    }
    putchar('"');
}

static void begin(struct json *j, const char *key)
{
    if (j->depth)
        printf("%s\n%*s", j->filled ? "," : "", 2 * j->depth, "");
    if (key) {
        text(key);
        fputs(": ", stdout);
    }
    j->filled = true;
}

void json_open(struct json *j, const char *key, char bracket)
{
    begin(j, key);
    putchar(bracket);
    j->depth++;
    j->filled = false;
}

void json_close(struct json *j, char bracket)
{
    j->depth--;
    if (j->filled)
        printf("\n%*s", 2 * j->depth, "");
    putchar(bracket);
    if (!j->depth)
        putchar('\n');
    j->filled = true;
}

void json_string(struct json *j, const char *key, const char *value)
{
    begin(j, key);
    text(value);
}

void json_int(struct json *j, const char *key, int64_t value)
{
    begin(j, key);
    printf("%" PRId64, value);
}

void json_real(struct json *j, const char *key, double value)
{
    begin(j, key);
    if (isfinite(value))
        printf("%.6g", value);
    else
        fputs("null", stdout);
}

void json_bool(struct json *j, const char *key, bool value)
{
    begin(j, key);
    fputs(value ? "true" : "false", stdout);
}

void json_hex(struct json *j, const char *key, uint64_t value, int digits)
{
    begin(j, key);
    printf("\"%0*" PRIx64 "\"", digits, value);
}
