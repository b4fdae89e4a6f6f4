/* SPDX-License-Identifier: Apache-2.0 */
/* Where each sample came from: the origin's keys in a hash table. */
#include "index/verify.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/hash.h"

static int fill(struct fl_origin *o)
{
    const struct fl_index *ix = fl_dataset_index(o->ds);
    const int64_t n = fl_index_info(ix)->n_samples;
    char key[FL_INDEX_MAX_NAME];

    for (o->slots = 16; o->slots < (size_t)n * 2;)
        o->slots *= 2;
    o->hash = malloc(o->slots * sizeof(*o->hash));
    o->sample = malloc(o->slots * sizeof(*o->sample));
    o->seen = calloc((size_t)n + 1, 1);
    if (!o->hash || !o->sample || !o->seen)
        return fl_err(FL_ERR(ENOMEM), FL_STAGE_PLAN, "%s: out of memory for %" PRId64 " keys",
                      fl_dataset_path(o->ds), n);
    memset(o->sample, 0xFF, o->slots * sizeof(*o->sample));
    for (int64_t s = 0; s < n; s++) {
        const int64_t len = fl_index_key(ix, s, key, sizeof(key));
        if (len < 0)
            return (int)len;
        const char *plain = key;
        while (plain[0] == '.' && plain[1] == '/')
            plain += 2; // as the sharder has it
        const uint64_t h = fl_hash64(plain, strlen(plain), 0);
        size_t i = h & (o->slots - 1);
        while (o->sample[i] >= 0)
            i = (i + 1) & (o->slots - 1);
        o->hash[i] = h;
        o->sample[i] = s;
    }
    return 0;
}

int fl_origin_open(struct fl_origin *o, const char *path)
{
    int err;

    *o = (struct fl_origin){ 0 };
    if (!path)
        return 0;
    if (!(err = fl_dataset_open(&o->ds, path, NULL)))
        err = fill(o);
    if (err) {
        const FlError why = *fl_err_slot();
        fl_origin_close(o);
        fl_err_raise(&why);
    }
    return err;
}

void fl_origin_close(struct fl_origin *o)
{
    fl_dataset_close(&o->ds);
    free(o->hash);
    free(o->sample);
    free((void *)o->seen);
    *o = (struct fl_origin){ 0 };
}
