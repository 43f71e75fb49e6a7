/* Ten AdamW steps of GPT-2, Gopher, BERT and the encoder-decoder against PyTorch's (made by
 * tests/data/training/make_refs.py): losses within 1e-4 of each, every gradient of the first step
 * within 1e-4 of its length, as compiled code at levels 4 and 0. */
#include "frontend/models.h"
#include "runtime/config.h"
#include "runtime/str.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 10, MAX_IN = 8 };

static void need(bool ok, const sn_error *err) {
    if (!ok) fail_msg("%s", err->message);
}

/* As start() of make_refs.py: a hash of the name and of the place. */
static void fill_start(const sn_weight *w) {
    float *out = (float *)(uintptr_t)w->data;
    uint32_t h = 2166136261u;
    for (const char *c = w->name; *c; c++) h = (h ^ (unsigned char)*c) * 16777619u;
    bool gain = w->rank == 1 && sn_ends_with(w->name, "weight");
    for (size_t i = 0; i < w->bytes / sizeof *out; i++) {
        uint32_t x = h + (uint32_t)i * 2654435761u;
        for (int k = 0; k < 2; k++) x = (x ^ x >> 16) * 0x45d9f3bu;
        x ^= x >> 16;
        double u = (x >> 8) * 0x1p-24 - 0.5;
        out[i] = (float)(u * (w->rank == 1 ? 0.2 : 0.5) + gain);
    }
}

/* Gradients can be read between the parts of a step: the batch is run as both of two. */
static sn_training training(void) {
    sn_training t = sn_training_default();
    t.optimizer.decay = 0.1, t.optimizer.max_norm = 1;
    t.schedule.peak = 1e-3;
    t.accumulate = 2;
    return t;
}

typedef struct subject {
    const char *name;
    sn_weights *file;
    sn_model model;
    sn_parameters start;
    sn_program *program;
    sn_session *session;
    sn_arg_binding in[MAX_IN];
    int n_in, level;
} subject;

static void open_subject(subject *s) {
    sn_error err = {0};
    char path[512];
    snprintf(path, sizeof path, SN_SOURCE_DIR "/tests/data/training/%s.safetensors", s->name);
    s->file = sn_weights_open(path, &err);
    need(s->file != NULL, &err);
    const char *text = sn_weights_meta(s->file, "config");
    assert_non_null(text);
    sn_config *c = sn_config_parse(s->name, text, strlen(text), &err);
    need(c != NULL, &err);
    sn_training t = training();
    sn_model_options o = {.entries = SN_TRAIN, .training = &t};
    need(sn_model_build(c, &o, &s->model, &err), &err);
    sn_config_free(c);
    sn_options how = {.level = s->level, .threads = 2};
    s->program = sn_compile(s->model.module, &how, &err);
    need(s->program != NULL, &err);
    need(sn_parameters_draw(s->model.module, s->name, 1, 1, &s->start, &err), &err);
    sn_arg_binding *p = calloc(s->start.count, sizeof *p);
    assert_non_null(p);
    for (size_t i = 0; i < s->start.count; i++) {
        const sn_weight *w = &s->start.weight[i];
        fill_start(w);
        p[i] = (sn_arg_binding){w->name, w->dtype, w->rank, w->shape, (void *)(uintptr_t)w->data};
    }
    s->session = sn_session_new_arrays(s->program, p, (int)s->start.count, &err);
    free(p);
    need(s->session != NULL, &err);
    for (size_t i = 0; i < sn_weights_count(s->file); i++) {
        const sn_weight *w = sn_weights_at(s->file, i);
        if (strncmp(w->name, "in.", 3) != 0) continue;
        assert_true(s->n_in < MAX_IN);
        s->in[s->n_in++] =
            (sn_arg_binding){w->name + 3, w->dtype, w->rank, w->shape, (void *)(uintptr_t)w->data};
    }
}

static void close_subject(subject *s) {
    sn_session_free(s->session);
    sn_program_free(s->program);
    sn_parameters_free(&s->start);
    sn_module_free(s->model.module);
    sn_weights_close(s->file);
}

static float half_step(subject *s) {
    float loss = 0;
    sn_error err = {0};
    sn_arg_binding out = {"loss", SN_F32, 0, NULL, &loss};
    need(sn_run(s->session, "accumulate", s->in, s->n_in, &out, 1, &err), &err);
    return loss;
}

/* The state holds half the gradient. */
static void check_gradient(const subject *s, const sn_weight *w) {
    char name[256];
    sn_error err = {0};
    snprintf(name, sizeof name, "grad.%s", w->name);
    const sn_weight *want = sn_weights_find(s->file, name);
    if (!want || want->bytes != w->bytes) fail_msg("%s: no reference for '%s'", s->name, name);
    float *have = malloc(w->bytes);
    assert_non_null(have);
    snprintf(name, sizeof name, "gradient.%s", w->name);
    need(sn_state_read(s->session, name, have, w->bytes, &err), &err);
    double away = 0, length = 0;
    for (size_t i = 0; i < w->bytes / sizeof *have; i++) {
        double g = ((const float *)want->data)[i], d = 2.0 * have[i] - g;
        away += d * d, length += g * g;
    }
    free(have);
    /* gradients that are zero but for rounding (of key biases) are compared as such */
    if (!(sqrt(away) <= 1e-4 * sqrt(length) + 1e-6))
        fail_msg("%s, level %d: the gradient of '%s' is %.3g away from PyTorch's of length %.3g",
                 s->name, s->level, w->name, sqrt(away), sqrt(length));
}

static void check_model(const char *name, int level) {
    subject s = {.name = name, .level = level};
    open_subject(&s);
    const sn_weight *losses = sn_weights_find(s.file, "losses");
    assert_true(losses && losses->shape[0] == STEPS);
    for (int step = 0; step < STEPS; step++) {
        float want = ((const float *)losses->data)[step], loss = half_step(&s);
        if (!(fabsf(loss - want) <= 1e-4f * want))
            fail_msg("%s, level %d: loss %.7g in step %d, PyTorch has %.7g", name, level, loss,
                     step + 1, want);
        if (step == 0)
            for (size_t i = 0; i < s.start.count; i++) check_gradient(&s, &s.start.weight[i]);
        assert_true(half_step(&s) == loss);
        sn_error err = {0};
        need(sn_run(s.session, "train_step", NULL, 0, NULL, 0, &err), &err);
    }
    close_subject(&s);
}

static void test_gpt2(void **unused) {
    (void)unused;
    check_model("gpt2", 4);
}

static void test_gpt2_unfused(void **unused) {
    (void)unused;
    check_model("gpt2", 0);
}

static void test_gopher(void **unused) {
    (void)unused;
    check_model("gopher", 4);
}

static void test_bert(void **unused) {
    (void)unused;
    check_model("bert", 4);
}

static void test_encoder_decoder(void **unused) {
    (void)unused;
    check_model("edt", 4);
}

static void test_others_unfused(void **unused) {
    (void)unused;
    check_model("gopher", 0), check_model("bert", 0), check_model("edt", 0);
}

/* "others": the two that the default run leaves out, and level 0, whose many kernels take long to
 * make. */
int main(int argc, char **argv) {
    const struct CMUnitTest usual[] = {
        cmocka_unit_test(test_gpt2),
        cmocka_unit_test(test_encoder_decoder),
    };
    const struct CMUnitTest long_ones[] = {
        cmocka_unit_test(test_gopher),
        cmocka_unit_test(test_bert),
        cmocka_unit_test(test_gpt2_unfused),
        cmocka_unit_test(test_others_unfused),
    };
    bool others = argc > 1 && !strcmp(argv[1], "others");
    return others ? cmocka_run_group_tests(long_ones, NULL, NULL)
                  : cmocka_run_group_tests(usual, NULL, NULL);
}
