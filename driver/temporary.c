/* temporary.c: private folders, locked while their process is alive; see temporary.h. */
#include "driver/temporary.h"
#include "runtime/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define PREFIX "sinter-tmp-"
enum { SUFFIX_SIZE = 6, STALE_SECONDS = 10 };

/* Removes the folder `name` of the folder `parent`, with its files and `levels` of folders. */
static void remove_folder(int parent, const char *name, int levels) {
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    for (struct dirent *d; dir && (d = readdir(dir));)
        if (strcmp(d->d_name, ".") && strcmp(d->d_name, "..") && unlinkat(fd, d->d_name, 0) != 0 &&
            levels > 0)
            remove_folder(fd, d->d_name, levels - 1);
    if (fd >= 0) (void)(dir ? closedir(dir) : close(fd));
    unlinkat(parent, name, AT_REMOVEDIR);
}

/* Whether this is a folder of temporary_make whose process is gone. A new folder is unlocked for a
 * moment, so it must have a minimum age. */
static bool is_stale(const char *path) {
    struct stat st;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    bool stale = fd >= 0 && fstat(fd, &st) == 0 && st.st_uid == geteuid() &&
                 (st.st_mode & 07777) == 0700 && st.st_mtime < time(NULL) - STALE_SECONDS &&
                 flock(fd, LOCK_EX | LOCK_NB) == 0;
    if (fd >= 0) close(fd);
    return stale;
}

static void remove_stale(const char *parent) {
    DIR *dir = opendir(parent);
    for (struct dirent *d; dir && (d = readdir(dir));) {
        if (strncmp(d->d_name, PREFIX, strlen(PREFIX)) != 0 ||
            strlen(d->d_name) != strlen(PREFIX) + SUFFIX_SIZE)
            continue;
        char *path = sn_path_join(parent, d->d_name);
        if (path && is_stale(path)) remove_folder(AT_FDCWD, path, 1);
        free(path);
    }
    if (dir) closedir(dir);
}

bool temporary_make(temporary *t, sn_error *err) {
    const char *parent = getenv("TMPDIR");
    if (!parent || !*parent) parent = "/tmp";
    *t = (temporary){.lock = -1};
    int n = snprintf(t->path, sizeof t->path, "%s/" PREFIX "XXXXXX", parent);
    if (n < 0 || (size_t)n >= sizeof t->path)
        return sn_fail(err, SN_ERR_FILE, "TMPDIR is too long: %.200s...", parent);
    remove_stale(parent);
    if (!mkdtemp(t->path))
        return sn_fail(err, SN_ERR_FILE, "%s: cannot make a folder: %s", parent, strerror(errno));
    t->lock = open(t->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (t->lock >= 0) flock(t->lock, LOCK_EX | LOCK_NB); /* nobody else knows the name */
    return true;
}

void temporary_remove(temporary *t) {
    remove_folder(AT_FDCWD, t->path, 1);
    if (t->lock >= 0) close(t->lock);
    *t = (temporary){.lock = -1};
}
