# files.cmake: what Debian wants in each package beside the files that `cmake --install` installs: copyright, changelog,
# compressed manual pages, reasons for exceptions. cpack runs it before it packs.
set(plain OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ) # not as in the source tree: a tarball has files of mode 664
foreach(component ${CPACK_COMPONENTS_ALL})
  string(TOUPPER ${component} upper)
  set(name ${CPACK_DEBIAN_${upper}_PACKAGE_NAME})
  set(root ${CPACK_TEMPORARY_INSTALL_DIRECTORY}/${component}/usr)
  set(doc ${root}/share/doc/${name})
  file(COPY ${CMAKE_CURRENT_LIST_DIR}/copyright ${CMAKE_CURRENT_LIST_DIR}/changelog DESTINATION ${doc}
       FILE_PERMISSIONS ${plain})
  file(GLOB pages ${root}/share/man/man*/*)
  execute_process(COMMAND gzip -9nf ${doc}/changelog ${pages} COMMAND_ERROR_IS_FATAL ANY)
  if(EXISTS ${CMAKE_CURRENT_LIST_DIR}/${name}.overrides)
    configure_file(${CMAKE_CURRENT_LIST_DIR}/${name}.overrides ${root}/share/lintian/overrides/${name} COPYONLY
                   FILE_PERMISSIONS ${plain})
  endif()
endforeach()
