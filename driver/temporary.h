/* temporary.h: a private folder in $TMPDIR (default /tmp) for files of this process. */
#ifndef SN_TEMPORARY_H
#define SN_TEMPORARY_H

#include "runtime/base.h"

typedef struct temporary {
    char path[512];
    int lock; /* locked as long as the process lives: marks the folder as in use */
} temporary;

/* Creates the folder (mode 0700, unpredictable name). Also removes folders that killed processes of
 * this user left behind: they may contain gigabytes of weights. */
bool temporary_make(temporary *t, sn_error *err);
/* Removes the folder, its files, and folders in it that have only files. Mapped files stay readable. */
void temporary_remove(temporary *t);

#endif
