/* bert.c: BERT, the encoder-only transformer of [PH22 A9]. Config keys and parameter names are
 * Hugging Face's; its segment embedding, its norm after the embeddings and its output bias are
 * kept, since trained weights have them. */
#include "frontend/models.h"

typedef struct bert {
    int64_t vocab, context, types, layers, heads, d, d_mlp;
    int64_t labels; /* of a classifier; 0: masked language model */
    double eps;
    const char *prefix;
    bool
        gamma; /* norms' parameters are named gamma and beta, as the first published weights have */
    const sn_training *training; /* of the entry that is being built; NULL: none */
} bert;

static bert read_config(sn_config *c, const sn_model_options *o) {
    static const char *const acts[] = {"gelu", NULL};
    bert g = {.vocab = sn_config_int(c, "vocab_size", 1, 1 << 24),
              .context = sn_config_int(c, "max_position_embeddings", 1, 1 << 24),
              .types = sn_config_int_or(c, "type_vocab_size", 2, 1, 1 << 16),
              .layers = sn_config_int(c, "num_hidden_layers", 1, 1 << 12),
              .heads = sn_config_int(c, "num_attention_heads", 1, 1 << 12),
              .d = sn_config_int(c, "hidden_size", 1, 1 << 20),
              .d_mlp = sn_config_int(c, "intermediate_size", 1, 1 << 22),
              .eps = sn_config_float_or(c, "layer_norm_eps", 1e-12, 0, 1)};
    sn_config_choice_or(c, "hidden_act", acts, 0);
    sn_config_divides(c, "num_attention_heads", g.heads, "hidden_size", g.d);
    const sn_weight *w = o->weights ? sn_weights_find(o->weights, "classifier.weight") : NULL;
    g.labels = sn_config_int_or(c, "num_labels", w && w->rank == 2 ? w->shape[0] : 0, 0, 1 << 24);
    bool bare = !o->weights || sn_weights_find(o->weights, "embeddings.word_embeddings.weight");
    g.prefix = bare ? "" : "bert.";
    char name[64];
    snprintf(name, sizeof name, "%sembeddings.LayerNorm.gamma", g.prefix);
    g.gamma = o->weights && sn_weights_find(o->weights, name);
    return g;
}

/* Keys beyond a sequence's length are padding: nobody sees them. */
static sn_tensor inside(const sn_score_ctx *c) {
    return sn_lt(c->k, sn_at(c->captured[0], c->b));
}

static sn_tensor drop(const bert *g, sn_tensor x) {
    return sn_training_dropout(x, g->training);
}

static sn_tensor norm(const bert *g, sn_tensor x, const char *name) {
    if (!g->gamma) return sn_nn_layer_norm(x, name, g->eps);
    sn_module *m = sn_module_of(x);
    sn_scope_push(m, "%s", name);
    sn_tensor gamma = sn_param(m, "gamma", SN_F32, g->d), beta = sn_param(m, "beta", SN_F32, g->d);
    sn_scope_pop(m);
    return sn_layer_norm(x, gamma, beta, g->eps);
}

/* A5 on X alone, Mask = 1 on what is no padding */
static sn_tensor attend(const bert *g, sn_tensor x, sn_tensor lengths) {
    sn_tensor q = sn_split_heads(sn_nn_linear(x, "self.query", g->d, SN_BIAS), g->heads);
    sn_tensor k = sn_split_heads(sn_nn_linear(x, "self.key", g->d, SN_BIAS), g->heads);
    sn_tensor v = sn_split_heads(sn_nn_linear(x, "self.value", g->d, SN_BIAS), g->heads);
    sn_tensor y = sn_model_attention(g->training, q, k, v, .mask = inside, .captured = {lengths});
    return sn_nn_linear(sn_merge_heads(y), "output.dense", g->d, SN_BIAS);
}

/* X after the last layer [B, T, d] */
static sn_tensor encode(const bert *g, sn_module *m, sn_dim B, sn_dim T) {
    sn_tensor tokens = sn_input(m, "tokens", SN_I32, B, T),
              types = sn_input(m, "types", SN_I32, B, T);
    sn_tensor lengths = sn_input(m, "lengths", SN_I32, B);
    sn_scope_params(m, g->prefix);
    sn_scope_push(m, "embeddings");
    sn_tensor x = sn_nn_embedding(tokens, "word_embeddings", g->vocab, g->d); /* lines 2, 3 */
    x = sn_add(x,
               sn_nn_embedding(sn_arange(m, SN_I32, T), "position_embeddings", g->context, g->d));
    x = sn_add(x, sn_nn_embedding(types, "token_type_embeddings", g->types, g->d));
    x = drop(g, norm(g, x, "LayerNorm"));
    sn_scope_pop(m);
    for (int l = 0; l < g->layers; l++) { /* line 4 */
        sn_scope_push(m, "encoder.layer.%d", l);
        sn_scope_push(m, "attention");
        x = sn_add(x, drop(g, attend(g, x, lengths))); /* line 5 */
        x = norm(g, x, "output.LayerNorm");            /* line 6 */
        sn_scope_pop(m);
        sn_tensor h = sn_gelu(sn_nn_linear(x, "intermediate.dense", g->d_mlp, SN_BIAS));
        h = drop(g, sn_nn_linear(h, "output.dense", g->d, SN_BIAS));
        x = sn_add(x, h);                   /* line 7 */
        x = norm(g, x, "output.LayerNorm"); /* line 8 */
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

/* The classification head: the first token's state decides [PH22 section 3] */
static sn_tensor classify(const bert *g, sn_module *m, sn_tensor x) {
    sn_scope_params(m, g->prefix);
    x = sn_tanh(sn_nn_linear(sn_index(x, 1, 0), "pooler.dense", g->d, SN_BIAS));
    sn_scope_params(m, "");
    return sn_nn_linear(sn_training_dropout(x, g->training), "classifier", g->labels, SN_BIAS);
}

/* [B, T, V], or [B, labels] of a classifier */
static sn_tensor logits_of(const bert *g, sn_module *m, sn_dim B, sn_dim T) {
    sn_tensor x = encode(g, m, B, T);
    return g->labels ? classify(g, m, x) : unembed(g, m, x);
}

sn_tensor sn_sentence_embedding(sn_tensor hidden, sn_tensor lengths) {
    sn_module *m = sn_module_of(hidden);
    sn_dim B = sn_dim_of(hidden, 0), T = sn_dim_of(hidden, 1);
    sn_tensor inside = sn_lt(sn_arange(m, SN_I32, T), sn_expand(lengths, 1)); /* [B, T] */
    sn_tensor x = sn_where(sn_reshape(inside, B, T, 1), hidden, 0.0);
    x = sn_div(sn_sum(x, 1), sn_cast(sn_expand(lengths, 1), SN_F32));
    return sn_div(x, sn_max(sn_sqrt(sn_sum_keep(sn_square(x), -1)), 1e-12));
}

void sn_bert_build(sn_config *c, const sn_model_options *o, sn_model *out) {
    bert g = read_config(c, o);
    out->vocab = g.vocab, out->context = g.context, out->labels = g.labels;
    out->layers = g.layers, out->heads = g.heads, out->d_model = g.d;
    if (!sn_config_check(c, NULL)) return;
    sn_module *m = out->module;
    sn_dim B = sn_symbol(m, "B", 1, o->max_batch),
           T = sn_symbol(m, "T", 1, o->context ? o->context : g.context);
    bool head = !o->weights || g.labels || sn_weights_find(o->weights, "cls.predictions.bias");
    if (o->entries & SN_ENCODE) {
        sn_entry_begin(m, "encode");
        sn_output("hidden", encode(&g, m, B, T));
    }
    if (o->entries & SN_EMBED) {
        sn_entry_begin(m, "embed");
        sn_tensor lengths = sn_input(m, "lengths", SN_I32, B);
        sn_output("embedding", sn_sentence_embedding(encode(&g, m, B, T), lengths));
    }
    if (head && o->entries & (SN_FORWARD | (g.labels ? SN_CLASSIFY : 0))) {
        sn_entry_begin(m, "forward");
        sn_output("logits", logits_of(&g, m, B, T));
    }
    if (head && o->entries & SN_LOSS) { /* A12 line 9: positions that are not masked have a target
                                           outside the vocabulary */
        sn_entry_begin(m, "loss");
        sn_tensor targets =
            g.labels ? sn_input(m, "targets", SN_I32, B) : sn_input(m, "targets", SN_I32, B, T);
        sn_output("loss", sn_cross_entropy(logits_of(&g, m, B, T), targets));
    }
    if (head && o->entries & SN_TRAIN) {
        g.training = o->training;
        sn_training_begin(m, o->training);
        sn_training_end(logits_of(&g, m, B, T), o->training);
    }
}
