/* opt.c: OPT [Zhang et al. 2022]: learned positions from row 2 of their table, ReLU, biases; norms
 * before the sublayers or, in one size, after them, with embeddings of a smaller width. */
#include "frontend/families/families.h"

static const config_key keys[] = {
    SIZE_KEYS,
    CONTEXT_KEY,
    INT_KEY(causal_lm, d_mlp, "ffn_dim", 1, 1 << 22),
    INT_KEY_OR(causal_lm, d_embed, "word_embed_proj_dim", 0, 1, 1 << 20),
    ACT_KEY("activation_function", ACT_RELU),
    TIED_KEY(true),
    BOOL_KEY_OR(causal_lm, no_final_norm, "_remove_final_layer_norm", false),
    BOOL_KEY_OR(causal_lm, qkv_bias, "enable_bias", true),
    END_KEYS};

static void finish(sn_config *c, const sn_model_options *o, causal_lm *g) {
    (void)o;
    g->o_bias = g->mlp_bias = g->qkv_bias;
    g->eps = 1e-5;
    if (!sn_config_bool_or(c, "do_layer_norm_before", true))
        g->block = POST_NORM, g->no_final_norm = true;
    if (!sn_config_bool_or(c, "layer_norm_elementwise_affine", true))
        sn_config_problem(c, "\"layer_norm_elementwise_affine\" must be true");
}

const causal_family opt_family = {.names = {.prefix = "model.decoder.",
                                            .embed = "embed_tokens",
                                            .positions = "embed_positions",
                                            .embed_in = "project_in",
                                            .embed_out = "project_out",
                                            .layers = "layers",
                                            .q = "self_attn.q_proj",
                                            .k = "self_attn.k_proj",
                                            .v = "self_attn.v_proj",
                                            .o = "self_attn.out_proj",
                                            .before_attn = "self_attn_layer_norm",
                                            .before_mlp = "final_layer_norm",
                                            .up = "fc1",
                                            .down = "fc2",
                                            .norm = "final_layer_norm",
                                            .head = "lm_head"},
                                  .usual = {.positions = LEARNED, .position_offset = 2},
                                  .keys = keys,
                                  .finish = finish};
