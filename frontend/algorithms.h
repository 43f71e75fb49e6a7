/* algorithms.h: the components of [PH22], Algorithms 1 to 7, as separate functions whose parameters
 * have the paper's names in the scope; and the packed attention of [SA]. The ready-made models
 * implement the same with the names of published weights. Use these functions to test and combine
 * the components as the paper writes them. Tokens are rows where the paper has columns. */
#ifndef SN_ALGORITHMS_H
#define SN_ALGORITHMS_H

#include "frontend/sinter.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A1: v [..] integers in 0 .. N_V-1 -> rows of W_e, [.., d_e]. Parameter W_e [N_V, d_e]. */
sn_tensor sn_a1_token_embedding(sn_tensor v, int64_t N_V, int64_t d_e);

/* A2: positions 0 .. T-1 -> [T, d_e]. Parameter W_p [l_max, d_e]. It is an error if T may exceed
 * l_max. sn_a2s_sinusoid: sinusoidal, for any length; the paper's base is l_max. */
sn_tensor sn_a2_positional_embedding(sn_module *m, sn_dim T, int64_t l_max, int64_t d_e);
sn_tensor sn_a2s_sinusoid(sn_module *m, sn_dim T, int64_t l_max, int64_t d_e);

/* A3: a single query: e [B, d_x] attends to E [B, T, d_z] -> [B, d_out]. Parameters W_q [d_attn,
 * d_x], b_q, W_k [d_attn, d_z], b_k, W_v [d_out, d_z], b_v. */
sn_tensor sn_a3_single_query_attention(sn_tensor e, sn_tensor E, int64_t d_attn, int64_t d_out);

/* A4: X [B, T_x, d_x] attends to Z [B, T_z, d_z] -> [B, T_x, d_out]; parameters as in A3. Z = X:
 * self-attention. causal: Mask[t_z, t_x] = [[t_z <= t_x]] (the last token of X sees all of Z);
 * otherwise Mask = 1. */
sn_tensor sn_a4_attention(sn_tensor X, sn_tensor Z, int64_t d_attn, int64_t d_out, bool causal);

/* A5: H heads, each with its W_q, W_k, W_v and biases, stored as one [H d_attn, ..] or [H d_mid,
 * ..] matrix, head h in the h-th block of rows; then W_o [d_out, H d_mid] and b_o. -> [B, T_x,
 * d_out] */
sn_tensor sn_a5_mh_attention(sn_tensor X, sn_tensor Z, int64_t H, int64_t d_attn, int64_t d_mid,
                             int64_t d_out, bool causal);

/* A6: (e - m) / sqrt(v + eps) * gamma + beta over the last axis; the paper's eps is 0. A6r:
 * RMSnorm, m = beta = 0. Parameters gamma, beta. */
sn_tensor sn_a6_layer_norm(sn_tensor e, double eps);
sn_tensor sn_a6r_rms_norm(sn_tensor e, double eps);

/* A7: softmax(W_u e): e [.., d_e] -> [.., N_V]. W_u [N_V, d_e], or the W_e of A1 if tied. */
sn_tensor sn_a7_unembedding(sn_tensor e, int64_t N_V, bool tied);

/* [SA]: one packed matrix qkv.weight [3 d, d] whose product is split into three views: q of X, k
 * and v of Z. Self-attention (Z = X, one product) and cross-attention share one path. X, Z [B, T,
 * d] -> [B, T_x, d], no output projection. */
sn_tensor sn_sa_attention(sn_tensor X, sn_tensor Z, int64_t heads, bool causal);

#ifdef __cplusplus
}
#endif
#endif
