/* gguf_model.c: what each architecture is called in GGUF files, as tables: keys and their names in
 * config.json, tensors and their names in model.safetensors (ggml-org/ggml, docs/gguf.md;
 * ggml-org/llama.cpp, gguf-py/gguf/constants.py). */
#include "runtime/files/gguf_model.h"
#include "runtime/files/json.h"
#include "runtime/files/weights_impl.h"
#include "runtime/problems.h"

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
    const pair *tensors; /* stems: without ".weight", ".bias" */
    const pair *layers;  /* stems behind "blk.N." */
    const char *layer;   /* "h." */
    const char *config;  /* keys that all models of this kind have, as JSON */
} architecture;

/* llama.cpp stores q and k of Llama so that rotary embeddings turn adjacent pairs. */
static const pair llama_keys[] = {{"context_length", "max_position_embeddings"},
                                  {"embedding_length", "hidden_size"},
                                  {"block_count", "num_hidden_layers"},
                                  {"feed_forward_length", "intermediate_size"},
                                  {"attention.head_count", "num_attention_heads"},
                                  {"attention.head_count_kv", "num_key_value_heads"},
                                  {"attention.layer_norm_rms_epsilon", "rms_norm_eps"},
                                  {"attention.key_length", "head_dim"},
                                  {"rope.freq_base", "rope_theta"},
                                  {"vocab_size", NULL},
                                  {"attention.value_length", NULL},
                                  {"rope.dimension_count", NULL},
                                  {NULL, NULL}};
static const pair llama_tensors[] = {{"token_embd", "model.embed_tokens"},
                                     {"output_norm", "model.norm"},
                                     {"output", "lm_head"},
                                     {NULL, NULL}};
static const pair llama_layers[] = {
    {"attn_norm", "input_layernorm"},    {"attn_q", "self_attn.q_proj"},
    {"attn_k", "self_attn.k_proj"},      {"attn_v", "self_attn.v_proj"},
    {"attn_output", "self_attn.o_proj"}, {"ffn_norm", "post_attention_layernorm"},
    {"ffn_gate", "mlp.gate_proj"},       {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"},       {NULL, NULL}};

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

static const architecture architectures[] = {
    {"llama", "llama", llama_keys, llama_tensors, llama_layers, "model.layers.",
     "{\"rope_interleaved\": true}"},
    {"gpt2", "gpt2", gpt2_keys, gpt2_tensors, gpt2_layers, "h.", "{\"linear_layout\": \"out_in\"}"},
    {"bert", "bert", bert_keys, bert_tensors, bert_layers, "encoder.layer.", "{}"},
};
enum { ARCHITECTURES = sizeof architectures / sizeof *architectures };

static const architecture *find_architecture(const sn_gguf *g) {
    const sn_gguf_key *k = sn_gguf_find(g, "general.architecture");
    for (int i = 0; i < ARCHITECTURES; i++)
        if (sn_gguf_says(k, architectures[i].name)) return &architectures[i];
    return NULL;
}

static const char *find_pair(const pair *p, const char *gguf, bool *found) {
    while (p->gguf && strcmp(p->gguf, gguf) != 0) p++;
    *found = p->gguf != NULL;
    return p->ours;
}

/* ---- tensors ---- */

/* "blk.3.attn_q.weight" becomes "model.layers.3.self_attn.q_proj.weight". */
static bool rename_tensor(const void *ctx, const char *name, char *out, size_t size) {
    const architecture *a = ctx;
    char stem[128];
    size_t digits = strncmp(name, "blk.", 4) ? 0 : strspn(name + 4, "0123456789");
    bool layer = digits && name[4 + digits] == '.', found;
    const char *rest = layer ? name + 4 + digits + 1 : name, *dot = strrchr(rest, '.');
    if (!dot || (strcmp(dot, ".weight") && strcmp(dot, ".bias"))) return false;
    if ((size_t)(dot - rest) >= sizeof stem) return false;
    snprintf(stem, sizeof stem, "%.*s", (int)(dot - rest), rest);
    const char *ours = find_pair(layer ? a->layers : a->tensors, stem, &found);
    if (!found) return false;
    int n = layer ? snprintf(out, size, "%s%.*s.%s%s", a->layer, (int)digits, name + 4, ours, dot)
                  : snprintf(out, size, "%s%s", ours, dot);
    return n > 0 && (size_t)n < size;
}

bool sn_gguf_rename(sn_weights *w, sn_error *err) {
    const architecture *a = find_architecture(sn_weights_gguf(w));
    return !a || sn_weights_rename(w, rename_tensor, a, err);
}

static const sn_weight *find_tensor(const sn_gguf *g, const char *name) {
    for (size_t i = 0; i < g->tensor_count; i++)
        if (!strcmp(g->tensor[i].name, name)) return &g->tensor[i];
    return NULL;
}

/* ---- keys ---- */

typedef struct making {
    const sn_gguf *g;
    const architecture *a;
    cJSON *root;
    sn_problems problems;
    bool failed; /* out of memory */
} making;

static void set(making *m, const char *key, cJSON *value) {
    if (value && cJSON_AddItemToObject(m->root, key, value)) return;
    cJSON_Delete(value);
    m->failed = true;
}

/* A number or bool; integers stay exact. */
static void set_value(making *m, const char *key, const sn_gguf_key *k) {
    double v = sn_gguf_number(k, 0);
    if (k->array || isnan(v))
        sn_problem(&m->problems, "key \"%s\" must be one number", k->name);
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

/* Keys whose value here has no effect: 0 experts, scaling of type "none", … */
static bool is_neutral(const sn_gguf_key *k, const char *key) {
    return (!strcmp(key, "expert_count") && sn_gguf_number(k, 0) == 0) ||
           (!strcmp(key, "expert_used_count") && sn_gguf_number(k, 0) == 0) ||
           (!strcmp(key, "rope.scaling.type") && sn_gguf_says(k, "none")) ||
           (!strcmp(key, "use_parallel_residual") && sn_gguf_number(k, 0) == 1);
}

static void take_keys(making *m) {
    size_t n = strlen(m->a->name);
    for (size_t i = 0; i < m->g->key_count; i++) {
        const sn_gguf_key *k = &m->g->key[i];
        if (strncmp(k->name, m->a->name, n) || k->name[n] != '.') continue;
        bool found;
        const char *key = k->name + n + 1, *ours = find_pair(m->a->keys, key, &found);
        if (ours)
            set_value(m, ours, k);
        else if (!found && !is_neutral(k, key))
            sn_problem(&m->problems, "key \"%s\" is not supported for this architecture", k->name);
    }
}

static void check_keys(making *m) {
    double heads = sn_gguf_number(find_key(m, "attention.head_count"), 0),
           width = sn_gguf_number(find_key(m, "embedding_length"), 0);
    const sn_gguf_key *head = find_key(m, "attention.key_length");
    double d_head = head ? sn_gguf_number(head, 0) : heads > 0 ? width / heads : 0;
    need_value(m, "attention.value_length", d_head);
    need_value(m, "rope.dimension_count", d_head);
    const sn_gguf_key *k = sn_gguf_find(m->g, "split.count");
    if (k && sn_gguf_number(k, 0) > 1)
        sn_problem(&m->problems,
                   "it is one of several files of a model: join them first (llama-gguf-split "
                   "--merge)");
}

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

static void take_tensors(making *m) {
    const sn_weight *table = find_tensor(m->g, "token_embd.weight"),
                    *types = find_tensor(m->g, "token_types.weight");
    if (table && table->rank == 2)
        set(m, "vocab_size", cJSON_CreateNumber((double)table->shape[0]));
    if (types && types->rank == 2)
        set(m, "type_vocab_size", cJSON_CreateNumber((double)types->shape[0]));
    set(m, "tie_word_embeddings", cJSON_CreateBool(!find_tensor(m->g, "output.weight")));
    if (find_tensor(m->g, "blk.0.attn_q.bias") && !strcmp(m->a->name, "llama"))
        set(m, "attention_bias", cJSON_CreateTrue());
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

sn_config *sn_gguf_config(const sn_gguf *g, sn_error *err) {
    making m = {.g = g, .a = find_architecture(g)};
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
