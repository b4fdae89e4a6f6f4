# SPDX-License-Identifier: Apache-2.0
# What `cmake --install` lays down: library, headers, command, pkg-config file, CMake package. The tree can be moved:
# nothing in it holds an absolute path. There is no static library: linking one would let the symbols of the codec inside
# it meet those of another copy in the same program (docs/design.md).
include(CMakePackageConfigHelpers)

set_target_properties(feedline PROPERTIES EXPORT_NAME feedline)
install(TARGETS feedline EXPORT feedline
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
    INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY include/feedline DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
if(FL_TOOLS)
    file(RELATIVE_PATH from_bin_to_lib /${CMAKE_INSTALL_BINDIR} /${CMAKE_INSTALL_LIBDIR})
    set_target_properties(feedline_command PROPERTIES INSTALL_RPATH "$ORIGIN/${from_bin_to_lib}")
    install(TARGETS feedline_command RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/feedline)
install(EXPORT feedline NAMESPACE feedline:: FILE feedline-config.cmake DESTINATION ${package_dir})
# Before 1.0 a new minor version may change the ABI, as the soname says.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/feedline-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/feedline-config-version.cmake DESTINATION ${package_dir})

file(RELATIVE_PATH from_pc_to_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" from_pc_to_prefix "${from_pc_to_prefix}")
configure_file(cmake/feedline.pc.in feedline.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/feedline.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
