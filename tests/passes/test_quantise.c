/* Weights in bf16, int8 and int4: the compiled product is exactly that of the rounded weights, at
 * every level and shape of batch; the weights really are stored narrow; unknown storage is
 * refused. */
#include "tests/support/noise.h"
#include "frontend/sinter.h"
#include "passes/passes.h"
#include "tests/support/text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { N = 45, M = 17, MAX_K = 6208, HALF = 22 };

static const sn_keep *keep; /* of `check`; NULL: nothing */

static void need(bool ok, const sn_error *err) {
    if (!ok) fail_msg("%s", err->message);
}

/* What the option makes of row r of W. */
static void round_int8(int K, const float *w, double *out) {
    float most = 1e-30f;
    for (int k = 0; k < K; k++) most = fmaxf(most, fabsf(w[k]));
    float scale = most * (float)(1 / 127.0);
    for (int k = 0; k < K; k++) out[k] = (double)rintf(w[k] / scale) * (double)scale;
}

static void round_int4(const float *w, double *out) {
    float most = 0;
    for (int k = 0; k < 32; k++)
        if (fabsf(w[k]) > fabsf(most)) most = w[k];
    float scale = sn_bf16_to_f32(sn_f32_to_bf16(most * -0.125f));
    for (int k = 0; k < 32; k++)
        out[k] = most == 0 ? 0 : fmaxf(-8, fminf(7, rintf(w[k] / scale))) * (double)scale;
}

static void round_row(const char *weights, int K, const float *w, double *out) {
    if (!strcmp(weights, "f32"))
        for (int k = 0; k < K; k++) out[k] = w[k];
    else if (!strcmp(weights, "bf16"))
        for (int k = 0; k < K; k++) out[k] = (double)sn_bf16_to_f32(sn_f32_to_bf16(w[k]));
    else if (!strcmp(weights, "int8") || K % 32)
        round_int8(K, w, out);
    else
        for (int k = 0; k < K; k += 32) round_int4(w + k, out + k);
}

static float w[N * MAX_K], bias[N], x[M * MAX_K], y[M * N];
static double row[N][MAX_K]; /* of w, rounded */

/* x W^T + b at row i, column j; size: of what it is a sum. */
static double product(int K, int i, int j, double *size) {
    double sum = bias[j];
    *size = 1;
    for (int k = 0; k < K; k++) {
        sum += row[j][k] * (double)x[i * K + k];
        *size += fabs(row[j][k] * (double)x[i * K + k]);
    }
    return sum;
}

static void check_result(int K, int i, int j, int columns, bool gate) {
    double size, other, want = product(K, i, j, &size);
    if (gate) {
        want = fmax(0, want) * product(K, i, j + HALF, &other);
        size *= other;
    }
    assert_true(fabs((double)y[i * columns + j] - want) <= 1e-6 * size);
}

/* gate: max(0, first half) second half, of two linear maps. */
static void check(const char *weights, int level, int K, const char *target, const char *stored,
                  bool gate) {
    for (int i = 0; i < N * K; i++) w[i] = noise_at((uint32_t)i);
    memset(w + K, 0, sizeof *w * 32); /* a whole group of zeros */
    const char *rounds = keep && strcmp(keep->param, "b") ? keep->weights : weights;
    for (int j = 0; j < N; j++) round_row(rounds, K, w + (ptrdiff_t)j * K, row[j]);
    for (int i = 0; i < N; i++) bias[i] = noise_at((uint32_t)i + 7777);
    for (int i = 0; i < M * K; i++) x[i] = noise_at((uint32_t)i + 99999);
    sn_error err = {0};
    sn_module *m = sn_module_new("quantised");
    assert_non_null(m);
    sn_entry_begin(m, "run");
    sn_dim T = sn_symbol(m, "T", 0, M);
    sn_tensor in = sn_input(m, "x", SN_F32, T, K);
    int columns = gate ? HALF : N;
    sn_tensor first =
        sn_linear(in, sn_param(m, "w", SN_F32, columns, K), sn_param(m, "b", SN_F32, columns));
    if (gate)
        first = sn_mul(sn_relu(first), sn_linear(in, sn_param(m, "u", SN_F32, HALF, K),
                                                 sn_param(m, "c", SN_F32, HALF)));
    sn_output("y", first);
    sn_options o = sn_options_default();
    o.level = level;
    o.weights = weights;
    o.keep = keep;
    o.n_keep = keep != NULL;
    o.target = target;
    sn_program *p = sn_compile(m, &o, &err);
    need(p != NULL, &err);
    sn_arg_binding param[] = {SN_BIND("w", SN_F32, w, columns, K),
                              SN_BIND("b", SN_F32, bias, columns),
                              SN_BIND("u", SN_F32, w + (ptrdiff_t)HALF * K, HALF, K),
                              SN_BIND("c", SN_F32, bias + HALF, HALF)};
    sn_session *s = sn_session_new_arrays(p, param, gate ? 4 : 2, &err);
    need(s != NULL, &err);
    static const int lengths[] = {0, 1, 2, M};
    for (int l = 0; l < 4; l++) {
        int t = lengths[l];
        sn_arg_binding xi = SN_BIND("x", SN_F32, x, t, K), yo = SN_BIND("y", SN_F32, y, t, columns);
        need(sn_run(s, "run", &xi, 1, &yo, 1, &err), &err);
        for (int i = 0; i < t * columns; i++)
            check_result(K, i / columns, i % columns, columns, gate);
    }
    char *text = explain_text(p, "run");
    if (gate && level == 4) assert_non_null(strstr(text, "gate of 2 x 22 columns"));
    free(text);
    text = explain_text(p, "@prepare");
    const char *pack = strstr(text, "pack  ");
    assert_true(pack && strstr(pack, stored));
    free(text);
    sn_session_free(s);
    sn_program_free(p);
    sn_module_free(m);
}

static void narrow_weights(void **state) {
    (void)state;
    static const int levels[] = {0, 2, 4};
    for (int l = 0; l < 3; l++) {
        check("bf16", levels[l], 70, NULL, " bf16[", false);
        check("int8", levels[l], 70, NULL, " i8[", false);
        check("int4", levels[l], 96, NULL, " i32[", false);
    }
    check("int4", 4, 128, "x86-64-v3", " i32[", false);
    check("int4", 4, 64, "x86-64", " i32[", false);
    check("int8", 4, 80, "x86-64-v3", " i8[", false);
    check("int8", 4, 64, "x86-64", " i8[", false);
    check("int4", 4, 70, NULL, " i8[", false); /* rows of no whole groups */
}

static void gates(void **state) {
    (void)state;
    static const char *const targets[] = {NULL, "x86-64-v3"};
    for (int i = 0; i < 2; i++) {
        check("f32", 4, 70, targets[i], " f32[", true);
        check("bf16", 4, 70, targets[i], " bf16[", true);
        check("int8", 4, 96, targets[i], " i8[", true);
        check("int4", 4, 96, targets[i], " i32[", true);
    }
    check("int4", 2, 96, NULL, " i32[", true);
}

static void long_rows(void **state) { /* several rows widen their panels piece by piece */
    (void)state;
    check("int4", 4, MAX_K, NULL, " i32[", false);
}

/* A matrix of the list `keep` has more bits, and a merged product those that one of its matrices needs. */
static void kept(void **state) {
    (void)state;
    static const sn_keep kinds[] = {
        {"w", "int8", false}, {"u", "bf16", false}, {"w", "f32", false}, {"b", "f32", false}};
    static const char *const stored[] = {" i8[", " bf16[", " f32[", " i32[" /* "b" is not in it */};
    for (int i = 0; i < 4; i++)
        for (int level = 2; level <= 4; level += 2) {
            if ((i == 1 || i == 3) && level == 2) continue; /* "u" is not merged */
            keep = &kinds[i];
            check("int4", level, 96, NULL, stored[i], i == 1);
        }
    sn_error err = {0};
    sn_module *m = sn_module_new("none");
    assert_non_null(m);
    sn_options o = sn_options_default();
    o.keep = &(sn_keep){"w", "int3", false};
    o.n_keep = 1;
    assert_null(sn_compile(m, &o, &err));
    assert_int_equal(err.code, SN_ERR_USAGE);
    sn_module_free(m);
    keep = NULL;
}

static void unknown_storage(void **state) {
    (void)state;
    sn_error err = {0};
    sn_module *m = sn_module_new("none");
    assert_non_null(m);
    sn_options o = sn_options_default();
    o.weights = "int3";
    assert_null(sn_compile(m, &o, &err));
    assert_int_equal(err.code, SN_ERR_USAGE);
    assert_non_null(strstr(err.message, "int3"));
    assert_non_null(strstr(err.message, "int8"));
    sn_module_free(m);
}

/* Only what is stored is stored in fewer bits, not matrices and tables that a call brings or computes. */
static void parameters_only(void **state) {
    (void)state;
    enum { SIZE = 32 };
    for (int kind = 0; kind < 4; kind++) {
        sn_module *m = sn_module_new("weights");
        sn_entry_begin(m, "run");
        sn_tensor in = sn_input(m, "x", SN_F32, 2, SIZE);
        sn_tensor own = sn_param(m, "w", SN_F32, SIZE, SIZE);
        sn_tensor given = sn_input(m, "g", SN_F32, SIZE, SIZE);
        sn_tensor matrix[] = {own, given, sn_mul(own, given), sn_state(m, "s", SN_F32, SIZE, SIZE)};
        sn_output("y", sn_linear(in, matrix[kind], NULL));
        sn_output("r", sn_embedding(matrix[kind], sn_input(m, "i", SN_I32, 2)));
        sn_passes p;
        const sn_pass_options o = {.level = 4,
                                   .backend = "native",
                                   .only = "quantise",
                                   .verify = true,
                                   .weights = "int8",
                                   .constant_params = true};
        if (!sn_passes_run(&p, m, &o)) fail_msg("%s", sn_module_error(m)->message);
        char *text = module_text(m);
        assert_true((strstr(text, "i8[") != NULL) == (kind == 0));
        free(text);
        sn_module_free(m);
    }
}

enum { ROWS = 3, U = 32, V = 48, OUTPUTS = ROWS * (2 * N + U + V) };

/* Two maps of x, by a table and by a matrix whose rows are not contiguous; two of tanh x that are merged;
 * rows of the table. Level 4 quantises while it packs (text: in what its kernels are called), level 3
 * before. */
static void run_both(int level, const char *weights, const char *compute, const char *text, int K,
                     float *out) {
    sn_error err = {0};
    sn_module *m = sn_module_new("both");
    assert_non_null(m);
    sn_entry_begin(m, "run");
    sn_tensor table = sn_param(m, "t", SN_F32, N, K), in = sn_input(m, "x", SN_F32, ROWS, K);
    sn_output("y", sn_linear(in, table, NULL));
    sn_output("z", sn_linear(in, sn_transpose(sn_param(m, "w", SN_F32, K, N), 1, 0), NULL));
    in = sn_tanh(in);
    sn_output("u", sn_linear(in, sn_param(m, "u", SN_F32, U, K), NULL));
    sn_output("v", sn_linear(in, sn_param(m, "v", SN_F32, V, K), NULL));
    sn_output("r", sn_embedding(table, sn_input(m, "i", SN_I32, 2)));
    sn_options o = sn_options_default();
    o.level = level;
    o.weights = weights;
    o.compute = compute;
    o.threads = level - 2;
    sn_program *p = sn_compile(m, &o, &err);
    need(p != NULL, &err);
    sn_arg_binding param[] = {SN_BIND("t", SN_F32, w, N, K),
                              SN_BIND("w", SN_F32, w + (ptrdiff_t)N * K, K, N),
                              SN_BIND("u", SN_F32, w + (ptrdiff_t)2 * N * K, U, K),
                              SN_BIND("v", SN_F32, w + (ptrdiff_t)(2 * N + U) * K, V, K)};
    sn_session *s = sn_session_new_arrays(p, param, 4, &err);
    need(s != NULL, &err);
    int32_t ids[] = {N - 1, 7};
    sn_arg_binding arg[] = {SN_BIND("x", SN_F32, x, ROWS, K), SN_BIND("i", SN_I32, ids, 2)},
                   res[] = {SN_BIND("y", SN_F32, out, ROWS, N),
                            SN_BIND("z", SN_F32, out + ROWS * N, ROWS, N),
                            SN_BIND("u", SN_F32, out + ROWS * 2 * N, ROWS, U),
                            SN_BIND("v", SN_F32, out + ROWS * (2 * N + U), ROWS, V),
                            SN_BIND("r", SN_F32, out + OUTPUTS, 2, K)};
    need(sn_run(s, "run", arg, 2, res, 5, &err), &err);
    char *kernels = explain_text(p, "@prepare");
    if (level == 4 && !strstr(kernels, text)) fail_msg("no '%s' in:\n%s", text, kernels);
    free(kernels);
    sn_session_free(s);
    sn_program_free(p);
    sn_module_free(m);
}

static void quantised_while_packed(void **state) {
    (void)state;
    static const struct {
        const char *weights, *compute, *text;
        int K;
    } cases[] = {{"int4", NULL, "prologue: ", 96},
                 {"int8", NULL, "prologue: ", 96},
                 {"int8", "int8", "prologue: ", 80}};
    static float out[2][OUTPUTS + 2 * MAX_K];
    for (int i = 0; i < N * MAX_K; i++) w[i] = noise_at((uint32_t)i);
    for (int i = 0; i < M * MAX_K; i++) x[i] = noise_at((uint32_t)i + 99);
    w[5] = INFINITY, w[200] = NAN, w[4000] = -INFINITY; /* scales of infinity and NaN, numbers 0 */
    for (int i = 0; i < 64; i++) w[96 * 7 + i] = i % 2 ? -0.0F : 0;
    for (int c = 0; c < 3; c++) {
        for (int level = 3; level <= 4; level++)
            run_both(level, cases[c].weights, cases[c].compute, cases[c].text, cases[c].K,
                     out[level - 3]);
        for (int i = 0; i < OUTPUTS + 2 * cases[c].K; i++)
            if (memcmp(&out[0][i], &out[1][i], sizeof out[0][i]) &&
                !(isnan(out[0][i]) && isnan(out[1][i])))
                fail_msg("%s: element %d is %g, not %g", cases[c].weights, i, (double)out[1][i],
                         (double)out[0][i]);
        const int K = cases[c].K;
        round_row(cases[c].weights, K, w + (ptrdiff_t)(N - 1) * K, row[0]);
        for (int k = 0; k < K; k++) /* what was looked up */
            assert_true(out[1][OUTPUTS + k] == (float)row[0][k]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(narrow_weights),
                                       cmocka_unit_test(gates),
                                       cmocka_unit_test(long_rows),
                                       cmocka_unit_test(kept),
                                       cmocka_unit_test(unknown_storage),
                                       cmocka_unit_test(parameters_only),
                                       cmocka_unit_test(quantised_while_packed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
