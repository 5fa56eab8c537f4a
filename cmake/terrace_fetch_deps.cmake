# SPDX-License-Identifier: Apache-2.0
# TERRACE_FETCH_DEPS=ON: what is not installed is downloaded while configuring. Off by default; scripts/deps.sh installs
# the same from the distribution. PCRE2, utf8proc, liburing, libpmem2 and libnuma are never fetched.
include(FetchContent)

set(JSON_Install OFF)
FetchContent_Declare(nlohmann_json GIT_REPOSITORY https://github.com/nlohmann/json.git GIT_TAG v3.11.3 GIT_SHALLOW ON
                     FIND_PACKAGE_ARGS 3.10 GLOBAL)
FetchContent_Declare(fmt GIT_REPOSITORY https://github.com/fmtlib/fmt.git GIT_TAG 10.2.1 GIT_SHALLOW ON
                     FIND_PACKAGE_ARGS GLOBAL)
FetchContent_Declare(CLI11 GIT_REPOSITORY https://github.com/CLIUtils/CLI11.git GIT_TAG v2.4.2 GIT_SHALLOW ON
                     FIND_PACKAGE_ARGS GLOBAL)
FetchContent_Declare(Catch2 GIT_REPOSITORY https://github.com/catchorg/Catch2.git GIT_TAG v3.7.1 GIT_SHALLOW ON
                     FIND_PACKAGE_ARGS 3.4 GLOBAL)

FetchContent_MakeAvailable(nlohmann_json)
if(TERRACE_BUILD_EXAMPLES)
  FetchContent_MakeAvailable(fmt CLI11)
endif()
if(TERRACE_BUILD_TESTS)
  FetchContent_MakeAvailable(Catch2)
  if(catch2_SOURCE_DIR)  # fetched, so its Catch.cmake is not on the path yet
    list(APPEND CMAKE_MODULE_PATH "${catch2_SOURCE_DIR}/extras")
  endif()
endif()
