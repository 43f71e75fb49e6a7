/* sentence.c: embeddings of texts as Sentence-Transformers [Reimers and Gurevych 2019] defines them:
 * modules that pool the hidden states, map and normalise the result. */
#include "frontend/sentence.h"
#include "frontend/front.h"

#include <stdio.h>
#include <stdlib.h>

static const char *const modules[] = {"Pooling", "Dense", "Normalize", NULL};
enum { POOLING, DENSE, NORMALIZE };

/* Kinds of pooling, in the order in which their results are joined. */
enum { FIRST, LARGEST, MEAN, MEAN_BY_ROOT, WEIGHTED, LAST, POOLINGS };
static const char *const pooling_keys[] = {
    "pooling_mode_cls_token",           "pooling_mode_max_tokens",
    "pooling_mode_mean_tokens",         "pooling_mode_mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens", "pooling_mode_lasttoken"};
static const char *const pooling_names[] = {
    "cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken", NULL};

/* "torch.nn.modules.activation.Tanh" */
static const char *const act_names[] = {
    "torch.nn.modules.activation.Tanh",    "torch.nn.modules.linear.Identity",
    "torch.nn.modules.activation.ReLU",    "torch.nn.modules.activation.GELU",
    "torch.nn.modules.activation.Sigmoid", NULL};
static sn_tensor (*const acts[])(sn_loc, sn_tensor) = {sn_tanh_at, NULL, sn_relu_at, sn_gelu_at,
                                                       sn_sigmoid_at};

/* ---- the config ---- */

static void read_pooling(sn_config *c, sentence_module *m, int64_t width) {
    int list[POOLINGS];
    int64_t given = sn_config_int_or(c, "word_embedding_dimension", width, 1, 1 << 24);
    given = sn_config_int_or(c, "embedding_dimension", given, 1, 1 << 24);
    for (int i = 0; i < POOLINGS; i++)
        m->pools[i] = sn_config_bool_or(c, pooling_keys[i], i == MEAN);
    size_t n = sn_config_choice_list(c, "pooling_mode", pooling_names, list, POOLINGS);
    for (int i = 0; n && i < POOLINGS; i++) m->pools[i] = false;
    for (size_t i = 0; i < n; i++) m->pools[list[i]] = true;
    for (int i = 0; i < POOLINGS; i++) m->width += m->pools[i] ? width : 0;
    if (given != width)
        sn_config_problem(c, "pools embeddings of width %lld, but the model's have %lld",
                          (long long)given, (long long)width);
    if (!m->width) sn_config_problem(c, "no kind of pooling is true");
    if (!sn_config_bool_or(c, "include_prompt", true))
        sn_config_problem(c, "\"include_prompt\": false is not supported");
}

static void read_dense(sn_config *c, sentence_module *m, int64_t width) {
    int64_t in = sn_config_int(c, "in_features", 1, 1 << 24);
    m->width = sn_config_int(c, "out_features", 1, 1 << 24);
    m->bias = sn_config_bool_or(c, "bias", true);
    m->act = sn_config_choice_or(c, "activation_function", act_names, 0);
    if (in != width)
        sn_config_problem(c, "takes %lld numbers, but gets %lld", (long long)in, (long long)width);
}

static void read_module(sn_config *c, sentence_module *m, int64_t width, bool pooled) {
    m->kind = sn_config_choice(c, "module", modules);
    snprintf(m->name, sizeof m->name, "%s", sn_config_string_or(c, "name", ""));
    m->width = 0;
    if (m->kind == POOLING)
        read_pooling(c, m, width);
    else if (m->kind == DENSE)
        read_dense(c, m, width);
    else
        m->width = width;
    if ((m->kind == POOLING) == pooled)
        sn_config_problem(c, "%s", pooled ? "pools twice" : "comes before the pooling");
    const char *key = sn_config_unread(c, 0);
    if (key) sn_config_problem(c, "unknown key \"%s\"", key);
}

int64_t sentence_read(sn_config *c, int64_t width, sentence_head *out) {
    *out = (sentence_head){0};
    if (!sn_config_has(c, "sentence_embedding")) return width;
    sn_config *all = sn_config_section(c, "sentence_embedding");
    for (int i = 0; all && i < SENTENCE_MODULES; i++) {
        char key[16];
        sn_error err = {0};
        snprintf(key, sizeof key, "%d", i);
        if (!sn_config_has(all, key)) break;
        sn_config *one = sn_config_section(all, key);
        if (!one) break;
        read_module(one, &out->module[i], width, i > 0);
        width = out->module[i].width;
        out->n = i + 1;
        if (!sn_config_check(one, &err)) sn_config_problem(c, "%s", err.message);
        sn_config_free(one);
    }
    const char *key = all ? sn_config_unread(all, 0) : NULL;
    if (key)
        sn_config_problem(c, "\"sentence_embedding\" has more than %d modules", SENTENCE_MODULES);
    sn_config_free(all);
    return width;
}

/* ---- the graph ---- */

/* What the pooling has in common: the hidden states with zeros after the end [B, T, d], and the sum
 * over tokens of their products with weights [B, T] and of the weights. */
typedef struct pool_input {
    sn_tensor x, inside, lengths;
} pool_input;

static sn_tensor weighted_sum(const pool_input *p, sn_tensor weight) {
    return sn_sum(sn_mul(p->x, sn_expand(weight, 2)), 1);
}

static sn_tensor pool(const pool_input *p, int kind) {
    sn_module *m = sn_module_of(p->x);
    sn_tensor place = sn_arange(m, SN_I32, sn_dim_of(p->x, 1)),
              n = sn_cast(sn_expand(p->lengths, 1), SN_F32);
    switch (kind) {
    case FIRST:
        return sn_index(p->x, 1, 0);
    case LARGEST:
        return sn_amax(sn_where(sn_expand(p->inside, 2), p->x, -1e9), 1);
    case MEAN:
        return sn_div(sn_sum(p->x, 1), n);
    case MEAN_BY_ROOT:
        return sn_div(sn_sum(p->x, 1), sn_sqrt(n));
    case WEIGHTED: {
        sn_tensor rank = sn_cast(sn_add(place, 1), SN_F32);
        sn_tensor weight = sn_where(p->inside, rank, 0.0);
        return sn_div(weighted_sum(p, weight), sn_sum_keep(weight, 1));
    }
    default: {
        sn_tensor last = sn_eq(place, sn_sub(sn_expand(p->lengths, 1), 1));
        return weighted_sum(p, sn_cast(last, SN_F32));
    }
    }
}

static sn_tensor pool_all(const sentence_module *s, sn_tensor hidden, sn_tensor lengths) {
    sn_module *m = sn_module_of(hidden);
    sn_dim T = sn_dim_of(hidden, 1);
    pool_input p = {.lengths = lengths};
    p.inside = sn_lt(sn_arange(m, SN_I32, T), sn_expand(lengths, 1));
    p.x = sn_where(sn_expand(p.inside, 2), hidden, 0.0);
    sn_tensor all = NULL;
    for (int i = 0; i < POOLINGS; i++) {
        sn_tensor y = s->pools[i] ? pool(&p, i) : NULL;
        all = !all ? y : y ? sn_concat(-1, all, y) : all;
    }
    return all;
}

sn_tensor sentence_embed(const sentence_head *h, sn_tensor hidden, sn_tensor lengths) {
    if (!h->n) return sn_sentence_embedding(hidden, lengths);
    sn_tensor x = pool_all(&h->module[0], hidden, lengths);
    sn_module *m = sn_module_of(hidden);
    for (int i = 1; i < h->n; i++) {
        const sentence_module *s = &h->module[i];
        if (s->kind == NORMALIZE) x = sn_unit_norm(x);
        if (s->kind != DENSE) continue;
        sn_scope_params(m, "");
        sn_scope_push(m, "%s", s->name);
        x = sn_nn_linear(x, "linear", s->width, s->bias ? SN_BIAS : 0);
        sn_scope_pop(m);
        if (acts[s->act]) x = acts[s->act](SN_HERE, x);
    }
    return x;
}
