/* SPDX-License-Identifier: Apache-2.0 */
/* feedline verify: re-read everything and name each bad sample. */
#include <inttypes.h>
#include <stdio.h>

#include <feedline/feedline.h>

#include "cli.h"
#include "commands.h"
#include "json.h"

static const char about[] =
    "Re-reads every byte of the dataset: blocks of the index, headers of the archives, each field "
    "against\n"
    "its checksum. Prints one line for each bad thing and ends with 1 if there was any.";

struct verify {
    struct cli_bar bar;
    struct json *json;
};

static void print_finding(void *cookie, int64_t sample, const char *text)
{
    struct verify *v = cookie;

    cli_bar_end(&v->bar);
    if (!v->json) {
        printf("%s\n", text);
        fflush(stdout);
        return;
    }
    json_open(v->json, NULL, '{');
    json_int(v->json, "sample", sample);
    json_string(v->json, "text", text);
    json_close(v->json, '}');
}

static void print_result(const FlVerifyResult *r, const char *path, const FlVerifyOptions *how)
{
    char samples[32], bytes[16], bad[32], unchecked[32];

    printf("%s: %s samples, %s read%s, ", path, cli_count(samples, r->samples),
           cli_bytes(bytes, (double)r->bytes), how->decode ? " and decoded" : "");
    if (r->bad || r->structure)
        printf("%s bad samples, %s other findings", cli_count(bad, r->bad),
               cli_count(samples, r->structure));
    else
        printf("nothing bad");
    if (r->unchecked)
        printf("; %s fields have no checksum", cli_count(unchecked, r->unchecked));
    printf("\n");
    if (how->quarantine && r->bad)
        printf("%s: %s to leave out, as exclude_file of a loader\n", how->quarantine,
               cli_count(bad, r->bad));
}

static void json_result(struct json *j, const FlVerifyResult *r)
{
    json_close(j, ']');
    json_int(j, "samples", r->samples);
    json_int(j, "bad", r->bad);
    json_int(j, "structure", r->structure);
    json_int(j, "bytes", (int64_t)r->bytes);
    json_int(j, "unchecked", r->unchecked);
    json_close(j, '}');
}

static int verify(const char *path, const FlDatasetOptions *opt, FlVerifyOptions *how,
                  struct verify *v)
{
    FlDataset *ds = NULL;
    FlVerifyResult r;
    int err = fl_dataset_open(&ds, path, opt);

    cli_bar_end(&v->bar);
    if (err)
        return cli_last_error("verify");
    if (v->json) {
        json_open(v->json, NULL, '{');
        json_open(v->json, "findings", '[');
    }
    err = fl_dataset_verify(ds, how, &r);
    cli_bar_end(&v->bar);
    fl_dataset_close(&ds);
    if (err)
        return cli_last_error("verify");
    if (v->json)
        json_result(v->json, &r);
    else
        print_result(&r, path, how);
    return r.bad || r.structure;
}

int command_verify(int argc, char **argv)
{
    FlDatasetOptions opt = FL_DATASET_OPTIONS_DEFAULT;
    FlVerifyOptions how = { .struct_size = sizeof(how) };
    struct json json = { 0 };
    struct verify v = { .json = NULL };
    const char *path = NULL;
    bool as_json = false, quiet = false;
    const struct cli_option options[] = {
        CLI_OPTION("against", CLI_STRING, &how.against,
                   "dataset that this one was sharded from: compare fields, and pixels",
                   .arg = "SRC"),
        CLI_OPTION("decode", CLI_FLAG, &how.decode, "decode every picture too"),
        CLI_OPTION("quarantine", CLI_STRING, &how.quarantine,
                   "write a list of the bad samples, for loaders to leave out", .arg = "FILE"),
        CLI_OPTION("threads", CLI_INT, &how.n_threads, "default: as many as the process may use",
                   .max = 1024),
        CLI_OPTION("index", CLI_STRING, &opt.index_path, "use this index file", .arg = "FILE"),
        CLI_OPTION("json", CLI_FLAG, &as_json, "for machines"),
        CLI_OPTION("quiet", CLI_FLAG, &quiet, "no progress"),
    };
    const struct cli cli = { .command = "verify",
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
    v.bar.quiet = quiet;
    v.json = as_json ? &json : NULL;
    opt.log = cli_log;
    opt.log_cookie = "verify";
    opt.progress = how.progress = cli_progress;
    opt.progress_cookie = how.progress_cookie = &v.bar;
    how.finding = print_finding;
    how.finding_cookie = &v;
    // A damaged or stale index is what this command is there to find: never make a new one silently.
    opt.index = FL_INDEX_REQUIRE;
    return verify(path, &opt, &how, &v);
}
