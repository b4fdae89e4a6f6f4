/* SPDX-License-Identifier: Apache-2.0 */
#include "balance.h"

#include <stdlib.h>

#include "base/err.h"
#include "index/dataset.h"

struct labelled {
    int64_t value, at; // place among those that take part
};

static int by_value(const void *a, const void *b)
{
    const int64_t x = ((const struct labelled *)a)->value, y = ((const struct labelled *)b)->value;
    return (x > y) - (x < y);
}

/* Labels of those that take part, in the order's own sequence. */
static int read_labels(const FlDataset *ds, const struct fl_order_cfg *cfg, int32_t field,
                       struct labelled *labels, int64_t *n)
{
    struct fl_order_cfg plain = *cfg;
    struct fl_order o;

    plain.shuffle = FL_SHUFFLE_NONE;
    plain.weights = NULL;
    plain.length = 0;
    int err = fl_order_init(&o, &plain);
    if (err)
        return err;
    *n = o.n;
    for (int64_t i = 0; i < o.n && !err; i++) {
        const int64_t id = fl_order_at(&o, 0, i);
        labels[i].at = i;
        err = fl_index_int(fl_dataset_index(ds), field, id, &labels[i].value);
        if (err == FL_ERR(ENOENT))
            err = fl_err(err, FL_STAGE_PLAN, "sample %lld has no field \"%s\" to balance by",
                         (long long)id, fl_index_field(fl_dataset_index(ds), field)->name);
    }
    fl_order_fini(&o);
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
    *weights = malloc((size_t)(room + 1) * sizeof(**weights));
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
