/* installed.h: finds files of the installation, even if it was moved. */
#ifndef SN_INSTALLED_H
#define SN_INSTALLED_H

#include "runtime/base.h"

/* Writes PREFIX/sub to `out` if the program is PREFIX/…/sinter and that folder contains `file`;
 * otherwise PREFIX/built, where PREFIX is a build tree. False: neither contains it; then `out` is the
 * first. */
bool installed_folder(const char *sub, const char *built, const char *file, char *out, size_t size);

#endif
