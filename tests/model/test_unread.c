/* test_unread.c: folders with tensors that the model does not take are refused, for inference and
 * for fine-tuning: biases of another architecture, a head that is not the tied one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "frontend/train.h"
#include "tests/support/scratch.h"
#include "model/open.h"
#include "model/train/train.h"

#include <sys/stat.h>

enum { VOCAB = 12, D = 8, MAX_WEIGHTS = 64 };

static const char llama[] =
    "{\"model_type\": \"llama\", \"vocab_size\": 12, \"max_position_embeddings\": 8, "
    "\"hidden_size\": 8, \"intermediate_size\": 16, \"num_hidden_layers\": 1, "
    "\"num_attention_heads\": 2%s}";
static const char gpt2[] = "{\"model_type\": \"gpt2\", \"vocab_size\": 12, \"n_positions\": 8, "
                           "\"n_embd\": 8, \"n_layer\": 1, \"n_head\": 2%s}";

/* Writes scratch_dir/model: random parameters of the config, and `extra` tensors. */
static const char *write_folder(const char *config, const char *keys, const sn_weight *extra,
                                int n_extra) {
    char text[1024];
    sn_error err = {0};
    sn_model m;
    sn_parameters p;
    sn_weight all[MAX_WEIGHTS];
    int n = snprintf(text, sizeof text, config, keys);
    sn_config *c = sn_config_parse("config.json", text, (size_t)n, &err);
    const sn_model_options o = {.entries = SN_LOSS};
    if (!c || !sn_model_build(c, &o, &m, &err) ||
        !sn_parameters_draw(m.module, m.type, m.layers, 1, &p, &err))
        fail_msg("%s", err.message);
    assert_true(p.count + (size_t)n_extra <= MAX_WEIGHTS);
    memcpy(all, p.weight, sizeof *all * p.count);
    if (n_extra) memcpy(all + p.count, extra, sizeof *all * (size_t)n_extra);
    for (int i = 0; i < n_extra; i++) /* contents NULL: those of the token table */
        for (size_t k = 0; k < p.count && !extra[i].data; k++)
            if (p.weight[k].rank == 2 && p.weight[k].shape[0] == VOCAB)
                all[p.count + (size_t)i].data = p.weight[k].data;
    mkdir(scratch_path("model"), 0700);
    bool ok = scratch_write(scratch_path("model/config.json"), text, (size_t)n) &&
              sn_weights_save(scratch_path("model/model.safetensors"), all,
                              p.count + (size_t)n_extra, NULL, 0, &err);
    if (!ok) fail_msg("%s", err.message);
    sn_parameters_free(&p);
    sn_module_free(m.module);
    sn_config_free(c);
    return scratch_path("model");
}

/* Opening the folder succeeds (say NULL), or fails with a message that has `say`. */
static void open_folder(const char *folder, const char *say) {
    sn_error err = {0};
    const open_options o = {.path = folder,
                            .entries = SN_LOSS,

                            .compile = {.level = 1, .backend = "native", .cache_dir = scratch_dir}};
    open_model *m = lm_open(&o, &err);
    if (!say && !m) fail_msg("%s", err.message);
    if (say && m) fail_msg("opened; wanted: %s", say);
    if (say && !strstr(err.message, say)) fail_msg("wanted '%s' in: %s", say, err.message);
    model_close(m);
}

static void fine_tune(const char *folder, const char *config, const char *say) {
    sn_error err = {0};
    char text[1024], model[512];
    train_settings s;
    train_result result;
    snprintf(model, sizeof model, config, "");
    int n = snprintf(text, sizeof text,
                     "{\"model\": %s, \"data\": {\"text\": \"text.txt\", \"validation_part\": 0}, "
                     "\"tokenizer\": {\"kind\": \"char\"}, \"training\": "
                     "{\"start\": \"%s\", \"steps\": 1, \"batch\": 1, \"block\": 4}}",
                     model, folder);
    assert_true(scratch_write(scratch_path("run.json"), text, (size_t)n));
    assert_true(scratch_write(scratch_path("text.txt"), "abcdefghabcdefghabcdefgh", 24));
    if (!train_settings_read(scratch_path("run.json"), NULL, &s, &err)) fail_msg("%s", err.message);
    const train_request r = {.settings = &s,
                             .folder = scratch_path("run"),
                             .compile = {.level = 1, .cache_dir = scratch_dir}};
    assert_int_equal(train_run(&r, &result, &err), TRAIN_FAILED);
    if (!strstr(err.message, say)) fail_msg("wanted '%s' in: %s", say, err.message);
    train_settings_free(&s);
}

/* A Qwen2 folder whose model_type is set to llama has biases of q, k and v that Llama has not. */
static void biases_of_another_model(void **state) {
    (void)state;
    static const float b[D];
    static const sn_weight extra[] = {
        {"model.layers.0.self_attn.q_proj.bias", SN_F32, 1, {D}, b, sizeof b, NULL, NULL},
        {"model.layers.0.self_attn.k_proj.bias", SN_F32, 1, {D}, b, sizeof b, NULL, NULL},
        {"model.layers.0.self_attn.v_proj.bias", SN_F32, 1, {D}, b, sizeof b, NULL, NULL}};
    open_folder(write_folder(llama, "", NULL, 0), NULL);
    const char *folder = write_folder(llama, "", extra, 3);
    open_folder(folder, "no parameters for 3 of the tensors "
                        "(model.layers.0.self_attn.q_proj.bias, ");
    fine_tune(folder, llama,
              "no parameters for 3 of the tensors (model.layers.0.self_attn.q_proj.bias, ");
}

/* GPT-2's head is the token table unless the config says otherwise. */
static void head_that_is_not_tied(void **state) {
    (void)state;
    static const float other[VOCAB * D] = {1};
    static const char say[] = "no parameters for 1 of the tensors (lm_head.weight)";
    sn_weight head = {"lm_head.weight", SN_F32, 2, {VOCAB, D}, NULL, sizeof other, NULL, NULL};
    open_folder(write_folder(gpt2, "", &head, 1), NULL); /* a copy of the table */
    head.data = other;
    open_folder(write_folder(gpt2, "", &head, 1), say);
    fine_tune(scratch_path("model"), gpt2, say);
    open_folder(write_folder(gpt2, ", \"tie_word_embeddings\": true", &head, 1), NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(biases_of_another_model),
                                       cmocka_unit_test(head_that_is_not_tied)};
    return cmocka_run_group_tests(tests, scratch_make, scratch_end);
}
