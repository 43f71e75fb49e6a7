/* check_index.c: sn_options.check_index: each entry with lookups gets a companion that computes the
 * least and the greatest index of every one, from the same inputs. A run executes it first and
 * stops at an index outside its table, before anything is written. Lookups inside attention's
 * regions are those of its decomposition: for every pair of a query and a key. */
#include "codegen/program/program.h"

#include <string.h>

typedef struct collector {
    sn_module *m;
    sn_index_lookup *lookup;
    int n, cap;
} collector;

static bool is_known(const collector *c, const sn_node *index, sn_dim size) {
    for (int i = 0; i < c->n; i++)
        if (c->lookup[i].index == index && c->lookup[i].size == size) return true;
    return false;
}

static void add_lookup(collector *c, const sn_node *user, sn_loc loc, sn_node *index, sn_dim size) {
    if (is_known(c, index, size)) return; /* a gradient's, say */
    c->lookup = sn_arena_grow(c->m, c->lookup, sizeof *c->lookup, c->n, &c->cap);
    c->lookup[c->n++] =
        (sn_index_lookup){.index = index, .size = size, .op = sn_ops[user->op].name, .loc = loc};
}

static void collect(collector *c, const sn_node *n, sn_loc loc) {
    const sn_dim *table = n->in[0]->shape;
    int axis = (int)sn_attr_int(n, SN_A_axis, 0);
    if (n->op == SN_OP_gather) add_lookup(c, n, loc, n->in[1], table[axis]);
    if (n->op == SN_OP_embedding) add_lookup(c, n, loc, n->in[1], table[0]);
    if (n->op == SN_OP_cross_entropy) add_lookup(c, n, loc, n->in[1], table[n->in[0]->rank - 1]);
    if (n->op == SN_OP_scatter_add) add_lookup(c, n, loc, n->in[1], n->shape[axis]);
    if (n->op == SN_OP_take_blocks) add_lookup(c, n, loc, n->in[1], sn_attr_int(n, SN_A_blocks, 1));
    if (n->op == SN_OP_grouped_dot) add_lookup(c, n, loc, n->in[2], n->in[1]->shape[0]);
    if (n->op == SN_OP_ragged_dot) add_lookup(c, n, loc, n->in[2], n->shape[0]);
    if (n->op == SN_OP_update_rows)
        add_lookup(c, n, loc, n->in[2],
                   sn_dim_add(c->m, sn_dim_sub(c->m, table[axis], n->in[1]->shape[axis]), 1));
    for (int i = 1; i < n->n_in && n->op == SN_OP_gather_nd; i++)
        add_lookup(c, n, loc, n->in[i], table[i - 1]);
    for (int i = 1; i < n->n_in && n->op == SN_OP_scatter_nd_add; i++)
        add_lookup(c, n, loc, n->in[i], n->shape[i - 1]);
}

static void collect_all(collector *c, sn_order order, sn_loc loc) {
    for (int i = 0; i < order.n; i++) {
        sn_node *n = order.node[i];
        if (n->n_in) collect(c, n, n->loc.file ? n->loc : loc);
        if (n->op != SN_OP_attention || !n->decomposition) continue;
        collect_all(c, sn_topo(c->m, 1, &n->decomposition), n->loc);
    }
}

/* The least (reduce_min) or greatest index as an i64 scalar; where there are no indices the least
 * is above the greatest. */
static sn_node *extreme(sn_op op, sn_node *index) {
    static const int64_t axes[SN_MAX_RANK] = {0, 1, 2, 3, 4, 5, 6, 7};
    sn_node *x = index->rank ? sn_b_reduce(op, index, index->rank, axes) : index;
    return sn_b_cast(sn_b_reshape(x, 0, NULL), SN_I64);
}

int sn_check_index_add(sn_module *m, sn_entry *e, sn_index_lookup **lookup) {
    collector c = {.m = m};
    collect_all(&c, sn_entry_topo(m, e), (sn_loc){0});
    *lookup = c.lookup;
    if (!c.n) return 0;
    sn_entry *companion = sn_entry_add(m, sn_arena_printf(m, "@check_index.%s", e->name));
    for (int i = 0; i < c.n; i++) {
        sn_index_lookup *l = &c.lookup[i];
        l->least = sn_arena_printf(m, "least.%d", i);
        l->greatest = sn_arena_printf(m, "greatest.%d", i);
        sn_entry_output(m, companion, l->least, extreme(SN_OP_reduce_min, l->index));
        sn_entry_output(m, companion, l->greatest, extreme(SN_OP_reduce_max, l->index));
    }
    return c.n;
}

bool sn_check_index_report(const sn_module *m, const char *entry, const sn_index_lookup *l,
                           const int64_t *symbol, const int64_t extremes[2], sn_error *err) {
    int64_t size = sn_dim_eval(m, l->size, symbol), least = extremes[0], greatest = extremes[1];
    if (least > greatest || (least >= 0 && greatest < size)) return true;
    return sn_fail(err, SN_ERR_RANGE,
                   "check-index: entry %s: %s at %s:%d: index %lld is outside 0..%lld, the table "
                   "has %lld",
                   entry, l->op, l->loc.file ? l->loc.file : "?", l->loc.line,
                   (long long)(least < 0 ? least : greatest), (long long)size - 1, (long long)size);
}
