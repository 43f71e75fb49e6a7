/* lazy.c: loads LLVM and oneDNN when the program first calls them: their constructors and relocations
 * take a tenth of a second, for which help, errors of the command line and most reports need not
 * wait. tools/lazy.sh writes the functions that are called in their place. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

extern void *_Atomic sn_lazy_slot[];
extern const char *const sn_lazy_name[], *const sn_lazy_library[];

/* The address of function i, which its slot then has. A library that is missing ends the program, as
 * it does where the library is linked. */
void *sn_lazy_bind(size_t i);
void *sn_lazy_bind(size_t i) {
    void *library = dlopen(sn_lazy_library[i], RTLD_NOW | RTLD_GLOBAL);
    void *function = library ? dlsym(library, sn_lazy_name[i]) : NULL;
    if (!function) {
        fprintf(stderr, "sinter: error while loading a shared library: %s\n", dlerror());
        exit(127);
    }
    return sn_lazy_slot[i] = function;
}
