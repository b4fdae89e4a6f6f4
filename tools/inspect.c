/* SPDX-License-Identifier: Apache-2.0 */
/* feedline inspect: what a dataset holds, as a whole and for one sample. */
#define _DEFAULT_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <feedline/feedline.h>

#include "cli.h"
#include "commands.h"
#include "json.h"

static const char about[] =
    "Prints schema, counts and sizes of a dataset; with --sample, the fields of one sample too.";

struct inspect {
    const char *path, *out;
    int64_t sample; // -1: none
    bool json;
    FlDataset *ds;
    FlDatasetInfo info;
};

/* Key of a sample in new memory. */
static char *key_of(const FlDataset *ds, int64_t sample)
{
    const int64_t n = fl_dataset_key(ds, sample, NULL, 0);
    char *key = n < 0 ? NULL : malloc((size_t)n + 1);

    if (key && fl_dataset_key(ds, sample, key, (size_t)n + 1) < 0) {
        free(key);
        key = NULL;
    }
    return key;
}

/* ---- for people ---- */

static void print_field(const FlFieldInfo *f, int64_t n_samples)
{
    char count[32], bytes[16], mean[16], max[16];

    printf("  %-12s %-6s %12s", f->name,
           f->kind == FL_FIELD_INT ? "int"
           : f->is_image           ? "image"
                                   : "bytes",
           cli_count(count, f->count));
    if (f->kind == FL_FIELD_BYTES)
        printf("  %9s, mean %s, longest %s", cli_bytes(bytes, (double)f->bytes),
               cli_bytes(mean, f->count ? (double)f->bytes / (double)f->count : 0),
               cli_bytes(max, (double)f->max_bytes));
    else
        printf("  in the index");
    if (f->sliced)
        printf(", %s sliced", cli_count(count, f->sliced));
    if (f->entry_points)
        printf(", %s with entry points (%.0f bytes each)", cli_count(count, f->entry_points),
               (double)f->entry_bytes / (double)f->entry_points);
    if (f->count < n_samples)
        printf(", %s samples lack it", cli_count(count, n_samples - f->count));
    printf("\n");
}

static int print_dataset(const struct inspect *in)
{
    const FlDatasetInfo *i = &in->info;
    char text[32], bytes[16];
    FlFieldInfo f;

    printf("%s\n", i->path);
    printf("  kind         %s\n", i->kind);
    printf("  samples      %s\n", cli_count(text, i->n_samples));
    printf("  containers   %s\n", cli_count(text, i->n_containers));
    printf("  bytes        %s\n", cli_bytes(bytes, (double)i->bytes));
    printf("  index        %s, %.1f bytes a sample\n", cli_bytes(bytes, (double)i->index_bytes),
           i->n_samples ? (double)i->index_bytes / (double)i->n_samples : 0);
    printf("  left out     %s\n", cli_count(text, i->skipped));
    printf("  fingerprint  %016" PRIx64 "\n", i->fingerprint);
    printf("  classes      %d", i->n_classes);
    for (int32_t k = 0; k < i->n_classes && k < 8; k++)
        printf("%s%s", k ? ", " : ": ", fl_dataset_class_name(in->ds, k));
    printf("%s\n", i->n_classes > 8 ? ", ..." : "");
    printf("fields\n");
    for (int32_t k = 0; k < i->n_fields; k++) {
        if (fl_dataset_field(in->ds, k, &f))
            return -1;
        print_field(&f, i->n_samples);
    }
    return 0;
}

static void print_span(const struct inspect *in, const FlFieldSpan *s)
{
    printf("  %-12s ", s->name);
    if (!s->present) {
        printf("missing\n");
    } else if (s->kind == FL_FIELD_INT) {
        const char *name = s->value >= 0 && s->value < in->info.n_classes && !strcmp(s->name, "cls")
                               ? fl_dataset_class_name(in->ds, (int32_t)s->value)
                               : NULL;
        printf("%" PRId64 "%s%s%s\n", s->value, name ? " (" : "", name ? name : "",
               name ? ")" : "");
    } else {
        printf("%" PRIu64 " bytes at %" PRIu64 " of %s", s->length, s->offset, s->container);
        if (s->has_checksum)
            printf(", checksum %08" PRIx32, s->checksum);
        if (s->width)
            printf(", %u x %u, %u components", s->width, s->height, s->components);
        if (s->orientation > 1)
            printf(", EXIF orientation %u", s->orientation);
        printf("%s%s%s\n", s->sliced ? ", sliced" : "", s->entry_points ? ", entry points" : "",
               s->damaged ? ", damaged" : "");
    }
}

/* ---- for machines ---- */

static int json_dataset(const struct inspect *in, struct json *j)
{
    const FlDatasetInfo *i = &in->info;
    FlFieldInfo f;

    json_string(j, "path", i->path);
    json_string(j, "kind", i->kind);
    json_int(j, "samples", i->n_samples);
    json_int(j, "containers", i->n_containers);
    json_int(j, "bytes", (int64_t)i->bytes);
    json_int(j, "index_bytes", (int64_t)i->index_bytes);
    json_int(j, "left_out", i->skipped);
    json_hex(j, "fingerprint", i->fingerprint, 16);
    json_open(j, "classes", '[');
    for (int32_t k = 0; k < i->n_classes; k++)
        json_string(j, NULL, fl_dataset_class_name(in->ds, k));
    json_close(j, ']');
    json_open(j, "fields", '[');
    for (int32_t k = 0; k < i->n_fields; k++) {
        if (fl_dataset_field(in->ds, k, &f))
            return -1;
        json_open(j, NULL, '{');
        json_string(j, "name", f.name);
        json_string(j, "kind", f.kind == FL_FIELD_INT ? "int" : "bytes");
        json_int(j, "count", f.count);
        json_int(j, "bytes", (int64_t)f.bytes);
        json_int(j, "max_bytes", (int64_t)f.max_bytes);
        json_bool(j, "image", f.is_image);
        json_int(j, "sliced", f.sliced);
        json_int(j, "entry_points", f.entry_points);
        json_int(j, "entry_bytes", (int64_t)f.entry_bytes);
        json_close(j, '}');
    }
    json_close(j, ']');
    return 0;
}

static void json_span(struct json *j, const FlFieldSpan *s)
{
    json_open(j, NULL, '{');
    json_string(j, "name", s->name);
    json_bool(j, "present", s->present);
    if (s->present && s->kind == FL_FIELD_INT) {
        json_int(j, "value", s->value);
    } else if (s->present) {
        json_string(j, "container", s->container);
        json_int(j, "offset", (int64_t)s->offset);
        json_int(j, "length", (int64_t)s->length);
        if (s->has_checksum)
            json_hex(j, "checksum", s->checksum, 8);
        if (s->width) {
            json_int(j, "width", s->width);
            json_int(j, "height", s->height);
            json_int(j, "components", s->components);
            json_int(j, "orientation", s->orientation);
            json_bool(j, "sliced", s->sliced);
            json_bool(j, "entry_points", s->entry_points);
            json_bool(j, "damaged", s->damaged);
        }
    }
    json_close(j, '}');
}

/* ---- one sample ---- */

/* Write one field to DIR/KEY.FIELD, the key's slashes as underscores: nothing leaves DIR. */
static int write_field(const struct inspect *in, const char *key, int32_t field,
                       const FlFieldSpan *s)
{
    size_t len = 0;
    int err = fl_dataset_read(in->ds, in->sample, field, NULL, 0, &len);
    void *bytes = err ? NULL : malloc(len + 1);
    const size_t room = strlen(in->out) + strlen(key) + strlen(s->name) + 3;
    char *path = malloc(room);
    FILE *f = NULL;

    if (err || !bytes || !path)
        err = err ? cli_last_error("inspect") : cli_failed("inspect", "out of memory");
    else if (fl_dataset_read(in->ds, in->sample, field, bytes, len, &len))
        err = cli_last_error("inspect");
    if (!err) {
        const size_t dir = (size_t)snprintf(path, room, "%s/", in->out);
        snprintf(path + dir, room - dir, "%s.%s", key, s->name);
        for (char *c = path + dir; *c; c++)
            if (*c == '/')
                *c = '_';
        f = fopen(path, "wb");
        if (!f || fwrite(bytes, 1, len, f) != len || fflush(f))
            err = cli_failed("inspect", "%s cannot be written: %s", path, strerror(errno));
    }
    if (f && fclose(f) && !err)
        err = cli_failed("inspect", "%s cannot be written: %s", path, strerror(errno));
    free(bytes);
    free(path);
    return err;
}

static int show_sample(const struct inspect *in, struct json *j)
{
    char *key = key_of(in->ds, in->sample);
    int err = key ? 0 : cli_last_error("inspect");

    if (!err && in->out && mkdir(in->out, 0777) && errno != EEXIST)
        err = cli_failed("inspect", "folder %s cannot be made: %s", in->out, strerror(errno));
    if (!err && j) {
        json_open(j, "sample", '{');
        json_int(j, "number", in->sample);
        json_string(j, "key", key);
        json_open(j, "fields", '[');
    } else if (!err) {
        printf("sample %" PRId64 ": %s\n", in->sample, key);
    }
    for (int32_t i = 0; !err && i < in->info.n_fields; i++) {
        FlFieldSpan s;
        if (fl_dataset_span(in->ds, in->sample, i, &s)) {
            err = cli_last_error("inspect");
            break;
        }
        if (j)
            json_span(j, &s);
        else
            print_span(in, &s);
        if (in->out && s.present)
            err = write_field(in, key, i, &s);
    }
    if (!err && j) {
        json_close(j, ']');
        json_close(j, '}');
    }
    free(key);
    return err;
}

static int show(const struct inspect *in)
{
    struct json j = { 0 };
    int err = 0;

    if (in->json)
        json_open(&j, NULL, '{');
    if (in->json ? json_dataset(in, &j) : print_dataset(in))
        err = cli_last_error("inspect");
    if (!err && in->sample >= 0)
        err = show_sample(in, in->json ? &j : NULL);
    if (!err && in->json)
        json_close(&j, '}');
    return err;
}

int command_inspect(int argc, char **argv)
{
    struct inspect in = { .sample = -1 };
    FlDatasetOptions opt = FL_DATASET_OPTIONS_DEFAULT;
    struct cli_bar bar = { 0 };
    const struct cli_option options[] = {
        CLI_OPTION("sample", CLI_LONG, &in.sample, "show this sample's fields too, counted from 0",
                   .arg = "K", .max = 9e18),
        CLI_OPTION("out", CLI_STRING, &in.out,
                   "write the sample's fields as files into this folder", .arg = "DIR"),
        CLI_OPTION("json", CLI_FLAG, &in.json, "for machines"),
        CLI_OPTION("index", CLI_STRING, &opt.index_path, "use this index file", .arg = "FILE"),
    };
    const struct cli cli = { .command = "inspect",
                             .usage = "PATH [OPTION ...]",
                             .about = about,
                             .options = options,
                             .n_options = sizeof(options) / sizeof(options[0]),
                             .args = &in.path,
                             .min_args = 1,
                             .max_args = 1 };
    const int parsed = cli_parse(&cli, argc, argv);
    int err;

    if (parsed < 0)
        return cli_exit(parsed);
    if (in.out && in.sample < 0)
        return cli_wrong("inspect", "--out needs --sample: it writes one sample's fields");
    opt.log = cli_log;
    opt.log_cookie = "inspect";
    opt.progress = cli_progress;
    opt.progress_cookie = &bar;
    err = fl_dataset_open(&in.ds, in.path, &opt);
    cli_bar_end(&bar);
    if (err || fl_dataset_info(in.ds, &in.info))
        return cli_last_error("inspect");
    if (in.sample >= in.info.n_samples)
        err = cli_failed("inspect", "%s has samples 0 to %" PRId64 ", there is no sample %" PRId64,
                         in.path, in.info.n_samples - 1, in.sample);
    else
        err = show(&in);
    fl_dataset_close(&in.ds);
    return err;
}
