/* SPDX-License-Identifier: Apache-2.0 */
/** Settings of a loader. 0 means "automatic" or "the default" throughout, unless a comment says more. */
#ifndef FEEDLINE_CONFIG_H
#define FEEDLINE_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <feedline/log.h>
#include <feedline/types.h>

#define FL_MAX_COLUMNS 8
#define FL_MAX_DIMS 6
#define FL_SEED_UNSET UINT64_MAX

typedef enum FlShuffle {
    FL_SHUFFLE_NONE = 0, ///< dataset order
    FL_SHUFFLE_GLOBAL,   ///< a keyed permutation of all samples, another one each epoch
    FL_SHUFFLE_BLOCK,    ///< blocks of neighbouring samples in random order, then shuffled in a window of blocks
} FlShuffle;

/** What happens to the samples that do not fill the epoch's last global batch. */
typedef enum FlTail {
    FL_TAIL_PARTIAL = 0, ///< a smaller last batch; every sample exactly once
    FL_TAIL_DROP,        ///< left out; every rank has the same number of full batches
    FL_TAIL_PAD,         ///< full batch, zero-filled rows with valid = 0; every rank has the same number of batches
} FlTail;

/** What happens to a sample that cannot be read or decoded. Its position never moves. */
typedef enum FlBadSample {
    FL_BAD_RAISE = 0,  ///< fl_loader_next() returns FL_ERR(EBADMSG) in place of the batch that holds it
    FL_BAD_SKIP,       ///< its row is zero-filled and valid = 0
    FL_BAD_SUBSTITUTE, ///< another sample stands in, drawn by (seed, epoch, position, attempt)
} FlBadSample;

typedef enum FlIo {
    FL_IO_AUTO = 0, ///< io_uring, or pread where the kernel refuses it; the stats say which and why
    FL_IO_URING,    ///< io_uring or an error
    FL_IO_PREAD,    ///< a pool of threads with pread
} FlIo;

typedef enum FlSwitch {
    FL_AUTO = 0,
    FL_ON,  ///< or an error
    FL_OFF,
} FlSwitch;

typedef enum FlDecode {
    FL_DECODE_AUTO = 0, ///< JPEG on the GPU where it can be, on the CPU too while the device is what limits; same bytes
    FL_DECODE_CPU,
    FL_DECODE_GPU,      ///< all that the GPU can decode; an error if it can decode nothing of this pipeline
} FlDecode;

/** Which goes first where the loader's kernels and the trainer's wait for the same multiprocessors. */
typedef enum FlPriority {
    FL_PRIORITY_HIGH = 0, ///< the loader's, before those of ordinary streams: short kernels that get through cost a step least
    FL_PRIORITY_LOW,      ///< the lowest there is, that of ordinary streams: a step that is to go first needs a stream of higher priority
} FlPriority;

typedef enum FlCrop {
    FL_CROP_NONE = 0,       ///< the whole picture, stretched to width x height
    FL_CROP_RANDOM_RESIZED, ///< torchvision's RandomResizedCrop law (area `scale`, aspect `ratio`)
    FL_CROP_CENTER,         ///< shorter side to `resize`, then the middle width x height (torchvision Resize + CenterCrop)
} FlCrop;

typedef enum FlColumnKind {
    FL_COLUMN_IMAGE = 0, ///< JPEG, decoded, cropped, resized: {n, height, width, channels} or {n, channels, height, width}
    FL_COLUMN_LABEL,     ///< integer: int64 {n}
    FL_COLUMN_RAW,       ///< bytes of one fixed length, reinterpreted: {n, shape...}
    FL_COLUMN_BYTES,     ///< bytes of any length: values {total} and offsets {n + 1}
} FlColumnKind;

#define FL_IMAGENET_MEAN { 0.485f, 0.456f, 0.406f }
#define FL_IMAGENET_STD { 0.229f, 0.224f, 0.225f }

/**
 * An image column. Floating-point output is (x / 255 - mean) / std for x in 0..255, computed once for
 * each of the 256 values of each channel; FL_U8 output is the pixels and ignores mean and std.
 */
typedef struct FlImage {
    int32_t width, height;   ///< of the output, pixels
    FlCrop crop;
    int32_t resize;          ///< FL_CROP_CENTER: the shorter side; 0: 256/224 of the larger of width and height, rounded
    float scale[2];          ///< FL_CROP_RANDOM_RESIZED: area range; {0, 0}: {0.08, 1}
    float ratio[2];          ///< FL_CROP_RANDOM_RESIZED: width / height range; {0, 0}: {3/4, 4/3}
    float flip;              ///< probability of a horizontal flip
    float mean[3], std[3];   ///< of values scaled to 0..1; std 0: 1
    FlDtype dtype;           ///< FL_U8, FL_F32, FL_F16, FL_BF16
    FlLayout layout;
    int32_t channels;        ///< 3: RGB; 1: grey (ITU-R BT.601 luma); 0: 3
    FlSwitch exact;          ///< FL_ON: decode at full scale; FL_AUTO: exact unless crop is random; FL_OFF: DCT scaling
    bool orient;             ///< honour EXIF orientation
    bool tolerate;           ///< a JPEG that its codec warned about is a good sample
} FlImage;

/** One output column. Made by the fl_config_* functions. */
typedef struct FlColumnConfig {
    char field[64];             ///< name of the dataset's field
    FlColumnKind kind;
    bool optional;              ///< a sample without the field gets zeros; default: it is a bad sample
    FlImage image;              ///< FL_COLUMN_IMAGE
    FlDtype dtype;              ///< FL_COLUMN_RAW
    int32_t ndim;               ///< FL_COLUMN_RAW
    int64_t shape[FL_MAX_DIMS]; ///< FL_COLUMN_RAW, without the batch axis
    int64_t max_bytes;          ///< FL_COLUMN_BYTES: longest value; 0: the longest in the dataset
} FlColumnConfig;

/** All settings of a loader. Start from FL_CONFIG_DEFAULT. */
typedef struct FlConfig {
    size_t struct_size; ///< FL_CONFIG_DEFAULT sets it

    /* order */
    int64_t batch_size;  ///< samples of one batch of this rank; required
    FlShuffle shuffle;   ///< default FL_SHUFFLE_NONE
    uint64_t seed;       ///< FL_SEED_UNSET: 0, and an error if world_size > 1 with a shuffle
    FlTail tail;         ///< default FL_TAIL_PARTIAL
    int32_t rank;        ///< 0 <= rank < world_size
    int32_t world_size;  ///< 0: 1
    int64_t epochs;      ///< after so many epochs fl_loader_next() goes on returning FL_EPOCH_END; 0: no end
    int64_t block_bytes; ///< FL_SHUFFLE_BLOCK: least bytes of a block; 0: 256 KiB
    int64_t window;      ///< FL_SHUFFLE_BLOCK: blocks shuffled together; 0: 64
    const int64_t *subset; ///< samples that take part, in this order and as often as they stand here (repeat factors); NULL: all; read at open only
    int64_t n_subset;
    const double *weights; ///< one for each sample of the dataset, or of `subset` if there is one; those of excluded samples do not count. Drawn with replacement, needs FL_SHUFFLE_GLOBAL; read at open only
    int64_t epoch_samples; ///< with weights or balance: positions of an epoch; 0: as many as take part
    char balance[64];      ///< name of an integer field: every value of it is drawn equally often (weights are then made from it); "": no

    /* resources */
    int32_t n_workers;     ///< decoding threads; -1: as many as the process may use (affinity, quota, LOCAL_WORLD_SIZE); 0: everything in the caller's thread
    uint64_t memory_limit; ///< bytes of all slots, read buffers and scratch; 0: what the other settings need
    int32_t host_slots;    ///< batches being filled or waiting in host memory; 0: 3
    int32_t device_slots;  ///< batches on the device, held ones included; 0: 2
    FlDevice device;       ///< default FL_CPU
    FlDecode decode;
    FlPriority gpu_priority; ///< of the kernels that decode and normalise on the device
    int32_t gpu_blocks;      ///< most thread blocks of a kernel that decodes JPEG: a training step keeps the other multiprocessors; 0: no limit

    /* reading */
    FlIo io;
    FlSwitch direct;        ///< O_DIRECT; FL_AUTO: where the file system allows it and the data is not in the page cache
    uint64_t read_bytes;    ///< bytes in flight and waiting for a decoder; 0: 64 MiB or two batches, at most 1 GiB
    int32_t depth;          ///< reads in flight; 0: 64, up to 256 as long as they ask for less than 8 MiB together
    FlSwitch checksum;      ///< compare each field with the index's checksum; FL_AUTO: on
    int64_t stall_timeout_ms; ///< no progress for so long is FL_ERR(ETIMEDOUT); 0: never

    /* bad samples */
    FlBadSample bad_sample;
    int64_t max_bad;        ///< more bad samples than this in an epoch, substituted ones included, is FL_ERR(EBADMSG); 0: no limit
    double max_bad_rate;    ///< likewise as a share of the samples seen, after the first 1,000; 0: no limit
    const int64_t *exclude; ///< samples left out of the order, ascending; read at open only; part of the fingerprint
    int64_t n_exclude;
    const char *exclude_file; ///< a list of bad samples (docs/order.md) to leave out too: what `bad_report` or `feedline verify --quarantine` wrote; NULL: none; read at open only
    const char *bad_report; ///< file to append a line of JSON to for each bad sample of the batches handed out; NULL: none. Several ranks may share it

    /* limits, checked before anything is allocated */
    int64_t max_pixels;     ///< width x height of a picture; 0: 178,956,970
    int32_t max_scans;      ///< scans of a progressive JPEG; 0: 100
    int64_t max_field_bytes;///< decompressed size of one field; 0: 1 GiB
    int32_t max_window_log; ///< zstd window, log2 bytes; 0: 27

    FlLogFn log; ///< may be NULL
    void *log_cookie;

    int32_t n_columns;
    FlColumnConfig columns[FL_MAX_COLUMNS];
} FlConfig;

#define FL_CONFIG_DEFAULT                                                                              \
    { .struct_size = sizeof(FlConfig), .seed = FL_SEED_UNSET, .world_size = 1, .n_workers = -1 }

#ifdef __cplusplus
extern "C" {
#endif

/** Set *cfg to FL_CONFIG_DEFAULT, for languages without the macro. */
FL_API void fl_config_init(FlConfig *cfg);

/**
 * Add a column. The settings are copied.
 *
 * @return index of the column; FL_ERR(EINVAL): name too long or a setting out of range;
 *         FL_ERR(E2BIG): more than FL_MAX_COLUMNS.
 */
FL_API int fl_config_image(FlConfig *cfg, const char *field, const FlImage *image);
FL_API int fl_config_label(FlConfig *cfg, const char *field);
FL_API int fl_config_raw(FlConfig *cfg, const char *field, FlDtype dtype, int32_t ndim, const int64_t *shape);
FL_API int fl_config_bytes(FlConfig *cfg, const char *field, int64_t max_bytes);

/**
 * Turn the settings of a training loader into those of its evaluation. Call it when all columns are there.
 *
 * Every sample that takes part comes exactly once, over all ranks together, in the dataset's order (shuffle none, tail
 * partial, no weights, no balance); pictures are cropped at the centre where they were cropped at random, never
 * flipped, and decoded at full scale; a bad sample is an error. Subset, exclusions, rank, sizes and resources stay.
 * The last batches of the ranks may differ by one in number: where all ranks have to make the same number of
 * steps, set tail = FL_TAIL_PAD afterwards and leave out the rows with valid = 0.
 */
FL_API void fl_config_evaluation(FlConfig *cfg);

/**
 * Take rank and world size from the launcher's environment: torchrun (RANK, WORLD_SIZE), Open MPI
 * (OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE), Slurm's srun (SLURM_PROCID, SLURM_STEP_NUM_TASKS), in this order.
 * Without any of them, as in a batch script outside srun, cfg stays as it is.
 *
 * @return 0; FL_ERR(EINVAL): a variable is not a number, rank >= world size, or one of a pair is missing; cfg
 *         stays as it is.
 */
FL_API int fl_config_from_env(FlConfig *cfg);

#ifdef __cplusplus
}
#endif
#endif
