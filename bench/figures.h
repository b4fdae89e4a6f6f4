/* SPDX-License-Identifier: Apache-2.0 */
/* The figures of a benchmark as one JSON object, beside what it prints for people. */
#ifndef FL_BENCH_FIGURES_H
#define FL_BENCH_FIGURES_H

#include <stdio.h>

struct figures {
    FILE *to; // NULL: nobody asked
    int n;
};

static inline int figures_open(struct figures *f, const char *path)
{
    f->n = 0;
    f->to = path ? fopen(path, "we") : NULL;
    if (f->to)
        fputc('{', f->to);
    else if (path)
        perror(path);
    return path && !f->to;
}

/* name: of plain letters, digits and spaces. */
static inline void figures_add(struct figures *f, const char *name, double value)
{
    if (f->to)
        fprintf(f->to, "%s\n  \"%s\": %.6g", f->n++ ? "," : "", name, value);
}

static inline int figures_close(struct figures *f)
{
    if (!f->to)
        return 0;
    fputs("\n}\n", f->to);
    return fclose(f->to) != 0;
}

#endif
