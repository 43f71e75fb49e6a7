/* soft_capping.c: scores and logits are limited to ± CAP by cap tanh(x / cap), so that no single
 * key dominates. Gemma Team 2024, "Gemma 2", section 2. formula: softmax(c tanh(q k / (c √d))) v */
#include "small.h"

static const double CAP = 50, FINAL_CAP = 30;

static sn_tensor cap(const sn_score_ctx *c) {
    return sn_mul(sn_tanh(sn_div(c->score, CAP)), CAP);
}

static sn_tensor attend(const sn_forward_ctx *s, sn_tensor x) {
    qkv p = remember(s, project(x));
    return join(sn_attention(p.q, p.k, p.v, .causal = true, .score = cap));
}

static sn_tensor capped_logits(const void *config, sn_tensor x) {
    return sn_mul(sn_tanh(sn_div(small_logits(config, x), FINAL_CAP)), FINAL_CAP);
}

SN_MODEL(m, o) {
    small c = {.attend = attend, .positions = true};
    sn_decoder_entries(m, &(sn_decoder){&c, small_layers, capped_logits, CONTEXT, LAYERS}, o);
}
