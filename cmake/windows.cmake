# What `sinter compile --exe --target x86-64-v2,os=windows` links: libsinter_windows.a, from the sources of Linux's libraries
# that a program uses, and libsinter_windows_plain.a, its libsinter_plain.a. Built if Debian's MinGW is there. Differences of the
# systems are in runtime/windows and model/deploy/system_windows.c.
find_program(SN_MINGW x86_64-w64-mingw32-gcc)
find_program(SN_MINGW_AR x86_64-w64-mingw32-ar)
find_program(SN_MINGW_WINDRES x86_64-w64-mingw32-windres)
if(NOT SN_MINGW OR NOT SN_MINGW_AR OR NOT SN_MINGW_WINDRES)
  return()
endif()
set(windows ${PROJECT_BINARY_DIR}/windows)
# Headers of libraries, which are the same for every system: without others of Linux.
foreach(header cjson/cJSON.h pcre2.h utf8proc.h xxhash.h)
  find_path(SN_PLACE_OF_${header} ${header} HINTS ${CJSON_INCLUDE_DIRS} ${PCRE2_INCLUDE_DIRS} ${UTF8PROC_INCLUDE_DIRS} ${XXHASH_INCLUDE_DIRS})
  if(NOT SN_PLACE_OF_${header})
    message(STATUS "${header} is not found: no programs for Windows")
    return()
  endif()
  get_filename_component(folder ${header} DIRECTORY)
  file(COPY ${SN_PLACE_OF_${header}}/${header} DESTINATION ${windows}/include/${folder}) # configure_file would make it an input
endforeach()
file(CONFIGURE OUTPUT ${windows}/include/sys/mman.h CONTENT "/* posix.h has it */\n") # keeps its time
set(options -std=gnu11 -O2 -Wall -Wextra -Wpedantic -Werror -Wno-format -Wno-unknown-pragmas -ffunction-sections -fdata-sections
    -fno-ident -D_GNU_SOURCE -D__USE_MINGW_ANSI_STDIO=1 -D_FILE_OFFSET_BITS=64 -DCJSON_HIDE_SYMBOLS -DPCRE2_STATIC
    -DUTF8PROC_STATIC -DSN_VERSION="${PROJECT_VERSION}" -include ${PROJECT_SOURCE_DIR}/runtime/windows/posix.h
    -I${PROJECT_SOURCE_DIR} -I${PROJECT_BINARY_DIR}/include -I${windows}/include -ffile-prefix-map=${PROJECT_SOURCE_DIR}=.)

# sn_windows_objects(OUT SOURCE…): compiles sources; OUT is the list of their objects.
function(sn_windows_objects out)
  set(objects "")
  foreach(source ${ARGN})
    string(REPLACE / _ object ${source})
    set(object ${windows}/${object}.o)
    add_custom_command(OUTPUT ${object}
                       COMMAND ${CMAKE_C_COMPILER_LAUNCHER} ${SN_MINGW} ${options} -MD -MF ${object}.d
                               -c ${PROJECT_SOURCE_DIR}/${source} -o ${object}
                       DEPENDS ${source} DEPFILE ${object}.d VERBATIM)
    list(APPEND objects ${object})
  endforeach()
  set(${out} ${objects} PARENT_SCOPE)
endfunction()

# sn_windows_library(NAME OBJECT…): an archive in the build tree, to install
function(sn_windows_library name)
  add_custom_command(OUTPUT ${windows}/${name} COMMAND ${CMAKE_COMMAND} -E rm -f ${windows}/${name}
                     COMMAND ${SN_MINGW_AR} rcsD ${windows}/${name} ${ARGN} DEPENDS ${ARGN} VERBATIM)
  install(FILES ${windows}/${name} DESTINATION ${CMAKE_INSTALL_LIBDIR})
endfunction()

set(sources runtime/windows/threads.c model/deploy/system_windows.c)
foreach(lib sinter_rt sinter_text sinter_program sn_cli sn_text_cli)
  get_target_property(folder ${lib} SOURCE_DIR)
  get_target_property(names ${lib} SOURCES)
  file(RELATIVE_PATH folder ${PROJECT_SOURCE_DIR} ${folder})
  list(FILTER names INCLUDE REGEX "[.]c$")
  # what trains, writes files, or reads models
  list(FILTER names EXCLUDE REGEX "comm/|tok_train|/(tok_count|tok_pair|dataset|file_write|config|safetensors|weights.*|npy|model_dir|gguf_model|drawing|checked|system)[.]c$|^(memory|clock|threads|spin)[.]c$")
  list(TRANSFORM names PREPEND ${folder}/)
  list(APPEND sources ${names})
endforeach()
sn_windows_objects(objects ${sources})
# posix.c and the manifest are one object: what has a main needs both.
sn_windows_objects(posix runtime/windows/posix.c)
set(rc runtime/windows/program.rc)
add_custom_command(OUTPUT ${windows}/system.o
                   COMMAND ${SN_MINGW_WINDRES} ${PROJECT_SOURCE_DIR}/${rc} ${windows}/manifest.o
                   COMMAND ${SN_MINGW} -r -nostdlib ${posix} ${windows}/manifest.o -o ${windows}/system.o
                   DEPENDS ${posix} ${rc} runtime/windows/program.manifest VERBATIM)
sn_windows_library(libsinter_windows.a ${objects} ${windows}/system.o)
sn_windows_objects(objects model/deploy/unicode_none.c model/deploy/regex_none.c)
sn_windows_library(libsinter_windows_plain.a ${objects})
add_custom_target(windows ALL DEPENDS ${windows}/libsinter_windows.a ${windows}/libsinter_windows_plain.a)
add_dependencies(windows public_headers)
