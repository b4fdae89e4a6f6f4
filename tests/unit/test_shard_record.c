/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"
#include "shard/record.h"
#include "t.h"

static char dir[] = "/tmp/feedline-record-XXXXXX";

/* A blob as index.h and slice.h have it: number of ids, three bytes, the ids, the rest. */
static size_t make_blob(uint8_t blob[32], uint8_t tail)
{
    memset(blob, 0, 32);
    blob[0] = FL_SLICE_HEADERS;
    blob[20] = tail;
    return 24;
}

static void fill(struct fl_record *r)
{
    const int cls = fl_record_field(r, "cls", FL_FIELD_INT);
    const int jpg = fl_record_field(r, "jpg", FL_FIELD_BYTES);
    uint8_t blob[32];

    T_EQ(cls, 0);
    T_EQ(jpg, 1);
    for (int i = 0; i < 3000; i++) {
        char key[32], quant[32];
        const int n = snprintf(key, sizeof(key), "k/%d", i);
        const int q = snprintf(quant, sizeof(quant), "tables %d", i % 1500); // each string twice
        const struct fl_span span = { .offset = (uint64_t)i * 1000, .length = 900, .checksum = 7 };
        const struct fl_index_image image = { .width = 10, .height = 20, .components = 3 };
        const struct fl_slice_bytes headers[FL_SLICE_HEADERS] = {
            { (const uint8_t *)"shared", 6 }, { (const uint8_t *)quant, (size_t)q }
        };
        T_EQ(fl_record_sample(r, key, (size_t)n), 0);
        T_EQ(fl_record_int(r, cls, i % 10), 0);
        T_EQ(fl_record_span(r, jpg, &span), 0);
        T_EQ(fl_record_image(r, jpg, &image), 0);
        const size_t len = make_blob(blob, (uint8_t)i);
        T_EQ(fl_record_slices(r, jpg, blob, len, headers), 0);
    }
    T_EQ(fl_record_field(r, "jpg", FL_FIELD_BYTES), jpg);
}

static void check_index(struct fl_index_writer *w)
{
    struct fl_index *ix = NULL;
    void *bytes;
    size_t size, len;
    int64_t value;
    struct fl_span span;
    uint8_t blob[64], header[64];

    T_EQ(fl_index_writer_memory(w, &bytes, &size), 0);
    T_EQ(fl_index_open_memory(&ix, bytes, size, "memory"), 0);
    if (!ix)
        return;
    T_EQ(fl_index_info(ix)->n_samples, 6000);
    T_EQ(fl_index_info(ix)->n_headers, 1501);
    const int32_t cls = fl_index_find(ix, "cls"), jpg = fl_index_find(ix, "jpg");
    T_EQ(fl_index_int(ix, cls, 4321, &value), 0);
    T_EQ(value, 1);
    T_EQ(fl_index_span(ix, jpg, 4321, &span), 0);
    T_EQ(span.container, 1);
    T_EQ(span.offset, 1321000);
    T_EQ(span.checksum, 7);
    // The ids of the second record are translated to those of the first appearance.
    T_EQ(fl_index_slices(ix, jpg, 4321, blob, sizeof(blob), &len), 0);
    T_EQ(len, 24);
    T_EQ(blob[20], (uint8_t)1321);
    uint32_t ids[FL_SLICE_HEADERS];
    T_EQ(fl_slice_blob_ids(blob, len, ids), 0);
    T_EQ(fl_index_header(ix, ids[1], header, sizeof(header), &len), 0);
    T_EQ(len, strlen("tables 1321"));
    T_EQ(memcmp(header, "tables 1321", len), 0);
    fl_index_close(&ix);
}

static void flip_byte(const char *path, off_t at)
{
    char c;
    const int fd = open(path, O_RDWR);

    T_EQ(pread(fd, &c, 1, at), 1);
    c ^= 1;
    T_EQ(pwrite(fd, &c, 1, at), 1);
    close(fd);
}

static void test_round_trip(void)
{
    static struct fl_record r; // large
    struct fl_record_header h = { .plan = 1, .shard = 5, .hash = 3 }, back;
    struct fl_index_writer *w = NULL;
    char *path = fl_path_join(dir, "x.record");

    t_case("write, look, replay");
    h.counts.samples = 3000;
    h.counts.bytes_out = 4000000;
    fl_record_clear(&r);
    fill(&r);
    T_EQ(fl_record_write(&r, &h, dir, "x.record"), 0);
    T_EQ(fl_record_peek(path, 1, 5, &back), 0);
    T_EQ(back.counts.samples, 3000);
    T_EQ(fl_index_writer_new(&w, FL_KIND_TAR), 0);
    T_EQ(fl_record_replay(path, w, "a.tar", 1, 5, &back), 0);
    T_EQ(fl_record_replay(path, w, "b.tar", 1, 5, &back), 0);
    check_index(w);
    fl_index_writer_free(&w);

    t_case("a cleared record gives the same bytes");
    void *first, *second;
    size_t first_len, second_len;
    T_EQ(fl_file_read(path, 1 << 28, &first, &first_len), 0);
    fl_record_clear(&r);
    fill(&r);
    T_EQ(fl_record_write(&r, &h, dir, "x.record"), 0);
    T_EQ(fl_file_read(path, 1 << 28, &second, &second_len), 0);
    T_EQ(first_len, second_len);
    T_EQ(memcmp(first, second, first_len), 0);
    free(first);
    free(second);

    t_case("not of this run, not this shard, not there");
    T_EQ(fl_record_peek(path, 2, 5, &back), FL_ERR(ENOENT));
    T_EQ(fl_record_peek(path, 1, 6, &back), FL_ERR(ENOENT));
    T_EQ(fl_record_peek("/nonexistent", 1, 5, &back), FL_ERR(ENOENT));

    t_case("damage");
    flip_byte(path, 5000);
    T_EQ(fl_index_writer_new(&w, FL_KIND_TAR), 0);
    T_EQ(fl_record_replay(path, w, "a.tar", 1, 5, &back), FL_ERR(EBADMSG));
    T_HAS(fl_last_error()->message, path);
    fl_index_writer_free(&w);
    flip_byte(path, 40);
    T_EQ(fl_record_peek(path, 1, 5, &back), FL_ERR(ENOENT));
    flip_byte(path, 40);
    T_EQ(truncate(path, 6000), 0);
    T_EQ(fl_record_peek(path, 1, 5, &back), FL_ERR(ENOENT));
    fl_record_fini(&r);
    T_EQ(unlink(path), 0);
    free(path);
}

int main(void)
{
    if (!mkdtemp(dir))
        T_SKIP("no temporary folder");
    test_round_trip();
    T_EQ(rmdir(dir), 0);
    return t_done();
}
