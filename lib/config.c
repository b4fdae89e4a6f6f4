/* SPDX-License-Identifier: Apache-2.0 */
/* Filling an FlConfig. What needs the dataset to be judged is checked in settings.c. */
#include <feedline/config.h>

#include <stdlib.h>
#include <string.h>

#include "base/err.h"

void fl_config_init(FlConfig *cfg)
{
    *cfg = (FlConfig)FL_CONFIG_DEFAULT;
}

static int add(FlConfig *cfg, const char *field, FlColumnKind kind, FlColumnConfig **out)
{
    if (!cfg || !field || !*field)
        return fl_err(FL_ERR(EINVAL), FL_STAGE_PLAN, "a column needs the name of a field");
    if (strlen(field) >= sizeof(cfg->columns[0].field))
        return fl_err(FL_ERR(EINVAL), FL_STAGE_PLAN, "field name \"%.80s\" is longer than %d bytes",
                      field, (int)sizeof(cfg->columns[0].field) - 1);
    if (cfg->n_columns >= FL_MAX_COLUMNS)
        return fl_err(FL_ERR(E2BIG), FL_STAGE_PLAN,
                      "column \"%s\" is one more than the %d that fit", field, FL_MAX_COLUMNS);
    *out = &cfg->columns[cfg->n_columns];
    memset(*out, 0, sizeof(**out));
    memcpy((*out)->field, field, strlen(field) + 1);
    (*out)->kind = kind;
    return cfg->n_columns++;
}

int fl_config_image(FlConfig *cfg, const char *field, const FlImage *image)
{
    FlColumnConfig *c = NULL;
    const int i = add(cfg, field, FL_COLUMN_IMAGE, &c);

    if (i >= 0)
        c->image = *image;
    return i;
}

int fl_config_label(FlConfig *cfg, const char *field)
{
    FlColumnConfig *c = NULL;
    return add(cfg, field, FL_COLUMN_LABEL, &c);
}

int fl_config_raw(FlConfig *cfg, const char *field, FlDtype dtype, int32_t ndim,
                  const int64_t *shape)
{
    FlColumnConfig *c = NULL;

    if (ndim < 0 || ndim > FL_MAX_DIMS)
        return fl_err(FL_ERR(EINVAL), FL_STAGE_PLAN,
                      "column \"%s\": %d axes, but 0 to %d are possible", field ? field : "", ndim,
                      FL_MAX_DIMS);
    const int i = add(cfg, field, FL_COLUMN_RAW, &c);
    if (i >= 0) {
        c->dtype = dtype;
        c->ndim = ndim;
        memcpy(c->shape, shape, (size_t)ndim * sizeof(*shape));
    }
    return i;
}

int fl_config_bytes(FlConfig *cfg, const char *field, int64_t max_bytes)
{
    FlColumnConfig *c = NULL;
    const int i = add(cfg, field, FL_COLUMN_BYTES, &c);

    if (i >= 0)
        c->max_bytes = max_bytes;
    return i;
}

void fl_config_evaluation(FlConfig *cfg)
{
    cfg->shuffle = FL_SHUFFLE_NONE;
    cfg->tail = FL_TAIL_PARTIAL;
    cfg->weights = NULL;
    cfg->balance[0] = 0;
    cfg->epoch_samples = 0;
    cfg->bad_sample = FL_BAD_RAISE;
    for (int32_t i = 0; i < cfg->n_columns; i++) {
        FlImage *im = &cfg->columns[i].image;
        if (cfg->columns[i].kind != FL_COLUMN_IMAGE)
            continue;
        if (im->crop == FL_CROP_RANDOM_RESIZED)
            im->crop = FL_CROP_CENTER;
        im->flip = 0;
        im->exact = FL_ON;
    }
}

static int env_number(const char *name, long long *value)
{
    const char *text = getenv(name);
    char *end;

    if (!text)
        return fl_err(FL_ERR(EINVAL), FL_STAGE_PLAN,
                      "%s is not set, but its companion is: rank and world size come together",
                      name);
    errno = 0;
    *value = strtoll(text, &end, 10);
    if (errno || end == text || *end || *value < 0 || *value > INT32_MAX)
        return fl_err(FL_ERR(EINVAL), FL_STAGE_PLAN, "%s is \"%.40s\", which is not a rank or size",
                      name, text);
    return 0;
}

int fl_config_from_env(FlConfig *cfg)
{
    // Open MPI before Slurm: below mpirun the variables of Slurm are those of mpirun's own helpers. Slurm's number
    // of tasks is the step's: a batch script has SLURM_PROCID and SLURM_NTASKS too, but is one process.
    static const struct {
        const char *rank, *size;
        bool both; // one without the other is an error
    } launchers[] = {
        { "RANK", "WORLD_SIZE", true }, // torchrun
        { "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", true },
        { "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", false },
    };
    int err;

    for (size_t i = 0; i < sizeof(launchers) / sizeof(launchers[0]); i++) {
        const char *const names[] = { launchers[i].rank, launchers[i].size };
        const bool there[] = { getenv(names[0]) != NULL, getenv(names[1]) != NULL };
        long long rank, size;
        if (launchers[i].both ? !there[0] && !there[1] : !there[0] || !there[1])
            continue;
        if ((err = env_number(names[0], &rank)) || (err = env_number(names[1], &size)))
            return err;
        if (rank >= size)
            return fl_err(FL_ERR(EINVAL), FL_STAGE_PLAN, "%s is %lld, but %s is %lld", names[0],
                          rank, names[1], size);
        cfg->rank = (int32_t)rank;
        cfg->world_size = (int32_t)size;
        return 0;
    }
    return 0;
}
