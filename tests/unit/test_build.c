/* SPDX-License-Identifier: Apache-2.0 */
/* An index built from pictures: sliced JPEGs get their tables back from the bytes alone, others do not; the real
 * photos where they are. */
#define _GNU_SOURCE
#include "t.h"

#include <unistd.h>

#include <feedline/index.h>

#include "index/dataset.h"
#include "jpeg/slice.h"
#include "make_tar.h"
#include "unit/jpeg_fixture.h"

#define N 12

static char folder[] = "/tmp/feedline-build-XXXXXX";
static size_t lengths[N];
static uint8_t *files[N];

/* Even pictures are sliced; every third other one has a restart marker each five MCUs, which makes slices
 * only of a row that five divides. */
static int is_sliced(int64_t i)
{
    return i % 2 == 0 || (i % 3 == 1 && (13 + i) % 5 == 0);
}

static void make(void)
{
    struct fl_slicer *slicer = fl_slicer_new();
    const struct fl_slice_options opt = { .check = true };
    struct fl_slice_result result;
    char path[256], name[32];

    snprintf(path, sizeof(path), "%s/0.tar", folder);
    FILE *f = fopen(path, "wb");
    for (int i = 0; i < N; i++) {
        files[i] =
            encode(200 + 16 * i, 150 + i, i % 3, i % 3 == 1 ? ENCODE_RESTART : 0, &lengths[i]);
        if (i % 2 == 0) {
            T_EQ(fl_slicer_rewrite(slicer, files[i], lengths[i], &opt, &result), 0);
            T_EQ(result.status, FL_SLICE_SLICED);
            free(files[i]);
            files[i] = malloc(result.len);
            memcpy(files[i], result.data, result.len);
            lengths[i] = result.len;
        }
        snprintf(name, sizeof(name), "%02d.jpg", i);
        tar_member(f, name, files[i], lengths[i]);
        tar_member(f, i < N - 1 ? (name[3] = 'c', name[4] = 'l', name[5] = 's', name) : "11.txt",
                   "5\n", 2);
    }
    tar_end(f);
    fclose(f);
    fl_slicer_free(slicer);
}

static void check_slices(const struct fl_index *ix, int32_t jpg, int64_t i)
{
    struct fl_slicer *slicer = fl_slicer_new();
    struct fl_index_image image;
    struct fl_slice_parts parts;
    struct fl_slice_table t;
    uint32_t ids[FL_SLICE_HEADERS];
    uint8_t blob[4096], header[4096];
    size_t len, header_len;

    T_EQ(fl_index_image(ix, jpg, i, &image), 0);
    T_EQ(image.width, 200 + 16 * i);
    T_EQ(image.height, 150 + i);
    T_EQ(image.sampling, i % 3 == 0   ? FL_SAMPLING_444
                         : i % 3 == 1 ? FL_SAMPLING_422
                                      : FL_SAMPLING_420);
    T_EQ(image.flags, is_sliced(i) ? FL_IMAGE_SLICED : 0);
    T_EQ(fl_index_slices(ix, jpg, i, blob, sizeof(blob), &len), 0);
    T_EQ(len > 0, is_sliced(i));
    if (len) {
        T_EQ(fl_slicer_table(slicer, files[i], lengths[i], &parts), 0);
        T_EQ(len, parts.blob.len);
        T_EQ(fl_slice_table_unpack(&t, blob, len), 0);
        T_EQ(fl_slice_blob_ids(blob, len, ids), 0);
        for (int k = 0; k < FL_SLICE_HEADERS; k++) {
            T_EQ(fl_index_header(ix, ids[k], header, sizeof(header), &header_len), 0);
            T_OK(header_len == parts.headers[k].len &&
                 !memcmp(header, parts.headers[k].data, header_len));
        }
    }
    fl_slicer_free(slicer);
}

static char finding[1024];

static void found(void *cookie, int64_t sample, const char *text)
{
    *(int64_t *)cookie = sample;
    snprintf(finding, sizeof(finding), "%s", text);
}

static void test_slices(void)
{
    int64_t sample = -1;
    FlVerifyOptions opt = {
        .struct_size = sizeof(opt), .decode = true, .finding = found, .finding_cookie = &sample
    };
    FlVerifyResult r;
    FlDataset *ds = NULL;
    struct fl_span span;

    t_case("slice tables from the bytes");
    make();
    T_EQ(fl_dataset_open(&ds, folder, NULL), 0);
    const struct fl_index *ix = fl_dataset_index(ds);
    const int32_t jpg = fl_index_find(ix, "jpg");
    T_EQ(fl_index_info(ix)->n_samples, N);
    T_EQ(fl_index_field(ix, jpg)->sliced, N / 2 + 1);
    T_OK(fl_index_info(ix)->n_headers > 0 && fl_index_info(ix)->n_headers <= N);
    for (int64_t i = 0; i < N; i++)
        check_slices(ix, jpg, i);
    T_EQ(fl_index_field(ix, fl_index_find(ix, "cls"))->kind, FL_FIELD_INT);
    T_EQ(fl_index_field(ix, fl_index_find(ix, "cls"))->count, N - 1);
    T_EQ(fl_index_field(ix, fl_index_find(ix, "txt"))->kind, FL_FIELD_BYTES);
    T_EQ(fl_dataset_verify(ds, &opt, &r), 0);
    T_EQ(r.bad + r.structure, 0);

    t_case("a flipped byte of a row group");
    char path[256];
    snprintf(path, sizeof(path), "%s/0.tar", folder);
    T_EQ(fl_index_span(ix, jpg, 4, &span), 0);
    FILE *f = fopen(path, "r+b");
    fseek(f, (long)(span.offset + span.length - 40), SEEK_SET);
    const int old = fgetc(f);
    fseek(f, -1, SEEK_CUR);
    fputc(old ^ 1, f);
    fclose(f);
    opt.decode = false;
    T_EQ(fl_dataset_verify(ds, &opt, &r), 0);
    T_EQ(r.bad, 1);
    T_EQ(sample, 4);
    T_HAS(finding, "sample 4 (04), field jpg");
    fl_dataset_close(&ds);
}

static void test_photos(void)
{
    FlDatasetOptions opt = FL_DATASET_OPTIONS_DEFAULT;
    const char *shared = getenv("FL_TEST_SHARED");
    char photos[1024], index[256], key[256];
    FlDataset *ds = NULL;
    FlFieldSpan span;

    snprintf(photos, sizeof(photos), "%s/photos", shared ? shared : "");
    snprintf(index, sizeof(index), "%s/photos.fli", folder);
    if (!shared || access(photos, R_OK)) {
        printf("without the real photos\n");
        return;
    }
    t_case("real photos");
    opt.index_path = index;
    T_EQ(fl_dataset_open(&ds, photos, &opt), 0);
    if (!ds)
        return;
    const int64_t n = fl_index_info(fl_dataset_index(ds))->n_samples;
    T_OK(n > 0);
    for (int64_t i = 0; i < n; i++) {
        T_EQ(fl_dataset_span(ds, i, 0, &span), 0);
        T_OK(span.width > 0 && span.height > 0 && (span.components == 1 || span.components == 3));
        T_OK(span.orientation >= 1 && span.orientation <= 8 && !span.sliced);
        T_OK(fl_dataset_key(ds, i, key, sizeof(key)) > 0 && !strstr(key, ".JPEG"));
    }
    fl_dataset_close(&ds);
}

int main(void)
{
    char command[64];

    if (!mkdtemp(folder))
        return 1;
    test_slices();
    test_photos();
    for (int i = 0; i < N; i++)
        free(files[i]);
    snprintf(command, sizeof(command), "rm -r %s", folder);
    T_EQ(system(command), 0);
    return t_done();
}
