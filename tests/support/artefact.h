/* artefact.h: a model compiled ahead of time into the scratch folder, linked and loaded. */
#ifndef SN_TESTS_ARTEFACT_H
#define SN_TESTS_ARTEFACT_H

#include "tests/support/scratch.h"

#include <dlfcn.h>

typedef struct artefact_symbol {
    void *to; /* a pointer to a function */
    const char *name;
} artefact_symbol;

#ifndef SN_CXX /* set by the build; "": no C++ compiler */
#define SN_CXX ""
#endif

/* NAME.h must be strict C99 and C++17. */
static inline void artefact_check_header(const char *name) {
    char file[64], command[1024];
    snprintf(file, sizeof file, "%s.h", name);
    static const char *const with[] = {SN_CC " -std=c99 -xc", SN_CXX " -std=c++17 -xc++"};
    for (int i = 0; i < (*SN_CXX ? 2 : 1); i++) {
        snprintf(command, sizeof command,
                 "%s -pedantic -Wall -Wextra -Wshadow -Werror -fsyntax-only -include %s /dev/null",
                 with[i], scratch_path(file));
        if (system(command)) fail_msg("%s", command);
    }
}

/* Links NAME.o as NAME.so and sets these pointers; the caller calls dlclose(). */
static inline void *artefact_load(const char *name, const artefact_symbol *symbol, int n) {
    char command[1024], object[64], library[64];
    artefact_check_header(name);
    snprintf(object, sizeof object, "%s.o", name);
    snprintf(library, sizeof library, "%s.so", name);
    snprintf(command, sizeof command, "%s -shared -o %s %s -lgomp -lm", SN_CC,
             scratch_path(library), scratch_path(object));
    assert_int_equal(system(command), 0);
    void *lib = dlopen(scratch_path(library), RTLD_NOW | RTLD_LOCAL);
    if (!lib) fail_msg("%s", dlerror());
    for (int i = 0; i < n; i++) {
        void *p = dlsym(lib, symbol[i].name);
        if (!p) fail_msg("no symbol %s", symbol[i].name);
        memcpy(symbol[i].to, &p, sizeof p);
    }
    return lib;
}

#endif
