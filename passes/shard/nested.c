/* nested.c: shares that the ranks of another mesh axis divide again, as ZeRO divides what ranks of data
 * parallelism have in common. Each has a part of the rows of the share, and what it has of other
 * tensors of the same step are the same rows, so operations on elements and rows need not know which
 * these are. Rows beyond the end of the share are 0 in gradients. */
#include "passes/shard/shard.h"

#include <string.h>

enum { ROWS = 0 };

static bool is_of_other_ranks(const sharder *s, const sn_node *n) {
    return strcmp(sn_attr_str(n, SN_A_mesh, ""), s->mesh) != 0;
}

bool sh_has_nested(sharder *s, const sn_node *n) {
    bool found = false;
    for (int i = 0; i < n->n_in; i++) found |= sh_local_of(s, n->in[i]).at.nested > 0;
    return found;
}

static bool same_operation(sharder *s, const sn_node *n, sn_node *x, sh_layout l, sh_local *out) {
    *out = (sh_local){sn_node_new(s->m, (sn_op)n->op, 1, &x, n->n_attr, n->attr), l};
    return true;
}

/* The own part of a share, or of the sum of the other ranks' shares. */
static bool part_of(sharder *s, sn_node *n, sh_local *out) {
    sh_local x = sh_local_of(s, n->in[0]);
    int axis = (int)sn_attr_int(n, SN_A_axis, 0);
    if (x.at.kind != SH_SPLIT || !is_of_other_ranks(s, n)) return false;
    sh_layout l = x.at;
    if (l.axis != axis) return same_operation(s, n, x.n, l, out);
    if (axis != ROWS || n->rank != 2 || sh_is_reversed(&l)) return false;
    sn_node *full = n->op == SN_OP_reduce_scatter ? sh_fill(s, &x, 0) : x.n;
    l = sh_without_zeros(s, l);
    l.nested = sn_attr_int(n, SN_A_ranks, 1);
    return same_operation(s, n, full, l, out);
}

/* The parts of a share along another axis; of terms, which stay terms. */
static bool whole_of(sharder *s, sn_node *n, sh_local *out) {
    sh_local x = sh_local_of(s, n->in[0]);
    bool along = x.at.kind == SH_SPLIT && x.at.axis == sn_attr_int(n, SN_A_axis, 0);
    if (along || !sn_is_float(n) || !is_of_other_ranks(s, n)) return false;
    return same_operation(s, n, x.n, x.at, out);
}

sh_rule *sh_part_rule(sn_op op) {
    return op == SN_OP_reduce_scatter || op == SN_OP_own_part ? part_of
           : op == SN_OP_all_gather                           ? whole_of
                                                              : NULL;
}

/* The share whose parts x the ranks have. */
static bool join(sharder *s, const sn_node *n, const sh_local *x, sh_local *out) {
    sn_attr attr[SN_ATTR_COUNT];
    int count = 0;
    if (sn_attr_int(n, SN_A_axis, 0) != ROWS || sn_attr_int(n, SN_A_ranks, 1) != x->at.nested)
        return false;
    for (int i = 0; i < n->n_attr; i++)
        if (n->attr[i].key != SN_A_extent) attr[count++] = n->attr[i];
    attr[count++] = SN_INT(extent, sh_share(s, &x->at));
    out->n = sn_node_new(s->m, SN_OP_all_gather, 1, &x->n, count, attr);
    out->at = x->at;
    out->at.nested = 0;
    return true;
}

static bool sums_rows(const sn_node *n) {
    const sn_attr *axes = sn_attr_get(n, SN_A_axes);
    for (int i = 0; i < axes->n; i++)
        if (axes->v[i] == ROWS) return false;
    return true;
}

bool sh_nested(sharder *s, sn_node *n, sh_local *out) {
    sh_local x = sh_local_of(s, n->in[0]);
    if (sn_is_elementwise(n)) return sh_elementwise(s, n, out);
    if (n->op == SN_OP_all_gather) return join(s, n, &x, out);
    return n->op == SN_OP_reduce_sum && sums_rows(n) && same_operation(s, n, x.n, x.at, out);
}

/* ---- parameters that are parts (ZeRO 3) ---- */

const sn_node *sh_gathered_leaf(const sn_node *n) {
    while (n->op == SN_OP_reshape) n = n->in[0];
    if (n->op != SN_OP_all_gather || sn_attr_int(n, SN_A_axis, 0) != ROWS) return NULL;
    return n->in[0]->op == SN_OP_param || n->in[0]->op == SN_OP_state ? n->in[0] : NULL;
}

bool sh_nest(sharder *s, const sn_node *whole, sh_layout l, sh_layout *out) {
    const sn_node *n = whole;
    while (n->op == SN_OP_reshape) n = n->in[0];
    *out = l;
    out->axis = n->rank - 1;
    if (l.axis == whole->rank - 1) return true; /* columns of every row */
    if (l.axis != ROWS || sh_is_padded(s, &l)) return false;
    out->axis = ROWS;
    out->nested = sn_attr_int(n, SN_A_ranks, 1);
    int64_t rows = 1, size;
    for (int a = 1; a < whole->rank - 1; a++)
        if (sn_dim_is_const(s->m, whole->shape[a], &size)) rows *= size;
    int64_t *part = sn_arena_alloc(s->m, sizeof *part * (size_t)(l.n_part + 1));
    for (int i = 0; i < l.n_part; i++) part[i] = l.part[i].size * rows;
    out->part = sh_parts_layout(s, ROWS, l.n_part, part).part;
    return true;
}
