/* installed.h: files that belong to the program, wherever its installation was moved. */
#ifndef SN_INSTALLED_H
#define SN_INSTALLED_H

#include "runtime/base.h"

/* Writes the folder PREFIX/sub to `out` if the program is PREFIX/…/sinter and the folder has
 * `file`; else `built`, a folder of the source tree, if that has it. False: neither has it; then
 * `out` is the first. */
bool installed_folder(const char *sub, const char *file, const char *built, char *out, size_t size);

#endif
