/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "shard/output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/file.h"
#include "formats/format.h"
#include "formats/name.h"

void fl_output_init(struct fl_output *o, const struct fl_target *target, const struct fl_run *run,
                    const struct fl_index *source)
{
    *o = (struct fl_output){
        .target = target, .run = run, .source = source, .shard = -1, .fd = -1, .tar = { .fd = -1 }
    };
}

/* The lock goes away with the process, however it ends; the file's name stays and is used again. */
static int lock(const struct fl_output *o)
{
    struct stat ours, named;

    if (flock(o->fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK)
        return fl_err(FL_ERR(EBUSY), FL_STAGE_PLAN,
                      "another process is writing %s: is the same part running twice?", o->path);
    // It may have been finished and renamed between our open and our lock.
    if (fstat(o->fd, &ours) || stat(o->path, &named) || ours.st_ino != named.st_ino ||
        ours.st_dev != named.st_dev)
        return fl_err(FL_ERR(EBUSY), FL_STAGE_PLAN,
                      "another process has just written %s: is the same part running twice?",
                      o->path);
    return ftruncate(o->fd, 0) ? fl_err_file(errno, "write", o->path) : 0;
}

int fl_output_open(struct fl_output *o, int64_t shard)
{
    char name[32];

    fl_run_shard_name(name, shard, "tar");
    o->path = fl_path_join(o->target->work, name);
    if (!o->path)
        return fl_err(FL_ERR(ENOMEM), FL_STAGE_PLAN, "no memory to write %s", name);
    o->fd = open(o->path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (o->fd < 0)
        return fl_err_file(errno, "create", o->path);
    int err = lock(o);
    if (err) {
        close(o->fd); // the file is not ours
        o->fd = -1;
        return err;
    }
    o->shard = shard;
    fl_record_clear(&o->record);
    fl_shard_keys_clear(&o->keys);
    o->counts = (struct fl_shard_counts){ 0 };
    return fl_tar_writer_init(&o->tar, o->fd, o->path);
}

/* Name of the sample in this shard, in o->name. Returns its length or an error. */
static int name_of(struct fl_output *o, const struct fl_prepared *p)
{
    const size_t room = FL_TAR_NAME_MAX - FL_FIELD_NAME_MAX; // the layout has refused longer ones
    uint64_t copy;
    int n = fl_shard_key(p->key, p->key_len, 1, o->name, room);
    const int err = n < 0 ? n : fl_shard_keys_add(&o->keys, o->name, (size_t)n, &copy);

    if (!err && copy > 1)
        n = fl_shard_key(p->key, p->key_len, copy, o->name, room);
    if (n == FL_ERR(E2BIG))
        return fl_err(FL_ERR(EINVAL), FL_STAGE_PLAN,
                      "the key of sample %lld is too long for a tar member's name: %.100s...",
                      (long long)p->sample, p->key);
    return err ? err : n;
}

static void count(struct fl_shard_counts *n, const struct fl_prepared_field *f)
{
    n->sliced += f->picture == FL_PICTURE_SLICED;
    n->kept += (f->picture == FL_PICTURE_KEPT || f->picture == FL_PICTURE_DAMAGED) && !f->shrunk;
    n->damaged += f->picture == FL_PICTURE_DAMAGED;
    n->shrunk += f->shrunk;
}

static int record_field(struct fl_output *o, const struct fl_prepared *p,
                        const struct fl_prepared_field *f, const char *name, uint64_t offset)
{
    const int id = fl_record_field(&o->record, name, f->kind);
    const struct fl_span span = { .offset = offset, .length = f->length, .checksum = f->checksum };
    struct fl_slice_bytes headers[FL_SLICE_HEADERS];

    if (id < 0)
        return id;
    if (f->kind == FL_FIELD_INT)
        return fl_record_int(&o->record, id, f->value);
    int err = fl_record_span(&o->record, id, &span);
    if (!err && f->picture != FL_PICTURE_NONE)
        err = fl_record_image(&o->record, id, &f->image);
    if (err || !f->blob_length)
        return err;
    for (int i = 0; i < FL_SLICE_HEADERS; i++)
        headers[i] =
            (struct fl_slice_bytes){ p->bytes.data + f->header_offset[i], f->header_length[i] };
    return fl_record_slices(&o->record, id, p->bytes.data + f->blob_offset, f->blob_length,
                            headers);
}

int fl_output_add(struct fl_output *o, const struct fl_prepared *p)
{
    const int key_len = name_of(o, p);
    int err = key_len < 0 ? key_len : fl_record_sample(&o->record, o->name, (size_t)key_len);

    for (int32_t i = 0; i < p->n_fields && !err; i++) {
        const struct fl_prepared_field *f = &p->fields[i];
        const char *field = fl_index_field(o->source, f->field)->name;
        uint64_t offset;
        const int n = snprintf(o->name + key_len, sizeof(o->name) - (size_t)key_len, ".%s", field);
        err = fl_tar_writer_member(&o->tar, o->name, (size_t)(key_len + n),
                                   p->bytes.data + f->offset, f->length, &offset);
        if (!err)
            err = record_field(o, p, f, field, offset);
        count(&o->counts, f);
    }
    o->counts.samples++;
    o->counts.bytes_in += p->bytes_in;
    return err;
}

/* What the index keeps to tell this tar from another of the same size; reads it once more, from the page cache. */
static int hash_headers(const struct fl_output *o, uint64_t *hash)
{
    struct fl_source src = { 0 };
    struct fl_skips skips = { 0 };
    int err = fl_source_borrow(&src, o->fd, o->path, 4096);

    if (!err)
        err = fl_format_tar.walk(&src, true, NULL, NULL, &skips, hash);
    fl_source_free(&src);
    return err;
}

/* On the drive first, then the record, then the name: see record.h. */
static int publish(struct fl_output *o)
{
    char tar_name[32], record_name[32];
    struct fl_record_header header = { .plan = o->run->hash,
                                       .shard = (uint64_t)o->shard,
                                       .counts = o->counts };

    fl_run_shard_name(tar_name, o->shard, "tar");
    fl_run_shard_name(record_name, o->shard, "record");
    int err = hash_headers(o, &header.hash);
    if (!err && fsync(o->fd))
        err = fl_err_file(errno, "flush", o->path);
    if (!err)
        err = fl_record_write(&o->record, &header, o->target->work, record_name);
    if (err)
        return err;
    char *final = fl_path_join(o->target->dir, tar_name);
    if (!final)
        return fl_err(FL_ERR(ENOMEM), FL_STAGE_PLAN, "no memory to rename %s", tar_name);
    if (rename(o->path, final))
        err = fl_err_file(errno, "rename to", final);
    free(final);
    return err ? err : fl_fsync_dir(o->target->dir);
}

static void forget(struct fl_output *o)
{
    fl_tar_writer_fini(&o->tar);
    if (o->fd >= 0)
        close(o->fd);
    free(o->path);
    o->path = NULL;
    o->fd = -1;
    o->shard = -1;
}

int fl_output_close(struct fl_output *o)
{
    int err = fl_tar_writer_finish(&o->tar);

    o->counts.bytes_out = o->tar.offset;
    if (!err)
        err = publish(o);
    if (err)
        return err;
    forget(o);
    return 0;
}

void fl_output_fini(struct fl_output *o)
{
    if (o->shard >= 0)
        unlink(o->path); // half a shard is of no use, and the disk may be full
    forget(o);
    fl_record_fini(&o->record);
    fl_shard_keys_fini(&o->keys);
}
