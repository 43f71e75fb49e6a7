# The public headers as their users include them: <sinter/NAME.h>. A header of the tree is rewritten to BUILD/api/sinter/NAME.h,
# where its #include lines and the names in its comments are those of this folder. `cmake --install` copies the folder.
set(SN_PUBLIC_HEADERS frontend/sinter.h frontend/optim.h frontend/models.h frontend/train.h frontend/algorithms.h
    frontend/onnx/onnx.h ir/compile.h)
foreach(header base config deployed file manifest model_dir npy problems rng threads weights)
  list(APPEND SN_PUBLIC_HEADERS runtime/${header}.h)
endforeach()
set(SN_CXX_HEADERS frontend/sinter.hpp)
if(SN_MODELS)
  foreach(header dataset embedder generation lm sample tokenizer)
    list(APPEND SN_PUBLIC_HEADERS model/${header}.h)
  endforeach()
  list(APPEND SN_CXX_HEADERS model/lm.hpp)
endif()
set(SN_API ${PROJECT_BINARY_DIR}/api)

function(sn_public_headers)
  set(rules "")
  foreach(header ${SN_PUBLIC_HEADERS} ${SN_CXX_HEADERS} frontend/ops.hpp frontend/ops.h)
    get_filename_component(name ${header} NAME)
    string(APPEND rules "s|#include \"${header}\"|#include <sinter/${name}>|\ns|${header}|sinter/${name}|g\n")
    list(APPEND names ${name})
  endforeach()
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/api.sed CONTENT "${rules}" @ONLY)
  list(POP_BACK names generated generated)
  set(copied ${SN_PUBLIC_HEADERS} ${SN_CXX_HEADERS})
  foreach(header name IN ZIP_LISTS copied names)
    list(APPEND made ${SN_API}/sinter/${name})
    add_custom_command(OUTPUT ${SN_API}/sinter/${name}
                       COMMAND sed -f ${PROJECT_BINARY_DIR}/api.sed ${PROJECT_SOURCE_DIR}/${header} > ${SN_API}/sinter/${name}
                       DEPENDS ${PROJECT_SOURCE_DIR}/${header} ${PROJECT_BINARY_DIR}/api.sed VERBATIM)
  endforeach()
  set(ops ${PROJECT_BINARY_DIR}/include/frontend/ops.h)
  add_custom_command(OUTPUT ${SN_API}/sinter/ops.h
                     COMMAND sed -f ${PROJECT_BINARY_DIR}/api.sed ${ops} > ${SN_API}/sinter/ops.h
                     DEPENDS ${ops} frontend_ops ${PROJECT_BINARY_DIR}/api.sed VERBATIM)
  set(cxx ${PROJECT_SOURCE_DIR}/frontend/ops_hpp.awk)
  add_custom_command(OUTPUT ${SN_API}/sinter/ops.hpp COMMAND awk -f ${cxx} ${ops} > ${SN_API}/sinter/ops.hpp
                     DEPENDS ${cxx} ${ops} frontend_ops VERBATIM)
  file(MAKE_DIRECTORY ${SN_API}/sinter)
  set(SN_API_HEADERS ${made} ${SN_API}/sinter/ops.h PARENT_SCOPE)
  add_custom_target(public_headers ALL DEPENDS ${made} ${SN_API}/sinter/ops.h ${SN_API}/sinter/ops.hpp)
  add_dependencies(sn_flags public_headers) # of everything that may include them
endfunction()
sn_public_headers()
