/* tse_alt.c: [TSE], "Attention without query, key, or value vectors": heads as two circuits. W_QK
 * takes two states to a score, W_OV a state to an update; a head is nothing else.
 * "factored": W_QK = W_Q^T W_K and W_OV = W_O W_V with the usual head's maps (the same parameters,
 * the same logits). "full": each is one matrix [d_model, d_model]. "pairwise": both are applied to
 * every pair of positions, n^2 times, as in the text; otherwise each state is mapped once. Config keys: tse_gpt's, and "circuits" ("factored", "full"), "pairwise". */
#include "frontend/tse.h"

typedef struct circuits {
    bool full, pairwise;
} circuits;

/* W_QK of every src and other state: [B, Tq, 1 or Tk, d] and [B, 1 or Tq, Tk, d] -> [B, Tq, Tk] */
static sn_tensor pair_scores(const tse *g, sn_tensor src, sn_tensor other, bool full) {
    sn_tensor q = full ? src : sn_nn_linear(src, "W_Q", g->d_head, 0);
    sn_tensor k = full ? sn_nn_linear(other, "W_QK", g->d_model, 0)
                       : sn_nn_linear(other, "W_K", g->d_head, 0);
    return sn_sum(sn_mul(q, k), -1);
}

/* W_OV: the update that a state would give */
static sn_tensor state_updates(const tse *g, sn_tensor states, bool full) {
    if (full) return sn_nn_linear(states, "W_OV", g->d_model, 0);
    return sn_nn_linear(sn_nn_linear(states, "W_V", g->d_head, 0), "W_O", g->d_model, 0);
}

/* AlternateAttnHead::apply, pair by pair */
static sn_tensor apply_pairs(const tse *g, const sn_forward_ctx *s, sn_tensor states,
                             sn_tensor seen) {
    const circuits *c = g->variant;
    sn_dim B = sn_dim_of(states, 0), Tq = sn_dim_of(states, 1), Tk = sn_dim_of(seen, 1);
    sn_tensor src = sn_broadcast(sn_expand(states, 2), B, Tq, Tk, g->d_model);
    sn_tensor other = sn_broadcast(sn_expand(seen, 1), B, Tq, Tk, g->d_model);
    sn_tensor scores = sn_name(pair_scores(g, src, other, c->full), "scores");
    scores = sn_mask_scores(scores, tse_mask(s, Tk));
    sn_tensor pattern = sn_name(sn_softmax(scores, -1), "pattern");
    pattern = sn_forward_dropout(s, pattern);
    sn_tensor scaled = sn_mul(state_updates(g, other, c->full), sn_expand(pattern, 3));
    return sn_name(sn_sum(scaled, 2), "update");
}

/* The same with each state mapped once */
static sn_tensor apply_lifted(const tse *g, const sn_forward_ctx *s, sn_tensor states,
                              sn_tensor seen) {
    const circuits *c = g->variant;
    sn_tensor q = c->full ? states : sn_nn_linear(states, "W_Q", g->d_head, 0);
    sn_tensor k = c->full ? sn_nn_linear(seen, "W_QK", g->d_model, 0)
                          : sn_nn_linear(seen, "W_K", g->d_head, 0);
    sn_tensor scores = sn_name(sn_matmul(q, sn_swap(k, -1, -2)), "scores");
    scores = sn_mask_scores(scores, tse_mask(s, sn_dim_of(seen, 1)));
    sn_tensor pattern = sn_name(sn_softmax(scores, -1), "pattern");
    sn_name(sn_expand(pattern, 1), "attention");
    pattern = sn_forward_dropout(s, pattern);
    return sn_name(sn_matmul(pattern, state_updates(g, seen, c->full)), "update");
}

void sn_tse_alt_build(sn_config *c, const sn_model_options *o, sn_model *out) {
    static const char *const forms[] = {"factored", "full", NULL};
    circuits pair = {.full = sn_config_choice_or(c, "circuits", forms, 0) == 1,
                     .pairwise = sn_config_bool_or(c, "pairwise", false)};
    tse g = tse_read(c);
    g.variant = &pair;
    g.keeps_states = true;
    g.head = pair.pairwise ? apply_pairs : apply_lifted;
    tse_build(&g, c, o, out);
}
