/* unread.c: what a model folder contains but the model does not read: tensors without a parameter,
 * config keys that would change the result, and keys that may be misspelt. */
#include "frontend/front.h"
#include "frontend/models.h"
#include "runtime/problems.h"
#include "runtime/str.h"

#include <stdlib.h>
#include <string.h>

/* ---- keys ---- */

/* Config keys that change what other programs compute; `same`: values for which the model here
 * computes the same. Keys that the architecture reads are not checked here. */
static const struct {
    const char *key, *same[3];
} keys[] = {
    {"add_bias_logits", {"false"}},
    {"add_cross_attention", {"false"}},
    {"alibi", {"false"}},
    {"apply_residual_connection_post_layernorm", {"false"}},
    {"attention_bias", {"false"}},
    {"attention_multiplier", {NULL}},
    {"attn_logit_softcapping", {NULL}},
    {"clip_qkv", {NULL}},
    {"causal", {"false"}},
    {"conv_kernel_size", {"0"}},
    {"do_blenderbot_90_layernorm", {"false"}},
    {"down_scale_factor", {"1"}},
    {"embedding_multiplier", {"1"}},
    {"final_logit_softcapping", {NULL}},
    {"embedding_fraction", {"1"}},
    {"full_attn_mod", {"1"}},
    {"gap_size", {"0"}},
    {"interpolate_factor", {"1"}},
    {"is_decoder", {"false"}},
    {"learned_pos_emb", {"true"}},
    {"linear_layout", {"\"out_in\""}},
    {"lm_head_bias", {"false"}},
    {"logit_scale", {NULL}},
    {"logits_scaling", {"1"}},
    {"mlp_bias", {"false"}},
    {"mlp_type", {"\"default\""}},
    {"net_structure_type", {"0"}},
    {"norm_type", {"\"low_precision_layernorm\"", "\"layer_norm\""}},
    {"num_experts", {"0"}},
    {"num_memory_blocks", {"0"}},
    {"num_local_experts", {"0", "1"}},
    {"parallel_block", {"false"}},
    {"partial_rotary_factor", {"1"}},
    {"position_embedding_type", {"\"absolute\""}},
    {"prenorm", {"false"}},
    {"pruned_heads", {"{}"}},
    {"qk_layernorm", {"false"}},
    {"quantization_config", {NULL}},
    {"residual_multiplier", {"1"}},
    {"rope_parameters", {NULL}},
    {"rotary", {"true"}},
    {"rope_scaling", {NULL}},
    {"rotary_emb_interleaved", {"false"}},
    {"rotary_emb_scale_base", {NULL}},
    {"rotary_head_dim", {"false"}},
    {"scale_attn_by_inverse_layer_idx", {"false"}},
    {"scale_attn_weights", {"true"}},
    {"apply_layernorm", {"true"}},
    {"use_mrope", {"false"}},
    {"use_parallel_residual", {"false"}},
    {"use_qk_norm", {"false"}},
    {"use_rms_norm", {"false"}},
    {"use_weighted_layer_sum", {"false"}},
    {"vision_use_head", {"true"}},
};

/* A window that is at least as long as the context, or disabled, hides nothing. */
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

/* Config keys that do not change what a model computes (how it was trained, names of classes and
 * tokens, defaults of generation), that Sinter's programs read later, or that are checked above. */
static const char neutral[] =
    " boi_token_index eoi_token_index image_grid_pinpoints image_seq_length image_token_index "
    "mm_tokens_per_image multimodal_projector_bias projector_hidden_act spatial_merge_size "
    "text_config use_image_newline_parameter vision_config vision_feature_layer "
    "vision_feature_select_strategy "
    "_attn_implementation _num_labels _attn_implementation_autoset _commit_hash _name_or_path "
    "add_bos_token apply_spec_augment architectures classifier_proj_size forced_decoder_ids "
    "median_filter_width encoder_stride drop_path_rate layerscale_value "
    "logit_scale_init_value out_features out_indices projection_dim stage_names "
    "reshape_hidden_states use_mask_token attention_softmax_in_fp32 auto_map bad_words_ids "
    "begin_suppress_tokens bias_dropout_fusion cache_implementation chunk_size_feed_forward "
    "cross_attention_hidden_size dense_act_fn deterministic_flash_attn directionality "
    "diversity_penalty do_sample dropout dropout_rate dtype "
    "early_stopping encoder_no_repeat_ngram_size exponential_decay_length_penalty "
    "extra_pos_embeddings finetuning_task force_bos_token_to_be_generated "
    "gradient_checkpointing id2label image_mean image_std init_config "
    "init_device init_std initial_context_length initializer_cutoff_factor initializer_factor "
    "initializer_range "
    "is_encoder_decoder is_gated_act "
    "is_llama_config chunk_size mamba_chunk_size rescale_prenorm_residual "
    "residual_in_fp32 rms_norm time_step_floor time_step_max time_step_min normalization_function "
    "num_logits_to_keep use_mamba_kernels "
    "z_loss_coefficient "
    "keys_to_ignore_at_inference label2id language layer_norm_eps layerdrop "
    "length_penalty "
    "masked_softmax_fusion max_length max_window_layers min_length model_type n_ctx "
    "name name_or_path no_repeat_ngram_size num_beam_groups num_beams num_labels "
    "num_return_sequences offset_alibi output_attentions output_hidden_states output_past "
    "output_router_logits "
    "output_scores prefix pretraining_tp problem_type reference_compile remove_invalid_values "
    "reorder_and_upcast_attn repad_logits_with_grad sentence_embedding sentence_transformers "
    "repetition_penalty "
    "return_dict "
    "return_dict_in_generate "
    "aux_loss_alpha ep_size mamba_ssm_dtype mtp_num_hidden_layers mtp_use_dedicated_embeddings "
    "num_nextn_predict_layers router_aux_loss_coef router_jitter_noise "
    "seq_aux "
    "sinusoidal_pos_embds skip_bias_add skip_bias_add_qkv sliding_window slow_but_exact source "
    "sparse_pred_ignore_index sparse_prediction "
    "dense_seq_output fused_bias_fc fused_dropout_add_ln parallel_block_tied_norm use_flash_attn "
    "use_xentropy "
    "suppress_tokens "
    "task_specific_params temperature tf_legacy_loss tie_encoder_decoder tie_weights_ "
    "tokenizer_class "
    "tokenizer_name top_k top_p torch_dtype torchscript transformers.js_config "
    "transformers_version typical_p unsloth_version use_bfloat16 use_cache use_sliding_window "
    "verbose vocab_size ";
static const char *const neutral_prefixes[] = {"mask_feature_", "mask_time_", "pooler_",
                                               "summary_"};
static const char *const neutral_endings[] = {"_drop",    "_dropout_prob", "_pdrop",
                                              "_dropout", "_layerdrop",    "_token_id"};

static bool is_neutral(const char *key) {
    size_t n = strlen(key);
    for (const char *at = neutral + 1; n && (at = strstr(at, key)); at++)
        if (at[-1] == ' ' && at[n] == ' ') return true;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (!strcmp(key, keys[i].key)) return true; /* its value was checked */
    for (size_t i = 0; i < sizeof neutral_prefixes / sizeof *neutral_prefixes; i++)
        if (!strncmp(key, neutral_prefixes[i], strlen(neutral_prefixes[i]))) return true;
    for (size_t i = 0; i < sizeof neutral_endings / sizeof *neutral_endings; i++)
        if (sn_ends_with(key, neutral_endings[i])) return true;
    return false;
}

const char *sn_model_unknown_key(const sn_config *c, int i) {
    const char *key;
    for (int k = 0; (key = sn_config_unread(c, k)); k++)
        if (!is_neutral(key) && !sn_config_equals(c, key, "null") && i-- == 0) return key;
    return NULL;
}

/* ---- tensors ---- */

/* Shapes of buffers: a learned tensor of the same name has another one. */
typedef enum shape_of { SCALAR, VECTOR, ROW, TABLE, SQUARE } shape_of;

/* Constants that published files hold beside the parameters: endings of their names. */
static const struct {
    const char *end;
    shape_of shape;
} buffers[] = {
    {"attn.bias", SQUARE}, /* causal masks: GPT-2, GPT-J; the next one: GPT-NeoX, GPT-Neo */
    {"attention.bias", SQUARE},
    {"attn.causal_mask", SQUARE}, /* CodeGen */
    {"attn.masked_bias", SCALAR},
    {"attention.masked_bias", SCALAR},
    {"rotary_emb.inv_freq", VECTOR},
    {"maybe_rotary.inv_freq", VECTOR}, /* the first Falcon */
    {"rotary_emb.cos_cached", TABLE},
    {"rotary_emb.sin_cached", TABLE},
    {"rope_freqs.weight", VECTOR}, /* of GGUF files; "rope_scaling" has them */
    {"rope_factors_long.weight", VECTOR},
    {"rope_factors_short.weight", VECTOR},
    {"embeddings.position_ids", ROW}, /* BERT, CLIP and others */
    {"embeddings.token_type_ids", ROW},
    {"embed_positions.weights", TABLE}, /* sinusoids of M2M-100 */
    {"num_batches_tracked", SCALAR},
    {"encoder.version", SCALAR}, /* of fairseq: BART, OPT */
    {"decoder.version", SCALAR},
};

/* The type of all models that are the text part of others. */
static const char TEXT_ONLY[] = "text_only";

/* Parts of names of heads that other entries or programs use, and of what only training reads; in all
 * models or in those of a type. */
static const struct {
    const char *part, *type;
} heads[] = {
    {"cls.seq_relationship", NULL},
    {"cls.predictions", NULL},
    {"discriminator_predictions.", NULL},
    {"generator_lm_head.", NULL},
    {"mask_predictions.", "deberta-v2"},
    {"lm_head.decoder.", NULL}, /* tied to the token table and lm_head.bias */
    {"predictions.decoder.", NULL},
    {"sop_classifier.", NULL},
    {"vocab_projector.", NULL},
    {"embeddings.mask_token", NULL},
    {"pooler.", NULL},
    {"classifier.", NULL},
    {"vision_tower.", TEXT_ONLY}, /* of pictures */
    {"visual.", TEXT_ONLY},
    {"multi_modal_projector.", TEXT_ONLY},
    {"image_newline", TEXT_ONLY},
    {"mtp.", TEXT_ONLY},
    {"mtp.", "qwen3_next"},
    {"mtp.", "qwen3_5_text"},
    {"mtp.", "qwen3_5_moe_text"},
    {"qa_outputs.", NULL},
    {"EncDecAttention.relative_attention_bias.", NULL}, /* of T5, never used */
    {"embeddings.word_embeddings._weight", "deberta-v2"},
    {"embeddings.position_embeddings._weight", "deberta-v2"},
    {"embeddings.position_embeddings.weight", "deberta-v2"}, /* without position_biased_input */
};

static bool has_shape(const sn_weight *w, shape_of shape) {
    const int64_t *n = w->shape;
    int rank = w->rank;
    switch (shape) {
    case SCALAR:
        return rank == 0 || (rank == 1 && n[0] == 1);
    case VECTOR:
        return rank == 1;
    case ROW:
        return rank == 1 || (rank == 2 && n[0] == 1);
    case TABLE: /* perhaps after axes of size 1 */
        return rank >= 2 && (rank < 3 || n[0] == 1) && (rank < 4 || n[1] == 1);
    default:
        return rank == 4 && n[0] == 1 && n[1] == 1 && n[2] == n[3];
    }
}

static bool is_harmless(const sn_model *model, const sn_weight *w) {
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
        if (sn_ends_with(w->name, buffers[i].end) && has_shape(w, buffers[i].shape)) return true;
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
        if (strstr(w->name, heads[i].part) &&
            (!heads[i].type ||
             (heads[i].type == TEXT_ONLY ? model->text_only : !strcmp(heads[i].type, model->type))))
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

/* A head, or a copy of the token table, in the file although the model uses the table. It must
 * equal that table, unless it is a head that the config ties to it. */
static bool is_tied_table(const sn_model *model, const sn_weights *w, const sn_weight *head) {
    bool tied = !strcmp(head->name, "lm_head.weight") || !strcmp(head->name, "proj_out.weight");
    if ((!tied && !sn_ends_with(head->name, "embed_tokens.weight")) || head->rank != 2)
        return false;
    tied = tied && model->tied;
    for (size_t i = 0; !tied && i < sn_weights_count(w); i++) {
        const sn_weight *t = sn_weights_at(w, i);
        if (t != head && t->dtype == head->dtype && t->block == head->block &&
            t->bytes == head->bytes && t->rank == 2 && t->shape[0] == head->shape[0] &&
            is_parameter(model->module, t->name) && !memcmp(t->data, head->data, t->bytes))
            return true;
    }
    return tied;
}

bool sn_model_takes_all(const sn_model *model, const sn_weights *w, sn_error *err) {
    char names[160] = "";
    size_t unused = 0, at = 0;
    for (size_t i = 0; i < sn_weights_count(w); i++) {
        const sn_weight *t = sn_weights_at(w, i);
        if (is_harmless(model, t) || is_parameter(model->module, t->name) ||
            is_tied_table(model, w, t))
            continue;
        if (unused++ < 3 && at < sizeof names)
            at += (size_t)snprintf(names + at, sizeof names - at, at ? ", %s" : "%s", t->name);
    }
    return !unused ||
           sn_fail(
               err, SN_ERR_SHAPE,
               "%s: %s models have no parameters for %zu of the tensors (%s%s), so it would differ "
               "from the trained model; check \"model_type\" and the other keys of its config",
               sn_weights_path(w), model->type, unused, names, unused > 3 ? ", …" : "");
}
