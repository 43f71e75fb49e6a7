/* code.h: generated code as definitions of SMT-LIB, so that a solver decides what it computes for every input. */
#ifndef SN_TEST_CODE_H
#define SN_TEST_CODE_H

#include "codegen/emit/emit.h"

enum { CODE_MAX_RESULTS = 4 };

typedef struct code {
    const char *
        definitions; /* of what the results need; integers are bit vectors, dim[k] is the symbol dk */
    const char *result[CODE_MAX_RESULTS]; /* the i64 that is stored to buf[k] */
    const char *why;                      /* an instruction without translation; NULL: none */
} code;

/* A kernel without branches or loads, before LLVM has optimised it. */
code code_smt(em_val kernel);

#endif
