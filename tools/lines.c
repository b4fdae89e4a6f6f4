/* SPDX-License-Identifier: Apache-2.0 */
#include "lines.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_BYTES (64L << 20)

static char *read_text(const char *path)
{
    FILE *f = fopen(path, "rb");
    char *text = NULL;
    long size = -1;

    if (f && !fseek(f, 0, SEEK_END))
        size = ftell(f);
    if (size > 0 && size <= MAX_BYTES && !fseek(f, 0, SEEK_SET) &&
        (text = malloc((size_t)size + 1))) {
        text[fread(text, 1, (size_t)size, f)] = '\0';
        if (ferror(f)) {
            free(text);
            text = NULL;
        }
    }
    if (f)
        fclose(f);
    return text;
}

int lines_read(struct lines *l, const char *path)
{
    size_t n = 1;

    *l = (struct lines){ .text = read_text(path) };
    if (!l->text)
        return -1;
    for (const char *c = l->text; *c; c++)
        n += *c == '\n';
    if (!(l->lines = malloc(n * sizeof(*l->lines))))
        return -1;
    for (char *line = l->text, *end; line; line = end) {
        if ((end = strchr(line, '\n')))
            *end++ = '\0';
        const size_t len = strlen(line);
        if (len && line[len - 1] == '\r')
            line[len - 1] = '\0';
        if (*line)
            l->lines[l->n++] = line;
    }
    return l->n ? 0 : -1;
}

void lines_free(struct lines *l)
{
    free(l->lines);
    free(l->text);
    *l = (struct lines){ 0 };
}
