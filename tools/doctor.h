/* SPDX-License-Identifier: Apache-2.0 */
/* `feedline doctor`: what its files find out about the machine. */
#ifndef FL_TOOLS_DOCTOR_H
#define FL_TOOLS_DOCTOR_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include <feedline/feedline.h>

#include "drive.h"

struct doctor_host {
    int online, affinity;
    double quota;       // processors' worth of the cgroup, 0: none
    uint64_t available; // bytes of memory
    uint64_t memlock;   // RLIMIT_MEMLOCK, UINT64_MAX: unlimited
    int nodes;          // of NUMA
    int uring_error;    // errno of io_uring_setup(), 0: allowed
    int uring_disabled; // kernel.io_uring_disabled, -1: no such setting
};

struct doctor_gpu {
    bool cuda;     // a step of the CUDA runtime worked
    char why[256]; // what it said, if not
    int seen;      // GPUs that the driver's own library sees, -1: no such library
    char driver[80], name[96];
    int numa_node;                     // -1: unknown
    int32_t cuda_driver, cuda_runtime; // 13000 for CUDA 13.0
    uint64_t memory, memory_free;
    double pinned, pageable; // GB/s
};

#define DOCTOR_SIDE 224 // of the pictures that are made

struct doctor_decoding {
    bool done;
    char field[64];
    double one, all;     // pictures a second: in the caller's thread, with all workers
    double gpu;          // into the GPU's memory, decoded there where that can be; 0: not tried
    double share;        // of them decoded there
    double bytes;        // read for each picture
    FlLoaderStats stats; // of the run with all workers
};

struct doctor {
    const char *data;
    int32_t device;
    double seconds;
    char scratch[PATH_MAX]; // folder of our own, removed in the end
    bool made;              // the pictures are our own
    bool looked;            // else there is no page
    char data_error[512];   // why data is no dataset, "": it is one
    struct doctor_host host;
    struct drive drive;
    struct doctor_gpu gpu;
    struct doctor_decoding jpeg;
    double sample_bytes; // on average, of a dataset without pictures
};

void doctor_look_at_host(struct doctor_host *h);

void doctor_look_at_gpu(struct doctor_gpu *g, int ordinal);

/* Print all of it: the page. */
void doctor_print(const struct doctor *d);

#endif
