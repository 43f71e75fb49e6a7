/* primitive.c: what oneDNN can compute: f32 products (with a bias along the columns), softmax and
 * layer_norm over the last axis, convolution, and the gradients of these. Composites become
 * `primitive` nodes, whose body is the composite itself: its decomposition is the oracle. */
#include "passes/primitive.h"
#include "passes/kernels/table.h"

#include <string.h>

bool sn_primitive_wanted(const sn_passes *p) {
    return !strcmp(p->o.backend, "onednn");
}

static bool all_f32(const sn_node *n) {
    for (int i = 0; i < n->n_in; i++)
        if (n->in[i]->dtype != SN_F32) return false;
    return n->dtype == SN_F32;
}

/* ---- composites ---- */

static const char *softmax_unfit(const sn_node *n) {
    if (!n->rank || sn_attr_int(n, SN_A_axis, n->rank - 1) != n->rank - 1)
        return "the primitive supports the last axis only";
    return NULL;
}

static const char *norm_unfit(const sn_node *n) {
    (void)n;
    return NULL;
}

static const char *conv_unfit(const sn_node *n) {
    static const sn_attr_key keys[] = {SN_A_low, SN_A_high};
    for (int k = 0; k < 2; k++) {
        const sn_attr *a = sn_attr_get(n, keys[k]);
        for (int i = 0; a && i < a->n; i++)
            if (!sn_dim_is_const(n->m, a->v[i], NULL))
                return "the primitive supports constant padding only";
    }
    return NULL;
}

/* Why the composite does not fit (NULL: it does), by op. */
static const struct candidate {
    sn_op op;
    const char *(*unfit)(const sn_node *n);
} candidates[] = {{SN_OP_softmax, softmax_unfit},      {SN_OP_layer_norm, norm_unfit},
                  {SN_OP_conv2d, conv_unfit},          {SN_OP_softmax_grad, softmax_unfit},
                  {SN_OP_layer_norm_grad, norm_unfit}, {SN_OP_conv2d_grad, conv_unfit}};

static const struct candidate *candidate_of(const sn_node *comp) {
    for (size_t i = 0; i < sizeof candidates / sizeof *candidates; i++)
        if (candidates[i].op == comp->op) return &candidates[i];
    return NULL;
}

bool sn_primitive_fits(const sn_node *comp) {
    const struct candidate *c = candidate_of(comp);
    return c && all_f32(comp) && !c->unfit(comp);
}

sn_node *sn_primitive_of(sn_passes *p, sn_node *comp) {
    const struct candidate *c = candidate_of(comp);
    if (!c) return NULL;
    const char *why = all_f32(comp) ? c->unfit(comp) : "the primitive supports f32 only";
    if (why) {
        sn_remark_add(p, "expand", comp, false, "own code: %s", why);
        return NULL;
    }
    sn_node **in = sn_arena_alloc(comp->m, sizeof *in * (size_t)(comp->n_in + 1));
    int n = 0;
    for (int i = 0; i < comp->n_in; i++) { /* an operand may occur twice */
        bool known = false;
        for (int j = 0; j < n; j++) known |= in[j] == comp->in[i];
        if (!known) in[n++] = comp->in[i];
    }
    sn_region *body = sn_region_extract(comp->m, n, in, 1, &comp);
    return sn_node_new(comp->m, SN_OP_primitive, n, in,
                       SN_ATTRS(SN_REG(body, body), SN_STR(backend, "onednn")));
}

/* ---- products ---- */

bool sn_primitive_dot(const sn_node *dot) {
    return dot->op == SN_OP_dot && all_f32(dot);
}

static int axes_of(const sn_node *n, sn_attr_key key) {
    const sn_attr *a = sn_attr_get(n, key);
    return a ? a->n : 0;
}

/* The right factor has one free axis: the columns are the last axis of the result. */
static bool one_column_axis(const sn_node *product, const sn_node *right) {
    return right->rank - axes_of(product, SN_A_batch_b) - axes_of(product, SN_A_contract_b) == 1;
}

/* [1, .., 1, columns] */
static bool is_row(const sn_node *v, sn_dim columns) {
    if (v->dtype != SN_F32 || !v->rank || v->shape[v->rank - 1] != columns) return false;
    for (int i = 0; i < v->rank - 1; i++)
        if (v->shape[i] != 1) return false;
    return true;
}

/* The vector added by n = add(product, broadcast(vector)); NULL: n is something else. */
static const sn_node *added_row(const sn_node *product, const sn_node *n) {
    if (n->op != SN_OP_add || !product->rank) return NULL;
    for (int i = 0; i < 2; i++) {
        const sn_node *other = n->in[1 - i];
        if (n->in[i] == product && other->op == SN_OP_broadcast && other != product &&
            is_row(other->in[0], product->shape[product->rank - 1]))
            return other->in[0];
    }
    return NULL;
}

bool sn_primitive_bias(const sn_node *dot, const sn_node *n) {
    return one_column_axis(dot, dot->in[1]) && added_row(dot, n);
}

bool sn_primitive_gemm(const sn_node *gemm) {
    if (!sn_kernel_of(gemm)->contraction || gemm->n_result != 1 || !all_f32(gemm) ||
        sn_attr_get(gemm, SN_A_packed) || sn_attr_get(gemm, SN_A_prologue))
        return false;
    const sn_region *epi = sn_attr_region(gemm, SN_A_epilogue);
    if (!epi) return gemm->n_in == 2;
    if (gemm->n_in != 3 || epi->n_arg != 2 || !one_column_axis(gemm, gemm->in[1])) return false;
    return added_row(epi->arg[0], epi->out[0]) == epi->arg[1];
}
