/* encoder_heads.c: what an encoder was trained to say: the head's kind, from the config and the
 * weights, and its logits. Line numbers are those of [PH22 A9]. */
#include "frontend/causal_lm.h"
#include "frontend/encoder_lm.h"
#include "frontend/front.h"

#include <stdio.h>

/* Ends of the names in "architectures", as in BertForTokenClassification. */
static const char *const endings[ENCODER_TASKS] = {
    [MASKED_TOKENS] = "ForMaskedLM",
    [TEXT_CLASSES] = "ForSequenceClassification",
    [TOKEN_CLASSES] = "ForTokenClassification",
    [SPANS] = "ForQuestionAnswering",
    [REPLACED_TOKENS] = "ForPreTraining",
};

static const sn_weight *find(const sn_weights *w, const char *prefix, const char *name) {
    char text[256];
    if (!w || !name) return NULL;
    snprintf(text, sizeof text, "%s%s.weight", prefix, name);
    return sn_weights_find(w, text);
}

static const sn_weight *find_dense(const encoder_lm *g, const sn_weights *w, encoder_task t) {
    bool inside = t == TEXT_CLASSES && g->pooler_in_prefix;
    return find(w, inside ? g->prefix : "", g->names->head[t].dense);
}

/* The task that the config names; else the first one whose head is in the weights. */
static encoder_task find_task(const encoder_lm *g, sn_config *c, const sn_weights *w) {
    const encoder_names *n = g->names;
    for (int t = 0; t < ENCODER_TASKS; t++) {
        char json[128];
        snprintf(json, sizeof json, "[\"%s%s\"]", n->task, endings[t]);
        if ((n->head[t].out || t == MASKED_TOKENS) && sn_config_equals(c, "architectures", json))
            return (encoder_task)t;
    }
    for (int t = TEXT_CLASSES; t < REPLACED_TOKENS; t++)
        if (find(w, "", n->head[t].out) && (!n->head[t].dense || find_dense(g, w, (encoder_task)t)))
            return (encoder_task)t;
    return MASKED_TOKENS;
}

/* The number of classes that "id2label" names; 0: none. */
static int64_t count_labels(sn_config *c) {
    if (!sn_config_has(c, "id2label")) return 0;
    sn_config *names = sn_config_section(c, "id2label");
    int64_t n = 0;
    while (names && sn_config_unread(names, (int)n)) n++;
    sn_config_free(names);
    return n;
}

void encoder_read_head(sn_config *c, const sn_weights *w, encoder_lm *g) {
    g->task = find_task(g, c, w);
    const sn_weight *head = find(w, "", g->names->head[g->task].out);
    int64_t labels = head && head->rank == 2 ? head->shape[0] : 0;
    if (!w && g->task) labels = count_labels(c);
    if (g->task == SPANS) labels = 2;
    if (g->task == REPLACED_TOKENS) labels = 1;
    g->labels = sn_config_int_or(c, "num_labels", labels, 0, 1 << 24);
    if (g->labels && g->task == MASKED_TOKENS) g->task = TEXT_CLASSES;
    if (!g->labels) g->task = MASKED_TOKENS;
}

bool encoder_has_masked_head(const encoder_lm *g, const sn_weights *w) {
    return find(w, "", g->names->head_dense);
}

/* ---- logits ---- */

static sn_tensor transform(const encoder_lm *g, sn_tensor x) {
    const encoder_names *n = g->names;
    x = encoder_linear(x, n->head_dense, g->d_embed, g->head_bias);
    return encoder_norm(g, encoder_activate(g, g->head_act, x), n->head_norm);
}

/* Lines 10 to 12 without the softmax: logits of every position */
static sn_tensor unembed(const encoder_lm *g, sn_module *m, sn_tensor x) {
    const encoder_names *n = g->names;
    x = transform(g, x);
    sn_tensor bias = g->table_bias ? sn_param(m, n->head_bias, SN_F32, g->vocab) : NULL;
    sn_scope_params(m, g->tied ? g->prefix : "");
    if (g->tied) sn_scope_push(m, "embeddings");
    sn_scope_push(m, "%s", g->tied ? n->tokens : n->head_table);
    sn_tensor w = sn_param(m, "weight", SN_F32, g->vocab, g->d_embed);
    sn_scope_pop(m);
    if (g->tied) sn_scope_pop(m);
    if (bias) bias = sn_shard(bias, 0, FRONT_TENSOR);
    return sn_linear(x, sn_shard(w, 0, FRONT_TENSOR), bias);
}

/* The state of a text [B, d]: the first token's [PH22 section 3], or the mean over its tokens. */
static sn_tensor pool(const encoder_lm *g, const sn_forward_ctx *s, sn_tensor x) {
    if (!g->pool_mean) return sn_index(x, 1, 0);
    return sn_token_mean(x, sn_input(s->m, "lengths", SN_I32, s->B));
}

sn_tensor encoder_logits(const encoder_lm *g, const sn_forward_ctx *s, sn_tensor x) {
    const encoder_head *h = &g->names->head[g->task];
    sn_scope_params(s->m, "");
    if (!g->labels) return unembed(g, s->m, x);
    if (g->task == TEXT_CLASSES) x = pool(g, s, x);
    if (g->shared_head) {
        x = transform(g, x);
    } else if (h->dense) {
        sn_scope_params(s->m, g->task == TEXT_CLASSES && g->pooler_in_prefix ? g->prefix : "");
        encoder_act *act = g->task == TEXT_CLASSES ? g->pool_act : NULL;
        x = encoder_activate(g, act, encoder_linear(x, h->dense, g->d, true));
    }
    sn_scope_params(s->m, "");
    return encoder_linear(sn_forward_dropout(s, x), h->out, g->labels, true);
}
