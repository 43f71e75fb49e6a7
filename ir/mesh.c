/* mesh.c: the mesh of ranks that a module's program is for. */
#include "ir/module_impl.h"

#include <string.h>

void sn_module_set_mesh(sn_module *m, sn_mesh_axis axis) {
    int i = 0;
    while (i < m->n_mesh && strcmp(m->mesh[i].name, axis.name) != 0) i++;
    if (i == SN_MAX_MESH_AXES) return;
    axis.name = sn_arena_str(m, axis.name);
    m->mesh[i] = axis;
    if (i == m->n_mesh) m->n_mesh++;
}

int sn_module_mesh(const sn_module *m, const sn_mesh_axis **list) {
    *list = m->mesh;
    return m->n_mesh;
}

sn_mesh_axis sn_module_mesh_axis(const sn_module *m, const char *name) {
    for (int i = 0; i < m->n_mesh; i++)
        if (!strcmp(m->mesh[i].name, name)) return m->mesh[i];
    return (sn_mesh_axis){name, 1, 0};
}

sn_dim sn_module_rank(sn_module *m, const char *mesh, int64_t ranks, int64_t by) {
    const char *name = by == 1 ? sn_arena_printf(m, "rank_%s", mesh)
                               : sn_arena_printf(m, "rank_%s_by_%lld", mesh, (long long)by);
    sn_dim d = sn_symbol_add(m, name, 0, (ranks - 1) / by);
    int symbol = sn_symbol_find(m, name);
    for (int i = 0; i < m->n_rank_dim; i++)
        if (m->rank_dim[i].symbol == symbol) return d;
    m->rank_dim =
        sn_arena_grow(m, m->rank_dim, sizeof *m->rank_dim, m->n_rank_dim, &m->cap_rank_dim);
    m->rank_dim[m->n_rank_dim++] = (struct sn_rank_dim){symbol, sn_arena_str(m, mesh), by};
    return d;
}

void sn_module_place(const sn_module *m, int64_t *symbol, bool *known) {
    for (int i = 0; i < m->n_rank_dim; i++) {
        const struct sn_rank_dim *r = &m->rank_dim[i];
        symbol[r->symbol] = sn_module_mesh_axis(m, r->mesh).rank / r->by;
        if (known) known[r->symbol] = true;
    }
}
