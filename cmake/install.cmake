# What `cmake --install` puts down: the program, libsinter.so (everything), libsinter_rt.a (what a
# deployed program needs), headers under include/sinter with the paths that they name each other by,
# and a pkg-config file.
include(GNUInstallDirs)

set(parts sinter_rt sinter_ir sinter_frontend sinter_passes sn_codegen)
add_library(sinter_shared SHARED)
foreach(part ${parts})
  target_sources(sinter_shared PRIVATE $<TARGET_OBJECTS:${part}>)
endforeach()
target_link_libraries(sinter_shared PRIVATE ${parts})
set_target_properties(sinter_shared PROPERTIES OUTPUT_NAME sinter VERSION ${PROJECT_VERSION}
                      SOVERSION ${PROJECT_VERSION_MAJOR} LINKER_LANGUAGE C)

configure_file(${CMAKE_CURRENT_LIST_DIR}/sinter.pc.in ${PROJECT_BINARY_DIR}/sinter.pc @ONLY)
install(TARGETS sinter sinter_shared sinter_rt)
install(FILES ${PROJECT_BINARY_DIR}/sinter.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(FILES frontend/sinter.h frontend/models.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/sinter/frontend)
install(FILES ir/ir.h ir/ops.def ir/attrs.def ir/debug.def DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/sinter/ir)
foreach(header base config file model_dir npy problems rng sample threads tokenizer weights)
  install(FILES runtime/${header}.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/sinter/runtime)
endforeach()
install(FILES LICENSE README.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
