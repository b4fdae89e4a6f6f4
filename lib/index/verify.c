/* SPDX-License-Identifier: Apache-2.0 */
/* Re-reading a whole dataset with several threads; findings come in the order of the samples. */
#define _GNU_SOURCE
#include "index/verify.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/file.h"
#include "base/newfile.h"
#include "base/ordered.h"
#include "base/thread.h"
#include "index/badlist.h"

#define SAMPLES_PER_PIECE 64
#define MAX_UNSEEN 20 // samples of the origin that are missing, named

struct verify {
    const FlDataset *ds;
    const FlVerifyOptions *opt;
    FlVerifyResult *result;
    struct fl_origin origin;
    int64_t n_samples, n_archives;
    size_t sample_pieces;       // the archives' pieces, one each, stand before them
    struct fl_findings *pieces; // of all
    uint64_t total_bytes;
    int64_t begun;
    struct fl_new_file list; // quarantine
    struct fl_bytes lines;
    int64_t quarantined; // the sample whose line was written last, -1: none
};

static void *begin_thread(void *cookie)
{
    struct verify *v = cookie;

    return fl_checker_new(v->ds, &v->origin, v->opt->decode);
}

static void end_thread(void *cookie, void *state)
{
    (void)cookie;
    fl_checker_free(state);
}

static void work(void *cookie, void *state, size_t i)
{
    struct verify *v = cookie;
    struct fl_findings *f = &v->pieces[i];

    if ((int64_t)i < v->n_archives) {
        fl_check_archive(state, (uint32_t)i, f);
        return;
    }
    const int64_t first = ((int64_t)i - v->n_archives) * SAMPLES_PER_PIECE;
    for (int64_t s = first; s < first + SAMPLES_PER_PIECE && s < v->n_samples; s++)
        fl_check_sample(state, s, f);
}

static int report(struct verify *v, bool end)
{
    const FlProgress p = {
        .what = "verifying",
        .done = v->result->samples,
        .total = v->n_samples,
        .bytes = v->result->bytes,
        .total_bytes = v->total_bytes,
        .bad = v->result->bad,
        .seconds = (double)(fl_now_ns() - v->begun) * 1e-9,
    };

    if (v->opt->progress && v->opt->progress(v->opt->progress_cookie, &p) && !end)
        return fl_err(FL_ERR(ECANCELED), FL_STAGE_PLAN, "%s: verifying was stopped by the caller",
                      fl_dataset_path(v->ds));
    return 0;
}

static int idle(void *cookie)
{
    return report(cookie, false);
}

/* One line of the quarantine list for each bad sample: its first finding. */
static int quarantine(struct verify *v, const struct fl_finding_head *head, const char *text)
{
    const struct fl_bad_line line = { .ds = v->ds,
                                      .sample = head->sample,
                                      .field = head->field,
                                      .epoch = -1,
                                      .code = head->code,
                                      .stage = "verify",
                                      .message = text,
                                      .action = "quarantined" };

    if (!v->opt->quarantine || head->sample < 0 || head->sample == v->quarantined)
        return 0;
    v->quarantined = head->sample;
    v->lines.len = 0;
    if (fl_bad_line_add(&v->lines, &line))
        return fl_err(FL_ERR(ENOMEM), FL_STAGE_PLAN, "no memory for a line of %s",
                      v->opt->quarantine);
    const int err = fl_write_all(v->list.fd, v->lines.data, v->lines.len);
    return err ? fl_err_file(-err, "write", v->opt->quarantine) : 0;
}

static int tell(struct verify *v, const struct fl_findings *f)
{
    struct fl_finding_head head;
    int err = 0;

    for (size_t at = 0; at + sizeof(head) < f->items.len && !err;) {
        const char *text = (const char *)f->items.data + at + sizeof(head);
        memcpy(&head, f->items.data + at, sizeof(head));
        if (v->opt->finding)
            v->opt->finding(v->opt->finding_cookie, head.sample, text);
        err = quarantine(v, &head, text);
        at += sizeof(head) + strlen(text) + 1;
    }
    return err;
}

static int join(void *cookie, size_t i)
{
    struct verify *v = cookie;
    struct fl_findings *f = &v->pieces[i];

    v->result->samples += f->samples;
    v->result->bad += f->bad;
    v->result->structure += f->structure;
    v->result->unchecked += f->unchecked;
    v->result->bytes += f->bytes;
    const int err = tell(v, f);
    fl_bytes_free(&f->items);
    return err;
}

static void check_index(struct verify *v)
{
    struct fl_findings f = { 0 };
    int64_t bad;

    if (fl_index_check(fl_dataset_index(v->ds), &bad))
        fl_finding(&f, FL_FINDING_NONE, "%s (%" PRId64 " blocks of the index in all)",
                   fl_last_error()->message, bad);
    v->result->structure += f.structure;
    (void)tell(v, &f); // of no sample: nothing is written
    fl_bytes_free(&f.items);
}

/* Samples of the origin that nothing here came from. */
static void check_unseen(struct verify *v)
{
    const struct fl_index *from = fl_dataset_index(v->origin.ds);
    const int64_t n = fl_index_info(from)->n_samples;
    struct fl_findings f = { 0 };
    int64_t unseen = 0;
    char key[FL_INDEX_MAX_NAME];

    for (int64_t s = 0; s < n; s++) {
        if (v->origin.seen[s] || unseen++ >= MAX_UNSEEN ||
            fl_index_key(from, s, key, sizeof(key)) < 0)
            continue;
        fl_finding(&f, FL_FINDING_NONE, "sample %" PRId64 " (%s) of %s is missing", s, key,
                   fl_dataset_path(v->origin.ds));
    }
    if (unseen > MAX_UNSEEN)
        fl_finding(&f, FL_FINDING_NONE, "%" PRId64 " more samples of %s are missing",
                   unseen - MAX_UNSEEN, fl_dataset_path(v->origin.ds));
    v->result->structure += f.structure;
    (void)tell(v, &f); // of no sample: nothing is written
    fl_bytes_free(&f.items);
}

static int verify_all(struct verify *v)
{
    const struct fl_index_info *info = fl_index_info(fl_dataset_index(v->ds));
    struct fl_ordered ordered = { .name = "fl-verify",
                                  .begin = begin_thread,
                                  .end = end_thread,
                                  .work = work,
                                  .join = join,
                                  .idle = idle };
    int err;

    v->n_samples = info->n_samples;
    v->n_archives = info->kind == FL_KIND_TAR ? info->n_containers : 0;
    v->sample_pieces = (size_t)(info->n_samples + SAMPLES_PER_PIECE - 1) / SAMPLES_PER_PIECE;
    for (int32_t i = 0; i < info->n_fields; i++)
        v->total_bytes += fl_index_field(fl_dataset_index(v->ds), i)->bytes;
    ordered.n = (size_t)v->n_archives + v->sample_pieces;
    ordered.n_threads = v->opt->n_threads ? v->opt->n_threads : fl_cpu_count();
    ordered.window = 8 * (size_t)ordered.n_threads;
    if (!(v->pieces = calloc(ordered.n + 1, sizeof(*v->pieces))))
        return fl_err(FL_ERR(ENOMEM), FL_STAGE_PLAN, "%s: out of memory", fl_dataset_path(v->ds));
    check_index(v);
    if (!(err = fl_ordered_run(&ordered, v)) && v->origin.ds)
        check_unseen(v);
    for (size_t i = 0; i < ordered.n; i++)
        fl_bytes_free(&v->pieces[i].items);
    free(v->pieces);
    return err ? err : report(v, true);
}

/* The list appears when all of it is known. */
static int verify_and_list(struct verify *v)
{
    int err;

    if (!v->opt->quarantine)
        return verify_all(v);
    v->quarantined = -1;
    if ((err = fl_new_file_open(&v->list, v->opt->quarantine)))
        return err;
    if ((err = verify_all(v)))
        fl_new_file_discard(&v->list);
    else
        err = fl_new_file_commit(&v->list);
    fl_bytes_free(&v->lines);
    return err;
}

int fl_dataset_verify(const FlDataset *ds, const FlVerifyOptions *options, FlVerifyResult *result)
{
    FlVerifyOptions opt = { .struct_size = sizeof(opt) };
    FlVerifyResult unused;
    struct verify v = {
        .ds = ds, .opt = &opt, .result = result ? result : &unused, .begun = fl_now_ns()
    };
    const FlError before = *fl_err_slot();
    int err;

    if (!ds)
        return fl_err(FL_ERR(EINVAL), FL_STAGE_PLAN, "fl_dataset_verify: the dataset is NULL");
    if (options && (options->struct_size < sizeof(size_t) || options->struct_size > sizeof(opt)))
        return fl_err(FL_ERR(EINVAL), FL_STAGE_PLAN, "FlVerifyOptions.struct_size is %zu, not %zu",
                      options->struct_size, sizeof(opt));
    if (options)
        memcpy(&opt, options, options->struct_size);
    if (opt.n_threads < 0 || opt.n_threads > 1024)
        return fl_err(FL_ERR(EINVAL), FL_STAGE_PLAN,
                      "FlVerifyOptions.n_threads is %d, not 0 to 1024", opt.n_threads);
    if ((err = fl_dataset_check_process(ds)))
        return err;
    *v.result = (FlVerifyResult){ 0 };
    if (!(err = fl_origin_open(&v.origin, opt.against)))
        err = verify_and_list(&v);
    const FlError why = *fl_err_slot();
    fl_origin_close(&v.origin);
    *fl_err_slot() = err ? why : before; // findings are no failure of this call
    return err;
}
