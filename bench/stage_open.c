/* SPDX-License-Identifier: Apache-2.0 */
/* Opening a dataset of a billion samples: a real index.fli of full length, as a sparse file in which only the blocks
 * that are looked at have been written, over one small archive that all samples point into.
 *
 * Prints how long it takes to open the dataset, to open a loader with a global shuffle, to get its first batch, and to
 * go on in the middle of an epoch, with the process's resident memory after each. Ends with 1 if opening both takes a
 * second, or 300 MB.
 *
 * usage: stage_open [SAMPLES [BATCH [DIR]]]     default 1,000,000,000 samples, 256, below TMPDIR or /tmp */
#include <feedline/feedline.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "index/format.h"
#include "order.h"
#include "span.h"

enum { RECORDS = 1000, BYTES = 64, BATCHES = 10, SLOTS = 2, KEY = 12, PIECES = 10 };

static char dir[300];
static int64_t n, batch_size = 256;
static uint8_t records[RECORDS][BYTES];

/* The file's head, as the reader takes it. */
static struct {
    struct fl_index_header header;
    struct fl_index_section table[PIECES];
} head;

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

/* ---- the archive ------------------------------------------------------------------------------------ */

static void make_archive(uint64_t *bytes)
{
    char path[400], h[512];

    snprintf(path, sizeof(path), "%s/shard-000000.tar", dir);
    FILE *f = fopen(path, "wb");
    if (!f)
        fail(path);
    for (int i = 0; i < RECORDS; i++) {
        unsigned sum = 0;
        memset(h, 0, sizeof(h));
        snprintf(h, 100, "%06d.bin", i);
        memcpy(h + 100, "0000644\0000000000\0000000000", 24);
        snprintf(h + 124, 12, "%011o", BYTES);
        memcpy(h + 136, "00000000000", 11);
        memset(h + 148, ' ', 8);
        h[156] = '0';
        memcpy(h + 257, "ustar\00000", 8);
        for (int k = 0; k < 512; k++)
            sum += (unsigned char)h[k];
        snprintf(h + 148, 8, "%06o", sum);
        for (int k = 0; k < BYTES; k++)
            records[i][k] = (uint8_t)(i * 7 + k);
        fwrite(h, 1, 512, f);
        memset(h, 0, sizeof(h));
        memcpy(h, records[i], BYTES);
        fwrite(h, 1, 512, f);
    }
    memset(h, 0, sizeof(h));
    fwrite(h, 1, 512, f);
    fwrite(h, 1, 512, f);
    if (fclose(f))
        fail(path);
    *bytes = (uint64_t)RECORDS * 1024 + 1024;
}

/* ---- the index -------------------------------------------------------------------------------------- */

static void section(uint32_t type, uint32_t field, uint32_t item, uint64_t count)
{
    const uint32_t i = head.header.n_sections++;

    head.table[i] = (struct fl_index_section){ .type = type,
                                               .field = field,
                                               .version = 1,
                                               .item = item,
                                               .count = count,
                                               .offset = head.header.payload,
                                               .length = count * item };
    head.header.payload += count * item;
}

static struct fl_index_schema schema_row(uint64_t field)
{
    return (struct fl_index_schema){ .name = field ? 3 : 0,
                                     .kind = field ? FL_FIELD_INT : FL_FIELD_BYTES,
                                     .flags = field ? 0 : FL_SCHEMA_CHECKSUM,
                                     .count = (uint64_t)n,
                                     .bytes = field ? 0 : (uint64_t)n * BYTES,
                                     .max_bytes = field ? 0 : BYTES };
}

/* Item i of a section. */
static void item_at(const struct fl_index_section *s, uint64_t i, uint64_t archive, uint8_t *to)
{
    const uint64_t record = i % RECORDS, key = i * KEY;
    const struct fl_index_schema row = schema_row(i);
    const struct fl_span span = { record * 1024 + 512, BYTES, 0,
                                  fl_checksum32(records[record], BYTES) };
    const struct fl_index_file file = { .size = archive, .mtime_ns = FL_MTIME_NONE };
    const int32_t label = (int32_t)(i % 1000);
    char text[32];

    switch (s->type) {
    case FL_SEC_SCHEMA:
        memcpy(to, &row, sizeof(row));
        break;
    case FL_SEC_SCHEMA_NAMES:
        *to = (uint8_t) "bincls"[i];
        break;
    case FL_SEC_SPANS:
        memcpy(to, &span, sizeof(span));
        break;
    case FL_SEC_INTS:
        memcpy(to, &label, sizeof(label));
        break;
    case FL_SEC_CONTAINERS:
        memcpy(to, &file, sizeof(file));
        break;
    case FL_SEC_CONTAINER_NAMES:
        *to = (uint8_t) "shard-000000.tar"[i];
        break;
    case FL_SEC_KEY_OFFSETS:
        memcpy(to, &key, sizeof(key));
        break;
    default: // FL_SEC_KEYS
        snprintf(text, sizeof(text), "%012llu", (unsigned long long)(i / KEY));
        *to = (uint8_t)text[i % KEY];
    }
}

/* Write the block that holds a logical offset. */
static void write_block(int fd, uint64_t at, uint64_t archive)
{
    static uint8_t block[FL_INDEX_BLOCK], item[64];
    const uint64_t number = at / FL_INDEX_PAYLOAD, first = number * FL_INDEX_PAYLOAD;
    const uint64_t left = head.header.payload - first,
                   len = left < FL_INDEX_PAYLOAD ? left : FL_INDEX_PAYLOAD;

    for (uint32_t k = 0; k < head.header.n_sections; k++) {
        const struct fl_index_section *s = &head.table[k];
        const uint64_t from = s->offset > first ? s->offset : first,
                       end = s->offset + s->length < first + len ? s->offset + s->length
                                                                 : first + len;
        for (uint64_t p = from; p < end;) {
            const uint64_t i = (p - s->offset) / s->item, in = (p - s->offset) % s->item;
            item_at(s, i, archive, item);
            const uint64_t take = s->item - in < end - p ? s->item - in : end - p;
            memcpy(block + (p - first), item + in, take);
            p += take;
        }
    }
    const uint64_t sum = fl_hash64(block, len, number);
    memcpy(block + len, &sum, sizeof(sum));
    if (pwrite(fd, block, len + 8, (off_t)(head.header.data + number * FL_INDEX_BLOCK)) !=
        (ssize_t)(len + 8))
        fail("write the index");
}

/* The blocks that one sample's look-ups touch. */
static void write_sample(int fd, int64_t id, uint64_t archive)
{
    for (uint32_t k = 0; k < head.header.n_sections; k++) {
        const struct fl_index_section *s = &head.table[k];
        if (s->type != FL_SEC_SPANS && s->type != FL_SEC_INTS)
            continue;
        const uint64_t at = s->offset + (uint64_t)id * s->item;
        write_block(fd, at, archive);
        if (at / FL_INDEX_PAYLOAD != (at + s->item - 1) / FL_INDEX_PAYLOAD)
            write_block(fd, at + s->item - 1, archive);
    }
}

/* A few batches at the beginning and in the middle of epoch 0. */
static void write_positions(int fd, int64_t from, uint64_t archive)
{
    const struct fl_order_cfg cfg = { .shuffle = FL_SHUFFLE_GLOBAL, .seed = 1, .n = n };
    struct fl_order o;

    if (fl_order_init(&o, &cfg))
        exit(1);
    for (int64_t p = from; p < from + batch_size * (BATCHES + SLOTS + 1) && p < n; p++)
        write_sample(fd, fl_order_at(&o, 0, p), archive);
    fl_order_fini(&o);
}

static void make_index(uint64_t archive)
{
    char path[400];

    memcpy(head.header.magic, FL_INDEX_MAGIC, 8);
    head.header.major = FL_INDEX_MAJOR;
    head.header.minor = FL_INDEX_MINOR;
    head.header.n_samples = (uint64_t)n;
    head.header.fingerprint = 1;
    head.header.kind = FL_KIND_TAR;
    section(FL_SEC_SCHEMA, FL_SECTION_NO_FIELD, sizeof(struct fl_index_schema), 2);
    section(FL_SEC_SCHEMA_NAMES, FL_SECTION_NO_FIELD, 1, 6);
    section(FL_SEC_SPANS, 0, sizeof(struct fl_span), (uint64_t)n);
    section(FL_SEC_INTS, 1, 4, (uint64_t)n);
    section(FL_SEC_CONTAINERS, FL_SECTION_NO_FIELD, sizeof(struct fl_index_file), 1);
    section(FL_SEC_CONTAINER_NAMES, FL_SECTION_NO_FIELD, 1, 16);
    section(FL_SEC_KEY_OFFSETS, FL_SECTION_NO_FIELD, 8, (uint64_t)n + 1);
    section(FL_SEC_KEYS, FL_SECTION_NO_FIELD, 1, (uint64_t)n * KEY);
    const size_t bytes = sizeof(head.header) + head.header.n_sections * sizeof(head.table[0]);
    head.header.data = FL_INDEX_DATA_ALIGN;
    head.header.checksum = fl_hash64(&head, bytes, 0);
    snprintf(path, sizeof(path), "%s/index.fli", dir);
    const int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0644);
    const uint64_t blocks = (head.header.payload + FL_INDEX_PAYLOAD - 1) / FL_INDEX_PAYLOAD;
    if (fd < 0 || ftruncate(fd, (off_t)(head.header.data + head.header.payload + blocks * 8)) ||
        pwrite(fd, &head, bytes, 0) != (ssize_t)bytes)
        fail(path);
    write_block(fd, 0, archive);
    write_block(fd, head.table[4].offset, archive);
    write_block(fd, head.table[6].offset - 1, archive);
    write_positions(fd, 0, archive);
    write_positions(fd, n / 2, archive);
    printf("%lld samples: an index of %.1f GB\n", (long long)n,
           (double)(head.header.payload + blocks * 8) * 1e-9);
    close(fd);
}

/* ---- measuring -------------------------------------------------------------------------------------- */

static double resident_mb(void)
{
    long all, pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");

    if (!f || fscanf(f, "%ld %ld", &all, &pages) != 2)
        pages = 0;
    if (f)
        fclose(f);
    return (double)pages * (double)sysconf(_SC_PAGESIZE) * 1e-6;
}

static int64_t say(const char *what, int64_t since)
{
    const int64_t now = fl_now_ns();

    printf("  %-44s %9.3f ms   resident %7.1f MB\n", what, (double)(now - since) * 1e-6,
           resident_mb());
    return fl_now_ns();
}

static void check(int err)
{
    if (!err)
        return;
    fprintf(stderr, "%s\n", fl_last_error()->message);
    exit(1);
}

static void take(FlLoader *l, int batches)
{
    FlBatch b = { 0 };

    for (int k = 0; k < batches; k++) {
        check(fl_loader_next(l, &b, NULL));
        for (int64_t i = 0; i < b.size; i++)
            if (memcmp((const uint8_t *)b.columns[0].data + i * BYTES, records[b.ids[i] % RECORDS],
                       BYTES) ||
                ((const int64_t *)b.columns[1].data)[i] != b.ids[i] % 1000) {
                fprintf(stderr, "wrong bytes at position %lld\n", (long long)(b.position + i));
                exit(1);
            }
        fl_batch_release(&b, NULL);
    }
}

/* False: opening took too much. */
static bool measure(void)
{
    static const int64_t shape[] = { BYTES };
    FlConfig cfg = FL_CONFIG_DEFAULT;
    FlDataset *ds = NULL;
    FlLoader *l = NULL;

    cfg.batch_size = batch_size;
    cfg.shuffle = FL_SHUFFLE_GLOBAL;
    cfg.seed = 1;
    cfg.n_workers = 1;
    cfg.host_slots = SLOTS;
    cfg.read_bytes = 16 << 20;
    check(fl_config_raw(&cfg, "bin", FL_U8, 1, shape) < 0);
    check(fl_config_label(&cfg, "cls") < 0);
    int64_t t = say("before", fl_now_ns());
    const int64_t begun = t;
    check(fl_dataset_open(&ds, dir, NULL));
    t = say("fl_dataset_open()", t);
    check(fl_loader_open(&l, ds, &cfg));
    t = say("fl_loader_open(), global shuffle", t);
    const bool ok = t - begun < 1000000000 && resident_mb() < 300;
    take(l, 1);
    t = say("the first batch", t);
    take(l, BATCHES - 1);
    t = say("nine more", t);
    check(fl_loader_seek(l, 0, n / 2));
    t = say("fl_loader_seek() to the middle", t);
    take(l, 1);
    t = say("its first batch", t);
    fl_loader_close(&l);
    fl_dataset_close(&ds);
    return ok;
}

int main(int argc, char **argv)
{
    const char *tmp = argc > 3 ? argv[3] : getenv("TMPDIR");
    char command[400];
    uint64_t archive;

    batch_size = argc > 2 ? strtoll(argv[2], NULL, 10) : batch_size;
    n = argc > 1 ? strtoll(argv[1], NULL, 10) : 1000000000;
    if (n < RECORDS || batch_size < 1 || batch_size > 4096) {
        fprintf(stderr, "usage: stage_open [SAMPLES [BATCH [DIR]]]    at least %d samples\n",
                RECORDS);
        return 2;
    }
    snprintf(dir, sizeof(dir), "%s/feedline-open-XXXXXX", tmp ? tmp : "/tmp");
    if (!mkdtemp(dir))
        fail(dir);
    make_archive(&archive);
    make_index(archive);
    const bool ok = measure();
    snprintf(command, sizeof(command), "rm -rf '%s'", dir);
    return system(command) != 0 || !ok;
}
