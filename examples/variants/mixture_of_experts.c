/* mixture_of_experts.c: a router sends each token to its two most probable experts; their results
 * are weighted by the router's probabilities. Shazeer et al. 2017, "Outrageously large neural
 * networks"; Lepikhin et al. 2020, "GShard", algorithm 1. Training adds 0.01 times the
 * load-balancing loss of Fedus et al. 2021 (4): EXPERTS times the sum over experts of the fraction
 * of tokens times the mean probability, which is 1 if all experts are used equally.
 * formula: Σ over the two best e of p_e · expert_e(x) */
#include "small.h"

enum { EXPERTS = 4, EXPERT_HIDDEN = 2 * WIDTH };

static sn_tensor balance(sn_tensor first, sn_tensor probability) {
    sn_tensor share = sn_mean(first, 0, 1), mean = sn_mean(probability, 0, 1);
    return sn_mul(sn_sum_all(sn_mul(share, mean)), EXPERTS);
}

static sn_tensor feed(const sn_forward_ctx *s, sn_tensor x) {
    sn_tensor p = sn_softmax(sn_nn_linear(x, "router", EXPERTS, 0), -1); /* [B, T, EXPERTS] */
    sn_tensor chosen, gate = sn_top_k(p, 2, &chosen);                    /* [B, T, 2] */
    gate = sn_div(gate, sn_sum_keep(gate, -1));
    sn_tensor first = sn_one_hot(sn_argmax(p, -1), EXPERTS, SN_F32);
    sn_training_add(sn_mul(balance(first, p), 0.01), s->training);
    sn_tensor up = sn_param(s->m, "experts.up", SN_F32, EXPERTS, EXPERT_HIDDEN, WIDTH);
    sn_tensor down = sn_param(s->m, "experts.down", SN_F32, EXPERTS, WIDTH, EXPERT_HIDDEN);
    sn_tensor h = sn_gelu(sn_expert_linear(x, up, chosen)); /* [B, T, 2, EXPERT_HIDDEN] */
    return sn_sum(sn_mul(sn_expert_linear(h, down, chosen), sn_expand(gate, 3)), 2);
}

SN_MODEL(m, o) {
    small_model(m, o, &(small){.attend = causal_attention, .feed = feed, .positions = true});
}
