/* inspect_artefact.h: what is in a file that `sinter compile` made. */
#ifndef SN_INSPECT_ARTEFACT_H
#define SN_INSPECT_ARTEFACT_H

#include "runtime/base.h"

/* Prints what an object, library, program or weights file holds. *found: it is one of ours; nothing
 * is printed otherwise. False: it cannot be read. */
bool inspect_artefact(const char *path, bool *found, sn_error *err);

#endif
