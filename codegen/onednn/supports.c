/* supports.c: what oneDNN computes, and at what cost: products of f32 and bf16 (with a bias along the columns),
 * softmax and layer_norm over the last axis, convolution, and their gradients. */
#include "codegen/onednn/onednn.h"
#include "passes/kernels/table.h"

static bool all_f32(const sn_node *n) {
    for (int i = 0; i < n->n_in; i++)
        if (n->in[i]->dtype != SN_F32) return false;
    return n->dtype == SN_F32;
}

/* ---- composites ---- */

static const char *softmax_unfit(const sn_node *n) {
    if (!n->rank || sn_attr_int(n, SN_A_axis, n->rank - 1) != n->rank - 1)
        return "the primitive supports the last axis only";
    return n->op == SN_OP_softmax && n->n_in > 1 ? "the primitive has no sink" : NULL;
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
static const struct composite {
    sn_op op;
    const char *(*unfit)(const sn_node *n);
} composites[] = {{SN_OP_softmax, softmax_unfit},      {SN_OP_layer_norm, norm_unfit},
                  {SN_OP_conv2d, conv_unfit},          {SN_OP_softmax_grad, softmax_unfit},
                  {SN_OP_layer_norm_grad, norm_unfit}, {SN_OP_conv2d_grad, conv_unfit}};

static const struct composite *composite_of(const sn_node *comp) {
    for (size_t i = 0; i < sizeof composites / sizeof *composites; i++)
        if (composites[i].op == comp->op) return &composites[i];
    return NULL;
}

/* ---- products ---- */

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

bool onednn_epilogue(const sn_node *dot, const sn_node *n) {
    return one_column_axis(dot, dot->in[1]) && added_row(dot, n);
}

static bool multiplies(const sn_node *product) {
    const int64_t factors = sn_attr_int(product, SN_A_compute, SN_F32);
    return all_f32(product) &&
           (factors == SN_F32 || (factors == SN_BF16 && sn_dnnl_multiplies_bf16()));
}

static bool supports_gemm(const sn_node *gemm) {
    if (gemm->n_result != 1 || !multiplies(gemm) || sn_attr_get(gemm, SN_A_packed) ||
        sn_attr_get(gemm, SN_A_prologue))
        return false;
    const sn_region *epi = sn_attr_region(gemm, SN_A_epilogue);
    if (!epi) return gemm->n_in == 2;
    if (gemm->n_in != 3 || epi->n_arg != 2 || !one_column_axis(gemm, gemm->in[1])) return false;
    return added_row(epi->arg[0], epi->out[0]) == epi->arg[1];
}

bool onednn_supports(const sn_node *n, const char **why) {
    *why = NULL;
    if (n->op == SN_OP_dot) return multiplies(n);
    if (sn_kernel_of(n)->contraction) {
        *why = "the primitive supports f32 (bf16 with AVX-512), one result, at most a bias";
        return supports_gemm(n);
    }
    const struct composite *c = composite_of(n);
    if (c) *why = all_f32(n) ? c->unfit(n) : "the primitive supports f32 only";
    return c && !*why;
}

/* ---- costs ---- */

/* Measured with two threads on an AVX-512 server (oneDNN 2.6; `sinter bench kernel` and `gemm`
 * repeat it). */
static const struct {
    sn_op op;
    sn_backend_cost cost;
} costs[] = {
    {SN_OP_dot, {1.05, true, "cost model: same speed, and the native epilogue is free"}},
    {SN_OP_softmax,
     {1.9, true, "cost model: the native kernel is faster, and its neighbours are fused"}},
    {SN_OP_layer_norm,
     {1.03, true, "cost model: same speed, and the native kernel fuses with its neighbours"}},
    {SN_OP_softmax_grad,
     {1.5, true, "cost model: the native kernel is faster, and its neighbours are fused"}},
    {SN_OP_layer_norm_grad,
     {1.5, true, "cost model: the native kernel is faster, and its neighbours are fused"}},
    {SN_OP_conv2d,
     {0.85, false,
      "cost model: oneDNN is faster, but its results depend on the number of threads"}},
    {SN_OP_conv2d_grad,
     {0.85, false,
      "cost model: oneDNN is faster, but its results depend on the number of threads"}},
};

const sn_backend_cost *onednn_cost(sn_op op) {
    for (size_t i = 0; i < sizeof costs / sizeof *costs; i++)
        if (costs[i].op == op) return &costs[i].cost;
    return NULL;
}
