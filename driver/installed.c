/* installed.c: finds files of the installation relative to the program's own file. */
#include "driver/installed.h"
#include "runtime/file.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

bool installed_folder(const char *sub, const char *built, const char *file, char *out,
                      size_t size) {
    char exe[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    exe[n > 0 ? n : 0] = 0;
    for (int up = 0; up < 2 && strrchr(exe, '/'); up++) *strrchr(exe, '/') = 0;
    snprintf(out, size, "%s/%s", exe, built);
    if (sn_folder_has(out, file)) return true;
    snprintf(out, size, "%s/%s", exe, sub);
    return sn_folder_has(out, file);
}
