/* check_nan: a run stops after the kernel that produced the first NaN or infinity, names it with
 * the user's line, and leaves states unchanged; intended infinities are not reported. */
#include "frontend/sinter.h"
#include "ir/ir.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include "tests/support/scratch.h"

enum { N = 6 };

typedef struct trial {
    sn_module *m;
    sn_program *p;
    sn_session *s;
    int line; /* of the operation that fails */
} trial;

static void open_trial(trial *t, int level, const char *backend) {
    sn_error err = {0};
    sn_options o = {.level = level, .threads = 2, .backend = backend, .check_nan = true};
    t->p = sn_compile(t->m, &o, &err);
    if (!t->p) fail_msg("%s", err.message);
    t->s = sn_session_new_arrays(t->p, NULL, 0, &err);
    if (!t->s) fail_msg("%s", err.message);
}

static void close_trial(trial *t) {
    sn_session_free(t->s);
    sn_program_free(t->p);
    sn_module_free(t->m);
}

/* y = softmax(exp(x) + log(x - 1)), and a state that adds y up. */
static trial logarithm(int level) {
    trial t = {.m = sn_module_new("logarithm")};
    sn_tensor x = sn_input(t.m, "x", SN_F32, sn_symbol(t.m, "B", 1, 9), N);
    sn_tensor less = sn_sub(x, 1);
    t.line = __LINE__ + 1;
    sn_tensor y = sn_log(less);
    sn_tensor sum = sn_state(t.m, "sum", SN_F32, N);
    y = sn_softmax(sn_add(sn_exp(x), y), 1);
    sn_entry_begin(t.m, "main");
    sn_output("y", y);
    sn_assign(sum, sn_add(sum, sn_sum(y, 0)));
    open_trial(&t, level, "native");
    return t;
}

static bool run(const trial *t, const float *x, sn_error *err) {
    sn_arg_binding in = SN_BIND("x", SN_F32, (void *)(uintptr_t)x, 2, N);
    *err = (sn_error){0};
    return sn_run(t->s, "main", &in, 1, NULL, 0, err);
}

static void expect(const sn_error *err, const char *text) {
    assert_int_equal(err->code, SN_ERR_RANGE);
    if (!strstr(err->message, text)) fail_msg("'%s' is not in: %s", text, err->message);
}

static void names_the_first(void **state) {
    (void)state;
    for (int level = 0; level <= 4; level += 2) {
        trial t = logarithm(level);
        sn_error err;
        float good[2 * N], bad[2 * N], before[N], after[N], sum = 0;
        for (int i = 0; i < 2 * N; i++) good[i] = bad[i] = 1.5F + 0.1F * (float)i;
        if (!run(&t, good, &err)) fail_msg("%s", err.message);
        assert_true(sn_state_read(t.s, "sum", before, sizeof before, &err));
        for (int i = 0; i < N; i++) sum += before[i];
        assert_true(fabsf(sum - 2) < 1e-5F);
        bad[7] = 0.5F;
        assert_false(run(&t, bad, &err));
        expect(&err, "the first NaN is produced by kernel");
        expect(&err, "log");
        expect(&err, "test_check_nan.c:");
        if (level == 0) { /* the operation itself */
            char line[32];
            snprintf(line, sizeof line, "test_check_nan.c:%d)", t.line);
            expect(&err, line);
            expect(&err, "element 7");
        }
        assert_true(sn_state_read(t.s, "sum", after, sizeof after, &err));
        assert_memory_equal(before, after, sizeof before);
        bad[7] = 100; /* e^100 */
        assert_false(run(&t, bad, &err));
        if (level == 0) expect(&err, "the first infinity is produced by kernel");
        bad[7] = NAN;
        assert_false(run(&t, bad, &err));
        expect(&err, "the input 'x' has a NaN at element 7");
        if (!run(&t, good, &err)) fail_msg("%s", err.message); /* the session can still be used */
        close_trial(&t);
    }
}

/* Hidden scores are -inf on purpose, at every level. */
static void masks_are_no_finding(void **state) {
    (void)state;
    for (int level = 0; level <= 4; level += 2) {
        trial t = {.m = sn_module_new("masked")};
        sn_tensor x = sn_input(t.m, "x", SN_F32, 2, N);
        sn_tensor hidden = sn_lt(sn_iota(t.m, SN_I32, 1, 2, N), 3);
        sn_entry_begin(t.m, "main");
        sn_output("y", sn_softmax(sn_mask_scores(x, hidden), 1));
        sn_output("scores", sn_mask_scores(x, hidden));
        open_trial(&t, level, "native");
        float x_data[2 * N] = {1, 2, 3};
        sn_error err;
        if (!run(&t, x_data, &err)) fail_msg("level %d: %s", level, err.message);
        close_trial(&t);
    }
}

/* Findings in each type; what is read as an infinity may stay one. */
static void every_type(void **state) {
    (void)state;
    static const struct {
        double x; /* the operand of log(x - 1) */
        const char *found;
    } rows[] = {{1.5, NULL}, {0.5, "NaN"}, {1, "infinity"}, {INFINITY, NULL}, {60000, NULL}};
    static const sn_dtype types[] = {SN_F64, SN_F32, SN_BF16, SN_F16};
    for (int i = 0; i < 4; i++) {
        trial t = {.m = sn_module_new("types")};
        sn_tensor x = sn_input(t.m, "x", types[i], 3, N);
        sn_entry_begin(t.m, "main");
        sn_output("y", sn_log(sn_sub(x, 1)));
        open_trial(&t, 0, "native");
        for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
            uint64_t data[3 * N];
            sn_error err = {0};
            for (int k = 0; k < 3 * N; k++)
                sn_dtype_store(types[i], data, k, k == 2 * N + 1 ? rows[r].x : 2);
            sn_arg_binding in = SN_BIND("x", types[i], data, 3, N);
            char text[64];
            snprintf(text, sizeof text, "element 13 of its result %s[3,6]",
                     sn_dtype_name(types[i]));
            if (sn_run(t.s, "main", &in, 1, NULL, 0, &err) != !rows[r].found)
                fail_msg("%s, %g: %s", sn_dtype_name(types[i]), rows[r].x, err.message);
            if (!rows[r].found) continue;
            expect(&err, rows[r].found);
            expect(&err, text);
        }
        close_trial(&t);
    }
}

static void keep_and_add(sn_scan_step *s) {
    sn_tensor k = sn_expand(s->x[0], -1), v = sn_expand(s->x[1], -2);
    s->next[0] = sn_add(sn_mul(s->carry[0], 0.5), sn_mul(k, v));
    s->y[0] = sn_sum(sn_mul(s->next[0], k), 0);
}

/* A recurrence keeps its states before blocks for a gradient, in memory for more of them. */
static void unused_memory_is_no_finding(void **state) {
    (void)state;
    enum { T = 70 };
    static float x_data[T * N], dx[T * N];
    trial t = {.m = sn_module_new("recurrence")};
    sn_tensor x = sn_input(t.m, "x", SN_F32, sn_symbol(t.m, "T", 1, 99), N), g;
    sn_tensor zero = sn_full(t.m, SN_F32, 0, N, N);
    sn_scanned y = sn_scan(.carry = {zero}, .x = {x, sn_tanh(x)}, .body = keep_and_add);
    sn_entry_begin(t.m, "main");
    sn_grad(sn_sum_all(sn_square(y.y[0])), 1, &x, &g);
    sn_output("dx", g);
    open_trial(&t, 4, "native");
    for (int i = 0; i < T * N; i++) x_data[i] = (float)(i % 7) / 8;
    for (int64_t n = T; n > 0; n -= 23) {
        sn_arg_binding out = SN_BIND("dx", SN_F32, dx, n, N);
        for (int bad = 1; bad >= 0; bad--) { /* what the longest run left is still there */
            sn_error err = {0};
            x_data[3] = bad ? NAN : 0.5F;
            sn_arg_binding in = SN_BIND("x", SN_F32, x_data, bad ? T : n, N);
            out.shape = in.shape;
            if (sn_run(t.s, "main", &in, 1, &out, 1, &err) == bad)
                fail_msg("%d: %s", (int)n, bad ? "a NaN was not found" : err.message);
        }
    }
    close_trial(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_the_first),
        cmocka_unit_test(masks_are_no_finding),
        cmocka_unit_test(every_type),
        cmocka_unit_test(unused_memory_is_no_finding),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_end);
}
