/* file.c: maps and reads files. file_write.c replaces them. */
#include "runtime/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static const sn_file_inside *inside; /* NULL: none */

void sn_file_take_inside(const sn_file_inside *list) {
    inside = list;
}

static const sn_file_inside *find_inside(const char *path) {
    const size_t n = sizeof SN_INSIDE - 1;
    if (!inside || strncmp(path, SN_INSIDE, n) != 0) return NULL;
    for (const sn_file_inside *f = inside; f->path; f++)
        if (!strcmp(f->path, path + n)) return f;
    return NULL;
}

static bool is_inside(const sn_mapping *m) {
    for (const sn_file_inside *f = inside; f && f->path; f++)
        if (f->data == m->data) return true;
    return false;
}

bool sn_file_map(const char *path, sn_mapping *out, sn_error *err) {
    *out = (sn_mapping){(const unsigned char *)"", 0};
    const sn_file_inside *part = find_inside(path);
    if (part) {
        *out = (sn_mapping){part->data, part->size};
        return true;
    }
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
    if (m->size && !is_inside(m)) munmap((void *)(uintptr_t)m->data, m->size);
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
    return find_inside(path) || stat(path, &st) == 0;
}

bool sn_folder_has(const char *folder, const char *name) {
    char path[PATH_MAX]; /* longer paths cannot be opened */
    int n = snprintf(path, sizeof path, "%s/%s", folder, name);
    return n > 0 && (size_t)n < sizeof path && sn_file_exists(path);
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
