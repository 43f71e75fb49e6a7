/* call.c: calls an entry of the artefact. */
#include "model/deploy/program.h"

#include <string.h>

static bool grow_workspace(program *p, int64_t bytes, sn_error *err) {
    if (bytes <= p->room) return true;
    sn_program_release(p->workspace, p->room);
    p->room = bytes;
    p->workspace = sn_program_allocate(bytes);
    if (p->workspace) return true;
    p->room = 0;
    return sn_fail(err, SN_ERR_MEMORY, "out of memory: %lld bytes of workspace", (long long)bytes);
}

bool sn_program_fail(const program *p, int32_t code, sn_error *err) {
    return sn_fail(err, SN_ERR_RANGE, "%s", p->a->message(code));
}

/* Whether a length is above 1/32 of its bound, so that most pages of the state are written. A bound below 32 is that of a
 * batch, not of a context. */
static bool is_long(const sn_manifest_entry *e, const int64_t *dims) {
    enum { PART = 32 };
    bool some = false;
    for (int i = 0; i < e->n_dim; i++)
        some |= e->dim[i].hi >= PART && dims[i] * PART > e->dim[i].hi;
    return some;
}

bool sn_program_call(program *p, const char *entry, const int64_t *dims, void *const *args,
                     sn_error *err) {
    int64_t i = 0;
    while (i < p->a->n_entry && strcmp(p->a->entry[i].name, entry)) i++;
    if (i == p->a->n_entry)
        return sn_fail(err, SN_ERR_USAGE, "this program has no entry '%s'", entry);
    const sn_deployed_entry *e = &p->a->entry[i];
    int64_t bytes = e->workspace(&p->model, dims);
    if (bytes < 0) return sn_program_fail(p, (int32_t)-bytes, err);
    if (!grow_workspace(p, bytes, err)) return false;
    if (is_long(sn_manifest_get(&p->manifest, entry), dims)) sn_program_settle(p);
    int32_t code = e->call(&p->model, p->state, p->workspace, dims, args);
    return !code || sn_program_fail(p, code, err);
}
