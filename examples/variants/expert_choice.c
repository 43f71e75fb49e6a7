/* expert_choice.c: each expert chooses the tokens of a row that it computes, so that all experts
 * have equally many; a token may be computed by none, or by several. Zhou et al. 2022,
 * "Mixture-of-experts with expert choice routing".
 * formula: x + Σ over the experts that chose x of p_e · expert_e(x) */
#include "classifier.h"

enum { EXPERTS = 4, EXPERT_HIDDEN = 2 * WIDTH };

static sn_tensor experts(const sn_forward_ctx *s, sn_tensor x) {
    sn_tensor p = sn_softmax(sn_nn_linear(x, "router", EXPERTS, 0), -1),
              index;                                             /* [B, T, EXPERTS] */
    sn_tensor gate = sn_top_k(sn_swap(p, 1, 2), CHOSEN, &index); /* [B, EXPERTS, CHOSEN] */
    sn_tensor rows = rows_of(s, index), up, down;
    up = sn_param(s->m, "experts.up", SN_F32, EXPERTS, EXPERT_HIDDEN, WIDTH);
    down = sn_param(s->m, "experts.down", SN_F32, EXPERTS, WIDTH, EXPERT_HIDDEN);
    sn_tensor h = sn_gelu(sn_einsum("becd,efd->becf", take_rows(s, x, rows), up));
    sn_tensor y = sn_mul(sn_einsum("becf,edf->becd", h, down), sn_expand(gate, 3));
    sn_dim n = sn_dim_mul(s->m, s->B, EXPERTS * CHOSEN);
    return add_rows(s, sn_reshape(y, n, WIDTH), sn_reshape(rows, n));
}

static sn_tensor layer(const sn_forward_ctx *s, sn_tensor x) {
    qkv p = project(sn_nn_layer_norm(x, "norm1", 1e-5));
    x = sn_add(x, join(sn_attention(p.q, p.k, p.v)));
    return sn_add(x, experts(s, sn_nn_layer_norm(x, "norm2", 1e-5)));
}

SN_MODEL(m, o) {
    classifier(m, o, layer);
}
