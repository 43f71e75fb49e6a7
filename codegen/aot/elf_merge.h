/* elf_merge.h: many relocatable ELF objects into one, as `ld -r` would, for any 64-bit
 * little-endian machine: artefacts need no linker and no assembler of the target. */
#ifndef SN_ELF_MERGE_H
#define SN_ELF_MERGE_H

#include "codegen/jit/object.h"

/* Symbols live in groups: an object's references are looked for in its own group first, then among
 * the final names of all. NULL: out of memory. */
typedef struct sn_elf sn_elf;
sn_elf *sn_elf_new(void);
void sn_elf_free(sn_elf *e); /* NULL is allowed */

/* Adds an object to a group; its bytes are copied. What it defines is local to the result and gets
 * `prefix` for its name's leading "sn_"; prefix NULL: names stay and are visible to other
 * objects. */
bool sn_elf_add(sn_elf *e, int group, const char *prefix, const sn_object *o, sn_error *err);

/* Constant data under a name that only this object sees; `data` is not copied. */
bool sn_elf_add_data(sn_elf *e, const char *name, const void *data, size_t bytes, size_t align,
                     sn_error *err);

/* Bytes of machine code in a group so far. */
size_t sn_elf_code_bytes(const sn_elf *e, int group);

/* The merged object, to be freed by sn_object_free. A name that is defined twice is an error. */
bool sn_elf_finish(sn_elf *e, sn_object *out, sn_error *err);

/* The names that an object gives to others, each with a zero byte. */
bool sn_elf_names(const sn_object *o, sn_object *names, sn_error *err);

/* A static library with the object as its one member and an index of names, as sn_elf_names gives
 * them. */
bool sn_archive(const sn_object *o, const sn_object *names, const char *member, sn_object *out,
                sn_error *err);

#endif
