/* spin.c: limits how long OpenMP's threads spin before they sleep. Separate from threads.c because
 * programs without OpenMP link it, too. */
#include "runtime/threads.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

/* libgomp's setting; NULL unless it is linked statically. */
extern __attribute__((weak)) unsigned long long gomp_spin_count_var;

void sn_threads_limit_spinning(char **argv) {
    static const char name[] = "GOMP_SPINCOUNT", limit[] = "4000";
    const char *now = getenv(name);
    if (now && !strcmp(now, limit)) unsetenv(name);
    if (now || getenv("OMP_WAIT_POLICY")) return;
    if (&gomp_spin_count_var) {
        gomp_spin_count_var = 4000;
        return;
    }
    /* 0: the kernel started the dynamic loader directly (ld.so PROGRAM), so /proc/self/exe is the
     * loader, which would interpret argv differently; or the program is static */
    if (!getauxval(AT_BASE)) return;
    char self[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n <= 0) return;
    self[n] = 0;
    if (!setenv(name, limit, 1)) execv(self, argv);
    unsetenv(name);
}
