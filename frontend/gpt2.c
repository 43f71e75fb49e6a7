/* gpt2.c: GPT-2, the decoder-only transformer of [PH22 A10], line by line; also the frame that its
 * relatives fill (decoder.h). Attention is written in plain operations [PH22 A4, A5], so that every
 * tensor in it has a name; compiling raises it. Config keys and names are Hugging Face's. */
#include "frontend/decoder.h"
#include "frontend/front.h"
#include "frontend/keys.h"

#include <math.h>

static const char *const layouts[] = {"in_out", "out_in", NULL};
static const char *const names[] = {"gelu_new", "gelu_pytorch_tanh", "gelu", "relu", NULL};
static sn_tensor (*const acts[])(sn_loc, sn_tensor) = {sn_gelu_tanh_at, sn_gelu_tanh_at, sn_gelu_at,
                                                       sn_relu_at};
static const config_key keys[] = {INT_KEY(decoder, vocab, "vocab_size", 1, 1 << 24),
                                  INT_KEY(decoder, context, "n_positions", 1, 1 << 24),
                                  INT_KEY(decoder, layers, "n_layer", 1, 1 << 12),
                                  INT_KEY(decoder, heads, "n_head", 1, 1 << 12),
                                  INT_KEY(decoder, d, "n_embd", 1, 1 << 20),
                                  INT_KEY_OR(decoder, d_mlp, "n_inner", 0, 1, 1 << 22),
                                  FLOAT_KEY_OR(decoder, eps, "layer_norm_epsilon", 1e-5, 0, 1),
                                  BOOL_KEY_OR(decoder, tied, "tie_word_embeddings", true),
                                  END_KEYS};

decoder decoder_read(sn_config *c, const sn_model_options *o) {
    decoder g = {.embed = gpt2_embed, .norm = gpt2_norm, .attend = gpt2_attend};
    config_read(c, keys, &g);
    g.act = acts[sn_config_choice_or(c, "activation_function", names, 0)];
    if (!g.d_mlp) g.d_mlp = 4 * g.d;
    sn_config_divides(c, "n_head", g.heads, "n_embd", g.d);
    bool in_out = sn_config_choice_or(c, "linear_layout", layouts, 0) == 0;
    g.linear = SN_BIAS | (in_out ? SN_IN_OUT : 0);
    bool bare = !o->weights || sn_weights_find(o->weights, "wte.weight");
    g.prefix = bare ? "" : "transformer.";
    return g;
}

sn_tensor decoder_qkv(const decoder *g, sn_tensor x) {
    const int64_t parts[] = {g->d, g->d, g->d};
    front_divides(sn_module_of(x), "heads", g->heads);
    return front_linear(SN_HERE, x, "attn.c_attn", g->linear | SN_COLUMNS, 3, parts);
}

/* A5 on X alone, all heads at once; A4 lines 1 to 3 are one product */
sn_tensor gpt2_attend(const decoder *g, const sn_forward_ctx *s, sn_tensor x, int layer) {
    (void)layer;
    sn_tensor part[3];
    sn_split(sn_name(decoder_qkv(g, x), "qkv"), 2, 3, part);
    sn_tensor q = sn_name(sn_split_heads(part[0], g->heads), "q");
    sn_tensor k = sn_name(sn_split_heads(part[1], g->heads), "k");
    sn_tensor v = sn_name(sn_split_heads(part[2], g->heads), "v");
    k = sn_append_kv(s, k, "k_cache");
    v = sn_append_kv(s, v, "v_cache");

    if (s->ranks > 1) { /* keys are sharded over the ranks */
        sn_tensor all = sn_forward_attention(s, q, k, v, .causal = true, .window = g->window);
        return sn_nn_linear(sn_merge_heads(all), "attn.c_proj", g->d, g->linear | SN_ROWS);
    }
    sn_tensor mask = sn_forward_mask(s, sn_dim_of(k, 2), g->window);
    sn_tensor att = sn_matmul(q, sn_swap(k, -1, -2)); /* A4 line 4 */
    att = sn_mul(att, 1 / sqrt((double)(g->d / g->heads)));
    att = sn_name(sn_mask_scores(att, mask), "att"); /* A4 line 5 */
    att = sn_name(sn_softmax(att, -1), "attSm");     /* A4 line 6 */
    sn_name(att, "attention");                       /* A4's alpha */
    att = sn_forward_dropout(s, att);
    sn_tensor y = sn_name(sn_merge_heads(sn_matmul(att, v)), "y"); /* A5 line 3 */
    return sn_name(sn_nn_linear(y, "attn.c_proj", g->d, g->linear | SN_ROWS),
                   "yProj"); /* A5 line 4 */
}

sn_tensor gpt2_embed(const decoder *g, const sn_forward_ctx *s) {
    sn_tensor e = sn_name(front_vocabulary(SN_HERE, s->tokens, "wte", g->vocab, g->d), "tok_emb");
    sn_tensor p = sn_nn_embedding(s->pos, "wpe", g->context, g->d);
    return sn_add(e, sn_name(s->each ? p : sn_expand(p, 0), "pos_emb"));
}

sn_tensor gpt2_norm(const decoder *g, sn_tensor x, const char *name) {
    return sn_nn_layer_norm(x, name, g->eps);
}

static sn_tensor feed_forward(const decoder *g, sn_tensor x) {
    sn_tensor h = sn_name(sn_nn_linear(x, "mlp.c_fc", g->d_mlp, g->linear | SN_COLUMNS), "fc");
    h = sn_name(g->act(SN_HERE, h), "gelu");
    return sn_name(sn_nn_linear(h, "mlp.c_proj", g->d, g->linear | SN_ROWS), "mlp");
}

sn_tensor decoder_layers(const void *config, const sn_forward_ctx *s) {
    const decoder *g = config;
    sn_module *m = s->m;
    sn_scope_params(m, g->prefix);
    sn_tensor x = sn_forward_dropout(s, sn_name(g->embed(g, s), "x")); /* lines 2, 3 */
    sn_record_hidden(s, 0, x);
    for (int l = 0; l < g->layers; l++) { /* line 4 */
        sn_scope_push(m, "h.%d", l);
        sn_tensor n = sn_name(g->norm(g, x, "ln_1"), "ln1"); /* line 5 */
        x = sn_name(sn_add(x, sn_forward_dropout(s, g->attend(g, s, n, l))),
                    "attnResid");                                                      /* line 6 */
        n = sn_name(g->norm(g, x, "ln_2"), "ln2");                                     /* line 7 */
        x = sn_name(sn_add(x, sn_forward_dropout(s, feed_forward(g, n))), "mlpResid"); /* line 8 */
        sn_scope_pop(m);
        sn_record_hidden(s, l + 1, sn_name(x, "block%d", l));
    }
    return x;
}

sn_tensor decoder_unembed(const void *config, sn_tensor x) {
    const decoder *g = config;
    sn_module *m = sn_module_of(x);
    sn_scope_params(m, g->prefix);
    x = sn_name(g->norm(g, x, "ln_f"), "ln_f"); /* line 10 */
    sn_scope_params(m, g->tied ? g->prefix : "");
    sn_tensor w = sn_param(m, g->tied ? "wte.weight" : "lm_head.weight", SN_F32, g->vocab, g->d);
    w = sn_shard(w, 0, FRONT_TENSOR);
    sn_tensor logits = sn_name(sn_linear(x, w, NULL), "lm_head");
    sn_name(sn_softmax(logits, -1), "probs"); /* line 11 */
    return logits;
}

void decoder_build(const decoder *g, sn_config *c, const sn_model_options *o, sn_model *out) {
    out->vocab = g->vocab, out->context = g->context;
    out->layers = g->layers, out->heads = g->heads, out->d_model = g->d;
    if (!sn_config_check(c, NULL)) return;
    sn_decoder d = {g, decoder_layers, decoder_unembed, o->context ? o->context : g->context,
                    g->layers};
    decoder_entries(out->module, &d, o, g->report);
}

void sn_gpt2_build(sn_config *c, const sn_model_options *o, sn_model *out) {
    decoder g = decoder_read(c, o);
    decoder_build(&g, c, o, out);
}
