/* SPDX-License-Identifier: Apache-2.0 */
/* feedline index: make the index of a dataset. */
#include <inttypes.h>
#include <stdio.h>

#include <feedline/feedline.h>

#include "cli.h"
#include "commands.h"
#include "lines.h"

static const char about[] =
    "Walks the tar archives or class folders in PATH once and writes PATH/index.fli, which says "
    "where\n"
    "every field of every sample lies. Opening a dataset does the same if it has no index yet.\n"
    "With --entry-points crops of unmodified JPEGs read and decode only what they need, and a GPU\n"
    "can decode them; that reads every picture once.";

struct index_log {
    bool quiet, entry_points;
};

/* What became of the pictures is worth a line where it was asked for. */
static void log_line(void *cookie, FlLogLevel level, const char *text)
{
    const struct index_log *l = cookie;

    if (level == FL_LOG_INFO && l->entry_points && !l->quiet)
        printf("%s\n", text);
    else
        cli_log("index", level, text);
}

static void print_result(const FlDatasetInfo *i, const char *written)
{
    char samples[32], containers[32], bytes[16], size[16], skipped[32];

    printf("%s: %s samples in %s %s, %s; index %s (%.1f bytes a sample)", written,
           cli_count(samples, i->n_samples), cli_count(containers, i->n_containers),
           i->kind[0] == 't' ? "tar archives" : "files", cli_bytes(bytes, (double)i->bytes),
           cli_bytes(size, (double)i->index_bytes),
           (double)i->index_bytes / (double)(i->n_samples ? i->n_samples : 1));
    if (i->skipped)
        printf("; %s entries left out", cli_count(skipped, i->skipped));
    printf("\n");
}

int command_index(int argc, char **argv)
{
    FlDatasetOptions opt = FL_DATASET_OPTIONS_DEFAULT;
    const char *path = NULL, *classes = NULL;
    struct index_log log = { 0 };
    bool merge = false;
    struct cli_bar bar = { 0 };
    struct lines list = { 0 };
    FlDataset *ds = NULL;
    FlDatasetInfo info;
    const struct cli_option options[] = {
        CLI_OPTION("output", CLI_STRING, &opt.index_path, "write the index to this file",
                   .arg = "FILE"),
        CLI_OPTION("merge", CLI_FLAG, &merge,
                   "join the parts that `feedline shard --part` wrote to PATH"),
        CLI_OPTION("threads", CLI_INT, &opt.n_threads,
                   "threads that walk; default: 4 per processor", .max = 1024),
        CLI_OPTION("classes", CLI_STRING, &classes,
                   "class folders in label order, one a line; default: sorted", .arg = "FILE"),
        CLI_OPTION("allow-empty", CLI_FLAG, &opt.allow_empty_classes,
                   "a class folder without pictures keeps its label; default: error"),
        CLI_OPTION("keep-sidecars", CLI_FLAG, &opt.keep_sidecars,
                   "take ._x, .DS_Store, Thumbs.db and the like for data"),
        CLI_OPTION("entry-points", CLI_FLAG, &log.entry_points,
                   "note where baseline JPEGs can be entered: about 2% of their size"),
        CLI_OPTION("quiet", CLI_FLAG, &log.quiet, "no progress, no summary"),
    };
    const struct cli cli = { .command = "index",
                             .usage = "PATH [OPTION ...]",
                             .about = about,
                             .options = options,
                             .n_options = sizeof(options) / sizeof(options[0]),
                             .args = &path,
                             .min_args = 1,
                             .max_args = 1 };
    const int parsed = cli_parse(&cli, argc, argv);

    if (parsed < 0)
        return cli_exit(parsed);
    if (merge && log.entry_points)
        return cli_wrong("index",
                         "--merge joins what `feedline shard` wrote: --entry-points does not "
                         "go with it");
    if (classes && lines_read(&list, classes))
        return cli_failed("index", "%s cannot be read, or has no line in it", classes);
    opt.classes = list.lines;
    opt.n_classes = list.n;
    opt.entry_points = log.entry_points;
    opt.log = log_line;
    opt.log_cookie = &log;
    opt.progress = cli_progress;
    opt.progress_cookie = &bar;
    bar.quiet = log.quiet;
    int err = merge ? fl_index_merge(path, &opt) : fl_index_build(path, &opt);
    cli_bar_end(&bar);
    opt.index = FL_INDEX_REQUIRE; // what was written, not what could be made
    if (!err && !(err = fl_dataset_open(&ds, path, &opt)) && !(err = fl_dataset_info(ds, &info)) &&
        !log.quiet)
        print_result(&info, path);
    fl_dataset_close(&ds);
    lines_free(&list);
    return err ? cli_last_error("index") : 0;
}
