/* inside.h: files that become a part of an artefact's object. */
#ifndef SN_INSIDE_H
#define SN_INSIDE_H

#include "runtime/file.h"

enum { INSIDE_FILES = 32 };

typedef struct inside {
    const char *name;                  /* of the artefact */
    sn_file_inside file[INSIDE_FILES]; /* mapped; path: NAME.ending/FILE */
    char *path[INSIDE_FILES];          /* with the folder before it, allocated */
    int n;
} inside;

/* Adds the files of the folder DIR/NAME.ending, which may only be missing if it is optional. Fails if one cannot be read.
 * inside_free afterwards, also if it failed. */
bool inside_read(inside *s, const char *dir, const char *ending, bool optional, sn_error *err);
void inside_free(inside *s);

#endif
