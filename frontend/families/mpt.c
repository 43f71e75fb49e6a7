/* mpt.c: MPT [MosaicML 2023]: ALiBi, no biases, not even of norms, queries, keys and values in one
 * matrix. */
#include "frontend/families/families.h"

static const config_key keys[] = {INT_KEY(causal_lm, vocab, "vocab_size", 1, 1 << 24),
                                  INT_KEY(causal_lm, context, "max_seq_len", 1, 1 << 24),
                                  INT_KEY(causal_lm, layers, "n_layers", 1, 1 << 12),
                                  INT_KEY(causal_lm, heads, "n_heads", 1, 1 << 12),
                                  INT_KEY(causal_lm, d, "d_model", 1, 1 << 20),
                                  FLOAT_KEY_OR(causal_lm, eps, "layer_norm_epsilon", 1e-5, 0, 1),
                                  TIED_KEY(true),
                                  END_KEYS};

/* Keys of "attn_config" that change nothing, or nothing with the values that are demanded. */
static const char *const known[] = {
    "alibi",     "alibi_bias_max", "clip_qkv",   "softmax_scale",         "qk_ln",      "prefix_lm",
    "attn_type", "attn_impl",      "attn_pdrop", "attn_uses_sequence_id", "model_type", NULL};
static const char *const types[] = {"multihead_attention", NULL};

static void finish(sn_config *c, const sn_model_options *o, causal_lm *g) {
    (void)o;
    sn_error err = {0};
    g->d_mlp = g->d * sn_config_int_or(c, "expansion_ratio", 4, 1, 1 << 10);
    if (!sn_config_bool_or(c, "no_bias", true)) sn_config_problem(c, "\"no_bias\" must be true");
    sn_config *a = sn_config_section(c, "attn_config");
    if (!a) return;
    sn_config_only(a, known);
    sn_config_choice_or(a, "attn_type", types, 0);
    if (!sn_config_bool_or(a, "alibi", true)) sn_config_problem(a, "\"alibi\" must be true");
    if (sn_config_bool_or(a, "qk_ln", false)) sn_config_problem(a, "\"qk_ln\" must be false");
    if (sn_config_bool_or(a, "prefix_lm", false))
        sn_config_problem(a, "\"prefix_lm\" must be false");
    g->alibi_scale = sn_config_float_or(a, "alibi_bias_max", 8, 1e-3, 1e6);
    g->clip = sn_config_float_or(a, "clip_qkv", 0, 1e-6, 1e6);
    g->score_scale = sn_config_float_or(a, "softmax_scale", 0, 1e-6, 1e6);
    if (!sn_config_check(a, &err)) sn_config_problem(c, "%s", err.message);
    sn_config_free(a);
}

const causal_family mpt_family = {
    .names = {.prefix = "transformer.",
              .embed = "wte",
              .layers = "blocks",
              .qkv = "attn.Wqkv",
              .o = "attn.out_proj",
              .before_attn = "norm_1",
              .before_mlp = "norm_2",
              .up = "ffn.up_proj",
              .down = "ffn.down_proj",
              .norm = "norm_f",
              .head = "lm_head"},
    .usual = {.norm_without_bias = true, .positions = ALIBI, .act = ACT_GELU},
    .keys = keys,
    .finish = finish};
