/* SPDX-License-Identifier: Apache-2.0 */
/* A test program's few words: T_EQ and friends print file, line, case and both values, and go on.
 * Exit code 0: pass, 1: fail, 77: skipped. */
#ifndef FL_TESTS_T_H
#define FL_TESTS_T_H

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int t_failures, t_checks;
static const char *t_name = "";

#define T_LEN(a) (sizeof(a) / sizeof((a)[0]))

static inline void t_case(const char *name)
{
    t_name = name;
}

static inline int t_report(int ok, const char *file, int line, const char *what)
{
    t_checks++;
    if (!ok) {
        t_failures++;
        fprintf(stderr, "%s:%d: [%s] %s", file, line, t_name, what);
    }
    return ok;
}

#define T_OK(cond)                                                                                 \
    do {                                                                                           \
        if (!t_report(!!(cond), __FILE__, __LINE__, #cond))                                        \
            fputc('\n', stderr);                                                                   \
    } while (0)

#define T_EQ(a, b)                                                                                 \
    do {                                                                                           \
        const int64_t a_ = (int64_t)(a), b_ = (int64_t)(b);                                        \
        if (!t_report(a_ == b_, __FILE__, __LINE__, #a " == " #b))                                 \
            fprintf(stderr, ": %" PRId64 " and %" PRId64 "\n", a_, b_);                            \
    } while (0)

#define T_STR(a, b)                                                                                \
    do {                                                                                           \
        const char *a_ = (a), *b_ = (b);                                                           \
        if (!t_report(a_ && b_ && !strcmp(a_, b_), __FILE__, __LINE__, #a " == " #b))              \
            fprintf(stderr, ": \"%s\" and \"%s\"\n", a_ ? a_ : "(null)", b_ ? b_ : "(null)");      \
    } while (0)

/* The haystack must hold the needle: for messages that have to name something. */
#define T_HAS(hay, needle)                                                                         \
    do {                                                                                           \
        const char *h_ = (hay), *n_ = (needle);                                                    \
        if (!t_report(strstr(h_, n_) != NULL, __FILE__, __LINE__, #hay " has " #needle))           \
            fprintf(stderr, ": \"%s\" lacks \"%s\"\n", h_, n_);                                    \
    } while (0)

#define T_SKIP(why)                                                                                \
    do {                                                                                           \
        printf("skipped: %s\n", why);                                                              \
        exit(77);                                                                                  \
    } while (0)

static inline int t_done(void)
{
    printf("%d checks, %d failed\n", t_checks, t_failures);
    return t_failures ? 1 : 0;
}

#endif
