/* gguf_model.c: what each architecture is called in GGUF files, as tables: keys and their names in
 * config.json, tensors and their names in model.safetensors (ggml-org/ggml, docs/gguf.md;
 * ggml-org/llama.cpp, gguf-py/gguf/constants.py). */
#include "runtime/files/gguf_model.h"
#include "runtime/files/json.h"
#include "runtime/files/weights_impl.h"
#include "runtime/problems.h"
#include "runtime/str.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- tables ---- */

typedef struct pair {
    const char *gguf, *ours; /* ours NULL (keys): checked below, or without effect */
} pair;

typedef struct architecture {
    const char *name, *model_type;
    const pair *keys;    /* without "NAME." */
    const pair *tensors; /* stems: without ".weight", ".bias"; ours "NAME.": it has neither */
    const pair *layers;  /* stems behind "blk.N." */
    const char *layer;   /* "h." */
    const char *config;  /* keys that all models of this kind have, as JSON */
    const char *partial; /* key for the rotated part of heads; NULL: all of it is rotated */
    int scalar_layers;   /* Gemma: number of layers whose scores are scaled by embedding / heads */
    const char
        *marker; /* a tensor that files of this kind have and others of the name lack; NULL */
} architecture;

enum { MAX_FACTORS = 1024 };

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
#define LLAMA_LAYERS                                                                               \
    {"attn_norm", "input_layernorm"}, {"attn_q", "self_attn.q_proj"},                              \
        {"attn_k", "self_attn.k_proj"}, {"attn_v", "self_attn.v_proj"},                            \
        {"attn_q_norm", "self_attn.q_norm"}, {"attn_k_norm", "self_attn.k_norm"},                  \
        {"attn_output", "self_attn.o_proj"}, {"ffn_gate", "mlp.gate_proj"},                        \
        {"ffn_up", "mlp.up_proj"}, {                                                               \
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
#define LLAMA(name, type, keys, layers, config, ...)                                               \
    { name, type, keys, llama_tensors, layers, "model.layers.", config, __VA_ARGS__ }
#define SIDE_BY_SIDE "{\"qkv_layout\": \"side_by_side\"}"
#define DELTA35 "{\"norm_plus_one\": false, \"linear_rates\": true, \"linear_tiled\": true"
static const architecture architectures[] = {
    LLAMA("llama", "llama", llama_keys, llama_layers, "{\"rope_interleaved\": true}", NULL, 0,
          NULL),
    LLAMA("qwen2", "qwen2", llama_keys, llama_layers, "{}", NULL, 0, NULL),
    LLAMA("qwen3", "qwen3", llama_keys, llama_layers, "{}", NULL, 0, NULL),
    LLAMA("phi3", "phi3", phi3_keys, phi3_layers, "{}", "partial_rotary_factor", 0, NULL),
    LLAMA("gemma", "gemma", gemma_keys, llama_layers, "{\"norm_plus_one\": false}", NULL, 0, NULL),
    LLAMA("gemma2", "gemma2", gemma_keys, gemma2_layers, "{\"norm_plus_one\": false}", NULL, 46,
          NULL),
    LLAMA("qwen2moe", "qwen2_moe", qwen_moe_keys, qwen_moe_layers, "{\"norm_topk_prob\": false}",
          NULL, 0, NULL),
    LLAMA("qwen3moe", "qwen3_moe", qwen_moe_keys, qwen_moe_layers, "{\"norm_topk_prob\": true}",
          NULL, 0, NULL),
    LLAMA("gemma3", "gemma3_text", gemma_keys, gemma2_layers, "{\"norm_plus_one\": false}", NULL,
          62, NULL),
    {"gpt2", "gpt2", gpt2_keys, gpt2_tensors, gpt2_layers, "h.", "{\"linear_layout\": \"out_in\"}",
     NULL, 0, NULL},
    {"bert", "bert", bert_keys, bert_tensors, bert_layers, "encoder.layer.", "{}", NULL, 0, NULL},
    {"phi2", "phi", phi2_keys, phi2_tensors, phi2_layers, "model.layers.", "{}",
     "partial_rotary_factor", 0, NULL},
    LLAMA("starcoder2", "starcoder2", starcoder2_keys, starcoder2_layers, "{}", NULL, 0, NULL),
    LLAMA("stablelm", "stablelm", stablelm_keys, llama_layers, "{}", "partial_rotary_factor", 0,
          NULL),
    LLAMA("command-r", "cohere", cohere_keys, llama_layers, "{}", NULL, 0, NULL),
    LLAMA("granite", "granite", granite_keys, llama_layers, "{\"rope_interleaved\": true}", NULL, 0,
          NULL),
    LLAMA("gpt-oss", "gpt_oss", gpt_oss_keys, gpt_oss_layers,
          "{\"separate_experts\": true, \"rope_scaling\": {\"truncate\": false}}", NULL, 0, NULL),
    LLAMA("qwen3next", "qwen3_next", delta_keys, delta_layers,
          "{\"norm_plus_one\": false, \"linear_rates\": true, \"linear_ba\": true}",
          "partial_rotary_factor", 0, NULL),
    LLAMA("qwen35", "qwen3_5_text", delta_keys, delta_layers, DELTA35 "}", "partial_rotary_factor",
          0, NULL),
    LLAMA("qwen35moe", "qwen3_5_moe_text", delta_moe_keys, delta_layers,
          DELTA35 ", \"separate_experts\": true}", "partial_rotary_factor", 0, NULL),
    LLAMA("olmo2", "olmo2", llama_keys, olmo2_layers, "{}", NULL, 0, NULL),
    {"gptneox", "gpt_neox", neox_keys, neox_tensors, neox_layers, "gpt_neox.layers.", SIDE_BY_SIDE,
     "rotary_pct", 0, NULL},
    {"bloom", "bloom", bloom_keys, bloom_tensors, bloom_layers, "transformer.h.", SIDE_BY_SIDE,
     NULL, 0, NULL},
    {"falcon", "falcon", falcon_keys, bloom_tensors, falcon40b_layers, "transformer.h.",
     "{\"new_decoder_architecture\": true, \"qkv_layout\": \"side_by_side\"}", NULL, 0,
     "blk.0.attn_norm_2.weight"},
    {"falcon", "falcon", falcon_keys, bloom_tensors, falcon_layers, "transformer.h.",
     "{\"new_decoder_architecture\": true, \"num_ln_in_parallel_attn\": 1, \"qkv_layout\": "
     "\"side_by_side\"}",
     NULL, 0, NULL},
    {"mpt", "mpt", mpt_keys, mpt_tensors, mpt_layers, "transformer.blocks.",
     "{\"attn_config\": {\"alibi\": true}}", NULL, 0, NULL},
    {"nomic-bert", "nomic_bert", nomic_keys, nomic_tensors, nomic_layers, "encoder.layers.",
     "{\"activation_function\": \"swiglu\", \"qkv_proj_bias\": false, \"mlp_fc1_bias\": false, "
     "\"mlp_fc2_bias\": false, \"rotary_emb_fraction\": 1}",
     NULL, 0, NULL},
};
/* Files of architecture llama that have experts. */
static const architecture mixtral = LLAMA("llama", "mixtral", mixtral_keys, mixtral_layers,
                                          "{\"rope_interleaved\": true}", NULL, 0, NULL);
enum { ARCHITECTURES = sizeof architectures / sizeof *architectures };

const char *sn_gguf_architecture(int i) {
    return i >= 0 && i < ARCHITECTURES ? architectures[i].name : NULL;
}

static const architecture *find_architecture(const sn_weights *w) {
    const sn_gguf *g = sn_weights_gguf(w);
    const sn_gguf_key *k = sn_gguf_find(g, "general.architecture");
    if (sn_gguf_says(k, mixtral.name) &&
        sn_gguf_number(sn_gguf_find(g, "llama.expert_count"), 0) > 0)
        return &mixtral;
    for (int i = 0; i < ARCHITECTURES; i++)
        if (sn_gguf_says(k, architectures[i].name) &&
            (!architectures[i].marker || sn_weights_find(w, architectures[i].marker)))
            return &architectures[i];
    return NULL;
}

static const char *find_pair(const pair *p, const char *gguf, bool *found) {
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
    const char *ours = find_pair(layer ? a->layers : a->tensors, stem, &found);
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
    const architecture *a = find_architecture(w);
    if (!a) return true;
    if (!sn_weights_rename(w, rename_tensor, a, err) || !sn_weights_split(w, err)) return false;
    sn_weights_as_row(w, "shared_expert_gate.weight");
    sn_weights_as_channels(w, "conv1d.weight");
    return true;
}

/* ---- keys ---- */

typedef struct making {
    const sn_weights *w;
    const sn_gguf *g; /* the first file, which has the keys */
    const architecture *a;
    cJSON *root;
    sn_problems problems;
    bool failed; /* out of memory */
} making;

/* "a.b": key b of section a. */
static void set(making *m, const char *key, cJSON *value) {
    cJSON *in = m->root;
    const char *dot = strchr(key, '.');
    char section[32];
    if (dot) {
        snprintf(section, sizeof section, "%.*s", (int)(dot - key), key);
        in = cJSON_GetObjectItemCaseSensitive(in, section);
        key = dot + 1;
    }
    if (value && in && cJSON_AddItemToObject(in, key, value)) return;
    cJSON_Delete(value);
    m->failed = true;
}

/* A number or bool; integers stay exact. */
static void set_value(making *m, const char *key, const sn_gguf_key *k) {
    double v = sn_gguf_number(k, 0);
    if (k->array || !isfinite(v))
        sn_problem(&m->problems, "key \"%s\" must be one finite number", k->name);
    else
        set(m, key, k->type == SN_GGUF_BOOL ? cJSON_CreateBool(v != 0) : cJSON_CreateNumber(v));
}

/* The key NAME.key of the architecture; NULL: absent. */
static const sn_gguf_key *find_key(const making *m, const char *key) {
    char name[128];
    snprintf(name, sizeof name, "%s.%s", m->a->name, key);
    return sn_gguf_find(m->g, name);
}

/* A key that the model can only have with one value. */
static void need_value(making *m, const char *key, double value) {
    const sn_gguf_key *k = find_key(m, key);
    if (k && value > 0 && sn_gguf_number(k, 0) != value)
        sn_problem(&m->problems, "key \"%s\" is %g; only %g is supported", k->name,
                   sn_gguf_number(k, 0), value);
}

/* Keys whose value here has no effect. */
static bool is_neutral(const sn_gguf_key *k, const char *key) {
    return (!strcmp(key, "expert_count") && sn_gguf_number(k, 0) == 0) ||
           (!strcmp(key, "expert_used_count") && sn_gguf_number(k, 0) == 0);
}

static void take_keys(making *m) {
    size_t n = strlen(m->a->name);
    for (size_t i = 0; i < m->g->key_count; i++) {
        const sn_gguf_key *k = &m->g->key[i];
        if (strncmp(k->name, m->a->name, n) || k->name[n] != '.') continue;
        bool found;
        const char *key = k->name + n + 1, *ours = find_pair(m->a->keys, key, &found);
        const bool text = !strcmp(key, "rope.scaling.type") || !strcmp(key, "tensor_data_layout") ||
                          !strcmp(key, "rope.dimension_sections");
        if (ours)
            set_value(m, ours, k);
        else if (found && !text && (k->array || isnan(sn_gguf_number(k, 0))))
            sn_problem(&m->problems, "key \"%s\" must be one number", k->name);
        else if (!found && !is_neutral(k, key))
            sn_problem(&m->problems, "key \"%s\" is not supported for this architecture", k->name);
    }
}

static double number(const making *m, const char *key) {
    return sn_gguf_number(find_key(m, key), 0);
}

static void check_keys(making *m) {
    double heads = number(m, "attention.head_count"), width = number(m, "embedding_length"),
           rotated = number(m, "rope.dimension_count");
    const sn_gguf_key *head = find_key(m, "attention.key_length");
    double d_head = head ? sn_gguf_number(head, 0) : heads > 0 ? width / heads : 0;
    bool has_width;
    const char *key = find_pair(m->a->keys, "attention.key_length", &has_width);
    if (key && !head && d_head > 0) set(m, key, cJSON_CreateNumber(d_head));
    if (has_width && !key && heads > 0) need_value(m, "attention.key_length", width / heads);
    need_value(m, "attention.value_length", d_head);
    if (m->a->partial && rotated > 0 && d_head > 0)
        set(m, m->a->partial, cJSON_CreateNumber(rotated / d_head));
    else
        need_value(m, "rope.dimension_count", d_head);
    if (number(m, "attention.causal") > 0)
        sn_problem(&m->problems, "causal attention is not supported for this architecture");
    double pooling = number(m, "pooling_type"); /* 0: none, 1: mean */
    if (pooling > 1 || pooling < 0)
        sn_problem(&m->problems, "key \"%s.pooling_type\" is %g; only 0 and 1 (mean) are supported",
                   m->a->name, pooling);
    if (m->a->scalar_layers && heads > 0)
        set(m, "query_pre_attn_scalar",
            cJSON_CreateNumber(number(m, "block_count") == m->a->scalar_layers ? width / heads
                                                                               : d_head));
}

/* ---- rotary frequencies ---- */

/* One factor for each pair of elements, from a tensor. */
static void set_factors(making *m, cJSON *section, const char *key, const char *tensor) {
    const sn_weight *t = sn_weights_find(m->w, tensor);
    int64_t n = t && t->rank == 1 && t->dtype == SN_F32 && !t->block ? t->shape[0] : 0;
    cJSON *list = cJSON_CreateArray();
    if (!n || n > MAX_FACTORS)
        sn_problem(&m->problems, "tensor \"%s\" is not a list of f32", tensor);
    for (int64_t i = 0; list && i < n && n <= MAX_FACTORS; i++)
        cJSON_AddItemToArray(list, cJSON_CreateNumber(((const float *)t->data)[i]));
    m->failed |= !list || !cJSON_AddItemToObject(section, key, list);
}

static void set_number(making *m, cJSON *section, const char *key, double value) {
    if (!isnan(value)) m->failed |= !cJSON_AddNumberToObject(section, key, value);
}

/* The section "rope_scaling". Llama 3's factors are a tensor: each frequency divided by its own,
 * which is longrope with one list. */
static void take_rope(making *m) {
    const sn_gguf_key *type = find_key(m, "rope.scaling.type");
    bool llama3 = sn_weights_find(m->w, "rope_freqs.weight"),
         lists = sn_weights_find(m->w, "rope_factors_long.weight"),
         linear = sn_gguf_says(type, "linear"), yarn = sn_gguf_says(type, "yarn");
    bool none = !type || sn_gguf_says(type, "none");
    if (!none && !linear && !yarn && !sn_gguf_says(type, "longrope"))
        sn_problem(&m->problems, "key \"%s\" is not none, linear, yarn or longrope", type->name);
    if (llama3 + lists + linear + yarn > 1)
        sn_problem(&m->problems, "several ways to scale rotary frequencies");
    if (!llama3 && !lists && !linear && !yarn) {
        cJSON_DeleteItemFromObjectCaseSensitive(m->root, "rope_scaling");
        return;
    }
    cJSON *s = cJSON_GetObjectItemCaseSensitive(m->root, "rope_scaling");
    if (!s) s = cJSON_AddObjectToObject(m->root, "rope_scaling");
    double original = number(m, "rope.scaling.original_context_length"),
           attention = number(m, "rope.scaling.attn_factor");
    m->failed |= !s || !cJSON_AddStringToObject(s, "rope_type",
                                                linear ? "linear"
                                                : yarn ? "yarn"
                                                       : "longrope");
    if (linear || yarn) set_number(m, s, "factor", number(m, "rope.scaling.factor"));
    if (yarn) {
        set_number(m, s, "beta_fast", number(m, "rope.scaling.yarn_beta_fast"));
        set_number(m, s, "beta_slow", number(m, "rope.scaling.yarn_beta_slow"));
    }
    if (!linear && !llama3) set_number(m, s, "original_max_position_embeddings", original);
    if (llama3 || lists) {
        set_factors(m, s, "long_factor", llama3 ? "rope_freqs.weight" : "rope_factors_long.weight");
        set_factors(m, s, "short_factor",
                    llama3 ? "rope_freqs.weight" : "rope_factors_short.weight");
        if (llama3 || !isnan(attention))
            set_number(m, s, "attention_factor", isnan(attention) ? 1 : attention);
    } else if (!isnan(attention))
        sn_problem(&m->problems, "key \"%s\" is not supported for this type of scaling",
                   find_key(m, "rope.scaling.attn_factor")->name);
}

/* ---- tokens and tensors ---- */

/* Token ids and what begins a text. */
static void take_tokens(making *m) {
    static const char *const ends[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                       "tokenizer.ggml.eom_token_id"};
    cJSON *list = cJSON_CreateArray();
    for (int i = 0; i < 3; i++) {
        double id = sn_gguf_number(sn_gguf_find(m->g, ends[i]), 0);
        if (list && id >= 0 && id <= INT32_MAX) cJSON_AddItemToArray(list, cJSON_CreateNumber(id));
    }
    set(m, "eos_token_id", list);
    const sn_gguf_key *bos = sn_gguf_find(m->g, "tokenizer.ggml.bos_token_id"),
                      *add = sn_gguf_find(m->g, "tokenizer.ggml.add_bos_token"),
                      *model = sn_gguf_find(m->g, "tokenizer.ggml.model"),
                      *pre = sn_gguf_find(m->g, "tokenizer.ggml.pre");
    if (bos) set_value(m, "bos_token_id", bos);
    bool usual = sn_gguf_says(model, "llama") || sn_gguf_says(pre, "llama-bpe");
    set(m, "add_bos_token", cJSON_CreateBool(add ? sn_gguf_number(add, 0) == 1 : usual));
}

/* Keys that say that queries, keys and values have biases, of architectures where that varies. */
static const pair biases[] = {{"llama", "attention_bias"}, {"stablelm", "use_qkv_bias"}};

static void take_tensors(making *m) {
    const sn_weight *table = sn_weights_find(m->w, "token_embd.weight"),
                    *types = sn_weights_find(m->w, "token_types.weight");
    if (table && table->rank == 2)
        set(m, "vocab_size", cJSON_CreateNumber((double)table->shape[0]));
    if (types && types->rank == 2)
        set(m, "type_vocab_size", cJSON_CreateNumber((double)types->shape[0]));
    set(m, "tie_word_embeddings", cJSON_CreateBool(!sn_weights_find(m->w, "output.weight")));
    for (size_t i = 0; i < sizeof biases / sizeof *biases; i++)
        if (sn_weights_find(m->w, "blk.0.attn_q.bias") && !strcmp(m->a->name, biases[i].gguf))
            set(m, biases[i].ours, cJSON_CreateTrue());
}

static void fail_architecture(const sn_gguf *g, sn_error *err) {
    char known[200] = "", shown[80] = "none";
    const char *text;
    size_t n = 0, at = 0, size;
    for (int i = 0; i < ARCHITECTURES && n < sizeof known; i++)
        n += (size_t)snprintf(known + n, sizeof known - n, "%s%s", i ? ", " : "",
                              architectures[i].name);
    if (sn_gguf_string(sn_gguf_find(g, "general.architecture"), &at, &text, &size))
        snprintf(shown, sizeof shown, "\"%.*s\"", (int)(size < 60 ? size : 60), text);
    sn_fail(err, SN_ERR_FILE, "%s: the architecture is %s; supported in GGUF files: %s", g->path,
            shown, known);
}

sn_config *sn_gguf_config(const sn_weights *w, sn_error *err) {
    const sn_gguf *g = sn_weights_gguf(w);
    making m = {.w = w, .g = g, .a = find_architecture(w)};
    if (!m.a) {
        fail_architecture(g, err);
        return NULL;
    }
    m.root = cJSON_Parse(m.a->config);
    m.failed = !m.root;
    if (!m.failed) {
        set(&m, "model_type", cJSON_CreateString(m.a->model_type));
        take_keys(&m);
        check_keys(&m);
        take_rope(&m);
        take_tokens(&m);
        take_tensors(&m);
    }
    sn_config *c = NULL;
    char *text = m.failed ? NULL : cJSON_PrintUnformatted(m.root);
    if (!text)
        sn_fail(err, SN_ERR_MEMORY, "%s: out of memory", g->path);
    else if (sn_problems_check(&m.problems, g->path, SN_ERR_FILE, err))
        c = sn_config_parse(g->path, text, strlen(text), err);
    cJSON_free(text);
    cJSON_Delete(m.root);
    return c;
}
