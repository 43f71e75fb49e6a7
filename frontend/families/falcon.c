/* falcon.c: Falcon [Almazrouei et al. 2023]: one key head, or several, or one for each query head;
 * attention and MLP side by side after one norm or one each, or in turn; rotary positions or ALiBi,
 * whose bias is scaled as the scores are. */
#include "frontend/families/families.h"

static const config_key keys[] = {
    INT_KEY(causal_lm, vocab, "vocab_size", 1, 1 << 24),
    INT_KEY(causal_lm, d, "hidden_size", 1, 1 << 20),
    INT_KEY_ALSO(causal_lm, layers, "num_hidden_layers", "n_layer", 1, 1 << 12),
    INT_KEY_ALSO(causal_lm, heads, "num_attention_heads", "n_head", 1, 1 << 12),
    INT_KEY_OR(causal_lm, context, "max_position_embeddings", 2048, 1, 1 << 24),
    INT_KEY_OR(causal_lm, d_mlp, "ffn_hidden_size", 0, 1, 1 << 22),
    FLOAT_KEY_OR(causal_lm, eps, "layer_norm_epsilon", 1e-5, 0, 1),
    BASE_KEY,
    ACT_KEY("activation", ACT_GELU),
    BOOL_KEY_OR(causal_lm, qkv_bias, "bias", false),
    TIED_KEY(true),
    LAYOUT_KEY(QKV_BY_GROUP),
    END_KEYS};

static void finish(sn_config *c, const sn_model_options *o, causal_lm *g) {
    (void)o;
    bool grouped = sn_config_bool_or(c, "new_decoder_architecture", false);
    bool one_key = sn_config_bool_or(c, "multi_query", true);
    bool parallel = sn_config_bool_or(c, "parallel_attn", true);
    int64_t n_norm = sn_config_int_or(c, "num_ln_in_parallel_attn", 2, 1, 2);
    g->o_bias = g->mlp_bias = g->qkv_bias;
    g->alibi_before_scaling = true;
    if (sn_config_bool_or(c, "alibi", false)) g->positions = ALIBI;
    g->kv_heads = sn_config_int_or(c, "num_kv_heads", g->heads, 1, 1 << 12);
    if (!grouped) g->kv_heads = one_key ? 1 : g->heads;
    if (!grouped && one_key) g->layout = QKV_SIDE_BY_SIDE;
    sn_config_divides(c, "num_kv_heads", g->kv_heads, "num_attention_heads", g->heads);
    g->block = grouped || parallel ? PARALLEL : PRE_NORM;
    if (grouped && n_norm == 2)
        g->names.before_attn = "ln_attn", g->names.before_mlp = "ln_mlp";
    else if (!grouped && !parallel)
        g->names.before_mlp = "post_attention_layernorm";
}

const causal_family falcon_family = {.names = {.prefix = "transformer.",
                                               .embed = "word_embeddings",
                                               .layers = "h",
                                               .qkv = "self_attention.query_key_value",
                                               .o = "self_attention.dense",
                                               .before_attn = "input_layernorm",
                                               .up = "mlp.dense_h_to_4h",
                                               .down = "mlp.dense_4h_to_h",
                                               .norm = "ln_f",
                                               .head = "lm_head"},
                                     .keys = keys,
                                     .finish = finish};
