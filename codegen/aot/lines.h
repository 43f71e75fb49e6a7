/* lines.h: line information for debuggers and profilers in a module of LLVM. */
#ifndef SN_LINES_H
#define SN_LINES_H

#include "codegen/emit/llvm_compat.h"

/* A kernel, by its name without "sn_", and the line of the model's source that it computes. */
typedef struct sn_source_line {
    const char *kernel, *file;
    int line;
} sn_source_line;

void sn_lines_add(LLVMModuleRef mod, const sn_source_line *line, int n);

#endif
