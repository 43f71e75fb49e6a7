/* kill_at_change.h: kills the process before a change of a file: for tests of what is left. */
#ifndef SN_TEST_KILL_AT_CHANGE_H
#define SN_TEST_KILL_AT_CHANGE_H

#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Files change their names and go by these two calls only: a process can be killed before any. */
static int64_t changes_left = -1;

static void before_change(void) {
    if (changes_left >= 0 && changes_left-- == 0) raise(SIGKILL);
}

int rename(const char *from, const char *to) {
    before_change();
    return (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

int unlinkat(int folder, const char *name, int flags) {
    struct stat st;
    if (fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW) == 0) before_change();
    return (int)syscall(SYS_unlinkat, folder, name, flags);
}

#endif
