/* SPDX-License-Identifier: Apache-2.0 */
/* What all sub-commands share: options, sizes, messages, the progress bar. */
#ifndef FL_TOOLS_CLI_H
#define FL_TOOLS_CLI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <feedline/log.h>

enum cli_kind {
    CLI_FLAG,   // bool: true if given
    CLI_INT,    // int32_t
    CLI_LONG,   // int64_t
    CLI_SIZE,   // uint64_t, bytes: 64, 64K, 64M, 1.5G, 64KiB (all powers of 1,024)
    CLI_SEED,   // uint64_t
    CLI_REAL,   // double
    CLI_STRING, // const char *
    CLI_CHOICE, // int: the value that belongs to one of `choices`
    CLI_LABEL,  // no option: a headline in the help
};

struct cli_choice {
    const char *name; // NULL ends the list
    int value;
};

struct cli_option {
    const char *name; // without the dashes
    enum cli_kind kind;
    void *value;      // keeps what it holds if the option is not given
    const char *arg;  // what the help calls the value; NULL: by the kind
    const char *help; // one line
    double min, max;  // of CLI_INT, CLI_LONG, CLI_REAL; both 0: no bounds but the type's
    const struct cli_choice *choices;
    bool *given; // set if the option stands on the line; may be NULL
};

/* A row of an option table; members beyond these four follow by name. */
#define CLI_OPTION(NAME, KIND, VALUE, HELP, ...)                                                   \
    {                                                                                              \
        .name = NAME, .kind = KIND, .value = VALUE, .help = HELP, __VA_ARGS__                      \
    }

struct cli {
    const char *command; // "bench"
    const char *usage;   // what follows the command, "DATASET [OPTION ...]"
    const char *about;   // a sentence or two, each line at most 90 bytes
    const struct cli_option *options;
    size_t n_options;
    const char **args; // receives what is no option, in order
    int min_args, max_args;
};

/* Read the line. Options may stand anywhere, as `--name value` or `--name=value`; `--` ends them.
 * Returns the number of arguments that are no options (>= 0), or -1 after --help was answered (exit
 * with 0), or -2 after one sentence about what is wrong was printed (exit with 2): cli_exit() makes
 * the exit code of both. */
int cli_parse(const struct cli *cli, int argc, char **argv);
int cli_exit(int parsed);

/* Print "feedline COMMAND: ..." on stderr. Returns 2 for a wrong command line and 1 for work that failed. */
int cli_wrong(const char *command, const char *format, ...) __attribute__((format(printf, 2, 3)));
int cli_failed(const char *command, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* cli_failed() with the last error of this thread. */
int cli_last_error(const char *command);

/* "1.4 GB", powers of 1,000, into a static-free buffer of the caller's: returns buf. */
const char *cli_bytes(char buf[16], double bytes);

/* "12,345" likewise. */
const char *cli_count(char buf[32], int64_t n);

/* Progress of a long operation on stderr: a bar with rate and time left on a terminal, a plain line
 * every ten seconds elsewhere. Give cli_progress as FlProgressFn and a zeroed struct cli_bar as its
 * cookie; cli_bar_end() wipes the bar off the terminal. */
struct cli_bar {
    bool quiet;     // print nothing
    bool shown;     // there is a bar on the terminal
    double printed; // second at which the last plain line was printed
};
int cli_progress(void *bar, const FlProgress *progress);
void cli_bar_end(struct cli_bar *bar);

/* FlLogFn: warnings and errors to stderr, with the command's name (a const char *) as the cookie. */
void cli_log(void *command, FlLogLevel level, const char *text);

#endif
