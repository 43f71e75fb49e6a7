# Debian packages: `cpack --config build/release/CPackConfig.cmake` writes them to the current folder.
#   sinter          the program, its manual pages, completion
#   libsinter0      the shared library, with its symbols
#   libsinter-dev   headers, static libraries, pkg-config, CMake: what `sinter run FILE.c` and `compile --exe` need, too
#   sinter-doc      documentation, examples
#   python3-sinter  the Python module
set(CPACK_GENERATOR DEB)
set(CPACK_COMPONENTS_ALL program library development documentation python)
set(CPACK_PACKAGE_NAME sinter)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "") # else a second synopsis
set(CPACK_PACKAGE_CONTACT "The Sinter maintainers <maintainers@sinter.invalid>")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_SET_DESTDIR OFF)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ
    WORLD_EXECUTE)
set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_CURRENT_LIST_DIR}/debian/files.cmake)
set(CPACK_POST_BUILD_SCRIPTS ${CMAKE_CURRENT_LIST_DIR}/debian/scripts.cmake)

# sn_package(COMPONENT NAME SECTION SYNOPSIS DESCRIPTION): a package; lines of the description are folded by hand.
macro(sn_package component name section synopsis description)
  string(TOUPPER ${component} upper)
  set(CPACK_DEBIAN_${upper}_PACKAGE_NAME ${name})
  set(CPACK_DEBIAN_${upper}_PACKAGE_SECTION ${section})
  set(CPACK_COMPONENT_${upper}_DESCRIPTION "${synopsis}\n${description}")
endmacro()
set(about "Sinter turns transformer models, written in C or loaded from safetensors\nor GGUF files, into fast machine code: \
to run them, to train them, or to ship\nthem as an object file that needs no framework.\n.\n")
sn_package(program sinter devel "transformer compiler for CPUs"
           "${about}This package has the program sinter.")
sn_package(library libsinter0 libs "transformer compiler for CPUs - shared library"
           "${about}This package has the shared library.")
sn_package(development libsinter-dev libdevel "transformer compiler for CPUs - development files"
           "${about}This package has headers and static libraries. Models in C and programs\nmade by `sinter compile --exe` need it.")
sn_package(documentation sinter-doc doc "transformer compiler for CPUs - documentation and examples"
           "${about}This package has the manual and examples: model variants in C, small\ntrained models, training configurations.")
sn_package(python python3-sinter python "transformer compiler for CPUs - Python module"
           "${about}This package has a package for Python: models in a DSL, language models,\nembeddings and compiled artefacts with NumPy.")

set(same "(= ${PROJECT_VERSION})")
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_DEPENDS "libsinter0 ${same}") # for LLVM and oneDNN, which the program loads itself
set(CPACK_DEBIAN_PROGRAM_PACKAGE_RECOMMENDS "gcc | c-compiler, libsinter-dev ${same}")
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SUGGESTS "sinter-doc, python3-sinter")
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_CONTROL_EXTRA "${PROJECT_BINARY_DIR}/debian/symbols;${PROJECT_BINARY_DIR}/debian/shlibs;${CMAKE_CURRENT_LIST_DIR}/debian/triggers")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS
    "libsinter0 ${same}, libc6-dev, libpcre2-dev, libutf8proc-dev, libcjson-dev")
set(CPACK_DEBIAN_DOCUMENTATION_PACKAGE_ARCHITECTURE all)
set(CPACK_DEBIAN_DOCUMENTATION_PACKAGE_RECOMMENDS sinter)
set(CPACK_DEBIAN_PYTHON_PACKAGE_ARCHITECTURE all)
set(CPACK_DEBIAN_PYTHON_PACKAGE_DEPENDS "python3, python3-numpy, libsinter0 ${same}")

# What dpkg-shlibdeps reads: every exported function, since the first version.
set(soname "libsinter.so.${PROJECT_VERSION_MAJOR}")
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/debian/shlibs
     CONTENT "libsinter ${PROJECT_VERSION_MAJOR} libsinter${PROJECT_VERSION_MAJOR} (>= ${PROJECT_VERSION})\n")
add_custom_command(OUTPUT ${PROJECT_BINARY_DIR}/debian/symbols
                   COMMAND sed -nE
                           "1s/.*/${soname} libsinter${PROJECT_VERSION_MAJOR} (>= ${PROJECT_VERSION})/p$<SEMICOLON>s/^(sn_[a-z0-9_]+)$<SEMICOLON>$/ \\1@Base ${PROJECT_VERSION}/p"
                           ${exports} > ${PROJECT_BINARY_DIR}/debian/symbols
                   DEPENDS ${exports} VERBATIM)
add_custom_target(debian_symbols ALL DEPENDS ${PROJECT_BINARY_DIR}/debian/symbols)
include(CPack)
