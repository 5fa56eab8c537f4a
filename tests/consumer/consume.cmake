# SPDX-License-Identifier: Apache-2.0
# cmake -D way=find_package|add_subdirectory -D ... -P consume.cmake: configures, builds and runs tests/consumer/project.
file(REMOVE_RECURSE "${scratch}")
set(options -D "USE_${way}=ON" -D "CMAKE_CXX_COMPILER=${compiler}" -D "TERRACE_SOURCE=${terrace_source}")

if(way STREQUAL "find_package")
  execute_process(COMMAND ${CMAKE_COMMAND} --install "${terrace_build}" --prefix "${scratch}/prefix"
                          --component terrace_development
                  OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
  list(APPEND options -D "CMAKE_PREFIX_PATH=${scratch}/prefix")

  # A component that does not exist is refused by name, not found in silence.
  execute_process(COMMAND ${CMAKE_COMMAND} -S "${CMAKE_CURRENT_LIST_DIR}/project" -B "${scratch}/refused"
                          -G "${generator}" ${options} -D COMPONENTS=teleport
                  RESULT_VARIABLE code OUTPUT_QUIET ERROR_VARIABLE complaint)
  if(code EQUAL 0 OR NOT complaint MATCHES "teleport")
    message(FATAL_ERROR "find_package(terrace COMPONENTS teleport) was not refused by name: ${complaint}")
  endif()
endif()

execute_process(COMMAND ${CMAKE_COMMAND} -S "${CMAKE_CURRENT_LIST_DIR}/project" -B "${scratch}/build"
                        -G "${generator}" ${options}
                COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${CMAKE_COMMAND} --build "${scratch}/build" COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND "${scratch}/build/consumer" COMMAND_ERROR_IS_FATAL ANY)
