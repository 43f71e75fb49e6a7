/* file.c: maps files; replaces files by write, fsync and rename.
 * The temporary file has a fixed name and a lock, so killed writers leave at most one file. */
#include "runtime/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct sn_file {
    FILE *out;
    char *path, *temp;
    bool failed;
};

bool sn_file_map(const char *path, sn_mapping *out, sn_error *err) {
    *out = (sn_mapping){(const unsigned char *)"", 0};
    if (!strcmp(path, "-"))
        return sn_fail(
            err, SN_ERR_FILE,
            "-: standard input is not supported here; name a file (./- for a file called -)");
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* do not block on a pipe */
    if (fd < 0) return sn_fail(err, SN_ERR_FILE, "%s: cannot open: %s", path, strerror(errno));
    struct stat st;
    bool ok = false;
    if (fstat(fd, &st) < 0)
        sn_fail(err, SN_ERR_FILE, "%s: cannot read: %s", path, strerror(errno));
    else if (!S_ISREG(st.st_mode))
        sn_fail(err, SN_ERR_FILE, "%s: not a regular file", path);
    else if (st.st_size == 0)
        ok = true;
    else {
        void *p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (p == MAP_FAILED)
            sn_fail(err, SN_ERR_FILE, "%s: cannot map: %s", path, strerror(errno));
        else {
            *out = (sn_mapping){p, (size_t)st.st_size};
            ok = true;
        }
    }
    close(fd);
    return ok;
}

void sn_file_unmap(sn_mapping *m) {
    if (m->size) munmap((void *)(uintptr_t)m->data, m->size);
    *m = (sn_mapping){(const unsigned char *)"", 0};
}

/* Advises the kernel about the pages of these bytes, if they lie in m. */
static void advise(const sn_mapping *m, const void *data, size_t bytes, int advice) {
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), at = (uintptr_t)data,
              begin = at / page * page, whole = (uintptr_t)m->data;
    if (at >= whole && at - whole < m->size && bytes <= m->size - (at - whole))
        madvise((void *)begin, bytes + (at - begin), advice);
}

void sn_file_release(const sn_mapping *m, const void *data, size_t bytes) {
    advise(m, data, bytes, MADV_DONTNEED);
}

void sn_file_prefetch(const sn_mapping *m, const void *data, size_t bytes) {
    advise(m, data, bytes, MADV_WILLNEED);
}

char *sn_path_join(const char *dir, const char *name) {
    size_t n = strlen(dir), size = n + strlen(name) + 2;
    char *p = malloc(size);
    if (p) snprintf(p, size, "%s%s%s", dir, n && dir[n - 1] == '/' ? "" : "/", name);
    return p;
}

bool sn_file_exists(const char *path) {
    struct stat st;
    return stat(path, &st) == 0;
}

bool sn_folder_has(const char *folder, const char *name) {
    char path[PATH_MAX]; /* longer paths cannot be opened */
    int n = snprintf(path, sizeof path, "%s/%s", folder, name);
    return n > 0 && (size_t)n < sizeof path && sn_file_exists(path);
}

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

/* ---- streams ---- */

/* A pipe has no known size and may be endless. */
enum { MAX_PIPE_BYTES = 1 << 28 };

static bool may_read(FILE *f, size_t n, const char *name, sn_error *err) {
    struct stat st;
    if (n + 1 < MAX_PIPE_BYTES || (fstat(fileno(f), &st) == 0 && S_ISREG(st.st_mode))) return true;
    return sn_fail(err, SN_ERR_FILE, "%s: more than 256 MiB: write the text to a file", name);
}

char *sn_stream_read(FILE *f, const char *name, size_t *size, sn_error *err) {
    char *data = NULL;
    size_t capacity = 0, n = 0;
    do {
        if (n + 1 >= capacity) {
            capacity = capacity ? 2 * capacity : 1 << 16;
            bool may = may_read(f, n, name, err);
            char *more = may ? realloc(data, capacity) : NULL;
            if (!more) {
                free(data);
                if (may) sn_fail(err, SN_ERR_MEMORY, "%s: out of memory", name);
                return NULL;
            }
            data = more;
        }
        n += fread(data + n, 1, capacity - 1 - n, f);
    } while (!feof(f) && !ferror(f));
    if (ferror(f)) {
        sn_fail(err, SN_ERR_FILE, "%s: cannot read: %s", name, strerror(errno));
        free(data);
        return NULL;
    }
    data[n] = 0;
    *size = n;
    return data;
}
