/* How the bench compares levels: an artificial report with known times. */
#include "bench/measure.h"

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

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(slower_levels)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
