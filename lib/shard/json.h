/* SPDX-License-Identifier: Apache-2.0 */
/* Writing readable JSON: two spaces a level, one item a line, but lists and objects begun as `inline`
 * stand on one line. Strings come out as valid UTF-8: bytes that are not become U+FFFD. */
#ifndef FL_SHARD_JSON_H
#define FL_SHARD_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FL_JSON_DEPTH 8

struct fl_json {
    char *text; // NUL-terminated, NULL while empty
    size_t len, cap;
    int depth;
    struct {
        char close;
        bool flat, empty;
    } level[FL_JSON_DEPTH];
    bool failed; // out of memory: everything after it is ignored
};

void fl_json_fini(struct fl_json *j);

/* `key` NULL: an item of a list, or the outermost value. bracket is '{' or '['. */
void fl_json_begin(struct fl_json *j, const char *key, char bracket, bool flat);
void fl_json_end(struct fl_json *j);
void fl_json_string(struct fl_json *j, const char *key, const char *value);
void fl_json_int(struct fl_json *j, const char *key, int64_t value);
void fl_json_uint(struct fl_json *j, const char *key, uint64_t value);
void fl_json_bool(struct fl_json *j, const char *key, bool value);

#endif
