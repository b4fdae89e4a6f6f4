/* SPDX-License-Identifier: Apache-2.0 */
/* Filling an FlConfig: what launchers set, and what is refused. */
#include <feedline/feedline.h>

#include "t.h"

static const char *const names[] = {
    "RANK",         "WORLD_SIZE",   "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
    "SLURM_PROCID", "SLURM_NTASKS", "SLURM_STEP_NUM_TASKS"
};

static const struct {
    const char *name;
    const char *values[T_LEN(names)];
    int err;
    int32_t rank, world;
    const char *says;
} cases[] = {
    { "no launcher", { NULL }, 0, 7, 9, NULL },
    { "torchrun", { "3", "8" }, 0, 3, 8, NULL },
    { "torchrun, one process", { "0", "1" }, 0, 0, 1, NULL },
    { "Open MPI", { NULL, NULL, "5", "6" }, 0, 5, 6, NULL },
    { "srun", { NULL, NULL, NULL, NULL, "2", "16", "4" }, 0, 2, 4, NULL },
    { "a batch script is one process", { NULL, NULL, NULL, NULL, "0", "16" }, 0, 7, 9, NULL },
    { "torchrun started by srun", { "9", "16", NULL, NULL, "1", "2", "2" }, 0, 9, 16, NULL },
    { "mpirun under Slurm: a helper for each host",
      { NULL, NULL, "9", "16", "1", "2", "2" },
      0,
      9,
      16,
      NULL },
    { "torchrun inside mpirun", { "1", "2", "9", "16" }, 0, 1, 2, NULL },
    { "rank beyond", { "8", "8" }, -EINVAL, 7, 9, "RANK is 8, but WORLD_SIZE is 8" },
    { "negative", { "-1", "8" }, -EINVAL, 7, 9, "RANK is \"-1\"" },
    { "no number", { "one", "8" }, -EINVAL, 7, 9, "RANK is \"one\"" },
    { "more than a number", { "1", "8x" }, -EINVAL, 7, 9, "WORLD_SIZE is \"8x\"" },
    { "empty", { "", "8" }, -EINVAL, 7, 9, "RANK is \"\"" },
    { "no ranks", { "0", "0" }, -EINVAL, 7, 9, "RANK is 0, but WORLD_SIZE is 0" },
    { "huge", { "1", "99999999999999999999" }, -EINVAL, 7, 9, "WORLD_SIZE" },
    { "beyond int32", { "1", "4294967296" }, -EINVAL, 7, 9, "WORLD_SIZE" },
    { "half a pair", { "3", NULL }, -EINVAL, 7, 9, "WORLD_SIZE is not set" },
    { "the other half",
      { NULL, NULL, NULL, "6" },
      -EINVAL,
      7,
      9,
      "OMPI_COMM_WORLD_RANK is not set" },
    { "wrong in srun",
      { NULL, NULL, NULL, NULL, "4", "16", "4" },
      -EINVAL,
      7,
      9,
      "SLURM_PROCID is 4" },
};

static void test_from_env(void)
{
    for (size_t i = 0; i < T_LEN(cases); i++) {
        FlConfig cfg = FL_CONFIG_DEFAULT;
        t_case(cases[i].name);
        for (size_t k = 0; k < T_LEN(names); k++) {
            unsetenv(names[k]);
            if (cases[i].values[k])
                setenv(names[k], cases[i].values[k], 1);
        }
        cfg.rank = 7;
        cfg.world_size = 9;
        T_EQ(fl_config_from_env(&cfg), cases[i].err);
        T_EQ(cfg.rank, cases[i].rank);
        T_EQ(cfg.world_size, cases[i].world);
        if (cases[i].says)
            T_HAS(fl_last_error()->message, cases[i].says);
    }
}

static void test_columns(void)
{
    FlConfig cfg;
    const FlImage image = { .width = 8, .height = 8 };
    const int64_t shape[FL_MAX_DIMS + 1] = { 1, 1, 1, 1, 1, 1, 1 };
    char name[80];

    t_case("columns");
    fl_config_init(&cfg);
    T_EQ(cfg.struct_size, sizeof(cfg));
    T_EQ(fl_config_image(&cfg, "jpg", &image), 0);
    T_EQ(fl_config_label(&cfg, "cls"), 1);
    T_EQ(fl_config_raw(&cfg, "bin", FL_F32, FL_MAX_DIMS + 1, shape), -EINVAL);
    T_EQ(fl_config_label(&cfg, ""), -EINVAL);
    memset(name, 'x', sizeof(name));
    name[sizeof(name) - 1] = 0;
    T_EQ(fl_config_label(&cfg, name), -EINVAL);
    T_HAS(fl_last_error()->message, "longer than 63");
    while (cfg.n_columns < FL_MAX_COLUMNS)
        T_EQ(fl_config_bytes(&cfg, "txt", 0), cfg.n_columns - 1);
    T_EQ(fl_config_label(&cfg, "one more"), -E2BIG);

    t_case("evaluation touches pictures alone");
    cfg.columns[0].image.crop = FL_CROP_NONE;
    fl_config_evaluation(&cfg);
    T_EQ(cfg.columns[0].image.crop, FL_CROP_NONE);
    T_EQ(cfg.columns[0].image.exact, FL_ON);
    T_EQ(cfg.columns[1].image.exact, FL_AUTO);
}

int main(void)
{
    test_from_env();
    test_columns();
    return t_done();
}
