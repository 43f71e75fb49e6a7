# Writes OUT with the commit of ROOT as SN_COMMIT, "" outside of a repository, if it is another than before.
execute_process(COMMAND git -C ${ROOT} describe --always --dirty --abbrev=12 OUTPUT_VARIABLE commit
                OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
if(failed)
  set(commit "")
endif()
file(CONFIGURE OUTPUT ${OUT} CONTENT "#define SN_COMMIT \"${commit}\"\n")
