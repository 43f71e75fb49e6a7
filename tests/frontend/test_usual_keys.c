/* What configs leave out: the keys of published configs and their usual values. */
#include "frontend/models.h"
#include "frontend/rope_scaling.h"
#include "ir/ir.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "tests/support/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A key that is left out has the value that the class of Hugging Face gives it: the graph is the one with that value, and
 * not the one with another. By class: what must be there; then keys, each with its usual value and another one, if one makes a difference. */
#define SIZES                                                                                      \
    "\"vocab_size\": 32, \"hidden_size\": 32, \"num_hidden_layers\": 2, "                          \
    "\"num_attention_heads\": 4, \"max_position_embeddings\": 64"
#define DECODER SIZES ", \"intermediate_size\": 24"
#define EXPERTS                                                                                    \
    DECODER ", \"num_experts\": 4, \"num_experts_per_tok\": 2, \"moe_intermediate_size\": 8"
#define LATENT                                                                                     \
    DECODER                                                                                        \
    ", \"n_routed_experts\": 4, \"num_experts_per_tok\": 2, \"moe_intermediate_size\": 8, "        \
    "\"kv_lora_rank\": 8, \"qk_nope_head_dim\": 4, \"qk_rope_head_dim\": 4, \"v_head_dim\": 4"
#define PAIR                                                                                       \
    "\"vocab_size\": 32, \"d_model\": 16, \"encoder_layers\": 1, \"decoder_layers\": 1, "          \
    "\"encoder_attention_heads\": 4, \"decoder_attention_heads\": 4, \"encoder_ffn_dim\": 24, "    \
    "\"decoder_ffn_dim\": 24, \"max_position_embeddings\": 64"
#define T5                                                                                         \
    "\"vocab_size\": 32, \"d_model\": 16, \"num_layers\": 1, \"num_heads\": 4, \"d_kv\": 4, "      \
    "\"d_ff\": 24"
enum { MAX_USUAL = 12 };
static const struct {
    const char *type, *sizes;
    const char *key[MAX_USUAL][3];
} usual_keys[] = {
    {"llama",
     DECODER,
     {{"rms_norm_eps", "1e-6", "1e-5"},
      {"rope_theta", "10000", "500000"},
      {"tie_word_embeddings", "false", "true"},
      {"hidden_act", "\"silu\"", "\"gelu\""},
      {"attention_bias", "false", "true"},
      {"mlp_bias", "false", "true"},
      {"num_key_value_heads", "4", "2"},
      {"head_dim", "8", "16"}}},
    {"mistral",
     DECODER,
     {{"rms_norm_eps", "1e-6", "1e-5"},
      {"rope_theta", "10000", "1000000"},
      {"tie_word_embeddings", "false", "true"},
      {"hidden_act", "\"silu\"", "\"gelu\""},
      {"sliding_window", "null", "8"}}},
    {"mixtral",
     DECODER ", \"num_local_experts\": 4, \"num_experts_per_tok\": 2",
     {{"rms_norm_eps", "1e-5", "1e-6"},
      {"rope_theta", "1000000", "10000"},
      {"tie_word_embeddings", "false", "true"},
      {"sliding_window", "null", "8"}}},
    {"qwen2",
     DECODER,
     {{"rms_norm_eps", "1e-6", "1e-5"},
      {"rope_theta", "10000", "1000000"},
      {"tie_word_embeddings", "false", "true"}}},
    {"qwen2",
     DECODER ", \"use_sliding_window\": true, \"max_window_layers\": 1",
     {{"sliding_window", "4096", "8"}}},
    {"qwen2",
     DECODER ", \"use_sliding_window\": true, \"sliding_window\": 8",
     {{"max_window_layers", "28", "1"}}},
    {"qwen3",
     DECODER,
     {{"rms_norm_eps", "1e-6", "1e-5"},
      {"rope_theta", "10000", "1000000"},
      {"tie_word_embeddings", "false", "true"},
      {"attention_bias", "false", "true"}}},
    {"qwen2_moe",
     EXPERTS ", \"shared_expert_intermediate_size\": 8",
     {{"norm_topk_prob", "false", "true"},
      {"decoder_sparse_step", "1", "2"},
      {"mlp_only_layers", "[]", "[1]"},
      {"qkv_bias", "true", "false"},
      {"rms_norm_eps", "1e-6", "1e-5"},
      {"rope_theta", "10000", "1000000"},
      {"tie_word_embeddings", "false", "true"}}},
    {"qwen3_moe",
     EXPERTS,
     {{"norm_topk_prob", "false", "true"},
      {"decoder_sparse_step", "1", "2"},
      {"attention_bias", "false", "true"},
      {"rms_norm_eps", "1e-6", "1e-5"}}},
    {"gemma",
     DECODER,
     {{"head_dim", "256", "8"},
      {"rms_norm_eps", "1e-6", "1e-5"},
      {"rope_theta", "10000", "1000000"},
      {"tie_word_embeddings", "true", "false"},
      {"attention_bias", "false", "true"},
      {"hidden_activation", "\"gelu_pytorch_tanh\"", "\"gelu\""}}},
    {"gemma2",
     DECODER,
     {{"query_pre_attn_scalar", "256", "4"},
      {"sliding_window", "4096", "8"},
      {"head_dim", "256", "8"},
      {"tie_word_embeddings", "true", "false"},
      {"rms_norm_eps", "1e-6", "1e-5"}}},
    {"gemma2", DECODER ", \"head_dim\": 8", {{"query_pre_attn_scalar", "256", "8"}}},
    {"gemma3_text", DECODER ", \"head_dim\": 8", {{"query_pre_attn_scalar", "256", "8"}}},
    {"gemma3_text",
     SIZES
     ", \"intermediate_size\": 24, \"layer_types\": [\"sliding_attention\", \"full_attention\"]",
     {{"query_pre_attn_scalar", "256", "4"},
      {"sliding_window", "4096", "8"},
      {"rope_theta", "1000000", "10000"},
      {"rope_local_base_freq", "10000", "1000000"},
      {"rms_norm_eps", "1e-6", "1e-5"}}},
    {"gemma3_text", DECODER, {{"sliding_window_pattern", "6", "2"}}},
    {"phi",
     DECODER,
     {{"partial_rotary_factor", "0.5", "1"},
      {"layer_norm_eps", "1e-5", "1e-6"},
      {"rope_theta", "10000", "1000000"},
      {"hidden_act", "\"gelu_new\"", "\"gelu\""},
      {"tie_word_embeddings", "false", "true"}}},
    {"phi3",
     DECODER,
     {{"rms_norm_eps", "1e-5", "1e-6"},
      {"partial_rotary_factor", "1", "0.5"},
      {"rope_theta", "10000", "1000000"},
      {"hidden_act", "\"silu\"", "\"gelu\""},
      {"sliding_window", "null", "8"},
      {"tie_word_embeddings", "false", "true"}}},
    {"gpt_neox",
     DECODER,
     {{"rotary_pct", "0.25", "1"},
      {"rotary_emb_base", "10000", "1000000"},
      {"layer_norm_eps", "1e-5", "1e-6"},
      {"use_parallel_residual", "true", "false"},
      {"attention_bias", "true", "false"},
      {"hidden_act", "\"gelu\"", "\"gelu_new\""},
      {"tie_word_embeddings", "false", "true"}}},
    {"falcon",
     "\"vocab_size\": 32, \"hidden_size\": 32, \"num_hidden_layers\": 2, \"num_attention_heads\": "
     "4",
     {{"layer_norm_epsilon", "1e-5", "1e-6"},
      {"max_position_embeddings", "2048", "64"},
      {"multi_query", "true", "false"},
      {"parallel_attn", "true", "false"},
      {"bias", "false", "true"},
      {"alibi", "false", "true"},
      {"new_decoder_architecture", "false", "true"},
      {"rope_theta", "10000", "1000000"},
      {"tie_word_embeddings", "true", "false"}}},
    {"olmo2",
     DECODER,
     {{"rms_norm_eps", "1e-5", "1e-6"},
      {"rope_theta", "10000", "500000"},
      {"attention_bias", "false", "true"},
      {"tie_word_embeddings", "false", "true"}}},
    {"olmoe",
     DECODER ", \"num_experts\": 4, \"num_experts_per_tok\": 2",
     {{"rms_norm_eps", "1e-5", "1e-6"},
      {"norm_topk_prob", "false", "true"},
      {"attention_bias", "false", "true"},
      {"tie_word_embeddings", "false", "true"}}},
    {"starcoder2",
     DECODER,
     {{"norm_epsilon", "1e-5", "1e-6"},
      {"hidden_act", "\"gelu_pytorch_tanh\"", "\"gelu\""},
      {"use_bias", "true", "false"},
      {"sliding_window", "null", "8"},
      {"rope_theta", "10000", "1000000"},
      {"tie_word_embeddings", "true", "false"}}},
    {"stablelm",
     DECODER,
     {{"layer_norm_eps", "1e-5", "1e-6"},
      {"partial_rotary_factor", "0.25", "1"},
      {"use_qkv_bias", "false", "true"},
      {"use_parallel_residual", "false", "true"},
      {"rope_theta", "10000", "1000000"},
      {"tie_word_embeddings", "false", "true"}}},
    {"cohere",
     DECODER,
     {{"layer_norm_eps", "1e-5", "1e-6"},
      {"logit_scale", "0.0625", "1"},
      {"attention_bias", "false", "true"},
      {"rope_theta", "10000", "8000000"},
      {"tie_word_embeddings", "true", "false"}}},
    {"granite",
     DECODER,
     {{"rms_norm_eps", "1e-6", "1e-5"},
      {"embedding_multiplier", "1", "12"},
      {"residual_multiplier", "1", "0.22"},
      {"attention_multiplier", "1", "0.015625"},
      {"logits_scaling", "1", "8"},
      {"attention_bias", "false", "true"},
      {"mlp_bias", "false", "true"},
      {"rope_theta", "10000", "1000000"},
      {"tie_word_embeddings", "false", "true"}}},
    {"deepseek_v2",
     LATENT,
     {{"rms_norm_eps", "1e-6", "1e-5"},
      {"norm_topk_prob", "false", "true"},
      {"routed_scaling_factor", "1", "16"},
      {"first_k_dense_replace", "0", "1"},
      {"attention_bias", "false", "true"},
      {"rope_theta", "10000", "1000000"},
      {"tie_word_embeddings", "false", "true"}}},
    {"deepseek_v2", /* only what is not normalized is scaled */
     LATENT ", \"norm_topk_prob\": true",
     {{"routed_scaling_factor", "16"}}},
    {"deepseek_v3",
     LATENT,
     {{"norm_topk_prob", "true", "false"}, {"rope_interleave", "true", "false"}}},
    {"gpt_oss",
     DECODER ", \"num_local_experts\": 4, \"num_experts_per_tok\": 2, \"head_dim\": 8",
     {{"rms_norm_eps", "1e-5", "1e-6"},
      {"rope_theta", "150000", "10000"},
      {"sliding_window", "128", "8"},
      {"attention_bias", "true", "false"},
      {"swiglu_limit", "7", "8"},
      {"tie_word_embeddings", "false", "true"}}},
    {"opt",
     SIZES ", \"ffn_dim\": 24",
     {{"activation_function", "\"relu\"", "\"gelu\""},
      {"do_layer_norm_before", "true", "false"},
      {"word_embed_proj_dim", "32", "8"},
      {"enable_bias", "true", "false"},
      {"_remove_final_layer_norm", "false", "true"},
      {"tie_word_embeddings", "true", "false"}}},
    {"gptj",
     "\"vocab_size\": 32, \"n_embd\": 16, \"n_layer\": 2, \"n_head\": 4, \"n_positions\": 64, "
     "\"rotary_dim\": 4",
     {{"layer_norm_epsilon", "1e-5", "1e-6"},
      {"n_inner", "64", "24"},
      {"activation_function", "\"gelu_new\"", "\"gelu\""},
      {"tie_word_embeddings", "false", "true"}}},
    {"bloom",
     "\"vocab_size\": 32, \"hidden_size\": 32, \"n_layer\": 2, \"n_head\": 4",
     {{"layer_norm_epsilon", "1e-5", "1e-6"}, {"tie_word_embeddings", "true", "false"}}},
    {"gpt2",
     "\"vocab_size\": 32, \"n_embd\": 16, \"n_layer\": 2, \"n_head\": 4, \"n_positions\": 64",
     {{"layer_norm_epsilon", "1e-5", "1e-6"},
      {"n_inner", "64", "24"},
      {"activation_function", "\"gelu_new\"", "\"gelu\""},
      {"tie_word_embeddings", "true", "false"}}},
    {"bert",
     DECODER,
     {{"layer_norm_eps", "1e-12", "1e-5"},
      {"type_vocab_size", "2", "1"},
      {"hidden_act", "\"gelu\"", "\"relu\""}}},
    {"roberta",
     DECODER,
     {{"layer_norm_eps", "1e-12", "1e-5"},
      {"pad_token_id", "1", "0"},
      {"type_vocab_size", "2", "1"}}},
    {"albert",
     DECODER,
     {{"layer_norm_eps", "1e-12", "1e-5"},
      {"embedding_size", "128", "8"},
      {"num_hidden_groups", "1", "2"},
      {"inner_group_num", "1", "2"},
      {"hidden_act", "\"gelu_new\"", "\"gelu\""}}},
    {"mpnet",
     DECODER,
     {{"layer_norm_eps", "1e-12", "1e-5"}, {"relative_attention_num_buckets", "32", "8"}}},
    {"deberta-v2",
     DECODER,
     {{"layer_norm_eps", "1e-7", "1e-5"},
      {"type_vocab_size", "0", "2"},
      {"hidden_act", "\"gelu\"", "\"relu\""}}},
    {"modernbert",
     DECODER,
     {{"norm_eps", "1e-5", "1e-6"},
      {"hidden_activation", "\"gelu\"", "\"relu\""},
      {"global_rope_theta", "160000", "10000"},
      {"local_rope_theta", "10000", "160000"},
      {"local_attention", "128", "8"},
      {"global_attn_every_n_layers", "3", "1"},
      {"attention_bias", "false", "true"},
      {"mlp_bias", "false", "true"},
      {"norm_bias", "false", "true"},
      {"decoder_bias", "true", "false"}}},
    {"mamba",
     "\"vocab_size\": 32, \"hidden_size\": 32, \"num_hidden_layers\": 2",
     {{"layer_norm_epsilon", "1e-5", "1e-6"},
      {"state_size", "16", "8"},
      {"conv_kernel", "4", "3"},
      {"use_conv_bias", "true", "false"},
      {"use_bias", "false", "true"},
      {"tie_word_embeddings", "true", "false"}}},
    {"t5",
     T5,
     {{"relative_attention_num_buckets", "32", "16"},
      {"relative_attention_max_distance", "128", "64"},
      {"layer_norm_epsilon", "1e-6", "1e-5"},
      {"feed_forward_proj", "\"relu\"", "\"gated-gelu\""},
      {"num_decoder_layers", "1", "2"},
      {"tie_word_embeddings", "true", "false"}}},
    {"bart",
     PAIR,
     {{"activation_function", "\"gelu\"", "\"relu\""},
      {"scale_embedding", "false", "true"},
      {"tie_word_embeddings", "true", "false"}}},
    {"m2m_100",
     PAIR,
     {{"activation_function", "\"relu\"", "\"gelu\""}, {"scale_embedding", "true", "false"}}},
};

/* The graph of the config with one more key, which may be NULL. */
static char *graph_with(const char *type, const char *sizes, const char *key, const char *value) {
    char text[1024];
    sn_error err = {0};
    sn_model model;
    size_t n = (size_t)snprintf(text, sizeof text, "{\"model_type\": \"%s\", %s", type, sizes);
    if (key) n += (size_t)snprintf(text + n, sizeof text - n, ", \"%s\": %s", key, value);
    snprintf(text + n, sizeof text - n, "}");
    sn_config *c = sn_config_parse(type, text, strlen(text), &err);
    if (!c) fail_msg("%s", err.message);
    sn_model_options o = {.entries = SN_FORWARD};
    if (!sn_model_build(c, &o, &model, &err)) fail_msg("%s: %s", text, err.message);
    char *graph = module_text(model.module);
    sn_module_free(model.module);
    sn_config_free(c);
    return graph;
}

static void configs_leave_out_the_usual(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof usual_keys / sizeof *usual_keys; i++) {
        const char *type = usual_keys[i].type, *sizes = usual_keys[i].sizes;
        char *without = graph_with(type, sizes, NULL, NULL);
        for (int k = 0; k < MAX_USUAL && usual_keys[i].key[k][0]; k++) {
            const char *const *row = usual_keys[i].key[k];
            char *usual = graph_with(type, sizes, row[0], row[1]),
                 *other = row[2] ? graph_with(type, sizes, row[0], row[2]) : NULL;
            if (strcmp(without, usual) != 0)
                fail_msg("%s: without \"%s\" the graph is not that of %s", type, row[0], row[1]);
            if (other && !strcmp(without, other))
                fail_msg("%s: \"%s\": %s makes no difference", type, row[0], row[2]);
            free(usual);
            free(other);
        }
        free(without);
    }
}

/* Which parameters a key adds or removes. */
static const struct {
    const char *type, *sizes, *key, *value, *param;
    bool there;
} param_rows[] = {
    {"llama", DECODER, "attention_bias", "true", "model.layers.1.self_attn.q_proj.bias", true},
    {"llama", DECODER, "attention_bias", "true", "model.layers.1.self_attn.o_proj.bias", true},
    {"llama", DECODER, "attention_bias", "true", "model.layers.1.mlp.down_proj.bias", false},
    {"llama", DECODER, "mlp_bias", "true", "model.layers.1.mlp.down_proj.bias", true},
    {"llama", DECODER, "mlp_bias", "true", "model.layers.1.self_attn.o_proj.bias", false},
    {"llama", DECODER, "tie_word_embeddings", "true", "lm_head.weight", false},
    {"granite", DECODER, "attention_bias", "true", "model.layers.1.self_attn.o_proj.bias", true},
    {"granite", DECODER, "mlp_bias", "true", "model.layers.1.mlp.up_proj.bias", true},
    {"granite", DECODER, "rms_norm_eps", "1e-6", "lm_head.weight", true},
    {"olmo2", DECODER, "attention_bias", "true", "model.layers.1.self_attn.o_proj.bias", true},
    {"cohere", DECODER, "attention_bias", "true", "model.layers.1.self_attn.o_proj.bias", true},
    {"cohere", DECODER, "tie_word_embeddings", "false", "lm_head.weight", true},
    {"gemma", DECODER, "attention_bias", "true", "model.layers.1.self_attn.o_proj.bias", true},
    {"gemma2", DECODER, "attention_bias", "true", "model.layers.1.self_attn.o_proj.bias", true},
    {"qwen2", DECODER, "rope_theta", "10", "model.layers.1.self_attn.v_proj.bias", true},
    {"qwen2", DECODER, "rope_theta", "10", "model.layers.1.self_attn.o_proj.bias", false},
    {"qwen3", DECODER, "attention_bias", "true", "model.layers.1.self_attn.o_proj.bias", true},
    {"qwen3", DECODER, "attention_bias", "false", "model.layers.1.self_attn.q_norm.weight", true},
    {"qwen3_moe", EXPERTS, "attention_bias", "true", "model.layers.1.self_attn.o_proj.bias", true},
    {"qwen2_moe", EXPERTS ", \"shared_expert_intermediate_size\": 8", "mlp_only_layers", "[1]",
     "model.layers.1.mlp.gate_proj.weight", true},
    {"qwen2_moe", EXPERTS ", \"shared_expert_intermediate_size\": 8", "mlp_only_layers", "[1]",
     "model.layers.1.mlp.gate.weight", false},
    {"qwen2_moe", EXPERTS ", \"shared_expert_intermediate_size\": 8", "decoder_sparse_step", "2",
     "model.layers.0.mlp.gate.weight", false},
    {"qwen2_moe", EXPERTS ", \"shared_expert_intermediate_size\": 8", "decoder_sparse_step", "2",
     "model.layers.1.mlp.gate.weight", true},
    {"deepseek_v2", LATENT, "first_k_dense_replace", "1", "model.layers.0.mlp.gate_proj.weight",
     true},
    {"deepseek_v2", LATENT, "first_k_dense_replace", "1", "model.layers.1.mlp.gate.weight", true},
    {"deepseek_v2", LATENT, "attention_bias", "true", "model.layers.1.self_attn.o_proj.bias", true},
    {"deepseek_v2", LATENT, "q_lora_rank", "8", "model.layers.1.self_attn.q_a_proj.weight", true},
    {"stablelm", DECODER, "use_qkv_bias", "true", "model.layers.1.self_attn.q_proj.bias", true},
    {"stablelm", DECODER, "use_qkv_bias", "true", "model.layers.1.self_attn.o_proj.bias", false},
    {"stablelm", DECODER, "use_parallel_residual", "true",
     "model.layers.1.post_attention_layernorm.weight", false},
    {"starcoder2", DECODER, "use_bias", "false", "model.layers.1.mlp.c_fc.bias", false},
    {"starcoder2", DECODER, "use_bias", "false", "model.layers.1.self_attn.o_proj.bias", false},
    {"starcoder2", DECODER, "use_bias", "true", "model.layers.1.mlp.c_proj.bias", true},
    {"gpt_neox", DECODER, "attention_bias", "false", "gpt_neox.layers.1.attention.dense.bias",
     false},
    {"gpt_neox", DECODER, "attention_bias", "false", "gpt_neox.layers.1.mlp.dense_h_to_4h.bias",
     true},
    {"opt", SIZES ", \"ffn_dim\": 24", "enable_bias", "false", "model.decoder.layers.1.fc2.bias",
     false},
    {"opt", SIZES ", \"ffn_dim\": 24", "do_layer_norm_before", "false",
     "model.decoder.final_layer_norm.weight", false},
    {"opt", SIZES ", \"ffn_dim\": 24", "word_embed_proj_dim", "8",
     "model.decoder.project_in.weight", true},
    {"opt", SIZES ", \"ffn_dim\": 24", "word_embed_proj_dim", "32",
     "model.decoder.project_in.weight", false},
    {"modernbert", DECODER, "norm_bias", "true", "layers.1.mlp_norm.bias", true},
    {"modernbert", DECODER, "attention_bias", "true", "layers.1.attn.Wo.bias", true},
    {"modernbert", DECODER, "mlp_bias", "true", "layers.1.mlp.Wo.bias", true},
    {"t5", T5, "feed_forward_proj", "\"gated-gelu\"",
     "decoder.block.0.layer.2.DenseReluDense.wi_1.weight", true},
    {"t5", T5, "tie_word_embeddings", "false", "lm_head.weight", true},
};

static void keys_add_parameters(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof param_rows / sizeof *param_rows; i++) {
        char quoted[128];
        char *graph = graph_with(param_rows[i].type, param_rows[i].sizes, param_rows[i].key,
                                 param_rows[i].value);
        snprintf(quoted, sizeof quoted, "\"%s\"", param_rows[i].param);
        if (!strstr(graph, quoted) == param_rows[i].there)
            fail_msg("%s, \"%s\": %s: %s", param_rows[i].type, param_rows[i].key,
                     param_rows[i].value, param_rows[i].param);
        free(graph);
    }
}

/* Frequencies and the factor of queries and keys, of 8 pairs with the base 10000 in a context of 256; used: the context
 * that is asked for. Values: NumPy's, by the formulas of Hugging Face's modeling_rope_utils.py. */
static const struct {
    const char *config;
    int64_t used;
    double scale, freq[8];
} rope_rows[] = {
    {"{\"rope_scaling\": {\"type\": \"linear\", \"factor\": 4}}",
     0,
     1,
     {0.25, 0.0790569415, 0.025, 0.00790569415, 0.0025, 0.000790569415, 0.00025, 7.90569415e-05}},
    {"{\"rope_parameters\": {\"rope_type\": \"linear\", \"factor\": 4, \"rope_theta\": 500}}",
     0,
     1,
     {0.25, 0.1149658245, 0.05286856317, 0.02431231181, 0.01118033989, 0.005141427971,
      0.002364354023, 0.001087279638}},
    {"{\"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 1, "
     "\"high_freq_factor\": 4, \"original_max_position_embeddings\": 64}}",
     0,
     1,
     {1, 0.2443845994, 0.01304225604, 0.003952847075, 0.00125, 0.0003952847075, 0.000125,
      3.952847075e-05}},
    {"{\"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 2, "
     "\"high_freq_factor\": 32}}",
     0,
     1,
     {1, 0.1399175419, 0.01855023575, 0.003952847075, 0.00125, 0.0003952847075, 0.000125,
      3.952847075e-05}},
    {"{\"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4, "
     "\"original_max_position_embeddings\": 64}}",
     0,
     1.138629436,
     {1, 0.2371708245, 0.05, 0.00790569415, 0.0025, 0.000790569415, 0.00025, 7.90569415e-05}},
    {"{\"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4, "
     "\"original_max_position_embeddings\": 4096}}",
     0,
     1.138629436,
     {1, 0.316227766, 0.1, 0.02569350599, 0.00625, 0.001383496476, 0.00025, 7.90569415e-05}},
    {"{\"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4, "
     "\"original_max_position_embeddings\": 4096, \"truncate\": false}}",
     0,
     1.138629436,
     {1, 0.316227766, 0.1, 0.02861360881, 0.006556971521, 0.001285632031, 0.00025, 7.90569415e-05}},
    {"{\"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4, "
     "\"original_max_position_embeddings\": 4096, \"beta_fast\": 8, \"beta_slow\": 2}}",
     0,
     1.138629436,
     {1, 0.316227766, 0.1, 0.0316227766, 0.0075, 0.00158113883, 0.00025, 7.90569415e-05}},
    {"{\"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4, "
     "\"original_max_position_embeddings\": 4096, \"beta_slow\": 0.01}}",
     0,
     1.138629436,
     {1, 0.316227766, 0.1, 0.0286581413, 0.008125, 0.002272887068, 0.000625, 0.0001679960007}},
    {"{\"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 40, "
     "\"original_max_position_embeddings\": 4096, \"mscale\": 1, \"mscale_all_dim\": 0.5}}",
     0,
     1.15572199,
     {1, 0.316227766, 0.1, 0.02391472481, 0.005125, 0.0008498621212, 2.5e-05, 7.90569415e-06}},
    {"{\"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 40, "
     "\"original_max_position_embeddings\": 4096, \"mscale\": 1, \"mscale_all_dim\": 1}}",
     0,
     1,
     {1, 0.316227766, 0.1, 0.02391472481, 0.005125, 0.0008498621212, 2.5e-05, 7.90569415e-06}},
    {"{\"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4, "
     "\"original_max_position_embeddings\": 4096, \"attention_factor\": 1.5}}",
     0,
     1.5,
     {1, 0.316227766, 0.1, 0.02569350599, 0.00625, 0.001383496476, 0.00025, 7.90569415e-05}},
    {"{\"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 1, "
     "\"original_max_position_embeddings\": 256}}",
     0,
     1,
     {1, 0.316227766, 0.1, 0.0316227766, 0.01, 0.00316227766, 0.001, 0.000316227766}},
    {"{\"rope_scaling\": {\"type\": \"longrope\", \"short_factor\": "
     "[1,1,1,1.25,1.25,1.25,1.5,1.5], \"long_factor\": [1,1.5,2,2.5,3,3.5,4,4.5], "
     "\"original_max_position_embeddings\": 64}}",
     0,
     1.154700538,
     {1, 0.316227766, 0.1, 0.02529822128, 0.008, 0.002529822128, 0.0006666666667, 0.0002108185107}},
    {"{\"rope_scaling\": {\"type\": \"su\", \"short_factor\": [1,1,1,1.25,1.25,1.25,1.5,1.5], "
     "\"long_factor\": [1,1.5,2,2.5,3,3.5,4,4.5], \"original_max_position_embeddings\": 64}}",
     128,
     1.154700538,
     {1, 0.2108185107, 0.05, 0.01264911064, 0.003333333333, 0.0009035079029, 0.00025,
      7.027283689e-05}},
    {"{\"original_max_position_embeddings\": 64, \"rope_scaling\": {\"type\": \"longrope\", "
     "\"short_factor\": [1,1,1,1.25,1.25,1.25,1.5,1.5], \"long_factor\": "
     "[1,1.5,2,2.5,3,3.5,4,4.5]}}",
     64,
     1.154700538,
     {1, 0.316227766, 0.1, 0.02529822128, 0.008, 0.002529822128, 0.0006666666667, 0.0002108185107}},
    {"{\"rope_scaling\": {\"type\": \"longrope\", \"short_factor\": "
     "[1,1,1,1.25,1.25,1.25,1.5,1.5], \"long_factor\": [1,1.5,2,2.5,3,3.5,4,4.5], "
     "\"original_max_position_embeddings\": 64, \"factor\": 2}}",
     0,
     1.08012345,
     {1, 0.316227766, 0.1, 0.02529822128, 0.008, 0.002529822128, 0.0006666666667, 0.0002108185107}},
    {"{\"rope_scaling\": {\"type\": \"longrope\", \"short_factor\": "
     "[1,1,1,1.25,1.25,1.25,1.5,1.5], \"long_factor\": [1,1.5,2,2.5,3,3.5,4,4.5], "
     "\"original_max_position_embeddings\": 64, \"attention_factor\": 1.25}}",
     0,
     1.25,
     {1, 0.316227766, 0.1, 0.02529822128, 0.008, 0.002529822128, 0.0006666666667, 0.0002108185107}},
};

static void frequencies_of_long_contexts(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof rope_rows / sizeof *rope_rows; i++) {
        const char *text = rope_rows[i].config;
        const rope_shape shape = {16, 256, rope_rows[i].used};
        double base = 10000;
        int64_t context = 256;
        sn_error err = {0};
        rope_scaling r;
        sn_config *c = sn_config_parse("rope", text, strlen(text), &err);
        assert_non_null(c);
        rope_scaling_read(c, &shape, &base, &context, &r);
        if (!sn_config_check(c, &err)) fail_msg("%s: %s", text, err.message);
        assert_int_equal(context, strstr(text, "long_factor") && !shape.used ? 64 : 256);
        if (!r.scaled || fabs(r.scale - rope_rows[i].scale) > 1e-8)
            fail_msg("%s: the scale is %.10g", text, r.scale);
        for (int k = 0; k < 8; k++)
            if (fabs(r.freq[k] - rope_rows[i].freq[k]) > 1e-8 * rope_rows[i].freq[k])
                fail_msg("%s: frequency %d is %.10g", text, k, r.freq[k]);
        sn_config_free(c);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(configs_leave_out_the_usual),
                                       cmocka_unit_test(keys_add_parameters),
                                       cmocka_unit_test(frequencies_of_long_contexts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
