/* system.c: what a program asks Linux for. system_windows.c does the same for Windows. */
#include "model/deploy/program.h"
#include "runtime/memory.h"

#include <unistd.h>

enum { HUGE_PAGE = 2 << 20 }; /* a smaller block has small pages */

void sn_program_use_huge_pages(void) {
    enum { BYTES = 16 << 20 }; /* tokenizers, and lists as long as the vocabulary */
    sn_memory_huge_heap(BYTES);
}

void sn_program_populate_weights(const program *p) {
    sn_memory_populate_file(p->model.weights, (size_t)p->model.bytes);
}

void *sn_program_allocate(int64_t bytes) {
    void *p = sn_memory_map((size_t)bytes);
    if (p && bytes < HUGE_PAGE) sn_memory_populate(p, (size_t)bytes);
    return p;
}

void *sn_program_allocate_state(int64_t bytes) {
    return bytes < HUGE_PAGE ? sn_program_allocate(bytes) : sn_memory_map_sparse((size_t)bytes);
}

void sn_program_settle(program *p) {
    const int64_t left = p->manifest.state_bytes - p->settled;
    if (left < HUGE_PAGE) return;
    sn_memory_collapse((char *)p->state + p->settled, (size_t)left);
    p->settled += HUGE_PAGE;
}

void sn_program_release(void *p, int64_t bytes) {
    sn_memory_unmap(p, (size_t)bytes);
}

void sn_program_path(char *path, size_t room) {
    ssize_t n = readlink("/proc/self/exe", path, room - 1);
    path[n > 0 ? n : 0] = 0;
}

bool sn_program_threads(program *p, sn_error *err) {
    int32_t code = p->a->set_threads(&p->model, p->o->threads);
    return !code || sn_program_fail(p, code, err);
}
