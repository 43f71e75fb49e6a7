/* test_sequences.c: several sequences of different lengths at once (model/lm.h) give the tokens and
 * the logits that each gives alone: for the families of tests/data/families (in the default run a
 * sample) and Sinter's own decoders, at levels 4 and 0. */
#include "model/lm.h"
#include "frontend/models.h"
#include "ir/ir.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "tests/support/compile_case.h"
#include "tests/support/effort.h"
#include "tests/e2e/family_folder.h"
#include "tests/support/model_case.h"
#include "tests/support/scratch.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXTS = 5, ROWS = 3, MAX_TOKENS = 64 };

typedef struct text {
    int32_t id[MAX_TOKENS];
    int64_t n;
    float logits[MAX_TOKENS]; /* the largest of each step */
} text;

static sn_lm_request request(int i, int64_t vocab, int64_t context) {
    static int32_t prompt[TEXTS][8];
    for (int k = 0; k < 8; k++) prompt[i][k] = (int32_t)((3 * i + 5 * k + 1) % vocab);
    int64_t tokens = 3 + 4 * (i % 3), n = 1 + (i * 3) % 7;
    if (n + tokens > context) tokens = context - n;
    return (sn_lm_request){.ids = prompt[i],
                           .n_ids = n,
                           .tokens = tokens,
                           .ignore_eos = true,
                           .greedy = i % 2 == 0,
                           .seed = (uint64_t)i};
}

static bool next(sn_lm_sequence *s, text *out, int64_t vocab, sn_error *err) {
    const float *logits = sn_lm_logits(s, err);
    if (!logits) return false;
    out->logits[out->n] = logits[sn_sample_largest(logits, (size_t)vocab)];
    out->id[out->n] = sn_lm_next_token(s, err);
    return out->id[out->n++] >= 0;
}

static sn_lm *open_lm(int level, int rows) {
    sn_error err = {0};
    sn_options how = {.level = level, .threads = 2};
    sn_lm *m = sn_lm_open(scratch_dir, &(sn_lm_options){.sequences = rows, .compile = &how}, &err);
    if (!m) fail_msg("%s", err.message);
    return m;
}

/* Texts begin as rows become free. */
static void run_together(sn_lm *m, text *got) {
    sn_error err = {0};
    sn_lm_sequence *s[TEXTS] = {NULL};
    int64_t vocab = sn_lm_vocab(m);
    for (int begun = 0, done = 0, live = 0; done < TEXTS && !err.code;) {
        for (; begun < TEXTS && live < sn_lm_rows(m); begun++, live++) {
            sn_lm_request r = request(begun, vocab, sn_lm_context(m));
            s[begun] = sn_lm_begin(m, &r, &err);
            need(s[begun] != NULL, &err);
        }
        for (int i = 0; i < TEXTS; i++)
            if (s[i] && !next(s[i], &got[i], vocab, &err)) {
                sn_lm_end(s[i]);
                s[i] = NULL;
                live--, done++;
            }
    }
    need(err.code == SN_OK, &err);
}

/* Recurrences and latents. */
static const char *const rounding[] = {
    "qwen3_next", "qwen3_5",        "qwen3_5_moe",          "kimi_linear",
    "bamba",      "granite_hybrid", "granite_hybrid_dense", "jamba",
    "mamba",      "mamba2",         "deepseek_v3",          "deepseek_v32"};
enum { ROUNDING = sizeof rounding / sizeof *rounding };

static bool rounds_otherwise(const char *name) {
    for (size_t i = 0; i < ROUNDING; i++)
        if (!strcmp(name, rounding[i])) return true;
    return false;
}

/* The folder in scratch_dir. */
static void check_folder(const char *name, int level) {
    static text want[TEXTS], got[TEXTS];
    memset(want, 0, sizeof want);
    memset(got, 0, sizeof got);
    sn_lm *alone = open_lm(level, 1), *together = open_lm(level, ROWS);
    run_together(alone, want);
    run_together(together, got);
    for (int i = 0; i < TEXTS; i++) {
        assert_true(want[i].n > 1);
        if (got[i].n != want[i].n || memcmp(got[i].id, want[i].id, sizeof want[i].id))
            fail_msg("%s, level %d: text %d differs", name, level, i);
        /* unfused sums over keys go in vectors from the first to the longest row's last; models
         * with recurrences or latents round otherwise for another number of rows (measured: 1.1e-6) */
        double within = level && !rounds_otherwise(name) ? 0 : 1e-5;
        for (int64_t t = 0; t < want[i].n; t++)
            if (!(fabs(got[i].logits[t] - want[i].logits[t]) <=
                  within * (1 + fabs(want[i].logits[t]))))
                fail_msg("%s, level %d: the logits of text %d differ", name, level, i);
    }
    /* a search with one beam is the greedy text */
    sn_error err = {0};
    sn_ids out = {0};
    sn_lm_request r = request(0, sn_lm_vocab(alone), sn_lm_context(alone));
    sn_lm_search how = {.beams = 1};
    need(sn_lm_search_beams(together, &r, &how, &out, NULL, &err), &err);
    assert_memory_equal(out.data, want[0].id, out.count * sizeof *out.data);
    sn_ids_free(&out);
    sn_lm_close(alone);
    sn_lm_close(together);
}

static void run_family(void **state) {
    const char *name = *state;
    family_folder f;
    assert_int_equal(scratch_make(NULL), 0);
    family_read("families", name, SN_F32, &f);
    family_write(scratch_dir, &f, false);
    family_free(&f);
    check_folder(name, 4);
    if (effort_is_long()) check_folder(name, 0);
    scratch_end(NULL);
}

/* A folder with random weights for a config. */
static void write_random(const char *config) {
    model_case c;
    sn_weight w[CASE_PARAM];
    sn_error err = {0};
    case_open(&c, config, SN_FORWARD);
    for (int i = 0; i < c.n_param; i++) {
        const sn_arg_binding *p = &c.param[i];
        w[i] = (sn_weight){.name = p->name, .dtype = SN_F32, .rank = p->rank, .data = p->data};
        int64_t n = 1;
        for (int a = 0; a < p->rank; a++) n *= w[i].shape[a] = p->shape[a];
        w[i].bytes = (size_t)n * sizeof(float);
    }
    need(sn_weights_save(scratch_path("model.safetensors"), w, (size_t)c.n_param, NULL, 0, &err),
         &err);
    assert_true(scratch_write(scratch_path("config.json"), config, strlen(config)));
    case_close(&c);
}

static void own_decoders(void **state) {
    (void)state;
    static const char *const config[] = {
        "{\"model_type\": \"gpt2\", \"vocab_size\": 11, \"n_positions\": 24, \"n_embd\": 12, "
        "\"n_head\": 3, \"n_layer\": 2, \"activation_function\": \"gelu\"}",
        "{\"model_type\": \"gpt3\", \"vocab_size\": 11, \"n_positions\": 24, \"n_embd\": 12, "
        "\"n_head\": 3, \"n_layer\": 2, \"activation_function\": \"gelu\", \"window_size\": 3}",
        "{\"model_type\": \"gopher\", \"vocab_size\": 11, \"n_positions\": 24, \"n_embd\": 12, "
        "\"n_head\": 3, \"n_layer\": 2, \"activation_function\": \"gelu\"}",
        "{\"model_type\": \"tse_gpt\", \"n_vocab\": 11, \"n_ctx\": 24, \"n_layers\": 2, "
        "\"n_heads\": 2, \"d_model\": 6, \"nonlinear\": \"gelu\"}"};
    for (size_t i = 0; i < sizeof config / sizeof *config; i++) {
        if (!effort_takes(i, 4)) continue;
        assert_int_equal(scratch_make(NULL), 0);
        write_random(config[i]);
        check_folder(config[i], 4);
        if (effort_is_long()) check_folder(config[i], 0);
        scratch_end(NULL);
    }
}

static void models_in_c_run_one(void **state) {
    (void)state;
    sn_error err = {0};
    assert_null(sn_lm_open(SN_SOURCE_DIR "/examples/variants/alibi.c",
                           &(sn_lm_options){.sequences = 2}, &err));
    if (!strstr(err.message, "one sequence at a time")) fail_msg("%s", err.message);
}

int main(int argc, char **argv) {
    static const char *const usual[] = {"llama", "bloom"};
    static const char *const others[] = {
        "gemma3",       "cohere",   "falcon",    "falcon_alibi",  "gemma", "gemma2",
        "gpt_neox",     "gptj",     "granite",   "mistral",       "mpt",   "olmo2",
        "opt",          "phi",      "phi3",      "phi3_longrope", "qwen2", "qwen3",
        "llama_llama3", "stablelm", "starcoder2"};
    struct CMUnitTest tests[40];
    size_t n = 0;
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(own_decoders);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(models_in_c_run_one);
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++)
        tests[n++] =
            (struct CMUnitTest){usual[i], run_family, NULL, NULL, (void *)(uintptr_t)usual[i]};
    for (size_t i = 0; i < ROUNDING; i++)
        if (effort_takes(i, ROUNDING))
            tests[n++] = (struct CMUnitTest){rounding[i], run_family, NULL, NULL,
                                             (void *)(uintptr_t)rounding[i]};
    for (size_t i = 0; i < sizeof others / sizeof *others && effort_is_long(); i++)
        tests[n++] =
            (struct CMUnitTest){others[i], run_family, NULL, NULL, (void *)(uintptr_t)others[i]};
    if (argc > 1) /* one family by name */
        tests[0] = (struct CMUnitTest){argv[1], run_family, NULL, NULL, argv[1]}, n = 1;
    return _cmocka_run_group_tests("sequences", tests, n, NULL, NULL);
}
