/* backend.c: the list of back ends. The build names the library's row, if there is one
 * (SN_LIBRARY_BACKEND). */
#include "codegen/backend.h"

#include <string.h>

#ifdef SN_LIBRARY_BACKEND
extern const sn_backend SN_LIBRARY_BACKEND;
static const sn_backend *const backends[] = {&sn_backend_native, &SN_LIBRARY_BACKEND};
#else
static const sn_backend *const backends[] = {&sn_backend_native};
#endif
enum { N_BACKENDS = sizeof backends / sizeof *backends };

const sn_backend *sn_backend_find(const char *name) {
    for (int i = 0; i < N_BACKENDS; i++)
        if (!strcmp(backends[i]->name, name)) return backends[i];
    return NULL;
}

const sn_backend *sn_backend_library(void) {
    return N_BACKENDS > 1 ? backends[N_BACKENDS - 1] : NULL;
}

const char *sn_backend_library_version(void) {
    const sn_backend *b = sn_backend_library();
    return b ? b->version() : "none";
}
