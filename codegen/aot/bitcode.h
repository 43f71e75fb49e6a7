/* bitcode.h: many modules of LLVM's bitcode into one object of any format (ELF, COFF, Mach-O,
 * WebAssembly), whose code is generated at the end; also as text. */
#ifndef SN_BITCODE_H
#define SN_BITCODE_H

#include "codegen/aot/lines.h"
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

/* Line information for what was added. */
bool sn_bitcode_add_lines(sn_bitcode *b, const sn_source_line *line, int n, sn_error *err);

/* Ends the merge, after which nothing is added. names: what the object gives to others, each with a zero
 * byte, to be freed by sn_object_free. Only once. */
bool sn_bitcode_finish(sn_bitcode *b, const sn_target *t, sn_object *names, sn_error *err);

/* All of it as an object for t, as its assembler text, or as LLVM's IR: to be freed by sn_object_free.
 * After sn_bitcode_finish, in any order. Texts do not end with a zero byte. */
typedef enum sn_form { SN_FORM_OBJECT, SN_FORM_ASSEMBLY, SN_FORM_IR } sn_form;
bool sn_bitcode_write(sn_bitcode *b, const sn_target *t, sn_form form, sn_object *out,
                      sn_error *err);

#endif
