/* SPDX-License-Identifier: Apache-2.0 */
/* JSON to stdout or to another stream: two spaces a level. Strings come out as valid UTF-8; other bytes become U+FFFD. */
#ifndef FL_TOOLS_JSON_H
#define FL_TOOLS_JSON_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct json {
    FILE *to; // NULL: stdout
    int depth;
    bool filled; // the innermost list or object has an item
};

/* key NULL: an item of a list, or the outermost value. bracket is '{' or '['. */
void json_open(struct json *j, const char *key, char bracket);
void json_close(struct json *j, char bracket);
void json_string(struct json *j, const char *key, const char *value);
void json_int(struct json *j, const char *key, int64_t value);
void json_real(struct json *j, const char *key, double value);
void json_bool(struct json *j, const char *key, bool value);

/* As a string of `digits` hexadecimal digits: 64 bits do not fit in what most readers take for a number. */
void json_hex(struct json *j, const char *key, uint64_t value, int digits);

#endif
