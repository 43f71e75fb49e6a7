/* algorithms.c: Algorithms 1 to 7 of [PH22], line by line, and [SA]'s packed attention. */
#include "frontend/algorithms.h"
#include "frontend/front.h"

#include <math.h>

/* W x + b with parameters W_NAME [n, ..] and b_NAME [n] */
static sn_tensor affine(sn_tensor x, const char *name, int64_t n) {
    sn_module *m = sn_module_of(x);
    char w[16], b[16];
    snprintf(w, sizeof w, "W_%s", name);
    snprintf(b, sizeof b, "b_%s", name);
    sn_dim in = sn_dim_of(x, -1);
    return sn_linear(x, sn_param(m, w, SN_F32, n, in), sn_param(m, b, SN_F32, n));
}

sn_tensor sn_a1_token_embedding(sn_tensor v, int64_t N_V, int64_t d_e) {
    return sn_embedding(sn_param(sn_module_of(v), "W_e", SN_F32, N_V, d_e), v); /* line 1 */
}

sn_tensor sn_a2_positional_embedding(sn_module *m, sn_dim T, int64_t l_max, int64_t d_e) {
    if (!front_enter_module(SN_HERE, m)) return m ? sn_module_error_node(m) : NULL;
    if (sn_dim_hi(m, T) > l_max)
        return sn_module_fail(
            m, SN_ERR_RANGE,
            "positions: sequences may have up to %lld tokens, but only %lld positions are learned. "
            "Hint: increase l_max, or reduce the upper bound of the length",
            (long long)sn_dim_hi(m, T), (long long)l_max);
    return sn_embedding(sn_param(m, "W_p", SN_F32, l_max, d_e), sn_arange(m, SN_I32, T));
}

sn_tensor sn_a2s_sinusoid(sn_module *m, sn_dim T, int64_t l_max, int64_t d_e) {
    return sn_sinusoid(sn_arange(m, SN_I32, T), d_e, (double)l_max, false);
}

sn_tensor sn_a3_single_query_attention(sn_tensor e, sn_tensor E, int64_t d_attn, int64_t d_out) {
    sn_tensor q = affine(e, "q", d_attn);              /* line 1 [B, d_attn] */
    sn_tensor k = affine(E, "k", d_attn);              /* line 2 [B, T, d_attn] */
    sn_tensor v = affine(E, "v", d_out);               /* line 3 [B, T, d_out] */
    sn_tensor scores = sn_matmul(k, sn_expand(q, -1)); /* [B, T, 1] */
    scores = sn_mul(scores, 1 / sqrt((double)d_attn)); /* line 4 */
    sn_tensor alpha = sn_name(sn_softmax(scores, 1), "alpha");
    return sn_squeeze(sn_matmul(sn_swap(alpha, 1, 2), v), 1); /* line 5 */
}

sn_tensor sn_a4_attention(sn_tensor X, sn_tensor Z, int64_t d_attn, int64_t d_out, bool causal) {
    sn_tensor Q = affine(X, "q", d_attn);         /* line 1 */
    sn_tensor K = affine(Z, "k", d_attn);         /* line 2 */
    sn_tensor V = affine(Z, "v", d_out);          /* line 3 */
    sn_tensor S = sn_matmul(Q, sn_swap(K, 1, 2)); /* line 4: S[t_x, t_z] */
    S = sn_mul(S, 1 / sqrt((double)d_attn));
    if (causal) /* line 5 */
        S = sn_mask_scores(S, sn_causal_mask(sn_module_of(X), sn_dim_of(X, 1), sn_dim_of(Z, 1)));
    return sn_matmul(sn_name(sn_softmax(S, -1), "attention"), V); /* line 6 */
}

sn_tensor sn_a5_mh_attention(sn_tensor X, sn_tensor Z, int64_t H, int64_t d_attn, int64_t d_mid,
                             int64_t d_out, bool causal) {
    sn_tensor Q = sn_split_heads(affine(X, "q", H * d_attn), H); /* lines 1, 2: every head's A4 */
    sn_tensor K = sn_split_heads(affine(Z, "k", H * d_attn), H);
    sn_tensor V = sn_split_heads(affine(Z, "v", H * d_mid), H);
    sn_tensor Y = sn_merge_heads(sn_attention(Q, K, V, .causal = causal)); /* line 3 */
    return affine(Y, "o", d_out);                                          /* line 4 */
}

sn_tensor sn_a6_layer_norm(sn_tensor e, double eps) {
    sn_module *m = sn_module_of(e);
    sn_dim d = sn_dim_of(e, -1);
    sn_tensor gamma = sn_param(m, "gamma", SN_F32, d), beta = sn_param(m, "beta", SN_F32, d);
    return sn_layer_norm(e, gamma, beta, eps);
}

sn_tensor sn_a6r_rms_norm(sn_tensor e, double eps) {
    return sn_rms_norm(e, sn_param(sn_module_of(e), "gamma", SN_F32, sn_dim_of(e, -1)), eps);
}

sn_tensor sn_a7_unembedding(sn_tensor e, int64_t N_V, bool tied) {
    sn_tensor W = sn_param(sn_module_of(e), tied ? "W_e" : "W_u", SN_F32, N_V, sn_dim_of(e, -1));
    return sn_softmax(sn_linear(e, W, NULL), -1); /* line 1 */
}

sn_tensor sn_sa_attention(sn_tensor X, sn_tensor Z, int64_t heads, bool causal) {
    sn_module *m = sn_module_of(X);
    int64_t d = sn_dim_of(X, 2); /* a parameter's sizes must be numbers */
    sn_tensor w = sn_param(m, "qkv.weight", SN_F32, 3 * d, d), of_x[3], of_z[3];
    sn_split(sn_linear(X, w, NULL), 2, 3, of_x);
    sn_split(sn_linear(Z, w, NULL), 2, 3, of_z); /* the same product if Z is X */
    return sn_merge_heads(sn_attention(sn_split_heads(of_x[0], heads),
                                       sn_split_heads(of_z[1], heads),
                                       sn_split_heads(of_z[2], heads), .causal = causal));
}
