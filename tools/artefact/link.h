/* link.h: links artefacts as shared libraries and programs with the C compiler of the system (or of
 * the target). */
#ifndef SN_LINK_H
#define SN_LINK_H

#include "runtime/base.h"

typedef struct link_request {
    const char *dir, *name; /* folder of NAME.o and of the output */
    const char *target;     /* as for sn_emit: determines the architecture */
    const char *cc;         /* NULL: chosen according to the target */
    bool openmp, is_static;
    bool workers;      /* modules: several threads share the memory, which the module imports */
    bool windows;      /* the target's system */
    bool unicode;      /* programs: the tokenizer needs the tables of Unicode */
    bool regex;        /* programs: it matches regular expressions */
    bool *static_gomp; /* programs: where to say whether libgomp became a part of it; or NULL */
} link_request;

/* NAME.so */
bool link_shared(const link_request *r, sn_error *err);

/* The name of wasm-ld, as given (cc) or as usual, if such a program runs. NULL: there is none. */
const char *link_wasm_linker(const char *cc, sn_error *err);

/* Bytes of the memory that a module imports, at first: data, the stack, room for calls. */
enum { LINK_WASM_MEMORY = 16 << 20 };

/* The WebAssembly module NAME.wasm from NAME.wasm.o, by link_wasm_linker(cc). */
bool link_wasm(const link_request *r, sn_error *err);

/* The program NAME from NAME.o (with the program table), libsinter_plain.a (what stands for tables of Unicode and PCRE2
 * if they are not needed), libsinter_program.a, libsinter_text.a and libsinter_rt.a, either installed with this program
 * or from its build tree. For this machine's architecture, or NAME.exe for Windows, from NAME.obj,
 * libsinter_windows_plain.a and libsinter_windows.a. */
bool link_program(const link_request *r, sn_error *err);
/* Before NAME.o is made: whether there is a compiler for the target, and all libraries. */
bool link_program_possible(const link_request *r, sn_error *err);

#endif
