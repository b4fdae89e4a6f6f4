/* SPDX-License-Identifier: Apache-2.0 */
/* A whole trainer in C: softmax regression on the pixels of small pictures. It is as simple as a model
 * gets, so that what is left to read is how a trainer embeds feedline: open a dataset, describe the
 * batch, open a loader, take batches, give them back.
 *
 *     train_softmax DATASET [EPOCHS]
 *
 * DATASET is a folder of shards made by `feedline shard`, or of class folders. Prints the mean loss of
 * each epoch, which falls. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <feedline/feedline.h>

enum { SIDE = 16, CHANNELS = 3, INPUTS = SIDE * SIDE * CHANNELS, BATCH = 64 };

/* Row k of `weights`: the INPUTS weights of class k, and its bias. */
struct model {
    int classes;
    float *weights, *gradient; // classes x (INPUTS + 1)
    float *scores;             // of one sample
};

static int model_init(struct model *m, int classes)
{
    const size_t n = (size_t)classes * (INPUTS + 1);

    m->classes = classes;
    m->weights = calloc(n, sizeof(float));
    m->gradient = calloc(n, sizeof(float));
    m->scores = calloc((size_t)classes, sizeof(float));
    return m->weights && m->gradient && m->scores ? 0 : -1;
}

static void model_free(struct model *m)
{
    free(m->weights);
    free(m->gradient);
    free(m->scores);
}

/* Class probabilities of one picture, in m->scores. Returns the most probable class. */
static int predict(struct model *m, const float *pixels)
{
    float largest = -INFINITY, sum = 0;
    int best = 0;

    for (int k = 0; k < m->classes; k++) {
        const float *w = m->weights + (size_t)k * (INPUTS + 1);
        float score = w[INPUTS];
        for (int i = 0; i < INPUTS; i++)
            score += w[i] * pixels[i];
        m->scores[k] = score;
        if (score > largest) {
            largest = score;
            best = k;
        }
    }
    for (int k = 0; k < m->classes; k++)
        sum += m->scores[k] = expf(m->scores[k] - largest);
    for (int k = 0; k < m->classes; k++)
        m->scores[k] /= sum;
    return best;
}

/* Adds the picture's share to the gradient. Returns its loss; *right counts hits. */
static double learn(struct model *m, const float *pixels, int64_t label, int64_t *right)
{
    *right += predict(m, pixels) == label;
    for (int k = 0; k < m->classes; k++) {
        const float error = m->scores[k] - (k == label ? 1.0F : 0.0F);
        float *g = m->gradient + (size_t)k * (INPUTS + 1);
        for (int i = 0; i < INPUTS; i++)
            g[i] += error * pixels[i];
        g[INPUTS] += error;
    }
    return -log(m->scores[label] > 1e-12F ? m->scores[label] : 1e-12);
}

static void update(struct model *m, float rate)
{
    for (size_t i = 0; i < (size_t)m->classes * (INPUTS + 1); i++) {
        m->weights[i] -= rate * m->gradient[i];
        m->gradient[i] = 0;
    }
}

/* One epoch: every batch until FL_EPOCH_END. Returns 0 or a feedline error. */
static int train_epoch(FlLoader *loader, struct model *m, int64_t epoch)
{
    FlBatch batch = { 0 };
    int64_t seen = 0, right = 0;
    double loss = 0;
    int err;

    while ((err = fl_loader_next(loader, &batch, NULL)) == 0) {
        const float *pixels = batch.columns[0].data;
        const int64_t *labels = batch.columns[1].data;
        for (int64_t i = 0; i < batch.size; i++) {
            if (batch.valid[i] && labels[i] >= 0 && labels[i] < m->classes) {
                loss += learn(m, pixels + i * INPUTS, labels[i], &right);
                seen++;
            }
        }
        update(m, 0.002F / (float)(batch.n_valid ? batch.n_valid : 1));
        fl_batch_release(&batch, NULL);
    }
    if (err == FL_EPOCH_END && seen)
        printf("epoch %" PRId64 ": loss %.4f, %.1f%% right, %" PRId64 " samples\n", epoch,
               loss / (double)seen, 100.0 * (double)right / (double)seen, seen);
    return err == FL_EPOCH_END ? 0 : err;
}

static int open_loader(FlLoader **loader, FlDataset *ds, int64_t epochs)
{
    const FlImage image = {
        .width = SIDE,
        .height = SIDE,
        .crop = FL_CROP_NONE, // the whole picture
        .exact = FL_OFF,      // decode no more of it than 16 x 16 pixels need
        .mean = FL_IMAGENET_MEAN,
        .std = FL_IMAGENET_STD,
        .dtype = FL_F32,
    };
    FlConfig cfg = FL_CONFIG_DEFAULT;
    int err;

    cfg.batch_size = BATCH;
    cfg.shuffle = FL_SHUFFLE_GLOBAL;
    cfg.epochs = epochs;
    cfg.bad_sample = FL_BAD_SKIP; // a damaged picture becomes a hole: valid[i] == 0
    if ((err = fl_config_image(&cfg, "jpg", &image)) < 0 ||
        (err = fl_config_label(&cfg, "cls")) < 0)
        return err;
    return fl_loader_open(loader, ds, &cfg);
}

int main(int argc, char **argv)
{
    const int64_t epochs = argc > 2 ? strtoll(argv[2], NULL, 10) : 5;
    FlDataset *ds = NULL;
    FlLoader *loader = NULL;
    FlDatasetInfo info;
    struct model model = { 0 };
    int err;

    if (argc < 2 || argc > 3 || epochs < 1) {
        fprintf(stderr, "usage: train_softmax DATASET [EPOCHS]\n");
        return 2;
    }
    if ((err = fl_dataset_open(&ds, argv[1], NULL)) || (err = fl_dataset_info(ds, &info)) ||
        (err = open_loader(&loader, ds, epochs)))
        goto out;
    if (info.n_classes < 2 || model_init(&model, info.n_classes)) {
        fprintf(stderr, "train_softmax: %s names %d classes, at least 2 are needed\n", argv[1],
                info.n_classes);
        err = 1;
    }
    for (int64_t epoch = 0; !err && epoch < epochs; epoch++)
        err = train_epoch(loader, &model, epoch);
out:
    if (err < 0)
        fprintf(stderr, "train_softmax: %s\n", fl_last_error()->message);
    model_free(&model);
    fl_loader_close(&loader);
    fl_dataset_close(&ds);
    return err ? 1 : 0;
}
