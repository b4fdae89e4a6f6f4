/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FEEDLINE_ERROR_H
#define FEEDLINE_ERROR_H

#include <errno.h>
#include <stdint.h>

#include <feedline/version.h>

/**
 * Errors are negative errno values; 0 is success; FL_EPOCH_END, the one positive value, is no error.
 *
 * | code             | meaning                                                                  |
 * |------------------|--------------------------------------------------------------------------|
 * | FL_ERR(EINVAL)   | an option or argument is wrong; the message names it                     |
 * | FL_ERR(ENOENT)   | a file, folder, field or class is missing                                |
 * | FL_ERR(ENOMEM)   | memory could not be had, or the budget is too small (the message says)   |
 * | FL_ERR(EIO)      | the drive or file system failed                                          |
 * | FL_ERR(EBADMSG)  | data is damaged: a sample, a container or an index                       |
 * | FL_ERR(ESTALE)   | the index does not belong to the containers beside it                    |
 * | FL_ERR(ENOTSUP)  | valid, but not supported: the message says what                          |
 * | FL_ERR(E2BIG)    | a limit was reached; the message has the value and the option to change  |
 * | FL_ERR(EBUSY)    | the caller holds every slot                                              |
 * | FL_ERR(ETIMEDOUT)| stall_timeout passed                                                     |
 * | FL_ERR(ECANCELED)| the loader is closing                                                    |
 * | FL_ERR(ECHILD)   | the object was opened by another process (this one was forked from it)   |
 * | FL_ERR(ENODEV)   | the device, or its driver, is not there                                  |
 */
#define FL_ERR(e) (-(e))
#define FL_EPOCH_END 1

/** Where a sample was when something happened to it, in the order of the data's flow. */
typedef enum FlStage {
    FL_STAGE_PLAN = 0, ///< order, batches, index look-ups
    FL_STAGE_READ,     ///< storage to host memory
    FL_STAGE_DECODE,   ///< codec
    FL_STAGE_AUGMENT,  ///< crop, resize, flip
    FL_STAGE_BATCH,    ///< collation, bad-sample policy
    FL_STAGE_DEVICE,   ///< host to device copy, kernels on the device
    FL_STAGE_CONSUMER, ///< the caller
    FL_N_STAGES
} FlStage;

/** "plan", "read", ... Static string, "?" outside the range; any thread. */
FL_API const char *fl_stage_name(FlStage stage);

/** All that is known about a failure. Strings are never cut in the middle of a character. */
typedef struct FlError {
    int code;             ///< FL_ERR(...); 0 if there was no failure
    FlStage stage;        ///< where
    int64_t sample;       ///< index of the sample in the dataset, -1 if none is concerned
    int64_t position;     ///< its place in the epoch's order, -1 if none is concerned
    uint64_t offset;      ///< byte offset in the container, UINT64_MAX if none is concerned
    char container[256];  ///< path of the file; cut from the left when longer; "" if none
    char key[128];        ///< key of the sample; "" if none
    char message[512];    ///< one sentence that stands alone: it has path, offset, key or option in it
} FlError;

#ifdef __cplusplus
extern "C" {
#endif

/**
 * The last failure of a feedline call in this thread. Valid until the next feedline call in it;
 * a call that succeeds leaves it as it was. Any thread; never NULL.
 */
FL_API const FlError *fl_last_error(void);

/** Short text of a code, "data is damaged" for FL_ERR(EBADMSG). Static string; any thread. */
FL_API const char *fl_strerror(int code);

#ifdef __cplusplus
}
#endif
#endif
