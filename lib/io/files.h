/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors of containers: one for each open container, least recently used first out, and what
 * is known of each: O_DIRECT or buffered, alignment, whether the file is the one that the index
 * describes. The feeder's thread only. */
#ifndef FL_IO_FILES_H
#define FL_IO_FILES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <feedline/config.h>
#include <feedline/error.h>

#include "io/cached.h"

/* What the index knows of a container. */
struct fl_container {
    const char *path; // as open(2) takes it; valid until the next call
    uint64_t size;    // bytes; the file must have exactly these
    int64_t mtime_ns; // INT64_MIN: unknown, nothing to compare
};

/* Where containers come from. Called by the feeder's thread only. */
struct fl_read_source {
    void *ctx;
    uint32_t n_containers;
    /* 0, or FL_ERR(e) with *err filled. */
    int (*container)(void *ctx, uint32_t id, struct fl_container *out, FlError *err);
    /* The size matches but the time of modification does not (people copy datasets): 0 takes the
     * file, FL_ERR(ESTALE) with *err filled refuses it. fd is open for buffered reads. NULL: take
     * it. */
    int (*check)(void *ctx, uint32_t id, int fd, FlError *err);
};

struct fl_file {
    uint32_t container;
    int fd;                // -1: not open
    unsigned slot;         // place in the table, which is also its slot among registered files
    _Atomic unsigned refs; // reads that need it; 0: may be closed
    uint64_t size;         // bytes
    uint32_t align;        // offsets and lengths must be multiples of it; 1: buffered
    uint32_t mem_align;    // likewise addresses
    /* A multiple of align that reads are better rounded to: drives work in blocks of 4,096 bytes
     * even where they take multiples of 512. */
    uint32_t round;
    bool direct;            // O_DIRECT is on
    bool registered;        // in the backend's table
    enum fl_cached_how how; // its page cache can be asked
    bool reopened;          // has been opened anew after ESTALE or EIO: once is enough
    uint32_t hash_next;     // private: place + 1 of the next file in the same bucket, 0: none
    uint32_t newer, older;  // private: neighbours in order of use, place + 1
};

struct fl_files_cfg {
    struct fl_read_source source;
    FlSwitch direct;
    unsigned max; // open files; 0: what a quarter of RLIMIT_NOFILE allows, 4,096 at most
    /* A descriptor was opened (fd >= 0) or is about to be closed (-1): true if it is registered
     * now. */
    bool (*set)(void *ctx, unsigned slot, int fd);
    void *set_ctx;
};

struct fl_files {
    struct fl_files_cfg cfg;
    struct fl_file *table;
    uint32_t *buckets; // place + 1 of the first file, 0: none
    uint8_t *accepted; // a bit for each container: another time of modification was found and taken
    unsigned n_table, n_buckets, n_used, max;
    uint32_t newest, oldest, spare; // place + 1, 0: none
    int64_t opened;                 // files ever opened
    _Atomic int64_t opening;        // container that is being opened right now, and 1; 0: none
    int64_t n_direct, n_buffered;   // of these
    char note[120]; // why a file is buffered though direct was not FL_OFF; the first reason found
};

int fl_files_open(struct fl_files *f, const struct fl_files_cfg *cfg);
void fl_files_close(struct fl_files *f);

/* Bytes that fl_files_open() allocates. */
uint64_t fl_files_bytes(const struct fl_files_cfg *cfg);

/* Number of files open at most, given the limit on descriptors. */
unsigned fl_files_max(const struct fl_files_cfg *cfg);

/* Hold a container's file open. 0; -EAGAIN: every descriptor is in use, put one first; FL_ERR(e)
 * with *err filled: it cannot be opened, or is not the file that the index describes
 * (FL_ERR(ESTALE)). */
int fl_files_get(struct fl_files *f, uint32_t container, struct fl_file **out, FlError *err);

/* Any thread. */
void fl_files_put(struct fl_files *f, struct fl_file *file);

/* Go on without O_DIRECT, on the same inode. False: it was off already. errno_: what the kernel
 * refused with. */
bool fl_files_go_buffered(struct fl_files *f, struct fl_file *file, int errno_);

/* Open the path anew under the same descriptor (a stale handle of a network file system, a drive
 * that came back). 0, or FL_ERR(e): not there, another file, or done before. Reads in flight are
 * not disturbed. */
int fl_files_reopen(struct fl_files *f, struct fl_file *file);

/* Path of a container for an error text; "container N" if even that fails. Valid until the next
 * call. */
const char *fl_files_path(struct fl_files *f, uint32_t container);

#endif
