# SPDX-License-Identifier: Apache-2.0
# Headers and the package for find_package(terrace COMPONENTS ...).
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

set(package_dir "${CMAKE_INSTALL_DATADIR}/cmake/terrace")
install(TARGETS terrace EXPORT terrace_targets
        FILE_SET HEADERS DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" COMPONENT terrace_development
        FILE_SET cuda_headers DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" COMPONENT terrace_development)
install(EXPORT terrace_targets NAMESPACE terrace:: FILE terraceTargets.cmake DESTINATION "${package_dir}"
        COMPONENT terrace_development)

configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/terraceConfig.cmake.in"
                              "${PROJECT_BINARY_DIR}/terraceConfig.cmake" INSTALL_DESTINATION "${package_dir}")
# A header-only library fits every architecture; before 1.0 a minor version may break its users.
write_basic_package_version_file("${PROJECT_BINARY_DIR}/terraceConfigVersion.cmake"
                                 COMPATIBILITY SameMinorVersion ARCH_INDEPENDENT)
install(FILES "${PROJECT_BINARY_DIR}/terraceConfig.cmake" "${PROJECT_BINARY_DIR}/terraceConfigVersion.cmake"
              "${PROJECT_SOURCE_DIR}/cmake/terrace_components.cmake"
        DESTINATION "${package_dir}" COMPONENT terrace_development)
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" "${PROJECT_SOURCE_DIR}/NOTICE" DESTINATION "${CMAKE_INSTALL_DOCDIR}"
        COMPONENT terrace_development)
