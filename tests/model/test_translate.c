/* Algorithm 15 on a trained encoder-decoder, Arabic names to Latin letters: the published
 * log-probabilities and outputs; caches against the whole pass; beams; wrong requests. */
#include "model/translate.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "tests/support/scratch.h"

#include <math.h>

#define MODEL SN_SOURCE_DIR "/examples/models/aren-transliteration/model.bin"

static void need(bool ok, const sn_error *err) {
    if (!ok) fail_msg("%s", err->message);
}

static open_model *open_names(int level, int64_t beams) {
    sn_error err = {0};
    open_options o = {.path = MODEL,
                      .entries = SN_CACHED | SN_FORWARD,
                      .translates = true,
                      .beams = beams,
                      .compile = sn_options_default()};
    o.compile.level = level;
    open_model *m = lm_open(&o, &err);
    need(m != NULL, &err);
    return m;
}

static sn_ids encode(const open_model *m, const char *text) {
    sn_ids ids = {0};
    sn_error err = {0};
    need(lm_encode_source(m, text, strlen(text), &ids, &err), &err);
    return ids;
}

/* Upstream's tests/translator_test.cc: ln P of each letter, then of the end. */
static const struct {
    const char *source, *target;
    int n;
    float log_p[8];
} published[] = {
    {"آتزمون",
     "atzmon",
     7,
     {-0.106023f, -0.065410f, -0.056002f, -0.447953f, -0.230714f, -0.092184f, -0.063463f}},
    {"آتشيسون",
     "achison",
     8,
     {-0.072660f, -0.300309f, -0.181187f, -0.395671f, -0.025631f, -0.123466f, -0.002034f,
      -0.012639f}},
    {"آرباكه",
     "arbake",
     7,
     {-0.103136f, -0.089504f, -0.063889f, -0.007327f, -0.452072f, -0.060154f, -0.016636f}},
    {"آرثر",
     "arther",
     7,
     {-0.076704f, -0.036037f, -0.029253f, -0.030273f, -0.149276f, -0.002440f, -0.003742f}}};
enum { PUBLISHED = sizeof published / sizeof *published, LONGEST = 8 };

/* All four in one batch, sources and targets of unequal lengths: padding changes nothing. */
static void published_scores(open_model *m) {
    enum { V = 43 };
    sn_error err = {0};
    int32_t source[PUBLISHED][LONGEST] = {{0}}, lengths[PUBLISHED], tokens[PUBLISHED][LONGEST];
    int32_t target[PUBLISHED][LONGEST] = {{0}}, bos, eos;
    static float logits[PUBLISHED][LONGEST][V];
    need(translate_ends(m, &bos, &eos, &err), &err);
    for (int i = 0; i < PUBLISHED; i++) {
        sn_ids s = encode(m, published[i].source), t = {0};
        const char *text = published[i].target;
        need(sn_tokenizer_encode(m->io->tokenizer, text, strlen(text), 0, &t, &err), &err);
        assert_int_equal(t.count + 1, published[i].n);
        lengths[i] = (int32_t)s.count;
        memcpy(source[i], s.data, sizeof *s.data * s.count);
        tokens[i][0] = bos;
        for (int j = 1; j < LONGEST; j++) tokens[i][j] = (size_t)j <= t.count ? t.data[j - 1] : 0;
        for (int j = 0; j < published[i].n; j++)
            target[i][j] = (size_t)j < t.count ? t.data[j] : eos;
        sn_ids_free(&s);
        sn_ids_free(&t);
    }
    sn_arg_binding in[] = {SN_BIND("source", SN_I32, source, PUBLISHED, LONGEST),
                           SN_BIND("lengths", SN_I32, lengths, PUBLISHED),
                           SN_BIND("tokens", SN_I32, tokens, PUBLISHED, LONGEST)};
    sn_arg_binding out = SN_BIND("logits", SN_F32, logits, PUBLISHED, LONGEST, V);
    need(sn_run(m->session, "forward", in, 3, &out, 1, &err), &err);
    for (int i = 0; i < PUBLISHED; i++)
        for (int j = 0; j < published[i].n; j++) {
            double sum = 0, got;
            for (int v = 0; v < V; v++) sum += exp(logits[i][j][v]);
            got = logits[i][j][target[i][j]] - log(sum);
            if (!(fabs(got - published[i].log_p[j]) <= 1e-4))
                fail_msg("%s, token %d: %g, not %g", published[i].target, j, got,
                         published[i].log_p[j]);
        }
}

static void check_output(open_model *m, const char *text, const seq2seq_options *o,
                         const char *want, double *log_p) {
    sn_error err = {0};
    sn_ids source = encode(m, text), ids = {0};
    sn_bytes got = {0};
    need(translate(m, source.data, (int64_t)source.count, o, &ids, log_p, &err), &err);
    need(sn_tokenizer_decode(m->io->tokenizer, ids.data, ids.count, 0, &got, &err), &err);
    if (want) assert_string_equal(got.data, want);
    sn_ids_free(&source);
    sn_ids_free(&ids);
    sn_bytes_free(&got);
}

/* Scores and greedy output at two levels; the caches give the whole pass' log-probabilities. */
static void a15_greedy(void **state) {
    (void)state;
    static const int levels[] = {1, 4};
    for (int l = 0; l < 2; l++) {
        open_model *m = open_names(levels[l], 1);
        seq2seq_options o = {0};
        double log_p, want = 0;
        published_scores(m);
        check_output(m, published[0].source, &o, "atzmon", &log_p);
        for (int j = 0; j < published[0].n; j++) want += published[0].log_p[j];
        assert_true(fabs(log_p - want) < 1e-4);
        check_output(m, "آزا", &o, "azza", NULL); /* a shorter one after a longer one */
        assert_int_equal(sn_program_stats(m->program).recompilations, 0);
        model_close(m);
    }
}

static void a15_beams(void **state) {
    (void)state;
    open_model *greedy = open_names(4, 1), *wide = open_names(4, 4);
    seq2seq_options o = {0};
    for (int i = 0; i < PUBLISHED; i++) {
        double one, four;
        check_output(greedy, published[i].source, &o, NULL, &one);
        check_output(wide, published[i].source, &o, NULL, &four);
        assert_true(four >= one - 1e-5); /* a wider search finds nothing worse here */
    }
    check_output(wide, published[0].source, &o, "atzmon", NULL);
    check_output(wide, "آزا", &o, "azza", NULL);
    model_close(greedy);
    model_close(wide);
}

/* tau -> 0 is greedy; the same seed draws the same name; the length cap holds. */
static void a15_draws(void **state) {
    (void)state;
    open_model *m = open_names(4, 1);
    sn_error err = {0};
    sn_sample_options cold = {.temperature = 0.01f, .top_p = 1},
                      warm = {.temperature = 1.5f, .top_k = 20, .top_p = 0.95f, .seed = 3};
    check_output(m, published[0].source, &(seq2seq_options){.sample = &cold}, "atzmon", NULL);
    sn_ids source = encode(m, published[1].source), first = {0}, again = {0}, capped = {0};
    seq2seq_options o = {.sample = &warm};
    need(translate(m, source.data, (int64_t)source.count, &o, &first, NULL, &err), &err);
    need(translate(m, source.data, (int64_t)source.count, &o, &again, NULL, &err), &err);
    assert_int_equal(first.count, again.count);
    assert_memory_equal(first.data, again.data, sizeof *first.data * first.count);
    for (int i = 0; i < 2; i++) {
        seq2seq_options cap = {.max_tokens = 3, .sample = i ? &cold : NULL};
        capped.count = 0;
        need(translate(m, source.data, (int64_t)source.count, &cap, &capped, NULL, &err), &err);
        assert_int_equal(capped.count, 3);
    }
    sn_ids_free(&source);
    sn_ids_free(&first);
    sn_ids_free(&again);
    sn_ids_free(&capped);
    model_close(m);
}

static void refuse(open_model *m, const int32_t *source, int64_t n, const seq2seq_options *o,
                   const char *why) {
    sn_error err = {0};
    sn_ids out = {0};
    assert_false(translate(m, source, n, o, &out, NULL, &err));
    if (!strstr(err.message, why)) fail_msg("wanted '%s' in: %s", why, err.message);
    assert_int_equal(out.count, 0);
}

static void wrong_requests(void **state) {
    (void)state;
    open_model *m = open_names(4, 2);
    int32_t ids[300] = {0}, outside[] = {4, 51};
    seq2seq_options o = {0};
    refuse(m, ids, 0, &o, "the source is empty");
    refuse(m, ids, 300, &o, "300 tokens, but the model's limit is 256");
    refuse(m, outside, 2, &o, "token 51 (number 1) is outside the source vocabulary 0..50");
    o.sample = &SN_SAMPLE_DEFAULTS;
    refuse(m, ids, 3, &o, "sampling needs --beams 1");
    model_close(m);
}

/* A vocabulary without an end token, and no id for one in the config. */
static void special_tokens_lacking(void **state) {
    (void)state;
    static const char text[] = "{\"vocab_size\": 9}";
    sn_error err = {0};
    sn_train_options to = {.kind = SN_TRAIN_CHAR};
    sn_tokenizer *t = sn_tokenizer_train(&to, "abc", 3, &err);
    need(t != NULL, &err);
    model_io io = {.rules = SN_TOKEN_RULES_NONE};
    open_model m = {.model = {.vocab = 9}, .io = &io};
    int32_t bos, eos;
    m.config = sn_config_parse("config.json", text, strlen(text), &err);
    need(translate_ends(&m, &bos, &eos, &err), &err); /* no tokenizer: the paper's last ids */
    assert_true(bos == 7 && eos == 8);
    io.tokenizer = t;
    need(translate_ends(&m, &bos, &eos, &err), &err);
    assert_true(bos == sn_tokenizer_special(t, SN_TOKEN_BOS));
    sn_config_set_int(m.config, "eos_token_id", 9);
    assert_false(translate_ends(&m, &bos, &eos, &err));
    assert_non_null(strstr(err.message, "eos_token_id"));
    sn_tokenizer_free(t);
    sn_config_free(m.config);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a15_greedy), cmocka_unit_test(a15_beams), cmocka_unit_test(a15_draws),
        cmocka_unit_test(wrong_requests), cmocka_unit_test(special_tokens_lacking)};
    return cmocka_run_group_tests(tests, scratch_make, scratch_end);
}
