/* registry.c: the registry of architectures by config.json's model_type, and presets. */
#include "frontend/models.h"
#include "frontend/causal_lm.h"
#include "frontend/families/families.h"
#include "frontend/front.h"
#include "frontend/onnx/roles.h"
#include "runtime/problems.h"
#include "runtime/file.h"

#include <stdlib.h>
#include <string.h>

/* In alphabetical order. One of the members after `shown` makes the model. */
static const struct {
    sn_model_family shown;
    void (*build)(sn_config *c, const sn_model_options *o, sn_model *out);
    const causal_family *family;
    const encoder_family *encoder;
    const seq2seq_family *pair;
    const char *text; /* what "text_config" may leave out */
} registry[] = {
#define LANGUAGE "language model"
#define IMAGES "classifier, embedding of images"
#define IMAGES_CHECKED "logits, embeddings: NumPy"
#define PAIRS "similarity of images and texts, embedding"
#define CHECKED "logits, greedy tokens: NumPy"
#define BUILT(type, what, heads, checked, fn)                                                      \
    { {type, what, heads, checked, false, false, false}, .build = fn }
#define FAMILY(type, what)                                                                         \
    { {#type, what, LANGUAGE, CHECKED, false, false, false}, .family = &type##_family }
#define ENCODER(type, what, checked, family)                                                       \
    {                                                                                              \
        {type,  what, "masked language model, classifiers, answers, embedding", checked, true,     \
         false, false},                                                                            \
            .encoder = &family                                                                     \
    }
#define SEQ2SEQ(type, what, heads, checked, family)                                                \
    { {type, what, heads, checked, false, true, false}, .pair = &family }
#define LLAMA_USUAL                                                                                \
    "{\"model_type\": \"llama\", \"vocab_size\": 32000, \"hidden_size\": 4096, "                   \
    "\"intermediate_size\": 11008, \"num_hidden_layers\": 32, \"num_attention_heads\": 32, "       \
    "\"max_position_embeddings\": 2048}"
/* Models of pictures and texts: the config's text_config is the model; tensors of pictures are skipped. */
#define TEXT_PART(type, what, usual)                                                               \
    { {type, what, LANGUAGE, CHECKED, false, false, true}, .text = usual }
#define ENCODER_CHECKED "logits, embeddings: NumPy"
    ENCODER("albert", "ALBERT", ENCODER_CHECKED, albert_family),
    FAMILY(bamba, "Bamba"),
    SEQ2SEQ("bart", "BART, DistilBART", "summaries, infilling", CHECKED, bart_family),
    ENCODER("bert", "BERT", "NumPy, PyTorch; trained: ONNX Runtime", bert_family),
    FAMILY(bloom, "BLOOM"),
    ENCODER("camembert", "CamemBERT", ENCODER_CHECKED, camembert_family),
    BUILT("clip", "CLIP", PAIRS, "logits, embeddings: NumPy", sn_clip_build),
    FAMILY(cohere, "Command R"),
    ENCODER("deberta-v2", "DeBERTa v2, v3", ENCODER_CHECKED, deberta_v2_family),
    BUILT("deit", "DeiT", IMAGES, IMAGES_CHECKED, sn_deit_build),
    BUILT("dinov2", "DINOv2", IMAGES, IMAGES_CHECKED, sn_dinov2_build),
    FAMILY(deepseek_v2, "DeepSeek-V2, V2 Lite"),
    FAMILY(deepseek_v3, "DeepSeek-V3, R1"),
    FAMILY(deepseek_v32, "DeepSeek-V3.2"),
    ENCODER("distilbert", "DistilBERT", ENCODER_CHECKED, distilbert_family),
    SEQ2SEQ("edt", "encoder-decoder [Vaswani 2017]", "translation",
            "losses, gradients: PyTorch; a trained model's translations", edt_family),
    ENCODER("electra", "ELECTRA", ENCODER_CHECKED, electra_family),
    FAMILY(falcon, "Falcon"),
    BUILT("gato", "Gato", LANGUAGE " of several modalities", "embeddings: plain loops",
          sn_gato_build),
    FAMILY(gemma, "Gemma 1"),
    FAMILY(gemma2, "Gemma 2"),
    TEXT_PART(
        "gemma3", "Gemma 3",
        "{\"model_type\": \"gemma3_text\", \"vocab_size\": 262208, \"num_attention_heads\": 8, "
        "\"num_key_value_heads\": 4, \"head_dim\": 256, \"max_position_embeddings\": 131072}"),
    {{"gemma3_text", "Gemma 3, text", LANGUAGE, CHECKED, false, false, false},
     .family = &gemma3_family},
    BUILT("gopher", "Gopher", LANGUAGE, "losses, gradients: PyTorch", sn_gopher_build),
    BUILT("gpt2", "GPT-2", LANGUAGE, "losses, gradients: PyTorch; a trained model's tokens",
          sn_gpt2_build),
    BUILT("gpt3", "GPT-3, with banded layers", LANGUAGE, "logits: GPT-2 with the same mask",
          sn_gpt3_build),
    FAMILY(gpt_neox, "GPT-NeoX, Pythia"),
    FAMILY(gpt_oss, "gpt-oss"),
    FAMILY(gptj, "GPT-J"),
    FAMILY(granite, "Granite 3"),
    FAMILY(granitemoehybrid, "Granite 4 H"),
    FAMILY(jamba, "Jamba"),
    FAMILY(kimi_linear, "Kimi-Linear"),
    {{"llama", "Llama 1 to 3.x, SmolLM", LANGUAGE, CHECKED "; a trained model's tokens", false,
      false, false},
     .family = &llama_family},
    TEXT_PART("llava", "LLaVA 1.5", LLAMA_USUAL),
    TEXT_PART("llava_next", "LLaVA 1.6", LLAMA_USUAL),
    SEQ2SEQ("m2m_100", "M2M-100, NLLB", "translation", CHECKED, m2m_100_family),
    FAMILY(mamba, "Mamba"),
    FAMILY(mamba2, "Mamba-2, Codestral Mamba"),
    SEQ2SEQ("marian", "Marian, OPUS-MT", "translation", CHECKED, marian_family),
    SEQ2SEQ("mbart", "mBART, mBART-50", "translation", CHECKED, mbart_family),
    FAMILY(mistral, "Mistral, Ministral"),
    TEXT_PART("mistral3", "Mistral Small 3.1", "{\"model_type\": \"mistral\"}"),
    FAMILY(mixtral, "Mixtral"),
    ENCODER("modernbert", "ModernBERT", ENCODER_CHECKED, modernbert_family),
    ENCODER("mpnet", "MPNet", ENCODER_CHECKED, mpnet_family),
    FAMILY(mpt, "MPT"),
    SEQ2SEQ("mt5", "mT5", "text to text", CHECKED, t5_family),
    ENCODER("nomic_bert", "Nomic Embed 1.x", ENCODER_CHECKED, nomic_bert_family),
    FAMILY(olmo2, "OLMo 2"),
    FAMILY(olmoe, "OLMoE"),
    FAMILY(opt, "OPT"),
    SEQ2SEQ("pegasus", "Pegasus", "summaries", CHECKED, pegasus_family),
    FAMILY(phi, "Phi-1, 1.5, 2"),
    FAMILY(phi3, "Phi-3, 3.5, 4"),
    FAMILY(qwen2, "Qwen 2, 2.5"),
    FAMILY(qwen2_moe, "Qwen 1.5 MoE, Qwen 2 MoE"),
    FAMILY(qwen3, "Qwen 3"),
    TEXT_PART("qwen3_5", "Qwen 3.5", "{\"model_type\": \"qwen3_5_text\"}"),
    TEXT_PART("qwen3_5_moe", "Qwen 3.5 MoE", "{\"model_type\": \"qwen3_5_moe_text\"}"),
    FAMILY(qwen3_5_moe_text, "Qwen 3.5 MoE, text"),
    FAMILY(qwen3_5_text, "Qwen 3.5, text"),
    FAMILY(qwen3_moe, "Qwen 3 MoE"),
    FAMILY(qwen3_next, "Qwen3-Next"),
    TEXT_PART("qwen3_vl", "Qwen 3 VL", "{\"model_type\": \"qwen3_vl_text\"}"),
    {{"qwen3_vl_text", "Qwen 3 VL, text", LANGUAGE, CHECKED, false, false, false},
     .family = &qwen3_family},
    ENCODER("roberta", "RoBERTa", ENCODER_CHECKED, roberta_family),
    BUILT("siglip", "SigLIP", PAIRS, "logits, embeddings: NumPy", sn_siglip_build),
    FAMILY(stablelm, "StableLM"),
    FAMILY(starcoder2, "StarCoder 2"),
    SEQ2SEQ("t5", "T5, Flan-T5", "text to text", CHECKED, t5_family),
    BUILT("tse_alt", "TSE with heads as two circuits", LANGUAGE, "logits: TSE-GPT",
          sn_tse_alt_build),
    BUILT("tse_gpt", "TSE-GPT", LANGUAGE, "logits: plain loops", sn_tse_gpt_build),
    SEQ2SEQ("umt5", "umT5", "text to text", CHECKED, umt5_family),
    BUILT("vit", "vision transformer", IMAGES, IMAGES_CHECKED "; a trained model's classes",
          sn_vit_build),
    {{"whisper", "Whisper, Distil-Whisper", "speech to text",
      "logits, greedy tokens, spectrograms: NumPy", false, false, false},
     .pair = &whisper_family},
    ENCODER("xlm-roberta", "XLM-R", ENCODER_CHECKED, xlm_roberta_family),
};
enum { N_MODELS = sizeof registry / sizeof *registry };

const sn_model_family *sn_model_family_at(int i) {
    return i >= 0 && i < N_MODELS ? &registry[i].shown : NULL;
}

/* The row of the config's "model_type"; -1 after recording that there is none. */
static int find_type(sn_config *c) {
    const char *types[N_MODELS + 1] = {NULL}, *type = sn_config_string(c, "model_type");
    char text[80];
    for (int i = 0; i < N_MODELS; i++) {
        types[i] = registry[i].shown.type;
        if (!strcmp(types[i], type)) return i;
    }
    if (!sn_config_has(c, "model_type")) return -1; /* recorded */
    const char *near = sn_nearest_name(type, types);
    sn_config_problem(c,
                      "\"model_type\" is \"%s\", which is not known%s%s: `sinter models` lists "
                      "all. A model in C can define it: see `sinter run --help`",
                      sn_printable(text, sizeof text, type), near ? "; the nearest is " : "",
                      near ? near : "");
    return -1;
}

static bool choose_options(const sn_model_options *o, const sn_training *usual,
                           sn_model_options *chosen, sn_error *err) {
    *chosen = o ? *o : (sn_model_options){0};
    if (!chosen->entries) chosen->entries = SN_ALL_ENTRIES;
    if (!chosen->batch) chosen->batch = 1;
    if (!chosen->beams) chosen->beams = 1;
    if (!chosen->max_batch) chosen->max_batch = 1024;
    if (!chosen->training) chosen->training = usual;
    if (chosen->batch > 0 && chosen->beams > 0 && chosen->max_batch > 0 && chosen->context >= 0)
        return true;
    return sn_fail(err, SN_ERR_USAGE, "a model's batch, beams and context cannot be negative");
}

/* Rejects more layers than the weights have tensors before building thousands of them. */
static bool check_layers(sn_config *c, const sn_weights *w, sn_error *err) {
    static const char *const keys[] = {
        "n_layer",        "n_layers",   "num_hidden_layers",  "encoder_layers",
        "decoder_layers", "num_layers", "num_decoder_layers", NULL};
    const int64_t tensors = w ? (int64_t)sn_weights_count(w) : INT64_MAX;
    if (!tensors)
        return sn_fail(err, SN_ERR_FILE,
                       "%s has no tensors: it holds a vocabulary only, which `sinter tokenizer "
                       "encode %s` uses",
                       sn_weights_path(w), sn_weights_path(w));
    for (int i = 0; keys[i]; i++) {
        int64_t layers = sn_config_int_or(c, keys[i], 0, 0, 1 << 12);
        if (layers > tensors)
            sn_config_problem(
                c, "\"%s\" is %lld, but the weights have only %lld tensors: they do not match",
                keys[i], (long long)layers, (long long)tensors);
    }
    return sn_config_check(c, err);
}

/* The config's section of the text model, complete; NULL after recording why there is none. */
static sn_config *text_part(sn_config *c, const char *usual, sn_error *err) {
    static const char key[] = "text_config", tied[] = "tie_word_embeddings";
    if (!sn_config_has(c, key)) sn_config_problem(c, "\"%s\" is missing", key);
    sn_config *t = sn_config_section(c, key),
              *all = sn_config_parse(key, usual, strlen(usual), err);
    if (t && all) {
        sn_config_merge(all, t);
        if (!sn_config_has(t, tied) && sn_config_has(c, tied))
            sn_config_set_bool(all, tied, sn_config_bool(c, tied));
        sn_config_merge(t, all);
    }
    if (!all) sn_config_free(t), t = NULL;
    sn_config_free(all);
    return t;
}

static bool build_text(sn_config *c, int row, const sn_model_options *o, sn_model *out,
                       sn_error *err) {
    sn_config *t = text_part(c, registry[row].text, err);
    if (!t)
        return !err->code && sn_config_check(c, err) &&
               sn_fail(err, SN_ERR_MEMORY, "out of memory");
    int i = find_type(t);
    if (i >= 0 && !registry[i].family)
        sn_config_problem(t, "\"model_type\" is not one of a decoder of text");
    bool ok = sn_config_check(c, err) && sn_config_check(t, err) && sn_model_build(t, o, out, err);
    const char *unread = ok ? sn_model_unknown_key(t, 0) : NULL;
    if (unread) sn_config_problem(c, "text_config: \"%s\" is not read: is it misspelt?", unread);
    if (ok) {
        front_check_keys(c, out->context);
        out->type = registry[row].shown.type;
        out->text_only = true;
        ok = sn_config_check(c, err);
        if (!ok) sn_module_free(out->module), out->module = NULL;
    }
    sn_config_free(t);
    return ok;
}

bool sn_model_build(sn_config *c, const sn_model_options *o, sn_model *out, sn_error *err) {
    if (!sn_given(c, "sn_model_build", "the config", err) ||
        !sn_given(out, "sn_model_build", "the model", err))
        return false;
    int i = find_type(c);
    *out = (sn_model){0};
    if (!sn_config_check(c, err)) return false;
    if (registry[i].text) return build_text(c, i, o, out, err);
    sn_training usual = sn_training_default();
    sn_model_options chosen;
    if (!choose_options(o, &usual, &chosen, err) || !check_layers(c, chosen.weights, err))
        return false;
    out->type = registry[i].shown.type;
    out->batch = chosen.batch;
    out->module = sn_module_new(out->type);
    if (!out->module) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    sn_mesh_at(SN_HERE, out->module, chosen.mesh);
    if (registry[i].family)
        causal_lm_build(registry[i].family, c, &chosen, out);
    else if (registry[i].encoder)
        encoder_lm_build(registry[i].encoder, c, &chosen, out);
    else if (registry[i].pair)
        seq2seq_lm_build(registry[i].pair, c, &chosen, out);
    else
        registry[i].build(c, &chosen, out);
    if (chosen.context > out->context)
        sn_config_problem(c, "the requested context of %lld exceeds the model's, %lld",
                          (long long)chosen.context, (long long)out->context);
    if (chosen.image && out->image && chosen.image != out->image)
        sn_config_problem(
            c, "the images have %lld pixels a side, but the model's positions are for %lld",
            (long long)chosen.image, (long long)out->image);
    front_check_keys(c, out->context);
    out->tied |= sn_config_equals(c, "tie_word_embeddings", "true");
    if (chosen.context) out->context = chosen.context;
    if (sn_config_check(c, err) && sn_module_ok(out->module, err)) return true;
    sn_module_free(out->module);
    out->module = NULL;
    return false;
}

/* ---- models in user-written C files ---- */

/* Derives the sizes of a model from its entries. */
static void read_sizes(sn_model *out) {
    sn_module *m = out->module;
    for (int e = 0; e < sn_entry_count(m); e++) {
        const sn_entry *entry = sn_entry_at(m, e);
        for (int i = 0; i < entry->n_output; i++) {
            const sn_node *y = entry->output[i].node;
            if (!strcmp(entry->output[i].name, "logits") && y->rank)
                sn_dim_is_const(m, y->shape[y->rank - 1], &out->vocab);
        }
    }
    for (uint32_t i = 0; i < sn_module_node_count(m); i++) {
        const sn_node *n = sn_module_node(m, i);
        if (n->op == SN_OP_cross_entropy && !out->vocab) /* a model that has a loss only */
            sn_dim_is_const(m, n->in[0]->shape[n->in[0]->rank - 1], &out->vocab);
        if (n->op != SN_OP_input || strcmp(sn_attr_str(n, SN_A_name, ""), "tokens") != 0) continue;
        int64_t hi = n->rank ? sn_dim_hi(m, n->shape[n->rank - 1]) : 0;
        if (hi > out->context) out->context = hi;
    }
    out->context *= sn_mesh_size(m, FRONT_CONTEXT); /* each rank's tokens are a part of the row */
}

static bool check_entries(sn_module *m, sn_error *err) {
    if (!sn_entry_count(m))
        return sn_fail(err, SN_ERR_USAGE,
                       "the model '%s' has none of the requested entries: add them with "
                       "sn_entry_begin and sn_output, or with sn_decoder_entries",
                       sn_module_name(m));
    for (int i = 0; i < sn_entry_count(m); i++) {
        const sn_entry *e = sn_entry_at(m, i);
        if (!e->n_output && !e->n_assign)
            return sn_fail(err, SN_ERR_USAGE,
                           "the entry '%s' has no result: call sn_output or sn_assign after its "
                           "sn_entry_begin",
                           e->name);
    }
    return true;
}

static _Thread_local sn_module *volatile defining;

const sn_module *sn_model_defining(sn_loc *at) {
    if (at) *at = defining ? sn_module_loc(defining) : (sn_loc){NULL, 0};
    return defining;
}

/* Calls the user's function and checks what it has made. */
static bool call_function(sn_model_fn *define, sn_module *m, const sn_model_options *o,
                          sn_error *err) {
    sn_null_op_begin(m);
    defining = m;
    define(m, o);
    defining = NULL;
    sn_null_op_report(m);
    front_end_scopes(m);
    if (sn_module_ok(m, err) && check_entries(m, err)) return true;
    if (err && err->code == SN_ERR_USAGE) err->code = SN_ERR_FILE; /* not the caller's mistake */
    return false;
}

bool sn_model_build_with(sn_model_fn *define, const char *name, const sn_model_options *o,
                         sn_model *out, sn_error *err) {
    sn_training usual = sn_training_default();
    sn_model_options chosen;
    if (!sn_given((const void *)(uintptr_t)define, "sn_model_build_with", "the function", err) ||
        !sn_given(out, "sn_model_build_with", "the model", err))
        return false;
    *out = (sn_model){0};
    if (!choose_options(o, &usual, &chosen, err)) return false;
    sn_module *m = sn_module_new(name);
    if (!m) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    sn_mesh_at(SN_HERE, m, chosen.mesh);
    out->module = m;
    out->type = sn_module_name(m);
    out->batch = chosen.batch;
    if (call_function(define, m, &chosen, err)) {
        read_sizes(out);
        return true;
    }
    sn_module_free(m);
    out->module = NULL;
    return false;
}

bool sn_model_build_onnx(const char *path, const char *name, sn_config *config,
                         const sn_model_options *o, sn_model *out, sn_weights **weights,
                         sn_error *err) {
    *out = (sn_model){.batch = 1};
    sn_module *m = sn_module_new(name);
    if (!m) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    out->module = m;
    out->type = sn_module_name(m);
    if (onnx_build_model(path, config, o, out, weights, err)) {
        if (!out->labels) read_sizes(out);
        return true;
    }
    sn_module_free(m);
    out->module = NULL;
    return false;
}

/* Leaves out the entries of sn_decoder_entries that nobody asked for. Its `step` has a temperature. */
static void choose_entries(sn_module *m, int entries) {
    static const struct {
        const char *name;
        int flag;
    } decoder[] = {{"forward", SN_FORWARD},
                   {"loss", SN_LOSS},
                   {"prefill", SN_CACHED},
                   {"decode", SN_CACHED},
                   {"step", SN_STEP}};
    const sn_entry *step = sn_entry_get(m, "step");
    sn_order order = step ? sn_entry_topo(m, step) : (sn_order){0};
    bool made = false;
    for (int i = 0; i < order.n; i++)
        made |= order.node[i]->op == SN_OP_input &&
                !strcmp(sn_attr_str(order.node[i], SN_A_name, ""), "temperature");
    for (int i = sn_entry_count(m) - 1; made && i >= 0; i--)
        for (size_t k = 0; k < sizeof decoder / sizeof *decoder; k++)
            if (!strcmp(sn_entry_at(m, i)->name, decoder[k].name)) {
                if (!(entries & decoder[k].flag)) sn_entry_remove(m, i);
                break;
            }
}

bool sn_model_build_graph(const char *path, const sn_model_options *o, sn_model *out,
                          sn_error *err) {
    sn_mapping file;
    if (!sn_given(out, "sn_model_build_graph", "the model", err)) return false;
    *out = (sn_model){.batch = 1};
    if (!sn_file_map(path, &file, err)) return false;
    char *text = strndup((const char *)file.data, file.size);
    sn_module *m = text ? sn_parse(text, path, false, err) : NULL;
    if (!text) sn_fail(err, SN_ERR_MEMORY, "out of memory");
    free(text);
    sn_file_unmap(&file);
    if (!m) return false;
    out->module = m;
    out->type = sn_module_name(m);
    read_sizes(out);
    choose_entries(m, o && o->entries ? o->entries : SN_ALL_ENTRIES);
    if (!o || !o->context || o->context == out->context) return true;
    sn_fail(err, SN_ERR_USAGE,
            "%s: the graph was built for a context of %lld tokens: name the model's C file for "
            "another",
            path, (long long)out->context);
    sn_module_free(m);
    out->module = NULL;
    return false;
}

/* ---- presets ---- */

#define DECODER(type, vocab, context, d, layers, heads)                                            \
    "{\"model_type\": \"" type "\", \"vocab_size\": " #vocab ", \"n_positions\": " #context        \
    ", \"n_embd\": " #d ", \"n_layer\": " #layers ", \"n_head\": " #heads "}"
#define GPT2(d, layers, heads) DECODER("gpt2", 50257, 1024, d, layers, heads)
static const struct {
    const char *name, *text;
} presets[] = {
    {"gpt2", GPT2(768, 12, 12)},
    {"gpt2-medium", GPT2(1024, 24, 16)},
    {"gpt2-large", GPT2(1280, 36, 20)},
    {"gpt2-xl", GPT2(1600, 48, 25)},
    {"gpt3-125m", DECODER("gpt3", 50257, 2048, 768, 12, 12)}, /* Brown et al. 2020, table 2.1 */
    {"gpt3-350m", DECODER("gpt3", 50257, 2048, 1024, 24, 16)},
    {"gopher-44m", DECODER("gopher", 32000, 2048, 512, 8, 16)}, /* Rae et al. 2021, table 1 */
    {"gopher-117m", DECODER("gopher", 32000, 2048, 768, 12, 12)},
    {"gato-79m", /* Reed et al. 2022, table 5; text of 32000 SentencePiece tokens */
     "{\"model_type\": \"gato\", \"vocab_size\": 32000, \"n_positions\": 1024, \"n_embd\": 768, "
     "\"n_layer\": 8, \"n_head\": 24, \"n_inner\": 3072}"},
    {"vit-base",
     "{\"model_type\": \"vit\", \"image_size\": 224, \"patch_size\": 16, \"num_labels\": 1000, "
     "\"hidden_size\": 768, \"intermediate_size\": 3072, \"num_hidden_layers\": 12, "
     "\"num_attention_heads\": 12}"},
    {"bert-base",
     "{\"model_type\": \"bert\", \"vocab_size\": 30522, \"max_position_embeddings\": 512, "
     "\"hidden_size\": 768, \"intermediate_size\": 3072, \"num_hidden_layers\": 12, "
     "\"num_attention_heads\": 12}"},
    {"bert-tiny", /* Turc et al. 2019 */
     "{\"model_type\": \"bert\", \"vocab_size\": 30522, \"max_position_embeddings\": 512, "
     "\"hidden_size\": 128, \"intermediate_size\": 512, \"num_hidden_layers\": 2, "
     "\"num_attention_heads\": 2}"},
    {"edt-base",
     "{\"model_type\": \"edt\", \"vocab_size\": 32000, \"max_position_embeddings\": 512, "
     "\"d_model\": 512, \"ffn_dim\": 2048, \"encoder_layers\": 6, \"decoder_layers\": 6, "
     "\"attention_heads\": 8, \"positions\": \"sinusoid\"}"},
};
enum { N_PRESETS = sizeof presets / sizeof *presets };

const char *sn_model_preset(const char *name) {
    for (int i = 0; i < N_PRESETS; i++)
        if (!strcmp(presets[i].name, name)) return presets[i].text;
    return NULL;
}

const char *sn_model_preset_name(int i) {
    return i >= 0 && i < N_PRESETS ? presets[i].name : NULL;
}
