/* installed.c: finds files of the installation relative to the program's own file. */
#include "model/installed.h"
#include "runtime/file.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

bool installed_folder(const char *sub, const char *file, const char *built, char *out,
                      size_t size) {
    char exe[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    exe[n > 0 ? n : 0] = 0;
    for (int up = 0; up < 2 && strrchr(exe, '/'); up++) *strrchr(exe, '/') = 0;
    snprintf(out, size, "%s/%s", exe, sub);
    if (sn_folder_has(out, file)) return true;
    if (!sn_folder_has(built, file)) return false;
    snprintf(out, size, "%s", built);
    return true;
}
