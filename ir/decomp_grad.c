/* decomp_grad.c: the gradient of a composite with respect to an operand as a separate composite,
 * where a library has a primitive for it. */
#include "ir/decomp_impl.h"

#include <string.h>

#define OP2(op, a, b) sn_b_binary(SN_OP_##op, a, b)

/* Checks that operands i and k have the same shape. */
static bool alike(const decomp *c, int i, int k) {
    const sn_node *x = c->in[i], *y = c->in[k];
    bool same =
        x->rank == y->rank && (!x->rank || !memcmp(x->shape, y->shape, sizeof *x->shape * x->rank));
    return same || sn_dc_fail(c, "operands %d and %d must have the same shape", i, k);
}

/* p (g - sum(p g)): 0 where p is 0, also in rows that are entirely hidden */
bool decomp_softmax_grad(decomp *c) {
    int axis;
    if (!sn_dc_float(c, 0) || !sn_dc_float(c, 1) || !alike(c, 0, 1) || !sn_dc_axis(c, &axis))
        return false;
    int64_t a = axis;
    sn_node *p = sn_dc_operand(c, 0), *g = sn_dc_operand(c, 1);
    sn_node *sum = sn_b_reduce(SN_OP_reduce_sum, OP2(mul, p, g), 1, &a);
    return sn_dc_done(c, OP2(mul, p, OP2(sub, g, sum)));
}

/* With x_hat = (x - mean) scale of mean square 1 (up to eps) and h = g gain:
 * scale (h - x_hat mean(h x_hat) - mean h) */
bool decomp_layer_norm_grad(decomp *c) {
    if (!sn_dc_float(c, 0) || !sn_dc_rank(c, 0, 1) || !sn_dc_float(c, 1) || !alike(c, 0, 1) ||
        !sn_dc_vector(c, 2, c->in[0]->shape[c->in[0]->rank - 1]))
        return false;
    sn_node *x = sn_dc_operand(c, 0), *h = sn_dc_operand(c, 1),
            *away = OP2(sub, x, sn_b_mean_last(x));
    sn_node *square = sn_b_mean_last(OP2(mul, away, away));
    sn_node *scale =
        sn_b_unary(SN_OP_rsqrt, sn_b_scalar(SN_OP_add, square, sn_dc_flt(c, SN_A_eps, 1e-5)));
    sn_node *unit = OP2(mul, away, scale);
    if (c->n_in > 2) h = OP2(mul, h, sn_dc_operand(c, 2));
    sn_node *d = OP2(sub, h, OP2(mul, unit, sn_b_mean_last(OP2(mul, h, unit))));
    return sn_dc_done(c, OP2(mul, OP2(sub, d, sn_b_mean_last(h)), scale));
}

/* The gradient of the convolution's decomposition, taken over region arguments instead of the
 * operands, so that the walk stops there. */
bool decomp_conv2d_grad(decomp *c) {
    int64_t which = sn_dc_int(c, SN_A_index, 0), axes[4] = {0, 1, 2, 3};
    sn_node *arg[3], *g;
    sn_attr *attr = sn_arena_alloc(c->m, sizeof *attr * (size_t)(c->n_attr + 1));
    int n_attr = 0;
    if (which < 0 || which > 1) return sn_dc_fail(c, "index must be 0 or 1");
    for (int i = 0; i < 3; i++) {
        if (!sn_dc_float(c, i)) return false;
        arg[i] = sn_arg(c->m, i, c->type, c->in[i]->rank, c->in[i]->shape);
    }
    for (int i = 0; i < c->n_attr; i++)
        if (c->attr[i].key != SN_A_index) attr[n_attr++] = c->attr[i];
    sn_node *y = sn_node_new(c->m, SN_OP_conv2d, 2, arg, n_attr, attr);
    if (c->m->error.code) return false;
    if (c->in[2]->rank != 4 || memcmp(y->shape, c->in[2]->shape, sizeof *y->shape * 4))
        return sn_dc_fail(c, "operand 2 must have the shape of the convolution");
    sn_node *sum = sn_b_reduce(SN_OP_reduce_sum, OP2(mul, y->decomposition, arg[2]), 4, axes);
    sn_gradient(sn_b_reshape(sum, 0, NULL), 1, &arg[which], &g);
    if (c->m->error.code) return false;
    sn_node *in[3] = {sn_dc_operand(c, 0), sn_dc_operand(c, 1), sn_dc_operand(c, 2)};
    sn_region_inline(sn_region_new(c->m, 3, arg, 1, &g), in, &g);
    c->out[0] = sn_b_cast(g, (sn_dtype)c->in[which]->dtype);
    c->n_out = 1;
    return !c->m->error.code;
}
