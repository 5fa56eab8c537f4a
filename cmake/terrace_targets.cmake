# SPDX-License-Identifier: Apache-2.0
# The library targets. terrace::terrace needs a C++20 compiler and threads; terrace_components.cmake adds the others.

find_package(Threads REQUIRED GLOBAL)
file(GLOB_RECURSE terrace_headers CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/include/*.hpp")
file(GLOB_RECURSE terrace_cuda_headers CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/include/*.cuh")

add_library(terrace INTERFACE)
add_library(terrace::terrace ALIAS terrace)
target_compile_features(terrace INTERFACE cxx_std_20)
target_sources(terrace INTERFACE FILE_SET HEADERS BASE_DIRS "${PROJECT_SOURCE_DIR}/include" FILES ${terrace_headers})
target_sources(terrace INTERFACE FILE_SET cuda_headers TYPE HEADERS BASE_DIRS "${PROJECT_SOURCE_DIR}/include"
                                 FILES ${terrace_cuda_headers})
target_link_libraries(terrace INTERFACE Threads::Threads)

if(TERRACE_FETCH_DEPS)
  include(cmake/terrace_fetch_deps.cmake)
endif()
include(cmake/terrace_cuda.cmake)
include(cmake/terrace_components.cmake)

# Private: warnings and the instruction set for what this repository builds. Never exported.
add_library(terrace_warnings INTERFACE)
target_compile_options(terrace_warnings INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # GCC 12 warns about overlap inside std::string's own concatenation (GCC bug 105651).
  target_compile_options(terrace_warnings INTERFACE -Wno-restrict)
endif()

add_library(terrace_dev INTERFACE)
target_link_libraries(terrace_dev INTERFACE terrace_warnings)
if(TERRACE_NATIVE)
  target_compile_options(terrace_dev INTERFACE -march=native)
endif()
foreach(component uring pmem numa)
  if(TARGET terrace_${component})
    target_link_libraries(terrace_dev INTERFACE terrace_${component})
  endif()
endforeach()
