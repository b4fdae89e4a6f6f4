/* SPDX-License-Identifier: Apache-2.0 */
/* The public face of a loader: arguments checked, then handed to the pipeline. */
#include "loader.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "index/dataset.h"
#include "pipeline.h"
#include "state.h"

struct FlLoader {
    struct fl_pipeline pipeline;
    struct fl_settings settings;
    pid_t pid;
};

static int check(const FlLoader *l)
{
    if (!l)
        return fl_err(FL_ERR(EINVAL), FL_STAGE_CONSUMER, "loader is NULL");
    if (l->pid != getpid())
        return fl_err(FL_ERR(ECHILD), FL_STAGE_CONSUMER,
                      "this loader was opened by process %d; open another one in the forked child",
                      (int)l->pid);
    return 0;
}

int fl_loader_open_faulty(FlLoader **out, const FlPart *parts, int32_t n_parts, const FlConfig *cfg,
                          const struct fl_io_faults *faults)
{
    int err = 0;

    if (!out || !parts || !cfg)
        return fl_err(FL_ERR(EINVAL), FL_STAGE_PLAN, "out, parts or cfg is NULL");
    for (int32_t i = 0; i < n_parts && !err; i++)
        err = parts[i].dataset ? fl_dataset_check_process(parts[i].dataset) : 0;
    if (err)
        return err;
    FlLoader *l = calloc(1, sizeof(*l));
    if (!l)
        return fl_err(FL_ERR(ENOMEM), FL_STAGE_PLAN, "no memory for a loader");
    l->pid = getpid();
    if ((err = fl_settings_resolve(&l->settings, parts, n_parts, cfg)))
        goto fail;
    l->settings.faults = faults;
    if (cfg->device.type == FL_DEVICE_CUDA)
        l->settings.numa_node = fl_device_numa_node(cfg->device);
    if ((err = fl_pipeline_open(&l->pipeline, &l->settings)))
        goto fail;
    *out = l;
    return 0;
fail:
    free(l);
    return err;
}

int fl_loader_open_mixture(FlLoader **out, const FlPart *parts, int32_t n_parts,
                           const FlConfig *cfg)
{
    return fl_loader_open_faulty(out, parts, n_parts, cfg, NULL);
}

int fl_loader_open(FlLoader **out, FlDataset *ds, const FlConfig *cfg)
{
    const FlPart part = { .dataset = ds, .weight = 1 };
    return fl_loader_open_mixture(out, ds ? &part : NULL, 1, cfg);
}

int fl_loader_next_timeout(FlLoader *l, FlBatch *batch, void *stream, int64_t timeout_ms)
{
    int err = check(l);

    if (err)
        return err;
    if (!batch)
        return fl_err(FL_ERR(EINVAL), FL_STAGE_CONSUMER, "batch is NULL");
    const int64_t now = fl_now_ns();
    const int64_t deadline = timeout_ms < 0 || timeout_ms > (INT64_MAX - now) / 1000000
                                 ? INT64_MAX
                                 : now + timeout_ms * 1000000;
    return fl_pipeline_next(&l->pipeline, batch, stream, deadline);
}

int fl_loader_next(FlLoader *l, FlBatch *batch, void *stream)
{
    return fl_loader_next_timeout(l, batch, stream, -1);
}

int64_t fl_loader_batches(const FlLoader *l)
{
    return l ? fl_plan_batches(&l->pipeline.plan, 0) : FL_ERR(EINVAL);
}

int64_t fl_loader_samples(const FlLoader *l)
{
    return l ? fl_plan_samples(&l->pipeline.plan, 0) : FL_ERR(EINVAL);
}

/* What a state of this loader would hold now. */
static struct fl_state current(FlLoader *l)
{
    struct fl_pipeline *p = &l->pipeline;
    struct fl_state st = { .dataset = l->settings.fingerprint,
                           .order = fl_sequence_fingerprint(&p->sequence),
                           .pipeline = l->settings.pipeline_fingerprint,
                           .seed = l->settings.cfg.seed,
                           .world = (uint32_t)p->plan.world,
                           .batch = (uint32_t)p->plan.batch };

    st.exclude = fl_sequence_exclusions(&p->sequence, &st.n_excluded);
    pthread_mutex_lock(&p->pool->lock);
    st.position = fl_plan_position(&p->plan, &p->next, &st.epoch);
    if (st.epoch == p->next.epoch) {
        st.bad = p->epoch_bad;
        st.seen = p->epoch_seen;
    }
    pthread_mutex_unlock(&p->pool->lock);
    return st;
}

int fl_loader_state(FlLoader *l, void *buf, size_t size)
{
    const int err = check(l);

    if (err)
        return err;
    const struct fl_state st = current(l);
    return fl_state_pack(&st, buf, size);
}

/* Continue at a place, with that epoch's count of bad samples. */
static int go_to(FlLoader *l, const struct fl_state *to)
{
    struct fl_pipeline *p = &l->pipeline;
    const struct fl_cursor c = { .epoch = to->epoch, .base = to->position };

    if (to->epoch < 0 || to->position < 0 || to->position > p->plan.n)
        return fl_err(FL_ERR(EINVAL), FL_STAGE_PLAN,
                      "position %lld of epoch %lld is outside the %lld positions of an epoch",
                      (long long)to->position, (long long)to->epoch, (long long)p->plan.n);
    pthread_mutex_lock(&p->pool->lock);
    const bool there = p->next.epoch == c.epoch && p->next.base == c.base && !p->next.index;
    pthread_mutex_unlock(&p->pool->lock);
    const int err = there ? 0 : fl_pipeline_seek(p, &c);
    if (err)
        return err;
    pthread_mutex_lock(&p->pool->lock);
    p->epoch_bad = to->bad;
    p->epoch_seen = to->seen;
    pthread_mutex_unlock(&p->pool->lock);
    return 0;
}

int fl_loader_restore(FlLoader *l, const void *buf, size_t size, bool force)
{
    struct fl_state saved, now;
    int err = check(l);

    if (err || (err = fl_state_unpack(&saved, buf, size)))
        return err;
    now = current(l);
    if (!force && (err = fl_state_compare(&saved, &now)))
        return err;
    return go_to(l, &saved);
}

int fl_loader_seek(FlLoader *l, int64_t epoch, int64_t position)
{
    const struct fl_state to = { .epoch = epoch, .position = position };
    const int err = check(l);

    return err ? err : go_to(l, &to);
}

int64_t fl_loader_position(FlLoader *l, int64_t *epoch)
{
    int64_t of;

    if (!l)
        return fl_err(FL_ERR(EINVAL), FL_STAGE_CONSUMER, "loader is NULL");
    pthread_mutex_lock(&l->pipeline.pool->lock);
    const int64_t position = fl_plan_position(&l->pipeline.plan, &l->pipeline.next, &of);
    pthread_mutex_unlock(&l->pipeline.pool->lock);
    if (epoch)
        *epoch = of;
    return position;
}

int fl_loader_stats(FlLoader *l, FlLoaderStats *stats)
{
    FlLoaderStats all = { .struct_size = sizeof(all) };
    const int err = check(l);

    if (err)
        return err;
    if (!stats || stats->struct_size < sizeof(size_t) || stats->struct_size > sizeof(all))
        return fl_err(FL_ERR(EINVAL), FL_STAGE_CONSUMER,
                      "FlLoaderStats.struct_size is not set to sizeof(FlLoaderStats)");
    fl_pipeline_stats(&l->pipeline, &all);
    all.struct_size = stats->struct_size;
    memcpy(stats, &all, all.struct_size);
    return 0;
}

void fl_loader_close(FlLoader **loader)
{
    FlLoader *l = loader ? *loader : NULL;

    if (!l)
        return;
    *loader = NULL;
    if (l->pid != getpid())
        return; // a forked child has neither the threads nor the right: its copy goes with the process
    fl_pipeline_close(&l->pipeline);
    free(l);
}
