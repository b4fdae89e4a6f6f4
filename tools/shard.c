/* SPDX-License-Identifier: Apache-2.0 */
/* feedline shard: a dataset as tar shards with an index. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <feedline/feedline.h>

#include "cli.h"
#include "commands.h"
#include "lines.h"

enum { MAX_WARNINGS = 20 };

/* A log that stops repeating itself: a set with a million damaged pictures should not hide the rest. */
struct warnings {
    struct cli_bar *bar;
    int64_t n;
    bool quiet;
};

static void log_line(void *cookie, FlLogLevel level, const char *text)
{
    struct warnings *w = cookie;

    if (level > FL_LOG_INFO || (level == FL_LOG_INFO && w->quiet))
        return;
    cli_bar_end(w->bar);
    if (level == FL_LOG_INFO) {
        fprintf(stderr, "%s\n", text);
        return;
    }
    if (++w->n <= MAX_WARNINGS)
        cli_log("shard", level, text);
    if (w->n == MAX_WARNINGS)
        fprintf(stderr, "feedline shard: further warnings are counted, not shown\n");
}

/* "I/N". Returns 0, or 2 after saying what is wrong. */
static int parse_part(const char *text, FlShardOptions *opt)
{
    char end;

    if (!text)
        return 0;
    if (sscanf(text, "%" SCNd32 "/%" SCNd32 "%c", &opt->part, &opt->n_parts, &end) != 2 ||
        opt->n_parts < 1 || opt->part < 0 || opt->part >= opt->n_parts)
        return cli_wrong("shard", "--part wants I/N with I from 0 to N - 1, not \"%s\"", text);
    return 0;
}

static void summary(const char *dst, const FlShardOptions *opt, const FlShardResult *r)
{
    char samples[32], shards[32], bytes[16], sliced[32], kept[32], shrunk[32], damaged[32];

    printf("%s: %s samples in %s %s, %s", dst, cli_count(samples, r->samples),
           cli_count(shards, r->shards), r->shards == 1 ? "shard" : "shards",
           cli_bytes(bytes, (double)r->bytes_out));
    if (r->sliced + r->kept + r->shrunk)
        printf("; pictures: %s sliced, %s kept as they are", cli_count(sliced, r->sliced),
               cli_count(kept, r->kept));
    if (r->damaged)
        printf(" (%s of them damaged)", cli_count(damaged, r->damaged));
    if (r->shrunk)
        printf(", %s re-encoded with loss", cli_count(shrunk, r->shrunk));
    printf("\n");
    if (opt->n_parts > 1)
        printf("part %d of %d is done; when all are: feedline index --merge %s\n", opt->part,
               opt->n_parts, dst);
}

static int shard(const char *src, const char *dst, FlDatasetOptions from, FlShardOptions opt,
                 bool quiet)
{
    struct cli_bar bar = { .quiet = quiet };
    struct warnings warnings = { .bar = &bar, .quiet = quiet };
    FlShardResult result = { 0 };
    FlDataset *ds = NULL;

    from.log = opt.log = log_line;
    from.log_cookie = opt.log_cookie = &warnings;
    from.progress = opt.progress = cli_progress;
    from.progress_cookie = opt.progress_cookie = &bar;
    int err = fl_dataset_open(&ds, src, &from);
    cli_bar_end(&bar);
    bar.printed = 0;
    if (!err)
        err = fl_shard(ds, dst, &opt, &result);
    cli_bar_end(&bar);
    if (!err)
        summary(dst, &opt, &result);
    else
        cli_last_error("shard");
    fl_dataset_close(&ds);
    return err ? 1 : 0;
}

int command_shard(int argc, char **argv)
{
    const char *args[2], *part = NULL, *classes = NULL;
    struct lines list = { 0 };
    bool quiet = false;
    FlDatasetOptions from = FL_DATASET_OPTIONS_DEFAULT;
    FlShardOptions opt = FL_SHARD_OPTIONS_DEFAULT;
    const struct cli_option options[] = {
        CLI_OPTION("shard-size", CLI_SIZE, &opt.shard_bytes,
                   "bytes of a shard, as the source's pictures are (256M)"),
        CLI_OPTION("seed", CLI_SEED, &opt.seed, "of the shuffle (0)"),
        CLI_OPTION("no-shuffle", CLI_FLAG, &opt.no_shuffle, "keep the source's order"),
        CLI_OPTION("no-slice", CLI_FLAG, &opt.no_slice, "keep the bytes of each picture"),
        CLI_OPTION("drop-icc", CLI_FLAG, &opt.drop_icc,
                   "leave colour profiles out of sliced JPEGs"),
        CLI_OPTION("no-check", CLI_FLAG, &opt.no_check,
                   "do not compare the pixels of each sliced JPEG with the original's"),
        CLI_OPTION("max-side", CLI_INT, &opt.max_side,
                   "LOSSY: shrink pictures whose shorter side is longer", .arg = "PIXELS", .min = 1,
                   .max = 65500),
        CLI_OPTION("quality", CLI_INT, &opt.quality,
                   "LOSSY: JPEG quality of those (95); alone: re-encode every picture", .min = 1,
                   .max = 100),
        CLI_OPTION("part", CLI_STRING, &part, "write every N-th shard only, from I (0 to N - 1) on",
                   .arg = "I/N"),
        CLI_OPTION("threads", CLI_INT, &opt.n_threads, "0: as many as the process may use (0)",
                   .min = 0, .max = 1024),
        CLI_OPTION("overwrite", CLI_FLAG, &opt.overwrite, "replace a dataset at TARGET"),
        CLI_OPTION("classes", CLI_STRING, &classes,
                   "class folders in label order, one a line; default: sorted", .arg = "FILE"),
        CLI_OPTION("allow-empty", CLI_FLAG, &from.allow_empty_classes,
                   "a class folder without pictures keeps its label; default: error"),
        CLI_OPTION("keep-sidecars", CLI_FLAG, &from.keep_sidecars,
                   "take ._x, .DS_Store, Thumbs.db and the like for data"),
        CLI_OPTION("quiet", CLI_FLAG, &quiet, "no progress"),
    };
    const struct cli cli = {
        "shard",
        "SOURCE TARGET [OPTION ...]",
        "Write class folders or tar shards as WebDataset tar shards with index.fli and "
        "dataset.json.\n"
        "Samples are shuffled; JPEGs become sliced JPEGs, with the same pixels. The bytes do not "
        "depend\n"
        "on threads, host or parts. A run that was stopped goes on when it is started again.",
        options,
        sizeof(options) / sizeof(options[0]),
        args,
        2,
        2,
    };
    const int parsed = cli_parse(&cli, argc, argv);

    if (parsed < 0)
        return cli_exit(parsed);
    if (parse_part(part, &opt))
        return 2;
    if (classes && lines_read(&list, classes))
        return cli_failed("shard", "%s cannot be read, or has no line in it", classes);
    from.classes = list.lines;
    from.n_classes = list.n;
    const int code = shard(args[0], args[1], from, opt, quiet);
    lines_free(&list);
    return code;
}
