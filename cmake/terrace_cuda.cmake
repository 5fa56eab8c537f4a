# SPDX-License-Identifier: Apache-2.0
# CUDA for what this repository builds. The component terrace::cuda needs the toolkit's libraries only; compiling kernels
# needs nvcc too. Without a toolkit the same kernels still compile for the emulated runtime of the tests.

set(TERRACE_CUDA AUTO CACHE STRING "Compile kernels with nvcc: AUTO (where there is one), ON or OFF")
set_property(CACHE TERRACE_CUDA PROPERTY STRINGS AUTO ON OFF)
if(NOT TERRACE_CUDA MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "TERRACE_CUDA is ${TERRACE_CUDA}; it must be AUTO, ON or OFF.")
endif()

set(TERRACE_HAS_NVCC FALSE)
if(NOT TERRACE_CUDA STREQUAL "OFF")
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
      set(CMAKE_CUDA_ARCHITECTURES 75-real 90-real CACHE STRING "Architectures nvcc compiles for; `native` for this machine's")
    endif()
    if(CMAKE_CXX_COMPILER_LAUNCHER AND NOT DEFINED CMAKE_CUDA_COMPILER_LAUNCHER)
      set(CMAKE_CUDA_COMPILER_LAUNCHER "${CMAKE_CXX_COMPILER_LAUNCHER}")
    endif()
    enable_language(CUDA)
    set(TERRACE_HAS_NVCC TRUE)
  elseif(TERRACE_CUDA STREQUAL "ON")
    message(FATAL_ERROR "TERRACE_CUDA is ON and no nvcc was found; put it on PATH, set CMAKE_CUDA_COMPILER, or "
                        "configure with -DTERRACE_CUDA=AUTO.")
  endif()
endif()

# Makes `target` compile and link against the emulated runtime of tests/support/emulated_cuda: its .cu files as C++, the
# emulated headers before any toolkit's. Only where the tests are built; call it in the target's own folder.
function(terrace_emulated_cuda target)
  get_target_property(sources ${target} SOURCES)
  list(FILTER sources INCLUDE REGEX "\\.cu$")
  if(sources)
    set_source_files_properties(${sources} PROPERTIES LANGUAGE CXX)
  endif()
  target_link_libraries(${target} PRIVATE terrace_emulated_cuda_runtime)
  target_include_directories(${target} BEFORE PRIVATE "${PROJECT_SOURCE_DIR}/tests/support/emulated_cuda/include")
  target_compile_options(${target} PRIVATE -Wno-unknown-pragmas)  # `#pragma unroll` is nvcc's
endfunction()
