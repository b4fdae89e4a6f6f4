/* SPDX-License-Identifier: Apache-2.0 */
#include "report.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/file.h"
#include "index/badlist.h"

/* One rank would read the list while another appends to it: their orders would differ, and nobody would know. */
static int check_list(const struct fl_report *r, const FlConfig *cfg)
{
    struct stat report, list;

    if (cfg->world_size < 2 || !cfg->exclude_file || fstat(r->fd, &report) ||
        stat(cfg->exclude_file, &list) || report.st_dev != list.st_dev ||
        report.st_ino != list.st_ino)
        return 0;
    return fl_err(
        FL_ERR(EINVAL), FL_STAGE_PLAN,
        "bad_report and exclude_file are the same file, %.200s: with several ranks one may read it "
        "while another appends to it; give the list a name of its own",
        cfg->bad_report);
}

int fl_report_open(struct fl_report *r, const struct fl_settings *settings,
                   const struct fl_log *log)
{
    const char *path = settings->cfg.bad_report;

    *r = (struct fl_report){ .fd = -1, .settings = settings, .log = *log };
    if (!path)
        return 0;
    r->fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (r->fd < 0)
        return fl_err_file(errno, "open the report of bad samples", path);
    r->path = strdup(path);
    return r->path ? check_list(r, &settings->cfg)
                   : fl_err_file(ENOMEM, "open the report of bad samples", path);
}

void fl_report_close(struct fl_report *r)
{
    if (!r->settings) // never opened
        return;
    if (r->fd >= 0)
        close(r->fd);
    free(r->path);
    *r = (struct fl_report){ .fd = -1 };
}

/* By row, then by attempt: in the order in which the consumer would have met them. */
static int by_row(const void *a, const void *b)
{
    const struct fl_bad *x = *(struct fl_bad *const *)a, *y = *(struct fl_bad *const *)b;

    return x->row != y->row ? (x->row > y->row) - (x->row < y->row)
                            : (x->attempt > y->attempt) - (x->attempt < y->attempt);
}

/* False: out of memory. */
static bool sort(struct fl_bad **list)
{
    size_t n = 0;

    for (const struct fl_bad *b = *list; b; b = b->next)
        n++;
    struct fl_bad **all = malloc((n + 1) * sizeof(void *));
    if (!all)
        return false;
    n = 0;
    for (struct fl_bad *b = *list; b; b = b->next)
        all[n++] = b;
    qsort(all, n, sizeof(void *), by_row);
    all[n] = NULL;
    for (size_t i = 0; i < n; i++)
        all[i]->next = all[i + 1];
    *list = all[0];
    free(all);
    return true;
}

static int add_line(const struct fl_report *r, struct fl_bytes *to, const struct fl_bad *b,
                    const FlBatch *batch)
{
    const struct fl_settings *s = r->settings;
    const bool replaced = batch && batch->valid[b->row];
    struct fl_bad_line line = { .ds = s->parts[b->part].ds,
                                .sample = b->id,
                                .field =
                                    b->column < 0 ? -1 : s->columns[b->column].from[b->part].field,
                                .epoch = b->epoch,
                                .position = b->err.position,
                                .rank = s->cfg.rank,
                                .attempt = b->attempt,
                                .code = b->err.code,
                                .stage = fl_stage_name(b->err.stage),
                                .message = b->err.message,
                                .action = !batch     ? "raised"
                                          : replaced ? "substituted"
                                                     : "skipped" };
    if (replaced) {
        line.by = s->parts[batch->parts ? batch->parts[b->row] : 0].ds;
        line.by_sample = batch->ids[b->row];
    }
    return fl_bad_line_add(to, &line);
}

static void give_up(struct fl_report *r, const char *why)
{
    r->failed = true;
    fl_log(&r->log, FL_LOG_ERROR, "%s: %s; no more bad samples are reported", r->path, why);
}

void fl_report_batch(struct fl_report *r, struct fl_bad **bad, const FlBatch *batch)
{
    struct fl_bytes lines = { 0 };
    int err = sort(bad) ? 0 : -1;

    for (const struct fl_bad *b = *bad; b && !err && !r->failed; b = b->next)
        err = add_line(r, &lines, b, batch);
    if (err)
        give_up(r, "out of memory");
    else if (!r->failed && (err = fl_write_all(r->fd, lines.data, lines.len)))
        give_up(r, strerror(-err));
    fl_bytes_free(&lines);
    fl_bad_free(bad);
}
