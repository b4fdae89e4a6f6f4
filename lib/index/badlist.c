/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE // getline
#include "index/badlist.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/jsonl.h"

/* ---- writing ------------------------------------------------------------------------------------- */

static void add_key(struct fl_jsonl *j, const FlDataset *ds, int64_t sample)
{
    char key[FL_INDEX_MAX_NAME];

    fl_jsonl_int(j, "sample", sample);
    if (fl_index_key(fl_dataset_index(ds), sample, key, sizeof(key)) >= 0)
        fl_jsonl_string(j, "key", key);
}

static void add_place(struct fl_jsonl *j, const struct fl_bad_line *l)
{
    const struct fl_index *ix = fl_dataset_index(l->ds);
    char path[FL_INDEX_MAX_NAME];
    struct fl_span span;

    if (l->field >= 0)
        fl_jsonl_string(j, "column", fl_index_field(ix, l->field)->name);
    if (!fl_index_place(ix, l->field, l->sample, &span) ||
        fl_index_container_path(ix, span.container, path, sizeof(path)) < 0)
        return;
    fl_jsonl_string(j, "container", path);
    fl_jsonl_int(j, "offset", (int64_t)span.offset);
    fl_jsonl_int(j, "length", (int64_t)span.length);
}

int fl_bad_line_add(struct fl_bytes *to, const struct fl_bad_line *l)
{
    const FlError before =
        *fl_err_slot(); // an index that cannot answer is no failure of the caller
    struct fl_jsonl j;

    fl_jsonl_begin(&j, to);
    fl_jsonl_hex(&j, "dataset", fl_index_info(fl_dataset_index(l->ds))->fingerprint);
    fl_jsonl_string(&j, "path", fl_dataset_path(l->ds));
    add_key(&j, l->ds, l->sample);
    add_place(&j, l);
    if (l->epoch >= 0) {
        fl_jsonl_int(&j, "epoch", l->epoch);
        fl_jsonl_int(&j, "position", l->position);
        fl_jsonl_int(&j, "rank", l->rank);
        fl_jsonl_int(&j, "attempt", l->attempt);
    }
    fl_jsonl_string(&j, "code", fl_err_name(l->code));
    fl_jsonl_string(&j, "stage", l->stage);
    fl_jsonl_string(&j, "message", l->message);
    fl_jsonl_string(&j, "action", l->action);
    if (l->by) {
        fl_jsonl_open(&j, "by");
        fl_jsonl_hex(&j, "dataset", fl_index_info(fl_dataset_index(l->by))->fingerprint);
        add_key(&j, l->by, l->by_sample);
        fl_jsonl_close(&j);
    }
    *fl_err_slot() = before;
    return fl_jsonl_end(&j);
}

/* ---- reading ------------------------------------------------------------------------------------- */

/* A line that has to be looked for by its key. */
struct entry {
    uint64_t hash; // of the key
    int64_t line;
    bool named, placed; // dataset; offset and length
    bool foreign;       // its dataset is none of ours
    uint64_t dataset;   // named
    int64_t offset, length;
    size_t key, container, path; // in texts; container and path may be ""
    unsigned found;
};

struct reader {
    const char *path;
    const FlDataset *const *sets;
    unsigned n_sets;
    struct fl_bytes *ids; // for each set, int64_t
    struct fl_bytes entries, texts;
    int64_t line;
};

/* What a line says. */
struct fields {
    uint64_t dataset;
    int64_t sample, offset, length;
    bool named, numbered, keyed;
    char key[FL_INDEX_MAX_NAME], container[FL_INDEX_MAX_NAME], path[FL_INDEX_MAX_NAME];
};

static int no_memory(const char *path)
{
    return fl_err(FL_ERR(ENOMEM), FL_STAGE_PLAN, "no memory for the exclusion list %s", path);
}

static int damaged(const struct reader *r, const char *what)
{
    return fl_err(FL_ERR(EBADMSG), FL_STAGE_PLAN, "%s, line %lld: %s", r->path, (long long)r->line,
                  what);
}

static void take_item(struct fields *f, const struct fl_jsonl_item *item)
{
    if (item->kind == FL_JSONL_INT) {
        int64_t *to = !strcmp(item->name, "sample")   ? &f->sample
                      : !strcmp(item->name, "offset") ? &f->offset
                      : !strcmp(item->name, "length") ? &f->length
                                                      : NULL;
        if (to)
            *to = item->number;
        f->numbered |= to == &f->sample;
        return;
    }
    char *to = !strcmp(item->name, "key")         ? f->key
               : !strcmp(item->name, "container") ? f->container
               : !strcmp(item->name, "path")      ? f->path
                                                  : NULL;
    if (item->kind != FL_JSONL_STRING)
        return;
    if (to && item->len < FL_INDEX_MAX_NAME) {
        memcpy(to, item->text, item->len + 1);
        f->keyed |= to == f->key;
    }
    if (!strcmp(item->name, "dataset")) {
        char *end;
        f->dataset = strtoull(item->text, &end, 16);
        f->named = item->len == 16 && !*end;
    }
}

/* 0, or FL_ERR(EBADMSG). */
static int parse(const struct reader *r, char *text, size_t len, struct fields *f)
{
    static const struct fields empty = { .offset = -1, .length = -1 };
    char *room = malloc(len + 1);
    struct fl_jsonl_reader in = { .at = text, .end = text + len };
    struct fl_jsonl_item item = { .text = room, .room = len + 1 };
    int more;

    if (!room)
        return no_memory(r->path);
    *f = empty;
    while ((more = fl_jsonl_next(&in, &item)) == 1)
        take_item(f, &item);
    free(room);
    if (more)
        return damaged(r, "this is no line of a list of bad samples (a JSON object)");
    return f->keyed ? 0 : damaged(r, "the line has no \"key\"");
}

static uint64_t id_of(const FlDataset *ds)
{
    return fl_index_info(fl_dataset_index(ds))->fingerprint;
}

static bool has_key(const FlDataset *ds, int64_t sample, const char *key)
{
    char own[FL_INDEX_MAX_NAME];
    const struct fl_index *ix = fl_dataset_index(ds);

    return sample >= 0 && sample < fl_index_info(ix)->n_samples &&
           fl_index_key(ix, sample, own, sizeof(own)) >= 0 && !strcmp(own, key);
}

static int add_text(struct reader *r, const char *text, size_t *at)
{
    *at = r->texts.len;
    return fl_bytes_add(&r->texts, text, strlen(text) + 1);
}

/* Either the sample is found at once, or the line is put down to be looked for. */
static int take_line(struct reader *r, const struct fields *f)
{
    struct entry e = { .hash = fl_hash64(f->key, strlen(f->key), 0),
                       .line = r->line,
                       .named = f->named,
                       .placed = f->offset >= 0 && f->length >= 0 && f->container[0],
                       .foreign = f->named,
                       .dataset = f->dataset,
                       .offset = f->offset,
                       .length = f->length };
    bool found = false;

    for (unsigned k = 0; k < r->n_sets && f->named; k++) {
        if (id_of(r->sets[k]) != f->dataset)
            continue;
        e.foreign = false;
        if (!f->numbered || !has_key(r->sets[k], f->sample, f->key))
            continue;
        found = true;
        if (fl_bytes_add(&r->ids[k], &f->sample, sizeof(f->sample)))
            return no_memory(r->path);
    }
    if (found)
        return 0;
    return add_text(r, f->key, &e.key) || add_text(r, f->container, &e.container) ||
                   add_text(r, f->path, &e.path) || fl_bytes_add(&r->entries, &e, sizeof(e))
               ? no_memory(r->path)
               : 0;
}

static int read_lines(struct reader *r, FILE *file)
{
    struct fields *f = malloc(sizeof(*f));
    char *text = NULL;
    size_t room = 0;
    ssize_t len;
    int err = f ? 0 : no_memory(r->path);

    while (!err && (len = getline(&text, &room, file)) >= 0) {
        r->line++;
        while (len && (text[len - 1] == '\n' || text[len - 1] == '\r' || text[len - 1] == ' '))
            len--;
        if (len && text[0] != '#' && !(err = parse(r, text, (size_t)len, f)))
            err = take_line(r, f);
    }
    if (!err && ferror(file))
        err = fl_err_file(errno, "read", r->path);
    free(text);
    free(f);
    return err;
}

/* ---- looking for keys ---------------------------------------------------------------------------- */

static struct entry *entries(const struct reader *r)
{
    return (struct entry *)r->entries.data;
}

static size_t n_entries(const struct reader *r)
{
    return r->entries.len / sizeof(struct entry);
}

static const char *text_at(const struct reader *r, size_t at)
{
    return (const char *)r->texts.data + at;
}

/* Does a field of the sample lie where the line says? Without a container in the line, anywhere will do. */
static bool lies_there(const struct reader *r, const struct entry *e, const struct fl_index *ix,
                       int64_t sample)
{
    const char *container = text_at(r, e->container);
    char path[FL_INDEX_MAX_NAME];
    struct fl_span span;

    if (e->foreign && !e->placed)
        return false;
    for (int32_t i = 0; i < fl_index_info(ix)->n_fields && *container; i++)
        if (fl_index_field(ix, i)->kind == FL_FIELD_BYTES && !fl_index_span(ix, i, sample, &span) &&
            span.container != FL_NO_CONTAINER &&
            (!e->foreign ||
             ((int64_t)span.offset == e->offset && (int64_t)span.length == e->length)) &&
            fl_index_container_path(ix, span.container, path, sizeof(path)) >= 0 &&
            !strcmp(path, container))
            return true;
    return !*container;
}

static int several(const struct reader *r, const struct entry *e, const FlDataset *ds)
{
    return fl_err(FL_ERR(EINVAL), FL_STAGE_PLAN,
                  "%s, line %lld: dataset %s has several samples with the key \"%.200s\"; the line "
                  "has to say in which \"container\"",
                  r->path, (long long)e->line, fl_dataset_path(ds), text_at(r, e->key));
}

/* One sample against all lines of the same hash. `table` has a power of two of places, 0: free. */
static int look_up(struct reader *r, unsigned set, int64_t sample, const char *key,
                   const size_t *table, size_t places)
{
    const struct fl_index *ix = fl_dataset_index(r->sets[set]);
    const uint64_t hash = fl_hash64(key, strlen(key), 0);

    for (size_t i = hash & (places - 1); table[i]; i = (i + 1) & (places - 1)) {
        struct entry *e = &entries(r)[table[i] - 1];
        if (e->hash != hash || strcmp(text_at(r, e->key), key) || !lies_there(r, e, ix, sample) ||
            (e->named && !e->foreign && e->dataset != id_of(r->sets[set])))
            continue;
        if (e->found & 1u << set)
            return several(r, e, r->sets[set]);
        e->found |= 1u << set;
        if (fl_bytes_add(&r->ids[set], &sample, sizeof(sample)))
            return no_memory(r->path);
    }
    return 0;
}

static int not_found(const struct reader *r, const struct entry *e)
{
    const char *key = text_at(r, e->key), *ours = fl_dataset_path(r->sets[0]),
               *theirs = text_at(r, e->path), *several = r->n_sets > 1 ? " and the others" : "";

    if (e->foreign)
        return fl_err(FL_ERR(EINVAL), FL_STAGE_PLAN,
                      "%s, line %lld: the list is of dataset %.120s (%016llx), not of %.120s "
                      "(%016llx)%s, where no sample \"%.80s\" lies at the same place",
                      r->path, (long long)e->line, *theirs ? theirs : "?",
                      (unsigned long long)e->dataset, ours, (unsigned long long)id_of(r->sets[0]),
                      several, key);
    return fl_err(FL_ERR(EINVAL), FL_STAGE_PLAN,
                  "%s, line %lld: dataset %.120s%s has no sample with the key \"%.200s\"", r->path,
                  (long long)e->line, ours, several, key);
}

static int look_for_keys(struct reader *r)
{
    const size_t n = n_entries(r);
    char key[FL_INDEX_MAX_NAME];
    size_t places = 64;
    int err = 0;

    if (!n)
        return 0;
    while (places < 2 * n)
        places *= 2;
    size_t *table = calloc(places, sizeof(*table));
    if (!table)
        return no_memory(r->path);
    for (size_t k = 0; k < n; k++) {
        size_t i = entries(r)[k].hash & (places - 1);
        while (table[i])
            i = (i + 1) & (places - 1);
        table[i] = k + 1;
    }
    for (unsigned set = 0; set < r->n_sets && !err; set++) {
        const struct fl_index *ix = fl_dataset_index(r->sets[set]);
        for (int64_t s = 0; s < fl_index_info(ix)->n_samples && !err; s++) {
            const int64_t len = fl_index_key(ix, s, key, sizeof(key));
            err = len < 0 ? (int)len : look_up(r, set, s, key, table, places);
        }
    }
    free(table);
    for (size_t k = 0; k < n && !err; k++)
        if (!entries(r)[k].found)
            err = not_found(r, &entries(r)[k]);
    return err;
}

static int by_number(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Ascending, each once; the memory changes hands. */
static void hand_over(struct fl_bytes *from, struct fl_bad_ids *to)
{
    const size_t n = from->len / sizeof(int64_t);

    *to = (struct fl_bad_ids){ .ids = (int64_t *)from->data };
    if (n)
        qsort(to->ids, n, sizeof(*to->ids), by_number);
    for (size_t i = 0; i < n; i++)
        if (!to->n || to->ids[to->n - 1] != to->ids[i])
            to->ids[to->n++] = to->ids[i];
    *from = (struct fl_bytes){ 0 };
}

int fl_bad_list_read(const char *path, const FlDataset *const *sets, unsigned n_sets,
                     struct fl_bad_ids *ids)
{
    struct reader r = { .path = path, .sets = sets, .n_sets = n_sets };
    FILE *file = fopen(path, "re");

    if (!file)
        return fl_err_file(errno, "open the exclusion list", path);
    r.ids = calloc(n_sets, sizeof(*r.ids));
    int err = r.ids ? read_lines(&r, file) : no_memory(path);
    fclose(file);
    if (!err)
        err = look_for_keys(&r);
    for (unsigned k = 0; k < n_sets && r.ids; k++) {
        if (!err)
            hand_over(&r.ids[k], &ids[k]);
        fl_bytes_free(&r.ids[k]);
    }
    free(r.ids);
    fl_bytes_free(&r.entries);
    fl_bytes_free(&r.texts);
    return err;
}
