/* system.c: what a program asks Linux for. system_windows.c does the same for Windows. */
#include "model/deploy/program.h"
#include "runtime/memory.h"

#include <unistd.h>

enum { SMALL = 2 << 20 }; /* such a block has small pages */

void sn_program_use_huge_pages(void) {
    enum { BYTES = 16 << 20 }; /* tokenizers, and lists as long as the vocabulary */
    sn_memory_huge_heap(BYTES);
}

void sn_program_populate_weights(const program *p) {
    sn_memory_populate_file(p->model.weights, (size_t)p->model.bytes);
}

void *sn_program_allocate(int64_t bytes) {
    void *p = sn_memory_map((size_t)bytes);
    if (p && bytes < SMALL) sn_memory_populate(p, (size_t)bytes);
    return p;
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
