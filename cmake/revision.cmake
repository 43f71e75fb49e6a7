# Writes OUT, a header that defines CODEGEN_REVISION: a hash of the sources of the code generator in DIR,
# so that cached kernels of an older code generator are not used.
file(GLOB_RECURSE files ${DIR}/*.c ${DIR}/*.h)
list(SORT files)
set(all "")
foreach(f ${files})
  file(SHA256 ${f} h)
  string(APPEND all ${h})
endforeach()
string(SHA256 all "${all}")
string(SUBSTRING ${all} 0 16 all)
file(WRITE ${OUT} "#define CODEGEN_REVISION \"${all}\"\n")
