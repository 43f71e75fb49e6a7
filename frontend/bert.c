/* bert.c: BERT, the encoder-only transformer of [PH22 A9]. Config keys and parameter names are
 * Hugging Face's; its segment embedding, its norm after the embeddings and its output bias are
 * kept, since trained weights have them. */
#include "frontend/keys.h"
#include "frontend/models.h"

typedef struct bert {
    int64_t vocab, context, types, layers, heads, d, d_mlp;
    int64_t labels; /* of a classifier; 0: masked language model */
    double eps;
    int act;
    const char *prefix;
    bool gamma; /* parameters of norms are gamma and beta, as in the first published weights */
} bert;

static const char *const acts[] = {"gelu", NULL};
static const config_key keys[] = {INT_KEY(bert, vocab, "vocab_size", 1, 1 << 24),
                                  INT_KEY(bert, context, "max_position_embeddings", 1, 1 << 24),
                                  INT_KEY_OR(bert, types, "type_vocab_size", 2, 1, 1 << 16),
                                  INT_KEY(bert, layers, "num_hidden_layers", 1, 1 << 12),
                                  INT_KEY(bert, heads, "num_attention_heads", 1, 1 << 12),
                                  INT_KEY(bert, d, "hidden_size", 1, 1 << 20),
                                  INT_KEY(bert, d_mlp, "intermediate_size", 1, 1 << 22),
                                  FLOAT_KEY_OR(bert, eps, "layer_norm_eps", 1e-12, 0, 1),
                                  CHOICE_KEY_OR(bert, act, "hidden_act", acts, 0),
                                  END_KEYS};

static bert read_config(sn_config *c, const sn_weights *w) {
    bert g = {0};
    config_read(c, keys, &g);
    sn_config_divides(c, "num_attention_heads", g.heads, "hidden_size", g.d);
    const sn_weight *head = w ? sn_weights_find(w, "classifier.weight") : NULL;
    int64_t labels = head && head->rank == 2 ? head->shape[0] : 0;
    g.labels = sn_config_int_or(c, "num_labels", labels, 0, 1 << 24);
    g.prefix = !w || sn_weights_find(w, "embeddings.word_embeddings.weight") ? "" : "bert.";
    g.gamma = w && (sn_weights_find(w, "embeddings.LayerNorm.gamma") ||
                    sn_weights_find(w, "bert.embeddings.LayerNorm.gamma"));
    return g;
}

static sn_tensor norm(const bert *g, sn_tensor x, const char *name) {
    if (!g->gamma) return sn_nn_layer_norm(x, name, g->eps);
    sn_module *m = sn_module_of(x);
    sn_scope_push(m, "%s", name);
    sn_tensor gamma = sn_param(m, "gamma", SN_F32, g->d), beta = sn_param(m, "beta", SN_F32, g->d);
    sn_scope_pop(m);
    return sn_layer_norm(x, gamma, beta, g->eps);
}

/* A5 with Z = X; Mask hides the padding */
static sn_tensor attend(const bert *g, const sn_training *t, sn_tensor x, sn_tensor lengths) {
    sn_tensor q = sn_split_heads(sn_nn_linear(x, "self.query", g->d, SN_BIAS), g->heads);
    sn_tensor k = sn_split_heads(sn_nn_linear(x, "self.key", g->d, SN_BIAS), g->heads);
    sn_tensor v = sn_split_heads(sn_nn_linear(x, "self.value", g->d, SN_BIAS), g->heads);
    sn_tensor y = sn_merge_heads(sn_padded_attention(t, lengths, q, k, v));
    return sn_nn_linear(y, "output.dense", g->d, SN_BIAS);
}

/* X after the last layer [B, T, d] */
static sn_tensor encode(const void *config, const sn_forward_ctx *s) {
    const bert *g = config;
    sn_module *m = s->m;
    sn_tensor tokens = sn_input(m, "tokens", SN_I32, s->B, s->T),
              types = sn_input(m, "types", SN_I32, s->B, s->T),
              lengths = sn_input(m, "lengths", SN_I32, s->B), pos = sn_arange(m, SN_I32, s->T);
    sn_scope_params(m, g->prefix);
    sn_scope_push(m, "embeddings");
    sn_tensor x = sn_nn_embedding(tokens, "word_embeddings", g->vocab, g->d); /* lines 2, 3 */
    x = sn_add(x, sn_nn_embedding(pos, "position_embeddings", g->context, g->d));
    x = sn_add(x, sn_nn_embedding(types, "token_type_embeddings", g->types, g->d));
    x = sn_forward_dropout(s, norm(g, x, "LayerNorm"));
    sn_scope_pop(m);
    for (int l = 0; l < g->layers; l++) { /* line 4 */
        sn_scope_push(m, "encoder.layer.%d", l);
        sn_scope_push(m, "attention");
        sn_tensor y = sn_forward_dropout(s, attend(g, s->training, x, lengths));
        x = norm(g, sn_add(x, y), "output.LayerNorm"); /* lines 5, 6 */
        sn_scope_pop(m);
        y = sn_gelu(sn_nn_linear(x, "intermediate.dense", g->d_mlp, SN_BIAS));
        y = sn_forward_dropout(s, sn_nn_linear(y, "output.dense", g->d, SN_BIAS));
        x = norm(g, sn_add(x, y), "output.LayerNorm"); /* lines 7, 8 */
        sn_scope_pop(m);
        sn_name(x, "block%d", l);
    }
    return x;
}

/* Lines 10 to 12 without the softmax: logits of every position */
static sn_tensor unembed(const bert *g, sn_module *m, sn_tensor x) {
    sn_scope_params(m, "");
    sn_scope_push(m, "cls.predictions");
    x = sn_gelu(sn_nn_linear(x, "transform.dense", g->d, SN_BIAS)); /* line 10 */
    x = norm(g, x, "transform.LayerNorm");                          /* line 11 */
    sn_tensor bias = sn_param(m, "bias", SN_F32, g->vocab);
    sn_scope_pop(m);
    sn_scope_params(m, g->prefix);
    sn_tensor w = sn_param(m, "embeddings.word_embeddings.weight", SN_F32, g->vocab, g->d);
    return sn_linear(x, w, bias); /* line 12 */
}

/* [B, T, V], or [B, labels] of a classifier: the first token's state decides [PH22 section 3] */
static sn_tensor logits(const void *config, const sn_forward_ctx *s) {
    const bert *g = config;
    sn_tensor x = encode(g, s);
    if (!g->labels) return unembed(g, s->m, x);
    sn_scope_params(s->m, g->prefix);
    x = sn_tanh(sn_nn_linear(sn_index(x, 1, 0), "pooler.dense", g->d, SN_BIAS));
    sn_scope_params(s->m, "");
    return sn_nn_linear(sn_forward_dropout(s, x), "classifier", g->labels, SN_BIAS);
}

void sn_bert_build(sn_config *c, const sn_model_options *o, sn_model *out) {
    bert g = read_config(c, o->weights);
    out->vocab = g.vocab, out->context = g.context, out->labels = g.labels;
    out->layers = g.layers, out->heads = g.heads, out->d_model = g.d;
    if (!sn_config_check(c, NULL)) return;
    bool head = !o->weights || g.labels || sn_weights_find(o->weights, "cls.predictions.bias");
    sn_encoder e = {&g, encode, head ? logits : NULL, g.context, true, g.labels ? SN_CLASSIFY : 0};
    sn_encoder_entries(out->module, &e, o);
}
