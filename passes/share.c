/* share.c: stores a table that is also the matrix of a product (tied embeddings) once: look-ups
 * read the panels that the product reads.
 *
 * Requires fused nodes, native or oneDNN's. Keeps values. If a `map_reduce` body gathers rows of a
 * parameter [N, K], or of that parameter narrowed to bf16, and panels [N / P, K, P] of the same
 * numbers are packed for a product, the body gathers from the panels instead: element k of row i is
 * element (i / P) P K + P k + i % P. Then only the preparation reads the parameter, which costs
 * nothing at run time (hoist.c). Terminates: one walk. */
#include "passes/graph_util.h"
#include "passes/passes.h"

typedef struct packs { /* parameters that are packed whole, with their rows as columns */
    sn_node **node;
    int n, cap;
} packs;

/* Whether n is a matrix [N, K] unchanged, its rows the panels' columns. */
static bool is_plain_pack(const sn_node *n) {
    const sn_attr *k = n->op == SN_OP_pack_b ? sn_attr_get(n, SN_A_contract_b) : NULL;
    return k && k->n == 1 && k->v[0] == 1 && n->in[0]->rank == 2 && n->in[0]->op == SN_OP_param &&
           !sn_attr_get(n, SN_A_group) && !sn_attr_get(n, SN_A_pair);
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

/* x if the kernel n only casts it; else n. */
static sn_node *below_cast(sn_node *n) {
    const sn_region *r =
        n->op == SN_OP_map_reduce && n->n_in == 1 ? sn_attr_region(n, SN_A_body) : NULL;
    bool casts = r && r->n_out == 1 && r->out[0]->op == SN_OP_cast && r->out[0]->in[0] == r->arg[0];
    return casts ? n->in[0] : n;
}

/* Panels that contain the numbers of `table`; NULL: none. */
static sn_node *panels_of(const packs *p, sn_node *table) {
    const sn_node *source = below_cast(table);
    for (int i = 0; i < p->n; i++)
        if (p->node[i]->in[0] == source && p->node[i]->dtype == table->dtype) return p->node[i];
    return NULL;
}

/* The index of the argument with the row numbers, if the body reads argument i only by gathering
 * its rows at those; -1: it does not. */
static int places_of_rows(const sn_region *r, int i) {
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
        }
    }
    for (int k = 0; k < r->n_out; k++)
        if (r->out[k] == r->arg[i]) return -1;
    return found;
}

/* The positions of all elements of row `row` [.., 1] in panels of `width` rows, [.., K]. */
static sn_node *element_numbers(sn_node *row, int64_t width, int64_t n, int64_t k,
                                const sn_node *like) {
    sn_node *i = sn_b_cast(row, SN_I64);
    i = sn_b_scalar(SN_OP_max, sn_b_scalar(SN_OP_min, i, (double)(n - 1)), 0);
    sn_node *first = sn_b_binary(
        SN_OP_add,
        sn_b_scalar(SN_OP_mul, sn_b_scalar(SN_OP_div, i, (double)width), (double)(k * width)),
        sn_b_scalar(SN_OP_mod, i, (double)width));
    sn_node *column = sn_b_iota(like->m, SN_I64, like->rank, like->shape, like->rank - 1);
    return sn_b_binary(SN_OP_add, first, sn_b_scalar(SN_OP_mul, column, (double)width));
}

/* The body with argument i, a table [n, k], replaced by its panels of `width` rows, flattened, and
 * one more argument at the end: the row numbers [.., 1]. */
static sn_region *read_panels(const sn_region *r, int i, int64_t width, const sn_node *flat,
                              const sn_node *rows) {
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
            sn_node *at =
                element_numbers(arg[r->n_arg], width, r->arg[i]->shape[0], r->arg[i]->shape[1], n);
            made[n->id] = SN_NODE(m, gather, SN_ATTRS(SN_INT(axis, 0)), arg[i], at);
            continue;
        }
        sn_node **in = sn_arena_alloc(m, sizeof *in * (size_t)(n->n_in + 1));
        for (int j = 0; j < n->n_in; j++) in[j] = made[n->in[j]->id];
        made[n->id] = n->n_in ? sn_node_with(n, in) : n;
    }
    for (int k = 0; k < r->n_out; k++) out[k] = made[r->out[k]->id];
    return sn_region_new(m, r->n_arg + 1, arg, r->n_out, out);
}

/* The kernel n with operand i, a table, read from the panels `pack` [panels, k, rows of one]. */
static sn_node *with_panels(const sn_node *n, int i, int places, sn_node *pack) {
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
        if (attr[k].key == SN_A_body)
            attr[k].r = read_panels(body, i, pack->shape[2], in[i], in[n->n_in]);
    }
    return sn_node_new(m, SN_OP_map_reduce, n->n_in + 1, in, n->n_attr, attr);
}

static sn_node *rule(void *ctx, sn_node *n) {
    for (int i = 0; n->op == SN_OP_map_reduce && i < n->n_in; i++) {
        sn_node *pack = panels_of(ctx, n->in[i]);
        int places = pack ? places_of_rows(sn_attr_region(n, SN_A_body), i) : -1;
        if (places >= 0 && n->in[places]->rank < SN_MAX_RANK)
            return with_panels(n, i, places, pack);
    }
    return n;
}

int sn_pass_share(sn_passes *p) {
    packs found = {0};
    if (!p->o.constant_params) return 0;
    find_packs(p->m, &found);
    return found.n ? sn_rewrite_module(p->m, rule, &found) : 0;
}
