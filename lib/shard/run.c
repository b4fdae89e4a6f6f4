/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "shard/run.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/file.h"
#include "base/hash.h"
#include "index/unfinished.h"

#define HEAD "feedline shard run 1\n"
#define FILE_MAX ((size_t)1 << 30)

enum type { TEXT, U64, I64, I32, BOOL, HASH };

/* One line each, "name value", in this order. */
static const struct {
    const char *name;
    enum type type;
    size_t offset;
} lines[] = {
    { "feedline", TEXT, offsetof(struct fl_run, version) },
    { "codec", TEXT, offsetof(struct fl_run, codec) },
    { "source", HASH, offsetof(struct fl_run, source) },
    { "samples", I64, offsetof(struct fl_run, n_samples) },
    { "shard-size", U64, offsetof(struct fl_run, shard_bytes) },
    { "seed", U64, offsetof(struct fl_run, seed) },
    { "shuffle", BOOL, offsetof(struct fl_run, shuffle) },
    { "slice", BOOL, offsetof(struct fl_run, slice) },
    { "drop-icc", BOOL, offsetof(struct fl_run, drop_icc) },
    { "max-side", I32, offsetof(struct fl_run, max_side) },
    { "quality", I32, offsetof(struct fl_run, quality) },
    { "shards", I64, offsetof(struct fl_run, n_shards) },
    { "planned-bytes", U64, offsetof(struct fl_run, planned) },
    { "source-bytes", U64, offsetof(struct fl_run, source_bytes) },
    { "classes", I32, offsetof(struct fl_run, n_classes) },
};
#define N_LINES (sizeof(lines) / sizeof(lines[0]))

static int no_memory(void)
{
    return fl_err(FL_ERR(ENOMEM), FL_STAGE_PLAN, "no memory to describe the run");
}

int fl_run_init(struct fl_run *r, const FlShardOptions *opt)
{
    *r = (struct fl_run){ .shard_bytes = opt->shard_bytes,
                          .seed = opt->no_shuffle ? 0 : opt->seed,
                          .shuffle = !opt->no_shuffle,
                          .slice = !opt->no_slice,
                          .drop_icc = opt->drop_icc,
                          .max_side = opt->max_side,
                          .quality = opt->quality };
    snprintf(r->version, sizeof(r->version), "%s", fl_version());
    return 0;
}

int fl_run_class(struct fl_run *r, const char *name)
{
    char **classes = realloc(r->classes, ((size_t)r->n_classes + 1) * sizeof(*classes));

    if (!classes)
        return no_memory();
    r->classes = classes;
    classes[r->n_classes] = strdup(name);
    if (!classes[r->n_classes])
        return no_memory();
    r->n_classes++;
    return 0;
}

void fl_run_fini(struct fl_run *r)
{
    for (int32_t i = 0; i < r->n_classes && r->classes; i++)
        free(r->classes[i]);
    free(r->classes);
    *r = (struct fl_run){ 0 };
}

static void line_value(const struct fl_run *r, size_t i, char value[80])
{
    const void *p = (const char *)r + lines[i].offset;

    switch (lines[i].type) {
    case TEXT:
        snprintf(value, 80, "%s", (const char *)p);
        break;
    case U64:
        snprintf(value, 80, "%" PRIu64, *(const uint64_t *)p);
        break;
    case I64:
        snprintf(value, 80, "%" PRId64, *(const int64_t *)p);
        break;
    case I32:
        snprintf(value, 80, "%" PRId32, *(const int32_t *)p);
        break;
    case BOOL:
        snprintf(value, 80, "%s", *(const bool *)p ? "yes" : "no");
        break;
    case HASH:
        snprintf(value, 80, "%016" PRIx64, *(const uint64_t *)p);
        break;
    }
}

static int set_value(struct fl_run *r, size_t i, const char *value)
{
    void *p = (char *)r + lines[i].offset;
    char end;

    switch (lines[i].type) {
    case TEXT:
        return snprintf(p, 64, "%s", value) >= 64;
    case U64:
        return sscanf(value, "%" SCNu64 "%c", (uint64_t *)p, &end) != 1;
    case I64:
        return sscanf(value, "%" SCNd64 "%c", (int64_t *)p, &end) != 1;
    case I32:
        return sscanf(value, "%" SCNd32 "%c", (int32_t *)p, &end) != 1;
    case BOOL:
        *(bool *)p = !strcmp(value, "yes");
        return !*(bool *)p && strcmp(value, "no");
    case HASH:
        return sscanf(value, "%" SCNx64 "%c", (uint64_t *)p, &end) != 1;
    }
    return 1;
}

static int add_text(struct fl_bytes *b, const char *s)
{
    return fl_bytes_add(b, s, strlen(s)) ? no_memory() : 0;
}

/* A class name on a line of its own: line ends and "%" as "%" and two digits. */
static int add_class(struct fl_bytes *b, const char *name)
{
    int err = 0;

    for (; *name && !err; name++) {
        char c[4] = { *name, 0 };
        if (*name == '\n' || *name == '\r' || *name == '%')
            snprintf(c, sizeof(c), "%%%02X", (unsigned char)*name);
        err = add_text(b, c);
    }
    return err ? err : add_text(b, "\n");
}

static void decode_class(char *name)
{
    char *to = name;

    for (; *name; to++) {
        unsigned c;
        if (*name == '%' && sscanf(name + 1, "%2X", &c) == 1) {
            *to = (char)c;
            name += 3;
        } else {
            *to = *name++;
        }
    }
    *to = 0;
}

int fl_run_text(struct fl_run *r, struct fl_bytes *text)
{
    char line[128], value[80];
    int err = add_text(text, HEAD);

    for (size_t i = 0; i < N_LINES && !err; i++) {
        line_value(r, i, value);
        snprintf(line, sizeof(line), "%s %s\n", lines[i].name, value);
        err = add_text(text, line);
    }
    for (int32_t i = 0; i < r->n_classes && !err; i++)
        err = add_class(text, r->classes[i]);
    if (err)
        return err;
    r->hash = fl_hash64(text->data, text->len, 0);
    snprintf(line, sizeof(line), "end %016" PRIx64 "\n", r->hash);
    return add_text(text, line);
}

/* Cut off the next line; NULL at the end. */
static char *next_line(char **text)
{
    char *line = *text, *end = strchr(line, '\n');

    if (!end)
        return NULL;
    *end = 0;
    *text = end + 1;
    return line;
}

static int parse(struct fl_run *r, char *text)
{
    char *line = next_line(&text);
    int32_t n_classes;

    if (!line)
        return FL_ERR(EBADMSG);
    for (size_t i = 0; i < N_LINES; i++) {
        const size_t n = strlen(lines[i].name);
        line = next_line(&text);
        if (!line || strncmp(line, lines[i].name, n) || line[n] != ' ' ||
            set_value(r, i, line + n + 1))
            return FL_ERR(EBADMSG);
    }
    n_classes = r->n_classes;
    r->n_classes = 0;
    for (int32_t i = 0; i < n_classes; i++) {
        if (!(line = next_line(&text)))
            return FL_ERR(EBADMSG);
        decode_class(line);
        const int err = fl_run_class(r, line);
        if (err)
            return err;
    }
    return 0;
}

int fl_run_read(struct fl_run *r, const char *dir)
{
    char *path = fl_path_join(dir, FL_UNFINISHED_NAME), *text = NULL;
    void *data = NULL;
    size_t len = 0;

    *r = (struct fl_run){ 0 };
    if (!path)
        return no_memory();
    int err = fl_file_read(path, FILE_MAX, &data, &len);
    if (!err) {
        text = data;
        const size_t tail = strlen("end 0123456789abcdef\n");
        const uint64_t hash = len > tail ? fl_hash64(text, len - tail, 0) : 0;
        char end[32];
        snprintf(end, sizeof(end), "end %016" PRIx64 "\n", hash);
        if (len <= tail || memcmp(text + len - tail, end, tail) ||
            strncmp(text, HEAD, strlen(HEAD)) || parse(r, text))
            err = fl_err(FL_ERR(EBADMSG), FL_STAGE_PLAN,
                         "%s was not written by this version of feedline, or is damaged", path);
        r->hash = hash;
    }
    free(data);
    free(path);
    if (err)
        fl_run_fini(r);
    return err;
}

void fl_run_difference(const struct fl_run *old, const struct fl_run *now, char *text, size_t size)
{
    char a[80], b[80];

    text[0] = 0;
    for (size_t i = 0; i < N_LINES; i++) {
        line_value(old, i, a);
        line_value(now, i, b);
        if (strcmp(a, b)) {
            snprintf(text, size, "%s: %s, now %s", lines[i].name, a, b);
            return;
        }
    }
    if (old->hash != now->hash)
        snprintf(text, size, "the class names differ");
}

void fl_run_shard_name(char name[32], int64_t shard, const char *extension)
{
    snprintf(name, 32, "shard-%06" PRId64 ".%s", shard, extension);
}
