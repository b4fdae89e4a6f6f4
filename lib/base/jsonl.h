/* SPDX-License-Identifier: Apache-2.0 */
/* JSON objects on one line each ("JSON lines"): what report files and lists of bad samples are made of.
 *
 * Strings are bytes here. What is not UTF-8 is written as the lone surrogates U+DC80 to U+DCFF, one for each byte, as
 * Python's "surrogateescape" does, and read back as the bytes that it was. */
#ifndef FL_BASE_JSONL_H
#define FL_BASE_JSONL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"

/* ---- writing: begin, members, end ---------------------------------------------------------------- */

struct fl_jsonl {
    struct fl_bytes *to;
    size_t start; // of this line
    bool filled;  // the innermost object has a member
    bool failed;  // out of memory
};

void fl_jsonl_begin(struct fl_jsonl *j, struct fl_bytes *to);
void fl_jsonl_string(struct fl_jsonl *j, const char *name, const char *value);
void fl_jsonl_int(struct fl_jsonl *j, const char *name, int64_t value);
void fl_jsonl_hex(struct fl_jsonl *j, const char *name, uint64_t value); // 16 digits, as a string
void fl_jsonl_open(struct fl_jsonl *j, const char *name);                // an object inside
void fl_jsonl_close(struct fl_jsonl *j);

/* Ends the line. 0, or -1: out of memory, and `to` is as long as it was before. */
int fl_jsonl_end(struct fl_jsonl *j);

/* ---- reading ------------------------------------------------------------------------------------- */

enum fl_jsonl_kind { FL_JSONL_STRING, FL_JSONL_INT, FL_JSONL_OTHER };

struct fl_jsonl_reader {
    const char *at, *end;
    bool begun;
};

/* One member of the outermost object. Objects, lists, other numbers, true, false and null are OTHER: stepped
 * over. */
struct fl_jsonl_item {
    char name[32]; // "" if it is longer
    enum fl_jsonl_kind kind;
    char *text; // FL_JSONL_STRING: the caller's room, NUL-terminated
    size_t room, len;
    int64_t number; // FL_JSONL_INT
};

/* The next member of the line that the reader stands in. 1: *item is filled; 0: the object has ended, and nothing
 * but blanks follows; -1: this is no such line, or a string has a NUL in it or does not fit. */
int fl_jsonl_next(struct fl_jsonl_reader *r, struct fl_jsonl_item *item);

#endif
