/* BERT [PH22 A9] and the encoder-decoder [PH22 A8]: compiled code at every level against the
 * reference evaluator, padding that changes nothing, masks that hide the future. With SN_DATA_DIR,
 * MiniLM against its published hidden states. */
#include "frontend/models.h"
#include "ir/ir.h"
#include "runtime/model_dir.h"
#include "runtime/npy.h"
#include "tests/support/effort.h"
#include "tests/support/noise.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tests/support/text.h"

enum { B = 2, S = 7, T = 5, V = 29, D = 24, MAX_PARAM = 128 };

static const char bert_config[] =
    "{\"model_type\": \"bert\", \"vocab_size\": 29, \"max_position_embeddings\": 16, "
    "\"hidden_size\": 24, "
    "\"intermediate_size\": 40, \"num_hidden_layers\": 1, \"num_attention_heads\": 3}";
static const char edt_config[] =
    "{\"model_type\": \"edt\", \"vocab_size\": 29, \"max_position_embeddings\": 16, \"d_model\": "
    "24, "
    "\"ffn_dim\": 40, \"encoder_layers\": 1, \"decoder_layers\": 1, \"attention_heads\": 3%s}";

typedef struct fixture {
    sn_model model;
    sn_arg_binding param[MAX_PARAM];
    int n_param;
} fixture;

static void need(bool ok, const sn_error *err) {
    if (!ok) fail_msg("%s", err->message);
}

static void open_model(fixture *f, const char *text) {
    sn_error err = {0};
    sn_config *c = sn_config_parse("test", text, strlen(text), &err);
    need(c != NULL, &err);
    need(sn_model_build(c, &(sn_model_options){.entries = SN_ENCODE | SN_FORWARD}, &f->model, &err),
         &err);
    sn_config_free(c);
    f->n_param = 0;
    uint32_t seed = 1;
    for (uint32_t i = 0; i < sn_module_node_count(f->model.module); i++) {
        const sn_node *n = sn_module_node(f->model.module, i);
        if (n->op != SN_OP_param) continue;
        size_t count = 1;
        for (int a = 0; a < n->rank; a++) count *= (size_t)n->shape[a];
        float *data = malloc(count * sizeof *data);
        assert_non_null(data);
        for (size_t j = 0; j < count; j++) data[j] = noise_next(&seed) * 0.3f;
        assert_true(f->n_param < MAX_PARAM);
        f->param[f->n_param++] =
            (sn_arg_binding){sn_attr_str(n, SN_A_name, ""), SN_F32, n->rank, n->shape, data};
    }
}

static void close_model(fixture *f) {
    for (int i = 0; i < f->n_param; i++) free(f->param[i].data);
    sn_module_free(f->model.module);
}

static size_t bytes_of(const sn_arg_binding *a) {
    size_t n = sn_dtype_size(a->dtype);
    for (int i = 0; i < a->rank; i++) n *= (size_t)a->shape[i];
    return n;
}

static void evaluate(fixture *f, const char *entry, const sn_arg_binding *in, int n_in, double *out,
                     int64_t n) {
    sn_module *m = f->model.module;
    int64_t symbol[16] = {0};
    for (int i = 0; i < sn_symbol_count(m); i++) {
        const char *name = sn_symbol_at(m, i)->name;
        symbol[i] = !strcmp(name, "B") ? B : !strcmp(name, "S") ? S : T;
    }
    sn_eval *ev = sn_eval_new(m, symbol);
    assert_non_null(ev);
    for (int i = 0; i < f->n_param; i++)
        assert_true(sn_eval_bind(ev, f->param[i].name, f->param[i].data, bytes_of(&f->param[i])));
    for (int i = 0; i < n_in; i++)
        assert_true(sn_eval_bind(ev, in[i].name, in[i].data, bytes_of(&in[i])));
    const sn_value *v = sn_eval_node(ev, sn_entry_get(m, entry)->output[0].node);
    need(v != NULL, sn_module_error(m));
    assert_int_equal(v->n, n);
    memcpy(out, v->data, sizeof *out * (size_t)n);
    sn_eval_free(ev);
}

static sn_session *compile(fixture *f, int level, sn_program **p) {
    sn_error err = {0};
    sn_options o = sn_options_default();
    o.level = level;
    *p = sn_compile(f->model.module, &o, &err);
    need(*p != NULL, &err);
    sn_session *s = sn_session_new_arrays(*p, f->param, f->n_param, &err);
    need(s != NULL, &err);
    return s;
}

static void fill_tokens(int32_t *t, int n) {
    for (int i = 0; i < n; i++) t[i] = (i * 11 + 3) % V;
}

/* What an entry must show: `padded` is the input that has padding, [B, n_padded]; the result has rows
 * [B, n_row, width]. */
typedef struct entry_case {
    const char *entry, *output;
    int n_in, n_row, width;
} entry_case;

/* Against the evaluator; then with other padding: rows inside the lengths stay the same, bit for
 * bit. */
static void check_entry(fixture *f, sn_session *s, const entry_case *e, sn_arg_binding *in,
                        int32_t *padded, const int32_t *lengths, int n_padded) {
    int64_t n_item = (int64_t)e->n_row * e->width, n = B * n_item;
    double *want = malloc(sizeof *want * (size_t)n);
    float *got = malloc(sizeof *got * (size_t)n), *again = malloc(sizeof *again * (size_t)n);
    assert_true(want && got && again);
    sn_error err = {0};
    evaluate(f, e->entry, in, e->n_in, want, n);
    sn_arg_binding out = SN_BIND(e->output, SN_F32, got, B, e->n_row, e->width);
    need(sn_run(s, e->entry, in, e->n_in, &out, 1, &err), &err);
    for (int64_t i = 0; i < n; i++)
        if (!(fabs(got[i] - want[i]) <= 2e-4 * (1 + fabs(want[i]))))
            fail_msg("%s: element %lld is %g, not %g", e->entry, (long long)i, got[i], want[i]);
    for (int b = 0; b < B; b++)
        for (int t = lengths[b]; t < n_padded; t++) padded[b * n_padded + t] ^= 1;
    out.data = again;
    need(sn_run(s, e->entry, in, e->n_in, &out, 1, &err), &err);
    for (int b = 0; b < B; b++) {
        int rows = e->n_row == n_padded ? lengths[b] : e->n_row;
        assert_memory_equal(got + b * n_item, again + b * n_item,
                            sizeof *got * (size_t)(rows * e->width));
    }
    for (int b = 0; b < B; b++)
        for (int t = lengths[b]; t < n_padded; t++) padded[b * n_padded + t] ^= 1;
    free(want);
    free(got);
    free(again);
}

/* Both entries at a level in the default run, at three in full ones. */
static void check_levels(fixture *f, int level, const entry_case *e, sn_arg_binding *in,
                         int32_t *padded, const int32_t *lengths, int n_padded) {
    for (int l = 0; l <= 4; l += 2) {
        if (l != level && !effort_is_long()) continue;
        sn_program *p;
        sn_session *s = compile(f, l, &p);
        for (int i = 0; i < 2; i++) check_entry(f, s, &e[i], in, padded, lengths, n_padded);
        sn_session_free(s);
        sn_program_free(p);
    }
}

static void a9_bert(void **state) {
    (void)state;
    fixture f;
    open_model(&f, bert_config);
    int32_t tokens[B * T], types[B * T], lengths[B] = {T, 3};
    fill_tokens(tokens, B * T);
    for (int i = 0; i < B * T; i++) types[i] = i % 2;
    sn_arg_binding in[] = {SN_BIND("tokens", SN_I32, tokens, B, T),
                           SN_BIND("types", SN_I32, types, B, T),
                           SN_BIND("lengths", SN_I32, lengths, B)};
    const entry_case entries[] = {{"encode", "hidden", 3, T, D}, {"forward", "logits", 3, T, V}};
    check_levels(&f, 4, entries, in, tokens, lengths, T);
    close_model(&f);
}

static void a8_encoder_decoder(void **state) {
    (void)state;
    static const char *const variants[] = {
        "", ", \"positions\": \"sinusoid\", \"tie_word_embeddings\": false"};
    for (int v = 0; v < 2; v++) {
        fixture f;
        char text[512];
        snprintf(text, sizeof text, edt_config, variants[v]);
        open_model(&f, text);
        int32_t source[B * S], tokens[B * T], lengths[B] = {4, S};
        fill_tokens(source, B * S);
        fill_tokens(tokens, B * T);
        sn_arg_binding in[] = {SN_BIND("source", SN_I32, source, B, S),
                               SN_BIND("lengths", SN_I32, lengths, B),
                               SN_BIND("tokens", SN_I32, tokens, B, T)};
        const entry_case entries[] = {{"encode", "hidden", 2, S, D},
                                      {"forward", "logits", 3, T, V}};
        check_levels(&f, v ? 0 : 4, entries, in, source, lengths, S);
        close_model(&f);
    }
}

/* P[t] depends on x[1 : t] only [PH22 A8 line 14]. */
static void decoder_hides_the_future(void **state) {
    (void)state;
    fixture f;
    char text[512];
    snprintf(text, sizeof text, edt_config, "");
    open_model(&f, text);
    sn_program *p;
    sn_session *s = compile(&f, 4, &p);
    sn_error err = {0};
    int32_t source[S], tokens[T], lengths[1] = {S};
    float one[T * V], two[T * V];
    fill_tokens(source, S);
    fill_tokens(tokens, T);
    sn_arg_binding in[] = {SN_BIND("source", SN_I32, source, 1, S),
                           SN_BIND("lengths", SN_I32, lengths, 1),
                           SN_BIND("tokens", SN_I32, tokens, 1, T)};
    sn_arg_binding out = SN_BIND("logits", SN_F32, one, 1, T, V);
    need(sn_run(s, "forward", in, 3, &out, 1, &err), &err);
    tokens[T - 2] ^= 1;
    out.data = two;
    need(sn_run(s, "forward", in, 3, &out, 1, &err), &err);
    assert_memory_equal(one, two, sizeof(float) * (T - 2) * V);
    assert_memory_not_equal(one + (T - 2) * V, two + (T - 2) * V, sizeof(float) * V);
    sn_session_free(s);
    sn_program_free(p);
    close_model(&f);
}

/* Sentences s0 to s2 of the reference, hidden states within 2e-3 (weights in f16). */
static void minilm(void **state) {
    (void)state;
    const char *data = getenv("SN_DATA_DIR");
    char path[700];
    sn_error err = {0};
    if (!data) {
        print_message("SN_DATA_DIR is not set: MiniLM is not compared\n");
        skip();
    }
    snprintf(path, sizeof path, "%s/encoder/minilm-l6", data);
    sn_model_dir *d = sn_model_dir_open(path, &err);
    need(d != NULL, &err);
    sn_model model;
    need(sn_model_build(d->config, &(sn_model_options){.entries = SN_ENCODE, .weights = d->weights},
                        &model, &err),
         &err);
    sn_program *p = sn_compile(model.module, NULL, &err);
    need(p != NULL, &err);
    sn_session *s = sn_session_new(p, d->weights, &err);
    need(s != NULL, &err);
    for (int i = 0; i < 3; i++) {
        sn_npy ids, hidden;
        snprintf(path, sizeof path, "%s/encoder/minilm-l6/reference/s%d_ids.npy", data, i);
        need(sn_npy_open(path, &ids, &err), &err);
        snprintf(path, sizeof path, "%s/encoder/minilm-l6/reference/s%d_hidden.npy", data, i);
        need(sn_npy_open(path, &hidden, &err), &err);
        int64_t n = hidden.shape[hidden.rank - 2], width = hidden.shape[hidden.rank - 1];
        int32_t tokens[64], types[64] = {0}, lengths[1] = {(int32_t)n};
        for (int64_t t = 0; t < n; t++)
            tokens[t] = ids.dtype == SN_I64 ? (int32_t)((const int64_t *)ids.data)[t]
                                            : ((const int32_t *)ids.data)[t];
        float *got = malloc(sizeof *got * (size_t)(n * width));
        assert_non_null(got);
        sn_arg_binding in[] = {SN_BIND("tokens", SN_I32, tokens, 1, n),
                               SN_BIND("types", SN_I32, types, 1, n),
                               SN_BIND("lengths", SN_I32, lengths, 1)};
        sn_arg_binding out = SN_BIND("hidden", SN_F32, got, 1, n, width);
        need(sn_run(s, "encode", in, 3, &out, 1, &err), &err);
        for (int64_t j = 0; j < n * width; j++)
            assert_true(fabsf(got[j] - ((const float *)hidden.data)[j]) <= 2e-3f);
        free(got);
        sn_npy_free(&ids);
        sn_npy_free(&hidden);
    }
    sn_session_free(s);
    sn_program_free(p);
    sn_module_free(model.module);
    sn_model_dir_close(d);
}

/* A value that a config leaves out is that of the published config class of its family. */
static void left_out(void **state) {
    (void)state;
    static const struct {
        const char *family, *key, *value;
    } rows[] = {{"bert", "layer_norm_eps", "1e-12"},      {"roberta", "layer_norm_eps", "1e-12"},
                {"roberta", "pad_token_id", "1"},         {"camembert", "hidden_act", "\"gelu\""},
                {"xlm-roberta", "type_vocab_size", "2"},  {"electra", "layer_norm_eps", "1e-12"},
                {"electra", "embedding_size", "128"},     {"albert", "layer_norm_eps", "1e-12"},
                {"albert", "hidden_act", "\"gelu_new\""}, {"deberta-v2", "layer_norm_eps", "1e-7"},
                {"deberta-v2", "type_vocab_size", "0"},   {"llama", "rms_norm_eps", "1e-6"},
                {"llama", "rope_theta", "10000"},         {"mistral", "rms_norm_eps", "1e-6"},
                {"gpt_neox", "layer_norm_eps", "1e-5"},   {"gpt_neox", "hidden_act", "\"gelu\""},
                {"phi", "layer_norm_eps", "1e-5"},        {"stablelm", "layer_norm_eps", "1e-5"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *text[2];
        for (int given = 0; given < 2; given++) {
            char config[512];
            sn_error err = {0};
            sn_model model;
            int n = snprintf(config, sizeof config,
                             "{\"model_type\": \"%s\", \"vocab_size\": 29, "
                             "\"max_position_embeddings\": 16, \"hidden_size\": 24, "
                             "\"intermediate_size\": 40, \"num_hidden_layers\": 1, "
                             "\"num_attention_heads\": 3",
                             rows[i].family);
            if (given)
                n += snprintf(config + n, sizeof config - (size_t)n, ", \"%s\": %s", rows[i].key,
                              rows[i].value);
            snprintf(config + n, sizeof config - (size_t)n, "}");
            sn_config *c = sn_config_parse("config.json", config, strlen(config), &err);
            need(c && sn_model_build(c, NULL, &model, &err), &err);
            text[given] = module_text(model.module);
            sn_module_free(model.module);
            sn_config_free(c);
        }
        if (strcmp(text[0], text[1]))
            fail_msg("%s: %s is not %s", rows[i].family, rows[i].key, rows[i].value);
        free(text[0]);
        free(text[1]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a9_bert),
                                       cmocka_unit_test(a8_encoder_decoder),
                                       cmocka_unit_test(decoder_hides_the_future),
                                       cmocka_unit_test(minilm), cmocka_unit_test(left_out)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
