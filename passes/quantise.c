/* quantise.c: weights of linear maps in fewer bits, by the option `weights`; activations and sums
 * stay f32.
 *
 *   bf16: W becomes bf16(W);  int8: W[i,:] becomes s[i] q[i,:], s = max |W[i,:]| / 127, q = round(W
 * / s), and s multiplies the product.
 *
 * Requires composites (before expand). Breaks values by the rounding, on purpose: what is left is
 * spelled in ordinary operations, so the evaluator computes exactly what the kernels do. Only
 * weights that never change (parameters and what is made of them). The narrow type is stored
 * (fuse.c packs it); the widening casts vanish into the product. Terminates: one walk. */
#include "passes/graph_util.h"
#include "passes/passes.h"

#include <string.h>

enum { MIN_WEIGHT = 1024 }; /* elements from which on it pays */

/* x as it will be stored, and widened again. */
static sn_node *through(sn_node *x, sn_dtype narrow) {
    return sn_b_cast(sn_b_cast(x, narrow), SN_F32);
}

static sn_node *linear(sn_node *x, sn_node *w) {
    return SN_NODE(x->m, linear, SN_NO_ATTRS, x, w);
}

static sn_node *with_bf16(sn_node *x, sn_node *w) {
    return linear(x, through(w, SN_BF16));
}

static sn_node *with_int8(sn_node *x, sn_node *w) {
    int64_t row = 1;
    sn_node *most = sn_b_reduce(SN_OP_reduce_max, sn_b_unary(SN_OP_abs, w), 1, &row);
    sn_node *scale = sn_b_scalar(SN_OP_mul, sn_b_scalar(SN_OP_max, most, 1e-30), 1 / 127.0);
    sn_node *q = sn_b_unary(SN_OP_round, sn_b_binary(SN_OP_div, w, scale));
    return sn_b_binary(SN_OP_mul, linear(x, through(q, SN_I8)), sn_b_reshape(scale, 1, w->shape));
}

static const struct {
    const char *name;
    sn_node *(*make)(sn_node *x, sn_node *w);
} kinds[] = {{"bf16", with_bf16}, {"int8", with_int8}};

bool sn_quantise_knows(const char *name) {
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(kinds[i].name, name)) return true;
    return false;
}

static sn_node *rule(void *ctx, sn_node *n) {
    const sn_passes *p = ctx;
    int64_t elements;
    if (n->op != SN_OP_linear || n->dtype != SN_F32 || !sn_from_params_only(n->in[1]) ||
        !sn_dim_is_const(n->m, sn_dim_product(n->m, n->in[1]->rank, n->in[1]->shape), &elements) ||
        elements < MIN_WEIGHT)
        return n;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(kinds[i].name, p->o.weights)) {
            sn_node *y = kinds[i].make(n->in[0], n->in[1]);
            return n->n_in > 2 ? sn_b_binary(SN_OP_add, y, n->in[2]) : y;
        }
    return n;
}

int sn_pass_quantise(sn_passes *p) {
    if (!p->o.weights || !p->o.constant_params) return 0;
    return sn_rewrite_module(p->m, rule, p);
}
