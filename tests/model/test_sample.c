/* Random numbers: published vectors, layout, moments. Sampling: limits of the temperature, filters
 * against a plain reimplementation, frequencies against the distribution, rejected input. */
#include "runtime/rng.h"
#include "model/sample.h"
#include "model/tokenizer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>
#include <math.h>

/* kat_vectors of Random123 1.14 (D. E. Shaw Research), rows "philox4x32 10". */
static void philox_known_answers(void **state) {
    (void)state;
    static const struct {
        uint32_t ctr[4], key[2], out[4];
    } kat[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof kat / sizeof *kat; i++) {
        uint32_t out[4];
        sn_philox4x32(kat[i].ctr, kat[i].key, out);
        assert_memory_equal(out, kat[i].out, sizeof out);
    }
}

static void element_layout(void **state) {
    (void)state;
    sn_rng r = {.seed = 0x299f31d0a4093822u, .stream = 0x13198a2e, .step = 0x03707344};
    uint32_t key[2] = {0xa4093822, 0x299f31d0}, out[4];
    for (uint64_t block = 0; block < 100; block++) {
        uint32_t ctr[4] = {(uint32_t)block, 0, r.stream, r.step};
        sn_philox4x32(ctr, key, out);
        for (uint64_t w = 0; w < 4; w++)
            assert_int_equal(sn_rng_at(&r, (block / 16) * 64 + w * 16 + block % 16), out[w]);
    }
    uint32_t high[4] = {0, 1, r.stream, r.step}; /* block 2^32 */
    sn_philox4x32(high, key, out);
    assert_int_equal(sn_rng_at(&r, (uint64_t)1 << 34), out[0]);
}

static void sequence_equals_elements(void **state) {
    (void)state;
    sn_rng a = {.seed = 7, .stream = SN_STREAM_INIT}, b = a, c = a;
    float u[150], z[150];
    sn_rng_fill_uniform(&a, -1, 3, u, 70);
    sn_rng_fill_uniform(&a, -1, 3, u + 70, 80);
    sn_rng_fill_normal(&b, 2, 0.5f, z, 150);
    assert_int_equal(a.index, 150);
    for (uint64_t i = 0; i < 150; i++) {
        assert_true(u[i] == -1 + 4 * sn_bits_uniform(sn_rng_at(&c, i)));
        assert_true(z[i] == 2 + 0.5f * sn_rng_normal_at(&c, i));
    }
}

static void moments(void **state) {
    (void)state;
    enum { N = 200000 };
    sn_rng r = {.seed = 1}, q = {.seed = 1, .stream = SN_STREAM_DATA};
    double m1 = 0, m2 = 0, m4 = 0, um = 0, uv = 0, cross = 0;
    for (uint64_t i = 0; i < N; i++) {
        double z = (double)sn_rng_normal_at(&r, i), w = (double)sn_rng_normal_at(&r, i ^ 16);
        double u = sn_rng_uniform53(&q);
        assert_true(u >= 0 && u < 1);
        m1 += z, m2 += z * z, m4 += z * z * z * z, cross += z * w, um += u, uv += u * u;
    }
    assert_true(fabs(m1 / N) < 0.01 && fabs(m2 / N - 1) < 0.02 && fabs(m4 / N - 3) < 0.1);
    assert_true(fabs(cross / N) < 0.01); /* the two samples of a Box-Muller pair are independent */
    assert_true(fabs(um / N - 0.5) < 0.003 && fabs(uv / N - 1.0 / 3) < 0.003);
}

static void below_is_even(void **state) {
    (void)state;
    sn_rng r = {.seed = 3};
    int count[6] = {0};
    for (int i = 0; i < 60000; i++) count[sn_rng_below(&r, 6)]++;
    for (int i = 0; i < 6; i++) assert_in_range(count[i], 9600, 10400);
    for (int i = 0; i < 1000; i++) assert_in_range(sn_rng_below(&r, 0xC0000000u), 0, 0xBFFFFFFFu);
    assert_int_equal(sn_rng_below(&r, 1), 0);
}

static sn_sampler *make_sampler(float tau, int k, float p, size_t vocab) {
    sn_sample_options o = {.temperature = tau, .top_k = k, .top_p = p, .seed = 42};
    sn_error err = {0};
    sn_sampler *s = sn_sampler_new(&o, vocab, &err);
    assert_non_null(s);
    return s;
}

enum { V = 40, DRAWS = 20000 };

static void fill_logits(float *l) {
    sn_rng r = {.seed = 9};
    sn_rng_fill_normal(&r, 0, 2, l, V);
    l[7] = l[21] = 7.5f; /* ties for the maximum */
    l[3] = -INFINITY;
}

/* The distribution by a plain implementation: rank, cut, normalise. */
static void plain_distribution(const float *l, double tau, int k, double top_p, double *prob) {
    int rank[V];
    double e[V], total = 0, kept = 0, mass = 0;
    for (int i = 0; i < V; i++) {
        rank[i] = 0, prob[i] = 0;
        for (int j = 0; j < V; j++) rank[i] += l[j] > l[i] || (l[j] == l[i] && j < i);
        bool out = l[i] == -INFINITY || (k && rank[i] >= k);
        e[i] = out ? 0 : isinf(tau) ? 1 : exp(((double)l[i] - 5) / tau);
        total += e[i];
    }
    for (int r = 0; r < V && mass < top_p * total; r++)
        for (int i = 0; i < V; i++)
            if (rank[i] == r) prob[i] = e[i], mass += e[i];
    for (int i = 0; i < V; i++) kept += prob[i];
    for (int i = 0; i < V; i++) prob[i] /= kept;
}

static void frequencies(void **state) {
    (void)state;
    static const struct {
        float tau;
        int k;
        float p;
    } cases[] = {{1, 0, 1},           {2, 0, 1},        {1, 5, 1},          {1, 0, 0.8f},
                 {2.5f, 12, 0.6f},    {INFINITY, 0, 1}, {1, 1, 1},          {INFINITY, 7, 1},
                 {INFINITY, 0, 0.5f}, {1, 0, 0.001f},   {INFINITY, 0, .01f}};
    float l[V];
    fill_logits(l);
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        double prob[V];
        int count[V] = {0};
        plain_distribution(l, (double)cases[c].tau, cases[c].k, (double)cases[c].p, prob);
        sn_sampler *s = make_sampler(cases[c].tau, cases[c].k, cases[c].p, V);
        for (int i = 0; i < DRAWS; i++) {
            int32_t t = sn_sampler_next(s, l, NULL);
            assert_in_range(t, 0, V - 1);
            count[t]++;
        }
        sn_sampler_free(s);
        for (int i = 0; i < V; i++) {
            double sigma = sqrt(prob[i] * (1 - prob[i]) / DRAWS);
            if (prob[i] == 0) assert_int_equal(count[i], 0);
            assert_true(fabs((double)count[i] / DRAWS - prob[i]) <= 5 * sigma);
        }
    }
}

static void greedy_limit(void **state) {
    (void)state;
    float l[V];
    fill_logits(l);
    sn_sampler *zero = make_sampler(0, 0, 1, V), *filtered = make_sampler(0, 3, 0.5f, V);
    for (int i = 0; i < 10; i++) {
        /* 7 and 21 are equal: the lower index wins */
        assert_int_equal(sn_sampler_next(zero, l, NULL), 7);
        assert_int_equal(sn_sampler_next(filtered, l, NULL), 7);
    }
    l[30] = 7.501f;
    sn_sampler *cold = make_sampler(1e-6f, 0, 1, V), *tiny = make_sampler(1e-45f, 0, 0.9f, V);
    for (int i = 0; i < 100; i++) {
        assert_int_equal(sn_sampler_next(cold, l, NULL), 30);
        assert_int_equal(sn_sampler_next(tiny, l, NULL), 30);
    }
    sn_sampler_free(zero), sn_sampler_free(filtered), sn_sampler_free(cold), sn_sampler_free(tiny);
    float extreme[3] = {-3.4e38f, 3.4e38f, -INFINITY};
    sn_sampler *hot = make_sampler(INFINITY, 0, 1, 3);
    int seen[2] = {0};
    for (int i = 0; i < 100; i++) seen[sn_sampler_next(hot, extreme, NULL)]++;
    assert_true(seen[0] > 20 && seen[1] > 20);
    sn_sampler_free(hot);
}

/* Of four equal tokens a nucleus has as many as reach its fraction, and not one more; min-p keeps what is as likely. */
static void fractions_that_are_reached(void **state) {
    (void)state;
    static const struct {
        float top_p, min_p;
        int n;
    } cases[] = {{0.25f, 0, 1}, {0.26f, 0, 2}, {0.5f, 0, 2},
                 {0.75f, 0, 3}, {0.76f, 0, 4}, {1, 1, 4}};
    const float equal[4] = {3, 3, 3, 3};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        const sn_sample_options o = {
            .temperature = 1, .top_p = cases[c].top_p, .min_p = cases[c].min_p, .seed = 4};
        sn_error err = {0};
        sn_sampler *s = sn_sampler_new(&o, 4, &err);
        int seen = 0;
        for (int i = 0; i < 200; i++) seen |= 1 << sn_sampler_next(s, equal, &err);
        assert_int_equal(seen, (1 << cases[c].n) - 1);
        sn_sampler_free(s);
    }
}

/* One heavy token and many equal light ones, each lighter than its share if all tokens were equal:
 * the shortcut that avoids sorting must keep them. */
static void nucleus_of_light_tokens(void **state) {
    (void)state;
    enum { LIGHT = 600, DRAWS = 4000 };
    static float l[1 + LIGHT];
    /* 2.5 in total: the heavy one has 1 */
    for (int i = 1; i <= LIGHT; i++) l[i] = logf(1.5f / LIGHT);
    sn_sampler *s =
        make_sampler(1, 0, 0.4985f, 1 + LIGHT); /* 1.24625: the heavy one and 99 others */
    int light = 0;
    for (int i = 0; i < DRAWS; i++) {
        int32_t token = sn_sampler_next(s, l, NULL);
        assert_in_range(token, 0, 99);
        light += token > 0;
    }
    assert_in_range(light, DRAWS * 16 / 100, DRAWS * 24 / 100); /* 0.2475 / 1.2475 = 19.8 % */
    sn_sampler_free(s);
}

static void repeats_and_resumes(void **state) {
    (void)state;
    float l[V];
    fill_logits(l);
    int32_t first[50];
    sn_sampler *a = make_sampler(1.5f, 20, 0.95f, V), *b = make_sampler(1.5f, 20, 0.95f, V);
    for (int i = 0; i < 50; i++) first[i] = sn_sampler_next(a, l, NULL);
    for (int i = 0; i < 50; i++) assert_int_equal(sn_sampler_next(b, l, NULL), first[i]);
    sn_rng_bits(sn_sampler_rng(b)); /* another position in the stream */
    *sn_sampler_rng(b) = (sn_rng){.seed = 42};
    for (int i = 0; i < 50; i++) assert_int_equal(sn_sampler_next(b, l, NULL), first[i]);
    sn_sampler_rng(b)->seed = 43;
    int same = 0;
    for (int i = 0; i < 50; i++) same += sn_sampler_next(b, l, NULL) == first[i];
    assert_true(same < 40);
    sn_sampler_free(a), sn_sampler_free(b);
}

static void expect_error(bool failed, sn_error *err, const char *what) {
    assert_true(failed && err->code == SN_ERR_USAGE);
    assert_non_null(strstr(err->message, what));
    *err = (sn_error){0};
}

static void null_arguments(void **state) {
    (void)state;
    sn_error err = {0};
    sn_ids list = {0};
    sn_bytes text = {0};
    float logits[3] = {0, 1, 2};
    sn_sampler *s = make_sampler(1, 0, 1, 3);
    expect_error(!sn_tokenizer_load(NULL, &err), &err, "path is NULL");
    expect_error(!sn_tokenizer_encode(NULL, "a", 1, 0, &list, &err), &err, "tokenizer is NULL");
    expect_error(!sn_tokenizer_decode(NULL, (int32_t[]){0}, 1, 0, &text, &err), &err,
                 "tokenizer is NULL");
    expect_error(!sn_tokenizer_train(NULL, NULL, 0, &err), &err, "options is NULL");
    expect_error(!sn_sampler_new(NULL, 5, &err), &err, "options is NULL");
    expect_error(sn_sampler_next(s, NULL, &err) < 0, &err, "logits is NULL");
    expect_error(!sn_sampler_note(NULL, (int32_t[]){0}, 1, &err), &err, "sampler is NULL");
    expect_error(!sn_sampler_note(s, NULL, 1, &err), &err, "list of ids is NULL");
    assert_true(sn_sampler_note(s, NULL, 0, &err));
    expect_error(sn_sampler_next(NULL, logits, &err) < 0, &err, "sampler is NULL");
    sn_sampler_free(s);
}

static void refusals(void **state) {
    (void)state;
    static const struct {
        sn_sample_options opt;
        size_t vocab;
        const char *word;
    } bad[] = {
        {{.temperature = -1, .top_p = 1}, 4, "temperature"},
        {{.temperature = NAN, .top_p = 1}, 4, "temperature"},
        {{.temperature = 1, .top_k = -2, .top_p = 1}, 4, "top-k"},
        {{.temperature = 1, .top_p = 0}, 4, "top-p"},
        {{.temperature = 1, .top_p = 1.5f}, 4, "top-p"},
        {{.temperature = 1, .top_p = NAN}, 4, "top-p"},
        {{.temperature = 1, .top_p = 1}, 0, "vocabulary"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        sn_error err = {0};
        assert_null(sn_sampler_new(&bad[i].opt, bad[i].vocab, &err));
        assert_int_equal(err.code, SN_ERR_RANGE);
        assert_non_null(strstr(err.message, bad[i].word));
    }
    sn_sampler *s = make_sampler(1, 9, 1, 3); /* k above the vocabulary size keeps all tokens */
    float nan[3] = {0, NAN, 1}, inf[3] = {0, 1, INFINITY},
          none[3] = {-INFINITY, -INFINITY, -INFINITY};
    float one[3] = {-INFINITY, -5, -INFINITY};
    sn_error err = {0};
    assert_int_equal(sn_sampler_next(s, nan, &err), -1);
    assert_non_null(strstr(err.message, "token 1"));
    assert_int_equal(sn_sampler_next(s, inf, NULL), -1);
    assert_int_equal(sn_sampler_next(s, none, NULL), -1);
    assert_int_equal(sn_sampler_next(s, one, NULL), 1);
    sn_sampler_free(s);
    sn_sampler_free(NULL);
}

static void argmax_ties(void **state) {
    (void)state;
    float x[] = {NAN, 1, 3, 3, -INFINITY, NAN}, all_nan[] = {NAN, NAN};
    assert_int_equal(sn_sample_largest(x, 6), 2);
    assert_int_equal(sn_sample_largest(all_nan, 2), 0);
    assert_int_equal(sn_sample_largest(x + 4, 1), 0);
}

/* min-p keeps tokens at least that fraction as likely as the best; the penalty applies to tokens
 * that were noted or sampled, also when greedy. */
static void min_p_and_penalty(void **state) {
    (void)state;
    const float l[4] = {2, 1, 0.5f, 1.9f}; /* exp: 1, 0.37, 0.22, 0.90 of the best */
    sn_error err = {0};
    sn_sample_options o = {.temperature = 1, .top_p = 1, .min_p = 0.3f, .seed = 3};
    sn_sampler *s = sn_sampler_new(&o, 4, &err);
    int count[4] = {0};
    for (int i = 0; i < 4000; i++) count[sn_sampler_next(s, l, &err)]++;
    sn_sampler_free(s);
    assert_int_equal(count[2], 0);
    for (int i = 0; i < 4; i++) {
        const double share = i == 2 ? 0 : exp((double)l[i] - 2) / (1 + exp(-1) + exp(-0.1));
        assert_true(fabs(count[i] / 4000.0 - share) < 0.03);
    }
    o = (sn_sample_options){.temperature = 0, .top_p = 1, .repetition_penalty = 2};
    s = sn_sampler_new(&o, 4, &err);
    assert_int_equal(sn_sampler_next(s, l, &err), 0);
    assert_int_equal(sn_sampler_next(s, l, &err), 3); /* 0 has logit 1 now */
    assert_int_equal(sn_sampler_next(s, l, &err), 0); /* 1, 1, 0.5, 0.95: the first of equal ones */
    const float low[4] = {-1, -1.5f, -3, -9};
    assert_int_equal(sn_sampler_next(s, low, &err), 1); /* -2, -1.5, -3, -18 */
    const int32_t more[2] = {1, 4};
    assert_false(sn_sampler_note(s, more, 2, &err));
    assert_true(sn_sampler_note(s, more, 1, &err));
    assert_int_equal(sn_sampler_next(s, low, &err), 0);
    sn_sampler_free(s);
    static const sn_sample_options bad[] = {
        {.temperature = 1, .top_p = 1, .min_p = 1.5f},
        {.temperature = 1, .top_p = 1, .min_p = -1},
        {.temperature = 1, .top_p = 1, .repetition_penalty = -1}};
    for (int i = 0; i < 3; i++) {
        err = (sn_error){0};
        assert_null(sn_sampler_new(&bad[i], 4, &err));
        assert_int_equal(err.code, SN_ERR_RANGE);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_known_answers),
        cmocka_unit_test(element_layout),
        cmocka_unit_test(sequence_equals_elements),
        cmocka_unit_test(moments),
        cmocka_unit_test(below_is_even),
        cmocka_unit_test(frequencies),
        cmocka_unit_test(fractions_that_are_reached),
        cmocka_unit_test(min_p_and_penalty),
        cmocka_unit_test(greedy_limit),
        cmocka_unit_test(nucleus_of_light_tokens),
        cmocka_unit_test(repeats_and_resumes),
        cmocka_unit_test(null_arguments),
        cmocka_unit_test(refusals),
        cmocka_unit_test(argmax_ties),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
