/* How the bench compares levels: an artificial report with known times. */
#include "bench/compare.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static void add(sn_bench_report *r, const char *name, const char *backend, int level,
                double ms_median, double ms_min) {
    sn_error err = {0};
    sn_bench_record *x = sn_bench_add(r, &err);
    assert_non_null(x);
    *x = (sn_bench_record){.level = level, .ms_median = ms_median, .ms_min = ms_min};
    snprintf(x->name, sizeof x->name, "%s", name);
    snprintf(x->shape, sizeof x->shape, "8x8");
    snprintf(x->backend, sizeof x->backend, "%s", backend);
}

static void slower_levels(void **state) {
    (void)state;
    sn_bench_report r = {0};
    add(&r, "norm", "native", 0, 10, 9);
    add(&r, "norm", "native", 1, 4, 3.9);
    add(&r, "norm", "native", 2, 4.1, 4.05); /* within the margin */
    add(&r, "norm", "native", 3, 4.6, 3.8);  /* its best round was equally fast */
    add(&r, "norm", "native", 4, 4.5, 4.2);  /* slower than level 1 */
    add(&r, "norm", "onednn", 0, 1, 1);      /* another back end */
    add(&r, "gelu", "native", 0, 1, 1);      /* other work */
    add(&r, "norm", "torch", -1, 0.5, .5);   /* a peer */
    sn_bench_judge(&r);
    assert_int_equal(r.n_note, 1);
    assert_string_equal(r.note[0],
                        "norm 8x8 native: level 4 is slower than level 1, 4.5 against 4 ms");
    sn_bench_report_free(&r);
}

static sn_bench_record timed(int level, int rounds, const double *ms) {
    sn_bench_record x = {.level = level, .rounds = rounds, .rel_rms = NAN, .peak_bytes = NAN};
    snprintf(x.kind, sizeof x.kind, "kernel");
    snprintf(x.name, sizeof x.name, "norm");
    snprintf(x.backend, sizeof x.backend, "native");
    memcpy(x.round_ms, ms, sizeof *ms * (size_t)rounds);
    x.ms_median = sn_bench_median(ms, rounds);
    return x;
}

/* Rounds that drift together: the ratio within rounds is exact, that of two runs is not. */
static void intervals(void **state) {
    (void)state;
    static const double slow[] = {10, 20, 14, 12, 18, 16, 11, 19, 15};
    double fast[9], alike[9];
    for (int i = 0; i < 9; i++) fast[i] = slow[i] / 2, alike[i] = slow[8 - i];
    sn_bench_record a = timed(0, 9, slow), b = timed(4, 9, fast), c = timed(4, 9, alike);
    sn_bench_gain g = sn_bench_compare(&a, &b, true, 1);
    assert_true(g.gain == 2 && g.low == 2 && g.high == 2);
    assert_int_equal(g.verdict, SN_BENCH_FASTER);
    assert_int_equal(sn_bench_compare(&b, &a, true, 1).verdict, SN_BENCH_SLOWER);
    g = sn_bench_compare(&a, &c, true, 1); /* -40 % to 90 % is not the same */
    assert_int_equal(g.verdict, SN_BENCH_UNCLEAR);
    assert_true(g.rounds > 9 && g.level > 95);
    double near[9];
    for (int i = 0; i < 9; i++) near[i] = slow[i] * (1 + 0.0009 * (i - 4));
    sn_bench_record d = timed(4, 9, near);
    assert_int_equal(sn_bench_compare(&a, &d, true, 1).verdict, SN_BENCH_SAME);
    assert_int_equal(sn_bench_compare(&a, &d, true, 0.1).verdict, SN_BENCH_UNCLEAR);
    assert_int_equal(sn_bench_compare(&a, &b, true, 100).verdict, SN_BENCH_SAME);
    /* five rounds: from the least to the greatest, which is less than 95 % */
    sn_bench_record a5 = timed(0, 5, slow), c5 = timed(4, 5, alike);
    assert_true(sn_bench_compare(&a5, &c5, true, 1).level == 93.75);
    g = sn_bench_compare(&a, &b, false, 1);
    assert_true(g.gain == 2 && g.low < 1.9 && g.low > 1 && g.high > 2.1);
    g = sn_bench_compare(&a, &c, false, 1);
    assert_true(g.gain == 1 && g.low < 1 && g.high > 1);
    /* no times of rounds: from the least and the greatest */
    a.round_ms[0] = 0, a.ms_min = 10, a.ms_max = 20, b.ms_min = 4, b.ms_max = 8;
    g = sn_bench_compare(&a, &b, true, 1);
    assert_true(g.low == 10.0 / 8 && g.high == 20.0 / 4);
}

/* A run with other options compares with the one measurement of the same work that it lacks. */
static void option_sets(void **state) {
    (void)state;
    static const double ms[] = {4, 4, 4, 4, 4, 4};
    sn_bench_record old[] = {timed(0, 6, ms), timed(4, 6, ms)},
                    now[] = {timed(4, 6, ms), timed(4, 6, ms)};
    snprintf(now[1].dtype, sizeof now[1].dtype, "int8");
    sn_bench_report before = {.list = old, .n = 2}, after = {.list = now, .n = 2};
    assert_ptr_equal(sn_bench_baseline(&after, &before, &now[0]), &old[1]);
    assert_ptr_equal(sn_bench_baseline(&after, &before, &now[1]), &old[0]);
    after = (sn_bench_report){.list = &now[1], .n = 1}; /* of two the one of its level */
    assert_ptr_equal(sn_bench_baseline(&after, &before, &now[1]), &old[1]);
    old[0].level = 4;
    snprintf(old[0].backend, sizeof old[0].backend, "onednn");
    assert_null(sn_bench_baseline(&after, &before, &now[1]));
}

static char *printed(const sn_bench_report *r, const sn_bench_report *old, double threshold,
                     sn_bench_compared *done) {
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    *done = sn_bench_print_comparison(r, old, threshold, NULL, f);
    fclose(f);
    return text;
}

/* A verdict says when it cannot be relied on; without pairs there is none. */
static void verdicts(void **state) {
    (void)state;
    static const double slow[] = {2, 2, 2, 2, 2, 2}, fast[] = {1, 1, 1, 1, 1, 1};
    sn_bench_record list[] = {timed(0, 6, slow), timed(4, 6, fast)}, before = timed(4, 6, slow);
    sn_bench_report r = {.list = list, .n = 2, .cpu = "A"},
                    old = {.list = &before, .n = 1, .cpu = "A"};
    sn_bench_compared done;
    char *text = printed(&r, NULL, 0, &done);
    assert_int_equal(done.pairs, 1);
    assert_non_null(strstr(text, "  faster"));
    assert_non_null(strstr(text, "median of the ratios in each round"));
    assert_null(strstr(text, "note:"));
    free(text);
    r.others = 80;
    text = printed(&r, NULL, 0, &done);
    assert_non_null(strstr(text, "  unreliable"));
    assert_non_null(strstr(text, "the machine was not idle: other programs used 80 %"));
    free(text);
    r.others = 0, r.n = 1, r.list = &list[1];
    text = printed(&r, &old, 0, &done);
    assert_non_null(strstr(text, "  faster"));
    assert_non_null(strstr(text, "drifts between two runs"));
    free(text);
    before.peak_gflops = 100, list[1].peak_gflops = 120;
    text = printed(&r, &old, 0, &done);
    assert_non_null(strstr(text, "  unreliable"));
    free(text);
    snprintf(old.cpu, sizeof old.cpu, "B"); /* another machine has other limits */
    old.others = 30;
    text = printed(&r, &old, 0, &done);
    assert_non_null(strstr(text, "the machines differ: B  against A"));
    assert_non_null(strstr(text, "the old run: the machine was not idle"));
    free(text);
    snprintf(before.shape, sizeof before.shape, "9x9");
    text = printed(&r, &old, 5, &done);
    assert_true(!done.pairs && !done.slower);
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(slower_levels), cmocka_unit_test(intervals),
                                       cmocka_unit_test(option_sets), cmocka_unit_test(verdicts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
