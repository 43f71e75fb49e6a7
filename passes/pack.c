/* pack.c: matrices that are quantised and then packed become one kernel, which reads them once.
 *
 * Requires fused nodes, after share. A `map_reduce` of one fixed matrix whose integers only one
 * pack_b reads, and whose other results are numbers of groups of a row (scales), becomes the
 * prologue of that pack_b. The pack_b of the scales becomes its second result; scales that others
 * read follow as they are. Keeps values: reductions are maxima and minima, whose order does not
 * matter. Terminates: one walk. Matrices that were merged (merge.c) are read where they are: the
 * pack_b has several operands then, the rows of one after those of the other. */
#include "passes/graph_util.h"
#include "passes/holds.h"
#include "passes/passes.h"

#include <string.h>

enum {
    UNIT = 16, /* groups are multiples of this: whole vectors of every target */
    PARTS = 8  /* most operands of a pack_b */
};

typedef struct packer {
    sn_passes *p;
    sn_module *m;
    sn_node **pack;  /* by id: the pack_b that reads the value, through reshapes; NULL: none */
    uint8_t *others; /* by id: others read it, too */
    sn_node **made;  /* by id: the replacement */
    uint32_t n_id;
} packer;

/* Records that `user` reads x; NULL: an entry does. */
static void note_reader(packer *k, sn_node *user, sn_node *x) {
    if (user && user->op == SN_OP_reshape) return;
    x = sn_below_reshapes(x);
    bool packs = user && user->op == SN_OP_pack_b && !sn_attr_get(user, SN_A_prologue) &&
                 (!k->pack[x->id] || k->pack[x->id] == user);
    if (packs)
        k->pack[x->id] = user;
    else
        k->others[x->id] = 1;
}

/* One number for each group: of the shape of x but for the last axis. */
static bool is_of_groups(const sn_node *n, const sn_node *x) {
    return n->rank == x->rank && n->shape[n->rank - 1] == 1 &&
           !memcmp(n->shape, x->shape, sizeof *n->shape * (size_t)(n->rank - 1));
}

/* Whether the kernel that packs can compute the region: elementwise on its argument and on maxima
 * and minima over the last axis, which do not depend on each other. */
static bool works_on_groups(sn_module *m, const sn_region *r) {
    const sn_node *x = r->arg[0];
    sn_group k = {.kernel = SN_KERNEL_pack, .rank = x->rank};
    if (r->n_arg != 1 || x->rank < 2 || x->rank > 3) return false;
    memcpy(k.domain, x->shape, sizeof *x->shape * (size_t)x->rank);
    sn_order order = sn_region_topo(m, r);
    uint8_t *reduced = sn_arena_alloc(m, sn_module_node_count(m));
    for (int i = 0; i < order.n; i++) {
        const sn_node *n = order.node[i];
        bool of_groups = false, reduces = sn_reduces(n);
        for (int j = 0; j < n->n_in; j++) of_groups |= reduced[n->in[j]->id];
        if (sn_kernel_refuses(&k, SN_IN_PROLOGUE, n) || (reduces && of_groups)) return false;
        reduced[n->id] = reduces || of_groups;
        k.reductions += reduces;
    }
    return k.reductions > 0;
}

/* Whether the pack_b puts the matrix [N, K] that result q is into panels of integers. */
static bool packs_integers(const sn_node *pack, const sn_node *q) {
    const sn_attr *k = pack ? sn_attr_get(pack, SN_A_contract_b) : NULL;
    bool words = pack && sn_attr_get(pack, SN_A_group);
    if (!k || k->n != 1 || k->v[0] != 1 || pack->in[0]->rank != 2 ||
        pack->in[0]->shape[0] != q->shape[0] || q->dtype == SN_F64)
        return false;
    return words ? q->dtype == SN_I8 : pack->dtype == SN_I8 || sn_attr_get(pack, SN_A_quads);
}

/* Whether the pack_b puts scales [N, groups, 1] into panels beside those of the integers. */
static bool packs_factors(const sn_node *pack, const sn_node *integers, const sn_node *f) {
    const sn_attr *k = sn_attr_get(pack, SN_A_contract_b);
    return k && k->n == 1 && k->v[0] == 1 && pack->in[0]->rank == 2 &&
           pack->in[0]->shape[0] == f->shape[0] && sn_dtype_is_float((sn_dtype)pack->dtype) &&
           pack->dtype != SN_F64 && !sn_attr_get(pack, SN_A_group) &&
           !sn_attr_get(pack, SN_A_quads) &&
           sn_attr_int(pack, SN_A_pair, 0) == sn_attr_int(integers, SN_A_pair, 0);
}

/* What the new pack_b computes, and which nodes its results replace. */
typedef struct results {
    sn_node *out[SN_MAX_RESULTS], *replaced[SN_MAX_RESULTS];
    int n;
} results;

static void add_result(results *l, sn_node *out, sn_node *replaced) {
    l->out[l->n] = out;
    l->replaced[l->n++] = replaced;
}

/* The results of kernel `from`; false: it is not a kernel for packing. *panels: how many of them are
 * scales in panels. */
static bool find_results(const packer *k, sn_node *from, results *l, int *panels) {
    const sn_region *r = sn_attr_region(from, SN_A_body);
    sn_node *value[SN_MAX_RESULTS], *integers = NULL;
    for (int i = 0; i < r->n_out; i++) {
        sn_node *v = value[i] = sn_b_result(from, i);
        if (v->id >= k->n_id || !sn_shapes_equal(r->out[i], r->arg[0])) continue;
        if (integers || k->others[v->id] || !packs_integers(k->pack[v->id], v)) return false;
        integers = k->pack[v->id];
        add_result(l, r->out[i], integers);
    }
    for (int plain = 0; plain < 2 && integers; plain++)
        for (int i = 0; i < r->n_out; i++) {
            sn_node *v = value[i], *pack = v->id < k->n_id ? k->pack[v->id] : NULL;
            if (v->id >= k->n_id || sn_shapes_equal(r->out[i], r->arg[0])) continue;
            if (!is_of_groups(r->out[i], r->arg[0]) || !sn_dtype_is_float((sn_dtype)v->dtype) ||
                l->n == SN_MAX_RESULTS || (pack && !packs_factors(pack, integers, v)))
                return false;
            if (!plain && pack) {
                sn_node *f = r->out[i];
                add_result(l, f->dtype == pack->dtype ? f : sn_b_cast(f, (sn_dtype)pack->dtype),
                           pack);
                ++*panels;
            } else if (plain && k->others[v->id])
                add_result(l, r->out[i], v);
        }
    return integers;
}

/* The matrices whose rows x [N, ..] holds one after another, read where they are: several
 * parameters whose rows are whole vectors, or x itself. Returns their number. */
static int find_parts(const packer *k, sn_node *x, int64_t pair, sn_node **part) {
    sn_node *all = sn_below_reshapes(x);
    const sn_attr *axis = all->op == SN_OP_concat ? sn_attr_get(all, SN_A_axis) : NULL;
    sn_dim shape[SN_MAX_RANK];
    int64_t rows;
    part[0] = x;
    if (!axis || axis->i != 0 || all->n_in > PARTS || pair % UNIT) return 1;
    for (int i = 0; i < all->n_in; i++) {
        const sn_node *p = all->in[i];
        if (p->op != SN_OP_param || p->rank != 2 || !sn_dim_is_const(k->m, p->shape[0], &rows) ||
            rows % UNIT)
            return 1;
    }
    memcpy(shape, x->shape, sizeof *shape * (size_t)x->rank);
    for (int i = 0; i < all->n_in; i++) {
        shape[0] = all->in[i]->shape[0];
        part[i] = sn_b_reshape(all->in[i], x->rank, shape);
    }
    return all->n_in;
}

static void join_kernels(packer *k, sn_node *from) {
    const sn_region *r = sn_attr_region(from, SN_A_body);
    results l = {.n = 0};
    int panels = 0, n = 4;
    int64_t size, contract[] = {1, 2};
    sn_node *x = from->in[0];
    if (!sn_from_params_only(from) || r->n_arg != 1 || x->rank < 2 || x->dtype == SN_F64 ||
        !sn_dtype_is_float((sn_dtype)x->dtype) || !sn_static_shape(x) ||
        !sn_dim_is_const(k->m, x->shape[x->rank - 1], &size) || size % UNIT ||
        !works_on_groups(k->m, r) || !find_results(k, from, &l, &panels))
        return;
    const sn_node *pack = l.replaced[0];
    sn_attr attr[8] = {SN_INT(dtype, pack->dtype), SN_LIST(contract_b, x->rank - 1, contract),
                       SN_REG(prologue, sn_region_new(k->m, 1, r->arg, l.n, l.out)),
                       SN_INT(panels, panels)};
    static const sn_attr_key kept[] = {SN_A_group, SN_A_quads, SN_A_pair};
    for (int i = 0; i < 3; i++) {
        const sn_attr *a = sn_attr_get(pack, kept[i]);
        if (a) attr[n++] = *a;
    }
    sn_module_set_loc(k->m, pack->loc);
    sn_node *part[PARTS];
    int n_part = find_parts(k, x, sn_attr_int(pack, SN_A_pair, 0), part);
    sn_node *both = sn_node_new(k->m, SN_OP_pack_b, n_part, part, n, attr);
    for (int i = 0; i < l.n; i++) k->made[l.replaced[i]->id] = sn_b_result(both, i);
}

int sn_pass_pack(sn_passes *p) {
    sn_module *m = p->m;
    if (!p->o.constant_params ||
        !sn_kernel_holds(&sn_kernels[SN_KERNEL_pack], SN_HOLDS_ROWS, p->o.level))
        return 0;
    packer k = {.p = p, .m = m, .n_id = sn_module_node_count(m)};
    k.pack = sn_arena_alloc(m, sizeof *k.pack * k.n_id);
    k.others = sn_arena_alloc(m, k.n_id);
    k.made = sn_arena_alloc(m, sizeof *k.made * k.n_id);
    int live, n_root = sn_module_roots(m, NULL, &live, false), count = 0;
    sn_node **root = sn_arena_alloc(m, sizeof *root * (size_t)(n_root + 1));
    sn_module_roots(m, root, &live, false);
    sn_order order = sn_topo(m, n_root, root);
    for (int i = 0; i < n_root; i++) note_reader(&k, NULL, root[i]);
    for (int i = 0; i < order.n; i++)
        for (int j = 0; j < order.node[i]->n_in; j++)
            note_reader(&k, order.node[i], order.node[i]->in[j]);
    sn_loc loc = sn_module_loc(m);
    for (int i = 0; i < order.n; i++)
        if (order.node[i]->op == SN_OP_map_reduce) join_kernels(&k, order.node[i]);
    sn_module_set_loc(m, loc);
    for (int i = 0; i < order.n; i++) {
        sn_node *n = order.node[i];
        count += k.made[n->id] != NULL;
        if (!k.made[n->id]) k.made[n->id] = sn_node_from(n, k.made);
    }
    if (!count) return 0;
    for (int i = 0; i < sn_entry_count(m); i++) sn_entry_become(sn_entry_at(m, i), false, k.made);
    sn_lineage_add_map(m, k.made, k.n_id);
    return count;
}
