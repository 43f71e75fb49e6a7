/* lookups.c: what reads or writes a table at an index, and how large the integers of an input may be so
 * that no such index leaves its table. */
#include "ir/lookups.h"

#include "ir/module_impl.h"

#include <math.h>
#include <string.h>

typedef struct collector {
    sn_module *m;
    sn_lookup *list;
    int n, cap;
    bool *seen; /* by id: a layer's decomposition reaches all layers before it */
} collector;

static void add(collector *c, const sn_node *user, sn_loc loc, sn_node *index, sn_dim size) {
    for (int i = 0; i < c->n; i++)
        if (c->list[i].index == index && c->list[i].size == size) return; /* a gradient's, say */
    c->list = sn_arena_grow(c->m, c->list, sizeof *c->list, c->n, &c->cap);
    c->list[c->n++] =
        (sn_lookup){.index = index, .size = size, .op = sn_ops[user->op].name, .loc = loc};
}

static void collect(collector *c, const sn_node *n, sn_loc loc) {
    const sn_dim *table = n->in[0]->shape;
    int axis = (int)sn_attr_int(n, SN_A_axis, 0);
    if (n->op == SN_OP_gather) add(c, n, loc, n->in[1], table[axis]);
    if (n->op == SN_OP_embedding) add(c, n, loc, n->in[1], table[0]);
    if (n->op == SN_OP_cross_entropy) add(c, n, loc, n->in[1], table[n->in[0]->rank - 1]);
    if (n->op == SN_OP_scatter_add) add(c, n, loc, n->in[1], n->shape[axis]);
    if (n->op == SN_OP_take_blocks) add(c, n, loc, n->in[1], sn_attr_int(n, SN_A_blocks, 1));
    if (n->op == SN_OP_grouped_dot) add(c, n, loc, n->in[2], n->in[1]->shape[0]);
    if (n->op == SN_OP_ragged_dot) add(c, n, loc, n->in[2], n->shape[0]);
    if (n->op == SN_OP_update_rows)
        add(c, n, loc, n->in[2],
            sn_dim_add(c->m, sn_dim_sub(c->m, table[axis], n->in[1]->shape[axis]), 1));
    for (int i = 1; i < n->n_in && n->op == SN_OP_gather_nd; i++)
        add(c, n, loc, n->in[i], table[i - 1]);
    for (int i = 1; i < n->n_in && n->op == SN_OP_scatter_nd_add; i++)
        add(c, n, loc, n->in[i], n->shape[i - 1]);
}

static void collect_all(collector *c, sn_order order, sn_loc loc) {
    for (int i = 0; i < order.n; i++) {
        sn_node *n = order.node[i];
        if (c->seen[n->id]) continue;
        c->seen[n->id] = true;
        if (n->n_in) collect(c, n, n->loc.file ? n->loc : loc);
        bool regions = sn_attr_get(n, SN_A_score) || sn_attr_get(n, SN_A_mask);
        if (!regions || !n->decomposition) continue;
        collect_all(c, sn_topo(c->m, 1, &n->decomposition), n->loc);
    }
}

int sn_lookups_find(sn_module *m, const sn_entry *e, sn_lookup **list) {
    collector c = {.m = m, .seen = sn_arena_alloc(m, m->n_node)};
    collect_all(&c, sn_entry_topo(m, e), (sn_loc){0});
    *list = c.list;
    return c.n;
}

/* ---- ranges of integers ---------------------------------------------------------------------- */

/* What the elements of a tensor are within. known: they depend on inputs and constants in ways that
 * this file follows. of_input: on the input in question. */
typedef struct range {
    double lo, hi;
    bool known, of_input;
} range;

/* Monotonic in each operand, so that a range's ends are among those of the operands' ends. */
static const sn_op monotonic[] = {SN_OP_neg,   SN_OP_cast, SN_OP_stop_gradient,
                                  SN_OP_floor, SN_OP_add,  SN_OP_sub,
                                  SN_OP_mul,   SN_OP_max,  SN_OP_min};
/* The elements of any operand. */
static const sn_op unions[] = {SN_OP_concat, SN_OP_reduce_max, SN_OP_reduce_min, SN_OP_shard};

static bool is_one_of(sn_op op, const sn_op *list, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (list[i] == op) return true;
    return false;
}
#define IS_ONE_OF(op, list) is_one_of((sn_op)(op), list, sizeof(list) / sizeof *(list))

static range join(range a, range b) {
    return (range){fmin(a.lo, b.lo), fmax(a.hi, b.hi), a.known && b.known,
                   a.of_input || b.of_input};
}

static range range_of_ends(const sn_node *n, const range *x) {
    range r = {INFINITY, -INFINITY, true, false};
    for (int corner = 0; corner < 1 << n->n_in; corner++) {
        double at[3] = {0};
        for (int i = 0; i < n->n_in; i++) at[i] = corner >> i & 1 ? x[i].hi : x[i].lo;
        double v =
            sn_elem_ref((sn_op)n->op, !sn_dtype_is_float((sn_dtype)n->dtype), at[0], at[1], at[2]);
        r.lo = fmin(r.lo, v), r.hi = fmax(r.hi, v);
    }
    return r;
}

/* x / y and x mod y for a constant y > 0. */
static range range_of_quotient(const sn_node *n, range x, range y) {
    range r = {0, y.lo - 1, y.lo == y.hi && y.lo > 0, false};
    if (n->op == SN_OP_div) r.lo = floor(x.lo / y.lo), r.hi = floor(x.hi / y.lo);
    if (n->op == SN_OP_mod && x.lo >= 0 && x.hi < y.lo) r.lo = x.lo, r.hi = x.hi;
    return r;
}

static range range_of(const sn_node *n, const range *x, const int64_t *symbol) {
    range r = {0};
    double last;
    if (n->op == SN_OP_const) {
        r.lo = r.hi = sn_attr_flt(n, SN_A_value, 0);
        r.known = true;
    } else if (n->op == SN_OP_dim_value) {
        r.lo = r.hi = (double)sn_dim_eval(n->m, sn_attr_int(n, SN_A_dim, 0), symbol);
        r.known = true;
    } else if (n->op == SN_OP_iota) {
        last = (double)sn_dim_eval(n->m, n->shape[sn_attr_int(n, SN_A_axis, 0)], symbol) - 1;
        r = (range){0, fmax(last, 0), true, false};
    } else if (n->n_in && IS_ONE_OF(n->op, monotonic)) {
        r = range_of_ends(n, x);
    } else if (n->op == SN_OP_div || n->op == SN_OP_mod) {
        r = range_of_quotient(n, x[0], x[1]);
    } else if (n->op == SN_OP_select) {
        r = join(x[1], x[2]);
    } else if (n->n_in == 1 && (sn_ops[n->op].flags & SN_OPF_VIEW)) {
        r = x[0];
    } else if (n->op == SN_OP_gather) {
        r = x[0];
    } else if (n->n_in && IS_ONE_OF(n->op, unions)) {
        r = x[0];
        for (int i = 1; i < n->n_in; i++) r = join(r, x[i]);
    }
    for (int i = 0; i < n->n_in; i++) {
        bool matters = n->op != SN_OP_select || i > 0;
        r.known &= x[i].known || !matters;
        r.of_input |= x[i].of_input;
    }
    return r;
}

typedef struct limits {
    sn_order order; /* of all indices */
    const sn_lookup *lookup;
    int n;
    const int64_t *symbol;
    uint32_t *place; /* of a node, by id */
    range *of, *in;  /* of a node, by place; room for the operands of one */
} limits;

/* Whether no index leaves its table if the input has values below `limit`. *used: whether one depends
 * on it in a way that this file follows. */
static bool fits(limits *l, const sn_node *input, double limit, bool *used) {
    for (int i = 0; i < l->order.n; i++) {
        const sn_node *n = l->order.node[i];
        for (int k = 0; k < n->n_in; k++) l->in[k] = l->of[l->place[n->in[k]->id]];
        l->of[i] = n == input ? (range){0, limit - 1, true, true} : range_of(n, l->in, l->symbol);
        if (n->op == SN_OP_input && n != input && !sn_dtype_is_float((sn_dtype)n->dtype))
            l->of[i].known = true; /* 0: its own limit is another question */
    }
    bool all = true;
    *used = false;
    for (int i = 0; i < l->n; i++) {
        range r = l->of[l->place[l->lookup[i].index->id]];
        if (!r.known || !r.of_input || r.lo == r.hi) continue;
        *used = true;
        all &= r.hi < (double)sn_dim_eval(input->m, l->lookup[i].size, l->symbol);
    }
    return all;
}

int64_t sn_input_limit(sn_module *m, const sn_entry *e, const sn_node *input,
                       const int64_t *symbol) {
    enum { MAX_LENGTH = 1 << 30 };
    sn_lookup *lookup;
    limits l = {.symbol = symbol, .n = sn_lookups_find(m, e, &lookup)};
    sn_node **index = sn_arena_alloc(m, sizeof *index * (size_t)(l.n + 1));
    for (int i = 0; i < l.n; i++) index[i] = lookup[i].index;
    l.lookup = lookup;
    l.order = sn_topo(m, l.n, index);
    int max_in = 1;
    for (int i = 0; i < l.order.n; i++)
        if (l.order.node[i]->n_in > max_in) max_in = l.order.node[i]->n_in;
    l.place = sn_arena_alloc(m, sizeof *l.place * sn_module_node_count(m));
    l.of = sn_arena_alloc(m, sizeof *l.of * (size_t)(l.order.n + 1));
    l.in = sn_arena_alloc(m, sizeof *l.in * (size_t)max_in);
    for (int i = 0; i < l.order.n; i++) l.place[l.order.node[i]->id] = (uint32_t)i;
    bool used;
    fits(&l, input, MAX_LENGTH, &used);
    if (!used) return 0;
    int64_t fit = 1, beyond = MAX_LENGTH;
    while (beyond - fit > 1) {
        int64_t middle = fit + (beyond - fit) / 2;
        *(fits(&l, input, (double)middle, &used) ? &fit : &beyond) = middle;
    }
    return fit;
}
