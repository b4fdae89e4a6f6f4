/* SPDX-License-Identifier: Apache-2.0 */
#include "balance.h"

#include <stdlib.h>

#include "base/err.h"
#include "index/dataset.h"

struct labelled {
    int64_t value, at; // place in the dataset, or in the subset
};

static int by_value(const void *a, const void *b)
{
    const int64_t x = ((const struct labelled *)a)->value, y = ((const struct labelled *)b)->value;
    return (x > y) - (x < y);
}

/* Labels of those that take part. */
static int read_labels(const FlDataset *ds, const struct fl_order_cfg *cfg, int32_t field,
                       struct labelled *labels, int64_t *n)
{
    const struct fl_index *ix = fl_dataset_index(ds);
    const int64_t all = cfg->subset ? cfg->n_subset : cfg->n;
    int err = 0;

    *n = 0;
    for (int64_t i = 0; i < all && !err; i++) {
        const int64_t id = cfg->subset ? cfg->subset[i] : i;
        if (fl_order_excludes(cfg->exclude, cfg->n_exclude, id))
            continue;
        labels[*n].at = i;
        err = fl_index_int(ix, field, id, &labels[*n].value);
        if (err == FL_ERR(ENOENT))
            err = fl_err(err, FL_STAGE_PLAN, "sample %lld has no field \"%s\" to balance by",
                         (long long)id, fl_index_field(ix, field)->name);
        *n += !err;
    }
    return err;
}

static void weigh(struct labelled *labels, int64_t n, double *weights)
{
    qsort(labels, (size_t)n, sizeof(*labels), by_value);
    for (int64_t i = 0, end; i < n; i = end) {
        for (end = i; end < n && labels[end].value == labels[i].value; end++)
            ;
        for (int64_t k = i; k < end; k++)
            weights[labels[k].at] = 1.0 / (double)(end - i);
    }
}

int fl_balance_weights(const FlDataset *ds, const struct fl_order_cfg *cfg, const char *field,
                       double **weights)
{
    const struct fl_index *ix = fl_dataset_index(ds);
    const int32_t i = fl_index_find(ix, field);
    const int64_t room = cfg->subset ? cfg->n_subset : cfg->n;
    int64_t n = 0;

    if (i < 0)
        return fl_err(FL_ERR(ENOENT), FL_STAGE_PLAN, "balance: the dataset has no field \"%s\"",
                      field);
    if (fl_index_field(ix, i)->kind != FL_FIELD_INT)
        return fl_err(FL_ERR(EINVAL), FL_STAGE_PLAN, "balance: field \"%s\" does not hold integers",
                      field);
    struct labelled *labels = malloc((size_t)(room + 1) * sizeof(*labels));
    *weights = calloc((size_t)room + 1, sizeof(**weights)); // of what is excluded: 0
    int err = labels && *weights
                  ? read_labels(ds, cfg, i, labels, &n)
                  : fl_err(FL_ERR(ENOMEM), FL_STAGE_PLAN, "no memory to balance by \"%s\"", field);
    if (!err)
        weigh(labels, n, *weights);
    free(labels);
    if (err) {
        free(*weights);
        *weights = NULL;
    }
    return err;
}
