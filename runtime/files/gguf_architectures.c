/* gguf_architectures.c: the tables (ggml-org/ggml, docs/gguf.md; ggml-org/llama.cpp,
 * gguf-py/gguf/constants.py), and the tensors of a file under the names of Sinter's architectures. */
#include "runtime/files/gguf_architectures.h"
#include "runtime/files/gguf_model.h"
#include "runtime/files/weights_impl.h"
#include "runtime/str.h"

#include <stdio.h>
#include <string.h>

/* ---- tables ---- */

#define LLAMA_KEYS                                                                                 \
    {"context_length", "max_position_embeddings"}, {"embedding_length", "hidden_size"},            \
        {"block_count", "num_hidden_layers"}, {"feed_forward_length", "intermediate_size"},        \
        {"attention.head_count", "num_attention_heads"},                                           \
        {"attention.head_count_kv", "num_key_value_heads"},                                        \
        {"attention.layer_norm_rms_epsilon", "rms_norm_eps"}, {"rope.freq_base", "rope_theta"},    \
        {"vocab_size", NULL}, {"attention.value_length", NULL}, {"rope.dimension_count", NULL},    \
        {"rope.scaling.type", NULL}, {"rope.scaling.factor", NULL},                                \
        {"rope.scaling.original_context_length", NULL}, {"rope.scaling.attn_factor", NULL},        \
        {"rope.scaling.yarn_beta_fast", NULL}, {"rope.scaling.yarn_beta_slow", NULL}, {            \
        "rope.scaling.finetuned", NULL                                                             \
    }
/* llama.cpp stores q and k of Llama so that rotary embeddings rotate adjacent pairs. */
static const pair llama_keys[] = {LLAMA_KEYS, {"attention.key_length", "head_dim"}, {NULL, NULL}};
static const pair mixtral_keys[] = {LLAMA_KEYS,
                                    {"attention.key_length", "head_dim"},
                                    {"expert_count", "num_local_experts"},
                                    {"expert_used_count", "num_experts_per_tok"},
                                    {NULL, NULL}};
static const pair qwen_moe_keys[] = {
    LLAMA_KEYS,
    {"attention.key_length", "head_dim"},
    {"expert_count", "num_experts"},
    {"expert_used_count", "num_experts_per_tok"},
    {"expert_feed_forward_length", "moe_intermediate_size"},
    {"expert_shared_feed_forward_length", "shared_expert_intermediate_size"},
    {NULL, NULL}};
static const pair gpt_oss_keys[] = {LLAMA_KEYS,
                                    {"attention.key_length", "head_dim"},
                                    {"attention.sliding_window", "sliding_window"},
                                    {"expert_count", "num_local_experts"},
                                    {"expert_used_count", "num_experts_per_tok"},
                                    {"expert_feed_forward_length", NULL},
                                    {NULL, NULL}};
#define DELTA_KEYS                                                                                 \
    LLAMA_KEYS, {"attention.key_length", "head_dim"}, {"rope.dimension_sections", NULL},           \
        {"ssm.conv_kernel", "linear_conv_kernel_dim"}, {"ssm.state_size", "linear_key_head_dim"},  \
        {"ssm.group_count", "linear_num_key_heads"},                                               \
        {"ssm.time_step_rank", "linear_num_value_heads"}, {"ssm.inner_size", "linear_value_size"}, \
        {"full_attention_interval", "full_attention_interval"}, {"expert_count", "num_experts"},   \
        {"expert_used_count", "num_experts_per_tok"},                                              \
        {"expert_feed_forward_length", "moe_intermediate_size"}, {                                 \
        "expert_shared_feed_forward_length", "shared_expert_intermediate_size"                     \
    }
static const pair delta_keys[] = {DELTA_KEYS, {NULL, NULL}};
static const pair delta_moe_keys[] = {{"feed_forward_length", NULL}, DELTA_KEYS, {NULL, NULL}};
/* Keys and values of latent attention: files count them as one head of latents, and give their own
 * sizes as well (`take_latent`). */
#define LATENT_KEYS                                                                                \
    {"embedding_length", "hidden_size"}, {"block_count", "num_hidden_layers"},                     \
        {"feed_forward_length", "intermediate_size"},                                              \
        {"attention.head_count", "num_attention_heads"}, {"attention.head_count_kv", NULL},        \
        {"attention.layer_norm_rms_epsilon", "rms_norm_eps"}, {"rope.freq_base", "rope_theta"},    \
        {"vocab_size", NULL}, {"attention.q_lora_rank", NULL},                                     \
        {"attention.kv_lora_rank", "kv_lora_rank"}, {"attention.key_length", NULL},                \
        {"attention.value_length", NULL}, {"attention.key_length_mla", NULL},                      \
        {"attention.value_length_mla", NULL}, {"rope.dimension_count", "qk_rope_head_dim"},        \
        {"leading_dense_block_count", "first_k_dense_replace"},                                    \
        {"expert_feed_forward_length", "moe_intermediate_size"},                                   \
        {"expert_weights_scale", "routed_scaling_factor"}, {                                       \
        "expert_gating_func", NULL                                                                 \
    }
static const pair deepseek_keys[] = {LATENT_KEYS,
                                     {"context_length", "max_position_embeddings"},
                                     {"expert_count", "n_routed_experts"},
                                     {"expert_used_count", "num_experts_per_tok"},
                                     {"expert_shared_count", "n_shared_experts"},
                                     {"expert_weights_norm", "norm_topk_prob"},
                                     {"expert_group_count", "n_group"},
                                     {"expert_group_used_count", "topk_group"},
                                     {"rope.scaling.type", NULL},
                                     {"rope.scaling.factor", NULL},
                                     {"rope.scaling.original_context_length", NULL},
                                     {"rope.scaling.yarn_beta_fast", NULL},
                                     {"rope.scaling.yarn_beta_slow", NULL},
                                     {"rope.scaling.yarn_log_multiplier", NULL},
                                     {NULL, NULL}};
static const pair kimi_keys[] = {LATENT_KEYS,
                                 {"context_length", "model_max_length"},
                                 {"expert_count", "num_experts"},
                                 {"expert_used_count", "num_experts_per_token"},
                                 {"expert_shared_count", "num_shared_experts"},
                                 {"expert_weights_norm", "moe_renormalize"},
                                 {"expert_group_count", "num_expert_group"},
                                 {"expert_group_used_count", "topk_group"},
                                 {"ssm.conv_kernel", "linear_attn_config.short_conv_kernel_size"},
                                 {"kda.head_dim", "linear_attn_config.head_dim"},
                                 {NULL, NULL}};
#define STATE_KEYS(prefix)                                                                         \
    {"ssm.state_size", prefix "d_state"}, {"ssm.conv_kernel", prefix "d_conv"}, {                  \
        "ssm.inner_size", NULL                                                                     \
    }
/* Layers attend or carry a state. */
#define HYBRID_KEYS                                                                                \
    {"context_length", "max_position_embeddings"}, {"embedding_length", "hidden_size"},            \
        {"block_count", "num_hidden_layers"}, {"feed_forward_length", "intermediate_size"},        \
        {"attention.head_count", "num_attention_heads"}, {"attention.head_count_kv", NULL},        \
        {"attention.layer_norm_rms_epsilon", "rms_norm_eps"}, {                                    \
        "vocab_size", NULL                                                                         \
    }
static const pair granite_hybrid_keys[] = {
    HYBRID_KEYS,
    {"attention.key_length", NULL},
    {"attention.value_length", NULL},
    {"rope.freq_base", "rope_theta"},
    {"rope.dimension_count", NULL},
    {"rope.scaling.finetuned", NULL},
    {"attention.scale", "attention_multiplier"},
    {"embedding_scale", "embedding_multiplier"},
    {"residual_scale", "residual_multiplier"},
    {"logit_scale", "logits_scaling"},
    {"expert_count", "num_local_experts"},
    {"expert_used_count", "num_experts_per_tok"},
    {"expert_shared_feed_forward_length", "shared_intermediate_size"},
    STATE_KEYS("mamba_"),
    {"ssm.time_step_rank", "mamba_n_heads"},
    {"ssm.group_count", "mamba_n_groups"},
    {NULL, NULL}};
static const pair jamba_keys[] = {HYBRID_KEYS,
                                  {"expert_count", "num_experts"},
                                  {"expert_used_count", "num_experts_per_tok"},
                                  STATE_KEYS("mamba_"),
                                  {"ssm.time_step_rank", "mamba_dt_rank"},
                                  {NULL, NULL}};
#define PURE_KEYS                                                                                  \
    {"context_length", "max_position_embeddings"}, {"embedding_length", "hidden_size"},            \
        {"block_count", "num_hidden_layers"}, {"feed_forward_length", NULL},                       \
        {"attention.head_count", NULL},                                                            \
        {"attention.layer_norm_rms_epsilon", "layer_norm_epsilon"}, {"vocab_size", NULL},          \
        {"ssm.state_size", "state_size"}, {                                                        \
        "ssm.conv_kernel", "conv_kernel"                                                           \
    }
static const pair mamba_keys[] = {PURE_KEYS,
                                  {"ssm.inner_size", "intermediate_size"},
                                  {"ssm.time_step_rank", "time_step_rank"},
                                  {"ssm.dt_b_c_rms", NULL},
                                  {NULL, NULL}};
static const pair mamba2_keys[] = {PURE_KEYS,
                                   {"ssm.inner_size", NULL},
                                   {"ssm.time_step_rank", "num_heads"},
                                   {"ssm.group_count", "n_groups"},
                                   {NULL, NULL}};
static const pair phi3_keys[] = {
    LLAMA_KEYS, {"attention.sliding_window", "sliding_window"}, {NULL, NULL}};
static const pair gemma_keys[] = {LLAMA_KEYS,
                                  {"attention.key_length", "head_dim"},
                                  {"attention.sliding_window", "sliding_window"},
                                  {"attn_logit_softcapping", "attn_logit_softcapping"},
                                  {"final_logit_softcapping", "final_logit_softcapping"},
                                  {NULL, NULL}};
static const pair llama_tensors[] = {{"token_embd", "model.embed_tokens"},
                                     {"output_norm", "model.norm"},
                                     {"output", "lm_head"},
                                     {NULL, NULL}};
#define ATTENTION_LAYERS                                                                           \
    {"attn_norm", "input_layernorm"}, {"attn_q", "self_attn.q_proj"},                              \
        {"attn_k", "self_attn.k_proj"}, {"attn_v", "self_attn.v_proj"}, {                          \
        "attn_output", "self_attn.o_proj"                                                          \
    }
#define LLAMA_LAYERS                                                                               \
    ATTENTION_LAYERS, {"attn_q_norm", "self_attn.q_norm"}, {"attn_k_norm", "self_attn.k_norm"},    \
        {"ffn_gate", "mlp.gate_proj"}, {"ffn_up", "mlp.up_proj"}, {                                \
        "ffn_down", "mlp.down_proj"                                                                \
    }
static const pair llama_layers[] = {
    LLAMA_LAYERS, {"ffn_norm", "post_attention_layernorm"}, {NULL, NULL}};
static const pair gemma2_layers[] = {LLAMA_LAYERS,
                                     {"post_attention_norm", "post_attention_layernorm"},
                                     {"ffn_norm", "pre_feedforward_layernorm"},
                                     {"post_ffw_norm", "post_feedforward_layernorm"},
                                     {NULL, NULL}};
/* The experts of a layer: one tensor for all; in older files one for each. */
#define EXPERT_LAYERS(router, scope, gate, up, down)                                               \
    {"ffn_gate_inp", router}, {"ffn_gate_exps", scope ".%d." gate},                                \
        {"ffn_up_exps", scope ".%d." up}, {"ffn_down_exps", scope ".%d." down},                    \
        {"ffn_gate.%d", scope ".%d." gate}, {"ffn_up.%d", scope ".%d." up}, {                      \
        "ffn_down.%d", scope ".%d." down                                                           \
    }
static const pair mixtral_layers[] = {
    LLAMA_LAYERS,
    EXPERT_LAYERS("block_sparse_moe.gate", "block_sparse_moe.experts", "w1", "w3", "w2"),
    {"ffn_norm", "post_attention_layernorm"},
    {NULL, NULL}};
#define QWEN_EXPERT_LAYERS                                                                         \
    EXPERT_LAYERS("mlp.gate", "mlp.experts", "gate_proj", "up_proj", "down_proj"),                 \
        {"ffn_gate_shexp", "mlp.shared_expert.gate_proj"},                                         \
        {"ffn_up_shexp", "mlp.shared_expert.up_proj"},                                             \
        {"ffn_down_shexp", "mlp.shared_expert.down_proj"}, {                                       \
        "ffn_gate_inp_shexp", "mlp.shared_expert_gate"                                             \
    }
static const pair qwen_moe_layers[] = {
    LLAMA_LAYERS, QWEN_EXPERT_LAYERS, {"ffn_norm", "post_attention_layernorm"}, {NULL, NULL}};
/* A stem whose name here ends with "." may lack ".weight", too. */
static const pair delta_layers[] = {LLAMA_LAYERS,
                                    QWEN_EXPERT_LAYERS,
                                    {"post_attention_norm", "post_attention_layernorm"},
                                    {"attn_qkv", "linear_attn.in_proj_qkv"},
                                    {"attn_gate", "linear_attn.in_proj_z"},
                                    {"ssm_conv1d", "linear_attn.conv1d"},
                                    {"ssm_dt", "linear_attn.dt_bias."},
                                    {"ssm_a", "linear_attn.A_log."},
                                    {"ssm_ba", "linear_attn.in_proj_ba"},
                                    {"ssm_beta", "linear_attn.in_proj_b"},
                                    {"ssm_alpha", "linear_attn.in_proj_a"},
                                    {"ssm_norm", "linear_attn.norm"},
                                    {"ssm_out", "linear_attn.out_proj"},
                                    {NULL, NULL}};
static const pair gpt_oss_layers[] = {
    LLAMA_LAYERS,
    EXPERT_LAYERS("mlp.router", "mlp.experts", "gate_proj", "up_proj", "down_proj"),
    {"attn_sinks", "self_attn.sinks."},
    {"post_attention_norm", "post_attention_layernorm"},
    {NULL, NULL}};
#define LATENT_LAYERS                                                                              \
    LLAMA_LAYERS, {"ffn_norm", "post_attention_layernorm"}, {"attn_q_a", "self_attn.q_a_proj"},    \
        {"attn_q_a_norm", "self_attn.q_a_layernorm"}, {"attn_q_b", "self_attn.q_b_proj"},          \
        {"attn_kv_a_mqa", "self_attn.kv_a_proj_with_mqa"},                                         \
        {"attn_kv_a_norm", "self_attn.kv_a_layernorm"}, {"attn_kv_b", "self_attn.kv_b_proj"},      \
        {"attn_k_b", "self_attn.kv_b_proj.keys."}, {                                               \
        "attn_v_b", "self_attn.kv_b_proj.values."                                                  \
    }
#define LATENT_EXPERTS(scope, gate, up, down)                                                      \
    EXPERT_LAYERS(scope ".gate", scope ".experts", gate, up, down),                                \
        {"exp_probs_b", scope ".gate.e_score_correction_bias."},                                   \
        {"ffn_gate_shexp", scope ".shared_experts.gate_proj"},                                     \
        {"ffn_up_shexp", scope ".shared_experts.up_proj"}, {                                       \
        "ffn_down_shexp", scope ".shared_experts.down_proj"                                        \
    }
static const pair deepseek_layers[] = {
    LATENT_LAYERS, LATENT_EXPERTS("mlp", "gate_proj", "up_proj", "down_proj"), {NULL, NULL}};
static const pair kimi_layers[] = {LATENT_LAYERS,
                                   LATENT_EXPERTS("block_sparse_moe", "w1", "w3", "w2"),
                                   {"ssm_conv1d_q", "self_attn.q_conv1d"},
                                   {"ssm_conv1d_k", "self_attn.k_conv1d"},
                                   {"ssm_conv1d_v", "self_attn.v_conv1d"},
                                   {"ssm_f_a", "self_attn.f_a_proj"},
                                   {"ssm_f_b", "self_attn.f_b_proj"},
                                   {"ssm_g_a", "self_attn.g_a_proj"},
                                   {"ssm_g_b", "self_attn.g_b_proj"},
                                   {"ssm_beta", "self_attn.b_proj"},
                                   {"ssm_dt", "self_attn.dt_bias."},
                                   {"ssm_a", "self_attn.A_log."},
                                   {"ssm_norm", "self_attn.o_norm"},
                                   {NULL, NULL}};
#define STATE_LAYERS(scope)                                                                        \
    {"ssm_in", scope ".in_proj"}, {"ssm_conv1d", scope ".conv1d"}, {"ssm_a", scope ".A_log."},     \
        {"ssm_d", scope ".D."}, {                                                                  \
        "ssm_out", scope ".out_proj"                                                               \
    }
#define MAMBA_LAYERS(scope)                                                                        \
    STATE_LAYERS(scope), {"ssm_x", scope ".x_proj"}, {                                             \
        "ssm_dt", scope ".dt_proj"                                                                 \
    }
#define MAMBA2_LAYERS(scope)                                                                       \
    STATE_LAYERS(scope), {"ssm_norm", scope ".norm"}, {                                            \
        "ssm_dt", scope ".dt_bias."                                                                \
    }
static const pair granite_hybrid_layers[] = {
    ATTENTION_LAYERS,
    MAMBA2_LAYERS("mamba"),
    EXPERT_LAYERS("block_sparse_moe.router.layer", "block_sparse_moe.experts", "w1", "w3", "w2"),
    {"ffn_gate_shexp", "shared_mlp.gate"},
    {"ffn_up_shexp", "shared_mlp.up"},
    {"ffn_down_shexp", "shared_mlp.output_linear"},
    {"ffn_gate", "shared_mlp.gate"},
    {"ffn_up", "shared_mlp.up"},
    {"ffn_down", "shared_mlp.output_linear"},
    {"ffn_norm", "post_attention_layernorm"},
    {NULL, NULL}};
static const pair jamba_layers[] = {ATTENTION_LAYERS,
                                    MAMBA_LAYERS("mamba"),
                                    {"ssm_dt_norm", "mamba.dt_layernorm"},
                                    {"ssm_b_norm", "mamba.b_layernorm"},
                                    {"ssm_c_norm", "mamba.c_layernorm"},
                                    EXPERT_LAYERS("feed_forward.router", "feed_forward.experts",
                                                  "gate_proj", "up_proj", "down_proj"),
                                    {"ffn_gate", "feed_forward.gate_proj"},
                                    {"ffn_up", "feed_forward.up_proj"},
                                    {"ffn_down", "feed_forward.down_proj"},
                                    {"ffn_norm", "pre_ff_layernorm"},
                                    {NULL, NULL}};
static const pair jamba_tensors[] = {{"token_embd", "model.embed_tokens"},
                                     {"output_norm", "model.final_layernorm"},
                                     {"output", "lm_head"},
                                     {NULL, NULL}};
static const pair mamba_layers[] = {{"attn_norm", "norm"}, MAMBA_LAYERS("mixer"), {NULL, NULL}};
static const pair mamba2_layers[] = {{"attn_norm", "norm"}, MAMBA2_LAYERS("mixer"), {NULL, NULL}};
static const pair pure_tensors[] = {{"token_embd", "backbone.embeddings"},
                                    {"output_norm", "backbone.norm_f"},
                                    {"output", "lm_head"},
                                    {NULL, NULL}};
static const pair phi3_layers[] = {{"attn_norm", "input_layernorm"},
                                   {"attn_qkv", "self_attn.qkv_proj"},
                                   {"attn_output", "self_attn.o_proj"},
                                   {"ffn_norm", "post_attention_layernorm"},
                                   {"ffn_up", "mlp.gate_up_proj"},
                                   {"ffn_down", "mlp.down_proj"},
                                   {NULL, NULL}};

static const pair gpt2_keys[] = {{"context_length", "n_positions"},
                                 {"embedding_length", "n_embd"},
                                 {"block_count", "n_layer"},
                                 {"feed_forward_length", "n_inner"},
                                 {"attention.head_count", "n_head"},
                                 {"attention.layer_norm_epsilon", "layer_norm_epsilon"},
                                 {"vocab_size", NULL},
                                 {NULL, NULL}};
static const pair gpt2_tensors[] = {{"token_embd", "wte"},
                                    {"position_embd", "wpe"},
                                    {"output_norm", "ln_f"},
                                    {"output", "lm_head"},
                                    {NULL, NULL}};
static const pair gpt2_layers[] = {
    {"attn_norm", "ln_1"}, {"attn_qkv", "attn.c_attn"}, {"attn_output", "attn.c_proj"},
    {"ffn_norm", "ln_2"},  {"ffn_up", "mlp.c_fc"},      {"ffn_down", "mlp.c_proj"},
    {NULL, NULL}};

static const pair bert_keys[] = {{"context_length", "max_position_embeddings"},
                                 {"embedding_length", "hidden_size"},
                                 {"block_count", "num_hidden_layers"},
                                 {"feed_forward_length", "intermediate_size"},
                                 {"attention.head_count", "num_attention_heads"},
                                 {"attention.layer_norm_epsilon", "layer_norm_eps"},
                                 {"vocab_size", NULL},
                                 {"attention.causal", NULL},
                                 {"pooling_type", NULL},
                                 {NULL, NULL}};
static const pair bert_tensors[] = {{"token_embd", "embeddings.word_embeddings"},
                                    {"position_embd", "embeddings.position_embeddings"},
                                    {"token_types", "embeddings.token_type_embeddings"},
                                    {"token_embd_norm", "embeddings.LayerNorm"},
                                    {NULL, NULL}};
static const pair bert_layers[] = {{"attn_q", "attention.self.query"},
                                   {"attn_k", "attention.self.key"},
                                   {"attn_v", "attention.self.value"},
                                   {"attn_output", "attention.output.dense"},
                                   {"attn_output_norm", "attention.output.LayerNorm"},
                                   {"ffn_up", "intermediate.dense"},
                                   {"ffn_down", "output.dense"},
                                   {"layer_output_norm", "output.LayerNorm"},
                                   {NULL, NULL}};

static const pair nomic_keys[] = {{"context_length", "n_positions"},
                                  {"embedding_length", "n_embd"},
                                  {"block_count", "n_layer"},
                                  {"feed_forward_length", "n_inner"},
                                  {"attention.head_count", "n_head"},
                                  {"attention.head_count_kv", NULL},
                                  {"attention.layer_norm_epsilon", "layer_norm_epsilon"},
                                  {"rope.freq_base", "rotary_emb_base"},
                                  {"rope.dimension_count", NULL},
                                  {"rope.scaling.type", NULL},
                                  {"vocab_size", NULL},
                                  {"attention.causal", NULL},
                                  {"pooling_type", NULL},
                                  {NULL, NULL}};
static const pair nomic_tensors[] = {{"token_embd", "embeddings.word_embeddings"},
                                     {"token_types", "embeddings.token_type_embeddings"},
                                     {"token_embd_norm", "emb_ln"},
                                     {NULL, NULL}};
static const pair nomic_layers[] = {
    {"attn_qkv", "attn.Wqkv"},      {"attn_output", "attn.out_proj"},
    {"attn_output_norm", "norm1"},  {"ffn_up", "mlp.fc11"},
    {"ffn_gate", "mlp.fc12"},       {"ffn_down", "mlp.fc2"},
    {"layer_output_norm", "norm2"}, {NULL, NULL}};

/* Keys that most decoders have, with the name of the epsilon here. */
#define DECODER_KEYS(eps)                                                                          \
    {"context_length", "max_position_embeddings"}, {"embedding_length", "hidden_size"},            \
        {"block_count", "num_hidden_layers"}, {"feed_forward_length", "intermediate_size"},        \
        {"attention.head_count", "num_attention_heads"},                                           \
        {"attention.head_count_kv", "num_key_value_heads"}, {"attention.layer_norm_epsilon", eps}, \
        {"rope.freq_base", "rope_theta"}, {"rope.dimension_count", NULL},                          \
        {"attention.key_length", NULL}, {"attention.value_length", NULL},                          \
        {"rope.scaling.type", NULL}, {                                                             \
        "vocab_size", NULL                                                                         \
    }
static const pair phi2_keys[] = {DECODER_KEYS("layer_norm_eps"), {NULL, NULL}};
static const pair starcoder2_keys[] = {DECODER_KEYS("norm_epsilon"), {NULL, NULL}};
static const pair stablelm_keys[] = {DECODER_KEYS("layer_norm_eps"),
                                     {"use_parallel_residual", "use_parallel_residual"},
                                     {NULL, NULL}};
static const pair cohere_keys[] = {
    DECODER_KEYS("layer_norm_eps"), {"logit_scale", "logit_scale"}, {NULL, NULL}};
static const pair granite_keys[] = {LLAMA_KEYS,
                                    {"attention.key_length", NULL},
                                    {"attention.scale", "attention_multiplier"},
                                    {"embedding_scale", "embedding_multiplier"},
                                    {"residual_scale", "residual_multiplier"},
                                    {"logit_scale", "logits_scaling"},
                                    {NULL, NULL}};
static const pair neox_keys[] = {{"context_length", "max_position_embeddings"},
                                 {"embedding_length", "hidden_size"},
                                 {"block_count", "num_hidden_layers"},
                                 {"feed_forward_length", "intermediate_size"},
                                 {"attention.head_count", "num_attention_heads"},
                                 {"attention.layer_norm_epsilon", "layer_norm_eps"},
                                 {"use_parallel_residual", "use_parallel_residual"},
                                 {"rope.dimension_count", NULL},
                                 {"rope.freq_base", "rotary_emb_base"},
                                 {"vocab_size", NULL},
                                 {NULL, NULL}};
static const pair bloom_keys[] = {{"context_length", "seq_length"},
                                  {"embedding_length", "hidden_size"},
                                  {"block_count", "n_layer"},
                                  {"feed_forward_length", "n_inner"},
                                  {"attention.head_count", "n_head"},
                                  {"attention.head_count_kv", NULL},
                                  {"attention.layer_norm_epsilon", "layer_norm_epsilon"},
                                  {"vocab_size", NULL},
                                  {NULL, NULL}};
static const pair falcon_keys[] = {{"context_length", "max_position_embeddings"},
                                   {"embedding_length", "hidden_size"},
                                   {"block_count", "num_hidden_layers"},
                                   {"feed_forward_length", "ffn_hidden_size"},
                                   {"attention.head_count", "num_attention_heads"},
                                   {"attention.head_count_kv", "num_kv_heads"},
                                   {"attention.layer_norm_epsilon", "layer_norm_epsilon"},
                                   {"rope.freq_base", "rope_theta"},
                                   {"rope.dimension_count", NULL},
                                   {"tensor_data_layout", NULL},
                                   {"vocab_size", NULL},
                                   {NULL, NULL}};
static const pair mpt_keys[] = {{"context_length", "max_seq_len"},
                                {"embedding_length", "d_model"},
                                {"block_count", "n_layers"},
                                {"feed_forward_length", NULL},
                                {"attention.head_count", "n_heads"},
                                {"attention.head_count_kv", NULL},
                                {"attention.layer_norm_epsilon", "layer_norm_epsilon"},
                                {"attention.max_alibi_bias", "attn_config.alibi_bias_max"},
                                {"attention.clamp_kqv", "attn_config.clip_qkv"},
                                {"vocab_size", NULL},
                                {NULL, NULL}};

static const pair phi2_tensors[] = {{"token_embd", "model.embed_tokens"},
                                    {"output_norm", "model.final_layernorm"},
                                    {"output", "lm_head"},
                                    {NULL, NULL}};
static const pair neox_tensors[] = {{"token_embd", "gpt_neox.embed_in"},
                                    {"output_norm", "gpt_neox.final_layer_norm"},
                                    {"output", "embed_out"},
                                    {NULL, NULL}};
static const pair bloom_tensors[] = {{"token_embd", "transformer.word_embeddings"},
                                     {"token_embd_norm", "transformer.word_embeddings_layernorm"},
                                     {"output_norm", "transformer.ln_f"},
                                     {"output", "lm_head"},
                                     {NULL, NULL}};
static const pair mpt_tensors[] = {{"token_embd", "transformer.wte"},
                                   {"output_norm", "transformer.norm_f"},
                                   {"output", "lm_head"},
                                   {NULL, NULL}};
static const pair phi2_layers[] = {{"attn_norm", "input_layernorm"},
                                   {"attn_q", "self_attn.q_proj"},
                                   {"attn_k", "self_attn.k_proj"},
                                   {"attn_v", "self_attn.v_proj"},
                                   {"attn_output", "self_attn.dense"},
                                   {"ffn_up", "mlp.fc1"},
                                   {"ffn_down", "mlp.fc2"},
                                   {NULL, NULL}};
static const pair starcoder2_layers[] = {{"attn_norm", "input_layernorm"},
                                         {"attn_q", "self_attn.q_proj"},
                                         {"attn_k", "self_attn.k_proj"},
                                         {"attn_v", "self_attn.v_proj"},
                                         {"attn_output", "self_attn.o_proj"},
                                         {"ffn_norm", "post_attention_layernorm"},
                                         {"ffn_up", "mlp.c_fc"},
                                         {"ffn_down", "mlp.c_proj"},
                                         {NULL, NULL}};
static const pair olmo2_layers[] = {LLAMA_LAYERS,
                                    {"post_attention_norm", "post_attention_layernorm"},
                                    {"post_ffw_norm", "post_feedforward_layernorm"},
                                    {NULL, NULL}};
/* Queries, keys and values are one matrix; llama.cpp stores all queries, then all keys, all values. */
#define FUSED_LAYERS(attention, norm)                                                              \
    {"attn_norm", norm}, {"attn_qkv", attention ".query_key_value"},                               \
        {"attn_output", attention ".dense"}, {"ffn_up", "mlp.dense_h_to_4h"}, {                    \
        "ffn_down", "mlp.dense_4h_to_h"                                                            \
    }
static const pair neox_layers[] = {FUSED_LAYERS("attention", "input_layernorm"),
                                   {"ffn_norm", "post_attention_layernorm"},
                                   {NULL, NULL}};
static const pair bloom_layers[] = {FUSED_LAYERS("self_attention", "input_layernorm"),
                                    {"ffn_norm", "post_attention_layernorm"},
                                    {NULL, NULL}};
static const pair falcon_layers[] = {FUSED_LAYERS("self_attention", "input_layernorm"),
                                     {NULL, NULL}};
static const pair falcon40b_layers[] = {
    FUSED_LAYERS("self_attention", "ln_mlp"), {"attn_norm_2", "ln_attn"}, {NULL, NULL}};
static const pair mpt_layers[] = {{"attn_norm", "norm_1"},
                                  {"attn_qkv", "attn.Wqkv"},
                                  {"attn_output", "attn.out_proj"},
                                  {"ffn_norm", "norm_2"},
                                  {"ffn_up", "ffn.up_proj"},
                                  {"ffn_down", "ffn.down_proj"},
                                  {NULL, NULL}};

/* Gemma's gains are stored with their 1. */
#define ARCHITECTURE(called, type, key, tensor, stem, scope, conf)                                 \
    .name = called, .model_type = type, .keys = key, .tensors = tensor, .layers = stem,            \
    .layer = scope, .config = conf
#define LLAMA(name, type, keys, layers, config)                                                    \
    ARCHITECTURE(name, type, keys, llama_tensors, layers, "model.layers.", config)
#define SIDE_BY_SIDE "{\"qkv_layout\": \"side_by_side\"}"
#define DELTA35 "{\"norm_plus_one\": false, \"linear_rates\": true, \"linear_tiled\": true"
static const architecture architectures[] = {
    {LLAMA("llama", "mixtral", mixtral_keys, mixtral_layers, "{\"rope_interleaved\": true}"),
     .marker_key = "expert_count", .marker_above = 0},
    {LLAMA("llama", "llama", llama_keys, llama_layers, "{\"rope_interleaved\": true}")},
    {LLAMA("qwen2", "qwen2", llama_keys, llama_layers, "{}")},
    {LLAMA("qwen3", "qwen3", llama_keys, llama_layers, "{}")},
    {LLAMA("phi3", "phi3", phi3_keys, phi3_layers, "{}"), .partial = "partial_rotary_factor"},
    {LLAMA("gemma", "gemma", gemma_keys, llama_layers, "{\"norm_plus_one\": false}")},
    {LLAMA("gemma2", "gemma2", gemma_keys, gemma2_layers, "{\"norm_plus_one\": false}"),
     .scalar_layers = 46},
    {LLAMA("qwen2moe", "qwen2_moe", qwen_moe_keys, qwen_moe_layers, "{\"norm_topk_prob\": false}")},
    {LLAMA("qwen3moe", "qwen3_moe", qwen_moe_keys, qwen_moe_layers, "{\"norm_topk_prob\": true}")},
    {LLAMA("gemma3", "gemma3_text", gemma_keys, gemma2_layers, "{\"norm_plus_one\": false}"),
     .scalar_layers = 62},
    {ARCHITECTURE("gpt2", "gpt2", gpt2_keys, gpt2_tensors, gpt2_layers, "h.",
                  "{\"linear_layout\": \"out_in\"}")},
    {ARCHITECTURE("bert", "bert", bert_keys, bert_tensors, bert_layers, "encoder.layer.", "{}")},
    {ARCHITECTURE("phi2", "phi", phi2_keys, phi2_tensors, phi2_layers, "model.layers.", "{}"),
     .partial = "partial_rotary_factor"},
    {LLAMA("starcoder2", "starcoder2", starcoder2_keys, starcoder2_layers, "{}")},
    {LLAMA("stablelm", "stablelm", stablelm_keys, llama_layers, "{}"),
     .partial = "partial_rotary_factor"},
    {LLAMA("command-r", "cohere", cohere_keys, llama_layers, "{}")},
    {LLAMA("granite", "granite", granite_keys, llama_layers, "{\"rope_interleaved\": true}"),
     .traits = GGUF_SWITCHES_ROPE},
    {LLAMA("gpt-oss", "gpt_oss", gpt_oss_keys, gpt_oss_layers,
           "{\"separate_experts\": true, \"rope_scaling\": {\"truncate\": false}}")},
    {LLAMA("qwen3next", "qwen3_next", delta_keys, delta_layers,
           "{\"norm_plus_one\": false, \"linear_rates\": true, \"linear_ba\": true}"),
     .partial = "partial_rotary_factor"},
    {LLAMA("qwen35", "qwen3_5_text", delta_keys, delta_layers, DELTA35 "}"),
     .partial = "partial_rotary_factor"},
    {LLAMA("qwen35moe", "qwen3_5_moe_text", delta_moe_keys, delta_layers,
           DELTA35 ", \"separate_experts\": true}"),
     .partial = "partial_rotary_factor"},
    {LLAMA("deepseek2", "deepseek_v3", deepseek_keys, deepseek_layers, "{}"),
     .traits = GGUF_LATENTS, .marker_key = "expert_gating_func", .marker_above = 1},
    {LLAMA("deepseek2", "deepseek_v2", deepseek_keys, deepseek_layers, "{}"),
     .traits = GGUF_LATENTS},
    {LLAMA("kimi-linear", "kimi_linear", kimi_keys, kimi_layers,
           "{\"mla_use_nope\": true, \"linear_rates\": true, \"linear_attn_config\": {}}"),
     .traits = GGUF_LATENTS | GGUF_LISTS_HEADS | GGUF_KDA},
    {LLAMA("granitehybrid", "granitemoehybrid", granite_hybrid_keys, granite_hybrid_layers,
           "{\"linear_rates\": true, \"norm_groups\": true, \"separate_experts\": true}"),
     .traits = GGUF_LISTS_HEADS | GGUF_EXPAND | GGUF_TYPES | GGUF_SWITCHES_ROPE},
    {ARCHITECTURE("jamba", "jamba", jamba_keys, jamba_tensors, jamba_layers, "model.layers.",
                  "{\"linear_rates\": true}"),
     .traits = GGUF_LISTS_HEADS | GGUF_EXPAND | GGUF_PERIODS},
    {ARCHITECTURE("mamba", "mamba", mamba_keys, pure_tensors, mamba_layers, "backbone.layers.",
                  "{\"linear_rates\": true}")},
    {ARCHITECTURE("mamba2", "mamba2", mamba2_keys, pure_tensors, mamba2_layers, "backbone.layers.",
                  "{\"linear_rates\": true, \"norm_groups\": true}"),
     .traits = GGUF_EXPAND},
    {LLAMA("olmo2", "olmo2", llama_keys, olmo2_layers, "{}")},
    {ARCHITECTURE("gptneox", "gpt_neox", neox_keys, neox_tensors, neox_layers, "gpt_neox.layers.",
                  SIDE_BY_SIDE),
     .partial = "rotary_pct"},
    {ARCHITECTURE("bloom", "bloom", bloom_keys, bloom_tensors, bloom_layers, "transformer.h.",
                  SIDE_BY_SIDE)},
    {ARCHITECTURE("falcon", "falcon", falcon_keys, bloom_tensors, falcon40b_layers,
                  "transformer.h.",
                  "{\"new_decoder_architecture\": true, \"qkv_layout\": \"side_by_side\"}"),
     .marker = "blk.0.attn_norm_2.weight"},
    {ARCHITECTURE(
        "falcon", "falcon", falcon_keys, bloom_tensors, falcon_layers, "transformer.h.",
        "{\"new_decoder_architecture\": true, \"num_ln_in_parallel_attn\": 1, \"qkv_layout\": "
        "\"side_by_side\"}")},
    {ARCHITECTURE("mpt", "mpt", mpt_keys, mpt_tensors, mpt_layers, "transformer.blocks.",
                  "{\"attn_config\": {\"alibi\": true}}")},
    {ARCHITECTURE(
        "nomic-bert", "nomic_bert", nomic_keys, nomic_tensors, nomic_layers, "encoder.layers.",
        "{\"activation_function\": \"swiglu\", \"qkv_proj_bias\": false, \"mlp_fc1_bias\": false, "
        "\"mlp_fc2_bias\": false, \"rotary_emb_fraction\": 1}")},
};
enum { ARCHITECTURES = sizeof architectures / sizeof *architectures };

const char *sn_gguf_architecture(int i) {
    return i >= 0 && i < ARCHITECTURES ? architectures[i].name : NULL;
}

const sn_gguf_key *sn_gguf_architecture_key(const architecture *a, const sn_gguf *g,
                                            const char *key) {
    char name[128];
    snprintf(name, sizeof name, "%s.%s", a->name, key);
    return sn_gguf_find(g, name);
}

static bool fits(const architecture *a, const sn_weights *w, const sn_gguf *g) {
    if (a->marker) return sn_weights_find(w, a->marker);
    return !a->marker_key ||
           sn_gguf_number(sn_gguf_architecture_key(a, g, a->marker_key), 0) > a->marker_above;
}

const architecture *sn_gguf_architecture_of(const sn_weights *w) {
    const sn_gguf *g = sn_weights_gguf(w);
    const sn_gguf_key *k = sn_gguf_find(g, "general.architecture");
    for (int i = 0; i < ARCHITECTURES; i++)
        if (sn_gguf_says(k, architectures[i].name) && fits(&architectures[i], w, g))
            return &architectures[i];
    return NULL;
}

const char *sn_gguf_find_pair(const pair *p, const char *gguf, bool *found) {
    while (p->gguf && strcmp(p->gguf, gguf) != 0) p++;
    *found = p->gguf != NULL;
    return p->ours;
}

/* ---- tensors ---- */

/* The number at the end of a stem, "ffn_up.12", becomes "%d"; returns the number's digits, or "". */
static const char *cut_number(char *stem, size_t size, char digits[24]) {
    char *dot = strrchr(stem, '.');
    size_t n = dot ? strspn(dot + 1, "0123456789") : 0;
    *digits = 0;
    if (!n || dot[1 + n] || n >= 24) return digits;
    memcpy(digits, dot + 1, n + 1);
    snprintf(dot + 1, size - (size_t)(dot + 1 - stem), "%%d");
    return digits;
}

/* "blk.3.attn_q.weight" becomes "model.layers.3.self_attn.q_proj.weight"; a tensor of all experts
 * keeps "%d" for their numbers. */
static bool rename_tensor(const void *ctx, const char *name, char *out, size_t size) {
    const architecture *a = ctx;
    char stem[128], name_of[128], number[24];
    size_t digits = strncmp(name, "blk.", 4) ? 0 : strspn(name + 4, "0123456789");
    bool layer = digits && name[4 + digits] == '.', found;
    const char *rest = layer ? name + 4 + digits + 1 : name, *dot = strrchr(rest, '.');
    bool plain = !dot || (strcmp(dot, ".weight") && strcmp(dot, ".bias"));
    if (plain) dot = rest + strlen(rest);
    if ((size_t)(dot - rest) >= sizeof stem) return false;
    snprintf(stem, sizeof stem, "%.*s", (int)(dot - rest), rest);
    cut_number(stem, sizeof stem, number);
    const char *ours = sn_gguf_find_pair(layer ? a->layers : a->tensors, stem, &found);
    if (!found || (plain && !sn_ends_with(ours, "."))) return false;
    const char *place = *number ? strstr(ours, "%d") : NULL;
    if (place) {
        snprintf(name_of, sizeof name_of, "%.*s%s%s", (int)(place - ours), ours, number, place + 2);
        ours = name_of;
    }
    if (sn_ends_with(ours, ".")) dot = "";
    int n = layer ? snprintf(out, size, "%s%.*s.%s%s", a->layer, (int)digits, name + 4, ours, dot)
                  : snprintf(out, size, "%s%s", ours, dot);
    if (!*dot && n > 0 && (size_t)n < size) out[n - 1] = 0;
    return n > 0 && (size_t)n < size;
}

bool sn_gguf_rename(sn_weights *w, sn_error *err) {
    const architecture *a = sn_gguf_architecture_of(w);
    if (!a) return true;
    if (!sn_weights_rename(w, rename_tensor, a, err) || !sn_weights_split(w, err)) return false;
    sn_weights_as_row(w, "shared_expert_gate.weight");
    sn_weights_as_channels(w, "conv1d.weight");
    sn_weights_as_vector(w, ".A_log", 1);
    sn_weights_as_vector(w, ".D", 1);
    sn_weights_as_vector(w, "mixer.norm.weight", INT64_MAX);
    sn_weights_as_vector(w, "mamba.norm.weight", INT64_MAX);
    return true;
}
