/* What the keys and names of a GGUF file become in the config and the weights, and what is refused: files of a few keys
 * and tensors, written here. */
#include "runtime/files/gguf_model.h"
#include "runtime/weights.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "tests/support/scratch.h"

#include <ctype.h>

typedef struct writer {
    char data[1 << 14];
    size_t n;
} writer;

static void put(writer *w, const void *data, size_t n) {
    assert_true(w->n + n <= sizeof w->data);
    memcpy(w->data + w->n, data, n);
    w->n += n;
}

static void put_number(writer *w, uint64_t x, size_t bytes) {
    put(w, &x, bytes);
}

static void put_text(writer *w, const char *text, size_t n) {
    put_number(w, n, 8);
    put(w, text, n);
}

/* "name=3", "name=0.5", "name=true", "name=text", "name=[102]", digits of a list; "A." stands for
 * the architecture. */
static void put_key(writer *w, const char *arch, const char *word) {
    enum { U32 = 4, F32 = 6, BOOL = 7, STRING = 8, ARRAY = 9 };
    const char *value = strchr(word, '=') + 1;
    char name[120];
    if (!strncmp(word, "A.", 2))
        snprintf(name, sizeof name, "%s%.*s", arch, (int)(value - word - 2), word + 1);
    else
        snprintf(name, sizeof name, "%.*s", (int)(value - word - 1), word);
    put_text(w, name, strlen(name));
    const bool yes = !strcmp(value, "true"),
               number = isdigit((unsigned char)*value) || *value == '-';
    if (*value == '[') {
        const size_t n = strlen(value) - 2;
        put_number(w, ARRAY, 4), put_number(w, U32, 4), put_number(w, n, 8);
        for (size_t i = 0; i < n; i++) put_number(w, (uint64_t)(value[1 + i] - '0'), 4);
    } else if (yes || !strcmp(value, "false")) {
        put_number(w, BOOL, 4), put_number(w, yes, 1);
    } else if (number && strchr(value, '.')) {
        const float x = strtof(value, NULL);
        put_number(w, F32, 4), put(w, &x, 4);
    } else if (number) {
        put_number(w, U32, 4), put_number(w, strtoul(value, NULL, 10), 4);
    } else {
        put_number(w, STRING, 4), put_text(w, value, strlen(value));
    }
}

/* keys, tensors: words between spaces; tensors "name:2x3", f32, element i of each is i + 1. */
static sn_weights *open_file(const char *arch, const char *keys, const char *tensors) {
    static writer w;
    char text[1200], *save;
    uint64_t n_keys = 1, n_tensors = 0, offset = 0;
    sn_error err = {0};
    w.n = 0;
    for (const char *c = keys; *c; c++) n_keys += *c == '=';
    for (const char *c = tensors; *c; c++) n_tensors += *c == ':';
    put(&w, "GGUF\3\0\0\0", 8);
    put_number(&w, n_tensors, 8), put_number(&w, n_keys, 8);
    put_key(&w, "", strcat(strcpy(text, "general.architecture="), arch));
    snprintf(text, sizeof text, "%s", keys);
    for (char *k = strtok_r(text, " ", &save); k; k = strtok_r(NULL, " ", &save))
        put_key(&w, arch, k);
    snprintf(text, sizeof text, "%s", tensors);
    for (char *t = strtok_r(text, " ", &save); t; t = strtok_r(NULL, " ", &save)) {
        char *at = strchr(t, ':');
        uint64_t size[4], rank = 0, n = 1;
        put_text(&w, t, (size_t)(at - t));
        while (*at) n *= size[rank++] = strtoul(at + 1, &at, 10);
        put_number(&w, rank, 4);
        for (uint64_t i = rank; i-- > 0;) put_number(&w, size[i], 8);
        put_number(&w, 0, 4), put_number(&w, offset, 8);
        offset += (n * 4 + 31) / 32 * 32;
    }
    while (w.n % 32) put(&w, "", 1);
    for (uint64_t i = 0; i < offset / 4; i++) put(&w, &(float){(float)(i + 1)}, 4);
    assert_true(scratch_write(scratch_path("m.gguf"), w.data, w.n));
    sn_weights *file = sn_weights_open(scratch_path("m.gguf"), &err);
    if (!file) fail_msg("%s", err.message);
    return file;
}

#define SIZES                                                                                      \
    "A.context_length=32 A.embedding_length=16 A.block_count=2 A.feed_forward_length=20 "          \
    "A.attention.head_count=4 "
#define NORMS SIZES "A.attention.layer_norm_rms_epsilon=0.5 "
#define FREQS "rope_freqs.weight:2"

/* Keys of the config as JSON, up to a NULL; or the error, which begins with '!'. */
static const struct {
    const char *arch, *keys, *tensors, *want[10][2];
} config_rows[] = {
    {"llama",
     NORMS,
     "token_embd.weight:23x16 output.weight:23x16",
     {{"model_type", "\"llama\""},
      {"max_position_embeddings", "32"},
      {"hidden_size", "16"},
      {"num_hidden_layers", "2"},
      {"intermediate_size", "20"},
      {"num_attention_heads", "4"},
      {"rms_norm_eps", "0.5"},
      {"vocab_size", "23"},
      {"tie_word_embeddings", "false"}}},
    {"llama", NORMS, "token_embd.weight:23x16", {{"tie_word_embeddings", "true"}}},
    {"llama",
     NORMS "A.attention.key_length=8 A.attention.value_length=8 A.rope.dimension_count=8",
     "",
     {{"head_dim", "8"}}},
    {"llama", NORMS "A.attention.value_length=8", "", {{"!value_length\" is 8; only 4 is supp"}}},
    {"llama", NORMS "A.rope.dimension_count=2", "", {{"!dimension_count\" is 2; only 4 is supp"}}},
    {"llama",
     NORMS "A.attention.causal=false",
     "",
     {{"!llama.attention.causal\" is not supported"}}},
    {"llama", NORMS "A.attention.head_count_kv=two", "", {{"!head_count_kv\" "}}},
    {"llama", NORMS "A.rope.scaling.factor=two", "", {{"!factor\" must be one number"}}},
    {"llama", NORMS "A.expert_count=0 A.expert_used_count=0", "", {{"hidden_size", "16"}}},
    {"phi3", NORMS "A.expert_count=0", "", {{"hidden_size", "16"}}},
    {"phi3", NORMS "A.expert_count=2", "", {{"!phi3.expert_count\" is not supported"}}},
    {"lemma", NORMS, "", {{"!the architecture is \"lemma\""}}},
    {"bert",
     SIZES "A.attention.layer_norm_epsilon=0.5 A.attention.causal=false A.pooling_type=1",
     "",
     {{"layer_norm_eps", "0.5"}}},
    {"bert",
     SIZES "A.attention.layer_norm_epsilon=0.5 A.attention.causal=true",
     "",
     {{"!causal attention is not supported for this architecture"}}},
    {"bert",
     SIZES "A.attention.layer_norm_epsilon=0.5 A.pooling_type=2",
     "",
     {{"!bert.pooling_type\" is 2; only 0 and 1"}}},
    {"llama", NORMS "A.rope.scaling.type=none", "", {{"rope_scaling", NULL}}},
    {"llama",
     NORMS "A.rope.scaling.type=linear A.rope.scaling.factor=2.0",
     "",
     {{"rope_scaling", "{\"rope_type\": \"linear\", \"factor\": 2}"}}},
    {"llama",
     NORMS "A.rope.scaling.type=yarn A.rope.scaling.factor=2.0 "
           "A.rope.scaling.original_context_length=16 "
           "A.rope.scaling.yarn_beta_fast=4.0 A.rope.scaling.yarn_beta_slow=1.0",
     "",
     {{"rope_scaling",
       "{\"rope_type\": \"yarn\", \"factor\": 2, \"beta_fast\": 4, \"beta_slow\": 1, "
       "\"original_max_position_embeddings\": 16}"}}},
    {"llama",
     NORMS,
     FREQS,
     {{"rope_scaling",
       "{\"rope_type\": \"longrope\", \"long_factor\": [1, 2], \"short_factor\": [1, "
       "2], \"attention_factor\": 1}"}}},
    {"phi3",
     NORMS "A.rope.scaling.type=longrope A.rope.scaling.original_context_length=16 "
           "A.rope.scaling.attn_factor=1.5",
     "rope_factors_long.weight:2 rope_factors_short.weight:2",
     {{"rope_scaling",
       "{\"rope_type\": \"longrope\", \"original_max_position_embeddings\": 16, "
       "\"long_factor\": [1, 2], \"short_factor\": [9, 10], \"attention_factor\": 1.5}"}}},
    {"llama", NORMS "A.rope.scaling.type=ntk", "", {{"!is not none, linear, yarn or longrope"}}},
    {"llama",
     NORMS "A.rope.scaling.type=linear A.rope.scaling.factor=2.0",
     FREQS,
     {{"!several ways to scale rotary frequencies"}}},
    {"llama",
     NORMS "A.rope.scaling.type=linear A.rope.scaling.attn_factor=2.0",
     "",
     {{"!attn_factor\" is not supported for this type of scaling"}}},
    {"llama", NORMS, "rope_freqs.weight:2x2", {{"!\"rope_freqs.weight\" is not a list of f32"}}},
    {"phi3",
     NORMS "A.rope.scaling.type=longrope",
     "rope_factors_long.weight:2",
     {{"!\"rope_factors_short.weight\" is not a list of f32"}}},
    {"llama",
     NORMS "tokenizer.ggml.eos_token_id=2 tokenizer.ggml.eot_token_id=7 "
           "tokenizer.ggml.bos_token_id=1",
     "",
     {{"eos_token_id", "[2, 7]"}, {"bos_token_id", "1"}, {"add_bos_token", "false"}}},
    {"llama", NORMS "tokenizer.ggml.model=llama", "", {{"add_bos_token", "true"}}},
    {"llama", NORMS "tokenizer.ggml.pre=llama-bpe", "", {{"add_bos_token", "true"}}},
    {"llama",
     NORMS "tokenizer.ggml.model=llama tokenizer.ggml.add_bos_token=false",
     "",
     {{"add_bos_token", "false"}}},
    {"llama", NORMS, "blk.0.attn_q.bias:16", {{"attention_bias", "true"}}},
    {"llama", NORMS "A.expert_count=8", "", {{"model_type", "\"mixtral\""}}},
    {"deepseek2",
     NORMS "A.attention.key_length=9 A.attention.value_length=5 A.rope.dimension_count=2 "
           "A.attention.q_lora_rank=0 A.expert_group_count=1",
     "",
     {{"model_type", "\"deepseek_v2\""},
      {"qk_nope_head_dim", "7"},
      {"qk_rope_head_dim", "2"},
      {"v_head_dim", "5"},
      {"q_lora_rank", NULL},
      {"topk_method", NULL},
      {"separate_kv_b", NULL}}},
    {"deepseek2",
     NORMS "A.attention.key_length=99 A.attention.value_length=99 A.attention.key_length_mla=9 "
           "A.attention.value_length_mla=5 A.rope.dimension_count=2 A.attention.q_lora_rank=3 "
           "A.expert_gating_func=1 A.expert_group_count=2",
     "blk.1.attn_k_b.weight:4x2x2",
     {{"model_type", "\"deepseek_v2\""},
      {"qk_nope_head_dim", "7"},
      {"v_head_dim", "5"},
      {"q_lora_rank", "3"},
      {"topk_method", "\"group_limited_greedy\""},
      {"separate_kv_b", "true"}}},
    {"deepseek2",
     NORMS "A.expert_gating_func=2 A.expert_group_count=2 A.rope.scaling.type=yarn "
           "A.rope.scaling.factor=2.0 A.rope.scaling.yarn_log_multiplier=0.125",
     "",
     {{"model_type", "\"deepseek_v3\""},
      {"topk_method", NULL},
      {"rope_scaling", "{\"rope_type\": \"yarn\", \"factor\": 2, \"mscale_all_dim\": 1.25, "
                       "\"attention_factor\": 1}"}}},
    {"kimi-linear",
     NORMS "A.attention.head_count_kv=1",
     "",
     {{"!kimi-linear.attention.head_count_kv\" must list the heads of each layer"}}},
    {"kimi-linear",
     NORMS "A.attention.head_count_kv=[01]",
     "",
     {{"linear_attn_config",
       "{\"num_heads\": 4, \"kda_layers\": [1], \"full_attn_layers\": [2]}"}}},
    {"kimi-linear",
     NORMS "A.attention.head_count_kv=[011]",
     "",
     {{"!head_count_kv\" must list the heads of each layer"}}},
    {"granitehybrid",
     NORMS "A.attention.head_count_kv=[02] A.ssm.inner_size=48 A.rope.scaling.finetuned=false",
     "",
     {{"layer_types", "[\"mamba\", \"attention\"]"},
      {"num_key_value_heads", "2"},
      {"num_local_experts", "0"},
      {"mamba_expand", "3"}}},
    {"granitehybrid",
     NORMS "A.attention.head_count_kv=[02] A.rope.scaling.finetuned=true",
     "",
     {{"!only no positions are supported"}}},
    {"granitehybrid",
     NORMS "A.attention.head_count_kv=[02]",
     "",
     {{"!only no positions are supported"}}},
    {"granite", NORMS "A.rope.scaling.finetuned=true", "", {{"model_type", "\"granite\""}}},
    {"granite",
     NORMS "A.rope.scaling.finetuned=false",
     "",
     {{"!finetuned\": only rotary positions are supp"}}},
    {"deepseek2", NORMS "A.expert_gating_func=3", "", {{"!gating_func\" is 3; only 2 is supp"}}},
    {"granitehybrid", NORMS "A.attention.head_count_kv=2", "", {{"!must list the heads"}}},
    {"jamba",
     "A.block_count=5 A.attention.head_count_kv=[01010]",
     "blk.2.ffn_gate_inp.weight:2x2",
     {{"attn_layer_period", "2"},
      {"attn_layer_offset", "1"},
      {"expert_layer_period", "6"},
      {"expert_layer_offset", "2"}}},
    {"jamba",
     "A.block_count=5 A.attention.head_count_kv=[01011]",
     "",
     {{"!may have attention: the first two are 1 and 3, and layer 4 does"}}},
    {"jamba",
     "A.block_count=6 A.attention.head_count_kv=[000101]",
     "",
     {{"!may have attention: the first two are 3 and 5, and layer 3 does"}}},
    {"jamba",
     "A.block_count=3 A.attention.head_count_kv=[000]",
     "blk.0.ffn_gate_inp.weight:2x2 blk.2.ffn_gate_inp.weight:2x2",
     {{"attn_layer_offset", "3"}, {"attn_layer_period", "4"}, {"expert_layer_period", "2"}}},
    {"mamba", NORMS "A.ssm.dt_b_c_rms=false", "", {{"model_type", "\"mamba\""}}},
    {"mamba", NORMS "A.ssm.dt_b_c_rms=true", "", {{"!norms of steps, B and C are not supp"}}},
    {"kimi-linear", NORMS "A.expert_gating_func=1", "", {{"!gating_func\" is 1; only 2 is supp"}}}};

static void configs(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof config_rows / sizeof *config_rows; i++) {
        sn_error err = {0};
        sn_weights *w = open_file(config_rows[i].arch, config_rows[i].keys, config_rows[i].tensors);
        sn_config *c = sn_gguf_config(w, &err);
        for (int k = 0; k < 10 && config_rows[i].want[k][0]; k++) {
            const char *key = config_rows[i].want[k][0], *json = config_rows[i].want[k][1];
            if (*key == '!') {
                if (c || !strstr(err.message, key + 1))
                    fail_msg("row %zu: wanted '%s': %s", i, key + 1, c ? "accepted" : err.message);
                continue;
            }
            if (!c) fail_msg("row %zu: %s", i, err.message);
            if (json ? !sn_config_equals(c, key, json) : sn_config_has(c, key)) {
                size_t n;
                char *text = sn_config_print(c, &n);
                fail_msg("row %zu: \"%s\" is not %s:\n%.*s", i, key, json, (int)n, text);
            }
        }
        sn_config_free(c);
        sn_weights_close(w);
    }
}

/* Names of tensors, up to a NULL; those that the architecture does not know stay. */
static void names(void **state) {
    (void)state;
    static const struct {
        const char *arch, *tensors, *want[5];
    } rows[] = {
        {"llama",
         "token_embd.weight:4x2 blk.0.attn_q.weight:2x2 blk.12.ffn_up.weight:2x2 "
         "blk.1.attn_q.bias:2",
         {"model.embed_tokens.weight", "model.layers.0.self_attn.q_proj.weight",
          "model.layers.12.mlp.up_proj.weight", "model.layers.1.self_attn.q_proj.bias"}},
        {"llama",
         "blk.attn_q.weight:2 blk.1x.attn_q.weight:2 x.weight:2 blk.1.new.weight:2 output.scale:2",
         {"blk.attn_q.weight", "blk.1x.attn_q.weight", "x.weight", "blk.1.new.weight",
          "output.scale"}},
        /* experts: one tensor for all, which is cut, and in older files one for each */
        {"qwen2moe",
         "blk.3.ffn_gate_exps.weight:2x2x2",
         {"model.layers.3.mlp.experts.0.gate_proj.weight",
          "model.layers.3.mlp.experts.1.gate_proj.weight"}},
        {"qwen2moe",
         "blk.3.ffn_gate.0.weight:2x2 blk.3.ffn_up.17.weight:2x2 blk.3.ffn_down.5.weight:2x2",
         {"model.layers.3.mlp.experts.0.gate_proj.weight",
          "model.layers.3.mlp.experts.17.up_proj.weight",
          "model.layers.3.mlp.experts.5.down_proj.weight"}},
        {"qwen2moe",
         "blk.3.ffn_up.x.weight:2 blk.3.ffn_up.1x.weight:2 blk.3.ffn_new.1.weight:2",
         {"blk.3.ffn_up.x.weight", "blk.3.ffn_up.1x.weight", "blk.3.ffn_new.1.weight"}},
        {"lemma", "token_embd.weight:2", {"token_embd.weight"}}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        sn_error err = {0};
        sn_weights *w = open_file(rows[i].arch, "", rows[i].tensors);
        if (!sn_gguf_rename(w, &err)) fail_msg("row %zu: %s", i, err.message);
        for (int k = 0; k < 5 && rows[i].want[k]; k++)
            if (!sn_weights_find(w, rows[i].want[k]))
                fail_msg("row %zu: no %s", i, rows[i].want[k]);
        sn_weights_close(w);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(configs), cmocka_unit_test(names)};
    return cmocka_run_group_tests(tests, scratch_make, scratch_end);
}
