# Writes OUT, a header that defines CODEGEN_REVISION: a hash of FILES, the sources of the code generator and of what it
# asks while it emits, so that cached kernels of an older code generator are not used.
list(SORT FILES)
set(all "")
foreach(f ${FILES})
  file(SHA256 ${f} h)
  string(APPEND all ${h})
endforeach()
string(SHA256 all "${all}")
string(SUBSTRING ${all} 0 16 all)
file(WRITE ${OUT} "#define CODEGEN_REVISION \"${all}\"\n")
