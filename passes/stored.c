/* stored.c: reads matrices and tables in the type that their file has, bf16 or f16.
 *
 * p->o.source is the file that sessions will read. A parameter that is declared as f32 and that the
 * file holds in fewer bits becomes cast(parameter SN_STORED "NAME" of the file's type). Casts then
 * move behind what only moves elements (concatenation, views, look-ups), so that packing, quantising
 * and look-ups read the file's pages themselves and no f32 copy of a tensor is made. Vectors stay as
 * declared: they are read in every run.
 *
 * Runs after quantise, which expects plain parameters. Keeps values: widening is exact. Requires
 * constant parameters (p->o.constant_params). Terminates: one walk. */
#include "passes/graph_util.h"
#include "passes/passes.h"

#include <string.h>

const char *sn_stored_param_tensor(const char *name) {
    size_t n = sizeof SN_STORED - 1;
    return strncmp(name, SN_STORED, n) ? name : name + n;
}

static bool is_half(int t) {
    return t == SN_BF16 || t == SN_F16;
}

/* Whether x consists of elements of a parameter of 16 bits, or of several. */
static bool is_stored(const sn_node *x) {
    while (x->op == SN_OP_concat || (sn_is_view(x) && x->op != SN_OP_result)) x = x->in[0];
    return x->op == SN_OP_param && is_half(x->dtype);
}

/* x, if n is x of that kind widened to f32; else NULL. */
static sn_node *below_widening(const sn_node *n) {
    return n->op == SN_OP_cast && n->dtype == SN_F32 && is_stored(n->in[0]) ? n->in[0] : NULL;
}

/* A table of 16 bits that, widened or not, has the values of `table`; NULL: there is none. */
static sn_node *half_table(sn_node *table) {
    sn_node *x = below_widening(table);
    if (x || table->op != SN_OP_cast) return x;
    x = below_widening(table->in[0]); /* narrowed again, to the type that it has */
    return x && x->dtype == table->dtype ? x : NULL;
}

static sn_node *read_stored(const sn_passes *p, sn_node *n) {
    const char *name = sn_attr_str(n, SN_A_name, "");
    const sn_weight *w = sn_weights_find(p->o.source, name);
    if (!w || w->block || !is_half(w->dtype) || n->dtype != SN_F32 || n->rank < 2) return n;
    name = sn_arena_printf(n->m, SN_STORED "%s", name);
    return sn_b_cast(sn_param_as(n, name, w->dtype, n->shape), SN_F32);
}

/* The same operation on operands of 16 bits, if all are widened from one type. */
static sn_node *before_widening(sn_node *n) {
    sn_node **in = sn_arena_alloc(n->m, sizeof *in * n->n_in);
    for (int i = 0; i < n->n_in; i++) {
        in[i] = below_widening(n->in[i]);
        if (!in[i] || in[i]->dtype != in[0]->dtype) return n;
    }
    return sn_b_cast(sn_node_new(n->m, n->op, n->n_in, in, n->n_attr, n->attr), SN_F32);
}

static sn_node *look_up(sn_node *n) {
    sn_node *table = half_table(n->in[0]);
    if (!table) return n;
    sn_node *in[2] = {table, n->in[1]};
    return sn_b_cast(sn_node_new(n->m, n->op, 2, in, n->n_attr, n->attr), (sn_dtype)n->dtype);
}

static sn_node *rule(void *ctx, sn_node *n) {
    if (n->op == SN_OP_param) return read_stored(ctx, n);
    if (n->op == SN_OP_embedding || n->op == SN_OP_gather) return look_up(n);
    if (n->op == SN_OP_concat || (sn_is_view(n) && n->op != SN_OP_result))
        return before_widening(n);
    return n;
}

int sn_pass_stored(sn_passes *p) {
    if (!p->o.source || !p->o.constant_params) return 0;
    return sn_rewrite_module(p->m, rule, p);
}
