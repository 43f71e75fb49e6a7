/* attention_sinks.c: each head has a learned score without a value, its sink, as one more term of the
 * softmax: a query without a matching key gives its weight to the sink. OpenAI 2025, "gpt-oss-120b &
 * gpt-oss-20b model card". formula: Σ e^(q k / √d) v / (Σ e^(q k / √d) + e^sink) */
#include "small.h"

static sn_tensor attend(const sn_forward_ctx *s, sn_tensor x) {
    qkv p = remember(s, project(x));
    sn_tensor sinks = sn_param(s->m, "sinks", SN_F32, HEADS);
    return join(sn_attention(p.q, p.k, p.v, .causal = true, .sink = sinks));
}

SN_MODEL(m, o) {
    small_model(m, o, &(small){.attend = attend, .positions = true});
}
