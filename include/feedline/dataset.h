/* SPDX-License-Identifier: Apache-2.0 */
/** A dataset: containers (tar shards, or the files of class folders) and the index of their spans. */
#ifndef FEEDLINE_DATASET_H
#define FEEDLINE_DATASET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <feedline/log.h>
#include <feedline/version.h>

/** Opaque; immutable once open; any number of loaders and threads may use it at the same time. */
typedef struct FlDataset FlDataset;

/** What to do about an index that is missing or does not fit its containers. */
typedef enum FlIndexMode {
    /** Build it if missing, rebuild it if stale or damaged; in memory if the folder cannot be written.
     * What the sharder made is never replaced like this, because it holds more than can be found again:
     * then as FL_INDEX_REQUIRE, and fl_index_build() makes a plain index. */
    FL_INDEX_AUTO = 0,
    FL_INDEX_REQUIRE, ///< FL_ERR(ENOENT) if missing, FL_ERR(ESTALE) if stale, FL_ERR(EBADMSG) if damaged
} FlIndexMode;

/** How to open a dataset. Start from FL_DATASET_OPTIONS_DEFAULT. */
typedef struct FlDatasetOptions {
    size_t struct_size;    ///< sizeof(FlDatasetOptions); FL_DATASET_OPTIONS_DEFAULT sets it
    FlIndexMode index;     ///< default FL_INDEX_AUTO
    const char *index_path;///< file to use or write; NULL: `index.fli` in the dataset's folder, `X.tar.fli` beside X.tar
    uint64_t index_cache;  ///< bytes of index kept in memory; 0: the whole index, at most 256 MiB
    const char *const *classes; ///< class folders only: the class list, in label order; NULL: the sorted folder names
    size_t n_classes;
    bool allow_empty_classes; ///< class folders only: a class without files keeps its label; default: error
    bool keep_sidecars;       ///< take desktop sidecar files (`._x`, `.DS_Store`, `__MACOSX/`, `Thumbs.db`) as data
    FlLogFn log;              ///< may be NULL
    void *log_cookie;
    FlProgressFn progress;    ///< while an index is built; may be NULL
    void *progress_cookie;
    int32_t n_threads;        ///< for building an index; 0: four for each processor that the process may use
    bool entry_points;        ///< for building an index: note entry points of baseline JPEGs, so that crops of unmodified
                              ///< files read and decode only what they need, and a GPU can decode them: reads every
                              ///< picture once; about 2% of their size. An index without them counts as stale then
} FlDatasetOptions;

#define FL_DATASET_OPTIONS_DEFAULT { .struct_size = sizeof(FlDatasetOptions) }

/** What a field's bytes are. */
typedef enum FlFieldKind {
    FL_FIELD_BYTES = 0, ///< a span of a container
    FL_FIELD_INT,       ///< a small integer, kept in the index itself (class labels)
} FlFieldKind;

/** What is known of one field over all samples. */
typedef struct FlFieldInfo {
    const char *name;   ///< "jpg", "cls", "json.zst"; valid while the dataset is open
    FlFieldKind kind;
    int64_t count;      ///< samples that have it
    uint64_t bytes;     ///< sum of lengths; 0 for FL_FIELD_INT
    uint64_t max_bytes; ///< longest
    bool is_image;      ///< the index holds picture sizes for this field
    int64_t sliced;     ///< pictures stored as sliced JPEG
    int64_t entry_points; ///< pictures that have entry points in the index
    uint64_t entry_bytes; ///< of these in the index
} FlFieldInfo;

/** What a dataset holds. */
typedef struct FlDatasetInfo {
    int64_t n_samples;
    int32_t n_fields;
    int32_t n_classes;     ///< 0 if the dataset has no class names
    int64_t n_containers;  ///< shards, or files of class folders
    uint64_t bytes;        ///< sum of all spans
    uint64_t index_bytes;  ///< size of the index
    uint64_t fingerprint;  ///< hash of the index: same value, same samples in the same order
    int64_t skipped;       ///< entries left out while indexing: directories, links, devices, sidecars
    const char *path;      ///< as given; valid while the dataset is open
    const char *kind;      ///< "tar" or "folder"
} FlDatasetInfo;

/** Where one field of one sample lies. */
typedef struct FlFieldSpan {
    const char *name;       ///< field name; valid while the dataset is open
    bool present;           ///< false: this sample has no such field (an empty field is present)
    FlFieldKind kind;
    int64_t value;          ///< FL_FIELD_INT
    const char *container;  ///< path relative to the dataset's folder; valid until the next call in this thread
    uint64_t offset, length;///< bytes
    bool has_checksum;
    uint32_t checksum;      ///< low 32 bits of XXH3-64 of the bytes, if has_checksum
    uint16_t width, height; ///< pixels as stored, before EXIF orientation; 0 if unknown
    uint8_t orientation;    ///< EXIF orientation 1 to 8; 1 if unknown
    uint8_t components;     ///< 1 grey, 3 colour, 4 CMYK or YCCK; 0 if unknown
    bool sliced;            ///< a sliced JPEG: any rectangle can be cut out without decoding the rest
    bool damaged;           ///< the codec warned while the dataset was made
    bool entry_points;      ///< a crop can be read and decoded from the middle of the file
} FlFieldSpan;

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Open a folder of tar shards (PATH/\*.tar, in byte order of their names), one tar file, or class folders
 * (PATH/CLASS/.../picture.jpg: fields "jpg" and "cls"). Pictures directly in PATH, with no class folder
 * beside them, are a dataset without labels.
 *
 * In tar archives the first dot of a member's last path part ends the key of its sample; the rest, in
 * lower case, names the field. Members of a sample must stand together. Fields whose last part is cls, class,
 * label, index, count or id and whose content is a decimal integer in every sample become FL_FIELD_INT.
 *
 * @param out  Receives the dataset; untouched on error.
 * @param path Folder or tar file.
 * @param opt  NULL for the defaults.
 * @return 0; FL_ERR(ENOENT): nothing there; FL_ERR(EINVAL): an option, or no layout that is known;
 *         FL_ERR(ESTALE), FL_ERR(EBADMSG): see FlIndexMode; FL_ERR(EIO), FL_ERR(ENOMEM).
 *         Details in fl_last_error(). Blocks while an index is built.
 */
FL_API int fl_dataset_open(FlDataset **out, const char *path, const FlDatasetOptions *opt);

/** Close. Loaders opened on it keep it alive until they are closed. NULL is fine; sets *ds to NULL. */
FL_API void fl_dataset_close(FlDataset **ds);

/** Fill *info. Any thread. @return 0 or FL_ERR(EINVAL). */
FL_API int fl_dataset_info(const FlDataset *ds, FlDatasetInfo *info);

/** Fill *info for field 0 <= i < n_fields, in name order. @return 0 or FL_ERR(EINVAL). */
FL_API int fl_dataset_field(const FlDataset *ds, int32_t i, FlFieldInfo *info);

/** Name of class 0 <= i < n_classes, NULL outside. Valid while the dataset is open. */
FL_API const char *fl_dataset_class_name(const FlDataset *ds, int32_t i);

/**
 * Key of a sample (path without extensions), NUL-terminated, cut to `size` bytes.
 *
 * @return length of the whole key, or FL_ERR(...).
 */
FL_API int64_t fl_dataset_key(const FlDataset *ds, int64_t sample, char *buf, size_t size);

/** Where field `field` of a sample lies. @return 0, FL_ERR(EINVAL) outside the range, FL_ERR(EBADMSG), FL_ERR(EIO). */
FL_API int fl_dataset_span(const FlDataset *ds, int64_t sample, int32_t field, FlFieldSpan *span);

/**
 * Read one field of a sample and check its checksum. An integer field reads as its decimal digits.
 *
 * @param buf  Receives the bytes; may be NULL to ask for the length.
 * @param size Bytes in buf.
 * @param len  Receives the length of the field, also when it is larger than `size`.
 * @return 0; FL_ERR(E2BIG): buf is too small; FL_ERR(ENOENT): the sample lacks the field;
 *         FL_ERR(EBADMSG): checksum; FL_ERR(ESTALE): the file is not the one that was indexed; FL_ERR(EIO).
 */
FL_API int fl_dataset_read(const FlDataset *ds, int64_t sample, int32_t field, void *buf, size_t size,
                           size_t *len);

#ifdef __cplusplus
}
#endif
#endif
