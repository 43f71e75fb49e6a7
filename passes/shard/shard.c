/* shard.c: divides tensors among the ranks of a mesh axis [Shoeybi et al. 2019; Xu et al. 2021].
 *
 * The user divides some parameters and activations (sn_shard). The pass walks each entry from its
 * leaves: the rule of an operation says from what a rank holds of the operands what it computes of
 * the result: all of it, its share of an axis, or a term of a sum over ranks. Where no rule can go on
 * with what is there, a collective makes the tensor whole: an all_reduce of terms, an all_gather of
 * shares. A sum is put off as long as only sums and constant factors follow. Outputs are whole.
 *
 * States that entries assign, and parameters that are trained, are divided as their next values are;
 * since that changes what reads them, the walk is repeated until no other state is divided.
 *
 * Requires the user's graph after replace, in which composites are whole. Keeps values up to the
 * rounding of sums. Breaks shapes of parameters and states: a divided one has the shape of a rank's
 * share, and attributes that say which slice it is (bind.c). Terminates: each round divides another
 * state. */
#include "passes/shard/shard.h"
#include "passes/graph_util.h"

#include <string.h>

/* ---- leaves ---- */

static bool is_named(const sn_node *n) {
    return n->op == SN_OP_param || n->op == SN_OP_state;
}

static sh_leaf *find_leaf(const sharder *s, const char *name) {
    for (int i = 0; i < s->n_leaf; i++)
        if (!strcmp(s->leaf[i].name, name)) return &s->leaf[i];
    return NULL;
}

/* False: it is divided already. */
static bool add_leaf(sharder *s, const char *name, sh_layout at) {
    if (find_leaf(s, name)) return false;
    at = sh_forward(s, at); /* files hold shares in the order of ranks */
    s->leaf = sn_arena_grow(s->m, s->leaf, sizeof *s->leaf, s->n_leaf, &s->cap_leaf);
    s->leaf[s->n_leaf++] = (sh_leaf){name, at};
    return true;
}

static sh_layout layout_of(sharder *s, const sn_node *shard) {
    int axis = (int)sn_attr_int(shard, SN_A_axis, 0);
    const sn_attr *parts = sn_attr_get(shard, SN_A_parts);
    int64_t size = 0;
    if (parts) return sh_parts_layout(s, axis, parts->n, parts->v);
    sn_dim_is_const(s->m, shard->shape[axis], &size);
    return sn_attr_int(shard, SN_A_zigzag, 0) ? sh_zigzag_layout(s, axis, size)
                                              : sh_split_layout(s, axis, size);
}

static bool is_of_mesh(const sharder *s, const sn_node *n) {
    return n->op == SN_OP_shard && !strcmp(sn_attr_str(n, SN_A_mesh, ""), s->mesh);
}

/* Parameters and states that the user divides. */
static void find_divided(sharder *s, const sn_entry *e) {
    sn_order order = sn_entry_topo(s->m, e);
    for (int i = 0; i < order.n; i++) {
        const sn_node *n = order.node[i];
        if (s->ranks == 1 || !is_of_mesh(s, n)) continue;
        sh_layout at = layout_of(s, n);
        const sn_node *leaf = is_named(n->in[0]) ? n->in[0] : sh_gathered_leaf(n->in[0]);
        at = sh_forward(s, at);
        if (!leaf || (leaf != n->in[0] && !sh_nest(s, n->in[0], at, &at))) continue;
        const char *name = sn_attr_str(leaf, SN_A_name, "");
        if (!add_leaf(s, name, at) && !sh_merge(s, &at, &find_leaf(s, name)->at, NULL))
            sn_module_fail(s->m, SN_ERR_USAGE,
                           "sn_shard: '%s' is divided in two ways among the ranks of \"%s\"", name,
                           s->mesh);
    }
}

/* The share of a leaf, with its place in the whole. */
static sn_node *local_leaf(sharder *s, const sn_node *n, const sh_layout *l) {
    sn_dim shape[SN_MAX_RANK];
    int64_t *parts = sn_arena_alloc(s->m, sizeof *parts * (size_t)l->n_part);
    for (int i = 0; i < l->n_part; i++) parts[i] = l->part[i].size;
    sh_shape(s, n, l, shape);
    const sn_attr attr[] = {SN_STR(name, sn_attr_str(n, SN_A_name, "")),
                            SN_INT(dtype, n->dtype),
                            SN_LIST(shape, n->rank, shape),
                            SN_INT(axis, l->axis),
                            SN_STR(mesh, s->mesh),
                            SN_INT(ranks, s->ranks),
                            SN_LIST(parts, l->n_part, parts),
                            SN_INT(nested, l->nested)};
    const int count = sizeof attr / sizeof *attr;
    return sn_node_new(s->m, (sn_op)n->op, 0, NULL, l->nested ? count : count - 1, attr);
}

/* ---- nodes ---- */

static sh_local whole_local(sn_node *n) {
    return (sh_local){n, sh_whole_layout()};
}

static bool is_whole(sharder *s, const sn_node *n) {
    for (int i = 0; i < n->n_in; i++)
        if (sh_local_of(s, n->in[i]).at.kind != SH_WHOLE) return false;
    return true;
}

/* n of whole operands. */
static sn_node *with_whole(sharder *s, sn_node *n) {
    sn_node **in = sn_arena_alloc(s->m, sizeof *in * (size_t)(n->n_in + 1));
    bool same = true;
    for (int i = 0; i < n->n_in; i++) same &= (in[i] = sh_whole(s, n->in[i])) == n->in[i];
    return same ? n : sn_node_with(n, in);
}

static sh_local compute(sharder *s, sn_node *n) {
    sh_local out = {0};
    const sh_leaf *leaf = is_named(n) ? find_leaf(s, sn_attr_str(n, SN_A_name, "")) : NULL;
    if (leaf) return (sh_local){local_leaf(s, n, &leaf->at), leaf->at};
    if (is_of_mesh(s, n)) {
        if (s->ranks == 1) return sh_local_of(s, n->in[0]);
        out.at = layout_of(s, n);
        out.n = sh_split(s, n->in[0], &out.at);
        return out;
    }
    if (is_whole(s, n)) return whole_local(with_whole(s, n));
    if (sh_has_nested(s, n)) {
        if (sh_nested(s, n, &out)) return out;
        return whole_local(sn_module_fail(s->m, SN_ERR_INTERNAL,
                                          "%s of a tensor that \"%s\" and other ranks divide",
                                          sn_ops[n->op].name, s->mesh));
    }
    sh_rule *rule = sh_rule_of((sn_op)n->op);
    if (!rule) rule = sh_product_rule((sn_op)n->op);
    if (!rule) rule = sh_part_rule((sn_op)n->op);
    if (rule && rule(s, n, &out)) return out;
    if (n->decomposition) return sh_local_of(s, n->decomposition);
    return whole_local(with_whole(s, n));
}

/* ---- entries ---- */

/* The next value of a state as the state is divided; one that is not yet is divided as the value. */
static bool divide_state(sharder *s, const sn_binding *b) {
    sh_local x = sh_local_of(s, b->node);
    return x.at.kind == SH_SPLIT && add_leaf(s, b->name, sh_without_zeros(s, x.at));
}

static void start_walk(sharder *s) {
    s->n_of = sn_module_node_count(s->m);
    s->of = sn_arena_alloc(s->m, sizeof *s->of * (size_t)(s->n_of + 1));
    s->guessed = NULL;
}

static void walk(sharder *s, const sn_entry *e) {
    sn_order order = sn_entry_topo(s->m, e);
    for (int i = 0; i < order.n; i++) sh_local_of(s, order.node[i]);
}

static bool divide_states(sharder *s) {
    bool more = false;
    start_walk(s);
    for (int i = 0; i < sn_entry_count(s->m) && !sn_module_error(s->m)->code; i++) {
        const sn_entry *e = sn_entry_at(s->m, i);
        walk(s, e);
        for (int k = 0; k < e->n_assign; k++) more |= divide_state(s, &e->assign[k]);
    }
    return more && !sn_module_error(s->m)->code;
}

static int store(sharder *s) {
    int changed = 0;
    for (int i = 0; i < sn_entry_count(s->m); i++) {
        sn_entry *e = sn_entry_at(s->m, i);
        sn_binding *list[] = {e->output, e->tap};
        const int size[] = {e->n_output, e->n_tap};
        for (int l = 0; l < 2; l++)
            for (int k = 0; k < size[l]; k++) {
                sn_node *y = sh_whole(s, list[l][k].node);
                changed += y != list[l][k].node;
                list[l][k].node = y;
            }
        for (int k = 0; k < e->n_assign; k++) {
            const sh_leaf *leaf = find_leaf(s, e->assign[k].name);
            sn_node *y =
                leaf ? sh_split(s, e->assign[k].node, &leaf->at) : sh_whole(s, e->assign[k].node);
            changed += y != e->assign[k].node;
            e->assign[k].node = y;
        }
    }
    return changed;
}

/* The mesh axis of a shard node of the entries; NULL: there is none. */
static const sn_node *find_shard(sn_module *m) {
    for (int i = 0; i < sn_entry_count(m); i++) {
        sn_order order = sn_entry_topo(m, sn_entry_at(m, i));
        for (int k = 0; k < order.n; k++)
            if (order.node[k]->op == SN_OP_shard) return order.node[k];
    }
    return NULL;
}

/* Attention whose rows are divided, and its gradient, as attention to one piece of keys after the other. */
static sn_node *spell_pieces(void *ctx, sn_node *n) {
    (void)ctx;
    bool divided = n->op == SN_OP_ring_attention ||
                   (n->op == SN_OP_attention_grad && sn_attr_get(n, SN_A_ranks));
    return divided ? n->decomposition : n;
}

int sn_pass_shard(sn_passes *p) {
    sn_module *m = p->m;
    int changed = 0;
    for (const sn_node *n; !sn_module_error(m)->code && (n = find_shard(m));) {
        const char *mesh = sn_attr_str(n, SN_A_mesh, "");
        sharder s = {.p = p,
                     .m = m,
                     .mesh = mesh,
                     .ranks = sn_attr_int(n, SN_A_ranks, 1),
                     .compute = compute};
        if (s.ranks > 1) s.rank = sn_module_rank(m, mesh, s.ranks, 1);
        for (int i = 0; i < sn_entry_count(m); i++) find_divided(&s, sn_entry_at(m, i));
        while (divide_states(&s)) {
        }
        if (s.guessed)
            sn_module_fail(m, SN_ERR_INTERNAL,
                           "%s is whole, but other ranks divide what is computed of it", s.guessed);
        if (sn_module_error(m)->code) break;
        changed += store(&s);
    }
    return changed + sn_rewrite_module(m, spell_pieces, NULL);
}
