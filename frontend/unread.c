/* unread.c: what a model folder has and the model does not take: tensors without a parameter, and
 * keys of config.json that would change the result. Leaving either out would give wrong numbers. */
#include "frontend/front.h"
#include "frontend/models.h"
#include "runtime/problems.h"

#include <stdlib.h>
#include <string.h>

/* ---- keys ---- */

/* Keys that other programs read and that change what a model computes; `same`: values with which it
 * is the model that is built here. A key that the architecture reads is its own matter. */
static const struct {
    const char *key, *same[3];
} keys[] = {
    {"add_cross_attention", {"false"}},
    {"alibi", {"false"}},
    {"attention_bias", {"false"}},
    {"attention_multiplier", {NULL}},
    {"attn_logit_softcapping", {NULL}},
    {"clip_qkv", {NULL}},
    {"embedding_multiplier", {"1"}},
    {"final_logit_softcapping", {NULL}},
    {"is_decoder", {"false"}},
    {"logits_scaling", {"1"}},
    {"mlp_bias", {"false"}},
    {"num_experts", {"0"}},
    {"num_local_experts", {"0", "1"}},
    {"partial_rotary_factor", {"1"}},
    {"position_embedding_type", {"\"absolute\""}},
    {"pruned_heads", {"{}"}},
    {"qk_layernorm", {"false"}},
    {"quantization_config", {NULL}},
    {"residual_multiplier", {"1"}},
    {"rope_parameters", {NULL}},
    {"rope_scaling", {NULL}},
    {"scale_attn_by_inverse_layer_idx", {"false"}},
    {"scale_attn_weights", {"true"}},
    {"use_qk_norm", {"false"}},
};

/* A window that is as long as the context, or switched off, hides nothing. */
static void check_window(sn_config *c, int64_t context) {
    if (sn_config_equals(c, "use_sliding_window", "false")) return;
    int64_t n = sn_config_int_or(c, "sliding_window", context, 1, INT32_MAX);
    if (n < context)
        sn_config_problem(c, "\"sliding_window\" is %lld: windows are not supported", (long long)n);
}

static bool is_unread(const sn_config *c, const char *key) {
    const char *k;
    for (int i = 0; (k = sn_config_unread(c, i)); i++)
        if (!strcmp(k, key)) return sn_config_has(c, key);
    return false;
}

void front_check_keys(sn_config *c, int64_t context) {
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        bool same = !is_unread(c, keys[i].key);
        for (int k = 0; k < 3 && keys[i].same[k]; k++)
            same |= sn_config_equals(c, keys[i].key, keys[i].same[k]);
        if (!same)
            sn_config_problem(c, "\"%s\" changes the result and is not supported with this value",
                              keys[i].key);
    }
    if (is_unread(c, "sliding_window")) check_window(c, context);
}

/* ---- tensors ---- */

/* Ends of names of constants, and heads that other entries or other programs use. */
static const struct {
    const char *part;
    int rank; /* -1: any */
} harmless[] = {
    {".attn.bias", 4},
    {".attn.masked_bias", -1},
    {"rotary_emb.inv_freq", 1},
    {"position_ids", -1},
    {"token_type_ids", -1},
    {"num_batches_tracked", 0},
    {"cls.seq_relationship", -1},
    {"cls.predictions", -1},
    {"pooler.dense", -1},
    {"classifier.", -1},
    {"qa_outputs.", -1},
    {"lm_head.weight", 2},
};

static bool is_harmless(const sn_weight *w) {
    for (size_t i = 0; i < sizeof harmless / sizeof *harmless; i++)
        if (strstr(w->name, harmless[i].part) &&
            (harmless[i].rank < 0 || harmless[i].rank == w->rank))
            return true;
    return false;
}

static bool is_parameter(sn_module *m, const char *name) {
    for (uint32_t i = 0; i < sn_module_node_count(m); i++) {
        const sn_node *n = sn_module_node(m, i);
        if (n->op == SN_OP_param && !strcmp(sn_attr_str(n, SN_A_name, ""), name)) return true;
    }
    return false;
}

bool sn_model_takes_all(const sn_model *model, const sn_weights *w, sn_error *err) {
    char names[160] = "";
    size_t unused = 0, at = 0;
    for (size_t i = 0; i < sn_weights_count(w); i++) {
        const sn_weight *t = sn_weights_at(w, i);
        if (is_harmless(t) || is_parameter(model->module, t->name)) continue;
        if (unused++ < 3 && at < sizeof names)
            at += (size_t)snprintf(names + at, sizeof names - at, at ? ", %s" : "%s", t->name);
    }
    return !unused ||
           sn_fail(err, SN_ERR_SHAPE,
                   "%s: a %s model has no parameters for %zu of the tensors (%s%s): it would not "
                   "be the "
                   "model that was trained; see \"model_type\" and the other keys of its config",
                   sn_weights_path(w), model->type, unused, names, unused > 3 ? ", …" : "");
}
