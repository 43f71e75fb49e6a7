/* BERT's heads [PH22 A9, section 3]: masked language model, classes, sentence embeddings: compiled
 * code against the evaluator, gradients, padding; classes of unequal texts. With SN_DATA_DIR,
 * MiniLM's published sentence embedding and similarities. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "tests/support/model_case.h"
#include "tests/support/scratch.h"
#include "model/encoder.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BERT(more)                                                                                 \
    "{\"model_type\": \"bert\", \"vocab_size\": 29, \"max_position_embeddings\": 16, "             \
    "\"hidden_size\": 12, \"intermediate_size\": 20, \"num_hidden_layers\": 1, "                   \
    "\"num_attention_heads\": 3" more "}"

enum { B = 2, T = 7, V = 29, D = 12, LABELS = 4 };

typedef struct batch {
    int32_t tokens[B * T], types[B * T], lengths[B], targets[B * T];
    sn_arg_binding in[4];
    int64_t shape[1], whole[2];
} batch;

static void fill_batch(batch *b, bool classes) {
    fill_tokens(b->tokens, B * T, V);
    b->lengths[0] = T, b->lengths[1] = 4;
    for (int i = 0; i < B * T; i++) {
        b->types[i] = i % 2;
        b->targets[i] = classes ? i % LABELS : i % 3 ? -1 : i; /* -1: not masked, not scored */
    }
    b->shape[0] = b->whole[0] = B, b->whole[1] = T;
    b->in[0] = (sn_arg_binding){"tokens", SN_I32, 2, b->whole, b->tokens};
    b->in[1] = (sn_arg_binding){"types", SN_I32, 2, b->whole, b->types};
    b->in[2] = (sn_arg_binding){"lengths", SN_I32, 1, b->shape, b->lengths};
    b->in[3] = (sn_arg_binding){"targets", SN_I32, classes ? 1 : 2, b->whole, b->targets};
}

/* Losses of both heads: value and gradient. Positions that are not masked lose nothing. */
static void losses(void **state) {
    (void)state;
    for (int classes = 0; classes < 2; classes++) {
        model_case c;
        batch b;
        double loss[B * T];
        fill_batch(&b, classes);
        case_open(&c, classes ? BERT(", \"num_labels\": 4") : BERT(""), SN_LOSS);
        assert_int_equal(c.model.labels, classes ? LABELS : 0);
        case_size(&c, "B", B);
        case_size(&c, "T", T);
        int n = classes ? B : B * T;
        case_check(&c, 1, "loss", "loss", b.in, 4, n);
        case_evaluate(&c, "loss", "loss", b.in, 4, loss, n);
        for (int i = 0; i < n; i++) assert_true(b.targets[i] < 0 ? loss[i] == 0 : loss[i] > 0);
        case_check_grad(&c, "loss", "loss", b.in, 4);
        case_close(&c);
    }
}

/* Length 1; the mean over the tokens inside: padding changes not a bit. */
static void embeddings(void **state) {
    (void)state;
    model_case c;
    batch b;
    sn_program *p;
    sn_error err = {0};
    float one[B][D], two[B][D], hidden[B][T][D];
    fill_batch(&b, false);
    case_open(&c, BERT(""), SN_EMBED | SN_ENCODE);
    sn_session *s = case_compile(&c, 4, NULL, &p);
    sn_arg_binding out = SN_BIND("embedding", SN_F32, one, B, D),
                   all = SN_BIND("hidden", SN_F32, hidden, B, T, D);
    need(sn_run(s, "embed", b.in, 3, &out, 1, &err), &err);
    need(sn_run(s, "encode", b.in, 3, &all, 1, &err), &err);
    for (int i = 0; i < B; i++) {
        double mean[D] = {0}, square = 0;
        for (int t = 0; t < b.lengths[i]; t++)
            for (int k = 0; k < D; k++) mean[k] += hidden[i][t][k] / b.lengths[i];
        for (int k = 0; k < D; k++) square += mean[k] * mean[k];
        for (int k = 0; k < D; k++) assert_true(fabs(one[i][k] - mean[k] / sqrt(square)) < 1e-5);
    }
    for (int t = b.lengths[1]; t < T; t++) b.tokens[T + t] ^= 1;
    out.data = two;
    need(sn_run(s, "embed", b.in, 3, &out, 1, &err), &err);
    assert_memory_equal(one, two, sizeof one);
    sn_session_free(s);
    sn_program_free(p);
    case_close(&c);
}

/* Weights named as in the first published BERTs, "bert." in front, gamma and beta: the
 * same model. */
static void published_names(void **state) {
    (void)state;
    model_case c;
    batch b;
    sn_program *p;
    sn_error err = {0};
    float one[B][T][V], two[B][T][V];
    static sn_weight list[CASE_PARAM];
    static char names[CASE_PARAM][96];
    const char *path = scratch_path("model.safetensors");
    fill_batch(&b, false);
    case_open(&c, BERT(""), SN_FORWARD);
    sn_session *s = case_compile(&c, 4, NULL, &p);
    sn_arg_binding out = SN_BIND("logits", SN_F32, one, B, T, V);
    need(sn_run(s, "forward", b.in, 3, &out, 1, &err), &err);
    sn_session_free(s);
    sn_program_free(p);
    for (int i = 0; i < c.n_param; i++) {
        const sn_arg_binding *a = &c.param[i];
        bool head = !strncmp(a->name, "cls.", 4);
        const char *norm = strstr(a->name, "LayerNorm.");
        size_t keep = norm ? (size_t)(norm - a->name) + 10 : strlen(a->name);
        const char *last = !norm ? "" : strcmp(norm + 10, "bias") ? "gamma" : "beta";
        snprintf(names[i], sizeof names[i], "%s%.*s%s", head ? "" : "bert.", (int)keep, a->name,
                 last);
        list[i] = (sn_weight){.name = names[i], .dtype = SN_F32, .rank = a->rank, .data = a->data};
        for (int k = 0; k < a->rank; k++) list[i].shape[k] = a->shape[k];
        list[i].bytes = (size_t)sn_weight_elements(&list[i]) * sizeof(float);
    }
    need(sn_weights_save(path, list, (size_t)c.n_param, NULL, 0, &err), &err);
    sn_weights *w = sn_weights_open(path, &err);
    need(w != NULL, &err);
    sn_config *json = sn_config_parse("test", BERT(""), strlen(BERT("")), &err);
    sn_model m;
    need(sn_model_build(json, &(sn_model_options){.entries = SN_FORWARD, .weights = w}, &m, &err),
         &err);
    need((p = sn_compile(m.module, NULL, &err)) != NULL, &err);
    need((s = sn_session_new(p, w, &err)) != NULL, &err);
    out.data = two;
    need(sn_run(s, "forward", b.in, 3, &out, 1, &err), &err);
    assert_memory_equal(one, two, sizeof one);
    sn_session_free(s);
    sn_program_free(p);
    sn_module_free(m.module);
    sn_config_free(json);
    sn_weights_close(w);
    case_close(&c);
}

/* MiniLM: "hello world" as upstream publishes it, to what f16 weights allow; likeness in order. */
static void minilm_sentences(void **state) {
    (void)state;
    static const float hello[] = {-0.034478f, 0.03102f, 0.00673f, 0.02611f, -0.039362f};
    static const char *const texts[] = {"hello world", "A man is riding a white horse.",
                                        "Someone rides a horse.", "Attention is all you need."};
    const char *data = getenv("SN_DATA_DIR");
    char path[700];
    sn_error err = {0};
    if (!data) {
        print_message("SN_DATA_DIR is not set: MiniLM is not compared\n");
        skip();
    }
    snprintf(path, sizeof path, "%s/encoder/minilm-l6", data);
    open_options o = {.path = path,
                      .entries = SN_EMBED,
                      .needs = "embed",
                      .any_model = true,
                      .compile = sn_options_default()};
    open_model *m = lm_open(&o, &err);
    need(m != NULL, &err);
    sn_ids ids[4] = {{0}};
    float *x;
    int64_t width;
    for (int i = 0; i < 4; i++)
        need(encoder_read(m, texts[i], strlen(texts[i]), &ids[i], &err), &err);
    need(encoder_run(m, "embed", "embedding", ids, NULL, 4, &x, &width, NULL, &err), &err);
    assert_int_equal(width, 384);
    for (int i = 0; i < 5; i++) assert_true(fabsf(x[i] - hello[i]) < 3e-4f);
    double alike[4] = {0};
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < width; k++) alike[i] += (double)x[width + k] * x[i * width + k];
    assert_true(fabs(alike[1] - 1) < 1e-5 && alike[2] > 0.6);
    assert_true(alike[0] < 0.3 && alike[3] < 0.3);
    for (int i = 0; i < 4; i++) sn_ids_free(&ids[i]);
    free(x);
    model_close(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(losses), cmocka_unit_test(embeddings),
                                       cmocka_unit_test(published_names),
                                       cmocka_unit_test(minilm_sentences)};
    return cmocka_run_group_tests(tests, scratch_make, scratch_end);
}
