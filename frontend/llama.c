/* llama.c: the Llama family: [PH22 A10] with RMSnorm, rotary positions on q and k [TSE], grouped
 * key heads, and a gated MLP (SwiGLU, Shazeer 2020); no biases. Line numbers are A10's.
 * Config keys and parameter names are Hugging Face's. */
#include "frontend/models.h"

typedef struct llama {
    int64_t vocab, context, layers, heads, key_heads, d, d_head, d_mlp;
    double eps, base;
    bool tied, halves;
    int attention;      /* flags of attention's linear layers */
    const char *prefix; /* of all parameters but lm_head */
} llama;

static llama read_config(sn_config *c, const sn_model_options *o) {
    static const char *const acts[] = {"silu", NULL};
    llama g = {.vocab = sn_config_int(c, "vocab_size", 1, 1 << 24),
               .context = sn_config_int(c, "max_position_embeddings", 1, 1 << 24),
               .layers = sn_config_int(c, "num_hidden_layers", 1, 1 << 12),
               .heads = sn_config_int(c, "num_attention_heads", 1, 1 << 12),
               .d = sn_config_int(c, "hidden_size", 1, 1 << 20),
               .d_mlp = sn_config_int(c, "intermediate_size", 1, 1 << 22),
               .eps = sn_config_float_or(c, "rms_norm_eps", 1e-6, 0, 1),
               .base = sn_config_float_or(c, "rope_theta", 10000, 1, 1e12),
               .tied = sn_config_bool_or(c, "tie_word_embeddings", false),
               .halves = !sn_config_bool_or(c, "rope_interleaved", false)};
    g.key_heads = sn_config_int_or(c, "num_key_value_heads", g.heads, 1, 1 << 12);
    g.d_head = sn_config_int_or(c, "head_dim", g.d / g.heads, 1, 1 << 16);
    sn_config_choice_or(c, "hidden_act", acts, 0);
    sn_config_divides(c, "num_key_value_heads", g.key_heads, "num_attention_heads", g.heads);
    if (!sn_config_has(c, "head_dim"))
        sn_config_divides(c, "num_attention_heads", g.heads, "hidden_size", g.d);
    if (g.d_head % 2) sn_config_problem(c, "heads of odd width %lld", (long long)g.d_head);
    if (sn_config_has(c, "rope_scaling")) sn_config_problem(c, "\"rope_scaling\" is not supported");
    g.attention = sn_config_bool_or(c, "attention_bias", false) ? SN_BIAS : 0;
    if (sn_config_bool_or(c, "mlp_bias", false))
        sn_config_problem(c, "\"mlp_bias\" is not supported");
    bool bare = o->weights && sn_weights_find(o->weights, "embed_tokens.weight");
    g.prefix = bare ? "" : "model.";
    return g;
}

static sn_tensor rotate(const llama *g, const sn_forward_ctx *s, sn_tensor x) {
    return sn_rope(x, s->pos, .base = g->base, .halves = g->halves);
}

static sn_tensor attend(const llama *g, const sn_forward_ctx *s, sn_tensor x) {
    sn_tensor q = sn_nn_linear(x, "self_attn.q_proj", g->heads * g->d_head, g->attention);
    sn_tensor k = sn_nn_linear(x, "self_attn.k_proj", g->key_heads * g->d_head, g->attention);
    sn_tensor v = sn_nn_linear(x, "self_attn.v_proj", g->key_heads * g->d_head, g->attention);
    q = sn_name(rotate(g, s, sn_split_heads(q, g->heads)), "q");
    k = sn_name(rotate(g, s, sn_split_heads(k, g->key_heads)), "k");
    v = sn_name(sn_split_heads(v, g->key_heads), "v");
    k = sn_append_kv(s, k, "k_cache");
    v = sn_append_kv(s, v, "v_cache");
    sn_tensor y = sn_name(sn_merge_heads(sn_forward_attention(s, q, k, v, .causal = true)), "y");
    return sn_nn_linear(y, "self_attn.o_proj", g->d, g->attention);
}

static sn_tensor feed_forward(const llama *g, sn_tensor x) {
    sn_module *m = sn_module_of(x);
    sn_tensor gate = sn_param(m, "mlp.gate_proj.weight", SN_F32, g->d_mlp, g->d);
    sn_tensor up = sn_param(m, "mlp.up_proj.weight", SN_F32, g->d_mlp, g->d);
    sn_tensor down = sn_param(m, "mlp.down_proj.weight", SN_F32, g->d, g->d_mlp);
    return sn_swiglu(x, gate, up, down);
}

static sn_tensor layers(const void *config, const sn_forward_ctx *s) {
    const llama *g = config;
    sn_scope_params(s->m, g->prefix);
    sn_tensor x = sn_nn_embedding(s->tokens, "embed_tokens", g->vocab, g->d); /* lines 2, 3 */
    x = sn_forward_dropout(s, sn_name(x, "tok_emb"));
    sn_record_hidden(s, 0, x);
    for (int l = 0; l < g->layers; l++) { /* line 4 */
        sn_scope_push(s->m, "layers.%d", l);
        sn_tensor n = sn_nn_rms_norm(x, "input_layernorm", g->eps);                    /* line 5 */
        x = sn_name(sn_add(x, sn_forward_dropout(s, attend(g, s, n))), "attnResid");   /* line 6 */
        n = sn_nn_rms_norm(x, "post_attention_layernorm", g->eps);                     /* line 7 */
        x = sn_name(sn_add(x, sn_forward_dropout(s, feed_forward(g, n))), "mlpResid"); /* line 8 */
        sn_scope_pop(s->m);
        sn_record_hidden(s, l + 1, sn_name(x, "block%d", l));
    }
    return x;
}

static sn_tensor unembed(const void *config, sn_tensor x) {
    const llama *g = config;
    sn_module *m = sn_module_of(x);
    sn_scope_params(m, g->prefix);
    x = sn_name(sn_nn_rms_norm(x, "norm", g->eps), "norm"); /* line 10 */
    if (!g->tied) sn_scope_params(m, "");
    const char *name = g->tied ? "embed_tokens.weight" : "lm_head.weight";
    sn_tensor logits = sn_linear(x, sn_param(m, name, SN_F32, g->vocab, g->d), NULL);
    sn_name(sn_softmax(logits, -1), "probs"); /* line 11 */
    return sn_name(logits, "lm_head");
}

void sn_llama_build(sn_config *c, const sn_model_options *o, sn_model *out) {
    llama g = read_config(c, o);
    out->vocab = g.vocab, out->context = g.context;
    out->layers = g.layers, out->heads = g.heads, out->d_model = g.d;
    if (!sn_config_check(c, NULL)) return;
    sn_decoder d = {&g, layers, unembed, o->context ? o->context : g.context, g.layers};
    sn_decoder_entries(out->module, &d, o);
}
