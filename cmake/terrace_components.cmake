# SPDX-License-Identifier: Apache-2.0
# The optional targets, one per job: each appears when its libraries are found, and their absence removes only that
# target. Read by the build and by the installed package, so both agree on what a component is.
#
#   terrace::formats   model files             nlohmann-json
#   terrace::tokenize  tokenizers and chats    nlohmann-json, PCRE2, utf8proc
#   terrace::uring     io_uring reads          liburing
#   terrace::pmem      persistent memory       libpmem2
#   terrace::numa      memory on a NUMA node   libnuma
#   terrace::cuda      device memory, kernels  the CUDA toolkit (not looked for where TERRACE_CUDA is OFF)

function(terrace_component name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "LIBRARIES;DEFINES")
  if(TARGET terrace::${name})
    return()
  endif()
  if(TARGET terrace)  # inside this repository's build
    set(target terrace_${name})
    add_library(${target} INTERFACE)
    add_library(terrace::${name} ALIAS ${target})
  else()
    set(target terrace::${name})
    add_library(${target} INTERFACE IMPORTED)
  endif()
  target_link_libraries(${target} INTERFACE terrace::terrace ${arg_LIBRARIES})
  target_compile_definitions(${target} INTERFACE ${arg_DEFINES})
endfunction()

if(NOT TARGET nlohmann_json::nlohmann_json)
  find_package(nlohmann_json 3.10 QUIET GLOBAL)
endif()
find_package(PkgConfig QUIET)
if(PkgConfig_FOUND)
  pkg_check_modules(pcre2 QUIET IMPORTED_TARGET GLOBAL libpcre2-8)
  pkg_check_modules(utf8proc QUIET IMPORTED_TARGET GLOBAL libutf8proc)
  pkg_check_modules(liburing QUIET IMPORTED_TARGET GLOBAL liburing>=2.2)
  pkg_check_modules(libpmem2 QUIET IMPORTED_TARGET GLOBAL libpmem2)
  pkg_check_modules(numa QUIET IMPORTED_TARGET GLOBAL numa)
endif()

if(NOT TERRACE_CUDA STREQUAL "OFF" AND NOT TARGET CUDA::cudart_static)
  find_package(CUDAToolkit 12 QUIET)
endif()

if(TARGET nlohmann_json::nlohmann_json)
  terrace_component(formats LIBRARIES nlohmann_json::nlohmann_json)
endif()
if(TARGET terrace::formats AND TARGET PkgConfig::pcre2 AND TARGET PkgConfig::utf8proc)
  terrace_component(tokenize LIBRARIES terrace::formats PkgConfig::pcre2 PkgConfig::utf8proc)
endif()
if(TARGET PkgConfig::liburing)
  terrace_component(uring LIBRARIES PkgConfig::liburing DEFINES TERRACE_HAS_URING=1)
endif()
if(TARGET PkgConfig::libpmem2)
  terrace_component(pmem LIBRARIES PkgConfig::libpmem2 DEFINES TERRACE_HAS_PMEM2=1)
endif()
if(TARGET PkgConfig::numa)
  terrace_component(numa LIBRARIES PkgConfig::numa DEFINES TERRACE_HAS_NUMA=1)
endif()
if(TARGET CUDA::cudart_static)
  terrace_component(cuda LIBRARIES CUDA::cudart_static DEFINES TERRACE_HAS_CUDA=1)
  # CMake 3.25 knows no cuda_std_20.
  if(TARGET terrace_cuda)
    set(cuda_target terrace_cuda)
  else()
    set(cuda_target terrace::cuda)
  endif()
  target_compile_options(${cuda_target} INTERFACE
                         "$<$<COMPILE_LANG_AND_ID:CUDA,NVIDIA>:-std=c++20;--expt-relaxed-constexpr>")
endif()
