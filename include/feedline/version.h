/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FEEDLINE_VERSION_H
#define FEEDLINE_VERSION_H

/** Version of these headers. The build system reads it from here. */
#define FL_VERSION_MAJOR 0
#define FL_VERSION_MINOR 1
#define FL_VERSION_PATCH 0
#define FL_VERSION_STRING "0.1.0"

#if defined(_WIN32)
#define FL_API
#else
#define FL_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

/** Version of the library in use, "major.minor.patch". Static string; any thread. */
FL_API const char *fl_version(void);

/**
 * What this build holds, as one line of `name=value` words: the codec, its version, and which of
 * io_uring and CUDA are in. Static string; any thread.
 */
FL_API const char *fl_build_info(void);

#ifdef __cplusplus
}
#endif
#endif
