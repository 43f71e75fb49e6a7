# What `cmake --install` installs: the program with its manual pages, libsinter.so (everything),
# libsinter_rt.a (what a deployed program may use), libsinter_text.a (the same for language models), libsinter_program.a
# (what `sinter compile --exe` links), headers under include/sinter, pkg-config files and a CMake package. The targets
# sinter::sinter, sinter::rt and sinter::text work the same from an installation, from a build tree, and by add_subdirectory.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(parts sinter_rt sinter_ir sinter_frontend sinter_passes sn_codegen)
if(SN_MODELS)
  list(APPEND parts sinter_text sn_driver sn_model)
endif()
add_library(sinter_shared SHARED)
foreach(part ${parts})
  target_sources(sinter_shared PRIVATE $<TARGET_OBJECTS:${part}>)
endforeach()
target_link_libraries(sinter_shared PRIVATE ${parts})
set(exports ${PROJECT_BINARY_DIR}/libsinter.map)
add_custom_command(OUTPUT ${exports}
                   COMMAND ${PROJECT_SOURCE_DIR}/cmake/exports.sh ${CMAKE_C_COMPILER} ${SN_PUBLIC_HEADERS} --
                           -I${PROJECT_SOURCE_DIR} -I${PROJECT_BINARY_DIR}/include > ${exports}
                   DEPENDS cmake/exports.sh ${SN_PUBLIC_HEADERS} ${PROJECT_BINARY_DIR}/include/frontend/ops.h frontend_ops VERBATIM)
target_sources(sinter_shared PRIVATE ${exports})
target_link_options(sinter_shared PRIVATE LINKER:--version-script=${exports})
set_target_properties(sinter_shared PROPERTIES LINK_DEPENDS ${exports})
set_target_properties(sinter_shared PROPERTIES OUTPUT_NAME sinter VERSION ${PROJECT_VERSION}
                      SOVERSION ${PROJECT_VERSION_MAJOR} LINKER_LANGUAGE C)

# For add_subdirectory: the libraries without Sinter's warning flags and definitions.
set(static rt)
if(SN_MODELS)
  list(APPEND static text)
endif()
foreach(lib ${static} shared)
  add_library(sinter_use_${lib} INTERFACE)
  target_link_libraries(sinter_use_${lib} INTERFACE $<LINK_ONLY:sinter_${lib}>)
  target_include_directories(sinter_use_${lib} INTERFACE ${SN_API})
  add_dependencies(sinter_use_${lib} public_headers)
endforeach()
foreach(lib ${static})
  add_library(sinter::${lib} ALIAS sinter_use_${lib})
endforeach()
add_library(sinter::sinter ALIAS sinter_use_shared)

# The CMake package, for the build tree and for any installation prefix.
set(version_file ${PROJECT_BINARY_DIR}/cmake/sinterConfigVersion.cmake)
write_basic_package_version_file(${version_file} VERSION ${PROJECT_VERSION} COMPATIBILITY SameMinorVersion)
set(SN_CONFIG_PATHS "set(sinter_rt_file \"${PROJECT_BINARY_DIR}/runtime/libsinter_rt.a\")
set(sinter_text_file \"${PROJECT_BINARY_DIR}/model/libsinter_text.a\")
set(sinter_file \"${PROJECT_BINARY_DIR}/libsinter.so\")
set(sinter_program \"${PROJECT_BINARY_DIR}/tools/sinter\")
set(sinter_include \"${SN_API}\")")
configure_file(${CMAKE_CURRENT_LIST_DIR}/sinterConfig.cmake.in ${PROJECT_BINARY_DIR}/cmake/sinterConfig.cmake @ONLY)
file(RELATIVE_PATH up /usr/${CMAKE_INSTALL_LIBDIR}/cmake/sinter /usr)
set(SN_CONFIG_PATHS "get_filename_component(sinter_prefix \"\${CMAKE_CURRENT_LIST_DIR}/${up}\" ABSOLUTE)
set(sinter_rt_file \"\${sinter_prefix}/${CMAKE_INSTALL_LIBDIR}/libsinter_rt.a\")
set(sinter_text_file \"\${sinter_prefix}/${CMAKE_INSTALL_LIBDIR}/libsinter_text.a\")
set(sinter_file \"\${sinter_prefix}/${CMAKE_INSTALL_LIBDIR}/libsinter.so\")
set(sinter_program \"\${sinter_prefix}/${CMAKE_INSTALL_BINDIR}/sinter\")
set(sinter_include \"\${sinter_prefix}/${CMAKE_INSTALL_INCLUDEDIR}\")")
configure_file(${CMAKE_CURRENT_LIST_DIR}/sinterConfig.cmake.in ${PROJECT_BINARY_DIR}/install/sinterConfig.cmake @ONLY)
set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME development)
install(FILES ${PROJECT_BINARY_DIR}/install/sinterConfig.cmake ${version_file}
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/sinter)

file(RELATIVE_PATH SN_PC_UP /usr/${CMAKE_INSTALL_LIBDIR}/pkgconfig /usr)
list(TRANSFORM static PREPEND sinter_)
foreach(pc sinter ${static})
  configure_file(${CMAKE_CURRENT_LIST_DIR}/${pc}.pc.in ${PROJECT_BINARY_DIR}/${pc}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/${pc}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endforeach()

install(DIRECTORY ${SN_API}/sinter DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(TARGETS ${static})
if(SN_MODELS)
  install(TARGETS sinter_program sinter_plain)
endif()
install(TARGETS sinter_shared LIBRARY COMPONENT library NAMELINK_COMPONENT development)

# Manual pages are generated from --help.
set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME program)
install(TARGETS sinter)
add_custom_command(OUTPUT ${PROJECT_BINARY_DIR}/man/sinter.1
                   COMMAND ${PROJECT_SOURCE_DIR}/tools/man.sh $<TARGET_FILE:sinter> ${PROJECT_BINARY_DIR}/man
                   DEPENDS sinter ${PROJECT_SOURCE_DIR}/tools/man.sh VERBATIM)
add_custom_target(man ALL DEPENDS ${PROJECT_BINARY_DIR}/man/sinter.1)
install(DIRECTORY ${PROJECT_BINARY_DIR}/man/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 FILES_MATCHING PATTERN "*.1")
# Section 3 is generated from the doc comments of the public headers.
set(man3_headers "")
foreach(header ${SN_API_HEADERS})
  get_filename_component(name ${header} NAME)
  if(name MATCHES "[.]h$")
    list(APPEND man3_headers sinter/${name}=${header})
  endif()
endforeach()
add_custom_command(OUTPUT ${PROJECT_BINARY_DIR}/man3/libsinter.3
                   COMMAND ${PROJECT_SOURCE_DIR}/tools/man3.sh ${PROJECT_VERSION} ${PROJECT_BINARY_DIR}/man3 ${man3_headers}
                   DEPENDS tools/man3.sh tools/man3.awk ${SN_API_HEADERS} VERBATIM)
add_custom_target(man3 ALL DEPENDS ${PROJECT_BINARY_DIR}/man3/libsinter.3)
install(DIRECTORY ${PROJECT_BINARY_DIR}/man3/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man3 FILES_MATCHING PATTERN "*.3")

# Completion of command lines, where each shell looks for it.
set(completions ${PROJECT_BINARY_DIR}/completions)
add_custom_command(OUTPUT ${completions}/sinter.fish
                   COMMAND ${CMAKE_COMMAND} -E make_directory ${completions}
                   COMMAND sinter completion bash > ${completions}/sinter
                   COMMAND sinter completion zsh > ${completions}/_sinter
                   COMMAND sinter completion fish > ${completions}/sinter.fish
                   DEPENDS sinter VERBATIM)
add_custom_target(completions ALL DEPENDS ${completions}/sinter.fish)
install(FILES ${completions}/sinter DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
install(FILES ${completions}/_sinter DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
install(FILES ${completions}/sinter.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)

# `sinter bench --peers` finds its scripts there.
install(DIRECTORY bench/peers DESTINATION ${CMAKE_INSTALL_DATADIR}/sinter)

# The Python package: put its folder on PYTHONPATH. A Debian package has it where Python looks. BUILD/python is the same for
# the build tree: links to the sources beside the generated operations.
set(python ${PROJECT_BINARY_DIR}/python/sinter)
set(python_files "")
foreach(name __init__.py _library.py artefact.py dsl.py graph.py model.py program.py torch.py py.typed)
  list(APPEND python_files ${PROJECT_SOURCE_DIR}/python/sinter/${name})
  file(MAKE_DIRECTORY ${python})
  file(CREATE_LINK ${PROJECT_SOURCE_DIR}/python/sinter/${name} ${python}/${name} SYMBOLIC)
endforeach()
add_custom_command(OUTPUT ${python}/ops.py
                   COMMAND awk -f ${PROJECT_SOURCE_DIR}/frontend/ops_py.awk ${PROJECT_BINARY_DIR}/include/frontend/ops.h > ${python}/ops.py
                   DEPENDS frontend/ops_py.awk ${PROJECT_BINARY_DIR}/include/frontend/ops.h frontend_ops VERBATIM)
add_custom_target(python_package ALL DEPENDS ${python}/ops.py)
foreach(place ${CMAKE_INSTALL_DATADIR}/sinter/python lib/python3/dist-packages)
  set(component python-file)
  if(place MATCHES "dist-packages")
    set(component python EXCLUDE_FROM_ALL)
  endif()
  install(FILES ${python_files} ${python}/ops.py DESTINATION ${place}/sinter COMPONENT ${component})
endforeach()
install(FILES python/pyproject.toml python/setup.py DESTINATION ${CMAKE_INSTALL_DATADIR}/sinter/python COMPONENT python-file)

# The documentation and the files it refers to, with the paths of the source tree, so that links and commands work.
set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME documentation)
install(FILES LICENSE README.md CONTRIBUTING.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR} FILES_MATCHING PATTERN "*.md" PATTERN "*.svg" PATTERN "*.png")
install(DIRECTORY examples DESTINATION ${CMAKE_INSTALL_DOCDIR} PATTERN CMakeLists.txt EXCLUDE)

if(PROJECT_IS_TOP_LEVEL)
  include(${CMAKE_CURRENT_LIST_DIR}/package.cmake)
endif()
