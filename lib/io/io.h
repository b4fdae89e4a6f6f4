/* SPDX-License-Identifier: Apache-2.0 */
/* Reading backends: io_uring, pread and memory behind one small contract.
 *
 * An operation is one attempt to read one range into one place. Its result is what the kernel said:
 * a count, perhaps short, or a negative errno; what to do about it is the read stage's business
 * (lib/read.c). One thread calls submit, kick and wait (for io_uring: the same thread from start to
 * close); wake is for all.
 */
#ifndef FL_IO_IO_H
#define FL_IO_IO_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <feedline/config.h>
#include "base/log.h"

struct fl_io;

/* Do not try without blocking first: let a worker of the backend sit it out. */
#define FL_IO_BLOCKING 1u

struct fl_io_op {
    int fd;
    int file_slot;  // registered file, -1: none
    int buf_slot;   // registered buffer that holds buf .. buf + length, -1: none
    unsigned flags; // FL_IO_*
    uint64_t offset;
    uint32_t length;
    uint8_t *buf;
    int64_t result;  // bytes, or a negative errno; valid once wait() has returned the operation
    int64_t started; // fl_now_ns() at submit, set by the read stage
    struct fl_io_op *next; // private to whoever holds it
};

/* Memory that operations read into. */
struct fl_io_region {
    uint8_t *base;
    size_t bytes;
    const _Atomic size_t *touched; // bytes whose pages are there so far; NULL: all
};

/* What the memory backend injects. Zeros: nothing. All draws are keyed by seed and the operation's
 * number. */
struct fl_io_faults {
    uint64_t seed;
    int64_t delay_ns; // mean of the delay of a read, uniform from 0 to twice as much
    double p_short; // share of reads that return a random part of what was asked for (at least one
                    // byte)
    double p_again; // share of reads that fail with -EAGAIN or -EINTR
    double p_cold;  // share of ranges that count as not cached
    double p_miss;  // share of copies of cached ranges that find them gone
    double p_error; // share of reads that fail with `error`
    int error;      // a negative errno; 0: FL_ERR(EIO)
    int64_t only_slot;  // 0: faults hit every file, n: only the file opened n-th
    int64_t hang_after; // reads after so many never end before close; 0: never
    bool eof_early;     // reads end one byte before the range's end, then return 0 (a cut file)
};

struct fl_io_cfg {
    unsigned depth;   // operations in flight at most
    unsigned threads; // pread, memory: threads; 0: everything inside wait() in the caller's thread
    bool any_thread;  // submit and wait come from changing threads, one at a time
    unsigned n_files; // slots of the table of registered files; 0: none
    const struct fl_io_region *regions; // to register, in pieces, as far as their pages are there
    unsigned n_regions;
    const struct fl_io_faults *faults; // memory backend
    const struct fl_log *log;
};

/* What a backend came to. Written by open, start and grow. */
struct fl_io_info {
    const char *name; // "io_uring", "pread", "memory"
    unsigned depth;
    bool files, buffers; // registered
    char note[120];      // why something is not in use, with the errno; "" if all is
};

struct fl_io_ops {
    const char *name;

    /* 0, or FL_ERR(e) with a sentence in fl_last_error(): e is what the kernel refused with. */
    int (*open)(struct fl_io **out, const struct fl_io_cfg *cfg);

    /* First call of the thread that will submit and wait. fd is a file of at least one byte for the
     * self-test of registered buffers, -1: none. 0, or FL_ERR(e): the backend does not work here,
     * close it. */
    int (*start)(struct fl_io *io, int fd, uint64_t size);

    /* Put a descriptor in a slot of the table of registered files, -1 to empty it. False: not
     * registered. */
    bool (*set_file)(struct fl_io *io, unsigned slot, int fd);

    /* Registered buffer that holds the whole range, -1: none. */
    int (*find_buffer)(const struct fl_io *io, const uint8_t *buf, size_t bytes);

    /* Take an operation. Never blocks, never refuses below depth; it may begin only at kick or
     * wait. */
    void (*submit)(struct fl_io *io, struct fl_io_op *op);

    /* Begin what submit took. */
    void (*kick)(struct fl_io *io);

    /* Number of operations that have ended, at least one; 0 at the deadline (fl_now_ns() scale,
     * INT64_MAX: none) or after wake(); FL_ERR(e) if the backend itself broke. An operation's
     * memory belongs to the backend until here. */
    int (*wait)(struct fl_io *io, struct fl_io_op **done, unsigned max, int64_t deadline);

    /* Make the current or next wait() return. Any thread. */
    void (*wake)(struct fl_io *io);

    /* Ask that everything in flight ends soon; it still comes out of wait(). */
    void (*cancel)(struct fl_io *io);

    /* Any thread. False: operations are still in flight (a dead drive) and their memory must never
     * be reused.
     */
    bool (*close)(struct fl_io *io);

    const struct fl_io_info *(*info)(const struct fl_io *io);

    /* Register what has been touched since. True: there is more to come. NULL: nothing to register.
     * As submit. */
    bool (*grow)(struct fl_io *io);

    /* Stand-ins for io/cached.h, NULL: the page cache itself. Does the range count as cached (the
     * feeder's thread)? What can be had of it without waiting (any thread)? */
    bool (*cached)(struct fl_io *io, uint64_t offset, uint64_t length);
    int64_t (*copy)(struct fl_io *io, const struct fl_io_op *op);
};

extern const struct fl_io_ops
    fl_io_uring; // io/uring.c, or io/no-uring.c: open fails with FL_ERR(ENOSYS)
extern const struct fl_io_ops fl_io_pread;  // io/pread.c
extern const struct fl_io_ops fl_io_memory; // io/memory.c

#endif
