# SPDX-License-Identifier: Apache-2.0
# Finds what the library links: an interface target for each, static where an archive is there, so that
# no symbol of a codec can be bound to another copy of it in the process (see docs/design.md).
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)

# feedline_find(NAME pkg-config-module header archive)
function(feedline_find name module header archive)
    pkg_check_modules(${name} QUIET ${module})
    find_path(${name}_HEADER ${header} HINTS ${${name}_INCLUDE_DIRS})
    find_library(${name}_ARCHIVE NAMES ${archive} HINTS ${${name}_LIBRARY_DIRS})
    if(NOT ${name}_ARCHIVE)
        string(REGEX REPLACE "^lib(.*)\\.a$" "\\1" shared ${archive})
        find_library(${name}_ARCHIVE NAMES ${shared} HINTS ${${name}_LIBRARY_DIRS})
    endif()
    if(${name}_HEADER AND ${name}_ARCHIVE)
        add_library(feedline_${name} INTERFACE)
        target_include_directories(feedline_${name} SYSTEM INTERFACE ${${name}_HEADER})
        target_link_libraries(feedline_${name} INTERFACE ${${name}_ARCHIVE})
        set(${name}_FOUND_AS ${${name}_ARCHIVE} PARENT_SCOPE)
    endif()
endfunction()

feedline_find(jpeg libjpeg jpeglib.h libjpeg.a)
feedline_find(zstd libzstd zstd.h libzstd.a)
feedline_find(uring liburing liburing.h liburing.a)
find_path(XXHASH_HEADER xxhash.h)

if(NOT TARGET feedline_jpeg)
    message(FATAL_ERROR "libjpeg-turbo is missing (Debian: libjpeg62-turbo-dev)")
endif()
if(NOT TARGET feedline_zstd)
    message(FATAL_ERROR "zstd is missing (Debian: libzstd-dev)")
endif()
if(NOT XXHASH_HEADER)
    message(FATAL_ERROR "xxHash is missing (Debian: libxxhash-dev)")
endif()

include(CheckCSourceCompiles)
set(CMAKE_REQUIRED_INCLUDES ${jpeg_HEADER})
check_c_source_compiles("
#include <stdio.h>
#include <jpeglib.h>
#if !defined(LIBJPEG_TURBO_VERSION_NUMBER) || LIBJPEG_TURBO_VERSION_NUMBER < 2001005
#error too old
#endif
int main(void) { return 0; }" FL_JPEG_IS_TURBO)
unset(CMAKE_REQUIRED_INCLUDES)
if(NOT FL_JPEG_IS_TURBO)
    message(FATAL_ERROR "the libjpeg found is not libjpeg-turbo 2.1.5 or newer")
endif()

if(FL_URING STREQUAL "off")
    set(FL_HAVE_URING OFF)
elseif(TARGET feedline_uring)
    set(FL_HAVE_URING ON)
elseif(FL_URING STREQUAL "on")
    message(FATAL_ERROR "FL_URING=on, but liburing is missing (Debian: liburing-dev)")
else()
    set(FL_HAVE_URING OFF)
endif()

set(FL_HAVE_CUDA OFF)
if(NOT FL_CUDA STREQUAL "off")
    include(CheckLanguage)
    check_language(CUDA)
    if(CMAKE_CUDA_COMPILER)
        set(FL_HAVE_CUDA ON)
    elseif(FL_CUDA STREQUAL "on")
        message(FATAL_ERROR "FL_CUDA=on, but nvcc was not found")
    endif()
endif()
if(FL_SANITIZE)
    set(FL_HAVE_CUDA OFF) # the driver's mappings and the sanitizers' do not get on
endif()
message(STATUS "feedline ${FL_VERSION}: io_uring ${FL_HAVE_URING}, CUDA ${FL_HAVE_CUDA}")
