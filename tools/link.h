/* link.h: what needs a linker: shared libraries and programs of artefacts. The C compiler of the
 * system (or of the target) does it. */
#ifndef SN_LINK_H
#define SN_LINK_H

#include "runtime/base.h"

typedef struct link_request {
    const char *dir, *name; /* NAME.o in this folder; what is made goes there too */
    const char *target;     /* as for sn_emit: tells the architecture */
    const char *cc;         /* NULL: chosen by the target */
    bool openmp, is_static;
} link_request;

/* NAME.so */
bool link_shared(const link_request *r, sn_error *err);

#endif
