/* SPDX-License-Identifier: Apache-2.0 */
/* What a drive gives without us: plain reads of one size anywhere in a dataset's or a folder's files, many at once. */
#ifndef FL_TOOLS_DRIVE_H
#define FL_TOOLS_DRIVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <feedline/dataset.h>

struct drive_options {
    const char *root; // path of the dataset, or of any folder or file
    size_t piece;     // bytes of a read, rounded to pages; 0: 128 KiB
    int threads;      // reads at once, 0: 32
    double seconds;
};

struct drive {
    bool direct;      // O_DIRECT works on the dataset's files
    int direct_error; // errno if not
    int files;        // looked at, 0: none could be opened
    size_t piece;     // as used
    int threads;
    double rate;        // bytes a second
    double cpu_seconds; // of the threads, for each GB
};

/* Fill *d from files of samples that are spread over the dataset; ds NULL: from the first large files below
 * the root. */
void drive_measure(struct drive *d, const FlDataset *ds, const struct drive_options *opt);

#endif
