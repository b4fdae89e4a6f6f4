# SPDX-License-Identifier: Apache-2.0
# CUDA for a C project: nvcc makes plain object files, without exceptions, RTTI and guarded statics, so that
# the C linker goes on linking everything and no C++ library comes along. The runtime is linked statically.
find_package(CUDAToolkit REQUIRED)
set(FL_CUDA_SM "75;80;86;89;90" CACHE STRING "Compute capabilities to make machine code for; PTX of the last one too")

add_library(feedline_cudart INTERFACE)
target_include_directories(feedline_cudart SYSTEM INTERFACE ${CUDAToolkit_INCLUDE_DIRS})
target_link_libraries(feedline_cudart INTERFACE CUDA::cudart_static ${CMAKE_DL_LIBS} rt Threads::Threads)

# feedline_cuda_objects(variable file.cu ...): variable receives the object files, to be used as sources.
function(feedline_cuda_objects variable)
    set(flags -std=c++17 -O3 -lineinfo --fmad=false --expt-relaxed-constexpr -Xcompiler=-fPIC,-fvisibility=hidden
        -Xcompiler=-fno-exceptions,-fno-rtti,-fno-threadsafe-statics -Xcompiler=-Wall,-Wextra,-Wno-unused-parameter)
    if(FL_WERROR)
        list(APPEND flags -Werror all-warnings)
    endif()
    foreach(sm ${FL_CUDA_SM})
        list(APPEND flags -gencode=arch=compute_${sm},code=sm_${sm})
        set(last ${sm})
    endforeach()
    list(APPEND flags -gencode=arch=compute_${last},code=compute_${last})
    set(objects "")
    foreach(file ${ARGN})
        get_filename_component(path ${file} ABSOLUTE)
        file(RELATIVE_PATH name ${PROJECT_SOURCE_DIR} ${path})
        set(object ${PROJECT_BINARY_DIR}/cuda/${name}.o)
        get_filename_component(folder ${object} DIRECTORY)
        file(MAKE_DIRECTORY ${folder})
        add_custom_command(OUTPUT ${object}
            COMMAND ${CMAKE_CUDA_COMPILER} ${flags} -I${PROJECT_SOURCE_DIR}/include -I${PROJECT_SOURCE_DIR}/lib
                -I${PROJECT_SOURCE_DIR} -I${CMAKE_CURRENT_SOURCE_DIR} -MD -MF ${object}.d -c ${path} -o ${object}
            DEPENDS ${path} DEPFILE ${object}.d COMMENT "Building CUDA object ${name}.o" VERBATIM)
        list(APPEND objects ${object})
    endforeach()
    set_source_files_properties(${objects} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
    set(${variable} ${objects} PARENT_SCOPE)
endfunction()
