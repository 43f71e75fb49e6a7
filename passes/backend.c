/* backend.c: see backend.h. */
#include "passes/backend.h"

#include <string.h>

static bool supports_all(const sn_node *n, const char **why) {
    (void)n, (void)why;
    return true;
}

const sn_backend sn_backend_native = {
    .name = "native", .title = "Sinter", .supports = supports_all};

const sn_backend *sn_backend_wanted(const sn_passes *p) {
    const sn_backend *b = p->o.library;
    return b && !strcmp(p->o.backend, b->name) ? b : NULL;
}

bool sn_backend_supports(const sn_passes *p, const sn_node *n) {
    const char *why;
    return p->o.library && p->o.library->supports(n, &why);
}

sn_node *sn_backend_primitive(sn_passes *p, sn_node *comp) {
    const sn_backend *b = p->o.library;
    const char *why = NULL;
    if (!b || !b->supports(comp, &why)) {
        if (why) sn_remark_add(p, "expand", comp, false, "native code: %s", why);
        return NULL;
    }
    sn_node **in = sn_arena_alloc(comp->m, sizeof *in * (size_t)(comp->n_in + 1));
    int n = 0;
    for (int i = 0; i < comp->n_in; i++) { /* an operand may occur twice */
        bool known = false;
        for (int j = 0; j < n; j++) known |= in[j] == comp->in[i];
        if (!known) in[n++] = comp->in[i];
    }
    sn_region *body = sn_region_extract(comp->m, n, in, 1, &comp);
    return sn_node_new(comp->m, SN_OP_primitive, n, in,
                       SN_ATTRS(SN_REG(body, body), SN_STR(backend, b->name)));
}
