/* test_lm.c: sequences of a language model (model/generation.h), with a model that computes logits from a
 * hash of the tokens so far: what is in a row shows in every later token. */
#include "model/generation.h"
#include "runtime/rng.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/scratch.h"

enum { V = 12, CONTEXT = 24, ROWS = 4, END = 11 };

typedef struct toy {
    int32_t row[ROWS][CONTEXT];
    int64_t steps, fed; /* calls of step, tokens of feed */
} toy;

static void compute(const int32_t *ids, int64_t n, float *logits) {
    uint64_t h = 17;
    for (int64_t i = 0; i < n; i++) h = (h ^ (uint64_t)ids[i]) * 0x9E3779B97F4A7C15u + 1;
    for (int v = 0; v < V; v++) {
        uint64_t x = (h ^ (uint64_t)v * 0xBF58476D1CE4E5B9u) * 0x94D049BB133111EBu;
        logits[v] = (float)(x >> 40) * 0x1p-22f;
    }
    logits[END] -= 2;
}

static bool feed(void *model, int64_t row, int64_t past, const int32_t *ids, int64_t n,
                 float *logits, sn_error *err) {
    toy *t = model;
    (void)err;
    assert_true(row >= 0 && row < ROWS && n > 0 && past + n <= CONTEXT);
    memcpy(t->row[row] + past, ids, sizeof *ids * (size_t)n);
    compute(t->row[row], past + n, logits);
    t->fed += n;
    return true;
}

static bool step(void *model, int64_t n, const int32_t *ids, const int32_t *past, float *logits,
                 sn_error *err) {
    toy *t = model;
    (void)err;
    assert_true(n > 0 && n <= ROWS);
    for (int64_t i = 0; i < n; i++) {
        assert_in_range(past[i], 0, CONTEXT - 1);
        t->row[i][past[i]] = ids[i];
        compute(t->row[i], past[i] + 1, logits + i * V);
    }
    t->steps++;
    return true;
}

static bool reorder(void *model, int64_t first, int64_t n, const int32_t *parents, int64_t past,
                    sn_error *err) {
    toy *t = model, old = *t;
    (void)err;
    for (int64_t i = 0; i < n; i++) /* only what was asked for */
        memcpy(t->row[first + i], old.row[parents[i]], sizeof(int32_t) * (size_t)past);
    return true;
}

static sn_lm *open_toy(toy *t, int64_t rows) {
    sn_error err = {0};
    static const int32_t eos[] = {END};
    *t = (toy){.steps = 0};
    sn_lm *m = sn_lm_new(&(sn_lm_parts){.engine = {t, rows, V, CONTEXT, feed, step, reorder, NULL},
                                        .eos = eos,
                                        .n_eos = 1},
                         &err);
    assert_non_null(m);
    return m;
}

static sn_lm_request request(int i) {
    static int32_t prompt[8][3];
    for (int k = 0; k < 3; k++) prompt[i][k] = (i * 5 + k) % END;
    return (sn_lm_request){.ids = prompt[i],
                           .n_ids = 1 + i % 3,
                           .tokens = 5 + 2 * i,
                           .seed = (uint64_t)(7 * i),
                           .top_k = 5,
                           .scores = true};
}

typedef struct result {
    char text[256];
    double log_p;
    sn_lm_end_reason ended;
} result;

static void add(result *r, const char *text) {
    assert_true(strlen(r->text) + strlen(text) < sizeof r->text);
    strcat(r->text, text);
}

static void finish(result *r, sn_lm_sequence *s) {
    r->log_p = sn_lm_log_p(s);
    r->ended = sn_lm_ended(s);
    sn_lm_end(s);
}

static result alone(int i) {
    toy t;
    sn_error err = {0};
    sn_lm *m = open_toy(&t, 1);
    sn_lm_request r = request(i);
    sn_lm_sequence *s = sn_lm_begin(m, &r, &err);
    result out = {.log_p = 0};
    for (const char *text; (text = sn_lm_next(s, &err));) add(&out, text);
    assert_int_equal(err.code, SN_OK);
    finish(&out, s);
    sn_lm_close(m);
    return out;
}

/* Sequences begin, are asked and end in any order; each gives what it gives alone. */
static void neighbours_do_not_matter(void **state) {
    (void)state;
    result want[8];
    int by_end = 0;
    for (int i = 0; i < 8; i++) by_end += (want[i] = alone(i)).ended == SN_LM_END_TOKEN;
    assert_in_range(by_end, 1, 7);
    for (unsigned seed = 0; seed < 40; seed++) {
        toy t;
        sn_error err = {0};
        sn_rng rng = {.seed = seed};
        sn_lm *m = open_toy(&t, ROWS);
        sn_lm_sequence *s[8] = {NULL};
        result got[8] = {{.log_p = 0}};
        int begun = 0, done = 0, live = 0;
        while (done < 8) {
            int i = (int)sn_rng_below(&rng, 8);
            if (!s[i] && begun == i && live < ROWS) {
                sn_lm_request r = request(i);
                assert_non_null(s[i] = sn_lm_begin(m, &r, &err));
                begun++, live++;
            } else if (s[i]) {
                const char *text = sn_lm_next(s[i], &err);
                if (text) add(&got[i], text);
                if (sn_lm_ended(s[i])) finish(&got[i], s[i]), s[i] = NULL, live--, done++;
            }
        }
        assert_int_equal(err.code, SN_OK);
        for (int i = 0; i < 8; i++) {
            assert_string_equal(got[i].text, want[i].text);
            assert_int_equal(got[i].ended, want[i].ended);
            assert_true(got[i].log_p == want[i].log_p);
        }
        sn_lm_close(m);
    }
}

/* Asked in turn, four sequences need as many runs as the longest alone. */
static void alternating_runs_as_batches(void **state) {
    (void)state;
    toy t;
    sn_error err = {0};
    sn_lm *m = open_toy(&t, ROWS);
    sn_lm_sequence *s[ROWS];
    for (int i = 0; i < ROWS; i++) {
        sn_lm_request r = request(i);
        r.tokens = 10, r.ignore_eos = true;
        assert_non_null(s[i] = sn_lm_begin(m, &r, &err));
    }
    for (int n = 0; n < 10; n++)
        for (int i = 0; i < ROWS; i++) assert_true(sn_lm_next_token(s[i], &err) >= 0);
    assert_int_equal(t.steps, 9);
    assert_int_equal(sn_lm_measured(m).decoded, 9 * ROWS);
    for (int i = 0; i < ROWS; i++) assert_int_equal(sn_lm_ended(s[i]), SN_LM_TOKENS);
    assert_null(sn_lm_next(s[0], &err));
    assert_int_equal(err.code, SN_OK);
    sn_lm_close(m); /* with its sequences */
}

static void forks_and_feeds(void **state) {
    (void)state;
    toy t;
    sn_error err = {0};
    sn_lm *m = open_toy(&t, 2);
    sn_lm_sequence *s = sn_lm_begin(m, &(sn_lm_request){.prompt = "3, 1 4", .greedy = true}, &err);
    for (int i = 0; i < 3; i++) assert_true(sn_lm_next_token(s, &err) >= 0);
    int64_t fed = t.fed, n, k;
    sn_lm_sequence *f = sn_lm_fork(s, &(sn_lm_request){.greedy = true}, &err);
    assert_non_null(f);
    assert_int_equal(t.fed, fed);
    assert_memory_equal(sn_lm_tokens(f, &n), sn_lm_tokens(s, &k), 6 * sizeof(int32_t));
    assert_true(n == 6 && k == 6);
    for (int i = 0; i < 4; i++)
        assert_int_equal(sn_lm_next_token(s, &err), sn_lm_next_token(f, &err));
    /* tokens that are fed are part of the text */
    const int32_t more[] = {2, 7};
    float logits[V];
    assert_true(sn_lm_feed(f, more, 2, &err));
    const int32_t *ids = sn_lm_tokens(f, &n);
    compute(ids, n, logits);
    assert_memory_equal(sn_lm_logits(f, &err), logits, sizeof logits);
    assert_memory_equal(ids + n - 2, more, sizeof more);
    assert_false(sn_lm_feed(f, (int32_t[]){V}, 1, &err));
    assert_int_equal(err.code, SN_ERR_RANGE);
    sn_lm_close(m);
}

/* ln P of the best of all texts of at most `left` tokens, and the text. */
static double best_text(int32_t *ids, int64_t n, int left, int32_t *out, int *count) {
    float logits[V];
    double best = -INFINITY;
    compute(ids, n, logits);
    for (int32_t v = 0; v < V; v++) {
        int32_t rest[4];
        int more = 0;
        double p = sn_sample_log_p(logits, V, v);
        ids[n] = v;
        if (v != END && left > 1) p += best_text(ids, n + 1, left - 1, rest, &more);
        if (p <= best) continue;
        best = p;
        *count = (v != END) + more;
        out[0] = v;
        memcpy(out + 1, rest, sizeof *rest * (size_t)more);
    }
    return best;
}

/* With as many beams as tokens, two tokens are searched exhaustively. */
static void beams_find_the_best(void **state) {
    (void)state;
    for (int32_t prompt = 0; prompt < 8; prompt++) {
        toy *t = calloc(1, sizeof *t);
        sn_error err = {0};
        sn_ids out = {0};
        int32_t ids[CONTEXT] = {prompt}, want[4];
        int count = 0;
        double log_p = 0, p = best_text(ids, 1, 2, want, &count);
        sn_lm *m = open_toy(t, ROWS);
        const sn_lm_request r = {.ids = &prompt, .n_ids = 1, .tokens = 2};
        assert_true(sn_lm_search_beams(m, &r, &(sn_lm_search){.beams = ROWS}, &out, &log_p, &err));
        assert_in_range(out.count, 0, 2);
        assert_true(log_p <= p + 1e-9);
        if (fabs(log_p - p) < 1e-9) assert_memory_equal(out.data, want, out.count * 4);
        out.count = 0; /* one beam: the greedy text */
        assert_true(sn_lm_search_beams(m, &r, &(sn_lm_search){.beams = 1}, &out, NULL, &err));
        sn_lm_sequence *s = sn_lm_begin(
            m, &(sn_lm_request){.ids = &prompt, .n_ids = 1, .greedy = true, .ignore_eos = true},
            &err);
        for (size_t i = 0; i < out.count; i++)
            assert_int_equal(sn_lm_next_token(s, &err), out.data[i]);
        assert_false(sn_lm_search_beams(m, &r, &(sn_lm_search){.beams = 1}, &out, NULL, &err));
        sn_ids_free(&out);
        sn_lm_close(m);
        free(t);
    }
}

/* ---- texts ---- */

enum { BOS = 10, SAID = 3 };

/* The most likely token is always SAID. */
static bool say(void *model, int64_t row, int64_t past, const int32_t *ids, int64_t n,
                float *logits, sn_error *err) {
    (void)model, (void)row, (void)past, (void)ids, (void)n, (void)err;
    for (int v = 0; v < V; v++) logits[v] = (float)(v == SAID);
    return true;
}

static sn_tokenizer *open_tokenizer(void) {
    static const char text[] =
        "{\"added_tokens\": [{\"id\": 10, \"content\": \"<s>\", \"special\": true}, {\"id\": 11, "
        "\"content\": \"</s>\", \"special\": true}], \"model\": {\"type\": \"Unigram\", "
        "\"unk_id\": 0, \"vocab\": [[\"?\", 0], [\"a\", -1], [\"b\", -1], [\"ab. cd, ef; g\", -1], "
        "[\"c\", -1], [\"d\", -1], [\"e\", -1], [\"f\", -1], [\"g\", -1], [\".\", -1], "
        "[\"<s>\", 0], [\"</s>\", 0]]}}";
    sn_error err = {0};
    const char *path = scratch_path("tokenizer.json");
    assert_true(scratch_write(path, text, sizeof text - 1));
    sn_tokenizer *t = sn_tokenizer_load(path, &err);
    if (!t) fail_msg("%s", err.message);
    return t;
}

/* Of several stop texts within one token the first one in the text ends it, whatever their order. */
static void the_first_stop_ends_the_text(void **state) {
    (void)state;
    static const struct {
        const char *stop[3], *text;
    } rows[] = {{{", ", "; "}, "ab. cd"},        {{"; ", ", "}, "ab. cd"},
                {{"ef", "cd", "g"}, "ab. "},     {{"f; ", "b. c"}, "a"},
                {{"none", "ef; g"}, "ab. cd, "}, {{"ga", "none"}, "ab. cd, ef; "},
                {{"none", ", ef", "b"}, "a"}};
    sn_tokenizer *tokenizer = open_tokenizer();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        sn_error err = {0};
        result got = {.log_p = 0};
        sn_lm *m = sn_lm_new(&(sn_lm_parts){.engine = {NULL, 1, V, CONTEXT, say, NULL, NULL, NULL},
                                            .tokenizer = tokenizer},
                             &err);
        const sn_lm_request r = {.prompt = "a",
                                 .greedy = true,
                                 .tokens = 3,
                                 .stop = rows[i].stop,
                                 .n_stop = rows[i].stop[2] ? 3 : 2};
        sn_lm_sequence *s = sn_lm_begin(m, &r, &err);
        if (!s) fail_msg("%s", err.message);
        for (const char *text; (text = sn_lm_next(s, &err));) add(&got, text);
        finish(&got, s);
        assert_string_equal(got.text, rows[i].text);
        assert_int_equal(got.ended, SN_LM_STOP);
        sn_lm_close(m);
    }
    sn_tokenizer_free(tokenizer);
}

/* Texts begin with BOS unless the model's do not; an empty one is BOS, as a model needs a token. */
static void bos_begins_texts(void **state) {
    (void)state;
    static const struct {
        bool no_bos;
        const char *text;
        int n;
        int32_t ids[3];
    } rows[] = {{false, "ab", 3, {BOS, 1, 2}},
                {true, "ab", 2, {1, 2}},
                {false, "", 1, {BOS}},
                {true, "", 1, {BOS}}};
    sn_tokenizer *tokenizer = open_tokenizer();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        sn_error err = {0};
        sn_ids ids = {0};
        sn_lm *m = sn_lm_new(&(sn_lm_parts){.engine = {NULL, 1, V, CONTEXT, say, NULL, NULL, NULL},
                                            .tokenizer = tokenizer,
                                            .no_bos = rows[i].no_bos},
                             &err);
        assert_true(sn_lm_encode(m, rows[i].text, strlen(rows[i].text), &ids, &err));
        assert_int_equal(ids.count, rows[i].n);
        assert_memory_equal(ids.data, rows[i].ids, sizeof(int32_t) * ids.count);
        sn_ids_free(&ids);
        sn_lm_close(m);
    }
    sn_tokenizer_free(tokenizer);
}

static void mistakes_are_errors(void **state) {
    (void)state;
    toy t;
    sn_lm *m = open_toy(&t, 1);
    int32_t many[CONTEXT + 1] = {0};
    const struct {
        sn_lm_request r;
        const char *says;
    } bad[] = {{{.prompt = ""}, "prompt is empty"},
               {{.prompt = "1 x"}, "error at character 3"},
               {{.prompt = "12"}, "outside the vocabulary 0..11"},
               {{.prompt = "1 2147483648"}, "error at character 13"},
               {{.prompt = "4294967297"}, "error at character"},
               {{.prompt = "1;2"}, "error at character 2"},
               {{.prompt = "-1"}, "error at character 1"},
               {{.ids = many, .n_ids = CONTEXT + 1}, "context holds only 24"},
               {{.prompt = "1", .top_p = 2}, "top-p"},
               {{.prompt = "1", .chat = true}, "tokenizer"},
               {{.prompt = "1", .stop = (const char *[]){"2"}, .n_stop = 1}, "stop text needs"},
               {{.prompt = "1", .tokens = -5}, "-5 tokens"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        sn_error err = {0};
        assert_null(sn_lm_begin(m, &bad[i].r, &err));
        if (!strstr(err.message, bad[i].says)) fail_msg("%zu: %s", i, err.message);
    }
    sn_error err = {0};
    sn_lm_sequence *s = sn_lm_begin(m, &(sn_lm_request){.prompt = "1"}, &err);
    assert_non_null(s);
    assert_null(sn_lm_begin(m, &(sn_lm_request){.prompt = "1"}, &err));
    assert_non_null(strstr(err.message, "opened for 1 sequence at once"));
    /* a full context ends the text; its last token is not run */
    sn_lm_end(s);
    err = (sn_error){0};
    s = sn_lm_begin(m, &(sn_lm_request){.ids = many, .n_ids = CONTEXT - 1, .ignore_eos = true},
                    &err);
    assert_true(sn_lm_next_token(s, &err) >= 0);
    assert_true(sn_lm_next_token(s, &err) >= 0);
    assert_int_equal(sn_lm_ended(s), SN_LM_CONTEXT);
    sn_lm_close(m);
    /* after a failed call everything is quiet */
    assert_null(sn_lm_begin(NULL, &(sn_lm_request){0}, &err));
    assert_null(sn_lm_next(NULL, &err));
    assert_int_equal(err.code, SN_OK);
    sn_lm_close(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(neighbours_do_not_matter), cmocka_unit_test(alternating_runs_as_batches),
        cmocka_unit_test(forks_and_feeds),          cmocka_unit_test(beams_find_the_best),
        cmocka_unit_test(mistakes_are_errors),      cmocka_unit_test(the_first_stop_ends_the_text),
        cmocka_unit_test(bos_begins_texts),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_end);
}
