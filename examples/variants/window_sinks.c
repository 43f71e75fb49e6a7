/* window_sinks.c: each token sees the last WINDOW tokens and the first SINKS tokens of the text,
 * which act as attention sinks; tiles that no query sees are skipped. Xiao et al. 2023, "Efficient
 * streaming language models with attention sinks"; rotary positions.
 * formula: softmax over keys with i − j < window or j < sinks */
#include "small.h"

enum { WINDOW = 8, SINKS = 2 };

static sn_tensor visible(const sn_score_ctx *c) {
    return sn_or(sn_lt(sn_query_key_distance(c), WINDOW), sn_lt(c->k, SINKS));
}

static sn_tensor attend(const sn_forward_ctx *s, sn_tensor x) {
    qkv p = project(x);
    p.q = sn_rope(p.q, s->pos);
    p.k = sn_rope(p.k, s->pos);
    p = remember(s, p);
    return join(sn_attention(p.q, p.k, p.v, .causal = true, .mask = visible));
}

SN_MODEL(m, o) {
    small_model(m, o, &(small){.attend = attend});
}
