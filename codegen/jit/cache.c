/* cache.c: one file per object, named by its key: a header, then the ELF file. Files are written
 * under a temporary name and renamed, so that other processes see complete files only. They are not
 * synced to the disk, because the checksum detects files that a crash has damaged. */
#include "codegen/jit/cache.h"

#include "runtime/file.h"
#include "runtime/str.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

typedef struct header {
    char magic[8];
    sn_cache_key key;
    uint64_t size;     /* of what follows */
    uint64_t checksum; /* of what follows */
} header;

enum { LIMIT_CODE, LIMIT_WEIGHTS, LIMITS }; /* kinds that share a limit of their size */
enum { PAGE = 4096, PIECE = 4 << 20 };      /* PIECE: bytes that are hashed at a time */

/* The kinds of files, by suffix. begin: of the contents, behind the header. */
static const struct {
    char magic[9], suffix[5];
    int limit, begin;
} kinds[] = {[SN_CACHE_OBJECT] = {"SNOBJ02\n", ".sno", LIMIT_CODE, sizeof(header)},
             [SN_CACHE_CHOICE] = {"SNCHO02\n", ".snc", LIMIT_CODE, sizeof(header)},
             [SN_CACHE_MODEL] = {"SNMOD02\n", ".snm", LIMIT_CODE, sizeof(header)},
             [SN_CACHE_WEIGHTS] = {"SNWGT01\n", ".snw", LIMIT_WEIGHTS, PAGE}};
enum { NAME_SIZE = 32 + sizeof kinds[0].suffix, STALE_SECONDS = 3600 };

struct sn_cache {
    char *dir;
    int fd; /* the folder; -1: none */
    bool writable;
    int64_t max_bytes[LIMITS];
    int64_t bytes[LIMITS]; /* of the folder's files, as far as known; -1: not known yet */
    char note[512];
    bool noted;
    sn_cache_stats stats;
};

sn_cache_key sn_cache_make_key(const sn_target *t, const void *text, size_t bytes) {
    char caches[96], sve[16];
    snprintf(sve, sizeof sve, "%d", t->sve_bytes);
    const char *const parts[] = {sn_codegen_version(),
                                 t->triple,
                                 t->cpu,
                                 t->tune,
                                 t->features,
                                 sve,
                                 sn_caches_text(&t->caches, caches, sizeof caches),
                                 t->bitcode ? "bitcode" : "object",
                                 t->amx ? "amx" : ""};
    enum { N = sizeof parts / sizeof parts[0] };
    XXH128_hash_t hash[N + 1]; /* a hash of hashes: parts cannot run together */
    for (size_t i = 0; i < N; i++) hash[i] = XXH3_128bits(parts[i], strlen(parts[i]));
    hash[N] = XXH3_128bits(text, bytes);
    XXH128_hash_t h = XXH3_128bits(hash, sizeof hash);
    return (sn_cache_key){h.low64, h.high64};
}

/* --- the folder ------------------------------------------------------------------------------- */

static void add_note(sn_cache *c, const char *what, const char *why) {
    c->writable = false;
    if (!c->note[0])
        snprintf(
            c->note, sizeof c->note,
            "compiled kernels are not cached: %s %s: %.300s; choose another cache folder, or none",
            what, c->dir ? c->dir : "~/.cache", why);
}

static char *default_dir(void) {
    const char *base = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (base && base[0] == '/') return sn_path_join(base, "sinter");
    return home && home[0] == '/' ? sn_path_join(home, ".cache/sinter") : NULL;
}

/* Opens the folder. Its contents are executed, so others must not be able to write them: the folder
 * must belong to the user, must not be writable by others, and must not be a symbolic link. */
static void open_folder(sn_cache *c) {
    struct stat st;
    for (size_t n = strlen(c->dir); n > 1 && c->dir[n - 1] == '/'; n--)
        c->dir[n - 1] = 0; /* a slash at the end would follow a link */
    sn_error why = {0};
    bool made = sn_folder_make_private(c->dir, &why); /* if this fails, so does open */
    int fd = open(c->dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st)) {
        bool link = lstat(c->dir, &st) == 0 && S_ISLNK(st.st_mode);
        add_note(c, "cannot use",
                 link   ? "it is a symbolic link"
                 : made ? strerror(errno)
                        : why.message);
    } else if (st.st_uid != geteuid()) {
        add_note(c, "cannot use", "it belongs to another user");
    } else if (st.st_mode & (S_IWGRP | S_IWOTH)) {
        add_note(c, "cannot use", "it is writable by other users (run chmod go-w on it)");
    } else {
        c->fd = fd;
        c->writable = faccessat(fd, ".", W_OK | X_OK, AT_EACCESS) == 0;
        if (!c->writable) add_note(c, "cannot write in", strerror(errno));
        return;
    }
    if (fd >= 0) close(fd);
}

bool sn_cache_is_off(const char *dir) {
    return dir && (!*dir || !strcmp(dir, "none"));
}

sn_cache *sn_cache_open(const char *dir, int64_t max_bytes, sn_error *err) {
    sn_cache *c = calloc(1, sizeof *c);
    if (!c) {
        sn_fail(err, SN_ERR_MEMORY, "out of memory for the object cache");
        return NULL;
    }
    c->fd = -1;
    for (int i = 0; i < LIMITS; i++) c->bytes[i] = -1;
    c->max_bytes[LIMIT_CODE] = max_bytes > 0 ? max_bytes : INT64_C(256) << 20;
    c->dir = dir ? strdup(dir) : default_dir();
    if (c->dir)
        open_folder(c);
    else
        add_note(c, "no folder like", "neither XDG_CACHE_HOME nor HOME is set");
    return c;
}

void sn_cache_close(sn_cache *c) {
    if (!c) return;
    if (c->fd >= 0) close(c->fd);
    free(c->dir);
    free(c);
}

const char *sn_cache_note(sn_cache *c) {
    if (!c || c->noted || !c->note[0]) return NULL;
    c->noted = true;
    return c->note;
}

sn_cache_stats sn_cache_get_stats(const sn_cache *c) {
    return c ? c->stats : (sn_cache_stats){0};
}

/* --- files ------------------------------------------------------------------------------------ */

static void name_of(sn_cache_kind kind, sn_cache_key key, char name[NAME_SIZE]) {
    snprintf(name, NAME_SIZE, "%016" PRIx64 "%016" PRIx64 "%s", key.high, key.low,
             kinds[kind].suffix);
}

static bool read_all(int fd, void *data, size_t bytes) {
    for (size_t done = 0; done < bytes;) {
        ssize_t n = read(fd, (char *)data + done, bytes - done);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        done += (size_t)n;
    }
    return true;
}

static bool write_all(int fd, const void *data, size_t bytes) {
    for (size_t done = 0; done < bytes;) {
        ssize_t n = write(fd, (const char *)data + done, bytes - done);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        done += (size_t)n;
    }
    return true;
}

/* XXH3-64 of the XXH3-64s of all pieces, which several threads compute. 0: out of memory. */
static uint64_t checksum(const void *data, size_t bytes, int threads) {
    size_t n = (bytes + PIECE - 1) / PIECE;
    uint64_t *part = malloc(n * sizeof *part);
    if (!part) return 0;
#pragma omp parallel for schedule(dynamic) num_threads(threads) if (n > 1 && threads > 1)
    for (size_t i = 0; i < n; i++) {
        size_t left = bytes - i * PIECE;
        part[i] = XXH3_64bits((const char *)data + i * PIECE, left < PIECE ? left : PIECE);
    }
    uint64_t sum = XXH3_64bits(part, n * sizeof *part);
    free(part);
    return sum;
}

/* The header of an open file that is complete and of this kind and key. */
static bool read_header(int fd, sn_cache_kind kind, sn_cache_key key, header *h) {
    struct stat st;
    char rest[PAGE];
    return !fstat(fd, &st) && S_ISREG(st.st_mode) && read_all(fd, h, sizeof *h) &&
           read_all(fd, rest, (size_t)kinds[kind].begin - sizeof *h) &&
           !memcmp(h->magic, kinds[kind].magic, sizeof h->magic) && h->key.low == key.low &&
           h->key.high == key.high && h->size != 0 &&
           h->size == (uint64_t)st.st_size - (uint64_t)kinds[kind].begin;
}

/* The contents of an open file, if the checksum is right. */
static bool read_object(int fd, sn_cache_kind kind, sn_cache_key key, sn_object *out) {
    header h;
    if (!read_header(fd, kind, key, &h)) return false;
    out->data = malloc(h.size);
    out->size = h.size;
    if (out->data && read_all(fd, out->data, h.size) &&
        checksum(out->data, h.size, 1) == h.checksum)
        return true;
    sn_object_free(out);
    return false;
}

static int open_entry(const sn_cache *c, const char *name) {
    return openat(c->fd, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
}

bool sn_cache_get(sn_cache *c, sn_cache_kind kind, sn_cache_key key, sn_object *out) {
    *out = (sn_object){0};
    if (!c) return false;
    char name[NAME_SIZE];
    name_of(kind, key, name);
    int fd = c->fd < 0 ? -1 : open_entry(c, name);
    bool found = fd >= 0 && read_object(fd, kind, key, out);
    if (found) futimens(fd, NULL); /* the time of the last use, for eviction */
    if (fd >= 0) close(fd);
    c->stats.hits += found;
    c->stats.misses += !found;
    c->stats.corrupt += fd >= 0 && !found;
    return found;
}

/* The contents of an open file as a mapping, if the checksum is right. */
static const void *map_contents(int fd, sn_cache_kind kind, sn_cache_key key, size_t bytes,
                                int threads) {
    header h;
    if (!read_header(fd, kind, key, &h) || h.size != bytes) return NULL;
    char *p = mmap(NULL, bytes + PAGE, PROT_READ, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED) return NULL;
    madvise(p, bytes + PAGE, MADV_WILLNEED);
    if (checksum(p + PAGE, bytes, threads) == h.checksum) return p + PAGE;
    munmap(p, bytes + PAGE);
    return NULL;
}

const void *sn_cache_map_weights(sn_cache *c, sn_cache_key key, size_t bytes, int threads) {
    char name[NAME_SIZE];
    if (!c || c->fd < 0) return NULL;
    name_of(SN_CACHE_WEIGHTS, key, name);
    int fd = open_entry(c, name);
    if (fd < 0) return NULL;
    const void *p = map_contents(fd, SN_CACHE_WEIGHTS, key, bytes, threads);
    if (p)
        futimens(fd, NULL);
    else
        unlinkat(c->fd, name, 0);
    close(fd);
    return p;
}

void sn_cache_unmap_weights(const void *data, size_t bytes) {
    if (data) munmap((char *)(uintptr_t)data - PAGE, bytes + PAGE);
}

void sn_cache_drop(sn_cache *c, sn_cache_kind kind, sn_cache_key key) {
    if (!c) return;
    char name[NAME_SIZE];
    name_of(kind, key, name);
    c->stats.hits--;
    c->stats.misses++;
    c->stats.corrupt++;
    if (c->fd >= 0) unlinkat(c->fd, name, 0);
}

/* --- eviction --------------------------------------------------------------------------------- */

typedef struct entry {
    char name[NAME_SIZE];
    struct timespec used;
    int64_t size;
} entry;

static int by_time(const void *a, const void *b) {
    const struct timespec *x = &((const entry *)a)->used, *y = &((const entry *)b)->used;
    if (x->tv_sec != y->tv_sec) return x->tv_sec < y->tv_sec ? -1 : 1;
    return (x->tv_nsec > y->tv_nsec) - (x->tv_nsec < y->tv_nsec);
}

/* -1: not a file of the cache. */
static int kind_of(const char *name) {
    for (int k = 0; k < (int)(sizeof kinds / sizeof *kinds); k++)
        if (sn_ends_with(name, kinds[k].suffix) && strlen(name) == NAME_SIZE - 1) return k;
    return -1;
}

/* The name of a file that is being written. */
#define TEMPORARY ".sinter-%ld-%d.tmp"

static bool is_temporary(const char *name) {
    long process;
    int attempt, end = 0;
    return sscanf(name, TEMPORARY "%n", &process, &attempt, &end) == 2 && end && !name[end];
}

/* Lists the cache's files of the kinds that share a limit, and removes temporary files that killed
 * processes left. Returns their number, or -1; *list is malloc'ed. */
static int64_t list_entries(sn_cache *c, int limit, entry **list, int64_t *bytes) {
    int fd = openat(c->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    int64_t n = 0, room = 0;
    *list = NULL;
    *bytes = 0;
    if (!d) {
        if (fd >= 0) close(fd);
        return -1;
    }
    for (struct dirent *f; (f = readdir(d));) {
        struct stat st;
        int kind = kind_of(f->d_name);
        bool object = kind >= 0;
        if ((object ? kinds[kind].limit != limit : !is_temporary(f->d_name)) ||
            fstatat(c->fd, f->d_name, &st, AT_SYMLINK_NOFOLLOW) || !S_ISREG(st.st_mode))
            continue;
        if (!object) {
            if (st.st_mtime < time(NULL) - STALE_SECONDS) unlinkat(c->fd, f->d_name, 0);
            continue;
        }
        if (n == room) {
            entry *more = realloc(*list, (size_t)(room = room ? 2 * room : 64) * sizeof **list);
            if (!more) break; /* the rest is ignored */
            *list = more;
        }
        entry *e = &(*list)[n++];
        *e = (entry){.used = st.st_mtim, .size = st.st_size};
        memcpy(e->name, f->d_name, strlen(f->d_name) + 1);
        *bytes += st.st_size;
    }
    closedir(d);
    return n;
}

/* If the files that share a limit have more than `max` bytes, removes the least recently used ones
 * until `most` bytes are left. */
static void evict(sn_cache *c, int limit, int64_t max, int64_t most) {
    entry *list;
    int64_t n = list_entries(c, limit, &list, &c->bytes[limit]);
    if (n > 0 && c->bytes[limit] > max) {
        qsort(list, (size_t)n, sizeof *list, by_time);
        for (int64_t i = 0; i < n && c->bytes[limit] > most; i++) {
            c->bytes[limit] -= list[i].size;
            /* fails if another process has removed it */
            c->stats.evicted += unlinkat(c->fd, list[i].name, 0) == 0;
        }
    }
    free(list);
}

/* Reads the folder only at the first store and when the limit seems to be exceeded. */
static void evict_old(sn_cache *c, int limit) {
    const int64_t max = c->max_bytes[limit];
    if (c->bytes[limit] < 0 || c->bytes[limit] > max) evict(c, limit, max, max / 4 * 3);
}

/* Room for weights of this size: within the limit, and the disk keeps at least as much free. */
static bool make_room(sn_cache *c, int64_t bytes) {
    struct statvfs disk;
    const int64_t most = c->max_bytes[LIMIT_WEIGHTS] - bytes;
    if (most < 0) return false;
    evict(c, LIMIT_WEIGHTS, most, most);
    return !fstatvfs(c->fd, &disk) &&
           (double)disk.f_bavail * (double)disk.f_frsize >= 2.0 * (double)bytes;
}

/* Creates a file with a name that no other process or thread uses; up to 100 tries. */
static int open_temporary(sn_cache *c, char name[64]) {
    for (int i = 0; i < 100; i++) {
        snprintf(name, 64, TEMPORARY, (long)getpid(), i);
        int fd = openat(c->fd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (fd >= 0 || errno != EEXIST) return fd;
    }
    return -1;
}

void sn_cache_put(sn_cache *c, sn_cache_kind kind, sn_cache_key key, const sn_object *o) {
    const int limit = kinds[kind].limit;
    if (!c || !c->writable || o->size == 0) return;
    if (limit == LIMIT_WEIGHTS && !make_room(c, (int64_t)o->size + PAGE)) return;
    header h = {.key = key, .size = o->size, .checksum = checksum(o->data, o->size, 1)};
    memcpy(h.magic, kinds[kind].magic, sizeof h.magic);
    char name[NAME_SIZE], temporary[64], first[PAGE] = {0};
    memcpy(first, &h, sizeof h);
    name_of(kind, key, name);
    int fd = open_temporary(c, temporary);
    bool ok = fd >= 0 && write_all(fd, first, (size_t)kinds[kind].begin) &&
              write_all(fd, o->data, o->size);
    int why = errno;
    if (fd >= 0 && close(fd) && ok) ok = false, why = errno;
    if (ok && renameat(c->fd, temporary, c->fd, name)) ok = false, why = errno;
    if (!ok) {
        if (fd >= 0) unlinkat(c->fd, temporary, 0);
        add_note(c, "cannot write in", strerror(why));
        return;
    }
    c->stats.stored++;
    if (c->bytes[limit] >= 0) c->bytes[limit] += (int64_t)o->size + kinds[kind].begin;
    evict_old(c, limit);
}

/* --- all files -------------------------------------------------------------------------------- */

void sn_cache_limit_weights(sn_cache *c, int64_t bytes) {
    if (c) c->max_bytes[LIMIT_WEIGHTS] = bytes;
}

bool sn_cache_usable(const sn_cache *c) {
    return c && c->writable;
}

const char *sn_cache_folder(const sn_cache *c) {
    return c ? c->dir : NULL;
}

/* Reads the object of a file; false: corrupt, or gone. */
static bool read_named(sn_cache *c, sn_cache_kind kind, const char *name, sn_object *out) {
    sn_cache_key key;
    *out = (sn_object){0};
    if (sscanf(name, "%16" SCNx64 "%16" SCNx64, &key.high, &key.low) != 2) return false;
    int fd = open_entry(c, name);
    bool ok = fd >= 0 && read_object(fd, kind, key, out);
    if (fd >= 0) close(fd);
    return ok;
}

int64_t sn_cache_each(sn_cache *c, sn_cache_kind kind, sn_cache_fn *fn, void *ctx) {
    entry *list = NULL;
    int64_t bytes, count = 0;
    int64_t n = c && c->fd >= 0 ? list_entries(c, kinds[kind].limit, &list, &bytes) : 0;
    for (int64_t i = 0; i < n; i++) {
        sn_object o;
        if (kind_of(list[i].name) != (int)kind || !read_named(c, kind, list[i].name, &o)) continue;
        if (fn) fn(ctx, &o);
        sn_object_free(&o);
        count++;
    }
    free(list);
    return count;
}

int64_t sn_cache_clear(sn_cache *c, sn_cache_kind kind) {
    entry *list = NULL;
    int64_t bytes, count = 0;
    int64_t n = c && c->fd >= 0 ? list_entries(c, kinds[kind].limit, &list, &bytes) : 0;
    for (int64_t i = 0; i < n; i++)
        if (kind_of(list[i].name) == (int)kind) count += unlinkat(c->fd, list[i].name, 0) == 0;
    free(list);
    if (c) c->bytes[kinds[kind].limit] = -1;
    return count;
}

int64_t sn_cache_count_weights(sn_cache *c, int64_t *bytes) {
    entry *list = NULL;
    *bytes = 0;
    int64_t n = c && c->fd >= 0 ? list_entries(c, LIMIT_WEIGHTS, &list, bytes) : 0;
    free(list);
    return n < 0 ? 0 : n;
}
