/* SPDX-License-Identifier: Apache-2.0 */
/* In place of pipeline_gpu.c in a build without CUDA: every picture is decoded on the CPU. */
#include "pipeline.h"

#include "base/err.h"

int fl_gpu_decode_open(struct fl_pipeline *p)
{
    return p->settings->cfg.decode == FL_DECODE_GPU
               ? fl_err(FL_ERR(ENODEV), FL_STAGE_DECODE, "decode = gpu, but this build has no CUDA")
               : 0;
}

void fl_gpu_decode_close(struct fl_pipeline *p)
{
    (void)p;
}

uint64_t fl_gpu_decode_bytes(const struct fl_pipeline *p)
{
    (void)p;
    return 0;
}

int64_t fl_gpu_decode_count(const struct fl_pipeline *p)
{
    (void)p;
    return 0;
}

int64_t fl_gpu_decode_left(const struct fl_pipeline *p, enum fl_gpu_left why)
{
    (void)p;
    (void)why;
    return 0;
}

uint64_t fl_gpu_decode_device_bytes(const struct fl_pipeline *p)
{
    (void)p;
    return 0;
}

void fl_gpu_decode_prepare(struct fl_pipeline *p, struct fl_sample *s)
{
    (void)p;
    s->on_gpu = 0;
}

int fl_gpu_decode_submit(struct fl_pipeline *p, struct fl_slot *slot, struct fl_device_job *job,
                         unsigned lane)
{
    (void)slot;
    (void)lane;
    return fl_device_copy(p->device, job); // never asked: p->gpu is NULL
}

bool fl_gpu_decode_settle(struct fl_pipeline *p, struct fl_slot *slot, unsigned lane)
{
    (void)p;
    (void)slot;
    (void)lane;
    return false;
}

void fl_gpu_decode_release(struct fl_pipeline *p, struct fl_slot *slot)
{
    (void)p;
    (void)slot;
}
