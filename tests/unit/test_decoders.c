/* SPDX-License-Identifier: Apache-2.0 */
/* The decoders of plain fields: integers as text, bytes, and both compressed. */
#include "decoders/decoder.h"

#include <zstd.h>

#include "t.h"

static struct fl_settings settings;
static struct fl_column column;
static struct fl_sample sample;
static struct fl_sample_field field;

/* Decode `data`; the row's first bytes go to out. */
static int decode(const struct fl_decoder *d, const void *data, size_t len, void *out,
                  uint64_t room, uint64_t *row_len, FlError *err)
{
    struct fl_decode_job job = { .column = &column,
                                 .sample = &sample,
                                 .field = &field,
                                 .data = data,
                                 .len = len,
                                 .row = out,
                                 .row_room = room };
    void *ctx = NULL;
    uint64_t bytes = 0;

    *err = (FlError){ 0 };
    if (d->open)
        T_EQ(d->open(&ctx, &column, &settings, &bytes), 0);
    const int code = d->decode(ctx, &job, err);
    if (d->close)
        d->close(ctx);
    *row_len = job.row_len;
    return code;
}

static void test_labels(void)
{
    static const struct {
        const char *text;
        int err;
        int64_t value;
    } cases[] = {
        { "0", 0, 0 },
        { "17\n", 0, 17 },
        { " -5 \r\n", 0, -5 },
        { "+3", 0, 3 },
        { "9223372036854775807", 0, INT64_MAX },
        { "-9223372036854775808", 0, INT64_MIN },
        { "9223372036854775808", -EBADMSG, 0 },
        { "-9223372036854775809", -EBADMSG, 0 },
        { "", -EBADMSG, 0 },
        { "-", -EBADMSG, 0 },
        { "3.5", -EBADMSG, 0 },
        { "cat", -EBADMSG, 0 },
        { "1 2", -EBADMSG, 0 },
    };
    FlError err;

    column = (struct fl_column){ .cfg = { .field = "cls" }, .row_bytes = 8 };
    for (size_t i = 0; i < T_LEN(cases); i++) {
        int64_t value = 0;
        uint64_t len;
        t_case(cases[i].text);
        T_EQ(decode(&fl_decoder_label, cases[i].text, strlen(cases[i].text), &value, 8, &len, &err),
             cases[i].err);
        T_EQ(value, cases[i].value);
        if (cases[i].err)
            T_HAS(err.message, "\"cls\"");
    }
    t_case("an integer of the index costs no bytes");
    int64_t value = 0;
    uint64_t len;
    column.from[0].kind = FL_FIELD_INT;
    field.value = -77;
    T_EQ(decode(&fl_decoder_label, NULL, 0, &value, 8, &len, &err), 0);
    T_EQ(value, -77);
}

/* One frame of n bytes at `to`; returns its length. */
static size_t frame(char *to, size_t room, const char *data, size_t n, int window_log)
{
    ZSTD_CCtx *c = ZSTD_createCCtx();

    ZSTD_CCtx_setParameter(c, ZSTD_c_checksumFlag, 1);
    if (window_log)
        ZSTD_CCtx_setParameter(c, ZSTD_c_windowLog, window_log);
    const size_t len = ZSTD_compress2(c, to, room, data, n);
    ZSTD_freeCCtx(c);
    T_OK(!ZSTD_isError(len));
    return len;
}

static void test_zstd(void)
{
    static char plain[3000], packed[8000], out[4000];
    FlError err;
    uint64_t len;

    for (size_t i = 0; i < sizeof(plain); i++)
        plain[i] = (char)(i * i / 7);
    settings.cfg.max_window_log = 27;
    column = (struct fl_column){ .cfg = { .field = "json.zst", .kind = FL_COLUMN_BYTES },
                                 .max_row = 4000 };

    t_case("one frame");
    size_t n = frame(packed, sizeof(packed), plain, 1000, 0);
    T_EQ(decode(&fl_decoder_zstd, packed, n, out, sizeof(out), &len, &err), 0);
    T_EQ(len, 1000);
    T_OK(!memcmp(out, plain, 1000));

    t_case("several frames, and one to be skipped between them");
    static const char skippable[] = { 0x50, 0x2A, 0x4D, 0x18, 3, 0, 0, 0, 'a', 'b', 'c' };
    memcpy(packed + n, skippable, sizeof(skippable));
    n += sizeof(skippable);
    n += frame(packed + n, sizeof(packed) - n, plain + 1000, 2000, 0);
    T_EQ(decode(&fl_decoder_zstd, packed, n, out, sizeof(out), &len, &err), 0);
    T_EQ(len, 3000);
    T_OK(!memcmp(out, plain, 3000));

    t_case("anything else behind the last frame");
    memcpy(packed + n, "trailing", 8);
    T_EQ(decode(&fl_decoder_zstd, packed, n + 8, out, sizeof(out), &len, &err), -EBADMSG);
    T_HAS(err.message, "json.zst");

    t_case("cut, and a flipped bit: the frame's checksum is compared");
    n = frame(packed, sizeof(packed), plain, 1000, 0);
    T_EQ(decode(&fl_decoder_zstd, packed, n - 1, out, sizeof(out), &len, &err), -EBADMSG);
    packed[n - 1] ^= 1;
    T_EQ(decode(&fl_decoder_zstd, packed, n, out, sizeof(out), &len, &err), -EBADMSG);

    t_case("more than there is room for, whatever the frame says");
    n = frame(packed, sizeof(packed), plain, 3000, 0);
    T_EQ(decode(&fl_decoder_zstd, packed, n, out, 2999, &len, &err), -E2BIG);
    T_HAS(err.message, "2999");

    t_case("a window of 64 MiB needs no memory in one shot");
    n = frame(packed, sizeof(packed), plain, 3000, 26);
    T_EQ(decode(&fl_decoder_zstd, packed, n, out, sizeof(out), &len, &err), 0);

    t_case("a fixed shape");
    column.row_bytes = 2000;
    T_EQ(decode(&fl_decoder_zstd, packed, n, out, sizeof(out), &len, &err), -EBADMSG);
    T_HAS(err.message, "3000 bytes when decompressed, but the column's shape needs 2000");

    t_case("no zstd at all, and nothing");
    T_EQ(decode(&fl_decoder_zstd, plain, 100, out, sizeof(out), &len, &err), -EBADMSG);
    column.row_bytes = 0;
    T_EQ(decode(&fl_decoder_zstd, packed, 0, out, sizeof(out), &len, &err), 0);
    T_EQ(len, 0);
}

static void test_raw(void)
{
    char out[8] = "";
    FlError err;
    uint64_t len;

    t_case("raw");
    T_EQ(decode(&fl_decoder_raw, "abc", 3, out, 8, &len, &err), 0);
    T_EQ(len, 3);
    T_STR(out, "abc");
    T_EQ(decode(&fl_decoder_raw, "xyz", 3, NULL, 8, &len, &err), 0); // read straight to the row
    T_EQ(len, 3);
}

int main(void)
{
    test_labels();
    test_zstd();
    test_raw();
    return t_done();
}
