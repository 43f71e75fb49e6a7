/* latent_attention.c: multi-head latent attention: only a low-rank latent and one rotary key are
 * cached per token; keys and values of all heads are linear in the latent. DeepSeek-AI 2024,
 * "DeepSeek-V2", section 2.1. The key matrix is absorbed into the queries and the value matrix is
 * applied after the weighted sum, so every head attends to the latent itself: one key head, and a
 * cache of LATENT + ROTARY numbers per token.
 * formula: softmax((q K) c + r r′) c, then V; c: the cached latent */
#include "small.h"

#include <math.h>

enum { LATENT = WIDTH / 4, ROTARY = HEAD / 2 };

static sn_tensor attend(const sn_forward_ctx *s, sn_tensor x) {
    sn_tensor latent = sn_nn_rms_norm(sn_nn_linear(x, "down_kv", LATENT, 0), "latent_norm", 1e-6);
    sn_tensor key_up = sn_param(s->m, "key_up", SN_F32, HEADS, HEAD, LATENT);
    sn_tensor value_up = sn_param(s->m, "value_up", SN_F32, HEADS, HEAD, LATENT);
    latent = sn_append_kv(s, sn_expand(latent, 1), "latent"); /* [B, 1, T, LATENT] */
    sn_tensor rotated = sn_rope(sn_expand(sn_nn_linear(x, "key_rotary", ROTARY, 0), 1), s->pos);
    sn_tensor key = sn_concat(3, latent, sn_append_kv(s, rotated, "rotary"));

    sn_tensor q = sn_split_heads(sn_nn_linear(x, "query", WIDTH, 0), HEADS);
    sn_tensor r = sn_split_heads(sn_nn_linear(x, "query_rotary", HEADS * ROTARY, 0), HEADS);
    q = sn_concat(3, sn_einsum("bhtd,hdr->bhtr", q, key_up), sn_rope(r, s->pos));
    sn_tensor y = sn_attention(q, key, latent, .causal = true, .scale = 1 / sqrt(HEAD + ROTARY));
    return join(sn_einsum("bhtr,hdr->bhtd", y, value_up));
}

SN_MODEL(m, o) {
    small_model(m, o, &(small){.attend = attend});
}
