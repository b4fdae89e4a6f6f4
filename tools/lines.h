/* SPDX-License-Identifier: Apache-2.0 */
/* A text file's lines: class lists. */
#ifndef FL_TOOLS_LINES_H
#define FL_TOOLS_LINES_H

#include <stddef.h>

struct lines {
    const char **lines; // without line ends; empty lines are left out
    size_t n;
    char *text;
};

/* 0, or -1: it cannot be read, or holds nothing. Free it in any case. */
int lines_read(struct lines *l, const char *path);
void lines_free(struct lines *l);

#endif
