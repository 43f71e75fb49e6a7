/* heavily_compressed_attention.c: one softmax over the last tokens and over entries that stand for windows of BLOCK
 * tokens each, with a sink. Keys are the values, too; one head of them serves all queries. The result's
 * rotation is turned back. DeepSeek-AI 2026, "DeepSeek-V4". formula: softmax over {entries of closed windows,
 * last WINDOW tokens, sink}, entry = RMSNorm(Σ softmax(z + place) ∘ c) */
#include "compressed.h"

enum { BLOCK = 16 };

static sn_tensor
sees(const sn_score_ctx *c) { /* keys: first the entries, of closed windows, then the tokens */
    const sn_dim *E = c->user;
    sn_tensor here = sn_sub(sn_add(sn_query_key_distance(c), c->k), *E), token = sn_sub(c->k, *E);
    sn_tensor closed = sn_le(sn_mul(sn_add(c->k, 1), BLOCK), sn_add(here, 1));
    sn_tensor near = sn_and(sn_le(token, here), sn_lt(here, sn_add(token, WINDOW)));
    return sn_or(sn_and(sn_lt(c->k, *E), closed), sn_and(sn_ge(c->k, *E), near));
}

static sn_tensor attend(const sn_forward_ctx *s, sn_tensor x) {
    sn_tensor entries = compress(s, x, "compressor", BLOCK, HEAD, 1);
    sn_dim E = sn_dim_of(entries, 1);
    sn_tensor k = sn_concat(2, sn_expand(entries, 1), keys(s, x));
    sn_tensor sinks = sn_param(s->m, "sinks", SN_F32, HEADS);
    return leave(
        s, sn_attention(queries(s, x, "query"), k, k, .mask = sees, .user = &E, .sink = sinks));
}

SN_MODEL(m, o) {
    small_model(m, o, &(small){.attend = attend});
}
