/* temporary.h: a private folder in $TMPDIR (else /tmp) for files of this process. */
#ifndef SN_TEMPORARY_H
#define SN_TEMPORARY_H

#include "runtime/base.h"

typedef struct temporary {
    char path[512];
    int lock; /* held as long as the process lives: the folder is in use */
} temporary;

/* Makes the folder (mode 0700, a name that nobody can guess). Also removes those that killed
 * processes of this user have left: they may hold gigabytes of weights. */
bool temporary_make(temporary *t, sn_error *err);
/* Removes the folder and the plain files in it. What is mapped stays readable. */
void temporary_remove(temporary *t);

#endif
