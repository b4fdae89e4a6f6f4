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

static FILE *out(const struct json *j)
{
    return j->to ? j->to : stdout;
}

static void text(const struct json *j, const char *value)
{
    FILE *f = out(j);

    fputc('"', f);
    for (const unsigned char *s = (const unsigned char *)value; *s;) {
        const int n = utf8(s);
        if (!n)
            fputs("\\ufffd", f);
        else if (*s == '"' || *s == '\\')
            fprintf(f, "\\%c", *s);
        else if (*s < 0x20)
            fprintf(f, "\\u%04x", *s);
        else
            fwrite(s, 1, (size_t)n, f);
        s += n ? n : 1;
    }
    fputc('"', f);
}

static void begin(struct json *j, const char *key)
{
    if (j->depth)
        fprintf(out(j), "%s\n%*s", j->filled ? "," : "", 2 * j->depth, "");
    if (key) {
        text(j, key);
        fputs(": ", out(j));
    }
    j->filled = true;
}

void json_open(struct json *j, const char *key, char bracket)
{
    begin(j, key);
    fputc(bracket, out(j));
    j->depth++;
    j->filled = false;
}

void json_close(struct json *j, char bracket)
{
    j->depth--;
    if (j->filled)
        fprintf(out(j), "\n%*s", 2 * j->depth, "");
    fputc(bracket, out(j));
    if (!j->depth)
        fputc('\n', out(j));
    j->filled = true;
}

void json_string(struct json *j, const char *key, const char *value)
{
    begin(j, key);
    text(j, value);
}

void json_int(struct json *j, const char *key, int64_t value)
{
    begin(j, key);
    fprintf(out(j), "%" PRId64, value);
}

void json_real(struct json *j, const char *key, double value)
{
    begin(j, key);
    if (isfinite(value))
        fprintf(out(j), "%.6g", value);
    else
        fputs("null", out(j));
}

void json_bool(struct json *j, const char *key, bool value)
{
    begin(j, key);
    fputs(value ? "true" : "false", out(j));
}

void json_hex(struct json *j, const char *key, uint64_t value, int digits)
{
    begin(j, key);
    fprintf(out(j), "\"%0*" PRIx64 "\"", digits, value);
}
