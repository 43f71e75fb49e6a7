/* quantise.c: weights of linear maps in fewer bits, by the option `weights`; activations and sums
 * stay f32.
 *
 *   bf16: W becomes bf16(W).
 *   int8: W[i,:] becomes s[i] q[i,:], s = max |W[i,:]| / 127, q = round(W / s), and s multiplies the
 *         product.
 *   int4: 32 of a row share a factor s, bf16, the value of largest magnitude over -8; W becomes s q
 *         with q = round(W / s) from -8 to 7. Where rows are no multiple of 32: int8.
 *   Tables in which `embedding` looks rows up are stored in bf16 with all three.
 *
 * Requires composites (before expand). Breaks values by the rounding, on purpose: what is left is
 * spelled in ordinary operations, so the evaluator computes exactly what the kernels do. Only
 * weights that never change (parameters and what is made of them). The narrow type is stored
 * (fuse.c packs it); the widening casts vanish into the product. Terminates: one walk. */
#include "passes/graph_util.h"
#include "passes/passes.h"

#include <string.h>

enum {
    MIN_WEIGHT = 1024, /* minimum number of elements for which it pays */
    GROUP = 32         /* int4: numbers that share a scale */
};

/* x as it will be stored, and widened again. */
static sn_node *through(sn_node *x, sn_dtype narrow) {
    return sn_b_cast(sn_b_cast(x, narrow), SN_F32);
}

/* The linear map n without its bias, with w as its weight. */
static sn_node *with_weight(const sn_node *n, sn_node *w) {
    return sn_node_new(n->m, SN_OP_linear, 2, (sn_node *[]){n->in[0], w}, n->n_attr, n->attr);
}

/* One number per column of n's result, [out], over the axes that n makes of them. */
static sn_node *by_column(const sn_node *n, sn_node *v) {
    const sn_attr *size = sn_attr_get(n, SN_A_size);
    return size ? sn_b_reshape(v, size->n, size->v) : v;
}

static sn_node *with_bf16(const sn_node *n) {
    return with_weight(n, through(n->in[1], SN_BF16));
}

static sn_node *with_int8(const sn_node *n) {
    int64_t row = 1;
    sn_node *w = n->in[1];
    sn_node *max_abs = sn_b_reduce(SN_OP_reduce_max, sn_b_unary(SN_OP_abs, w), 1, &row);
    sn_node *scale = sn_b_scalar(SN_OP_mul, sn_b_scalar(SN_OP_max, max_abs, 1e-30), 1 / 127.0);
    sn_node *q = sn_b_unary(SN_OP_round, sn_b_binary(SN_OP_div, w, scale));
    return sn_b_binary(SN_OP_mul, with_weight(n, through(q, SN_I8)),
                       by_column(n, sn_b_reshape(scale, 1, w->shape)));
}

static sn_node *with_int4(const sn_node *n) {
    sn_node *w = n->in[1];
    int64_t row, last = 2;
    if (!sn_dim_is_const(n->m, w->shape[1], &row) || row % GROUP) return with_int8(n);
    sn_node *g = sn_b_reshape(w, 3, (const sn_dim[]){w->shape[0], row / GROUP, GROUP});
    sn_node *high = sn_b_reduce(SN_OP_reduce_max, g, 1, &last);
    sn_node *low = sn_b_reduce(SN_OP_reduce_min, g, 1, &last);
    sn_node *down = sn_b_binary(SN_OP_lt, high, sn_b_unary(SN_OP_neg, low));
    sn_node *extreme = sn_b_select(down, low, high);
    sn_node *none = sn_b_scalar(SN_OP_eq, extreme, 0); /* all zeros: any scale will do */
    extreme = sn_b_select(none, sn_b_scalar(SN_OP_add, extreme, 1), extreme);
    sn_node *scale = through(sn_b_scalar(SN_OP_mul, extreme, -0.125), SN_BF16);
    sn_node *q = sn_b_unary(SN_OP_round, sn_b_binary(SN_OP_div, g, scale));
    q = sn_b_scalar(SN_OP_max, sn_b_scalar(SN_OP_min, q, 7), -8);
    sn_node *rounded = sn_b_binary(SN_OP_mul, through(q, SN_I8), scale);
    return with_weight(n, sn_b_reshape(rounded, 2, w->shape));
}

static const struct {
    const char *name;
    sn_node *(*make)(const sn_node *n);
} kinds[] = {{"bf16", with_bf16}, {"int8", with_int8}, {"int4", with_int4}};

bool sn_quantise_knows(const char *name) {
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(kinds[i].name, name)) return true;
    return false;
}

/* Whether it pays to store w in fewer bits. */
static bool is_large_weight(const sn_node *w) {
    int64_t elements;
    return w->dtype == SN_F32 && sn_from_params_only(w) &&
           sn_dim_is_const(w->m, sn_dim_product(w->m, w->rank, w->shape), &elements) &&
           elements >= MIN_WEIGHT;
}

static sn_node *with_bf16_rows(const sn_node *n) {
    sn_node *in[2] = {sn_b_cast(n->in[0], SN_BF16), n->in[1]};
    return sn_b_cast(sn_node_new(n->m, SN_OP_embedding, 2, in, n->n_attr, n->attr), SN_F32);
}

static sn_node *rule(void *ctx, sn_node *n) {
    const sn_passes *p = ctx;
    if (n->op == SN_OP_embedding && is_large_weight(n->in[0])) return with_bf16_rows(n);
    if (n->op != SN_OP_linear || n->dtype != SN_F32 || !is_large_weight(n->in[1])) return n;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(kinds[i].name, p->o.weights)) {
            sn_node *y = kinds[i].make(n);
            return n->n_in > 2 ? sn_b_binary(SN_OP_add, y, by_column(n, n->in[2])) : y;
        }
    return n;
}

int sn_pass_quantise(sn_passes *p) {
    if (!p->o.weights || !p->o.constant_params) return 0;
    return sn_rewrite_module(p->m, rule, p);
}
