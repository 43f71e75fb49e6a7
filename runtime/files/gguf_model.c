/* gguf_model.c: the keys of a GGUF file as the config of a model. */
#include "runtime/files/gguf_architectures.h"
#include "runtime/files/gguf_model.h"
#include "runtime/files/json.h"
#include "runtime/files/weights_impl.h"
#include "runtime/problems.h"
#include "runtime/str.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_FACTORS = 1024, MAX_LAYERS = 4096 };

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

static const sn_gguf_key *find_key(const making *m, const char *key) {
    return sn_gguf_architecture_key(m->a, m->g, key);
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
    const bool experts = !strcmp(key, "expert_count") || !strcmp(key, "expert_used_count");
    return experts && sn_gguf_number(k, 0) == 0;
}

static bool has_trait(const making *m, gguf_trait trait) {
    return m->a->traits & trait;
}

static void take_keys(making *m) {
    size_t n = strlen(m->a->name);
    for (size_t i = 0; i < m->g->key_count; i++) {
        const sn_gguf_key *k = &m->g->key[i];
        if (strncmp(k->name, m->a->name, n) || k->name[n] != '.') continue;
        bool found;
        const char *key = k->name + n + 1, *ours = sn_gguf_find_pair(m->a->keys, key, &found);
        const bool text =
            !strcmp(key, "rope.scaling.type") || !strcmp(key, "tensor_data_layout") ||
            !strcmp(key, "rope.dimension_sections") ||
            (has_trait(m, GGUF_LISTS_HEADS) && !strcmp(key, "attention.head_count_kv"));
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

static bool has_tensor(const making *m, const char *ending) {
    for (size_t i = 0; i < sn_weights_count(m->w); i++)
        if (sn_ends_with(sn_weights_at(m->w, i)->name, ending)) return true;
    return false;
}

/* Sizes of heads of latent attention. Files whose keys and values are one head of latents, as
 * llama.cpp computes with them, have keys "_mla" for the heads' own sizes, and the maps from latents to
 * keys and to values as tensors of their own. */
static void take_latent(making *m) {
    double key = number(m, "attention.key_length_mla"),
           value = number(m, "attention.value_length_mla"),
           rotated = number(m, "rope.dimension_count"), q_rank = number(m, "attention.q_lora_rank");
    if (isnan(key)) key = number(m, "attention.key_length");
    if (isnan(value)) value = number(m, "attention.value_length");
    if (key > rotated) set(m, "qk_nope_head_dim", cJSON_CreateNumber(key - rotated));
    if (value > 0) set(m, "v_head_dim", cJSON_CreateNumber(value));
    if (strcmp(m->a->model_type, "deepseek_v2") != 0) need_value(m, "expert_gating_func", 2);
    if (q_rank > 0) set(m, "q_lora_rank", cJSON_CreateNumber(q_rank));
    if (has_tensor(m, ".attn_k_b.weight")) set(m, "separate_kv_b", cJSON_CreateTrue());
    if (number(m, "expert_group_count") > 1 && !strcmp(m->a->model_type, "deepseek_v2"))
        set(m, "topk_method", cJSON_CreateString("group_limited_greedy"));
}

/* What each layer is: whether it attends. */
typedef struct layer_list {
    size_t n;
    bool *has;
} layer_list;

static layer_list list_layers(const making *m) {
    const double n = number(m, "block_count");
    layer_list l = {.n = n > 0 && n <= MAX_LAYERS ? (size_t)n : 0};
    l.has = calloc(l.n + 1, sizeof *l.has);
    return l;
}

/* The layers that attend, and the heads of keys there. */
static layer_list take_heads(making *m) {
    const sn_gguf_key *heads = find_key(m, "attention.head_count_kv");
    layer_list l = list_layers(m);
    double most = 0;
    if (!heads || !heads->array || heads->count != l.n)
        sn_problem(&m->problems,
                   "key \"%s.attention.head_count_kv\" must list the heads of each layer, 1 to %d",
                   m->a->name, MAX_LAYERS);
    for (size_t i = 0; heads && l.has && i < l.n; i++) {
        const double here = sn_gguf_number(heads, i);
        l.has[i] = here > 0;
        if (here > most) most = here;
    }
    m->failed |= !l.has;
    if (!has_trait(m, GGUF_LATENTS) && most > 0)
        set(m, "num_key_value_heads", cJSON_CreateNumber(most));
    return l;
}

/* Kimi-Linear lists layers by their numbers, from 1. */
static void take_kda(making *m, const layer_list *attends) {
    set(m, "linear_attn_config.num_heads", cJSON_CreateNumber(number(m, "attention.head_count")));
    for (int which = 0; which < 2; which++) {
        cJSON *list = cJSON_CreateArray();
        for (size_t i = 0; list && i < attends->n; i++)
            if (attends->has[i] == which)
                m->failed |= !cJSON_AddItemToArray(list, cJSON_CreateNumber((double)(i + 1)));
        set(m, which ? "linear_attn_config.full_attn_layers" : "linear_attn_config.kda_layers",
            list);
    }
}

/* Granite names the type of each layer. Its experts are those of a file that has some. */
static void take_types(making *m, const layer_list *attends) {
    cJSON *list = cJSON_CreateArray();
    for (size_t i = 0; list && i < attends->n; i++)
        m->failed |= !cJSON_AddItemToArray(
            list, cJSON_CreateString(attends->has[i] ? "attention" : "mamba"));
    set(m, "layer_types", list);
    if (!find_key(m, "expert_count")) set(m, "num_local_experts", cJSON_CreateNumber(0));
}

/* Jamba says where the first layer of a kind is and how far it is to the next. */
static void take_period(making *m, const layer_list *l, const char *what, const char *period_key,
                        const char *offset_key) {
    size_t first = 0, next, i = 0;
    while (first < l->n && !l->has[first]) first++;
    for (next = first + 1; next < l->n && !l->has[next];) next++;
    const size_t period = next < l->n ? next - first : l->n + 1;
    while (i < l->n && l->has[i] == (i % period == first)) i++;
    if (i < l->n)
        sn_problem(
            &m->problems,
            "only every n-th layer, from one of the first n on, may have %s: the first two are "
            "%zu and %zu, and layer %zu does not fit",
            what, first, next, i);
    set(m, period_key, cJSON_CreateNumber((double)period));
    set(m, offset_key, cJSON_CreateNumber((double)first));
}

static void take_periods(making *m, const layer_list *attends) {
    layer_list experts = list_layers(m);
    char name[64];
    for (size_t i = 0; experts.has && i < experts.n; i++) {
        snprintf(name, sizeof name, "blk.%zu.ffn_gate_inp.weight", i);
        experts.has[i] = sn_weights_find(m->w, name);
    }
    take_period(m, attends, "attention", "attn_layer_period", "attn_layer_offset");
    if (experts.has)
        take_period(m, &experts, "experts", "expert_layer_period", "expert_layer_offset");
    m->failed |= !experts.has;
    free(experts.has);
}

/* llama.cpp takes a key about training for whether positions rotate; absent: they do. */
static void check_rotation(making *m) {
    const bool rotates = number(m, "rope.scaling.finetuned") != 0,
               wanted = !has_trait(m, GGUF_TYPES);
    if (has_trait(m, GGUF_SWITCHES_ROPE) && rotates != wanted)
        sn_problem(&m->problems,
                   "key \"%s.rope.scaling.finetuned\": only %s positions are supported for this "
                   "architecture",
                   m->a->name, wanted ? "rotary" : "no");
}

/* Layers that attend, and the width of those that carry a state. */
static void take_layers(making *m) {
    const double inner = number(m, "ssm.inner_size"), width = number(m, "embedding_length");
    if (number(m, "ssm.dt_b_c_rms") > 0)
        sn_problem(&m->problems, "norms of steps, B and C are not supported for this architecture");
    if (has_trait(m, GGUF_EXPAND) && inner > 0 && width > 0)
        set(m, has_trait(m, GGUF_LISTS_HEADS) ? "mamba_expand" : "expand",
            cJSON_CreateNumber(inner / width));
    if (!has_trait(m, GGUF_LISTS_HEADS)) return;
    layer_list attends = take_heads(m);
    if (attends.has && has_trait(m, GGUF_KDA)) take_kda(m, &attends);
    if (attends.has && has_trait(m, GGUF_TYPES)) take_types(m, &attends);
    if (attends.has && has_trait(m, GGUF_PERIODS)) take_periods(m, &attends);
    free(attends.has);
}

static void check_keys(making *m) {
    check_rotation(m);
    take_layers(m);
    if (has_trait(m, GGUF_LATENTS)) take_latent(m);
    if (has_trait(m, GGUF_LATENTS | GGUF_EXPAND)) return;
    double heads = number(m, "attention.head_count"), width = number(m, "embedding_length"),
           rotated = number(m, "rope.dimension_count");
    const sn_gguf_key *head = find_key(m, "attention.key_length");
    double d_head = head ? sn_gguf_number(head, 0) : heads > 0 ? width / heads : 0;
    bool has_width;
    const char *key = sn_gguf_find_pair(m->a->keys, "attention.key_length", &has_width);
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
    if (yarn &&
        has_trait(m, GGUF_LATENTS)) { /* a factor of the scores, none of cosines and sines */
        set_number(m, s, "mscale_all_dim", 10 * number(m, "rope.scaling.yarn_log_multiplier"));
        set_number(m, s, "attention_factor", 1);
    }
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
    char known[400] = "", shown[80] = "none";
    const char *text, *name, *last = "";
    size_t n = 0, at = 0, size;
    for (int i = 0; (name = sn_gguf_architecture(i)) && n < sizeof known; last = name, i++)
        if (strcmp(name, last))
            n += (size_t)snprintf(known + n, sizeof known - n, "%s%s", i ? ", " : "", name);
    if (sn_gguf_string(sn_gguf_find(g, "general.architecture"), &at, &text, &size))
        snprintf(shown, sizeof shown, "\"%.*s\"", (int)(size < 60 ? size : 60), text);
    sn_fail(err, SN_ERR_FILE, "%s: the architecture is %s; supported in GGUF files: %s", g->path,
            shown, known);
}

sn_config *sn_gguf_config(const sn_weights *w, sn_error *err) {
    const sn_gguf *g = sn_weights_gguf(w);
    making m = {.w = w, .g = g, .a = sn_gguf_architecture_of(w)};
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
