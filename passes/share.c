/* share.c: stores a table that is also the matrix of a product (tied embeddings) once: look-ups
 * read the panels that the product reads. Tables of 4-bit integers are always read from panels.
 *
 * Requires fused nodes, native or oneDNN's. Keeps values. If a `map_reduce` body gathers rows of a
 * fixed table [N, K], and panels [N / P, K, P] of the same numbers are packed for a product, the
 * body gathers from the panels instead: element k of row i is element (i / P) P K + P k + i % P.
 * Scales and minima of groups are packed together, [N / P, 2 K, P], one after another in each group:
 * each table of them is read from there. 4-bit integers are in words [N / P, K / 8, P]; a table of
 * them that is not packed otherwise is
 * packed for this. 8-bit integers of integer products are in words [N / P, 1 + K / 4, P]. Then only
 * the preparation reads the table, which costs nothing at run time (hoist.c). Terminates: one
 * walk. */
#include "passes/graph_util.h"
#include "passes/passes.h"

enum { PER_WORD = 8 }; /* 4-bit integers */

/* How panels store a table: `each` integers along K in a position, after `above` rows of other
 * numbers; or number `part` of each `parts` positions. */
typedef struct layout {
    int each, above, parts, part;
    bool from_zero; /* integers without sign */
} layout;

typedef struct packs { /* fixed matrices that are packed whole, with their rows as columns */
    sn_node **node;
    int n, cap;
} packs;

static bool has_words(const sn_node *pack) {
    return sn_attr_get(pack, SN_A_group) != NULL;
}

static bool has_quads(const sn_node *pack) {
    return sn_attr_get(pack, SN_A_quads) != NULL;
}

/* Whether n is a matrix [N, K] unchanged, its rows the panels' columns. */
static bool is_plain_pack(const sn_node *n) {
    const sn_attr *k = n->op == SN_OP_pack_b ? sn_attr_get(n, SN_A_contract_b) : NULL;
    return k && k->n == 1 && k->v[0] == 1 && n->in[0]->rank == 2 && sn_from_params_only(n->in[0]) &&
           !sn_attr_get(n, SN_A_pair) && !sn_attr_get(n, SN_A_compute) &&
           sn_attr_int(n, SN_A_nibble, 0) != SN_NIBBLE_FP4;
}

static void find_packs(sn_module *m, packs *p) {
    for (int i = 0; i < sn_entry_count(m); i++) {
        sn_order order = sn_entry_topo(m, sn_entry_at(m, i));
        for (int k = 0; k < order.n; k++) {
            if (!is_plain_pack(order.node[k])) continue;
            p->node = sn_arena_grow(m, p->node, sizeof *p->node, p->n, &p->cap);
            p->node[p->n++] = order.node[k];
        }
    }
}

/* The kernel that computes n and the number of its result. */
static const sn_node *kernel_of(const sn_node *n, int *result) {
    *result = n->op == SN_OP_result ? (int)sn_attr_int(n, SN_A_index, 0) : 0;
    return n->op == SN_OP_result ? n->in[0] : n;
}

/* The node in its kernel's body that gives the value of n; NULL: n is not of such a kernel. */
static const sn_node *body_of(const sn_node *n) {
    int i;
    const sn_node *kernel = kernel_of(n, &i);
    const sn_region *r = kernel->op == SN_OP_map_reduce ? sn_attr_region(kernel, SN_A_body) : NULL;
    return r && i < r->n_out ? r->out[i] : NULL;
}

/* Operand `arg` of the kernel that computes n. */
static sn_node *operand(const sn_node *n, const sn_node *arg) {
    int i;
    return sn_below_reshapes(kernel_of(n, &i)->in[sn_attr_int(arg, SN_A_index, 0)]);
}

/* Whether `narrow` is `wide` in another type: a result of the same kernel, or of one of its own that
 * does nothing else. */
static bool is_cast_of(const sn_node *narrow, const sn_node *wide) {
    int i;
    const sn_node *x = body_of(narrow);
    if (!x || x->op != SN_OP_cast) return false;
    if (x->in[0]->op == SN_OP_arg) return operand(narrow, x->in[0]) == wide;
    return kernel_of(narrow, &i) == kernel_of(wide, &i) && x->in[0] == body_of(wide);
}

/* Whether the panels have the numbers of a table of this type, if it is what they are packed from. */
static bool holds(const sn_node *pack, const sn_node *table) {
    bool integers = has_quads(pack) || has_words(pack);
    return integers ? table->dtype == SN_I8 : pack->dtype == table->dtype;
}

static layout layout_of(const sn_node *pack) {
    if (has_quads(pack)) return (layout){.each = 4, .above = 1, .parts = 1};
    return (layout){.each = has_words(pack) ? PER_WORD : 1,
                    .parts = 1,
                    .from_zero = sn_attr_int(pack, SN_A_nibble, 0) == SN_NIBBLE_UNSIGNED};
}

/* Which of the operands that are packed side by side, a number of each after the other, is t; -1:
 * none. *parts: how many these are. */
static int part_of(const sn_node *packed, const sn_node *t, int *parts) {
    int64_t last;
    while (packed->op == SN_OP_reshape) packed = packed->in[0];
    if (packed->op != SN_OP_concat || sn_attr_int(packed, SN_A_axis, 0) != packed->rank - 1)
        return -1;
    *parts = packed->n_in;
    int found = -1;
    for (int i = 0; i < packed->n_in; i++) {
        const sn_node *x = packed->in[i];
        if (!sn_dim_is_const(x->m, x->shape[x->rank - 1], &last) || last != 1) return -1;
        if (sn_below_reshapes(packed->in[i]) == t) found = i;
    }
    return found;
}

/* Panels that contain the numbers of `table`, which are a part of them; NULL: none. */
static sn_node *panels_with_part(const packs *p, sn_node *table, layout *l) {
    const sn_node *t = sn_below_reshapes(table);
    for (int i = 0; i < p->n; i++) {
        const sn_node *packed = p->node[i]->in[0];
        int part = has_words(p->node[i]) || p->node[i]->dtype != table->dtype
                       ? -1
                       : part_of(packed, t, &l->parts);
        if (part < 0 || packed->shape[0] != table->shape[0] ||
            packed->shape[1] != sn_dim_mul(table->m, table->shape[1], l->parts))
            continue;
        l->part = part;
        return p->node[i];
    }
    return NULL;
}

/* Panels that contain the numbers of `table`, integers of so many bits, and where; NULL: none. */
static sn_node *panels_of(const packs *p, sn_node *table, int64_t bits, layout *l) {
    const int64_t last[] = {1};
    int64_t row;
    if (table->rank != 2 || !sn_from_params_only(table)) return NULL;
    const sn_node *t = sn_below_reshapes(table);
    for (int i = 0; i < p->n; i++) {
        sn_node *packed = p->node[i]->in[0];
        const sn_node *x = sn_below_reshapes(packed);
        if (holds(p->node[i], table) && sn_shapes_equal(packed, table) &&
            (x == t || is_cast_of(t, x))) {
            *l = layout_of(p->node[i]);
            return p->node[i];
        }
    }
    sn_node *with = panels_with_part(p, table, l);
    if (with) return with;
    if (table->dtype != SN_I8 || bits > 4 || !sn_dim_is_const(table->m, table->shape[1], &row) ||
        row % PER_WORD)
        return NULL;
    sn_node *made = SN_NODE(
        table->m, pack_b,
        SN_ATTRS(SN_INT(dtype, SN_I32), SN_LIST(contract_b, 1, last), SN_INT(group, 1)), table);
    *l = layout_of(made);
    return made;
}

/* The index of the argument with the row numbers, if the body reads argument i only by gathering
 * its rows at those; -1: it does not. *bits: of its integers. */
static int places_of_rows(const sn_region *r, int i, int64_t *bits) {
    int found = -1;
    sn_order order = sn_region_topo(r->arg[i]->m, r);
    for (int k = 0; k < order.n; k++) {
        const sn_node *n = order.node[k];
        for (int j = 0; j < n->n_in; j++) {
            if (n->in[j] != r->arg[i]) continue;
            bool rows = n->op == SN_OP_gather && j == 0 && sn_attr_int(n, SN_A_axis, 0) == 0 &&
                        n->in[1]->op == SN_OP_arg;
            int at = rows ? (int)sn_attr_int(n->in[1], SN_A_index, 0) : -1;
            if (!rows || (found >= 0 && found != at)) return -1;
            found = at;
            *bits = sn_attr_int(n, SN_A_bits, 8);
        }
    }
    for (int k = 0; k < r->n_out; k++)
        if (r->out[k] == r->arg[i]) return -1;
    return found;
}

/* The positions of all elements of row `row` [.., 1] in panels of `width` rows, [.., K]. */
static sn_node *element_numbers(sn_node *row, int64_t width, int64_t n, int64_t k, const layout *l,
                                const sn_node *like) {
    sn_node *i = sn_b_cast(row, SN_I64);
    i = sn_b_scalar(SN_OP_max, sn_b_scalar(SN_OP_min, i, (double)(n - 1)), 0);
    int64_t rows = l->above + (k + l->each - 1) / l->each * l->parts;
    sn_node *first = sn_b_binary(
        SN_OP_add,
        sn_b_scalar(SN_OP_mul, sn_b_scalar(SN_OP_div, i, (double)width), (double)(rows * width)),
        sn_b_scalar(SN_OP_mod, i, (double)width));
    if (l->above) first = sn_b_scalar(SN_OP_add, first, (double)(l->above * width));
    sn_node *column = sn_b_iota(like->m, SN_I64, like->rank, like->shape, like->rank - 1);
    if (l->each > 1) column = sn_b_scalar(SN_OP_div, column, l->each);
    if (l->parts > 1)
        column = sn_b_scalar(SN_OP_add, sn_b_scalar(SN_OP_mul, column, l->parts), l->part);
    return sn_b_binary(SN_OP_add, first, sn_b_scalar(SN_OP_mul, column, (double)width));
}

/* Integer k % each of word k, all [.., K], as `like`'s type. */
static sn_node *integers_of(sn_node *words, const layout *l, const sn_node *like) {
    const double range = 1 << (32 / l->each);
    sn_node *k = sn_b_iota(like->m, SN_I64, like->rank, like->shape, like->rank - 1);
    sn_node *j = sn_b_scalar(SN_OP_mod, k, l->each), *mask = NULL, *unit = NULL;
    double place = 1;
    for (int i = 0; i < l->each; i++, place *= range) {
        /* the last has the word's sign */
        double bits = i < l->each - 1 ? (range - 1) * place : -place;
        sn_node *is = sn_b_scalar(SN_OP_eq, j, i), *m = sn_b_const(like->m, SN_I32, bits),
                *u = sn_b_const(like->m, SN_F32, 1 / place);
        mask = mask ? sn_b_select(is, m, mask) : m;
        unit = unit ? sn_b_select(is, u, unit) : u;
    }
    sn_node *q = sn_b_cast(sn_b_binary(SN_OP_and, words, mask), SN_F32);
    q = sn_b_binary(SN_OP_mul, q, unit); /* exact */
    sn_node *other = sn_b_scalar(l->from_zero ? SN_OP_add : SN_OP_sub, q, range);
    sn_node *is_low = sn_b_scalar(SN_OP_lt, q, l->from_zero ? 0 : range / 2);
    q = l->from_zero ? sn_b_select(is_low, other, q) : sn_b_select(is_low, q, other);
    return sn_b_cast(q, (sn_dtype)like->dtype);
}

/* The body with argument i, a table [n, k], replaced by its panels of `width` rows, flattened, and
 * one more argument at the end: the row numbers [.., 1]. */
static sn_region *read_panels(const sn_region *r, int i, const sn_node *pack, const layout *l,
                              const sn_node *flat, const sn_node *rows) {
    sn_module *m = flat->m;
    sn_order order = sn_region_topo(m, r);
    sn_node **made = sn_arena_alloc(m, sizeof *made * sn_module_node_count(m));
    sn_node **arg = sn_arena_alloc(m, sizeof *arg * (size_t)(r->n_arg + 1));
    sn_node **out = sn_arena_alloc(m, sizeof *out * (size_t)r->n_out);
    for (int a = 0; a < r->n_arg; a++) made[r->arg[a]->id] = arg[a] = r->arg[a];
    arg[i] = sn_arg(m, i, (sn_dtype)flat->dtype, 1, flat->shape);
    arg[r->n_arg] = sn_arg(m, r->n_arg, (sn_dtype)rows->dtype, rows->rank, rows->shape);
    for (int k = 0; k < order.n; k++) {
        sn_node *n = order.node[k];
        if (n->op == SN_OP_arg) continue;
        if (n->op == SN_OP_gather && n->in[0] == r->arg[i]) {
            sn_node *at = element_numbers(arg[r->n_arg], pack->shape[2], r->arg[i]->shape[0],
                                          r->arg[i]->shape[1], l, n);
            sn_node *x = SN_NODE(m, gather, SN_ATTRS(SN_INT(axis, 0)), arg[i], at);
            made[n->id] = l->each > 1 ? integers_of(x, l, n) : x;
            continue;
        }
        made[n->id] = sn_node_from(n, made);
    }
    for (int k = 0; k < r->n_out; k++) out[k] = made[r->out[k]->id];
    return sn_region_new(m, r->n_arg + 1, arg, r->n_out, out);
}

/* The kernel n with operand i, a table, read from the panels `pack` [panels, k, rows of one]. */
static sn_node *with_panels(const sn_node *n, int i, int places, sn_node *pack, const layout *l) {
    sn_module *m = n->m;
    const sn_region *body = sn_attr_region(n, SN_A_body);
    sn_node **in = sn_arena_alloc(m, sizeof *in * (size_t)(n->n_in + 1)), *ids = n->in[places];
    sn_attr *attr = sn_arena_alloc(m, sizeof *attr * (size_t)n->n_attr);
    sn_dim shape[SN_MAX_RANK], all = sn_dim_product(m, pack->rank, pack->shape);
    for (int a = 0; a < ids->rank; a++) shape[a] = ids->shape[a];
    shape[ids->rank] = 1;
    for (int k = 0; k < n->n_in; k++) in[k] = n->in[k];
    in[i] = sn_b_reshape(pack, 1, &all);
    in[n->n_in] = sn_b_reshape(ids, ids->rank + 1, shape);
    for (int k = 0; k < n->n_attr; k++) {
        attr[k] = n->attr[k];
        if (attr[k].key == SN_A_body) attr[k].r = read_panels(body, i, pack, l, in[i], in[n->n_in]);
    }
    return sn_node_new(m, SN_OP_map_reduce, n->n_in + 1, in, n->n_attr, attr);
}

static sn_node *rule(void *ctx, sn_node *n) {
    if (n->op != SN_OP_map_reduce) return n;
    for (int i = 0, count = n->n_in; i < count; i++) {
        int64_t bits = 8;
        int places = places_of_rows(sn_attr_region(n, SN_A_body), i, &bits);
        layout l = {.each = 1, .parts = 1};
        sn_node *pack = places >= 0 ? panels_of(ctx, n->in[i], bits, &l) : NULL;
        if (pack && n->in[places]->rank < SN_MAX_RANK) n = with_panels(n, i, places, pack, &l);
    }
    return n;
}

int sn_pass_share(sn_passes *p) {
    packs found = {0};
    if (!p->o.constant_params) return 0;
    find_packs(p->m, &found);
    return sn_rewrite_module(p->m, rule, &found);
}
