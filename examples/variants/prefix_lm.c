/* prefix_lm.c: a language model with a bidirectional prompt: keys in the first prefix[b] tokens are
 * visible to all queries, the others only to later queries. Liu et al. 2018, Raffel et al. 2020
 * (figure 4). For generation the whole prompt is the prefix, so `sinter check` compares decoding with -i prefix=5,
 * the length of its prompt.
 * formula: softmax over keys with j ≤ i or j < prefix */
#include "small.h"

static sn_tensor visible(const sn_score_ctx *c) {
    return sn_or(sn_ge(sn_query_key_distance(c), 0), sn_lt(c->k, sn_at(c->captured[0], c->b)));
}

static sn_tensor attend(const sn_forward_ctx *s, sn_tensor x) {
    qkv p = remember(s, project(x));
    if (s->capacity) return join(sn_attention(p.q, p.k, p.v)); /* all keys are in the past */
    sn_tensor prefix = sn_input(s->m, "prefix", SN_I32, s->B);
    return join(sn_attention(p.q, p.k, p.v, .mask = visible, .captured = {prefix}));
}

SN_MODEL(m, o) {
    small_model(m, o, &(small){.attend = attend, .positions = true});
}
