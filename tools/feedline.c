/* SPDX-License-Identifier: Apache-2.0 */
/* The command: finds the sub-command and hands it the rest of the line. */
#include <stdio.h>
#include <string.h>

#include <feedline/feedline.h>

#include "commands.h"

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *help;
} commands[] = {
    { "bench", command_bench, "measure how fast batches come, and what limits" },
    { "doctor", command_doctor, "say what this machine can feed, and what limits it" },
    { "index", command_index, "make the index of a dataset" },
    { "inspect", command_inspect, "show what a dataset holds, and one sample of it" },
    { "shard", command_shard, "write a dataset as tar shards with an index" },
    { "synth", command_synth, "make photo-like JPEGs to try things out with" },
    { "verify", command_verify, "re-read everything and name each bad sample" },
    { "version", command_version, "print version and what this build holds" },
};

static int usage(FILE *to)
{
    fprintf(to, "usage: feedline COMMAND [OPTION ...]\n\n");
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
        fprintf(to, "  %-8s %s\n", commands[i].name, commands[i].help);
    fprintf(to, "\n`feedline COMMAND --help` says more of each.\n");
    return to == stdout ? 0 : 2;
}

int command_version(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    printf("feedline %s (%s)\n", fl_version(), fl_build_info());
    return 0;
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return usage(stderr);
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help"))
        return usage(stdout);
    if (!strcmp(argv[1], "--version"))
        return command_version(argc - 1, argv + 1);
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
        if (!strcmp(argv[1], commands[i].name))
            return commands[i].run(argc - 1, argv + 1);
    fprintf(stderr, "feedline: there is no command \"%s\"; `feedline --help` lists them\n",
            argv[1]);
    return 2;
}
