/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
/* fl_shard(): plan, then threads that prepare samples and the caller's thread that writes them in order. */
#include <feedline/shard.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/thread.h"
#include "index/dataset.h"
#include "jpeg/decode.h"
#include "shard/convert.h"
#include "shard/layout.h"
#include "shard/merge.h"
#include "shard/output.h"
#include "shard/shrink.h"
#include "shard/window.h"

#define SHARD_BYTES ((uint64_t)256 << 20)
#define WINDOW_BYTES ((uint64_t)256 << 20)
#define WINDOW_SLOTS 64u
#define MAX_THREADS 1024
#define PROGRESS_NS 100000000

struct sharder {
    FlDataset *source;
    const struct fl_index *ix;
    FlShardOptions opt; // defaults filled in
    struct fl_log log;
    struct fl_target target;
    struct fl_run run;
    struct fl_layout layout;

    int64_t *todo; // shards to write, ascending
    int64_t n_todo;
    int64_t next_todo, next_position; // what the window asks for next; under its lock

    unsigned n_threads, n_slots;
    struct fl_converter **converters;
    struct fl_prepared *slots;
    struct fl_window *window;
    struct fl_output output;

    struct fl_shard_counts sum; // of finished shards
    FlShardResult result;
    FlProgress progress;
    int64_t started, reported; // fl_now_ns() scale
};

static int invalid(const char *text)
{
    return fl_err(FL_ERR(EINVAL), FL_STAGE_PLAN, "%s", text);
}

static int check_options(const FlDataset *src, const char *dst, const FlShardOptions *o)
{
    if (!src || !dst || !*dst)
        return invalid("fl_shard: source and target are needed");
    if (!o)
        return 0;
    // The first version of the struct is the smallest that can be meant.
    if (o->struct_size < sizeof(*o))
        return invalid(
            "fl_shard: struct_size is not set; it says which version of the options this is");
    if (o->max_side < 0 || o->max_side > 65500)
        return invalid("max-side must be 0 to 65500 pixels");
    if (o->quality < 0 || o->quality > 100)
        return invalid("quality must be 1 to 100, or 0 for the default");
    if (o->n_parts < 0 || (o->n_parts ? o->part < 0 || o->part >= o->n_parts : o->part != 0))
        return invalid("part must be 0 to N - 1 of N parts");
    if (o->n_threads < 0 || o->n_threads > MAX_THREADS)
        return invalid("threads must be 0 (automatic) to 1024");
    return 0;
}

static void resolve_options(struct sharder *s, const FlShardOptions *opt)
{
    s->opt = opt ? *opt : (FlShardOptions){ .struct_size = sizeof(FlShardOptions) };
    if (!s->opt.shard_bytes)
        s->opt.shard_bytes = SHARD_BYTES;
    if (!s->opt.n_parts)
        s->opt.n_parts = 1;
    s->n_threads = s->opt.n_threads ? (unsigned)s->opt.n_threads : (unsigned)fl_cpu_count();
    s->n_slots = s->n_threads * 4 > WINDOW_SLOTS ? s->n_threads * 4 : WINDOW_SLOTS;
    s->log = (struct fl_log){ .fn = s->opt.log, .cookie = s->opt.log_cookie };
}

/* ---- plan ---- */

static int describe(struct sharder *s)
{
    const struct fl_index_info *info = fl_index_info(s->ix);
    int err = fl_run_init(&s->run, &s->opt);

    s->run.source = s->layout.fingerprint;
    s->run.n_samples = s->layout.n;
    s->run.n_shards = s->layout.n_shards;
    s->run.planned = s->layout.total;
    s->run.source_bytes = s->layout.source_bytes;
    snprintf(s->run.codec, sizeof(s->run.codec), "%s", fl_jpeg_codec());
    for (int32_t i = 0; i < info->n_classes && !err; i++)
        err = fl_run_class(&s->run, fl_index_class(s->ix, i));
    return err;
}

/* Which shards this part has to write: every n_parts-th, but those that are there. */
static int list_todo(struct sharder *s)
{
    struct fl_record_header header;

    s->todo = malloc((size_t)s->layout.n_shards * sizeof(*s->todo));
    if (!s->todo)
        return fl_err(FL_ERR(ENOMEM), FL_STAGE_PLAN, "no memory to plan the shards");
    for (int64_t i = s->opt.part; i < s->layout.n_shards; i += s->opt.n_parts) {
        s->result.shards++;
        if (fl_target_has(&s->target, &s->run, i, &header)) {
            s->result.resumed++;
            fl_shard_counts_add(&s->sum, &header.counts);
            continue;
        }
        s->progress.total += s->layout.first[i + 1] - s->layout.first[i];
        if (!s->n_todo)
            s->next_position = s->layout.first[i];
        s->todo[s->n_todo++] = i;
    }
    // What a part will read is not known; samples tell the share then.
    if (s->opt.n_parts == 1)
        s->progress.total_bytes = s->layout.source_bytes - s->sum.bytes_in;
    if (s->result.resumed)
        fl_log(&s->log, FL_LOG_INFO, "%" PRId64 " of %" PRId64 " shards are finished already",
               s->result.resumed, s->result.shards);
    return 0;
}

/* ---- prepare: the window's threads ---- */

static int64_t next_item(void *ctx)
{
    struct sharder *s = ctx;

    if (s->next_todo == s->n_todo)
        return -1;
    const int64_t item = s->next_position++;
    if (s->next_position == s->layout.first[s->todo[s->next_todo] + 1] &&
        ++s->next_todo < s->n_todo)
        s->next_position = s->layout.first[s->todo[s->next_todo]];
    return item;
}

static uint64_t prepare(void *ctx, unsigned thread, unsigned slot, int64_t item)
{
    struct sharder *s = ctx;

    fl_convert(s->converters[thread], fl_layout_sample(&s->layout, item), &s->slots[slot]);
    return s->slots[slot].bytes.len;
}

static int start(struct sharder *s)
{
    const struct fl_convert_cfg cfg = { .source = s->source,
                                        .slice = s->run.slice,
                                        .check = !s->opt.no_check,
                                        .drop_icc = s->run.drop_icc,
                                        .max_side = s->run.max_side,
                                        .quality = s->run.quality };
    const struct fl_window_cfg window = { .n_threads = s->n_threads,
                                          .n_slots = s->n_slots,
                                          .budget = WINDOW_BYTES,
                                          .ctx = s,
                                          .next = next_item,
                                          .prepare = prepare };
    int err = 0;

    s->converters = calloc(s->n_threads, sizeof(struct fl_converter *));
    s->slots = calloc(s->n_slots, sizeof(*s->slots));
    if (!s->converters || !s->slots)
        return fl_err(FL_ERR(ENOMEM), FL_STAGE_PLAN, "no memory for the sharder's threads");
    for (unsigned i = 0; i < s->n_threads && !err; i++)
        err = fl_converter_new(&s->converters[i], &cfg);
    return err ? err : fl_window_start(&s->window, &window);
}

/* ---- write: the caller's thread ---- */

static int report(struct sharder *s, bool last)
{
    const int64_t now = fl_now_ns();

    if (!s->opt.progress || (!last && now - s->reported < PROGRESS_NS))
        return 0;
    s->reported = now;
    s->progress.seconds = (double)(now - s->started) * 1e-9;
    if (!s->opt.progress(s->opt.progress_cookie, &s->progress) || last)
        return 0;
    return fl_err(FL_ERR(ECANCELED), FL_STAGE_PLAN,
                  "stopped after %" PRId64 " of %" PRId64
                  " samples; the same command goes on from there",
                  s->progress.done, s->progress.total);
}

/* The next sample in order; reports while it waits. */
static int take(struct sharder *s, struct fl_prepared **p)
{
    for (;;) {
        const int slot = fl_window_take(s->window, fl_now_ns() + PROGRESS_NS);
        const int err = report(s, false);
        if (err)
            return err;
        if (slot == -1)
            continue;
        if (slot < 0) // cannot be: the plan has as many samples as the window was asked for
            return fl_err(FL_ERR(EIO), FL_STAGE_PLAN, "the sharder's threads ended too early");
        *p = &s->slots[slot];
        return (*p)->err.code ? fl_err_raise(&(*p)->err) : 0;
    }
}

static int write_sample(struct sharder *s)
{
    struct fl_prepared *p = NULL;
    int err = take(s, &p);

    if (err)
        return err;
    const int64_t damaged = s->output.counts.damaged;
    err = fl_output_add(&s->output, p);
    if (err)
        return err;
    if (s->output.counts.damaged > damaged)
        fl_log(&s->log, FL_LOG_WARNING, "%s is damaged and kept as it is: %s", p->key, p->warning);
    s->progress.bad += s->output.counts.damaged - damaged;
    s->progress.done++;
    s->progress.bytes += p->bytes_in;
    fl_window_release(s->window);
    return 0;
}

static int write_shard(struct sharder *s, int64_t shard)
{
    int err = fl_output_open(&s->output, shard);

    for (int64_t i = s->layout.first[shard]; i < s->layout.first[shard + 1] && !err; i++)
        err = write_sample(s);
    if (!err)
        err = fl_output_close(&s->output);
    if (!err)
        fl_shard_counts_add(&s->sum, &s->output.counts);
    return err;
}

static int write_all(struct sharder *s)
{
    const struct fl_shard_counts *sum = &s->sum;
    int err = s->n_todo ? start(s) : 0;

    for (int64_t i = 0; i < s->n_todo && !err; i++)
        err = write_shard(s, s->todo[i]);
    fl_window_stop(s->window);
    s->window = NULL;
    s->result.samples = sum->samples;
    s->result.bytes_in = sum->bytes_in;
    s->result.bytes_out = sum->bytes_out;
    s->result.sliced = sum->sliced;
    s->result.kept = sum->kept;
    s->result.damaged = sum->damaged;
    s->result.shrunk = sum->shrunk;
    return err;
}

static void fini(struct sharder *s)
{
    fl_window_stop(s->window);
    fl_output_fini(&s->output);
    for (unsigned i = 0; i < s->n_threads && s->converters; i++)
        fl_converter_free(s->converters[i]);
    for (unsigned i = 0; i < s->n_slots && s->slots; i++)
        fl_prepared_fini(&s->slots[i]);
    free(s->converters);
    free(s->slots);
    free(s->todo);
    fl_layout_fini(&s->layout);
    fl_run_fini(&s->run);
    fl_target_fini(&s->target);
    free(s);
}

static int run(struct sharder *s, const char *dst)
{
    const struct fl_layout_cfg cfg = { .shard_bytes = s->opt.shard_bytes,
                                       .seed = s->opt.seed,
                                       .shuffle = !s->opt.no_shuffle,
                                       .max_side = s->opt.max_side };
    int err;

    if ((err = fl_target_init(&s->target, dst)) ||
        (err = fl_target_apart(&s->target, fl_dataset_root(s->source))) ||
        (err = fl_layout_init(&s->layout, s->ix, &cfg)) || (err = describe(s)) ||
        (err = fl_target_begin(&s->target, &s->run, s->opt.overwrite)) || (err = list_todo(s)) ||
        (err = write_all(s)))
        return err;
    if (s->opt.n_parts == 1)
        err = fl_shard_merge(&s->target, &s->run, NULL, NULL);
    return err ? err : report(s, true);
}

int fl_shard(FlDataset *src, const char *dst, const FlShardOptions *opt, FlShardResult *result)
{
    int err = check_options(src, dst, opt);

    if (!err)
        err = fl_dataset_check_process(src);
    if (err)
        return err;
    struct sharder *s = calloc(1, sizeof(*s));
    if (!s)
        return fl_err(FL_ERR(ENOMEM), FL_STAGE_PLAN, "no memory to shard");
    s->target.lock = -1;
    s->source = src;
    s->ix = fl_dataset_index(src);
    resolve_options(s, opt);
    fl_output_init(&s->output, &s->target, &s->run, s->ix);
    s->progress.what = "sharding";
    s->started = fl_now_ns();
    err = run(s, dst);
    if (result)
        *result = s->result;
    fini(s);
    return err;
}
