/* tse_gpt.c: the transformer of [TSE]: a residual stream that heads and neurons read and update.
 * No norms, no biases, no positions; scores are not scaled. Every head has its own four maps and
 * adds its update to the stream; the MLP is a list of neurons with a read and a write vector.
 * Names in comments are the text's. Heads can be replaced (tse.h). */
#include "frontend/tse.h"

static sn_tensor apply_head(const tse *g, const sn_forward_ctx *s, sn_tensor states,
                            sn_tensor seen);

tse tse_read(sn_config *c) {
    static const char *const names[] = {"relu", "gelu", NULL};
    tse g = {.n_vocab = sn_config_int(c, "n_vocab", 1, 1 << 24),
             .n_ctx = sn_config_int(c, "n_ctx", 1, 1 << 24),
             .n_layers = sn_config_int(c, "n_layers", 1, 1 << 12),
             .n_heads = sn_config_int(c, "n_heads", 1, 1 << 12),
             .d_model = sn_config_int(c, "d_model", 1, 1 << 20),
             .head = apply_head};
    g.d_head = sn_config_int_or(c, "d_head", g.d_model / g.n_heads, 1, 1 << 16);
    if (!sn_config_has(c, "d_head"))
        sn_config_divides(c, "n_heads", g.n_heads, "d_model", g.d_model);
    g.d_mlp = sn_config_int_or(c, "d_mlp", 4 * g.d_model, 1, 1 << 22);
    g.nonlinear = sn_config_choice_or(c, "nonlinear", names, 0) ? sn_gelu_at : sn_relu_at;
    return g;
}

/* One head: the mask without the axis of heads. */
sn_tensor tse_mask(const sn_forward_ctx *s, sn_dim n_keys) {
    sn_tensor mask = sn_forward_mask(s, n_keys, 0);
    return sn_rank_of(mask) == 4 ? sn_squeeze(mask, 1) : mask;
}

/* AttnHead::apply: states [B, T, d_model] -> updates of the same shape */
static sn_tensor apply_head(const tse *g, const sn_forward_ctx *s, sn_tensor states,
                            sn_tensor seen) {
    (void)seen; /* what was seen earlier is in the caches of keys and values */
    sn_tensor qs = sn_nn_linear(states, "W_Q", g->d_head, 0);
    sn_tensor ks = sn_nn_linear(states, "W_K", g->d_head, 0);
    sn_tensor vs = sn_nn_linear(states, "W_V", g->d_head, 0);
    ks = sn_append_kv(s, ks, "k_cache");
    vs = sn_append_kv(s, vs, "v_cache");
    /* each position may attend to itself and any earlier one */
    sn_tensor scores = sn_name(sn_matmul(qs, sn_swap(ks, -1, -2)), "scores");
    scores = sn_mask_scores(scores, tse_mask(s, sn_dim_of(ks, 1)));
    sn_tensor pattern = sn_name(sn_softmax(scores, -1), "pattern");
    sn_name(sn_expand(pattern, 1), "attention");
    sn_tensor values = sn_matmul(sn_forward_dropout(s, pattern), vs);
    return sn_name(sn_nn_linear(values, "W_O", g->d_model, 0), "update");
}

/* AttnLayer::apply: the sum of the heads' updates */
static sn_tensor apply_heads(const tse *g, const sn_forward_ctx *s, sn_tensor states) {
    sn_tensor updates = NULL;
    sn_tensor seen = g->keeps_states ? sn_append_kv(s, states, "attn.state_cache") : states;
    for (int h = 0; h < g->n_heads; h++) {
        sn_scope_push(s->m, "attn.heads.%d", h);
        sn_tensor update = g->head(g, s, states, seen);
        updates = updates ? sn_add(updates, update) : update;
        sn_scope_pop(s->m);
    }
    return updates;
}

/* MLPLayer::apply: each neuron queries the state, and writes its vector that many times */
static sn_tensor apply_neurons(const tse *g, sn_tensor states) {
    sn_module *m = sn_module_of(states);
    sn_tensor read = sn_param(m, "mlps.read", SN_F32, g->d_mlp, g->d_model);
    sn_tensor write = sn_param(m, "mlps.write", SN_F32, g->d_mlp, g->d_model);
    sn_tensor pre_act = sn_name(sn_linear(states, read, NULL), "pre_act");
    sn_tensor post_act = sn_name(g->nonlinear(SN_HERE, pre_act), "post_act");
    return sn_matmul(post_act, write);
}

/* Transformer::apply, up to the unembedding */
static sn_tensor layers(const void *config, const sn_forward_ctx *s) {
    const tse *g = config;
    sn_tensor states = sn_nn_embedding(s->tokens, "embedding", g->n_vocab, g->d_model);
    sn_record_hidden(s, 0, states);
    for (int l = 0; l < g->n_layers; l++) {
        sn_scope_push(s->m, "layers.%d", l);
        states =
            sn_name(sn_add(states, sn_forward_dropout(s, apply_heads(g, s, states))), "after_attn");
        states =
            sn_name(sn_add(states, sn_forward_dropout(s, apply_neurons(g, states))), "after_mlp");
        sn_scope_pop(s->m);
        sn_record_hidden(s, l + 1, sn_name(states, "block%d", l));
    }
    return states;
}

/* Unembedding::apply: every vocabulary element queries the state */
static sn_tensor unembed(const void *config, sn_tensor states) {
    const tse *g = config;
    return sn_nn_linear(states, "unembedding", g->n_vocab, 0);
}

void tse_build(const tse *g, sn_config *c, const sn_model_options *o, sn_model *out) {
    out->vocab = g->n_vocab, out->context = g->n_ctx;
    out->layers = g->n_layers, out->heads = g->n_heads, out->d_model = g->d_model;
    if (!sn_config_check(c, NULL)) return;
    sn_decoder d = {g, layers, unembed, o->context ? o->context : g->n_ctx, g->n_layers};
    sn_decoder_entries(out->module, &d, o);
}

void sn_tse_gpt_build(sn_config *c, const sn_model_options *o, sn_model *out) {
    tse g = tse_read(c);
    tse_build(&g, c, o, out);
}
