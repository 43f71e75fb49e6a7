/* What `compute` "auto" becomes: by two rates, by what is known of targets, and measured, once. */
#include "codegen/program/rates.h"
#include "codegen/jit/cache.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#include "tests/support/scratch.h"

static void rates(void **state) {
    (void)state;
    static const struct {
        sn_rates r;
        bool pays, gains, takes_amx;
    } rows[] = {
        {{100, 200, 0}, true, true, false},   {{100, 120, 0}, true, true, false},
        {{100, 119, 0}, false, true, false},  {{100, 105, 0}, false, true, false},
        {{100, 104, 0}, false, false, false}, {{100, 50, 0}, false, false, false},
        {{100, 50, 120}, false, false, true}, {{100, 50, 119}, false, false, false},
        {{100, 200, 239}, true, true, false}, {{100, 200, 240}, true, true, true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(sn_rates_pay(rows[i].r), rows[i].pays);
        assert_int_equal(sn_rates_gain(rows[i].r), rows[i].gains);
        assert_int_equal(sn_rates_take_amx(rows[i].r), rows[i].takes_amx);
    }
}

static void rules(void **state) {
    (void)state;
    static const struct {
        const char *targets, *compute, *note;
    } rows[] = {
        {"znver4", "bf16", "compute auto: bf16, not measured; target znver4: vdpbf16ps has twice"},
        {"znver5,znver4", "bf16", "target znver4"},
        {"znver5,x86-64-v4", "f32", "target x86-64-v4: it has no avx512bf16"},
        {"x86-64-v3,znver5", "f32", "target x86-64-v3"},
        {"sapphirerapids", "f32", "at half the rate"},
        {"x86-64-v4,+avx512bf16", "bf16", "target x86-64-v4,+avx512bf16"},
        {"aarch64,+bf16", "f32", "compute auto: f32, not measured; target aarch64,+bf16"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        sn_options o = {.compute = "auto", .cache_dir = scratch_dir};
        sn_error err = {0};
        char note[200];
        assert_true(sn_choose_compute(&o, rows[i].targets, note, sizeof note, &err));
        assert_string_equal(o.compute, rows[i].compute);
        if (!strstr(note, rows[i].note)) fail_msg("%s: %s", rows[i].targets, note);
    }
    sn_options o = {.compute = "auto"};
    sn_error err = {0};
    char note[200];
    assert_false(sn_choose_compute(&o, "znver4,pentium9", note, sizeof note, &err));
    assert_non_null(strstr(err.message, "pentium9"));
}

static int kept(void) {
    sn_cache *c = sn_cache_open(scratch_dir, 0, NULL);
    int n = (int)sn_cache_each(c, SN_CACHE_CHOICE, NULL, NULL);
    sn_cache_close(c);
    return n;
}

/* What is not asked about is not measured. */
static void untouched(void **state) {
    (void)state;
    static const struct {
        sn_options o;
        const char *targets, *compute;
    } rows[] = {
        {{.compute = NULL}, NULL, NULL},
        {{.compute = "f32"}, NULL, "f32"},
        {{.compute = "int8"}, NULL, "int8"},
        {{.compute = "bf16", .plan_only = true}, NULL, "bf16"},
        {{.compute = "bf16-unordered", .plan_only = true}, NULL, "bf16-unordered"},
        {{.compute = "bf16"}, "aarch64", "bf16"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        sn_options o = rows[i].o;
        sn_error err = {0};
        char note[200];
        o.cache_dir = scratch_dir;
        assert_true(sn_choose_compute(&o, rows[i].targets, note, sizeof note, &err));
        assert_true(o.compute == rows[i].compute || !strcmp(o.compute, rows[i].compute));
        assert_string_equal(note, "");
    }
    assert_int_equal(kept(), 0);
}

static void measured_once(void **state) {
    (void)state;
    char note[2][200];
    sn_target t;
    sn_rates first, r;
    sn_error err = {0};
    for (int i = 0; i < 2; i++) {
        sn_options o = {.compute = "auto", .cache_dir = scratch_dir};
        assert_true(sn_choose_compute(&o, NULL, note[i], sizeof note[i], &err));
        assert_true(sn_target_init(&t, NULL, &err));
        assert_true(sn_rates_measure(&t, scratch_dir, i ? &r : &first, &err));
        assert_string_equal(o.compute, sn_rates_pay(first) ? "bf16" : "f32");
        assert_int_equal(kept(), 1);
    }
    assert_memory_equal(&first, &r, sizeof r); /* to the last bit: it was read */
    assert_string_equal(note[0], note[1]);
    assert_non_null(strstr(note[0], "GFLOP/s in bf16"));
    const bool amx = sn_target_take_amx(&t);
    assert_true(amx == (first.amx > 0) && amx == (strstr(note[0], "by AMX") != NULL));
    assert_true(!amx || sn_target_has(&t, "amx-bf16"));
    sn_options any = {.compute = "bf16-unordered", .cache_dir = scratch_dir};
    assert_true(sn_choose_compute(&any, NULL, note[1], sizeof note[1], &err));
    assert_string_equal(any.compute, sn_rates_take_amx(first) ? "bf16-unordered" : "bf16");
    assert_non_null(strstr(note[1], sn_rates_take_amx(first) ? "unordered: AMX:" : "as bf16:"));
    any.compute = "bf16-unordered"; /* artefacts, ranks: the order that all CPUs have */
    assert_true(sn_choose_compute(&any, "sapphirerapids", note[1], sizeof note[1], &err));
    assert_string_equal(any.compute, "bf16");
    assert_non_null(strstr(note[1], "compute bf16-unordered: as bf16"));
    sn_options o = {.compute = "bf16", .cache_dir = scratch_dir};
    assert_true(sn_choose_compute(&o, NULL, note[0], sizeof note[0], &err));
    assert_int_equal(!*note[0], sn_rates_gain(first));
    assert_true(!*note[0] || strstr(note[0], "compute bf16: not faster than f32"));
    assert_true(sn_target_init(&t, NULL, &err));
    assert_true(sn_rates_measure(&t, "none", &r, &err) && r.f32 > 0 && r.bf16 > 0);
    /* a rate that is not stored is one that could be: the first choice equals all later ones */
    snprintf(note[0], sizeof note[0], "%.1f %.1f %.1f", r.f32, r.bf16, r.amx);
    assert_int_equal(sscanf(note[0], "%lf %lf %lf", &first.f32, &first.bf16, &first.amx), 3);
    assert_memory_equal(&first, &r, sizeof r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rates),
        cmocka_unit_test(rules),
        cmocka_unit_test(untouched),
        cmocka_unit_test(measured_once),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_end);
}
