/* system_windows.c: what a program asks Windows for. */
#include "model/deploy/program.h"
#include "runtime/threads.h"

#include <string.h>
#include <windows.h>

void sn_program_use_huge_pages(void) {}

void sn_program_populate_weights(const program *p) {
    (void)p;
}

void *sn_program_allocate(int64_t bytes) {
    return VirtualAlloc(NULL, (size_t)bytes, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE);
}

void *sn_program_allocate_state(int64_t bytes) {
    return sn_program_allocate(bytes);
}

void sn_program_settle(program *p) {
    (void)p;
}

void sn_program_release(void *p, int64_t bytes) {
    (void)bytes;
    if (p) VirtualFree(p, 0, MEM_RELEASE);
}

void sn_program_path(char *path, size_t room) {
    const DWORD n = GetModuleFileNameA(NULL, path, (DWORD)room);
    path[n < room ? n : 0] = 0; /* it was too long */
    for (char *s = path; *s; s++)
        if (*s == '\\') *s = '/';
}

/* Objects without OpenMP run on threads of the program, which end with it. */
bool sn_program_threads(program *p, sn_error *err) {
    static sn_threads pool;
    int64_t n = p->o->threads;
    if (!strcmp(p->manifest.threads, "none")) {
        if (!sn_threads_init(&pool, (int)n, err)) return false;
        n = pool.n;
        p->model.pool = &pool;
    }
    const int32_t code = p->a->set_threads(&p->model, n);
    return !code || sn_program_fail(p, code, err);
}
