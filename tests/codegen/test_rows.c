/* Row kernels at their edges: a NaN among the elements of a row, which a maximum may overlook only
 * if the rest of the kernel does not, widths below, at and beyond the unrolled loops. */
#include "codegen/kernel.h"
#include "codegen/program/program.h"
#include "tests/support/jit_run.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>
#include <llvm-c/Core.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROWS = 6 };
static const int64_t widths[] = {1, 15, 16, 17, 63, 64, 65, 200, 259};

/* Row 0 is plain; row 1 begins, row 2 ends with NaN; row 3 is NaN, row 4 -inf throughout; row 5 has
 * both and an infinity. */
static double element(int row, int64_t i, int64_t n) {
    double plain = sin((double)(row * 1000 + i)) * 3;
    switch (row) {
    case 1:
        return i == 0 ? NAN : plain;
    case 2:
        return i == n - 1 ? NAN : plain;
    case 3:
        return NAN;
    case 4:
        return -INFINITY;
    case 5:
        return i == n / 2 ? NAN : i == n / 3 ? INFINITY : i % 5 ? plain : -INFINITY;
    default:
        return plain;
    }
}

static void *make_data(void *ctx, const sn_node *leaf, const int64_t *symbol, size_t *bytes) {
    int64_t n = sn_dim_eval(leaf->m, leaf->shape[1], symbol);
    (void)ctx;
    float *x = malloc(*bytes = sizeof *x * (size_t)(ROWS * n));
    for (int64_t i = 0; x && i < ROWS * n; i++) x[i] = (float)element((int)(i / n), i % n, n);
    return x;
}

/* A seed with high bits and a step, or numbers. */
static void *draw_data(void *ctx, const sn_node *leaf, const int64_t *symbol, size_t *bytes) {
    (void)ctx;
    int64_t n = 1;
    for (int a = 0; a < leaf->rank; a++) n *= sn_dim_eval(leaf->m, leaf->shape[a], symbol);
    sn_dtype t = (sn_dtype)leaf->dtype;
    void *data = malloc(*bytes = sn_dtype_size(t) * (size_t)n);
    for (int64_t i = 0; data && i < n; i++) {
        double v = sin((double)i) * 2;
        if (t == SN_I64) ((int64_t *)data)[i] = i ? 7 : (INT64_C(5) << 40) + 3;
        if (t == SN_F32) ((float *)data)[i] = (float)v;
        if (t == SN_F64) ((double *)data)[i] = v;
    }
    return data;
}

static sn_tensor softmax(sn_tensor x) {
    return sn_softmax(x, -1);
}
static sn_tensor log_softmax(sn_tensor x) {
    return sn_log_softmax(x, -1);
}
static sn_tensor logsumexp(sn_tensor x) {
    return sn_logsumexp(x, -1);
}
static sn_tensor largest(sn_tensor x) {
    return sn_amax(x, -1);
}
static sn_tensor below_largest(sn_tensor x) { /* only NaN itself would show */
    return sn_sub(x, sn_amax_keep(x, -1));
}
static sn_tensor range(sn_tensor x) {
    return sn_div(sn_sub(x, sn_amin_keep(x, -1)), sn_sub(sn_amax_keep(x, -1), sn_amin_keep(x, -1)));
}
static sn_tensor masked(sn_tensor x) { /* what the mask hides is not seen */
    return sn_softmax(sn_where(sn_lt(x, 1), x, -INFINITY), -1);
}
static sn_tensor chosen(sn_tensor x) { /* the sum sees it, what is chosen does not */
    sn_tensor sum = sn_sum_keep(x, -1);
    return sn_where(sn_lt(sum, 0), sum, sn_mul(x, sn_amax_keep(x, -1)));
}

static sn_tensor softmin(sn_tensor x) {
    sn_tensor e = sn_exp(sn_sub(sn_amin_keep(x, -1), x));
    return sn_div(e, sn_sum_keep(e, -1));
}
static sn_tensor finite_sum(sn_tensor x) { /* NaN where the row has one */
    return sn_max(sn_min(sn_sum_keep(x, -1), 9), -9);
}
/* Beside a NaN the maximum is chosen, so that only the maximum can show it: by the sign of elements,
 * since NaN is unequal to all numbers, and by the number of the row. */
static sn_tensor by_sign(sn_tensor x) {
    return sn_where(sn_lt(x, 0), sn_amax_keep(x, -1), finite_sum(x));
}
static sn_tensor unequal(sn_tensor x) {
    return sn_where(sn_ne(finite_sum(x), 0), sn_amax_keep(x, -1), finite_sum(x));
}
static sn_tensor by_row(sn_tensor x) {
    sn_tensor row = sn_iota(sn_module_of(x), SN_I32, 0, ROWS, 1);
    return sn_where(sn_lt(row, 3), sn_amax_keep(x, -1), finite_sum(x));
}
static sn_tensor with_sign(sn_tensor x) { /* 0 for NaN */
    return sn_add(sn_sign(finite_sum(x)), sn_amax_keep(x, -1));
}
static sn_tensor with_integer(sn_tensor x) {
    sn_tensor i = sn_cast(sn_where(sn_lt(finite_sum(x), 0), 3, 5), SN_I32);
    return sn_add(sn_cast(i, SN_F32), sn_amax_keep(x, -1));
}
/* Comparisons with NaN are false, so that the sum is chosen and shows it. */
static sn_tensor chosen_sum(sn_tensor below, sn_tensor x) {
    return sn_where(below, 7, sn_add(finite_sum(x), sn_amax_keep(x, -1)));
}
static sn_tensor less(sn_tensor x) {
    return chosen_sum(sn_lt(finite_sum(x), 0), x);
}
static sn_tensor more(sn_tensor x) {
    return chosen_sum(sn_lt(0, finite_sum(x)), x);
}
static sn_tensor not_more(sn_tensor x) {
    return chosen_sum(sn_le(finite_sum(x), 0), x);
}
static sn_tensor equal(sn_tensor x) {
    return chosen_sum(sn_eq(finite_sum(x), 9), x);
}
static sn_tensor either(sn_tensor x) { /* of two choices that both show it */
    sn_tensor row = sn_iota(sn_module_of(x), SN_I32, 0, ROWS, 1), sum = finite_sum(x);
    return sn_where(sn_lt(row, 3), sn_sub(sum, sn_amax_keep(x, -1)), sum);
}

static const struct {
    sn_tensor (*make)(sn_tensor);
    int looks; /* maxima and minima that must not overlook NaN */
} kernels[] = {
    {softmax, 0},      {log_softmax, 0}, {logsumexp, 0}, {largest, 1}, {below_largest, 1},
    {range, 1},        {masked, 0},      {chosen, 1},    {softmin, 0}, {by_sign, 1},
    {unequal, 1},      {by_row, 1},      {with_sign, 1}, {less, 0},    {more, 0},
    {with_integer, 1}, {not_more, 0},    {equal, 0},     {either, 0},
};

/* How often this text stands in the LLVM IR of the kernels of entry "main". */
static int count_in_kernels(const sn_program *p, const char *target, const char *text) {
    const sn_plan *plan = sn_program_entry(p, "main")->code.plan;
    int n = 0;
    for (int i = 0; i < plan->n_call; i++) {
        sn_error err = {0};
        sn_target t;
        sn_kernel k;
        em e;
        assert_true(sn_target_init(&t, target, &err));
        assert_true(sn_kernel_describe(plan->m, plan->call[i], &k));
        assert_true(em_init(&e, &t, "count", k.compute, &err));
        sn_kernel_emit(&e, &k);
        LLVMModuleRef module = em_finish(&e, &err);
        if (!module) fail_msg("%s", err.message);
        char *ir = LLVMPrintModuleToString(module);
        for (const char *s = ir; (s = strstr(s, text)); s++) n++;
        LLVMDisposeMessage(ir);
        em_free(&e);
    }
    return n;
}

static void nan_in_rows(void **state) {
    (void)state;
    for (size_t k = 0; k < sizeof kernels / sizeof *kernels; k++)
        for (int level = 0; level <= 4; level += 2) {
            sn_module *m = sn_module_new("rows");
            sn_dim n = sn_symbol(m, "N", 1, 1000);
            sn_entry_begin(m, "main");
            sn_output("y", kernels[k].make(sn_input(m, "x", SN_F32, ROWS, n)));
            sn_options o = {.level = level, .threads = 2};
            jit_run r;
            if (!jit_open(&r, m, &o, make_data, NULL)) fail_msg("%s", r.why);
            for (size_t w = 0; w < sizeof widths / sizeof *widths; w++)
                if (!jit_check(&r, "main", &widths[w], 1e-5, 1))
                    fail_msg("kernel %zu, level %d, width %lld: %s", k, level, (long long)widths[w],
                             r.why);
            int looks = level == 4 ? count_in_kernels(r.p, "x86-64-v3", " une ") : kernels[k].looks;
            if (!looks != !kernels[k].looks) fail_msg("kernel %zu, level %d: %d", k, level, looks);
            jit_close(&r);
            sn_module_free(m);
        }
}

/* Widths where four vectors share their draws, and others; alone, where it is added up, and
 * behind an axis; every width of vectors that runs here. */
static void dropout(void **state) {
    (void)state;
    static const int64_t width[] = {64, 100, 192, 320};
    static const char *const target[] = {NULL, "x86-64-v3", "x86-64-v2"};
    for (int i = 0; i < 24; i++) {
        sn_module *m = sn_module_new("rows");
        sn_dim n = sn_symbol(m, "N", 1, 1000);
        bool wide = i >= 12;
        sn_entry_begin(m, "main");
        sn_tensor rng = sn_input(m, "rng", SN_I64, 2);
        sn_tensor x = sn_input(m, "x", wide ? SN_F64 : SN_F32, 3, n, width[i % 4]);
        sn_tensor y = sn_dropout(x, rng, 0.3);
        sn_output("y", y);
        sn_output("norm", sn_softmax(sn_add(sn_dropout(x, rng, 0.5), x), -1));
        sn_options o = {.level = 4, .threads = 2, .target = target[i / 4 % 3]};
        jit_run r;
        int64_t rows = 3;
        if (!jit_open(&r, m, &o, draw_data, NULL)) {
            bool runs = !strstr(r.why, "cannot run code");
            sn_module_free(m);
            if (runs) fail_msg("%s", r.why);
            continue;
        }
        if (!jit_check(&r, "main", &rows, 1e-6, 1))
            fail_msg("width %lld, target %s: %s", (long long)width[i % 4],
                     o.target ? o.target : "native", r.why);
        jit_close(&r);
        sn_module_free(m);
    }
}

/* Sums of rows that share operands are computed several at a time, and what they share is loaded once.
 * Random numbers of the elements are much code, which would stand there for each of the rows. */
static const struct {
    int64_t y_columns, z_rows, z_columns; /* z_rows 0: N; z_columns 0: no z */
    bool drawn;                           /* dropout of x */
} sums[] = {{1, 0, 0, false}, {1, 1, 1, false}, {1, 0, 1, false}, {3, 1, 3, false},
            {3, 0, 1, false}, {3, 0, 3, false}, {1, 0, 0, true}};
enum { WIDTH = 100, N_SUMS = sizeof sums / sizeof *sums };

static void rows_in_tiles(void **state) {
    (void)state;
    int loads[N_SUMS];
    for (int i = 0; i < N_SUMS; i++) {
        sn_module *m = sn_module_new("rows");
        sn_dim n = sn_symbol(m, "N", 2, 1000), z_rows = sums[i].z_rows ? sums[i].z_rows : n;
        sn_entry_begin(m, "main");
        sn_tensor x = sn_input(m, "x", SN_F32, n, 1, WIDTH);
        if (sums[i].drawn) x = sn_dropout(x, sn_input(m, "rng", SN_I64, 2), 0.3);
        sn_tensor y = sn_mul(x, sn_input(m, "y", SN_F32, 1, sums[i].y_columns, WIDTH));
        if (sums[i].z_columns)
            y = sn_sub(y, sn_input(m, "z", SN_F32, z_rows, sums[i].z_columns, WIDTH));
        sn_output("sum", sn_sum_keep(y, -1));
        sn_options o = {.level = 4, .threads = 2};
        jit_run r;
        if (!jit_open(&r, m, &o, draw_data, NULL)) fail_msg("%s", r.why);
        for (int64_t size = 3; size < 9; size++)
            if (!jit_check(&r, "main", &size, 1e-5, 1)) fail_msg("%s", r.why);
        loads[i] = count_in_kernels(r.p, "x86-64-v3", "load <8 x float>");
        jit_close(&r);
        sn_module_free(m);
    }
    assert_true(loads[1] < loads[2]); /* z is the same for all rows; it is not */
    assert_true(loads[3] < loads[5]); /* the same along one of two axes */
    assert_true(loads[4] < loads[5]); /* along the other */
    assert_true(loads[6] < loads[0]); /* no tile */
}

/* One kernel gives rows and their sums: no tile, which would leave out the rows. */
static void rows_beside_sums(void **state) {
    (void)state;
    for (int first = 0; first < 2; first++) {
        sn_module *m = sn_module_new("rows");
        sn_dim n = sn_symbol(m, "N", 2, 1000);
        sn_entry_begin(m, "main");
        sn_tensor x = sn_input(m, "x", SN_F32, n, WIDTH), y = sn_input(m, "y", SN_F32, 1, WIDTH);
        sn_tensor product = sn_mul(x, y), sum = sn_sum_keep(product, -1);
        sn_output("a", first ? product : sum);
        sn_output("b", first ? sum : product);
        sn_options o = {.level = 4, .threads = 2};
        jit_run r;
        if (!jit_open(&r, m, &o, draw_data, NULL)) fail_msg("%s", r.why);
        assert_int_equal(sn_program_entry(r.p, "main")->code.plan->n_call, 1);
        for (int64_t size = 3; size < 9; size += 5)
            if (!jit_check(&r, "main", &size, 1e-5, 1)) fail_msg("%s", r.why);
        jit_close(&r);
        sn_module_free(m);
    }
}

/* A constant that the kernel itself could make, and that a gather reads from memory. */
static void gathered_constant(void **state) {
    (void)state;
    static const char text[] = "module m\n"
                               "entry f {\n"
                               "  %0: f32[] = const {value=0}\n"
                               "  %1: f32[3,2,6] = broadcast %0\n"
                               "  %2: i32[2] = input {name=\"at\"}\n"
                               "  %3: f32[3,2,6] = rope %1, %2 {interleaved=1}\n"
                               "  %4: i64[2] = input {name=\"rng\"}\n"
                               "  %5: f32[3,2,6] = dropout %3, %4 {stream=0, rate=0.5}\n"
                               "  output \"y\" = %5\n"
                               "}\n";
    for (int level = 0; level <= 4; level++) {
        char why[JIT_WHY];
        sn_options o = {.level = level, .threads = 1, .backend = "native"};
        sn_module *m = sn_parse(text, "text", false, NULL);
        if (!jit_matches(m, &o, NULL, jit_random_leaf, NULL, 1e-5, 0, why))
            fail_msg("level %d: %s", level, why);
        sn_module_free(m);
    }
}

/* NaN is above all numbers, whatever its sign bit: 0 / 0 on x86 has it set. Few indices are inserted, many sorted. */
static void nan_in_sorts(void **state) {
    (void)state;
    enum { LENGTH = 40, FEW = 3 };
    static double x64[LENGTH];
    static float x32[LENGTH];
    int up[LENGTH], down[LENGTH], few[FEW], n = 0, n_down = 0;
    for (int i = 0; i < LENGTH; i++) {
        double v = i % 8 == 5 ? copysign(NAN, i % 16 == 5 ? -1 : 1) : i % 2 ? -i : i;
        x64[i] = v, x32[i] = (float)v;
        assert_true(!isnan(v) || !signbit(x32[i]) == !signbit(v));
    }
    for (int i = LENGTH - 1; i >= 0;
         i--) /* the numbers in ascending order: odd places from the last on */
        if (i % 2 && !isnan(x64[i])) up[n++] = i;
    for (int i = 0; i < LENGTH; i += 2) up[n++] = i;
    for (int i = 5; i < LENGTH; i += 8) up[n++] = down[n_down++] = i;
    for (int i = LENGTH - n_down - 1; i >= 0; i--) down[n_down++] = up[i];
    assert_true(n == LENGTH && n_down == LENGTH);
    for (int wide = 0; wide < 2; wide++)
        for (int level = 0; level <= 4; level += 4) {
            sn_error err = {0};
            sn_module *m = sn_module_new("sorts");
            sn_entry_begin(m, "main");
            sn_tensor x = sn_input(m, "x", wide ? SN_F64 : SN_F32, LENGTH), index;
            sn_output("up", sn_argsort(x, 0, false));
            sn_output("down", sn_argsort(x, 0, true));
            sn_top_k(x, FEW, &index);
            sn_output("few", index);
            sn_program *p = sn_compile(m, &(sn_options){.level = level}, &err);
            sn_session *s = p ? sn_session_new_arrays(p, NULL, 0, &err) : NULL;
            if (!s) fail_msg("%s", err.message);
            int32_t got[2][LENGTH], chosen[FEW];
            sn_arg_binding in =
                wide ? SN_BIND("x", SN_F64, x64, LENGTH) : SN_BIND("x", SN_F32, x32, LENGTH);
            sn_arg_binding out[] = {SN_BIND("up", SN_I32, got[0], LENGTH),
                                    SN_BIND("down", SN_I32, got[1], LENGTH),
                                    SN_BIND("few", SN_I32, chosen, FEW)};
            if (!sn_run(s, "main", &in, 1, out, 3, &err)) fail_msg("%s", err.message);
            assert_memory_equal(got[0], up, sizeof up);
            assert_memory_equal(got[1], down, sizeof down);
            for (int i = 0; i < FEW; i++) few[i] = down[i];
            assert_memory_equal(chosen, few, sizeof few);
            sn_session_free(s);
            sn_program_free(p);
            sn_module_free(m);
        }
}

/* The first k of many rows, with equal elements, against a search: of lengths up to what a lane
 * holds and of one more, and of numbers of rows that fill vectors, leave few or many over, or fill none. */
static void first_of_rows(void **state) {
    (void)state;
    enum { LENGTH = 23, MAX_ROWS = 37 };
    static const int rows[] = {1, 3, 16, 19, 21, MAX_ROWS}, lengths[] = {1, 3, 8, 9};
    static float x[MAX_ROWS][LENGTH];
    static int32_t ints[MAX_ROWS][LENGTH], got[2][MAX_ROWS * LENGTH];
    uint32_t seed = 5;
    for (int i = 0; i < MAX_ROWS * LENGTH; i++) {
        seed = seed * 1664525 + 1013904223;
        int32_t *v = &ints[i / LENGTH][i % LENGTH];
        *v = (int)(seed >> 28) - 8;
        x[i / LENGTH][i % LENGTH] = seed >> 24 & 7 ? (float)*v : seed >> 27 & 1 ? NAN : -0.0f;
    }
    for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++) {
        const int k = lengths[l];
        sn_error err = {0};
        sn_module *m = sn_module_new("rows");
        sn_entry_begin(m, "main");
        sn_dim R = sn_symbol(m, "R", 1, MAX_ROWS);
        sn_tensor index[2];
        sn_top_k(sn_input(m, "x", SN_F32, R, LENGTH), k, &index[0]);
        sn_top_k(sn_input(m, "ints", SN_I32, R, LENGTH), k, &index[1]);
        sn_output("of_x", index[0]);
        sn_output("of_ints", index[1]);
        sn_program *p = sn_compile(m, &(sn_options){.level = 4, .threads = 1}, &err);
        sn_session *s = p ? sn_session_new_arrays(p, NULL, 0, &err) : NULL;
        if (!s) fail_msg("%s", err.message);
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
            sn_arg_binding in[] = {SN_BIND("x", SN_F32, x, rows[i], LENGTH),
                                   SN_BIND("ints", SN_I32, ints, rows[i], LENGTH)};
            sn_arg_binding out[] = {SN_BIND("of_x", SN_I32, got[0], rows[i], k),
                                    SN_BIND("of_ints", SN_I32, got[1], rows[i], k)};
            if (!sn_run(s, "main", in, 2, out, 2, &err)) fail_msg("%s", err.message);
            for (int r = 0; r < rows[i]; r++)
                for (int of_ints = 0; of_ints < 2; of_ints++) {
                    bool used[LENGTH] = {false};
                    for (int j = 0; j < k; j++) {
                        int best = -1;
                        for (int c = 0; c < LENGTH; c++) {
                            double v = of_ints ? ints[r][c] : x[r][c], b = best < 0  ? 0
                                                                           : of_ints ? ints[r][best]
                                                                                     : x[r][best];
                            bool larger = isnan(v) ? !isnan(b) : v > b;
                            if (!used[c] && (best < 0 || larger)) best = c;
                        }
                        used[best] = true;
                        assert_int_equal(got[of_ints][r * k + j], best);
                    }
                }
        }
        sn_session_free(s);
        sn_program_free(p);
        sn_module_free(m);
    }
}

enum { LONG = 701, LONG_ROWS = 5 };
static const double *sorted_row;

static int by_size(const void *a, const void *b) { /* NaN first, equal ones by their index */
    const int32_t i = *(const int32_t *)a, j = *(const int32_t *)b;
    const double x = sorted_row[i], y = sorted_row[j];
    if (isnan(x) != isnan(y)) return isnan(x) ? -1 : 1;
    return x > y ? -1 : x < y ? 1 : i - j;
}

/* The first k of long rows, where a bound leaves few candidates, all equal ones, or nothing out: of every type of key,
 * of rows and columns of a matrix, with vectors of every width. */
static void first_of_long_rows(void **state) {
    (void)state;
    static const struct {
        const char *target;
        int k;
    } cases[] = {{NULL, 17}, {NULL, 60}, {NULL, 600}, {"x86-64-v3", 33}, {"x86-64-v2", 60}};
    static const sn_dtype types[] = {SN_F32, SN_F64, SN_I32, SN_I64};
    enum { TYPES = 4 };
    static double x[LONG_ROWS][LONG], xt[LONG][LONG_ROWS];
    static int32_t expected[LONG_ROWS][LONG], got[2 * TYPES][LONG_ROWS * LONG];
    uint32_t seed = 9;
    for (int i = 0; i < LONG_ROWS * LONG; i++) {
        const int r = i / LONG, c = i % LONG;
        seed = seed * 1664525 + 1013904223;
        const double any = (int)(seed >> 12) - (1 << 19), few = (int)(seed >> 28) - 8;
        x[r][c] = r == 0 ? any : r == 1 ? few : r == 2 ? c : r == 3 ? 7 : c < 40 ? any : -1e9;
        xt[c][r] = x[r][c];
    }
    for (int r = 0; r < LONG_ROWS; r++) {
        for (int c = 0; c < LONG; c++) expected[r][c] = c;
        sorted_row = x[r];
        qsort(expected[r], LONG, sizeof **expected, by_size);
    }
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const int k = cases[i].k;
        sn_error err = {0};
        sn_module *m = sn_module_new("rows");
        sn_entry_begin(m, "main");
        const int64_t shape[] = {LONG_ROWS, k};
        sn_arg_binding out[2 * TYPES], in[] = {SN_BIND("rows", SN_F64, x, LONG_ROWS, LONG),
                                               SN_BIND("columns", SN_F64, xt, LONG, LONG_ROWS)};
        sn_tensor given[] = {sn_input(m, "rows", SN_F64, LONG_ROWS, LONG),
                             sn_swap(sn_input(m, "columns", SN_F64, LONG, LONG_ROWS), 0, 1)};
        char name[2 * TYPES][16];
        for (int o = 0; o < 2 * TYPES; o++) {
            sn_tensor index;
            sn_top_k(sn_cast(given[o % 2], types[o / 2]), k, &index);
            snprintf(name[o], sizeof name[o], "y%d", o);
            sn_output(name[o], index);
            out[o] = (sn_arg_binding){name[o], SN_I32, 2, shape, got[o]};
        }
        const sn_options options = {.level = 4, .target = cases[i].target, .threads = 2};
        sn_program *p = sn_compile(m, &options, &err);
        sn_session *s = p ? sn_session_new_arrays(p, NULL, 0, &err) : NULL;
        if (!s || !sn_run(s, "main", in, 2, out, 2 * TYPES, &err)) fail_msg("%s", err.message);
        for (int o = 0; o < 2 * TYPES; o++)
            for (int r = 0; r < LONG_ROWS; r++)
                assert_memory_equal(&got[o][r * k], expected[r], sizeof(int32_t) * (size_t)k);
        sn_session_free(s);
        sn_program_free(p);
        sn_module_free(m);
    }
}

/* Rows of several axes are added at their places; of numbers and NaN the largest is NaN, whichever
 * comes first. Nothing is added to row 1. */
static void scattered_rows(void **state) {
    (void)state;
    enum { FROM = 5, TO = 3, A = 2, B = 9, ROW = A * B };
    static int32_t at[FROM] = {2, 0, 2, 0, 2};
    static float x[FROM * ROW], want[2][TO * ROW], got[2][TO * ROW];
    for (int i = 0; i < TO * ROW; i++) want[1][i] = -INFINITY;
    for (int i = 0; i < FROM * ROW; i++) {
        const float v = x[i] = i % ROW == i / ROW ? NAN : (float)(7 * i % 11 - 5);
        const int to = at[i / ROW] * ROW + i % ROW;
        want[0][to] += v;
        if (!(v <= want[1][to]) && !isnan(want[1][to])) want[1][to] = v;
    }
    for (int level = 0; level <= 4; level += 4) {
        sn_error err = {0};
        sn_module *m = sn_module_new("scattered");
        sn_entry_begin(m, "main");
        sn_tensor rows = sn_input(m, "x", SN_F32, FROM, A, B), to = sn_input(m, "at", SN_I32, FROM);
        sn_output("sum", sn_scatter_add(rows, 0, to, TO));
        sn_output("most", sn_scatter_max(rows, 0, to, TO));
        sn_program *p = sn_compile(m, &(sn_options){.level = level, .threads = 2}, &err);
        sn_session *s = p ? sn_session_new_arrays(p, NULL, 0, &err) : NULL;
        sn_arg_binding in[] = {SN_BIND("x", SN_F32, x, FROM, A, B),
                               SN_BIND("at", SN_I32, at, FROM)};
        sn_arg_binding out[] = {SN_BIND("sum", SN_F32, got[0], TO, A, B),
                                SN_BIND("most", SN_F32, got[1], TO, A, B)};
        if (!s || !sn_run(s, "main", in, 2, out, 2, &err)) fail_msg("%s", err.message);
        for (int i = 0; i < 2 * TO * ROW; i++) {
            const float w = want[i % 2][i / 2], y = got[i % 2][i / 2];
            if (!(isnan(w) ? isnan(y) : y == w))
                fail_msg("level %d, output %d: %g, not %g", level, i % 2, (double)y, (double)w);
        }
        sn_session_free(s);
        sn_program_free(p);
        sn_module_free(m);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nan_in_rows),       cmocka_unit_test(dropout),
        cmocka_unit_test(rows_in_tiles),     cmocka_unit_test(rows_beside_sums),
        cmocka_unit_test(gathered_constant), cmocka_unit_test(nan_in_sorts),
        cmocka_unit_test(first_of_rows),     cmocka_unit_test(first_of_long_rows),
        cmocka_unit_test(scattered_rows)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
