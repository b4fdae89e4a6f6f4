/* SPDX-License-Identifier: Apache-2.0 */
/* Making an index: whoever walks containers (index/build.c) or writes them (shard/) adds what it
 * finds, sample by sample, and writes the file at the end. One thread; memory grows with the
 * samples.
 *
 * The bytes are a function of the calls: no time, no host, no address goes in. Whoever needs the
 * same file on every host passes FL_MTIME_NONE for its containers.
 *
 *   fl_index_writer_new(&w, FL_KIND_TAR);
 *   jpg = fl_index_writer_field(w, "jpg", FL_FIELD_BYTES);
 *   c = fl_index_writer_container(w, "shard-000000.tar", size, FL_MTIME_NONE, hash);
 *   fl_index_writer_sample(w, "n0144/cat", 9);
 *   fl_index_writer_span(w, jpg, &span);               // these concern the last sample
 *   fl_index_writer_image(w, jpg, &image);
 *   fl_index_writer_slices(w, jpg, blob, len);
 *   fl_index_writer_write(w, "dst/index.fli", NULL);
 *
 * Functions return a number >= 0 (0, or the id that was asked for) or a negative errno with a
 * sentence in the thread's error slot. */
#ifndef FL_INDEX_WRITER_H
#define FL_INDEX_WRITER_H

#include "index/index.h"

struct fl_index_writer;

int fl_index_writer_new(struct fl_index_writer **out, enum fl_index_kind kind);
void fl_index_writer_free(struct fl_index_writer **w);

/* Number of this field, added at its first use (the file holds them in name order). At most
 * FL_INDEX_MAX_FIELDS. A name may be used with both kinds while it is open what the field will be; then one
 * of the two must be dropped before writing. */
int fl_index_writer_field(struct fl_index_writer *w, const char *name, FlFieldKind kind);

/* Leave this field, which has neither images nor blobs, out of the file; it is not used again. */
void fl_index_writer_drop(struct fl_index_writer *w, int field);

/* The field's spans carry checksums: then all of them must. Call before its first span; once more does no harm. */
int fl_index_writer_checksummed(struct fl_index_writer *w, int field);

/* Next container: path relative to the dataset's folder. Returns its id. Size, time and hash may be
 * given later by fl_index_writer_container_done(), when the file is complete. */
int64_t fl_index_writer_container(struct fl_index_writer *w, const char *path, uint64_t size,
                                  int64_t mtime_ns, uint64_t hash);
int fl_index_writer_container_done(struct fl_index_writer *w, uint32_t id, uint64_t size,
                                   int64_t mtime_ns, uint64_t hash);

/* A folder that was listed. */
int fl_index_writer_dir(struct fl_index_writer *w, const char *path, int64_t mtime_ns,
                        uint64_t hash);

/* Next class; its number is its label. */
int fl_index_writer_class(struct fl_index_writer *w, const char *name);

/* String of the header dictionary: the same bytes get the same id, ids count up by first
 * appearance. */
int64_t fl_index_writer_header(struct fl_index_writer *w, const void *bytes, size_t len);

/* Next sample. Returns its number. Fields that are not set for it are missing in it. */
int64_t fl_index_writer_sample(struct fl_index_writer *w, const char *key, size_t key_len);

/* Class folders: no keys are stored, a sample's key is its file's path without extension; sample i must
 * lie in container i. Call before the first sample, whose keys are then ignored. */
void fl_index_writer_path_keys(struct fl_index_writer *w);

/* For the last sample; each at most once per field. */
int fl_index_writer_span(struct fl_index_writer *w, int field, const struct fl_span *span);
int fl_index_writer_int(struct fl_index_writer *w, int field, int64_t value); // not INT64_MIN
int fl_index_writer_image(struct fl_index_writer *w, int field, const struct fl_index_image *image);
int fl_index_writer_slices(struct fl_index_writer *w, int field, const void *blob, size_t len);
int fl_index_writer_entries(struct fl_index_writer *w, int field, const void *blob, size_t len);

/* Entries left out, for the statistics. */
void fl_index_writer_skipped(struct fl_index_writer *w, int64_t n);

/* Hash of options that an open which states options must find again (0: none); sidecar files were taken for
 * data. */
void fl_index_writer_options(struct fl_index_writer *w, uint64_t hash, bool keep_sidecars);

/* Entry points were asked for. They go to an unnamed file in the folder of `path` where they are many and
 * there can be one, since they are a few percent of the dataset's size. */
void fl_index_writer_entry_points(struct fl_index_writer *w, const char *path);

/* Samples so far. */
int64_t fl_index_writer_count(const struct fl_index_writer *w);

/* Write under a temporary name beside `path`, fsync, rename over `path`, fsync the folder.
 * fingerprint may be NULL. */
int fl_index_writer_write(struct fl_index_writer *w, const char *path, uint64_t *fingerprint);

/* The same into memory (free() it), for folders that cannot be written. */
int fl_index_writer_memory(struct fl_index_writer *w, void **bytes, size_t *size);

#endif
