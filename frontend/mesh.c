/* mesh.c: the mesh of ranks, and tensors that are divided among the ranks of one of its axes. */
#include "frontend/front.h"

#include <string.h>

static bool check_axis(sn_module *m, const sn_mesh_axis *a) {
    const sn_mesh_axis *list;
    int n = sn_module_mesh(m, &list);
    sn_mesh_axis old = sn_module_mesh_axis(m, a->name);
    bool known = false;
    for (int i = 0; i < n; i++) known |= !strcmp(list[i].name, a->name);
    if (a->size < 1 || a->rank < 0 || a->rank >= a->size)
        sn_module_fail(m, SN_ERR_USAGE, "sn_mesh: rank %lld of %lld ranks on the axis '%s'",
                       (long long)a->rank, (long long)a->size, a->name);
    else if (known && old.size != a->size)
        sn_module_fail(m, SN_ERR_USAGE, "sn_mesh: the axis '%s' has %lld ranks already, not %lld",
                       a->name, (long long)old.size, (long long)a->size);
    else if (!known && n == SN_MAX_MESH_AXES)
        sn_module_fail(m, SN_ERR_USAGE, "sn_mesh: more than %d axes", SN_MAX_MESH_AXES);
    return !sn_module_error(m)->code;
}

void sn_mesh_at(sn_loc at, sn_module *m, const sn_mesh_axis *axis) {
    if (!front_enter_module(at, m)) return;
    for (; axis && axis->name; axis++)
        if (front_name(m, "sn_mesh", axis->name) && check_axis(m, axis))
            sn_module_set_mesh(m, *axis);
}

void sn_mesh_place_at(sn_loc at, sn_module *m, int64_t rank) {
    const sn_mesh_axis *list;
    int64_t size = 1, left = rank;
    if (!front_enter_module(at, m)) return;
    int n = sn_module_mesh(m, &list);
    for (int i = 0; i < n; i++) size *= list[i].size;
    if (rank < 0 || rank >= size) {
        sn_module_fail(m, SN_ERR_USAGE, "sn_mesh_place: the mesh has ranks 0 to %lld, not %lld",
                       (long long)size - 1, (long long)rank);
        return;
    }
    for (int i = n; i-- > 0; left /= list[i].size) {
        sn_mesh_axis a = list[i];
        a.rank = left % a.size;
        sn_module_set_mesh(m, a);
    }
}

int64_t sn_mesh_size(sn_module *m, const char *mesh) {
    return m && mesh ? sn_module_mesh_axis(m, mesh).size : 1;
}

static sn_tensor shard(sn_loc at, sn_tensor x, int axis, const char *mesh, const sn_dim *parts,
                       bool zigzag) {
    FRONT_ENTER("shard", x);
    sn_attr attr[5];
    int a = front_axis(x->m, "shard", x, axis, x->rank), n_parts = 0, n = 0;
    if (a < 0) return bad_;
    if (!mesh) return sn_module_fail(x->m, SN_ERR_USAGE, "sn_shard: the mesh axis is NULL");
    int64_t ranks = sn_mesh_size(x->m, mesh);
    while (parts && parts[n_parts] != SN_END) n_parts++;
    if (ranks == 1) return x;
    attr[n++] = SN_INT(axis, a);
    attr[n++] = SN_STR(mesh, sn_arena_str(x->m, mesh));
    attr[n++] = SN_INT(ranks, ranks);
    if (n_parts > 1) attr[n++] = SN_LIST(parts, n_parts, parts);
    if (zigzag) attr[n++] = SN_INT(zigzag, 1);
    return sn_node_new(x->m, SN_OP_shard, 1, &x, n, attr);
}

sn_tensor sn_shard_at(sn_loc at, sn_tensor x, int axis, const char *mesh, const sn_dim *parts) {
    return shard(at, x, axis, mesh, parts, false);
}

sn_tensor sn_shard_zigzag_at(sn_loc at, sn_tensor x, int axis, const char *mesh) {
    return shard(at, x, axis, mesh, NULL, true);
}

bool front_divides(sn_module *m, const char *what, int64_t n) {
    int64_t ranks = sn_mesh_size(m, FRONT_TENSOR);
    if (n % ranks == 0) return true;
    sn_module_fail(m, SN_ERR_SHAPE,
                   "%lld %s cannot be divided among %lld ranks of the mesh axis \"" FRONT_TENSOR
                   "\": use a number of ranks that divides it",
                   (long long)n, what, (long long)ranks);
    return false;
}
