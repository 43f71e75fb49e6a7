/* Option `compute` int8 with weights in groups (int4, the blocks of GGUF files): linear maps of rows
 * rounded to 8 bits with the weights as they are stored, against sums in double; the same bits for
 * any number of threads; on every target. */
#include "tests/support/noise.h"
#include "frontend/sinter.h"
#include "tests/support/text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FORMATS SN_SOURCE_DIR "/tests/data/gguf/formats"

enum { MAX_M = 40, MAX_N = 64, MAX_K = 1056, LONG_K = 6176 /* rows in pieces everywhere */ };

static void need(bool ok, const sn_error *err) {
    if (!ok) fail_msg("%s", err->message);
}

static float w[MAX_N * MAX_K], x[MAX_M * MAX_K], y[MAX_M * MAX_N], again[MAX_M * MAX_N];
static double row[MAX_N * MAX_K]; /* what is stored of w */

/* Values with some extremes: sums of the largest products show an overflow. */
static void fill_rows(int K) {
    for (int i = 0; i < MAX_M * MAX_K; i++) x[i] = noise_at((uint32_t)i + 99999);
    for (int k = 0; k < K; k++) x[2 * K + k] = 1;
    for (int k = 0; k < K; k++) x[5 * K + k] = k % 2 ? -3 : 3;
}

/* Row i of x W^T at column j, of rows rounded as the option says. size: of what it is a sum. */
static double product(int K, int i, int j, double *size) {
    float most = 1e-30f;
    for (int k = 0; k < K; k++) most = fmaxf(most, fabsf(x[i * K + k]));
    float steps = 127 / most;
    double scale = (double)(most * (float)(1 / 127.0)), sum = 0;
    *size = 0;
    for (int k = 0; k < K; k++) {
        double term = scale * (double)rintf(x[i * K + k] * steps) * row[j * K + k];
        sum += term;
        *size += fabs(term);
    }
    return sum;
}

static void check_rows(sn_session *s, sn_session *two, int M, int N, int K, const char *what) {
    sn_error err = {0};
    sn_arg_binding xi = SN_BIND("x", SN_F32, x, M, K), yo = SN_BIND("y", SN_F32, y, M, N),
                   zo = SN_BIND("y", SN_F32, again, M, N);
    need(sn_run(s, "run", &xi, 1, &yo, 1, &err), &err);
    if (two) need(sn_run(two, "run", &xi, 1, &zo, 1, &err), &err);
    if (two) assert_memory_equal(y, again, sizeof *y * (size_t)(M * N));
    for (int i = 0; i < M * N; i++) {
        double size, want = product(K, i / N, i % N, &size);
        if (!(fabs((double)y[i] - want) <= 2e-6 * size))
            fail_msg("%s: row %d of %d, column %d is %g, not %g", what, i / N, M, i % N,
                     (double)y[i], want);
    }
}

typedef struct way {
    const char *weights, *target;
    int level;
    const sn_weights *source; /* NULL: none */
    int threads;              /* 2: compares bits with those of one thread */
} way;

static sn_program *build(sn_module *m, sn_tensor weight, int K, const way *how, int threads,
                         sn_error *err) {
    sn_dim T = sn_symbol(m, "T", 0, MAX_M);
    sn_output("y", sn_linear(sn_input(m, "x", SN_F32, T, K), weight, NULL));
    sn_options o = sn_options_default();
    o.level = how->level;
    o.threads = threads;
    o.target = how->target;
    o.weights = how->weights;
    o.source = how->source;
    o.compute = "int8";
    return sn_compile(m, &o, err);
}

typedef struct program {
    sn_module *m;
    sn_program *p;
    sn_session *s;
} program;

static program open_program(const char *what, int N, int K, const way *how, int threads) {
    sn_error err = {0};
    program r = {.m = sn_module_new("groups")};
    assert_non_null(r.m);
    sn_entry_begin(r.m, "run");
    sn_tensor weight = sn_param(r.m, what, SN_F32, how->source ? 2 : N, K);
    for (int j = 2; how->source && j < N; j *= 2) weight = sn_concat(0, weight, weight);
    r.p = build(r.m, weight, K, how, threads, &err);
    need(r.p != NULL, &err);
    sn_arg_binding param = SN_BIND(what, SN_F32, w, N, K);
    r.s = how->source ? sn_session_new(r.p, how->source, &err)
                      : sn_session_new_arrays(r.p, &param, 1, &err);
    need(r.s != NULL, &err);
    return r;
}

static void close_program(program *r) {
    sn_session_free(r->s);
    sn_program_free(r->p);
    sn_module_free(r->m);
}

/* Several numbers of rows. what: the parameter, and messages. */
static void check(const char *what, int N, int K, way how) {
    program one = open_program(what, N, K, &how, 1), two = {0};
    if (how.threads > 1) two = open_program(what, N, K, &how, how.threads);
    fill_rows(K);
    const int rows[] = {1, 3, K > MAX_K ? 6 : MAX_M};
    for (int i = 0; i < 3; i++) check_rows(one.s, two.s, rows[i], N, K, what);
    close_program(&one);
    close_program(&two);
}

/* Whether this machine runs code for the target. */
static bool runs(const char *target) {
    sn_error err = {0};
    sn_module *m = sn_module_new("runs");
    sn_entry_begin(m, "run");
    sn_tensor weight = sn_param(m, "w", SN_F32, 32, 32);
    sn_program *p =
        build(m, weight, 32, &(way){.weights = "int4", .target = target, .level = 4}, 1, &err);
    sn_session *s = p ? sn_session_new_arrays(p, NULL, 0, NULL) : NULL;
    sn_session_free(s);
    sn_program_free(p);
    sn_module_free(m);
    return p != NULL;
}

static const char *const targets[] = {
    NULL, "x86-64", "x86-64-v3", "x86-64-v3,+avxvnni", "x86-64-v4", "x86-64-v4,+avx512vnni"};

static void check_int4(int N, int K, int level, const char *target) {
    for (int i = 0; i < N * K; i++) w[i] = noise_at((uint32_t)i);
    for (int g = 0; g < N * K / 32; g++) {
        float most = 0;
        for (int k = 32 * g; k < 32 * g + 32; k++)
            if (fabsf(w[k]) > fabsf(most)) most = w[k];
        float scale = sn_bf16_to_f32(sn_f32_to_bf16(most * -0.125f));
        for (int k = 32 * g; k < 32 * g + 32; k++)
            row[k] = (double)fmaxf(-8, fminf(7, rintf(w[k] / scale))) * (double)scale;
    }
    check("w", N, K, (way){"int4", target, level, NULL, level == 4 && !target ? 2 : 1});
}

static void int4(void **state) {
    (void)state;
    for (int level = 0; level <= 4; level += 4) check_int4(45, 96, level, NULL);
    check_int4(MAX_N, MAX_K, 4, NULL); /* K in two pieces */
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++)
        if (runs(targets[i])) check_int4(37, 64, 4, targets[i]);
    check_int4(8, LONG_K, 4, NULL);
    check_int4(8, LONG_K, 4, targets[1]);
}

/* Rows that a kernel before makes are quantised by the product itself. */
static void no_kernel_only_quantises(void **state) {
    (void)state;
    sn_error err = {0};
    sn_module *m = sn_module_new("groups");
    sn_entry_begin(m, "run");
    sn_tensor first =
        sn_linear(sn_input(m, "x", SN_F32, 1, 64), sn_param(m, "v", SN_F32, 96, 64), NULL);
    sn_output("y", sn_linear(sn_gelu(first), sn_param(m, "w", SN_F32, 32, 96), NULL));
    sn_options o = sn_options_default();
    o.weights = "int4";
    o.compute = "int8";
    sn_program *p = sn_compile(m, &o, &err);
    need(p != NULL, &err);
    char *text = explain_text(p, "run");
    assert_non_null(strstr(text, "entry run: 2 kernel calls"));
    free(text);
    sn_program_free(p);
    sn_module_free(m);
}

static void blocks(void **state) {
    (void)state;
    static const char *const names[] = {"Q4_0", "Q4_1", "Q5_0", "Q5_1",
                                        "Q8_0", "Q4_K", "Q5_K", "Q6_K"};
    sn_error err = {0};
    sn_weights *file = sn_weights_open(FORMATS ".gguf", &err),
               *values = sn_weights_open(FORMATS ".safetensors", &err);
    need(file && values, &err);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const sn_weight *t = sn_weights_find(values, names[i]);
        assert_non_null(t);
        int K = (int)t->shape[1];
        for (int j = 0; j < MAX_N * K; j++) {
            float v;
            memcpy(&v, (const char *)t->data + (size_t)(j % (2 * K)) * sizeof v, sizeof v);
            row[j] = (double)v;
        }
        check(names[i], MAX_N, K, (way){"stored", NULL, 4, file, 1 + i % 4 / 3});
    }
    sn_weights_close(file);
    sn_weights_close(values);
}

/* 4-bit integers in groups, all of the largest magnitude, as are the rows: products of bytes
 * are added in i16 on AVX2 without VNNI, and their sums must fit, however long the groups are. */
static void long_groups(void **state) {
    (void)state;
    enum { N = 40, K = 512, M = 3 };
    static int8_t q[N * K], rows[M * K];
    static uint16_t scale[N * K];
    static const int8_t extreme[SN_NIBBLES][2] = {{-8, 7}, {0, 15}, {-12, 12}};
    for (int i = 0; i < N * K; i++) scale[i] = sn_f32_to_bf16(0.5f);
    for (int i = 0; i < M * K; i++)
        rows[i] = i / K == 0 ? 127 : i / K == 1 ? -127 : (int8_t)(i % 9);
    for (size_t i = 0; i < 2 * sizeof targets / sizeof *targets; i++) {
        const char *target = targets[i / 2];
        const int group = 64 << i % 2;
        if (!runs(target)) continue;
        for (int nibble = 0; nibble < SN_NIBBLES; nibble++) {
            sn_error err = {0};
            for (int j = 0; j < N * K; j++) q[j] = extreme[nibble][j / K % 3 > 0];
            sn_module *m = sn_module_new("groups");
            sn_entry_begin(m, "run");
            sn_tensor w =
                SN_NODE(m, dequantise,
                        SN_ATTRS(SN_INT(group, group), SN_INT(bits, 4), SN_INT(nibble, nibble)),
                        sn_param(m, "q", SN_I8, N, K), sn_param(m, "scale", SN_BF16, N, K / group));
            sn_tensor x8 = sn_cast(sn_input(m, "x", SN_I8, M, K), SN_F32);
            sn_output("y", sn_linear(x8, w, NULL));
            sn_options o = sn_options_default();
            o.target = target;
            sn_program *p = sn_compile(m, &o, &err);
            need(p != NULL, &err);
            char *text = explain_text(p, "run");
            char form[40];
            snprintf(form, sizeof form, "int4 in groups of %d", group);
            if (!strstr(text, form)) fail_msg("no %s: %s", form, text);
            free(text);
            sn_arg_binding param[] = {SN_BIND("q", SN_I8, q, N, K),
                                      SN_BIND("scale", SN_BF16, scale, N, K / group)};
            sn_session *s = sn_session_new_arrays(p, param, 2, &err);
            need(s != NULL, &err);
            sn_arg_binding in = SN_BIND("x", SN_I8, rows, M, K),
                           out = SN_BIND("y", SN_F32, y, M, N);
            need(sn_run(s, "run", &in, 1, &out, 1, &err), &err);
            for (int k = 0; k < M * N; k++) {
                int sum = 0;
                for (int j = 0; j < K; j++) sum += rows[k / N * K + j] * q[k % N * K + j];
                if (y[k] != 0.5f * (float)sum)
                    fail_msg("%s, groups of %d, nibble %d: row %d is %g, not %g",
                             target ? target : "", group, nibble, k / N, (double)y[k], 0.5 * sum);
            }
            sn_session_free(s);
            sn_program_free(p);
            sn_module_free(m);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(int4),
                                       cmocka_unit_test(no_kernel_only_quantises),
                                       cmocka_unit_test(blocks), cmocka_unit_test(long_groups)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
