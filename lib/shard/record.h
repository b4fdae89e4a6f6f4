/* SPDX-License-Identifier: Apache-2.0 */
/* What is known of one finished shard: everything that its samples put into the index, and the shard's
 * size. It is renamed into place before its tar is, so a tar under its final name has a record, and a
 * run that starts again (or the merge of parts) needs neither the source nor the tar's bytes.
 *
 * A record is a header and the list of calls for index/writer.h; ids of fields and of header strings are the
 * record's own and are translated when it is replayed. Little endian; working files, never a format for
 * others: a record of another feedline version is not used. */
#ifndef FL_SHARD_RECORD_H
#define FL_SHARD_RECORD_H

#include <stddef.h>
#include <stdint.h>

#include <feedline/dataset.h>

#include "base/bytes.h"
#include "index/writer.h"
#include "jpeg/slice.h"

/* Sums over the samples of a shard; sums over shards are sums of these. */
struct fl_shard_counts {
    int64_t samples;
    uint64_t bytes_in;  // of source fields
    uint64_t bytes_out; // of tar files
    int64_t sliced, kept, damaged, shrunk;
};

void fl_shard_counts_add(struct fl_shard_counts *to, const struct fl_shard_counts *from);

struct fl_record_header {
    char magic[8];
    uint64_t plan;  // hash of the run that it belongs to
    uint64_t shard; // number
    uint64_t hash;  // of the tar's header bytes, for the index
    struct fl_shard_counts counts;
    uint64_t length;   // bytes of calls behind this header
    uint64_t calls;    // XXH3-64 of them
    uint64_t checksum; // XXH3-64 of everything above
};

/* Collects the calls of one shard. */
struct fl_record {
    struct fl_bytes calls;
    uint32_t n_fields;
    struct {
        char name[64];
        FlFieldKind kind;
    } fields[FL_INDEX_MAX_FIELDS];
    uint32_t n_headers;
    struct fl_bytes headers; // header strings, end to end
    struct fl_bytes ends;    // uint64_t: where each of them ends
    uint32_t *table;         // open addressing over ids + 1
    size_t table_cap;
};

void fl_record_fini(struct fl_record *r);

/* Forget everything for the next shard; memory is kept. */
void fl_record_clear(struct fl_record *r);

/* All of these return 0 (or an id >= 0), FL_ERR(ENOMEM) or FL_ERR(E2BIG) with a sentence. */
int fl_record_field(struct fl_record *r, const char *name, FlFieldKind kind);
int fl_record_sample(struct fl_record *r, const char *key, size_t len);
int fl_record_span(struct fl_record *r, int field, const struct fl_span *span);
int fl_record_int(struct fl_record *r, int field, int64_t value);
int fl_record_image(struct fl_record *r, int field, const struct fl_index_image *image);

/* Slice table with its header strings; the blob's ids are set here. */
int fl_record_slices(struct fl_record *r, int field, const uint8_t *blob, size_t len,
                     const struct fl_slice_bytes headers[FL_SLICE_HEADERS]);

/* Write it as dir/name, in one step. Fills in magic, length and checksums of *header. */
int fl_record_write(const struct fl_record *r, struct fl_record_header *header, const char *dir,
                    const char *name);

/* Look at a record's header. FL_ERR(ENOENT), without a sentence: there is none of this run and shard, or it is
 * damaged, which is the same: it has to be made again. */
int fl_record_peek(const char *path, uint64_t plan, uint64_t shard,
                   struct fl_record_header *header);

/* Put everything into the index. `shard` is the container's path. FL_ERR(EBADMSG): damaged. */
int fl_record_replay(const char *path, struct fl_index_writer *w, const char *shard, uint64_t plan,
                     uint64_t number, struct fl_record_header *header);

#endif
