/* fuzz_memory.c: see fuzz_memory.h. A page without access follows the bytes, after less than 64 bytes that align their
 * beginning for vectors (a mapped file begins with a page). AddressSanitizer is told of those. */
#include "tests/long/fuzz_memory.h"

#include "ir/module_impl.h"
#include "runtime/files/json.h"

#include <string.h>
#include <sys/mman.h>
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(p, n) ((void)(p), (void)(n))
#define ASAN_UNPOISON_MEMORY_REGION(p, n) ((void)(p), (void)(n))
#endif

enum {
    SPACE = 64 << 20,
    GUARD = 1 << 16,
    ALIGNMENT = 64,
    POOL = 16,
    MAX_POOLED = 2 << 20,
    MAX_BESIDE = 16
};

static unsigned char *space;
static const char *name = "";
static sn_mapping held;
static struct beside {
    char path[256];
    sn_mapping bytes;
    cJSON *json; /* what sn_json_read makes of it */
} beside[MAX_BESIDE];
static int n_beside;

bool fuzz_memory_file(const char *path, const void *data, size_t size) {
    if (!space) {
        void *p = mmap(NULL, SPACE + GUARD, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p == MAP_FAILED || mprotect((unsigned char *)p + SPACE, GUARD, PROT_NONE)) return false;
        space = p;
    }
    size_t room = (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (room > SPACE) return false;
    unsigned char *to = space + SPACE - room;
    ASAN_UNPOISON_MEMORY_REGION(to, room);
    memcpy(to, data, size);
    ASAN_POISON_MEMORY_REGION(to + size, room - size);
    name = path, held = (sn_mapping){size ? to : (const unsigned char *)"", size};
    return true;
}

const sn_mapping *fuzz_memory_held(void) {
    return &held;
}

/* The file beside the case with a path, a mapping or a tree; NULL: not there. */
static struct beside *find_beside(const char *path, const void *data) {
    for (struct beside *b = beside; b < beside + n_beside; b++)
        if (path ? !strcmp(path, b->path) : data == b->bytes.data || data == b->json) return b;
    return NULL;
}

/* What a path or a mapping is in memory; NULL: not there. */
static const sn_mapping *find_held(const char *path, const unsigned char *data) {
    if (path ? !strcmp(path, name) : data == held.data) return &held;
    const struct beside *b = find_beside(path, data);
    return b ? &b->bytes : NULL;
}

/* With --wrap the linker gives these names to the functions: __real_ to those of the library, __wrap_ to others. */
bool __real_sn_file_map(const char *path, sn_mapping *out, sn_error *err);
void __real_sn_file_unmap(sn_mapping *m);
void __real_sn_file_release(const sn_mapping *m, const void *data, size_t bytes);
void __real_sn_file_prefetch(const sn_mapping *m, const void *data, size_t bytes);
cJSON *__real_sn_json_read(const char *path, sn_error *err);
void __real_cJSON_Delete(cJSON *item);
bool __real_sn_file_exists(const char *path);
bool __wrap_sn_file_map(const char *path, sn_mapping *out, sn_error *err);
void __wrap_sn_file_unmap(sn_mapping *m);
void __wrap_sn_file_release(const sn_mapping *m, const void *data, size_t bytes);
void __wrap_sn_file_prefetch(const sn_mapping *m, const void *data, size_t bytes);
cJSON *__wrap_sn_json_read(const char *path, sn_error *err);
void __wrap_cJSON_Delete(cJSON *item);
bool __wrap_sn_file_exists(const char *path);

bool fuzz_memory_beside(const char *path) {
    struct beside *b = &beside[n_beside];
    if (n_beside == MAX_BESIDE || strlen(path) >= sizeof b->path ||
        !__real_sn_file_map(path, &b->bytes, NULL))
        return false;
    strcpy(b->path, path), n_beside++;
    return true;
}

void fuzz_memory_alone(void) {
    while (n_beside) {
        struct beside *b = &beside[--n_beside];
        __real_sn_file_unmap(&b->bytes);
        __real_cJSON_Delete(b->json);
        b->json = NULL;
    }
}

bool __wrap_sn_file_map(const char *path, sn_mapping *out, sn_error *err) {
    const sn_mapping *m = find_held(path, NULL);
    if (!m) return __real_sn_file_map(path, out, err);
    *out = *m;
    return true;
}

void __wrap_sn_file_unmap(sn_mapping *m) {
    if (!find_held(NULL, m->data)) __real_sn_file_unmap(m);
    *m = (sn_mapping){(const unsigned char *)"", 0};
}

void __wrap_sn_file_release(const sn_mapping *m, const void *data, size_t bytes) {
    if (!find_held(NULL, m->data)) __real_sn_file_release(m, data, bytes);
}

void __wrap_sn_file_prefetch(const sn_mapping *m, const void *data, size_t bytes) {
    if (!find_held(NULL, m->data)) __real_sn_file_prefetch(m, data, bytes);
}

cJSON *__wrap_sn_json_read(const char *path, sn_error *err) {
    struct beside *b = find_beside(path, NULL);
    if (!b) return __real_sn_json_read(path, err);
    if (!b->json) b->json = __real_sn_json_read(path, err);
    return b->json;
}

void __wrap_cJSON_Delete(cJSON *item) {
    if (!item || !find_beside(NULL, item)) __real_cJSON_Delete(item);
}

bool __wrap_sn_file_exists(const char *path) {
    return find_held(path, NULL) || __real_sn_file_exists(path);
}

/* It opens the file by itself. */
bool __real_sn_gguf_is_file(const char *path);
bool __wrap_sn_gguf_is_file(const char *path);

bool __wrap_sn_gguf_is_file(const char *path) {
    const sn_mapping *m = find_held(path, NULL);
    return m ? m->size >= 4 && !memcmp(m->data, "GGUF", 4) : __real_sn_gguf_is_file(path);
}

/* ---- modules' memory: blocks that are mapped once, since giving pages back takes longer than reading a file, and cleared
 * as far as the module used them ---- */

void *__real_mmap(void *to, size_t size, int access, int flags, int fd, off_t at);
int __real_munmap(void *p, size_t size);
void *__wrap_mmap(void *to, size_t size, int access, int flags, int fd, off_t at);
int __wrap_munmap(void *p, size_t size);

static struct block {
    void *p;
    size_t size;
    bool used;
} pool[POOL];

void *__wrap_mmap(void *to, size_t size, int access, int flags, int fd, off_t at) {
    if (to || fd >= 0 || size > MAX_POOLED || access != (PROT_READ | PROT_WRITE))
        return __real_mmap(to, size, access, flags, fd, at);
    for (struct block *b = pool; b < pool + POOL; b++) {
        if (b->used || (b->p && b->size != size)) continue;
        if (!b->p && (b->p = __real_mmap(to, size, access, flags, fd, at)) == MAP_FAILED)
            return b->p = NULL, MAP_FAILED;
        b->size = size, b->used = true;
        return b->p;
    }
    return __real_mmap(to, size, access, flags, fd, at);
}

int __wrap_munmap(void *p, size_t size) {
    for (struct block *b = pool; b < pool + POOL; b++) {
        if (!b->used || b->p != p || b->size != size) continue;
        const sn_chunk *c = p;
        memset(p, 0, c->size == size && c->used <= size ? c->used : size);
        return b->used = false, 0;
    }
    return __real_munmap(p, size);
}
