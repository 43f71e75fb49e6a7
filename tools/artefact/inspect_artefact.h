/* inspect_artefact.h: describes a file that `sinter compile` wrote. */
#ifndef SN_INSPECT_ARTEFACT_H
#define SN_INSPECT_ARTEFACT_H

#include "runtime/base.h"

/* Prints what an object, library, program or weights file contains. *found: the file is an
 * artefact; otherwise nothing is printed. False: it cannot be read. */
bool inspect_artefact(const char *path, bool *found, sn_error *err);

#endif
