/* Rounding. Level 0 divides as IEEE does, by spread divisors and by constants too; other levels may
 * multiply by the reciprocal, which is at most 1.5 ulp away. The variance of rows far from 0. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "frontend/sinter.h"
#include "tests/support/jit_run.h"
#include "tests/support/scratch.h"

enum { ROWS = 32, N = 256 };
static const float constant = 0.019607844f;

/* x [ROWS, N] times a scalar, times one number per row, and times a constant; the second is not a
 * softmax. */
static sn_module *build(void) {
    sn_module *m = sn_module_new("quotients");
    sn_entry_begin(m, "go");
    sn_tensor x = sn_input(m, "x", SN_F32, ROWS, N), s = sn_input(m, "s", SN_F32, SN_SCALAR);
    sn_tensor row = sn_input(m, "row", SN_F32, ROWS, 1);
    sn_output("scalar", sn_div(x, s));
    sn_output("rows", sn_div(x, row));
    sn_output("constant", sn_div(x, (double)constant));
    sn_output("rounded", sn_round(sn_div(x, s)));
    return m;
}

static void divide(int level, double max_ulp) {
    static float x[ROWS * N], row[ROWS], y[4][ROWS * N];
    float s = constant;
    sn_error err = {0};
    for (int i = 0; i < ROWS * N; i++) x[i] = sinf((float)i) * 3;
    for (int i = 0; i < ROWS; i++) row[i] = 1.1f + 0.37f * (float)i;
    x[3] = -2.5f; /* of ONNX' dynamicquantizelinear: -127.49999 */
    sn_module *m = build();
    sn_options o = sn_options_default();
    o.level = level;
    sn_program *p = sn_compile(m, &o, &err);
    if (!p) fail_msg("%s", err.message);
    sn_session *session = sn_session_new_arrays(p, NULL, 0, &err);
    if (!session) fail_msg("%s", err.message);
    sn_arg_binding in[] = {SN_BIND("x", SN_F32, x, ROWS, N),
                           SN_BIND("row", SN_F32, row, ROWS, 1),
                           {.name = "s", .dtype = SN_F32, .data = &s}};
    sn_arg_binding out[] = {
        SN_BIND("scalar", SN_F32, y[0], ROWS, N), SN_BIND("rows", SN_F32, y[1], ROWS, N),
        SN_BIND("constant", SN_F32, y[2], ROWS, N), SN_BIND("rounded", SN_F32, y[3], ROWS, N)};
    if (!sn_run(session, "go", in, 3, out, 4, &err)) fail_msg("%s", err.message);
    for (int k = 0; k < 3; k++)
        for (int i = 0; i < ROWS * N; i++) {
            float want = x[i] / (k == 1 ? row[i / N] : constant);
            double ulp = (double)(nextafterf(fabsf(want), INFINITY) - fabsf(want));
            double away = fabs((double)y[k][i] - (double)want);
            if (!(away <= max_ulp * ulp))
                fail_msg("level %d, quotient %d: %g ulp at %d", level, k, away / ulp, i);
        }
    if (level == 0) assert_true(y[3][3] == -127);
    sn_session_free(session);
    sn_program_free(p);
    sn_module_free(m);
}

static void level_0_is_exact(void **state) {
    (void)state;
    divide(0, 0);
}

static void others_are_near(void **state) {
    (void)state;
    for (int level = 1; level <= 4; level++) divide(level, 2);
}

/* Quotients whose divisor is a quotient, a product or a root itself, of a scalar and of numbers of full size: level 0
 * rounds each operation once. */
#define QUOTIENTS(_)                                                                               \
    _(of_third, sn_div(x, sn_div(y, 3)), x / (y / 3))                                              \
    _(of_triple, sn_div(x, sn_mul(y, 3)), x / (y * 3))                                             \
    _(of_quotient, sn_div(x, sn_div(y, w)), x / (y / w))                                           \
    _(of_product, sn_div(x, sn_mul(y, w)), x / (y * w))                                            \
    _(of_recip, sn_div(x, sn_div(1, y)), x / (1 / y))                                              \
    _(times_recip, sn_mul(x, sn_div(1, y)), 1 / y * x)                                             \
    _(of_root, sn_div(x, sn_sqrt(y)), x / sqrtf(y))                                                \
    _(scaled, sn_div(sn_mul(x, 3), y), x * 3 / y)                                                  \
    _(inverse, sn_div(1, sn_mul(y, 3)), 1 / (y * 3))                                               \
    _(inverted, sn_div(1, sn_div(y, w)), 1 / (y / w))

static void level_0_divides_as_written(void **state) {
    (void)state;
    enum { N_X = 1024 };
    static float x_of[N_X], y_of[N_X], w_of[N_X], got[N_X];
    for (int i = 0; i < N_X; i++) {
        x_of[i] = sinf((float)i) * 3;
        y_of[i] = 0.7f + 0.37f * (float)(i % 97);
        w_of[i] = 1.3f + 0.11f * (float)(i % 89);
    }
    for (int scalar = 0; scalar < 2; scalar++) {
        sn_error err = {0};
        sn_module *m = sn_module_new("quotients");
        sn_entry_begin(m, "go");
        sn_tensor x = sn_input(m, "x", SN_F32, N_X);
        sn_tensor y = scalar ? sn_input(m, "y", SN_F32, SN_SCALAR) : sn_input(m, "y", SN_F32, N_X);
        sn_tensor w = scalar ? sn_input(m, "w", SN_F32, SN_SCALAR) : sn_input(m, "w", SN_F32, N_X);
#define OUTPUT(name, graph, formula) sn_output(#name, sn_add(graph, sn_mul(x, 0)));
        QUOTIENTS(OUTPUT)
#undef OUTPUT
        sn_program *p = sn_compile(m, &(sn_options){.level = 0, .cache_dir = "none"}, &err);
        sn_session *session = p ? sn_session_new_arrays(p, NULL, 0, &err) : NULL;
        if (!session) fail_msg("%s", err.message);
        sn_arg_binding in[3] = {SN_BIND("x", SN_F32, x_of, N_X), SN_BIND("y", SN_F32, y_of, N_X),
                                SN_BIND("w", SN_F32, w_of, N_X)};
        if (scalar) in[1].rank = in[2].rank = 0;
#define COMPARE(name, graph, formula)                                                              \
    {                                                                                              \
        sn_arg_binding out = SN_BIND(#name, SN_F32, got, N_X);                                     \
        if (!sn_run(session, "go", in, 3, &out, 1, &err)) fail_msg("%s", err.message);             \
        for (int i = 0; i < N_X; i++) {                                                            \
            float x = x_of[i], y = y_of[scalar ? 0 : i], w = w_of[scalar ? 0 : i];                 \
            (void)x, (void)w;                                                                      \
            if (got[i] != (formula)) fail_msg("%s: %a, not %a", #name, got[i], formula);           \
        }                                                                                          \
    }
        QUOTIENTS(COMPARE)
#undef COMPARE
        sn_session_free(session);
        sn_program_free(p);
        sn_module_free(m);
    }
}

/* Rows of mean 1e6 and deviation 1. */
static void variance_far_from_0(void **state) {
    (void)state;
    static float x[ROWS * N], y[ROWS];
    sn_error err = {0};
    for (int i = 0; i < ROWS * N; i++) x[i] = 1e6f + 1.4f * sinf(1.7f * (float)i);
    for (int level = 0; level <= 4; level += 4) {
        sn_module *m = sn_module_new("variance");
        sn_entry_begin(m, "go");
        sn_output("y", sn_variance(sn_input(m, "x", SN_F32, ROWS, N), -1));
        sn_options o = sn_options_default();
        o.level = level;
        sn_program *p = sn_compile(m, &o, &err);
        sn_session *session = p ? sn_session_new_arrays(p, NULL, 0, &err) : NULL;
        if (!session) fail_msg("%s", err.message);
        sn_arg_binding in = SN_BIND("x", SN_F32, x, ROWS, N), out = SN_BIND("y", SN_F32, y, ROWS);
        if (!sn_run(session, "go", &in, 1, &out, 1, &err)) fail_msg("%s", err.message);
        for (int r = 0; r < ROWS; r++) {
            double mean = 0, want = 0;
            for (int i = 0; i < N; i++) mean += (double)x[r * N + i] / N;
            for (int i = 0; i < N; i++) want += pow((double)x[r * N + i] - mean, 2) / N;
            if (!(fabs((double)y[r] - want) <= 1e-6 * want))
                fail_msg("level %d, row %d: %g, not %g", level, r, (double)y[r], want);
        }
        sn_session_free(session);
        sn_program_free(p);
        sn_module_free(m);
    }
}

/* A product of a matrix with its transpose multiplies one triangle. It has the bits of the product with an equal matrix,
 * and equal bits on both sides of the diagonal. */
static void symmetric_product(void **state) {
    (void)state;
    enum { SIDE = 150, DEPTH = 517 };
    static const sn_dtype types[] = {SN_F32, SN_F64, SN_BF16};
    static double x[SIDE * DEPTH], y[2][SIDE * SIDE];
    for (int i = 0; i < SIDE * DEPTH; i++) x[i] = sin(i) * 3;
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        sn_error err = {0};
        sn_module *m = sn_module_new("gram");
        sn_entry_begin(m, "go");
        sn_dtype arithmetic = types[t] == SN_F64 ? SN_F64 : SN_F32;
        for (int k = 0; k < 2; k++) {
            sn_tensor a = sn_cast(sn_input(m, "a", SN_F64, SIDE, DEPTH), arithmetic), b = a;
            if (k) b = sn_cast(sn_input(m, "b", SN_F64, SIDE, DEPTH), arithmetic);
            sn_output(k ? "full" : "half", sn_cast(sn_matmul(a, sn_swap(b, 0, 1)), SN_F64));
        }
        sn_options o = sn_options_default();
        if (types[t] == SN_BF16) o.compute = "bf16";
        sn_program *p = sn_compile(m, &o, &err);
        sn_session *session = p ? sn_session_new_arrays(p, NULL, 0, &err) : NULL;
        if (!session) fail_msg("%s", err.message);
        sn_arg_binding in[] = {SN_BIND("a", SN_F64, x, SIDE, DEPTH),
                               SN_BIND("b", SN_F64, x, SIDE, DEPTH)};
        sn_arg_binding out[] = {SN_BIND("half", SN_F64, y[0], SIDE, SIDE),
                                SN_BIND("full", SN_F64, y[1], SIDE, SIDE)};
        if (!sn_run(session, "go", in, 2, out, 2, &err)) fail_msg("%s", err.message);
        assert_memory_equal(y[0], y[1], sizeof y[0]);
        for (int i = 0; i < SIDE; i++)
            for (int j = 0; j < i; j++)
                assert_memory_equal(&y[0][i * SIDE + j], &y[0][j * SIDE + i], sizeof(double));
        sn_session_free(session);
        sn_program_free(p);
        sn_module_free(m);
    }
}

/* ---- numbers of fewer bits in kernels of wider ones ---- */

enum { WIDTH = 19 };

/* x [4, WIDTH] f64: no number of f32; in `big` the sum of a row in f32 is 2^24 + 1, which rounds. */
static void *wide_leaf(void *ctx, const sn_node *leaf, const int64_t *symbol, size_t *bytes) {
    (void)ctx;
    (void)symbol;
    const bool big = !strcmp(sn_attr_str(leaf, SN_A_name, ""), "big");
    *bytes = 4 * WIDTH * sizeof(double);
    double *x = calloc(4 * WIDTH, sizeof *x);
    for (int i = 0; x && i < 4 * WIDTH; i++)
        x[i] = !big ? 1.5 + sin(i) : i % WIDTH == 3 ? 0x1p24 : i % WIDTH == 17 ? 1 : 0;
    return x;
}

/* f of x as `type`, minus x: fused, all of it is one kernel of f64. */
static void remainder_of(const char *name, sn_tensor x, sn_dtype type, sn_tensor (*f)(sn_tensor)) {
    sn_output(name, sn_sub(sn_cast(f(sn_cast(x, type)), SN_F64), x));
}

static sn_tensor itself(sn_tensor x) {
    return x;
}

static sn_tensor polynomial(sn_tensor x) {
    return sn_add(sn_mul(x, sn_add(sn_mul(x, x), 0.1)), sn_div(1, x));
}

static sn_tensor largest(sn_tensor x) {
    return sn_max(sn_neg(x), sn_min(sn_sqrt(x), sn_abs(x)));
}

/* Every value is rounded to its type at every level, as the evaluator rounds it, whatever the kernel computes in. */
static void narrow_values_round(void **state) {
    (void)state;
    static const struct {
        const char *name;
        sn_dtype type;
    } types[] = {{"f32", SN_F32}, {"bf16", SN_BF16}, {"f16", SN_F16}};
    static const char *const targets[] = {"native", "x86-64-v3", "x86-64"};
    for (int k = 0; k < 7; k++) { /* all levels here, the highest on smaller CPUs */
        sn_module *m = sn_module_new("narrow");
        sn_entry_begin(m, "go");
        sn_tensor x = sn_input(m, "x", SN_F64, 4, WIDTH),
                  big = sn_input(m, "big", SN_F64, 4, WIDTH);
        for (int t = 0; t < 3; t++) {
            char name[3][32];
            for (int i = 0; i < 3; i++) snprintf(name[i], sizeof name[i], "%s%d", types[t].name, i);
            remainder_of(name[0], x, types[t].type, itself);
            remainder_of(name[1], x, types[t].type, polynomial);
            remainder_of(name[2], x, types[t].type, largest);
        }
        sn_tensor sum = sn_sum_keep(sn_cast(big, SN_F32), -1);
        sn_output("sum", sn_sub(big, sn_cast(sum, SN_F64)));
        sn_tensor place = sn_cast(sn_arange(m, SN_I32, WIDTH), SN_BF16);
        sn_output("place", sn_mul(x, sn_cast(sn_mul(place, 77), SN_F64)));
        jit_run run;
        sn_options o = {.level = k < 5 ? k : 4, .threads = 1, .target = targets[k < 5 ? 0 : k - 4]};
        bool ok = jit_open(&run, m, &o, wide_leaf, NULL);
        run.single = true;
        ok = ok && jit_check(&run, "go", NULL, 0x1p-51, 0);
        if (!ok) print_error("level %d, %s: %s\n", o.level, o.target, run.why);
        jit_close(&run);
        sn_module_free(m);
        assert_true(ok);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(level_0_is_exact),           cmocka_unit_test(others_are_near),
        cmocka_unit_test(level_0_divides_as_written), cmocka_unit_test(variance_far_from_0),
        cmocka_unit_test(symmetric_product),          cmocka_unit_test(narrow_values_round),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_end);
}
