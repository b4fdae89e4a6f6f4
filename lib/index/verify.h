/* SPDX-License-Identifier: Apache-2.0 */
/* Checking samples one by one; verify.c hands them out to threads and reports in order. */
#ifndef FL_INDEX_VERIFY_H
#define FL_INDEX_VERIFY_H

#include <feedline/index.h>

#include "base/bytes.h"
#include "index/dataset.h"

/* Keys of the dataset that this one was made from: where to look for a sample's origin. */
struct fl_origin {
    FlDataset *ds;         // NULL: nothing to compare with
    uint64_t *hash;        // open addressing by hash of the key
    int64_t *sample;       // -1: free
    size_t slots;          // a power of two
    _Atomic uint8_t *seen; // by sample of the origin: it was found again
};

/* 0, or an error with a sentence. `path` NULL makes an empty one. */
int fl_origin_open(struct fl_origin *o, const char *path);
void fl_origin_close(struct fl_origin *o);

struct fl_finding_head {
    int64_t sample; // -1: none
    int32_t field;  // of it, -1: none in particular
    int32_t code;   // FL_ERR(...)
};

/* What is bad about samples; made in one thread, read in another. */
struct fl_findings {
    struct fl_bytes
        items; // struct fl_finding_head, then the sentence with its NUL, again and again
    int64_t samples, bad, structure, unchecked;
    uint64_t bytes;
};

/* Add a sentence. Out of memory loses the text, never the count. */
void fl_finding(struct fl_findings *f, struct fl_finding_head head, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Of something that is no sample. */
#define FL_FINDING_NONE ((struct fl_finding_head){ -1, -1, FL_ERR(EBADMSG) })

/* One thread's buffers and codec. */
struct fl_checker;

/* NULL: out of memory, with a sentence. */
struct fl_checker *fl_checker_new(const FlDataset *ds, struct fl_origin *origin, bool decode);
void fl_checker_free(struct fl_checker *c);

/* Check all fields of a sample: place, checksum, picture, slices, pixels against the origin. */
void fl_check_sample(struct fl_checker *c, int64_t sample, struct fl_findings *f);

/* Check an archive as a whole: its size and the hash of its headers and labels. */
void fl_check_archive(struct fl_checker *c, uint32_t id, struct fl_findings *f);

#endif
