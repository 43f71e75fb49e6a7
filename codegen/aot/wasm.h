/* wasm.h: WebAssembly objects in an archive, for a linker that makes a module of all of them. */
#ifndef SN_WASM_H
#define SN_WASM_H

#include "codegen/jit/object.h"

/* NULL: out of memory. */
typedef struct sn_wasm sn_wasm;
sn_wasm *sn_wasm_new(void);
void sn_wasm_free(sn_wasm *w); /* NULL is allowed */

/* Adds an object; its bytes are copied. */
bool sn_wasm_add(sn_wasm *w, const sn_object *o, sn_error *err);

/* Bytes of the code sections so far. */
size_t sn_wasm_code_bytes(const sn_wasm *w);

/* The archive, as long as w exists. It has no index of names: all members are to be linked. */
sn_object sn_wasm_archive(const sn_wasm *w);

#endif
