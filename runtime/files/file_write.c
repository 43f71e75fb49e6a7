/* file_write.c: replaces files by write, fsync and rename.
 * The temporary file has a fixed name and a lock, so killed writers leave at most one file. */
#include "runtime/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

struct sn_file {
    FILE *out;
    char *path, *temp;
    bool failed;
};

static bool is_below(const char *folder, const char *path) {
    size_t n = strlen(folder);
    n -= n && folder[n - 1] == '/'; /* the root of the file system */
    return !strncmp(path, folder, n) && path[n] == '/';
}

bool sn_folder_owns(const char *folder, const char *path) {
    char root[PATH_MAX + sizeof "/blobs"], file[PATH_MAX];
    struct stat st;
    if (!realpath(folder, root) || !realpath(path, file) || stat(file, &st) != 0) return false;
    if (!S_ISREG(st.st_mode)) return false;
    if (is_below(root, file)) return true;
    for (int up = 0; up < 2 && *root; up++) *strrchr(root, '/') = 0;
    return is_below(strcat(root, "/blobs"), file);
}

bool sn_file_copy(const char *folder, const char *from, const char *to, sn_error *err) {
    sn_mapping map;
    if (!sn_file_map(from, &map, err)) return false;
    bool ok = sn_folder_owns(folder, from)
                  ? sn_file_save(to, map.data, map.size, err)
                  : sn_fail(err, SN_ERR_FILE,
                            "%s: is a link out of the folder and is not copied: replace it by a "
                            "copy of the file if that belongs to the model",
                            from);
    sn_file_unmap(&map);
    return ok;
}

static bool make_folder(const char *path, mode_t mode, sn_error *err) {
    char *part = strdup(path);
    if (!part) return sn_fail(err, SN_ERR_MEMORY, "%s: out of memory", path);
    bool ok = true;
    for (char *p = part + (*part == '/'); ok; p++)
        if (*p == '/' || !*p) {
            char c = *p;
            *p = 0;
            struct stat st;
            if (mkdir(part, c ? 0777 : mode) < 0 && errno != EEXIST)
                ok = sn_fail(err, SN_ERR_FILE, "%s: cannot make folder: %s", part, strerror(errno));
            else if (stat(part, &st) < 0 || !S_ISDIR(st.st_mode))
                ok = sn_fail(err, SN_ERR_FILE, "%s: is not a folder", part);
            if (!c) break;
            *p = c;
            while (p[1] == '/') p++;
            if (!p[1]) break;
        }
    free(part);
    return ok;
}

bool sn_folder_make(const char *path, sn_error *err) {
    if (!strcmp(path, "-"))
        return sn_fail(err, SN_ERR_FILE,
                       "-: standard output is not a folder; name one (./- for a folder called -)");
    return make_folder(path, 0777, err);
}

bool sn_folder_make_private(const char *path, sn_error *err) {
    return make_folder(path, 0700, err);
}

/* The folder of a path, allocated: "a" for "a/b", "." for "b". */
static char *folder_of(const char *path) {
    const char *slash = strrchr(path, '/');
    if (!slash) return strdup(".");
    return strndup(path, slash == path ? 1 : (size_t)(slash - path));
}

static char *temp_name(const char *path) {
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    size_t size = strlen(path) + 8;
    char *t = malloc(size);
    if (t) snprintf(t, size, "%.*s.%s.tmp", (int)(name - path), path, name);
    return t;
}

/* Opens and locks the temporary file. If its writer renamed it between our open and lock, the name
 * no longer refers to the inode that we hold: try again. A file with several hard links must not be
 * written: only this name is removed. */
static int open_locked(const char *temp) {
    for (int tries = 0; tries < 100; tries++) {
        int fd = open(temp, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
        if (fd < 0) return -1;
        struct stat held, named;
        if (fstat(fd, &held) == 0 && (!S_ISREG(held.st_mode) || held.st_nlink > 1)) {
            bool plain = S_ISREG(held.st_mode);
            close(fd);
            if (plain && unlink(temp) == 0) continue;
            errno = plain ? errno : ENXIO; /* as for a FIFO without a reader */
            return -1;
        }
        if (flock(fd, LOCK_EX | LOCK_NB) == 0 && fstat(fd, &held) == 0) {
            if (stat(temp, &named) == 0 && named.st_ino == held.st_ino &&
                named.st_dev == held.st_dev)
                return fd;
            close(fd);
            continue;
        }
        int e = errno;
        close(fd);
        errno = e;
        return -1;
    }
    errno = EWOULDBLOCK;
    return -1;
}

static void free_file(sn_file *f) {
    if (f->out && f->out != stdout) fclose(f->out);
    free(f->path);
    free(f->temp);
    free(f);
}

sn_file *sn_file_create(const char *path, sn_error *err) {
    struct stat st;
    if (!strcmp(path, "-")) {
        sn_fail(err, SN_ERR_FILE,
                "-: standard output is not supported here; name a file (./- for a file called -)");
        return NULL;
    }
    bool exists = stat(path, &st) == 0;
    if (exists && !S_ISREG(st.st_mode)) {
        sn_fail(err, SN_ERR_FILE, "%s: cannot be replaced: not a regular file", path);
        return NULL;
    }
    sn_file *f = calloc(1, sizeof *f);
    if (f) f->path = strdup(path), f->temp = temp_name(path);
    if (!f || !f->path || !f->temp) {
        sn_fail(err, SN_ERR_MEMORY, "%s: out of memory", path);
        if (f) free_file(f);
        return NULL;
    }
    int fd = open_locked(f->temp);
    if (fd < 0) {
        if (errno == EWOULDBLOCK)
            sn_fail(err, SN_ERR_FILE, "%s: another process is writing this file", path);
        else if (errno == ENXIO || errno == ELOOP)
            sn_fail(err, SN_ERR_FILE, "%s: cannot write: %s is not a regular file: remove it", path,
                    f->temp);
        else
            sn_fail(err, SN_ERR_FILE, "%s: cannot write: %s", path, strerror(errno));
        free_file(f);
        return NULL;
    }
    if (ftruncate(fd, 0) < 0 || (exists && fchmod(fd, st.st_mode & 0777) < 0) ||
        !(f->out = fdopen(fd, "wb"))) {
        sn_fail(err, SN_ERR_FILE, "%s: cannot write: %s", path, strerror(errno));
        unlink(f->temp);
        close(fd);
        free_file(f);
        return NULL;
    }
    return f;
}

sn_file *sn_file_output(const char *path, sn_error *err) {
    if (strcmp(path, "-") != 0) return sn_file_create(path, err);
    sn_file *f = calloc(1, sizeof *f);
    if (f && (f->path = strdup("standard output"))) {
        f->out = stdout;
        return f;
    }
    free(f);
    sn_fail(err, SN_ERR_MEMORY, "out of memory");
    return NULL;
}

static bool fail_write(sn_file *f, sn_error *err) {
    const char *hint = errno == ENOSPC || errno == EDQUOT ? " (the old file, if any, is kept)" : "";
    f->failed = true;
    return sn_fail(err, SN_ERR_FILE, "%s: write failed: %s%s", f->path, strerror(errno), hint);
}

bool sn_file_write(sn_file *f, const void *data, size_t bytes, sn_error *err) {
    if (!bytes) return true;
    return fwrite(data, 1, bytes, f->out) == bytes || fail_write(f, err);
}

FILE *sn_file_stream(sn_file *f) {
    return f->out;
}

void sn_file_discard(sn_file *f) {
    if (!f) return;
    if (f->temp)
        unlink(f->temp); /* while the lock is held, so the name cannot be another writer's */
    free_file(f);
}

/* A rename is durable only after the folder is synced. */
static void sync_folder(const char *path) {
    char *dir = folder_of(path);
    int fd = dir ? open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (fd >= 0) {
        fsync(fd); /* some file systems do not support it; the file itself is complete */
        close(fd);
    }
    free(dir);
}

bool sn_file_commit(sn_file *f, sn_error *err) {
    bool ok = !f->failed;
    if (!ok)
        sn_fail(err, SN_ERR_FILE, "%s: an earlier write failed", f->path);
    else if (fflush(f->out) != 0 || ferror(f->out) || (f->temp && fsync(fileno(f->out)) != 0))
        ok = fail_write(f, err);
    else if (f->temp && rename(f->temp, f->path) != 0)
        ok = sn_fail(err, SN_ERR_FILE, "%s: cannot replace it: %s", f->path, strerror(errno));
    if (!ok) {
        sn_file_discard(f);
        return false;
    }
    if (f->temp) sync_folder(f->path);
    free_file(f);
    return true;
}

bool sn_file_save(const char *path, const void *data, size_t bytes, sn_error *err) {
    sn_file *f = sn_file_create(path, err);
    if (!f) return false;
    if (!sn_file_write(f, data, bytes, err)) {
        sn_file_discard(f);
        return false;
    }
    return sn_file_commit(f, err);
}
