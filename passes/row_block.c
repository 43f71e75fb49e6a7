/* row_block.c: row blocking: a product with a very wide result (logits), the row-wise operations on
 * it (the loss and its gradient) and the products that consume those run for a limited number of
 * rows at a time, so that the wide tensors are never fully materialised.
 *
 * Requires primitives only. Keeps values up to the order of sums over rows. The chain becomes one
 * `row_blocked` node, in whose body the rows are one first axis; fuse.c makes kernels of the body.
 * Terminates: every round handles one product that no later round sees. */
#include "passes/backend.h"
#include "passes/graph_util.h"
#include "passes/passes.h"

#include <string.h>

enum {
    LEAST_COLUMNS = 2048,    /* minimum size of a tensor for which it pays */
    LEAST_BYTES = 1 << 25,   /* size up to which a tensor is kept whole */
    CHUNK_BYTES = 208 << 20, /* size of a block */
    LEAST_ROWS = 128,        /* minimum number of rows: with fewer, the products are inefficient */
    MAX_ROWS = 1024,
    ROW_UNIT = 64,
};

/* A node's relation to the product: independent; inside the chain; an end of the chain; after
 * it. */
typedef enum state { FREE, MEMBER, END, AFTER } state;

/* A node's shape relative to the product's [rows.., columns]: equal, [rows.., 1], [rows..],
 * other. */
typedef enum kind { OTHER, WIDE, COLUMN, VECTOR } kind;

typedef struct chunker {
    sn_passes *p;
    sn_module *m;
    sn_entry *e;
    sn_order order;
    uint8_t *state;  /* by id */
    uint8_t *result; /* by id: a member with users outside the chain */
    uint8_t *kept;   /* by id: a wide value from outside that is in memory in any case */
    sn_node **flat;  /* by id: the node in the body, where the rows are one axis */
    sn_node **made;  /* by id: replacement */
    sn_node *dot;
    int lead; /* row axes */
    sn_dim rows, columns;
    /* [n_arg] operands of the row_blocked node, and the corresponding arguments in the body */
    sn_node **operand, **arg;
    int n_arg, cap_arg;
    bool reduces, ends;
    const char *why; /* why it is not possible; NULL: it is */
} chunker;

static kind kind_of(const chunker *c, const sn_node *n) {
    if (n->rank < c->lead || memcmp(n->shape, c->dot->shape, sizeof(sn_dim) * (size_t)c->lead))
        return OTHER;
    if (n->rank == c->lead) return VECTOR;
    if (n->rank > c->lead + 1) return OTHER;
    return n->shape[c->lead] == c->columns ? WIDE : n->shape[c->lead] == 1 ? COLUMN : OTHER;
}

static bool is_kind(const chunker *c, const sn_node *n, state s, kind k) {
    return c->state[n->id] == s && kind_of(c, n) == k;
}

/* ---- selecting the nodes ---- */

static bool axes_are(const sn_attr *a, int first, int n) {
    if ((a ? a->n : 0) != n) return false;
    for (int i = 0; i < n; i++)
        if (a->v[i] != first + i) return false;
    return true;
}

static bool no_axes(const sn_node *dot, sn_attr_key key) {
    return axes_are(sn_attr_get(dot, key), 0, 0);
}

/* [rows.., K..] [.., K.., ..] where the right factor has one free axis that is large enough. */
static bool is_start(chunker *c, sn_node *n) {
    int64_t columns;
    if (n->op != SN_OP_dot || n->rank < 2 || !sn_dtype_is_float((sn_dtype)n->dtype)) return false;
    const sn_attr *ca = sn_attr_get(n, SN_A_contract_a);
    int lead = n->rank - 1;
    if (!no_axes(n, SN_A_batch_a) || !no_axes(n, SN_A_batch_b) || !ca ||
        n->in[0]->rank - ca->n != lead)
        return false;
    for (int i = 0; i < ca->n; i++)
        if (ca->v[i] < lead) return false;
    c->rows = sn_dim_product(n->m, lead, n->shape);
    c->columns = n->shape[lead];
    if (!sn_dim_is_const(n->m, c->columns, &columns) || columns < LEAST_COLUMNS ||
        sn_dim_is_const(n->m, c->rows, NULL))
        return false;
    int64_t row = columns * (int64_t)sn_dtype_size((sn_dtype)n->dtype);
    c->dot = n;
    c->lead = lead;
    return sn_dim_hi(n->m, c->rows) >= (LEAST_BYTES + row - 1) / row;
}

/* A product that consumes wide rows, contracting the columns. Its own rows are shorter: the last
 * layer's output before the logits need not be divided. */
static bool ends_rows(const chunker *c, const sn_node *n) {
    int64_t columns, row;
    return n->op == SN_OP_dot && is_kind(c, n->in[0], MEMBER, WIDE) && no_axes(n, SN_A_batch_a) &&
           axes_are(sn_attr_get(n, SN_A_contract_a), c->lead, 1) &&
           c->state[n->in[1]->id] == FREE && sn_dim_is_const(c->m, c->columns, &columns) &&
           sn_dim_is_const(c->m, sn_dim_product(c->m, n->rank - c->lead, n->shape + c->lead),
                           &row) &&
           row < columns;
}

/* A product that contracts the rows. */
static bool ends_sum(const chunker *c, const sn_node *n) {
    if (n->op != SN_OP_dot || !no_axes(n, SN_A_batch_a)) return false;
    int wide = is_kind(c, n->in[0], MEMBER, WIDE) ? 0 : 1;
    return is_kind(c, n->in[wide], MEMBER, WIDE) && c->state[n->in[1 - wide]->id] == FREE &&
           axes_are(sn_attr_get(n, SN_A_contract_a), 0, c->lead) &&
           axes_are(sn_attr_get(n, SN_A_contract_b), 0, c->lead);
}

static bool sums_rows(const chunker *c, const sn_node *n) {
    return n->op == SN_OP_reduce_sum && is_kind(c, n->in[0], MEMBER, WIDE) &&
           axes_are(sn_attr_get(n, SN_A_axes), 0, c->lead);
}

static bool in_chain(const chunker *c, const sn_node *n) {
    kind k = kind_of(c, n), below = n->n_in ? kind_of(c, n->in[0]) : OTHER;
    if (sn_is_elementwise(n)) return k != OTHER;
    if (n->op == SN_OP_reshape) return k >= COLUMN && below >= COLUMN;
    if (n->op == SN_OP_broadcast) return k == WIDE && below == COLUMN;
    return sn_reduces_rows(n) && below == WIDE;
}

static void place(chunker *c, sn_node *n) {
    bool after = false, member = false, wide = false;
    for (int i = 0; i < n->n_in; i++) {
        const sn_node *x = n->in[i];
        after |= c->state[x->id] >= END;
        member |= c->state[x->id] == MEMBER;
        wide |= is_kind(c, x, MEMBER, WIDE);
    }
    if (n == c->dot) {
        c->state[n->id] = MEMBER;
    } else if (member && !after && in_chain(c, n)) {
        c->reduces |= sn_reduces(n);
        c->state[n->id] = MEMBER;
    } else if (!after && (ends_rows(c, n) || ends_sum(c, n) || sums_rows(c, n))) {
        c->ends |= n->op == SN_OP_dot;
        c->state[n->id] = END;
    } else if (member || after) {
        if (wide) c->why = "a later operation needs it as a whole";
        c->state[n->id] = AFTER;
        for (int i = 0; i < n->n_in; i++) c->result[n->in[i]->id] = 1;
    }
}

static void place_root(chunker *c, const sn_node *n) {
    if (is_kind(c, n, MEMBER, WIDE)) c->why = "it is a result of the entry";
    c->result[n->id] = 1;
}

static bool is_free_elem(const chunker *c, const sn_node *n) {
    return is_kind(c, n, FREE, WIDE) && sn_is_elementwise(n);
}

/* Marks the wide values from outside that others need too and that depend on a wide tensor in
 * memory, as a residual stream does. Computing these again would repeat all layers' sums. */
static void find_kept(chunker *c) {
    enum { NEEDED = 1, DEPENDS = 2 };
    for (int i = 0; i < c->order.n; i++) {
        const sn_node *n = c->order.node[i];
        for (int k = 0; k < n->n_in; k++) {
            const sn_node *x = n->in[k];
            bool held = is_kind(c, x, FREE, WIDE) && x->op != SN_OP_broadcast;
            if (held && (!is_free_elem(c, x) || c->kept[x->id] & DEPENDS)) c->kept[n->id] = DEPENDS;
        }
    }
    for (int i = 0; i < c->e->n_output; i++) c->kept[c->e->output[i].node->id] |= NEEDED;
    for (int i = 0; i < c->e->n_assign; i++) c->kept[c->e->assign[i].node->id] |= NEEDED;
    for (int i = c->order.n - 1; i >= 0; i--) {
        const sn_node *n = c->order.node[i];
        bool inside = c->state[n->id] == MEMBER || c->state[n->id] == END;
        bool repeated = is_free_elem(c, n) && !(c->kept[n->id] & NEEDED);
        for (int k = 0; k < n->n_in && !inside && !repeated; k++) c->kept[n->in[k]->id] |= NEEDED;
    }
    for (int i = 0; i < c->order.n; i++) {
        uint8_t *kept = &c->kept[c->order.node[i]->id];
        *kept = *kept == (NEEDED | DEPENDS);
    }
}

/* ---- the body ---- */

/* The body's argument for a tensor from outside, whose first axis is the rows (`lead` = 1) or
 * not. */
static sn_node *argument(chunker *c, sn_node *x, int lead) {
    for (int i = 0; i < c->n_arg; i++)
        if (c->operand[i] == x) return c->arg[i];
    int cap = c->cap_arg; /* of both */
    c->operand = sn_arena_grow(c->m, c->operand, sizeof *c->operand, c->n_arg, &cap);
    c->arg = sn_arena_grow(c->m, c->arg, sizeof *c->arg, c->n_arg, &c->cap_arg);
    for (int a = lead; a < x->rank; a++)
        if (x->shape[a] == c->rows) c->why = "another axis has the same size as its rows";
    sn_node *arg = sn_arg(c->m, c->n_arg, (sn_dtype)x->dtype, x->rank, x->shape);
    c->operand[c->n_arg] = x;
    return c->arg[c->n_arg++] = arg;
}

/* x [rows.., rest..] as the argument [rows, rest..], at least [rows, 1]. */
static sn_node *row_argument(chunker *c, sn_node *x) {
    sn_dim shape[SN_MAX_RANK + 1] = {c->rows, 1};
    int rank = x->rank == c->lead ? 2 : 1;
    for (int a = c->lead; a < x->rank; a++) shape[rank++] = x->shape[a];
    return argument(c, sn_b_reshape(x, rank, shape), 1);
}

static sn_node *spread(chunker *c, sn_node *x, kind k) {
    return sn_b_broadcast(x, 2, (const sn_dim[]){c->rows, k == WIDE ? c->columns : 1});
}

/* What a broadcast from outside repeats: over all rows, the tensor itself; over some of them, one
 * value or row each. */
static sn_node *flat_broadcast(chunker *c, sn_node *n, kind k) {
    sn_node *x = n->in[0];
    if (x->op == SN_OP_const) return spread(c, x, k);
    if (k == VECTOR) return row_argument(c, n);
    sn_dim last = x->rank ? x->shape[x->rank - 1] : 1, shape[SN_MAX_RANK + 1];
    if (sn_dim_product(c->m, x->rank, x->shape) != last) {
        memcpy(shape, c->dot->shape, sizeof *shape * (size_t)c->lead);
        shape[c->lead] = last;
        return spread(c, row_argument(c, sn_b_broadcast(x, c->lead + 1, shape)), k);
    }
    if (x->op == SN_OP_iota && x->rank == 1) return spread(c, x, k);
    return spread(c, argument(c, x->rank ? sn_b_reshape(x, 1, &last) : x, 0), k);
}

static sn_node *flat(chunker *c, sn_node *n);

static sn_node *flat_elem(chunker *c, sn_node *n) {
    sn_node *in[3];
    for (int i = 0; i < n->n_in; i++) in[i] = flat(c, n->in[i]);
    return sn_node_new(c->m, (sn_op)n->op, n->n_in, in, n->n_attr, n->attr);
}

/* Wide values from outside that are not in memory are computed here. */
static sn_node *flat_free(chunker *c, sn_node *n) {
    kind k = kind_of(c, n);
    if (n->op == SN_OP_broadcast) return flat_broadcast(c, n, k);
    if (is_free_elem(c, n) && !c->kept[n->id]) return flat_elem(c, n);
    return row_argument(c, n);
}

/* The product, or one that consumes it, with the rows as the only axis before `first` of factor 0
 * (and of factor 1, for sums). */
static sn_node *flat_dot(chunker *c, const sn_node *n, sn_node *x, sn_node *y) {
    const sn_attr *ca = sn_attr_get(n, SN_A_contract_a), *cb = sn_attr_get(n, SN_A_contract_b);
    int64_t a[SN_MAX_RANK], zero = 0;
    bool sum = ca->v[0] < c->lead;
    for (int i = 0; i < ca->n; i++) a[i] = ca->v[i] - c->lead + 1;
    return SN_NODE(c->m, dot,
                   SN_ATTRS(sum ? SN_LIST(contract_a, 1, &zero) : SN_LIST(contract_a, ca->n, a),
                            sum ? SN_LIST(contract_b, 1, &zero) : *cb),
                   x, y);
}

static sn_node *spell(chunker *c, sn_node *n) {
    state s = (state)c->state[n->id];
    sn_module_set_loc(c->m, n->loc);
    if (s == FREE) return flat_free(c, n);
    if (n == c->dot) return flat_dot(c, n, row_argument(c, n->in[0]), argument(c, n->in[1], 0));
    if (s == END && n->op == SN_OP_dot) {
        sn_node *in[2];
        for (int i = 0; i < 2; i++) {
            bool free = c->state[n->in[i]->id] == FREE;
            in[i] = !free            ? flat(c, n->in[i])
                    : ends_sum(c, n) ? row_argument(c, n->in[i])
                                     : argument(c, n->in[i], 0);
        }
        return flat_dot(c, n, in[0], in[1]);
    }
    sn_node *x = flat(c, n->in[0]);
    if (s == END) return sn_b_reduce(SN_OP_reduce_sum, x, 1, &(int64_t){0});
    if (sn_is_elementwise(n)) return flat_elem(c, n);
    if (n->op == SN_OP_broadcast) return spread(c, x, WIDE);
    return n->op == SN_OP_reshape ? x : sn_b_reduce((sn_op)n->op, x, 1, &(int64_t){1});
}

static sn_node *flat(chunker *c, sn_node *n) {
    if (!c->flat[n->id]) c->flat[n->id] = spell(c, n);
    return c->flat[n->id];
}

static int64_t rows_at_a_time(const chunker *c) {
    int64_t row = c->columns * (int64_t)sn_dtype_size((sn_dtype)c->dot->dtype);
    int64_t n = CHUNK_BYTES / row / ROW_UNIT * ROW_UNIT;
    return n < LEAST_ROWS ? LEAST_ROWS : n > MAX_ROWS ? MAX_ROWS : n;
}

/* Replaces the chain's ends by the row_blocked node. False: not possible. */
static bool replace_ends(chunker *c) {
    sn_node *old[SN_MAX_RESULTS], *out[SN_MAX_RESULTS];
    int n = 0;
    for (int i = 0; i < c->order.n; i++) {
        sn_node *k = c->order.node[i];
        bool inside = c->state[k->id] == MEMBER || c->state[k->id] == END;
        if (!inside || !c->result[k->id]) continue;
        if (n == SN_MAX_RESULTS) {
            c->why = "it has too many results";
            return false;
        }
        old[n] = k;
        out[n++] = flat(c, k);
    }
    if (c->why || !n) return false;
    sn_region *body = sn_region_new(c->m, c->n_arg, c->arg, n, out);
    sn_module_set_loc(c->m, c->dot->loc);
    sn_node *all = sn_node_new(
        c->m, SN_OP_row_blocked, c->n_arg, c->operand,
        SN_ATTRS(SN_INT(dim, c->rows), SN_REG(body, body), SN_INT(rows, rows_at_a_time(c))));
    for (int i = 0; i < n; i++)
        c->made[old[i]->id] = sn_b_reshape(sn_b_result(all, i), old[i]->rank, old[i]->shape);
    return !sn_module_error(c->m)->code;
}

static sn_node *replacement(void *ctx, sn_node *n) {
    const chunker *c = ctx;
    return c->made[n->id] ? c->made[n->id] : n;
}

static void rebuild(chunker *c) {
    for (int i = 0; i < c->order.n; i++) {
        sn_node *n = c->order.node[i];
        if (c->state[n->id] != AFTER) continue;
        sn_node **in = sn_arena_alloc(c->m, sizeof *in * n->n_in);
        for (int k = 0; k < n->n_in; k++) in[k] = replacement(c, n->in[k]);
        c->made[n->id] = sn_node_with(n, in);
    }
    sn_entry_map(c->e, replacement, c);
    for (int i = 0; i < c->order.n; i++)
        if (c->made[c->order.node[i]->id])
            sn_lineage_add(c->order.node[i], c->made[c->order.node[i]->id]);
}

/* The chain that starts at this product, if any. */
static bool take(chunker *c, sn_node *start) {
    uint32_t n_id = sn_module_node_count(c->m);
    if (!is_start(c, start)) return false;
    c->state = sn_arena_alloc(c->m, n_id);
    c->result = sn_arena_alloc(c->m, n_id);
    c->kept = sn_arena_alloc(c->m, n_id);
    c->flat = sn_arena_alloc(c->m, sizeof *c->flat * n_id);
    c->made = sn_arena_alloc(c->m, sizeof *c->made * n_id);
    c->n_arg = 0;
    c->reduces = c->ends = false;
    c->why = NULL;
    for (int i = 0; i < c->order.n; i++) place(c, c->order.node[i]);
    for (int i = 0; i < c->e->n_output; i++) place_root(c, c->e->output[i].node);
    for (int i = 0; i < c->e->n_assign; i++) place_root(c, c->e->assign[i].node);
    if (!c->reduces || !c->ends) return false;
    char columns[64];
    sn_dim_print(c->m, c->columns, columns, sizeof columns);
    find_kept(c);
    if (c->why || !replace_ends(c)) {
        if (c->why)
            sn_remark_add(c->p, "row_block", start, false,
                          "its %s columns are materialised as a whole, not in row blocks: %s",
                          columns, c->why);
        return false;
    }
    rebuild(c);
    sn_remark_add(c->p, "row_block", start, false,
                  "its %s columns and what depends on them are computed for %lld rows at a time",
                  columns, (long long)rows_at_a_time(c));
    return true;
}

static bool block_entry(sn_passes *p, sn_entry *e) {
    chunker c = {.p = p, .m = p->m, .e = e, .order = sn_entry_topo(p->m, e)};
    for (int i = 0; i < c.order.n; i++)
        if (take(&c, c.order.node[i])) return true;
    return false;
}

int sn_pass_row_block(sn_passes *p) {
    int n = 0;
    if (sn_backend_wanted(p)) return 0;
    for (int i = 0; i < sn_entry_count(p->m) && !sn_module_error(p->m)->code; i++)
        while (block_entry(p, sn_entry_at(p->m, i))) n++;
    return n;
}
