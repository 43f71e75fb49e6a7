/* A library for LD_PRELOAD that makes allocations of the main program and of chosen libraries fail.
 *   FAIL_AT=N     the N-th allocation fails (from 1); unset: none
 *   FAIL_FROM=1   so do all after it
 *   FAIL_LIBS=A,B libraries whose allocations count too, by a part of their path
 *   FAIL_COUNT=F  writes the number of allocations to the file F at exit
 * Only callers inside the chosen objects count: LLVM and libc keep their memory. */
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);

enum { MAX_RANGES = 16 };
static struct { uintptr_t from, to; } range[MAX_RANGES];
static int n_range;
static atomic_long count;
static long fail_at;
static bool fail_after;

static bool is_listed(const char *path) {
    const char *libs = getenv("FAIL_LIBS");
    for (const char *p = libs; p && *p;) {
        size_t n = strcspn(p, ",");
        char name[64] = "";
        if (n && n < sizeof name && strstr(path, memcpy(name, p, n))) return true;
        p += n + (p[n] == ',');
    }
    return false;
}

/* Notes the code of one loaded object; the first is the program itself. */
static int note_object(struct dl_phdr_info *o, size_t size, void *first) {
    (void)size;
    bool wanted = *(bool *)first || is_listed(o->dlpi_name);
    *(bool *)first = false;
    for (int i = 0; wanted && i < o->dlpi_phnum && n_range < MAX_RANGES; i++) {
        const ElfW(Phdr) *h = &o->dlpi_phdr[i];
        if (h->p_type != PT_LOAD || !(h->p_flags & PF_X)) continue;
        range[n_range].from = o->dlpi_addr + h->p_vaddr;
        range[n_range++].to = o->dlpi_addr + h->p_vaddr + h->p_memsz;
    }
    return 0;
}

__attribute__((constructor)) static void begin(void) {
    bool first = true;
    fail_at = getenv("FAIL_AT") ? atol(getenv("FAIL_AT")) : 0;
    fail_after = getenv("FAIL_FROM") != NULL;
    dl_iterate_phdr(note_object, &first);
}

__attribute__((destructor)) static void end(void) {
    const char *path = getenv("FAIL_COUNT");
    FILE *f = path ? fopen(path, "w") : NULL;
    if (!f) return;
    fprintf(f, "%ld\n", atomic_load(&count));
    fclose(f);
}

static bool fails(const void *caller) {
    uintptr_t a = (uintptr_t)caller;
    for (int i = 0; i < n_range; i++)
        if (a >= range[i].from && a < range[i].to) {
            long k = atomic_fetch_add(&count, 1) + 1;
            if (fail_at && (k == fail_at || (fail_after && k > fail_at))) {
                errno = ENOMEM;
                return true;
            }
        }
    return false;
}
#define FAILS fails(__builtin_return_address(0))

void *malloc(size_t n) {
    return FAILS ? NULL : __libc_malloc(n);
}
void *calloc(size_t n, size_t size) {
    return FAILS ? NULL : __libc_calloc(n, size);
}
void *realloc(void *p, size_t n) {
    return FAILS ? NULL : __libc_realloc(p, n);
}
void *aligned_alloc(size_t align, size_t n) {
    return FAILS ? NULL : __libc_memalign(align, n);
}

int posix_memalign(void **p, size_t align, size_t n) {
    if (FAILS) return ENOMEM;
    *p = __libc_memalign(align, n);
    return *p ? 0 : ENOMEM;
}

char *strdup(const char *s) {
    size_t n = strlen(s) + 1;
    char *p = FAILS ? NULL : __libc_malloc(n);
    return p ? memcpy(p, s, n) : NULL;
}

void *mmap(void *at, size_t n, int protection, int flags, int fd, off_t offset) {
    static void *(*real)(void *, size_t, int, int, int, off_t);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "mmap");
    return FAILS ? MAP_FAILED : real(at, n, protection, flags, fd, offset);
}
