/* edt.c: the encoder-decoder transformer of [PH22 A8], as Vaswani et al. published it in 2017:
 * norms after the residuals, ReLU, learned or sinusoidal positions. Parameter names are our own;
 * config keys are those of the Marian models where there are some. */
#include "frontend/models.h"

typedef struct edt {
    int64_t vocab, context, layers_enc, layers_dec, heads, d, d_mlp;
    double eps;
    bool sinusoid, tied;
    const sn_training *training; /* of the entry that is being built; NULL: none */
} edt;

static edt read_config(sn_config *c) {
    static const char *const positions[] = {"learned", "sinusoid", NULL};
    edt g = {.vocab = sn_config_int(c, "vocab_size", 1, 1 << 24),
             .context = sn_config_int(c, "max_position_embeddings", 1, 1 << 24),
             .layers_enc = sn_config_int(c, "encoder_layers", 1, 1 << 12),
             .layers_dec = sn_config_int(c, "decoder_layers", 1, 1 << 12),
             .heads = sn_config_int(c, "attention_heads", 1, 1 << 12),
             .d = sn_config_int(c, "d_model", 1, 1 << 20),
             .d_mlp = sn_config_int(c, "ffn_dim", 1, 1 << 22),
             .eps = sn_config_float_or(c, "layer_norm_eps", 1e-5, 0, 1),
             .sinusoid = sn_config_choice_or(c, "positions", positions, 0) == 1,
             .tied = sn_config_bool_or(c, "tie_word_embeddings", true)};
    if (g.d % g.heads)
        sn_config_problem(c, "\"attention_heads\" = %lld does not divide \"d_model\" = %lld",
                          (long long)g.heads, (long long)g.d);
    return g;
}

static sn_tensor inside(const sn_score_ctx *c) {
    return sn_lt(c->k, sn_at(c->captured[0], c->b));
}

/* A5: MHAttention(X, Z). lengths: Mask hides the padding of Z; causal: Mask[t, t'] = [[t <= t']] */
static sn_tensor attend(const edt *g, const char *name, sn_tensor x, sn_tensor z, sn_tensor lengths,
                        bool causal) {
    sn_module *m = sn_module_of(x);
    sn_scope_push(m, "%s", name);
    sn_tensor q = sn_split_heads(sn_nn_linear(x, "q", g->d, SN_BIAS), g->heads);
    sn_tensor k = sn_split_heads(sn_nn_linear(z, "k", g->d, SN_BIAS), g->heads);
    sn_tensor v = sn_split_heads(sn_nn_linear(z, "v", g->d, SN_BIAS), g->heads);
    sn_tensor y = causal ? sn_model_attention(q, k, v, .causal = true)
                         : sn_model_attention(q, k, v, .mask = inside, .captured = {lengths});
    y = sn_nn_linear(sn_merge_heads(y), "out", g->d, SN_BIAS);
    sn_scope_pop(m);
    return y;
}

static sn_tensor feed_forward(const edt *g, sn_tensor x) {
    return sn_nn_linear(sn_relu(sn_nn_linear(x, "mlp1", g->d_mlp, SN_BIAS)), "mlp2", g->d, SN_BIAS);
}

static sn_tensor drop(const edt *g, sn_tensor x) {
    return sn_training_dropout(x, g->training);
}

static sn_tensor embed(const edt *g, sn_tensor tokens, sn_dim T) {
    sn_module *m = sn_module_of(tokens);
    sn_tensor pos = sn_arange(m, SN_I32, T),
              e = sn_nn_embedding(tokens, "embed_tokens", g->vocab, g->d);
    return sn_add(e, g->sinusoid ? sn_sinusoid(pos, g->d, (double)g->context, false)
                                 : sn_nn_embedding(pos, "embed_positions", g->context, g->d));
}

static sn_tensor encode(const edt *g, sn_tensor source, sn_tensor lengths, sn_dim S) {
    sn_module *m = sn_module_of(source);
    sn_tensor z = drop(g, embed(g, source, S)); /* lines 1 to 3 */
    for (int l = 0; l < g->layers_enc; l++) {
        sn_scope_push(m, "encoder.%d", l);
        z = sn_nn_layer_norm(sn_add(z, drop(g, attend(g, "attn", z, z, lengths, false))), "norm1",
                             g->eps); /* lines 5, 6 */
        z = sn_nn_layer_norm(sn_add(z, drop(g, feed_forward(g, z))), "norm2",
                             g->eps); /* lines 7, 8 */
        sn_scope_pop(m);
    }
    return sn_name(z, "encoded");
}

static sn_tensor decode(const edt *g, sn_tensor tokens, sn_tensor z, sn_tensor lengths, sn_dim T) {
    sn_module *m = sn_module_of(tokens);
    sn_tensor x = drop(g, embed(g, tokens, T)); /* lines 10 to 12 */
    for (int l = 0; l < g->layers_dec; l++) {
        sn_scope_push(m, "decoder.%d", l);
        x = sn_nn_layer_norm(sn_add(x, drop(g, attend(g, "attn", x, x, NULL, true))), "norm3",
                             g->eps); /* lines 14, 15 */
        x = sn_nn_layer_norm(sn_add(x, drop(g, attend(g, "cross", x, z, lengths, false))), "norm4",
                             g->eps); /* lines 16, 17 */
        x = sn_nn_layer_norm(sn_add(x, drop(g, feed_forward(g, x))), "norm5",
                             g->eps); /* lines 18, 19 */
        sn_scope_pop(m);
    }
    sn_tensor w =
        sn_param(m, g->tied ? "embed_tokens.weight" : "lm_head.weight", SN_F32, g->vocab, g->d);
    return sn_linear(x, w, NULL); /* line 21 without the softmax */
}

void sn_edt_build(sn_config *c, const sn_model_options *o, sn_model *out) {
    edt g = read_config(c);
    out->vocab = g.vocab, out->context = g.context;
    out->layers = g.layers_enc + g.layers_dec, out->heads = g.heads, out->d_model = g.d;
    if (!sn_config_check(c, NULL)) return;
    sn_module *m = out->module;
    int64_t most = o->context ? o->context : g.context;
    sn_dim B = sn_symbol(m, "B", 1, o->max_batch), S = sn_symbol(m, "S", 1, most),
           T = sn_symbol(m, "T", 1, most);
    sn_tensor source = sn_input(m, "source", SN_I32, B, S),
              lengths = sn_input(m, "lengths", SN_I32, B);
    sn_tensor tokens = sn_input(m, "tokens", SN_I32, B, T);
    if (o->entries & SN_ENCODE) {
        sn_entry_begin(m, "encode");
        sn_output("hidden", encode(&g, source, lengths, S));
    }
    if (o->entries & SN_FORWARD) {
        sn_entry_begin(m, "forward");
        sn_output("logits", decode(&g, tokens, encode(&g, source, lengths, S), lengths, T));
    }
    if (o->entries & SN_LOSS) { /* A11 line 4 */
        sn_entry_begin(m, "loss");
        sn_tensor logits = decode(&g, tokens, encode(&g, source, lengths, S), lengths, T);
        sn_output("loss", sn_cross_entropy(logits, sn_input(m, "targets", SN_I32, B, T)));
    }
    if (o->entries & SN_TRAIN) { /* A11 */
        g.training = o->training;
        sn_training_begin(m, o->training);
        sn_training_end(decode(&g, tokens, encode(&g, source, lengths, S), lengths, T),
                        o->training);
    }
}
