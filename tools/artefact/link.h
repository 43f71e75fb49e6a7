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

/* NAME, of NAME.o (which has the program's table), libsinter_program.a and libsinter_rt.a: those
 * installed beside this program, or of its build tree. For this architecture only. */
bool link_program(const link_request *r, sn_error *err);

#endif
