/* What users get wrong about models: config values of every architecture, missing tensors (all of
 * them in one message), sequences over the context, lengths and tokens out of range: refused with
 * what, where and what to do. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "tests/support/effort.h"
#include "tests/support/model_case.h"

#include <stdlib.h>
#include <string.h>

#define DECODER(type)                                                                              \
    "{\"model_type\": \"" type "\", \"vocab_size\": 19, \"n_positions\": 8, "                      \
    "\"n_embd\": 12, \"n_head\": 3, \"n_layer\": 1"
#define TSE(type)                                                                                  \
    "{\"model_type\": \"" type "\", \"n_vocab\": 19, \"n_ctx\": 8, "                               \
    "\"d_model\": 12, \"n_heads\": 3, \"n_layers\": 1}"
#define ENCODER                                                                                    \
    "\"hidden_size\": 12, \"intermediate_size\": 20, \"num_hidden_layers\": 1, "                   \
    "\"num_attention_heads\": 3}"

static const char *const models[] = {
    DECODER("gpt2") "}",
    DECODER("gpt3") ", \"window_size\": 4}",
    DECODER("gopher") "}",
    DECODER("gato") ", \"discrete_values\": 4, \"continuous_bins\": 4, \"image_size\": 8, "
                    "\"patch_size\": 4, \"resnet_filters\": 4, \"resnet_groups\": 2}",
    TSE("tse_gpt"),
    TSE("tse_alt"),
    "{\"model_type\": \"llama\", \"vocab_size\": 19, \"max_position_embeddings\": 8, " ENCODER,
    "{\"model_type\": \"bert\", \"vocab_size\": 19, \"max_position_embeddings\": 8, " ENCODER,
    "{\"model_type\": \"vit\", \"image_size\": 8, \"patch_size\": 4, \"num_labels\": 5, " ENCODER,
    ("{\"model_type\": \"edt\", \"vocab_size\": 19, \"max_position_embeddings\": 8, \"d_model\": "
     "12, \"ffn_dim\": 20, \"encoder_layers\": 1, \"decoder_layers\": 1, "
     "\"attention_heads\": 3}")};
enum { MODELS = sizeof models / sizeof *models };

/* The config of `model` with one key set to another number is refused with `why`. */
static void refuse(const char *model, const char *key, int64_t value, const char *why) {
    sn_error err = {0};
    sn_model m;
    sn_config *c = sn_config_parse("config.json", model, strlen(model), &err);
    need(c != NULL, &err);
    sn_config_set_int(c, key, value);
    if (sn_model_build(c, NULL, &m, &err)) fail_msg("%s = %lld is taken", key, (long long)value);
    if (!strstr(err.message, why) || !strstr(err.message, "config.json"))
        fail_msg("wanted '%s' in: %s", why, err.message);
    assert_true(err.code == SN_ERR_FILE || err.code == SN_ERR_USAGE || err.code == SN_ERR_RANGE);
    assert_null(m.module);
    sn_config_free(c);
}

/* Sizes below 1 and heads that do not divide the width, for every key of an architecture. */
static void sizes_and_heads(void **state) {
    (void)state;
    static const struct {
        const char *key, *width;
    } heads[] = {{"n_head", "n_embd"},
                 {"n_heads", "d_model"},
                 {"num_attention_heads", "hidden_size"},
                 {"attention_heads", "d_model"}};
    static const char *const sizes[] = {"vocab_size",
                                        "n_positions",
                                        "n_embd",
                                        "n_layer",
                                        "n_head",
                                        "n_vocab",
                                        "n_ctx",
                                        "d_model",
                                        "n_heads",
                                        "n_layers",
                                        "max_position_embeddings",
                                        "hidden_size",
                                        "intermediate_size",
                                        "num_hidden_layers",
                                        "num_attention_heads",
                                        "image_size",
                                        "patch_size",
                                        "num_labels",
                                        "ffn_dim",
                                        "encoder_layers",
                                        "decoder_layers",
                                        "attention_heads",
                                        "window_size",
                                        "discrete_values",
                                        "continuous_bins",
                                        "resnet_filters",
                                        "resnet_groups"};
    int n_sizes = 0, n_heads = 0;
    for (int i = 0; i < MODELS; i++) {
        sn_error err = {0};
        sn_config *c = sn_config_parse("config.json", models[i], strlen(models[i]), &err);
        need(c != NULL, &err);
        for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
            if (sn_config_has(c, sizes[k])) {
                refuse(models[i], sizes[k], -3, sizes[k]);
                refuse(models[i], sizes[k], 0, sizes[k]);
                n_sizes++;
            }
        for (size_t k = 0; k < sizeof heads / sizeof *heads; k++)
            if (sn_config_has(c, heads[k].key) && sn_config_has(c, heads[k].width)) {
                refuse(models[i], heads[k].key, 5, "= 5 does not divide");
                n_heads++;
            }
        sn_config_free(c);
    }
    assert_true(n_sizes >= 4 * MODELS && n_heads == MODELS);
    refuse(models[3], "patch_size", 3, "patch_size");
    refuse(models[3], "resnet_groups", 3, "\"resnet_groups\" = 3 does not divide");
    refuse(models[8], "image_size", 9, "\"patch_size\" = 4 does not divide \"image_size\" = 9");
    refuse(models[6], "num_key_value_heads", 2, "does not divide \"num_attention_heads\" = 3");
    refuse(models[2], "n_embd", 15, "\"n_embd\" = 15 must be even");
    refuse(models[0], "activation_function", 1, "activation_function");
}

static void unknown_type(void **state) {
    (void)state;
    static const char text[] = "{\"model_type\": \"gpt5\"}";
    sn_error err = {0};
    sn_model m;
    sn_config *c = sn_config_parse("config.json", text, strlen(text), &err);
    assert_false(sn_model_build(c, NULL, &m, &err));
    static const char *const parts[] = {"gpt5", "the nearest is gpt2", "`sinter models`", "in C"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (!strstr(err.message, parts[i])) fail_msg("no '%s' in: %s", parts[i], err.message);
    sn_config_free(c);
}

/* Of every architecture (in the default run of two): a session without its last three parameters names all three, one with a
 * wrong shape says which is wanted. */
static void missing_tensors(void **state) {
    (void)state;
    for (int i = 0; i < MODELS; i++) {
        if (!effort_takes((size_t)i + 3, 5)) continue;
        model_case c;
        sn_error err = {0};
        case_open(&c, models[i], SN_FORWARD);
        sn_options o = sn_options_default();
        o.level = 4;
        sn_program *p = sn_compile(c.model.module, &o, &err);
        need(p != NULL, &err);
        assert_null(sn_session_new_arrays(p, c.param, c.n_param - 3, &err));
        for (int k = c.n_param - 3; k < c.n_param; k++)
            if (!strstr(err.message, c.param[k].name))
                fail_msg("'%s' is not in: %s", c.param[k].name, err.message);
        int64_t shape[8];
        memcpy(shape, c.param[0].shape, sizeof *shape * (size_t)c.param[0].rank);
        shape[0]++;
        c.param[0].shape = shape;
        err = (sn_error){0};
        assert_null(sn_session_new_arrays(p, c.param, c.n_param, &err));
        assert_non_null(strstr(err.message, c.param[0].name));
        assert_non_null(strstr(err.message, "expected f32 ["));
        sn_program_free(p);
        case_close(&c);
    }
}

/* A run of a session with n tokens; lengths says how many count. */
static void refuse_run(sn_session *s, const char *entry, int32_t *tokens, int64_t n, int32_t length,
                       const char *why) {
    sn_error err = {0};
    static float out[64 * 19];
    int32_t types[64] = {0};
    sn_arg_binding in[] = {SN_BIND("tokens", SN_I32, tokens, 1, n),
                           SN_BIND("types", SN_I32, types, 1, n),
                           SN_BIND("lengths", SN_I32, &length, 1)};
    sn_arg_binding o = SN_BIND("logits", SN_F32, out, 1, n, 19);
    int n_in = strcmp(entry, "bert") ? 1 : 3;
    assert_false(sn_run(s, "forward", in, n_in, &o, 1, &err));
    if (!strstr(err.message, why)) fail_msg("wanted '%s' in: %s", why, err.message);
}

/* Longer than the positions that were learned; the same session then still works. */
static void too_long(void **state) {
    (void)state;
    static const int which[] = {0, 2, 7};
    for (int i = 0; i < 3; i++) {
        if (!effort_takes((size_t)i, 2)) continue;
        model_case c;
        sn_program *p;
        int32_t tokens[64] = {0};
        case_open(&c, models[which[i]], SN_FORWARD);
        sn_session *s = case_compile(&c, 4, NULL, &p);
        refuse_run(s, c.model.type, tokens, 9, 9, "T");
        refuse_run(s, c.model.type, tokens, 64, 64, "T");
        sn_session_free(s);
        sn_program_free(p);
        case_close(&c);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_and_heads), cmocka_unit_test(unknown_type),
        cmocka_unit_test(missing_tensors), cmocka_unit_test(too_long)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
