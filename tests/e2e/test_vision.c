/* Encoders of images and pairs of image and text, as published: folders with config.json and
 * safetensors, compared with NumPy (tests/data/families/make_vision_refs.py) at fusion levels 4 and
 * 0: logits, hidden states, embeddings. What does not fit is an error. */
#include "frontend/models.h"
#include "ir/ir.h"
#include "runtime/model_dir.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "tests/e2e/family_folder.h"
#include "tests/support/compile_case.h"
#include "tests/support/effort.h"
#include "tests/support/model_case.h"
#include "tests/support/scratch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_TEXTS = 64 };

typedef struct subject {
    const char *name;
    family_folder folder;
    int64_t shape[4]; /* of the pixels */
    float *pixels;
    int32_t tokens[MAX_TEXTS], lengths[MAX_TEXTS];
    int64_t texts, length; /* tokens is [texts, length] */
    sn_program *program;
    sn_session *session;
    int level;
} subject;

static void read_subject(const char *name, subject *s) {
    *s = (subject){.name = name};
    family_read("vision", name, SN_F32, &s->folder);
    const cJSON *item, *token, *json = s->folder.json;
    int64_t n = 1, rank = 0, at = 0;
    cJSON_ArrayForEach(item, cJSON_GetObjectItem(json, "pixels")) {
        s->shape[rank++] = item->valueint;
        n *= item->valueint;
    }
    assert_int_equal(rank, 4);
    s->pixels = malloc(sizeof *s->pixels * (size_t)n);
    assert_non_null(s->pixels);
    for (int64_t i = 0; i < n; i++) s->pixels[i] = family_value("pixels", 4, (size_t)i);
    cJSON_ArrayForEach(item, cJSON_GetObjectItem(json, "tokens")) {
        s->texts++, s->length = cJSON_GetArraySize(item);
        cJSON_ArrayForEach(token, item) s->tokens[at++] = token->valueint;
    }
    at = 0;
    cJSON_ArrayForEach(item, cJSON_GetObjectItem(json, "lengths"))
        s->lengths[at++] = item->valueint;
}

static void free_subject(subject *s) {
    free(s->pixels);
    family_free(&s->folder);
}

/* The sizes of the subject, and its weights. */
static void prepare_case(const subject *s, const sn_model *model, model_case *c) {
    *c = (model_case){.model = *model};
    for (size_t i = 0; i < s->folder.n_tensor; i++) {
        const sn_weight *w = &s->folder.tensor[i];
        c->param[c->n_param++] =
            (sn_arg_binding){w->name, SN_F32, w->rank, w->shape, s->folder.value[i]};
    }
    case_size(c, "T", s->length);
    case_size(c, "N", s->texts);
    case_size(c, "B", s->shape[0]);
}

/* Runs an entry on the images, the texts or both, if the reference has its result: by the session,
 * or without one by the evaluator. */
static void check_entry(subject *s, const sn_model *model, const char *entry, const char *output,
                        const char *wanted, bool images, bool texts) {
    sn_error err = {0};
    const cJSON *want = cJSON_GetObjectItem(s->folder.json, wanted);
    int64_t n = cJSON_GetArraySize(want), shape[8];
    if (!want) return;
    sn_arg_binding all[] = {{"pixels", SN_F32, 4, s->shape, s->pixels},
                            SN_BIND("tokens", SN_I32, s->tokens, s->texts, s->length),
                            SN_BIND("lengths", SN_I32, s->lengths, s->texts)};
    sn_arg_binding *in = images ? all : all + 1;
    int n_in = images + 2 * texts;
    float *got = malloc(sizeof *got * (size_t)n);
    double *exact = malloc(sizeof *exact * (size_t)n);
    assert_true(got && exact);
    if (s->session) {
        sn_arg_binding out = {output, SN_F32, 0, shape, got};
        out.rank = sn_output_shape(s->program, entry, in, n_in, output, shape, &err);
        need(out.rank > 0, &err);
        need(sn_run(s->session, entry, in, n_in, &out, 1, &err), &err);
    } else {
        model_case c;
        prepare_case(s, model, &c);
        if (!images) case_size(&c, "B", s->texts);
        case_evaluate(&c, entry, output, in, n_in, exact, n);
        for (int64_t i = 0; i < n; i++) got[i] = (float)exact[i];
    }
    char where[80];
    snprintf(where, sizeof where, "%s, level %d, %s", s->name, s->level, entry);
    family_compare(&s->folder, wanted, 0, n, got, where);
    free(got);
    free(exact);
}

static void check_entries(subject *s, const sn_model *model) {
    check_entry(s, model, "encode", "hidden", "hidden", true, false);
    check_entry(s, model, "embed_image", "embedding", "embedding_image", true, false);
    check_entry(s, model, "embed", "embedding", "embedding", false, true);
    check_entry(s, model, "forward", "logits", "logits", true, s->texts > 0);
}

static void check_compiled(subject *s, const sn_model *model, const sn_weights *w) {
    sn_error err = {0};
    sn_options how = {.level = s->level, .threads = 1};
    s->program = sn_compile(model->module, &how, &err);
    need(s->program, &err);
    s->session = sn_session_new(s->program, w, &err);
    need(s->session, &err);
    check_entries(s, model);
    sn_session_free(s->session);
    sn_program_free(s->program);
}

typedef struct vision_case {
    const char *name;
    bool compiled;
} vision_case;

static void run_case(void **state) {
    const vision_case *c = *state;
    subject s;
    sn_error err = {0};
    assert_int_equal(scratch_make(NULL), 0);
    read_subject(c->name, &s);
    family_write(scratch_dir, &s.folder, false);
    for (s.level = 4; s.level >= 0; s.level -= 4) {
        sn_model_dir *dir = sn_model_dir_open(scratch_dir, &err);
        need(dir, &err);
        sn_model model;
        sn_model_options o = {.entries = SN_FORWARD | SN_ENCODE | SN_EMBED,
                              .weights = dir->weights,
                              .image = s.shape[2]};
        need(sn_model_build(dir->config, &o, &model, &err), &err);
        need(sn_model_takes_all(&model, dir->weights, &err), &err);
        assert_null(sn_model_unknown_key(dir->config, 0));
        assert_int_equal(model.image, s.shape[2]);
        if (c->compiled)
            check_compiled(&s, &model, dir->weights);
        else if (s.level == 4)
            check_entries(&s, &model);
        sn_module_free(model.module);
        sn_model_dir_close(dir);
    }
    free_subject(&s);
    scratch_end(NULL);
}

/* ---- what does not fit ---- */

/* The message about a folder; "" if it fits. */
static void open_folder(const family_folder *f, int64_t image, sn_error *err) {
    *err = (sn_error){0};
    assert_int_equal(scratch_make(NULL), 0);
    family_write(scratch_dir, f, false);
    sn_model_dir *dir = sn_model_dir_open(scratch_dir, err);
    need(dir, err);
    sn_model model = {0};
    sn_model_options o = {.entries = SN_FORWARD, .weights = dir->weights, .image = image};
    if (sn_model_build(dir->config, &o, &model, err) &&
        sn_model_takes_all(&model, dir->weights, err)) {
        const char *unread = sn_model_unknown_key(dir->config, 0);
        if (unread) sn_fail(err, SN_ERR_FILE, "not read: %s", unread);
        for (uint32_t i = 0; !unread && i < sn_module_node_count(model.module); i++) {
            const sn_node *n = sn_module_node(model.module, i);
            const char *name = sn_attr_str(n, SN_A_name, "");
            const sn_weight *w = n->op == SN_OP_param ? sn_weights_find(dir->weights, name) : NULL;
            bool same = w && w->rank == n->rank;
            for (int a = 0; same && a < w->rank; a++) same = w->shape[a] == n->shape[a];
            if (n->op == SN_OP_param && !same) sn_fail(err, SN_ERR_SHAPE, "does not fit: %s", name);
        }
    }
    sn_module_free(model.module);
    sn_model_dir_close(dir);
    scratch_end(NULL);
}

static void wrong_configs(void **state) {
    (void)state;
    static const struct {
        const char *name, *key, *json, *why;
    } rows[] = {
        {"vit", "patch_size", "13", "patch_size"},
        {"vit", "patch_size", "6", "projection"},
        {"vit", "num_attention_heads", "3", "does not divide"},
        {"vit", "hidden_act", "\"tanh\"", "hidden_act"},
        {"vit", "image_size", "16", "position_embeddings"},
        {"vit", "qkv_bias", "false", "no parameters"},
        {"vit", "pooling_kind", "1", "not read: pooling_kind"},
        {"vit", "model_type", "\"deit\"", "no parameters"},
        {"deit", "model_type", "\"vit\"", "no parameters"},
        {"dinov2", "use_swiglu_ffn", "true", "no parameters"},
        {"dinov2", "mlp_ratio", "3", "mlp.fc1"},
        {"dinov2", "apply_layernorm", "false", "apply_layernorm"},
        {"clip", "projection_dim", "16", "projection"},
        {"clip", "text_config", "{\"hidden_size\": 15}", "text_config"},
        {"clip", "text_config", "{\"hiden_size\": 16}", "hiden_size"},
        {"clip", "text_config", "[1]", "text_config"},
        {"clip", "vision_config", "{\"quantization_config\": 1}", "quantization_config"},
        {"clip", "model_type", "\"siglip\"", "no parameters"},
        {"siglip", "vision_config", "{\"vision_use_head\": false}", "vision_use_head"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        subject s;
        sn_error err;
        read_subject(rows[i].name, &s);
        family_set_key(&s.folder, rows[i].key, rows[i].json);
        open_folder(&s.folder, 0, &err);
        if (!strstr(err.message, rows[i].why))
            fail_msg("%s, %s: wanted '%s' in: %s", rows[i].name, rows[i].key, rows[i].why,
                     err.message);
        free_subject(&s);
    }
}

static void wrong_tensors(void **state) {
    (void)state;
    static const char *const names[] = {"vit", "deit", "dinov2", "clip", "siglip"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        subject s;
        sn_error err;
        read_subject(names[i], &s);
        open_folder(&s.folder, 0, &err);
        assert_string_equal(err.message, "");
        sn_weight *last = &s.folder.tensor[s.folder.n_tensor - 1];
        s.folder.n_tensor--; /* one is missing */
        open_folder(&s.folder, 0, &err);
        assert_non_null(strstr(err.message, last->name));
        s.folder.n_tensor++;
        const char *name = last->name;
        last->name = "encoder.layer.0.other.weight"; /* one has another name */
        open_folder(&s.folder, 0, &err);
        assert_non_null(strstr(err.message, last->name));
        last->name = name;
        free_subject(&s);
    }
}

/* Images of a size that the preprocessor does not give: only dinov2 interpolates positions. */
static void other_sizes(void **state) {
    (void)state;
    subject s;
    sn_error err;
    read_subject("vit", &s);
    open_folder(&s.folder, 16, &err);
    assert_non_null(strstr(err.message, "16"));
    free_subject(&s);
}

/* Writes the folder of a case, for tests of programs. */
static int write_folder(const char *name, const char *dir) {
    subject s;
    read_subject(name, &s);
    family_write(dir, &s.folder, false);
    free_subject(&s);
    return 0;
}

/* [NAME]: only this case, compiled; in the default run every third case is. NAME DIR: writes its
 * folder. */
int main(int argc, char **argv) {
    if (argc > 2) return write_folder(argv[1], argv[2]);
    static vision_case cases[] = {
        {.name = "vit"},    {.name = "vit_bare"}, {.name = "deit"}, {.name = "dinov2"},
        {.name = "siglip"}, {.name = "deit_one"}, {.name = "clip"}, {.name = "dinov2_resized"}};
    static struct CMUnitTest tests[16];
    size_t n = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (argc > 1 && strcmp(argv[1], cases[i].name) != 0) continue;
        cases[i].compiled = argc > 1 || effort_takes(i + 2, 3);
        tests[n++] = (struct CMUnitTest){cases[i].name, run_case, NULL, NULL, &cases[i]};
    }
    if (argc < 2) {
        tests[n++] = (struct CMUnitTest)cmocka_unit_test(wrong_configs);
        tests[n++] = (struct CMUnitTest)cmocka_unit_test(wrong_tensors);
        tests[n++] = (struct CMUnitTest)cmocka_unit_test(other_sizes);
    }
    return n ? _cmocka_run_group_tests("vision", tests, n, cc_begin, cc_end) : 1;
}
