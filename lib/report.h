/* SPDX-License-Identifier: Apache-2.0 */
/* The report of bad samples: FlConfig.bad_report. The consumer's thread appends the lines of a batch that has bad
 * samples when it is handed out, or raised: what was read ahead and never handed out is in no report, and the
 * lines come in the order of the positions, whatever the workers did. A batch without a bad sample costs
 * nothing.
 *
 * All lines of a batch are one write() to a file opened with O_APPEND, so that ranks and runs may share it. */
#ifndef FL_REPORT_H
#define FL_REPORT_H

#include "base/log.h"
#include "batch.h"

struct fl_report {
    int fd; // -1: none
    char *path;
    bool failed;
    const struct fl_settings *settings;
    struct fl_log log;
};

/* Open settings->cfg.bad_report for appending; without one there is nothing to do. 0, or an error that names the
 * file. */
int fl_report_open(struct fl_report *r, const struct fl_settings *settings,
                   const struct fl_log *log);
void fl_report_close(struct fl_report *r); // zeroed memory is fine

/* Write the failures of one batch and free them. batch NULL: it was raised, not handed out. A file that cannot be
 * written is said once through the log; the loader goes on. */
void fl_report_batch(struct fl_report *r, struct fl_bad **bad, const FlBatch *batch);

#endif
