/* test_dropped.c: nothing that changes the result is dropped in silence, whatever the family: a tensor
 * that no parameter takes, and a config key that other programs follow and this family does not
 * read, are errors; keys of training and of other programs are not. For every reference in
 * tests/data/families, seq2seq and vision. */
#include "frontend/models.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "tests/e2e/family_folder.h"
#include "tests/support/scratch.h"
#include "tests/support/text.h"
#include "model/open.h"

#include <dirent.h>
#include <string.h>

/* What changes the result, with a value that does. */
static const struct {
    const char *key, *json;
} harmful[] = {
    {"attn_logit_softcapping", "7.5"},
    {"final_logit_softcapping", "7.5"},
    {"scale_attn_by_inverse_layer_idx", "true"},
    {"scale_attn_weights", "false"},
    {"position_embedding_type", "\"relative_key\""},
    {"quantization_config", "{\"bits\": 4, \"quant_method\": \"gptq\"}"},
    {"rope_scaling", "{\"rope_type\": \"linear\", \"factor\": 2.0}"},
    {"partial_rotary_factor", "0.5"},
    {"attention_bias", "true"},
    {"mlp_bias", "true"},
    {"num_local_experts", "8"},
    {"num_experts", "8"},
    {"clip_qkv", "4.0"},
    {"logit_scale", "0.5"},
    {"logits_scaling", "2.0"},
    {"residual_multiplier", "0.5"},
    {"embedding_multiplier", "2.0"},
    {"attention_multiplier", "0.5"},
    {"qk_layernorm", "true"},
    {"use_parallel_residual", "true"},
    {"alibi", "true"},
    {"is_decoder", "true"},
    {"add_cross_attention", "true"},
    {"conv_kernel_size", "3"},
    {"pruned_heads", "{\"0\": [1]}"},
    {"sliding_window", "2"},
};

/* What does not. */
static const struct {
    const char *key, *json;
} harmless[] = {
    {"_name_or_path", "\"someone/something\""},
    {"transformers_version", "\"4.41.0\""},
    {"torch_dtype", "\"bfloat16\""},
    {"use_cache", "true"},
    {"initializer_range", "0.02"},
    {"attention_dropout", "0.1"},
    {"hidden_dropout_prob", "0.1"},
    {"gradient_checkpointing", "false"},
    {"output_past", "true"},
    {"finetuning_task", "\"sst-2\""},
    {"label2id", "{\"LABEL_0\": 0}"},
    {"problem_type", "\"single_label_classification\""},
    {"task_specific_params", "{\"text-generation\": {\"do_sample\": true}}"},
    {"auto_map", "{\"AutoConfig\": \"x.Y\"}"},
    {"transformers.js_config", "{\"dtype\": \"q4\"}"},
    {"quantization_config", "null"},
    {"sliding_window", "null"},
};

enum {
    N_HARMFUL = sizeof harmful / sizeof *harmful,
    N_HARMLESS = sizeof harmless / sizeof *harmless
};

/* The reference's config with a key replaced. */
static sn_config *changed(const cJSON *json, const char *key, const char *value) {
    sn_error err = {0};
    cJSON *copy = cJSON_Duplicate(cJSON_GetObjectItem(json, "config"), true);
    cJSON_DeleteItemFromObjectCaseSensitive(copy, key);
    cJSON_AddItemToObject(copy, key, cJSON_Parse(value));
    char *text = cJSON_PrintUnformatted(copy);
    sn_config *c = sn_config_parse("config.json", text, strlen(text), &err);
    if (!c) fail_msg("%s", err.message);
    cJSON_free(text);
    cJSON_Delete(copy);
    return c;
}

static bool is_read(const sn_config *c, const char *key) {
    const char *k;
    for (int i = 0; (k = sn_config_unread(c, i)); i++)
        if (!strcmp(k, key)) return false;
    return true;
}

static void check_keys(const char *name, const cJSON *json) {
    for (int i = 0; i < N_HARMFUL; i++) {
        sn_config *c = changed(json, harmful[i].key, harmful[i].json);
        sn_model model = {0};
        sn_error err = {0};
        bool built = sn_model_build(c, &(sn_model_options){.entries = SN_ENCODE}, &model, &err);
        if (built && !is_read(c, harmful[i].key))
            fail_msg("%s: \"%s\" is dropped", name, harmful[i].key);
        if (!built && !strstr(err.message, harmful[i].key) && !is_read(c, harmful[i].key))
            fail_msg("%s: \"%s\" gives: %s", name, harmful[i].key, err.message);
        sn_module_free(model.module);
        sn_config_free(c);
    }
    for (int i = 0; i < N_HARMLESS; i++) {
        sn_config *c = changed(json, harmless[i].key, harmless[i].json);
        sn_model model = {0};
        sn_error err = {0};
        if (!sn_model_build(c, &(sn_model_options){.entries = SN_ENCODE}, &model, &err))
            fail_msg("%s: \"%s\" is refused: %s", name, harmless[i].key, err.message);
        const char *unknown = sn_model_unknown_key(c, 0);
        if (unknown) fail_msg("%s: \"%s\" is not known", name, unknown);
        sn_module_free(model.module);
        sn_config_free(c);
    }
}

/* The folder with one more tensor, opened with all entries. */
static void check_tensors(const char *folder, const char *name) {
    static const char *const extra[] = {"model.layers.0.self_attn.q_proj.lora_A.weight",
                                        "encoder.layer.0.adapter.down.weight",
                                        "transformer.h.0.attn.extra.bias"};
    family_folder f;
    char dir[] = "/tmp/sn_test_XXXXXX", path[64], config[64];
    sn_error err = {0};
    assert_non_null(mkdtemp(dir));
    family_read(folder, name, SN_F32, &f);
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    snprintf(config, sizeof config, "%s/config.json", dir);
    for (int i = -1; i < 3; i++) {
        if (i >= 0) {
            sn_weight *t = &f.tensor[f.n_tensor];
            *t = f.tensor[0];
            t->name = extra[i];
            f.n_tensor++;
        }
        family_write(dir, &f, false);
        if (i >= 0) f.n_tensor--;
        sn_weights *w = sn_weights_open(path, &err);
        sn_config *c = sn_config_open(config, &err);
        sn_model model = {0};
        if (!w || !c) fail_msg("%s", err.message);
        sn_model_options o = {.entries = SN_ALL_ENTRIES | SN_EMBED, .weights = w};
        if (!sn_model_build(c, &o, &model, &err)) fail_msg("%s: %s", name, err.message);
        bool ok = sn_model_takes_all(&model, w, &err);
        if (i < 0 && !ok) fail_msg("%s: %s", name, err.message);
        if (i >= 0 && (ok || !strstr(err.message, extra[i])))
            fail_msg("%s: the tensor %s is dropped", name, extra[i]);
        err = (sn_error){0};
        sn_module_free(model.module);
        sn_config_free(c);
        sn_weights_close(w);
    }
    family_free(&f);
    remove(path);
    remove(config);
    remove(dir);
}

/* ---- buffers of published files ---- */

/* A tensor that files of the family hold beside the parameters, and a shape of it that is another's. */
static const struct buffer {
    const char *family, *name;
    sn_dtype type;
    int rank;
    int64_t shape[4];
    int other_rank;
    int64_t other[4];
} buffers[] = {
    {"gpt_neox", "gpt_neox.layers.0.attention.bias", SN_BOOL, 4, {1, 1, 8, 8}, 1, {8}},
    {"gpt_neox", "gpt_neox.layers.1.attention.bias", SN_U8, 4, {1, 1, 8, 8}, 4, {1, 2, 8, 8}},
    {"gpt_neox", "gpt_neox.layers.1.attention.masked_bias", SN_F32, 0, {0}, 1, {8}},
    {"gpt_neox", "gpt_neox.layers.0.attention.rotary_emb.inv_freq", SN_F32, 1, {4}, 2, {4, 4}},
    {"gptj", "transformer.h.0.attn.bias", SN_U8, 4, {1, 1, 8, 8}, 1, {8}},
    {"gptj", "transformer.h.0.attn.masked_bias", SN_F32, 0, {0}, 1, {8}},
    {"llama", "model.layers.0.self_attn.rotary_emb.inv_freq", SN_F32, 1, {4}, 2, {4, 4}},
    {"llama", "model.layers.0.self_attn.rotary_emb.cos_cached", SN_F32, 4, {1, 1, 8, 4}, 1, {4}},
    {"llama", "model.layers.0.self_attn.rotary_emb.sin_cached", SN_F32, 2, {8, 4}, 3, {2, 8, 4}},
    {"falcon", "transformer.h.0.self_attention.maybe_rotary.inv_freq", SN_F32, 1, {4}, 2, {1, 4}},
    {"opt", "model.decoder.version", SN_F32, 1, {1}, 1, {8}},
    {"bert", "bert.embeddings.position_ids", SN_I64, 2, {1, 8}, 2, {8, 8}},
    {"roberta", "roberta.embeddings.token_type_ids", SN_I64, 2, {1, 8}, 2, {2, 8}},
    {"roberta", "lm_head.decoder.bias", SN_F32, 1, {8}, 0, {0}},
    {"electra", "discriminator_predictions.dense.weight", SN_F32, 2, {8, 8}, 0, {0}},
    {"deberta", "mask_predictions.dense.weight", SN_F32, 2, {8, 8}, 0, {0}},
    {"deberta", "deberta.embeddings.word_embeddings._weight", SN_F32, 2, {8, 8}, 0, {0}},
    {"deberta", "deberta.embeddings.position_embeddings.weight", SN_F32, 2, {8, 8}, 0, {0}},
    /* what looks like a buffer of another family is a parameter that this one does not have */
    {"llama", "model.layers.0.attention.dense.bias", SN_F32, -1, {0}, 1, {8}},
    {"bert", "mask_predictions.dense.weight", SN_F32, -1, {0}, 2, {8, 8}},
    {"llama", "model.embeddings.word_embeddings._weight", SN_F32, -1, {0}, 2, {8, 8}},
};

/* Opens the folder with one more tensor, as `sinter call` does. */
static void check_buffer(const char *dir, family_folder *f, const struct buffer *b, bool other) {
    static const float zeros[256];
    sn_weight *t = &f->tensor[f->n_tensor];
    sn_error err = {0};
    *t = (sn_weight){.name = b->name, .dtype = b->type, .data = zeros};
    t->rank = other ? b->other_rank : b->rank;
    memcpy(t->shape, other ? b->other : b->shape, sizeof b->shape);
    t->bytes = sn_dtype_size(b->type);
    for (int a = 0; a < t->rank; a++) t->bytes *= (size_t)t->shape[a];
    assert_true(t->bytes <= sizeof zeros);
    f->n_tensor++;
    family_write(dir, f, false);
    f->n_tensor--;
    const open_options o = {
        .path = dir, .entries = SN_ALL_ENTRIES, .any_model = true, .build_only = true};
    open_model *m = lm_open(&o, &err);
    if (!other && !m) fail_msg("%s", err.message);
    if (other && (m || !strstr(err.message, b->name))) fail_msg("%s is dropped", b->name);
    model_close(m);
}

static void published_buffers(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++) {
        family_folder f;
        family_read("families", buffers[i].family, SN_F32, &f);
        if (buffers[i].rank >= 0) check_buffer(scratch_dir, &f, &buffers[i], false);
        if (buffers[i].other_rank > 0) check_buffer(scratch_dir, &f, &buffers[i], true);
        family_free(&f);
    }
}

/* Runs on every reference of the folder. */
static void check_folder(const char *folder) {
    char path[512];
    int n = 0;
    snprintf(path, sizeof path, SN_SOURCE_DIR "/tests/data/%s", folder);
    DIR *d = opendir(path);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) {
        char *dot = strstr(e->d_name, ".json"), name[64];
        if (!dot) continue;
        snprintf(name, sizeof name, "%.*s", (int)(dot - e->d_name), e->d_name);
        snprintf(path, sizeof path, SN_SOURCE_DIR "/tests/data/%s/%s", folder, e->d_name);
        char *text = file_text(path);
        cJSON *json = cJSON_Parse(text);
        free(text);
        assert_non_null(json);
        check_keys(name, json);
        cJSON_Delete(json);
        check_tensors(folder, name);
        n++;
    }
    closedir(d);
    assert_true(n > 0);
}

static void families(void **state) {
    (void)state;
    check_folder("families");
}

static void pairs(void **state) {
    (void)state;
    check_folder("seq2seq");
}

static void images(void **state) {
    (void)state;
    check_folder("vision");
}

/* The architectures without a reference file. */
static void presets(void **state) {
    (void)state;
    const char *name;
    for (int i = 0; (name = sn_model_preset_name(i)); i++) {
        cJSON *json = cJSON_CreateObject();
        cJSON_AddItemToObject(json, "config", cJSON_Parse(sn_model_preset(name)));
        check_keys(name, json);
        cJSON_Delete(json);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(families),
        cmocka_unit_test(pairs),
        cmocka_unit_test(images),
        cmocka_unit_test_setup_teardown(published_buffers, scratch_make, scratch_end),
        cmocka_unit_test(presets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
