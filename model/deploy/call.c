/* call.c: memory of a program; calls an entry of the artefact. */
#include "model/deploy/program.h"
#include "runtime/memory.h"

#include <stdlib.h>
#include <string.h>

/* ---- memory ---- */

void program_use_huge_pages(void) {
    enum { BYTES = 16 << 20 }; /* tokenizers, and lists as long as the vocabulary */
    sn_memory_huge_heap(BYTES);
}

void program_populate_weights(const program *p) {
    sn_memory_populate_file(p->model.weights, (size_t)p->model.bytes);
}

void *program_allocate(int64_t bytes) {
    return sn_memory_map((size_t)bytes);
}

void program_release(void *p, int64_t bytes) {
    sn_memory_unmap(p, (size_t)bytes);
}

/* ---- calls ---- */

static bool grow_workspace(program *p, int64_t bytes, sn_error *err) {
    if (bytes <= p->room) return true;
    program_release(p->workspace, p->room);
    p->room = bytes;
    p->workspace = program_allocate(bytes);
    if (p->workspace) return true;
    p->room = 0;
    return sn_fail(err, SN_ERR_MEMORY, "out of memory: %lld bytes of workspace", (long long)bytes);
}

bool program_fail(const program *p, int32_t code, sn_error *err) {
    return sn_fail(err, SN_ERR_RANGE, "%s", p->a->message(code));
}

bool program_call(program *p, const char *entry, const int64_t *dims, void *const *args,
                  sn_error *err) {
    int64_t i = 0;
    while (i < p->a->n_entry && strcmp(p->a->entry[i].name, entry)) i++;
    if (i == p->a->n_entry)
        return sn_fail(err, SN_ERR_USAGE, "this program has no entry '%s'", entry);
    const sn_deployed_entry *e = &p->a->entry[i];
    int64_t bytes = e->workspace(&p->model, dims);
    if (bytes < 0) return program_fail(p, (int32_t)-bytes, err);
    if (!grow_workspace(p, bytes, err)) return false;
    int32_t code = e->call(&p->model, p->state, p->workspace, dims, args);
    return !code || program_fail(p, code, err);
}
