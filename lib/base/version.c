/* SPDX-License-Identifier: Apache-2.0 */
#include <feedline/version.h>

#include <stdio.h>
#include <jpeglib.h>
#include <zstd.h>

#define STRING_(x) #x
#define STRING(x) STRING_(x)

#ifdef FL_HAVE_URING
#define URING "yes"
#else
#define URING "no"
#endif
#ifdef FL_HAVE_CUDA
#define CUDA "yes"
#else
#define CUDA "no"
#endif

const char *fl_version(void)
{
    return FL_VERSION_STRING;
}

const char *fl_build_info(void)
{
    return "jpeg=libjpeg-turbo-" STRING(LIBJPEG_TURBO_VERSION) " zstd=" ZSTD_VERSION_STRING
                                                               " io_uring=" URING " cuda=" CUDA;
}
