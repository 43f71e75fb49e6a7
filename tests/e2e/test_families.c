/* Hugging Face's families as published: folders with config.json and safetensors (one file or
 * shards; f32, bf16, f16), compared with NumPy (tests/data/families/make_refs.py): decoders by
 * logits and greedy tokens, with and without caches; encoders by logits, hidden states and
 * embeddings of two texts, one of them padded. Every graph by the evaluator, and compiled (in the
 * default run a sample, at level 4 only) at levels 4 and 0. */
#include "frontend/models.h"
#include "ir/ir.h"
#include "runtime/model_dir.h"
#include "runtime/str.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "tests/support/compile_case.h"
#include "tests/support/effort.h"
#include "tests/e2e/family_folder.h"
#include "tests/support/model_case.h"
#include "tests/support/scratch.h"
#include "tests/support/text.h"

#include <cjson/cJSON.h>
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_TOKENS = 32 };

/* ---- references ---- */

typedef struct reference {
    family_folder folder;
    int32_t token[MAX_TOKENS]; /* and what greedy decoding adds */
    int64_t n_token, n_greedy;
    int64_t context; /* to ask for; 0: the usual one */
    /* of encoders: a batch of the same tokens twice, padded from lengths on */
    int32_t tokens[2][MAX_TOKENS], types[2][MAX_TOKENS], lengths[2];
    bool is_encoder, has_types;
} reference;

static void read_encoder_inputs(reference *r) {
    const cJSON *item, *lengths = cJSON_GetObjectItem(r->folder.json, "lengths");
    int n = 0;
    r->is_encoder = lengths;
    cJSON_ArrayForEach(item, lengths) r->lengths[n++] = item->valueint;
    if (!lengths) return;
    n = 0;
    cJSON_ArrayForEach(item, cJSON_GetObjectItem(r->folder.json, "types"))
        r->types[0][n++] = item->valueint;
    memcpy(r->types[1], r->types[0], sizeof r->types[0]);
    for (int i = 0; i < 2; i++) memcpy(r->tokens[i], r->token, sizeof r->token);
    const cJSON *tensors = cJSON_GetObjectItem(r->folder.json, "tensors");
    cJSON_ArrayForEach(item, tensors) r->has_types |= strstr(item->string, "token_type") != NULL;
}

static void read_reference(const char *name, sn_dtype t, reference *r) {
    *r = (reference){0};
    family_read("families", name, t, &r->folder);
    const cJSON *json = r->folder.json, *item, *context = cJSON_GetObjectItem(json, "context");
    r->context = context ? context->valueint : 0;
    cJSON_ArrayForEach(item, cJSON_GetObjectItem(json, "tokens"))
        r->token[r->n_token++] = item->valueint;
    cJSON_ArrayForEach(item, cJSON_GetObjectItem(json, "greedy"))
        r->token[r->n_token + r->n_greedy++] = item->valueint;
    read_encoder_inputs(r);
}

/* ---- against the reference ---- */

typedef struct subject {
    const char *name;
    const reference *r;
    sn_session *session;
    int64_t vocab;
    int level;
} subject;

static int best_of(const float *logits, int64_t n) {
    int best = 0;
    for (int i = 1; i < n; i++)
        if (logits[i] > logits[best]) best = i;
    return best;
}

/* Row `row`, of n numbers, of the reference's `output`. */
static void compare_row(const subject *s, const char *output, int64_t n, const float *got,
                        int64_t row, const char *entry) {
    char where[160];
    snprintf(where, sizeof where, "%s, level %d, %s", s->name, s->level, entry);
    family_compare(&s->r->folder, output, row * n, n, got, where);
}

/* Row `row` of the reference's logits. */
static void compare(const subject *s, const float *got, int64_t row, const char *entry) {
    compare_row(s, "logits", s->vocab, got, row, entry);
}

static void check_forward(const subject *s) {
    int64_t n = s->r->n_token, V = s->vocab;
    sn_error err = {0};
    float *logits = malloc(sizeof *logits * (size_t)(n * V));
    assert_non_null(logits);
    sn_arg_binding in = SN_BIND("tokens", SN_I32, (void *)(uintptr_t)s->r->token, 1, n);
    sn_arg_binding out = SN_BIND("logits", SN_F32, logits, 1, n, V);
    need(sn_run(s->session, "forward", &in, 1, &out, 1, &err), &err);
    for (int64_t t = 0; t < n; t++) compare(s, logits + t * V, t, "forward");
    free(logits);
}

/* The prompt in three parts, then greedy decoding. */
static void check_cached(const subject *s) {
    int64_t n = s->r->n_token, V = s->vocab, past = 0;
    const int64_t parts[] = {n / 2, 1, n - n / 2 - 1};
    sn_error err = {0};
    float logits[64];
    assert_true(V <= 64);
    sn_arg_binding out = SN_BIND("logits", SN_F32, logits, 1, V);
    for (int64_t i = 0; i < 3 + s->r->n_greedy - 1; i++) {
        int64_t size = i < 3 ? parts[i] : 1;
        sn_arg_binding in[] = {
            SN_BIND("tokens", SN_I32, (void *)(uintptr_t)(s->r->token + past), 1, size),
            SN_BIND_DIM("P", past)};
        need(sn_run(s->session, size > 1 ? "prefill" : "decode", in, 2, &out, 1, &err), &err);
        past += size;
        if (past <= n) compare(s, logits, past - 1, size > 1 ? "prefill" : "decode");
        if (past >= n) assert_int_equal(best_of(logits, V), s->r->token[past]);
    }
}

/* ---- encoders ---- */

/* Every output of an encoder: by the session, or without one by the evaluator. */
static void check_encoder(const subject *s, const sn_model *model, model_case *evaluated) {
    const reference *r = s->r;
    const int64_t T = r->n_token, d = model->d_model,
                  wide = model->labels ? model->labels : s->vocab;
    const struct {
        const char *entry, *output;
        int64_t rows, width; /* rows of a text */
    } outputs[] = {{"forward", "logits", model->labels && !model->per_token ? 1 : T, wide},
                   {"encode", "hidden", T, d},
                   {"embed", "embedding", 1, d}};
    int32_t tokens[2 * MAX_TOKENS], types[2 * MAX_TOKENS];
    for (int64_t i = 0; i < 2 * T; i++)
        tokens[i] = r->tokens[i / T][i % T], types[i] = r->types[i / T][i % T];
    sn_arg_binding in[] = {SN_BIND("tokens", SN_I32, tokens, 2, T),
                           SN_BIND("lengths", SN_I32, (void *)(uintptr_t)r->lengths, 2),
                           SN_BIND("types", SN_I32, types, 2, T)};
    int n_in = r->has_types ? 3 : 2;
    for (int k = 0; k < 3; k++) {
        int64_t rows = outputs[k].rows, width = outputs[k].width, n = 2 * rows * width;
        const char *entry = outputs[k].entry, *output = outputs[k].output;
        const cJSON *want = cJSON_GetObjectItem(r->folder.json, output);
        assert_int_equal(cJSON_GetArraySize(want), n);
        float *got = malloc(sizeof *got * (size_t)n);
        double *exact = malloc(sizeof *exact * (size_t)n);
        assert_non_null(got);
        assert_non_null(exact);
        const int64_t all[] = {2, rows, width}, one[] = {2, width};
        sn_arg_binding out = {output, SN_F32, rows > 1 ? 3 : 2, rows > 1 ? all : one, got};
        sn_error err = {0};
        if (s->session)
            need(sn_run(s->session, entry, in, n_in, &out, 1, &err), &err);
        else
            case_evaluate(evaluated, entry, output, in, n_in, exact, n);
        for (int64_t i = 0; i < n && !s->session; i++) got[i] = (float)exact[i];
        for (int64_t i = 0; i < 2 * rows; i++)
            if (i % rows < r->lengths[i / rows])
                compare_row(s, output, width, got + i * width, i, entry);
        free(got);
        free(exact);
    }
}

static void check_compiled(const char *name, int level, const reference *r, sn_program *p,
                           const sn_weights *w, const sn_model *model) {
    sn_error err = {0};
    subject s = {name, r, sn_session_new(p, w, &err), model->vocab, level};
    need(s.session, &err);
    if (r->is_encoder) {
        check_encoder(&s, model, NULL);
    } else {
        check_forward(&s);
        check_cached(&s);
    }
    sn_session_free(s.session);
}

/* The graph's own value: what it means, whatever it is compiled to. */
static void check_graph(const char *name, const reference *r, const sn_model *model) {
    model_case c = {.model = *model};
    int64_t of_blocks[FAMILY_TENSORS][3]; /* [.., K / 32, 16] bytes are [.., K] */
    for (size_t i = 0; i < r->folder.n_tensor; i++) {
        const sn_weight *w = &r->folder.tensor[i];
        bool bytes = w->dtype == SN_U8;
        if (!r->folder.value[i]) continue; /* scales of blocks */
        if (bytes) memcpy(of_blocks[i], w->shape, sizeof of_blocks[i]);
        if (bytes) of_blocks[i][2] *= 32;
        c.param[c.n_param++] =
            (sn_arg_binding){w->name, SN_F32, bytes ? 3 : w->rank, bytes ? of_blocks[i] : w->shape,
                             r->folder.value[i]};
    }
    subject s = {name, r, NULL, model->vocab, -1};
    case_size(&c, "B", r->is_encoder ? 2 : 1);
    case_size(&c, "T", r->n_token);
    if (r->is_encoder) {
        check_encoder(&s, model, &c);
        return;
    }
    int64_t n = r->n_token * model->vocab;
    double *exact = malloc(sizeof *exact * (size_t)n);
    float *logits = malloc(sizeof *logits * (size_t)n);
    assert_non_null(exact);
    assert_non_null(logits);
    sn_arg_binding in = SN_BIND("tokens", SN_I32, (void *)(uintptr_t)r->token, 1, r->n_token);
    case_evaluate(&c, "forward", "logits", &in, 1, exact, n);
    for (int64_t i = 0; i < n; i++) logits[i] = (float)exact[i];
    for (int64_t t = 0; t < r->n_token; t++) compare(&s, logits + t * s.vocab, t, "evaluated");
    free(logits);
    free(exact);
}

static void check_family(const char *name, sn_dtype t, bool shards, bool compiled, bool unfused) {
    reference r;
    sn_error err = {0};
    assert_int_equal(scratch_make(NULL), 0);
    const char *dir = scratch_dir;
    read_reference(name, t, &r);
    family_write(dir, &r.folder, shards);
    for (int level = 4; level >= 0; level -= unfused ? 4 : 5) {
        sn_model_dir *folder = sn_model_dir_open(dir, &err);
        need(folder, &err);
        sn_model model;
        sn_model_options o = {.entries =
                                  SN_FORWARD | (r.is_encoder ? SN_ENCODE | SN_EMBED : SN_CACHED),
                              .weights = folder->weights,
                              .context = r.context};
        if (!sn_model_build(folder->config, &o, &model, &err))
            fail_msg("%s: %s", name, err.message);
        if (!sn_model_takes_all(&model, folder->weights, &err))
            fail_msg("%s: %s", name, err.message);
        const char *unknown = sn_model_unknown_key(folder->config, 0);
        if (unknown) fail_msg("%s: the key \"%s\" is not read", name, unknown);
        if (level == 4) check_graph(name, &r, &model);
        bool blocks = cJSON_GetObjectItem(cJSON_GetObjectItem(r.folder.json, "config"),
                                          "quantization_config");
        sn_options how = {.level = level, .threads = 1, .weights = blocks ? "stored" : NULL};
        sn_program *p = compiled ? sn_compile(model.module, &how, &err) : NULL;
        need(p || !compiled, &err);
        if (compiled) check_compiled(name, level, &r, p, folder->weights, &model);
        sn_program_free(p);
        sn_module_free(model.module);
        sn_model_dir_close(folder);
    }
    family_free(&r.folder);
    scratch_end(NULL);
}

/* ---- the cases: every reference ---- */

typedef struct family_case {
    char name[64];
    bool compiled, unfused;
} family_case;

static void run_case(void **state) {
    static const sn_dtype dtypes[] = {SN_F32, SN_BF16, SN_F16};
    const family_case *c = *state;
    unsigned kind = 0;
    for (const char *k = c->name; *k; k++) kind += (unsigned char)*k;
    check_family(c->name, dtypes[kind % 3], kind / 3 % 2, c->compiled, c->unfused);
}

/* ---- what does not fit ---- */

/* Opens the folder of the reference; the message of what does not fit, or of the first unread key. */
static void open_changed(const reference *r, sn_error *err) {
    *err = (sn_error){0};
    assert_int_equal(scratch_make(NULL), 0);
    family_write(scratch_dir, &r->folder, false);
    sn_model_dir *folder = sn_model_dir_open(scratch_dir, err);
    need(folder, err);
    sn_model model = {0};
    sn_model_options o = {.entries = SN_FORWARD, .weights = folder->weights};
    if (sn_model_build(folder->config, &o, &model, err) &&
        sn_model_takes_all(&model, folder->weights, err)) {
        const char *unread = sn_model_unknown_key(folder->config, 0);
        sn_options how = {.level = 4, .threads = 1};
        sn_program *p = unread ? NULL : sn_compile(model.module, &how, err);
        sn_session *session = p ? sn_session_new(p, folder->weights, err) : NULL;
        if (unread) sn_fail(err, SN_ERR_FILE, "not read: %s", unread);
        sn_session_free(session);
        sn_program_free(p);
    }
    sn_module_free(model.module);
    sn_model_dir_close(folder);
    scratch_end(NULL);
}

static void refuses(const char *name, const char *key, const char *json, const char *why) {
    reference r;
    sn_error err;
    read_reference(name, SN_F32, &r);
    if (key) family_set_key(&r.folder, key, json);
    open_changed(&r, &err);
    if (!strstr(err.message, why))
        fail_msg("%s, %s: wanted '%s' in: %s", name, key, why, err.message);
    family_free(&r.folder);
}

static const struct {
    const char *name, *key, *json, *why;
} wrong_rows[] = {
    {"qwen2", "model_type", "\"qwen4\"", "the nearest is qwen2"},
    {"qwen2", "model_type", "\"unheard_of\"", "A model in C"},
    {"qwen2", "model_type", "\"llama\"", "no parameters"},
    {"qwen2", "model_type", "\"qwen3\"", "no parameters"},
    {"qwen3", "model_type", "\"qwen2\"", "no parameters"},
    {"qwen2", "hidden_act", "\"tanh\"", "hidden_act"},
    {"qwen2", "num_key_value_heads", "3", "does not divide"},
    {"qwen2", "rope_scaling", "{\"factor\": 2}", "rope_type"},
    {"qwen2", "rope_scaling", "{\"type\": \"ntk\", \"factor\": 2}", "ntk"},
    {"qwen2", "rope_scaling", "{\"type\": \"linear\", \"factr\": 2}", "factr"},
    {"qwen2", "num_experts", "4", "num_experts"},
    {"qwen2", "new_key", "4", "not read: new_key"},
    {"nomic_bert", "rotary_emb_fraction", "0.5", "only 0 and 1 are supported"},
    {"nomic_bert", "mlp_fc2_bias", "true", "\"mlp_fc2_bias\" must be equal"},
    {"nomic_bert", "prenorm", "true", "\"prenorm\" changes the result"},
    {"mixtral", "num_local_experts", "3", "block_sparse_moe.experts.3.w1"},
    {"mixtral", "num_local_experts", "5", "block_sparse_moe.experts.4.w1"},
    {"mixtral", "num_experts_per_tok", "5", "cannot use 5 of 4 experts"},
    {"qwen2_moe", "mlp_only_layers", "[]", "layers.1.mlp"},
    {"qwen3_moe", "decoder_sparse_step", "1", "layers.0.mlp.gate"},
    {"qwen3_next", "linear_num_key_heads", "3", "does not divide"},
    {"qwen3_next", "layer_types", "[\"linear_attention\"]", "1 entries for 2 layers"},
    {"qwen3_next", "hidden_act", "\"relu\"", "which recurrent layers use"},
    {"qwen3_5", "attn_output_gate", "false", "self_attn.q_proj"},
    {"llava", "text_config", "4", "text_config"},
    {"llava", "text_config", "{\"model_type\": \"bert\"}", "not one of a decoder"},
    {"llava", "text_config", "{\"model_type\": \"lama\"}", "the nearest is llama"},
    {"llava", "text_config", "{\"hidden_size\": 30, \"num_hidden_layers\": 2}", "does not divide"},
    {"llava", "text_config", "{\"new_key\": 30, \"num_hidden_layers\": 2}", "new_key"},
    {"llava", "quantization_config", "{\"bits\": 4}", "quantization_config"},
    {"llava", "model_type", "\"llama\"", "num_hidden_layers"},
    {"kimi_linear", "num_key_value_heads", "2", "must be \"num_attention_heads\""},
    {"kimi_linear", "topk_group", "5", "5 of 1 groups"},
    {"kimi_linear", "mla_use_nope", "false", "\"mla_use_nope\" must be true"},
    {"kimi_linear", "mla_use_output_gate", "true", "not read: mla_use_output_gate"},
    {"kimi_linear", "linear_attn_config",
     "{\"num_heads\": 3, \"head_dim\": 8, \"kda_layers\": [1, 2]}", "must be in one of"},
    {"kimi_linear", "linear_attn_config", "{\"gate_lower_bound\": -5}", "gate_lower_bound"},
    {"kimi_linear", "moe_router_activation_func", "\"tanh\"", "moe_router_activation_func"},
    {"bamba", "mamba_d_head", "8", "do not make up a width of 64"},
    {"bamba", "mamba_n_groups", "3", "3 groups do not divide 4 heads"},
    {"mamba2", "model_type", "\"mamba\"", "mixer"},
    {"granite_hybrid", "num_experts_per_tok", "0", "experts need"},
    {"jamba", "mamba_dt_rank", "2", "x_proj"},
    {"olmoe", "clip_qkv", "8", "clip_qkv"},
    {"gpt_oss", "layer_types", "[\"full_attention\"]", "1 entries for 2 layers"},
    {"gpt_oss", "layer_types", "[\"chunked_attention\", \"full_attention\"]", "layer_types"},
    {"gpt_oss", "hidden_act", "\"relu\"", "must be \"silu\""},
    {"gpt_oss", "experts_per_token", "3", "\"experts_per_token\" is not"},
    {"gpt_oss", "num_local_experts", "5", "mlp.router"},
    {"gpt_oss", "quantization_config", "{\"quant_method\": \"awq\"}", "mxfp4"},
    {"gpt_oss", "quantization_config", "{\"quant_method\": \"mxfp4\"}", "gate_up_proj"},
    {"deepseek_v2", "moe_layer_freq", "2", "moe_layer_freq"},
    {"deepseek_v2", "q_lora_rank", "null", "q_a_proj"},
    {"deepseek_v2", "topk_method", "\"noaux_tc\"", "topk_method"},
    {"deepseek_v2", "num_key_value_heads", "2", "num_key_value_heads"},
    {"deepseek_v3", "topk_group", "1", "1 of 4 groups of 8 experts"},
    {"deepseek_v3", "scoring_func", "\"softmax\"", "scoring_func"},
    {"deepseek_v32", "q_lora_rank", "null", "an indexer needs"},
    {"deepseek_v32", "index_head_dim", "2", "is less than"},
    {"deepseek_v32", "index_n_heads", "2", "indexer"},
    {"deepseek_v32", "model_type", "\"deepseek_v3\"", "indexer"},
    {"llama", "attn_logit_softcapping", "5", "attn_logit_softcapping"},
    {"llama_linear", "partial_rotary_factor", "0.5", "partial_rotary_factor"},
    {"gemma3_types", "layer_types", "[\"full_attention\"]", "layer_types"},
    {"gemma3_types", "layer_types", "[\"linear_attention\", \"full_attention\"]", "layer_types"},
    {"phi3_longrope", "rope_scaling",
     "{\"type\": \"longrope\", \"short_factor\": [1], \"long_factor\": [1, 1, 1]}", "short_factor"},
    {"mistral", "quantization_config", "{\"bits\": 4}", "quantization_config"},
    {"gpt_neox", "rotary_pct", "2", "rotary_pct"},
    {"roberta", "model_type", "\"bert\"", "no parameters"},
    {"bert", "model_type", "\"robert\"", "the nearest is roberta"},
    {"roberta", "pad_token_id", "31", "positions"},
    {"roberta", "position_embedding_type", "\"relative_key\"", "position_embedding_type"},
    {"roberta", "tie_word_embeddings", "false", "lm_head.decoder.weight"},
    {"bert", "hidden_act", "\"tanh\"", "hidden_act"},
    {"distilbert", "n_heads", "3", "does not divide"},
    {"electra", "embedding_size", "16", "embeddings"},
    {"albert", "num_hidden_groups", "2", "albert_layer_groups.1"},
    {"albert", "gap_size", "1", "gap_size"},
    {"mpnet", "relative_attention_num_buckets", "6", "relative_attention_num_buckets"},
    {"mpnet", "relative_attention_num_buckets", "32", "relative_attention_bias"},
    {"gemma2", "attn_logit_softcapping", "-1.0", "softcapping\" is -1; allowed"},
    {"gemma2", "final_logit_softcapping", "-1.0", "softcapping\" is -1; allowed"},
    {"gemma", "head_dim", "null", "expected [1024, 16]"},
    {"deberta", "position_buckets", "2", "2 \"position_buckets\" do not fit distances up to 32"},
    {"deberta", "max_relative_positions", "5",
     "8 \"position_buckets\" do not fit distances up to 5"},
    {"deberta", "attention_head_size", "3", "heads of 3 elements do not divide"},
    {"modernbert", "num_attention_heads", "16", "heads of 1 elements cannot be rotated"},
    {"nomic_bert", "n_head", "16", "heads of 1 elements cannot be rotated"},
    {"mpt", "no_bias", "false", "\"no_bias\" must be true"},
    {"mpt", "attn_config", "{\"alibi\": false}", "\"alibi\" must be true"},
    {"mpt", "attn_config", "{\"alibi\": true, \"qk_ln\": true}", "\"qk_ln\" must be false"},
    {"mpt", "attn_config", "{\"alibi\": true, \"prefix_lm\": true}", "\"prefix_lm\" must be false"},
    {"mpt", "attn_config", "{\"alibi\": true, \"attn_type\": \"other\"}", "attn_type"},
    {"opt", "layer_norm_elementwise_affine", "false",
     "\"layer_norm_elementwise_affine\" must be true"},
    {"phi", "partial_rotary_factor", "0.375", "an odd number of elements of each head, 3"},
    {"deepseek_v3", "n_group", "8", "groups of one expert have no best two"},
};

static void wrong_configs(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof wrong_rows / sizeof *wrong_rows; i++)
        refuses(wrong_rows[i].name, wrong_rows[i].key, wrong_rows[i].json, wrong_rows[i].why);
}

/* Blocks of MXFP4 and their scales that do not belong together. */
static void wrong_blocks(void **state) {
    (void)state;
    static const char *const why[] = {"its scales, \"NAME_scales\", are missing",
                                      "[.., blocks, 16] bytes", "not a byte for each block",
                                      "down_proj_blocks"};
    for (int i = 0; i < 4; i++) {
        reference r;
        sn_error err;
        read_reference("gpt_oss_mxfp4", SN_F32, &r);
        size_t at = 0; /* of the last blocks, before their scales */
        for (size_t k = 0; k < r.folder.n_tensor; k++)
            if (sn_ends_with(r.folder.tensor[k].name, "_blocks")) at = k;
        sn_weight *blocks = &r.folder.tensor[at], *scales = blocks + 1;
        if (i == 0) scales->name = "model.layers.0.mlp.experts.down_proj_scalez";
        if (i == 1) blocks->shape[2] *= 2, blocks->shape[3] /= 2;
        if (i == 2) scales->shape[0] /= 2, scales->bytes /= 2;
        if (i == 3) { /* they fit, but not the model */
            blocks->shape[1] /= 2, blocks->bytes /= 2;
            scales->shape[1] /= 2, scales->bytes /= 2;
        }
        assert_int_equal(scratch_make(NULL), 0);
        family_write(scratch_dir, &r.folder, false);
        err = (sn_error){0};
        sn_model_dir *folder = sn_model_dir_open(scratch_dir, &err);
        if (i == 3) {
            need(folder, &err);
            sn_model_dir_close(folder);
            scratch_end(NULL);
            open_changed(&r, &err);
        } else {
            assert_null(folder);
            scratch_end(NULL);
        }
        if (!strstr(err.message, why[i])) fail_msg("wanted '%s' in: %s", why[i], err.message);
        family_free(&r.folder);
    }
}

static void wrong_tensors(void **state) {
    (void)state;
    reference r;
    sn_error err;
    read_reference("qwen3", SN_F32, &r);
    sn_weight last = r.folder.tensor[--r.folder.n_tensor];
    open_changed(&r, &err); /* one is missing */
    assert_non_null(strstr(err.message, last.name));
    r.folder.n_tensor++;
    const char *name = r.folder.tensor[3].name;
    r.folder.tensor[3].name = "model.layers.0.self_attn.z_proj.weight";
    open_changed(&r, &err); /* one has another name */
    assert_non_null(strstr(err.message, "z_proj"));
    r.folder.tensor[3].name = name;
    int64_t rows = r.folder.tensor[0].shape[0];
    r.folder.tensor[0].shape[0] = 8; /* and one another shape */
    r.folder.tensor[0].bytes = (size_t)sn_weight_elements(&r.folder.tensor[0]) * 4;
    open_changed(&r, &err);
    assert_non_null(strstr(err.message, r.folder.tensor[0].name));
    r.folder.tensor[0].shape[0] = rows;
    family_free(&r.folder);
}

/* ---- published configs ---- */

static int64_t count_parameters(sn_module *m) {
    int64_t all = 0;
    for (uint32_t i = 0; i < sn_module_node_count(m); i++) {
        const sn_node *n = sn_module_node(m, i);
        int64_t elements = 1, size = 0;
        if (n->op != SN_OP_param) continue;
        for (int a = 0; a < n->rank; a++) {
            assert_true(sn_dim_is_const(m, n->shape[a], &size));
            elements *= size;
        }
        all += elements;
    }
    return all;
}

/* Numbers that the caches of a decoder keep per token. */
static int64_t count_cached(sn_config *c) {
    enum { CONTEXT = 8 };
    sn_error err = {0};
    sn_model model = {0};
    sn_model_options o = {.entries = SN_CACHED, .context = CONTEXT};
    if (!sn_model_build(c, &o, &model, &err)) fail_msg("%s", err.message);
    int64_t all = 0;
    for (uint32_t i = 0; i < sn_module_node_count(model.module); i++) {
        const sn_node *node = sn_module_node(model.module, i);
        if (node->op != SN_OP_state) continue;
        int64_t count = 1;
        for (int a = 0; a < node->rank; a++) count *= node->shape[a];
        all += count;
    }
    sn_module_free(model.module);
    return all / CONTEXT;
}

/* Every key is known, the model has as many parameters as its authors count, and its caches hold as
 * many numbers per token where the reference names them: of DeepSeek-V2 only the latents. */
static void published_configs(void **state) {
    (void)state;
    char *text = file_text(SN_SOURCE_DIR "/tests/data/published_models.json");
    cJSON *all = cJSON_Parse(text);
    free(text);
    assert_true(cJSON_GetArraySize(all) >= 20);
    const cJSON *item;
    int wrong = 0;
    cJSON_ArrayForEach(item, all) {
        sn_error err = {0};
        sn_model model = {0};
        const char *name = cJSON_GetObjectItem(item, "name")->valuestring;
        int64_t want = (int64_t)cJSON_GetObjectItem(item, "parameters")->valuedouble, have = want;
        text = cJSON_Print(cJSON_GetObjectItem(item, "config"));
        sn_config *c = sn_config_parse(name, text, strlen(text), &err);
        bool built = c && sn_model_build(c, &(sn_model_options){.entries = SN_FORWARD | SN_ENCODE},
                                         &model, &err);
        const char *unread = built ? sn_model_unknown_key(c, 0) : NULL;
        if (built) have = count_parameters(model.module);
        if (unread) print_error("%s: the key \"%s\" is not read\n", name, unread);
        if (have != want)
            print_error("%s: %lld parameters, published are %lld\n", name, (long long)have,
                        (long long)want);
        if (!built) print_error("%s: %s\n", name, err.message);
        wrong += !built || unread || have != want;
        const cJSON *cached = cJSON_GetObjectItem(item, "cached");
        if (built && cached) assert_int_equal(count_cached(c), cached->valueint);
        sn_module_free(model.module);
        sn_config_free(c);
        cJSON_free(text);
    }
    cJSON_Delete(all);
    assert_int_equal(wrong, 0);
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const family_case *)a)->name, ((const family_case *)b)->name);
}

/* [NAME]: only this case, compiled too. */
int main(int argc, char **argv) {
    static struct CMUnitTest tests[200];
    static family_case cases[196];
    size_t n = 0, tested = 0;
    DIR *d = opendir(SN_SOURCE_DIR "/tests/data/families");
    for (struct dirent *e; d && (e = readdir(d)) && n < 196;) {
        char *dot = strstr(e->d_name, ".json");
        if (!dot) continue;
        snprintf(cases[n].name, sizeof cases[n].name, "%.*s", (int)(dot - e->d_name), e->d_name);
        n++;
    }
    if (d) closedir(d);
    qsort(cases, n, sizeof *cases, by_name);
    for (size_t i = 0; i < n; i++) {
        cases[i].compiled = argc > 1 || effort_takes(i, 17);
        cases[i].unfused = argc > 1 || effort_is_long();
        if (argc > 1 && strcmp(argv[1], cases[i].name) != 0) continue;
        tests[tested++] = (struct CMUnitTest){cases[i].name, run_case, NULL, NULL, &cases[i]};
    }
    if (argc < 2) {
        tests[tested++] = (struct CMUnitTest)cmocka_unit_test(wrong_configs);
        tests[tested++] = (struct CMUnitTest)cmocka_unit_test(wrong_tensors);
        tests[tested++] = (struct CMUnitTest)cmocka_unit_test(wrong_blocks);
        tests[tested++] = (struct CMUnitTest)cmocka_unit_test(published_configs);
    }
    return tested ? _cmocka_run_group_tests("families", tests, tested, cc_begin, cc_end) : 1;
}
