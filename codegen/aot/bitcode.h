/* bitcode.h: many modules of LLVM's bitcode into one object of any format (COFF, Mach-O,
 * WebAssembly), whose code is generated at the end. */
#ifndef SN_BITCODE_H
#define SN_BITCODE_H

#include "codegen/jit/object.h"

/* NULL and `err` on failure. */
typedef struct sn_bitcode sn_bitcode;
sn_bitcode *sn_bitcode_new(sn_error *err);
void sn_bitcode_free(sn_bitcode *b); /* NULL is allowed */

/* Adds a module, which is not kept. What it defines is local to the result and gets `prefix` for its
 * name's leading "sn_", as do its references to such names; prefix NULL: names stay and are
 * visible to other objects. */
bool sn_bitcode_add(sn_bitcode *b, const char *prefix, const sn_object *o, sn_error *err);

/* Constant data under a name that only this object sees. */
bool sn_bitcode_add_data(sn_bitcode *b, const char *name, const void *data, size_t bytes,
                         size_t align, sn_error *err);

/* The object for t, to be freed by sn_object_free. names: what it gives to others, each with a zero
 * byte, to be freed by sn_object_free. Only once. */
bool sn_bitcode_finish(sn_bitcode *b, const sn_target *t, sn_object *out, sn_object *names,
                       sn_error *err);

#endif
