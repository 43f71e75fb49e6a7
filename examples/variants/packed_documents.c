/* packed_documents.c: several documents in one row of the batch. documents[b, t] is the document of
 * a token, and a token attends only within it. Rotary positions depend on differences only, so a
 * document's logits do not depend on its position in the row. Krell et al. 2021, "Efficient
 * sequence packing". formula: softmax over keys with document(j) = document(i), j ≤ i */
#include "small.h"

static sn_tensor same_document(const sn_score_ctx *c) {
    return sn_eq(sn_at(c->captured[0], c->b, c->q), sn_at(c->captured[0], c->b, c->k));
}

static sn_tensor attend(const sn_forward_ctx *s, sn_tensor x) {
    qkv p = project(x);
    p.q = sn_rope(p.q, s->pos);
    p.k = sn_rope(p.k, s->pos);
    p = remember(s, p);
    /* inference: a single document */
    if (s->capacity) return join(sn_attention(p.q, p.k, p.v, .causal = true));
    sn_tensor documents = s->documents;
    if (!documents) documents = sn_input(s->m, "documents", SN_I32, s->B, s->T);
    return join(sn_attention(p.q, p.k, p.v, .causal = true, .mask = same_document,
                             .captured = {documents}));
}

SN_MODEL(m, o) {
    small_model(m, o, &(small){.attend = attend});
}
