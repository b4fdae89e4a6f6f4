/* SPDX-License-Identifier: Apache-2.0 */
/* Options, messages and sizes. */
#define _DEFAULT_SOURCE // isatty, strtoll
#include "cli.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <feedline/error.h>

static void say(const char *command, const char *format, va_list ap)
{
    fprintf(stderr, "feedline %s: ", command);
    vfprintf(stderr, format, ap);
    fputc('\n', stderr);
}

int cli_wrong(const char *command, const char *format, ...)
{
    va_list ap;

    va_start(ap, format);
    say(command, format, ap);
    va_end(ap);
    return 2;
}

int cli_failed(const char *command, const char *format, ...)
{
    va_list ap;

    va_start(ap, format);
    say(command, format, ap);
    va_end(ap);
    return 1;
}

int cli_last_error(const char *command)
{
    return cli_failed(command, "%s", fl_last_error()->message);
}

void cli_log(void *command, FlLogLevel level, const char *text)
{
    if (level <= FL_LOG_WARNING)
        fprintf(stderr, "feedline %s: %s%s\n", (const char *)command,
                level == FL_LOG_WARNING ? "warning: " : "", text);
}

const char *cli_bytes(char buf[16], double bytes)
{
    static const char *const units[] = { "B", "KB", "MB", "GB", "TB", "PB" };
    size_t i = 0;

    while (bytes >= 999.5 && i + 1 < sizeof(units) / sizeof(units[0])) {
        bytes /= 1000;
        i++;
    }
    snprintf(buf, 16, "%.*f %s", i && bytes < 99.95 ? 1 : 0, bytes, units[i]);
    return buf;
}

const char *cli_count(char buf[32], int64_t n)
{
    char digits[32];
    const int length = snprintf(digits, sizeof(digits), "%" PRId64, n);
    char *to = buf;

    for (int i = 0; i < length; i++) {
        *to++ = digits[i];
        if (digits[i] != '-' && i + 1 < length && (length - i - 1) % 3 == 0)
            *to++ = ',';
    }
    *to = '\0';
    return buf;
}

static const char *argument_name(const struct cli_option *o)
{
    static const char *const names[] = { "", "N", "N", "SIZE", "N", "X", "TEXT", "", "" };
    return o->arg ? o->arg : names[o->kind];
}

static void help(const struct cli *cli)
{
    printf("usage: feedline %s %s\n\n%s\n", cli->command, cli->usage, cli->about);
    for (size_t i = 0; i < cli->n_options; i++) {
        const struct cli_option *o = &cli->options[i];
        char left[96];
        int n;

        if (o->kind == CLI_LABEL) {
            printf("\n%s\n", o->help);
            continue;
        }
        n = snprintf(left, sizeof(left), "--%s %s", o->name, argument_name(o));
        for (const struct cli_choice *c = o->choices; c && c->name && n < (int)sizeof(left); c++)
            n += snprintf(left + n, sizeof(left) - (size_t)n, "%s%s", c == o->choices ? "" : "|",
                          c->name);
        printf("  %-30s %s\n", left, o->help);
    }
}

static int wrong_value(const struct cli *cli, const struct cli_option *o, const char *text,
                       const char *wanted)
{
    return cli_wrong(cli->command, "--%s wants %s, not \"%s\"", o->name, wanted, text);
}

static int parse_whole(const struct cli *cli, const struct cli_option *o, const char *text)
{
    const bool bounded = o->min != 0 || o->max != 0;
    const int64_t low = bounded ? (int64_t)o->min : o->kind == CLI_INT ? INT32_MIN : INT64_MIN;
    const int64_t high = bounded ? (int64_t)o->max : o->kind == CLI_INT ? INT32_MAX : INT64_MAX;
    char *end, wanted[96];
    long long n;

    errno = 0;
    n = strtoll(text, &end, 10);
    if (end == text || *end || errno || n < low || n > high) {
        if (bounded)
            snprintf(wanted, sizeof(wanted), "a whole number from %" PRId64 " to %" PRId64, low,
                     high);
        return wrong_value(cli, o, text, bounded ? wanted : "a whole number");
    }
    if (o->kind == CLI_INT)
        *(int32_t *)o->value = (int32_t)n;
    else
        *(int64_t *)o->value = n;
    return 0;
}

static int parse_real(const struct cli *cli, const struct cli_option *o, const char *text)
{
    char *end, wanted[96];
    const double x = strtod(text, &end);

    if (end != text && !*end && isfinite(x) &&
        ((o->min == 0 && o->max == 0) || (x >= o->min && x <= o->max))) {
        *(double *)o->value = x;
        return 0;
    }
    snprintf(wanted, sizeof(wanted), "a number from %g to %g", o->min, o->max);
    return wrong_value(cli, o, text, o->max == 0 && o->min == 0 ? "a number" : wanted);
}

static int parse_seed(const struct cli *cli, const struct cli_option *o, const char *text)
{
    char *end;
    unsigned long long n;

    errno = 0;
    n = strtoull(text, &end, 0);
    if (end == text || *end || errno || strchr(text, '-'))
        return wrong_value(cli, o, text, "a whole number from 0 to 2^64 - 1");
    *(uint64_t *)o->value = n;
    return 0;
}

static int parse_size(const struct cli *cli, const struct cli_option *o, const char *text)
{
    static const char units[] = "KMGT";
    char *end;
    double x = strtod(text, &end);
    const char *unit = *end ? strchr(units, *end & ~0x20) : NULL;

    if (end != text && unit) {
        x *= (double)(UINT64_C(1) << 10 * (unit - units + 1));
        end++;
        if (!strcmp(end, "iB") || !strcmp(end, "B"))
            end += strlen(end);
    }
    if (end == text || *end || !(x >= 0) || x >= 9e18)
        return wrong_value(cli, o, text, "a size such as 4096, 64K, 256M or 1.5G");
    *(uint64_t *)o->value = (uint64_t)x;
    return 0;
}

static int parse_choice(const struct cli *cli, const struct cli_option *o, const char *text)
{
    char wanted[160] = "one of";
    size_t n = strlen(wanted);

    for (const struct cli_choice *c = o->choices; c->name; c++) {
        if (!strcmp(c->name, text)) {
            *(int *)o->value = c->value;
            return 0;
        }
        if (n < sizeof(wanted))
            n += (size_t)snprintf(wanted + n, sizeof(wanted) - n, "%s %s",
                                  c == o->choices ? "" : ",", c->name);
    }
    return wrong_value(cli, o, text, wanted);
}

static int parse_value(const struct cli *cli, const struct cli_option *o, const char *text)
{
    switch (o->kind) {
    case CLI_INT:
    case CLI_LONG:
        return parse_whole(cli, o, text);
    case CLI_SIZE:
        return parse_size(cli, o, text);
    case CLI_SEED:
        return parse_seed(cli, o, text);
    case CLI_REAL:
        return parse_real(cli, o, text);
    case CLI_CHOICE:
        return parse_choice(cli, o, text);
    case CLI_STRING:
        if (!*text)
            return wrong_value(cli, o, text, "a value");
        *(const char **)o->value = text;
        return 0;
    case CLI_FLAG:
    case CLI_LABEL:
        break;
    }
    return 0;
}

/* The option that `word` (behind its dashes, up to an equals sign) names, or NULL. */
static const struct cli_option *find(const struct cli *cli, const char *word, size_t length)
{
    for (size_t i = 0; i < cli->n_options; i++) {
        const struct cli_option *o = &cli->options[i];
        if (o->kind != CLI_LABEL && strlen(o->name) == length && !memcmp(o->name, word, length))
            return o;
    }
    return NULL;
}

/* One option at argv[*at], which moves on if the value is a word of its own. */
static int parse_option(const struct cli *cli, int argc, char **argv, int *at)
{
    const char *word = argv[*at] + 2, *equals = strchr(word, '=');
    const size_t length = equals ? (size_t)(equals - word) : strlen(word);
    const struct cli_option *o = find(cli, word, length);

    if (!o)
        return cli_wrong(cli->command, "there is no option %s; `feedline %s --help` lists them",
                         argv[*at], cli->command);
    if (o->given)
        *o->given = true;
    if (o->kind == CLI_FLAG) {
        if (equals)
            return cli_wrong(cli->command, "--%s takes no value", o->name);
        *(bool *)o->value = true;
        return 0;
    }
    if (!equals && *at + 1 >= argc)
        return cli_wrong(cli->command, "--%s needs a value", o->name);
    return parse_value(cli, o, equals ? equals + 1 : argv[++*at]);
}

int cli_parse(const struct cli *cli, int argc, char **argv)
{
    bool options = true;
    int n = 0;

    for (int i = 1; i < argc; i++) {
        if (options && !strcmp(argv[i], "--")) {
            options = false;
        } else if (options && (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h"))) {
            help(cli);
            return -1;
        } else if (options && argv[i][0] == '-' && argv[i][1]) {
            if (argv[i][1] != '-') {
                cli_wrong(cli->command, "there is no option %s; `feedline %s --help` lists them",
                          argv[i], cli->command);
                return -2;
            }
            if (parse_option(cli, argc, argv, &i))
                return -2;
        } else if (n < cli->max_args) {
            cli->args[n++] = argv[i];
        } else {
            cli_wrong(cli->command, "\"%s\" is one argument too many; usage: feedline %s %s",
                      argv[i], cli->command, cli->usage);
            return -2;
        }
    }
    if (n < cli->min_args) {
        cli_wrong(cli->command, "an argument is missing; usage: feedline %s %s", cli->command,
                  cli->usage);
        return -2;
    }
    return n;
}

int cli_exit(int parsed)
{
    return parsed == -1 ? 0 : 2;
}
