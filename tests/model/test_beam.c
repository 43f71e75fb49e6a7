/* Beam search on a distribution given as a table, against the enumeration of all sequences; ties;
 * the length penalty; invalid options and logits. */
#include "model/text/beam.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

enum { V = 4, EOS = 3, LONGEST = 4 };

/* Logits after `last` (0 … V-1, or V at the beginning): fixed and uneven. */
static void logits_after(int last, float out[V]) {
    for (int v = 0; v < V; v++) out[v] = (float)((last * 7 + v * 5 + last * v * 3) % 11) * 0.3f;
}

static double log_p(int last, int token) {
    float x[V];
    double sum = 0;
    logits_after(last, x);
    for (int v = 0; v < V; v++) sum += exp(x[v]);
    return x[token] - log(sum);
}

typedef struct best {
    double score, log_p;
    int32_t text[LONGEST];
    int n;
} best;

/* Enumerates every sequence that ends, or has LONGEST tokens. */
static void enumerate(best *b, const int32_t *text, int n, double so_far, double alpha) {
    int last = n ? text[n - 1] : V;
    for (int v = 0; v < V; v++) {
        int32_t more[LONGEST];
        double p = so_far + log_p(last, v);
        memcpy(more, text, sizeof *text * (size_t)n);
        if (v != EOS) more[n] = v;
        int length = n + (v != EOS);
        if (v != EOS && length < LONGEST) {
            enumerate(b, more, length, p, alpha);
            continue;
        }
        double score = p / pow(n + 1, alpha);
        if (score > b->score) {
            b->score = score, b->log_p = p, b->n = length;
            memcpy(b->text, more, sizeof *more * (size_t)length);
        }
    }
}

static size_t search(int32_t beams, double alpha, int32_t *out, double *p) {
    sn_error err = {0};
    const int32_t end = EOS;
    sn_beam_options o = {
        .beams = beams, .eos = &end, .n_eos = 1, .max_tokens = LONGEST, .length_penalty = alpha};
    sn_beam *b = sn_beam_new(&o, V, &err);
    assert_non_null(b);
    int32_t tokens[64], parents[64], last[64], old[64];
    float logits[64][V];
    for (int i = 0; i < beams; i++) last[i] = V;
    while (!sn_beam_done(b)) {
        for (int i = 0; i < beams; i++) logits_after(last[i], logits[i]);
        assert_true(sn_beam_step(b, logits[0], tokens, parents, &err));
        memcpy(old, last, sizeof old);
        for (int i = 0; i < beams; i++) {
            assert_in_range(parents[i], 0, beams - 1);
            last[i] = tokens[i];
        }
    }
    assert_in_range(sn_beam_count(b), 1, beams);
    double worse = 0;
    for (int32_t i = 0; i < sn_beam_count(b); i++) { /* best first */
        double q;
        size_t n = sn_beam_result(b, i, out, &q);
        double score = q / pow((double)(n < LONGEST ? n + 1 : n), alpha);
        assert_true(i == 0 || score <= worse + 1e-12);
        worse = score;
    }
    size_t n = sn_beam_result(b, 0, out, p);
    sn_beam_free(b);
    return n;
}

/* As many beams as there are sequences find the most probable one. */
static void wide_search_is_exact(void **state) {
    (void)state;
    static const double alphas[] = {0, 0.6, 1, 3};
    for (int i = 0; i < 4; i++) {
        best want = {.score = -INFINITY};
        int32_t none[LONGEST], got[LONGEST];
        double p;
        enumerate(&want, none, 0, 0, alphas[i]);
        size_t n = search(64, alphas[i], got, &p);
        assert_int_equal(n, want.n);
        assert_memory_equal(got, want.text, sizeof *got * n);
        assert_true(fabs(p - want.log_p) < 1e-9);
    }
}

static void one_beam_is_greedy(void **state) {
    (void)state;
    int32_t got[LONGEST];
    double p, want = 0;
    size_t n = search(1, 0, got, &p);
    int last = V;
    for (size_t i = 0; i <= n && i < LONGEST; i++) {
        float x[V];
        int most = 0;
        logits_after(last, x);
        for (int v = 1; v < V; v++)
            if (x[v] > x[most]) most = v;
        assert_int_equal(i < n ? got[i] : EOS, most);
        want += log_p(last, most);
        last = most;
    }
    assert_true(fabs(p - want) < 1e-9);
}

/* Equal logits: the lowest token, then the lowest row. */
static void ties_go_to_the_lowest(void **state) {
    (void)state;
    sn_error err = {0};
    sn_beam_options o = {.beams = 2, .max_tokens = 3};
    sn_beam *b = sn_beam_new(&o, V, &err);
    float even[2 * V] = {0};
    int32_t tokens[2], parents[2], out[3];
    for (int i = 0; i < 3; i++) {
        assert_false(sn_beam_done(b));
        assert_true(sn_beam_step(b, even, tokens, parents, &err));
        if (i == 2) break;
        assert_true(tokens[0] == 0 && tokens[1] == 1 && parents[0] == 0 && parents[1] == 0);
    }
    assert_true(sn_beam_done(b));
    assert_int_equal(sn_beam_count(b), 2);
    assert_int_equal(sn_beam_result(b, 1, out, NULL), 3);
    assert_true(out[0] == 0 && out[1] == 0 && out[2] == 1);
    sn_beam_free(b);
}

/* The steps until a search with two beams is done, if each token has the same logits after any other. */
static void stops(void **state) {
    (void)state;
    static const struct {
        sn_beam_stop stop;
        double penalty, p[V];
        int max_tokens, steps;
    } cases[] = {
        {SN_BEAM_STOP_FULL, 0, {0.4, 0.15, 0.1, 0.35}, 10, 2},
        {SN_BEAM_STOP_LIKELY, 0, {0.4, 0.15, 0.1, 0.35}, 10, 3},
        {SN_BEAM_STOP_SURE, 0, {0.4, 0.15, 0.1, 0.35}, 10, 3},
        {SN_BEAM_STOP_FULL, 1, {0.3, 0.12, 0.08, 0.5}, 10, 2},
        {SN_BEAM_STOP_LIKELY, 1, {0.3, 0.12, 0.08, 0.5}, 10, 2},
        {SN_BEAM_STOP_SURE, 1, {0.3, 0.12, 0.08, 0.5}, 10, 8},
        {SN_BEAM_STOP_SURE, 1, {0.3, 0.12, 0.08, 0.5}, 5, 4},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        const int32_t end = EOS;
        const sn_beam_options o = {.beams = 2,
                                   .eos = &end,
                                   .n_eos = 1,
                                   .max_tokens = cases[c].max_tokens,
                                   .length_penalty = cases[c].penalty,
                                   .stop = cases[c].stop};
        sn_error err = {0};
        sn_beam *b = sn_beam_new(&o, V, &err);
        assert_non_null(b);
        float logits[2 * V];
        int32_t tokens[2], parents[2];
        int steps = 0;
        for (int i = 0; i < 2 * V; i++) logits[i] = (float)log(cases[c].p[i % V]);
        for (; !sn_beam_done(b); steps++)
            assert_true(sn_beam_step(b, logits, tokens, parents, &err));
        assert_int_equal(steps, cases[c].steps);
        sn_beam_free(b);
    }
}

static void refused(void **state) {
    (void)state;
    static const sn_beam_options bad[] = {{.beams = 0, .max_tokens = 5},
                                          {.beams = 1, .max_tokens = 0},
                                          {.beams = 1, .max_tokens = 5, .length_penalty = -1},
                                          {.beams = 1, .max_tokens = 5, .length_penalty = NAN},
                                          {.beams = 1 << 20, .max_tokens = 5}};
    for (int i = 0; i < 5; i++) {
        sn_error err = {0};
        assert_null(sn_beam_new(&bad[i], V, &err));
        assert_int_equal(err.code, SN_ERR_USAGE);
    }
    sn_beam_options o = {.beams = 1, .max_tokens = 5};
    float rows[3][V] = {
        {0, NAN, 0, 0}, {0, INFINITY, 0, 0}, {-INFINITY, -INFINITY, -INFINITY, -INFINITY}};
    for (int i = 0; i < 3; i++) {
        sn_error err = {0};
        int32_t token, parent;
        sn_beam *b = sn_beam_new(&o, V, &err);
        assert_false(sn_beam_step(b, rows[i], &token, &parent, &err));
        assert_int_equal(err.code, SN_ERR_RANGE);
        sn_beam_free(b);
    }
    sn_beam_free(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(wide_search_is_exact),
                                       cmocka_unit_test(one_beam_is_greedy),
                                       cmocka_unit_test(ties_go_to_the_lowest),
                                       cmocka_unit_test(stops), cmocka_unit_test(refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
