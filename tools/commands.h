/* SPDX-License-Identifier: Apache-2.0 */
/* The sub-commands. Each takes its own name as argv[0] and returns the exit code:
 * 0 fine, 1 the work failed, 2 the command line was wrong. */
#ifndef FL_TOOLS_COMMANDS_H
#define FL_TOOLS_COMMANDS_H

int command_bench(int argc, char **argv);
int command_doctor(int argc, char **argv);
int command_index(int argc, char **argv);
int command_inspect(int argc, char **argv);
int command_shard(int argc, char **argv);
int command_synth(int argc, char **argv);
int command_verify(int argc, char **argv);
int command_version(int argc, char **argv);

#endif
