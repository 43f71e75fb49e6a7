/* origin.c: follows the inputs of a product back to the parameters that scale its channels. */
#include "model/quantise/origin.h"

#include <stdlib.h>
#include <string.h>

int *origin_users(const subject *s) {
    int *users = calloc((size_t)sn_module_node_count(s->module) + 1, sizeof *users);
    sn_node *root = s->measured;
    sn_order order = sn_topo(s->module, 1, &root);
    for (int i = 0; users && i < order.n; i++)
        for (int k = 0; k < order.node[i]->n_in; k++) users[order.node[i]->in[k]->id]++;
    if (users) users[s->measured->id]++;
    return users;
}

/* The index of a parameter that is used once; -1: it is none. */
static int own_param(const subject *s, const sn_node *n, int rank, const int *users) {
    for (int i = 0; i < s->n_param; i++)
        if (s->param[i].node == n && n->rank == rank && users[n->id] == 1) return i;
    return -1;
}

/* Whether the matrices of the product are used by it alone, so that their columns can be scaled. */
static bool owns_matrices(const subject *s, int product, const int *users) {
    const subject_product *p = &s->product[product];
    for (int i = 0; i < p->n_matrix; i++) {
        const subject_matrix *w = &s->matrix[p->matrix[i]];
        if (w->table || users[s->param[w->param].node->id] != 1 || users[w->map->in[1]->id] != 1)
            return false;
    }
    return users[p->input->id] == p->n_matrix;
}

static bool from_norm(const subject *s, const sn_node *n, const int *users, origin *out) {
    if (n->op != SN_OP_layer_norm && n->op != SN_OP_rms_norm) return false;
    for (int i = 1; i < n->n_in; i++)
        if ((out->vector[i - 1] = own_param(s, n->in[i], 1, users)) < 0) return false;
    out->count = out->size = n->shape[n->rank - 1];
    return n->n_in > 1;
}

/* The first column that x takes of the last axis of its operand; -1: it takes something else. */
static int64_t first_column(const sn_node *x) {
    const sn_attr *start = sn_attr_get(x, SN_A_start), *size = sn_attr_get(x, SN_A_size);
    if (x->op != SN_OP_slice || !start || !size || sn_attr_get(x, SN_A_step)) return -1;
    for (int i = 0; i < x->rank - 1; i++)
        if (start->v[i] != 0 || size->v[i] != x->in[0]->shape[i]) return -1;
    return start->v[x->rank - 1];
}

/* The linear map whose columns from *first on are the last axis of x; NULL: there is none. x is used
 * once; a map that is split into parts as often as it has parts. */
static const sn_node *map_below(const sn_node *x, const int *users, int64_t *first) {
    *first = 0;
    if (users[x->id] != 1) return NULL;
    int64_t from = first_column(x);
    bool part = from >= 0;
    const sn_node *map = part ? x->in[0] : x;
    int64_t size = x->shape[x->rank - 1];
    if (map->op != SN_OP_linear || sn_attr_get(map, SN_A_size)) return NULL;
    if (!part) return map;
    *first = from;
    bool splits = *first % size == 0 && users[map->id] * size == map->shape[map->rank - 1];
    return splits ? map : NULL;
}

static bool from_map(const subject *s, const sn_node *x, const int *users, origin *out) {
    const sn_node *map = map_below(x, users, &out->first), *w = map ? map->in[1] : NULL;
    if (!map || users[w->id] != 1) return false;
    out->swapped = w->op == SN_OP_transpose;
    out->matrix = own_param(s, out->swapped ? w->in[0] : w, 2, users);
    if (map->n_in > 2 && (out->vector[0] = own_param(s, map->in[2], 1, users)) < 0) return false;
    out->count = out->size = x->shape[x->rank - 1];
    return out->matrix >= 0;
}

static bool swaps_heads(const sn_node *n) {
    static const int64_t perm[] = {0, 2, 1, 3};
    const sn_attr *a = sn_attr_get(n, SN_A_perm);
    return n->op == SN_OP_transpose && n->rank == 4 && a && !memcmp(a->v, perm, sizeof perm);
}

/* The operand of n if n has that form and is used once. */
static const sn_node *below(const sn_node *n, bool form, const int *users) {
    return n && form && users[n->id] == 1 ? n->in[0] : NULL;
}

/* [B, T, heads size] of attention's [B, heads, T, size], and the same of its values. */
static bool from_attention(const subject *s, const sn_node *x, const int *users, origin *out) {
    const sn_node *y = x->op == SN_OP_reshape && x->rank == 3 ? x->in[0] : NULL;
    const sn_node *a = y ? below(y, swaps_heads(y), users) : NULL;
    if (!a || a->op != SN_OP_attention || users[a->id] != 1 || sn_attr_get(a, SN_A_rate))
        return false;
    const sn_node *v = a->in[2], *split = below(v, swaps_heads(v), users);
    const sn_node *values = below(split, split && split->op == SN_OP_reshape, users);
    int64_t heads = a->shape[1], size = a->shape[3];
    if (!values || values->rank != 3 || v->shape[3] != size || heads % v->shape[1] ||
        x->shape[2] != heads * size || !from_map(s, values, users, out))
        return false;
    out->size = size;
    out->share = heads / v->shape[1];
    return out->count == v->shape[1] * size;
}

static bool from_gate(const subject *s, const sn_node *x, const int *users, origin *out) {
    if (x->op == SN_OP_relu) return from_map(s, x->in[0], users, out);
    if (x->op != SN_OP_mul || x->in[0] == x->in[1]) return false;
    const origin clean = *out;
    for (int i = 0; i < 2; i++) {
        *out = clean;
        if (x->in[i]->rank == x->rank && from_map(s, x->in[i], users, out)) return true;
    }
    return false;
}

bool origin_find(const subject *s, int product, const int *users, origin *out) {
    const sn_node *x = s->product[product].input;
    const origin clean = {.vector = {-1, -1}, .matrix = -1, .share = 1};
    if (!owns_matrices(s, product, users)) return false;
    *out = clean;
    if (from_norm(s, x, users, out)) return true;
    *out = clean;
    if (from_attention(s, x, users, out)) return true;
    *out = clean;
    return from_gate(s, x, users, out);
}
