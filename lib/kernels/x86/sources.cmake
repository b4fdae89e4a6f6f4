# SPDX-License-Identifier: Apache-2.0
# Kernels for x86-64: whole files, each compiled for what it needs and chosen at run time.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
    list(APPEND sources kernels/x86/kernels_x86.c kernels/x86/avx2.c kernels/x86/normalize_avx2.c
        kernels/x86/avx512.c)
    set(avx2 -mavx2 -mfma -mf16c)
    set(avx512 ${avx2} -mavx512f -mavx512bw -mavx512vl -mavx512vbmi -mavx512vnni)
    set_source_files_properties(kernels/x86/avx2.c kernels/x86/normalize_avx2.c PROPERTIES
        COMPILE_OPTIONS "${avx2}")
    set_source_files_properties(kernels/x86/avx512.c PROPERTIES COMPILE_OPTIONS "${avx512}")
else()
    list(APPEND sources kernels/kernels.c)
endif()
