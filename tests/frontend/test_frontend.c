/* The DSL: every operation once against numbers worked out here, through the reference evaluator;
 * scopes, entries and names. Its mistakes are in test_frontend_errors.c. */
#include "frontend/sinter.h"
#include "ir/ir.h"
#include "tests/support/noise.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>
#include <math.h>

/* ---- helpers: one module and one evaluator a test ---- */

static sn_module *m;
static sn_eval *ev;
static int n_input, n_bound;

static int start(void **state) {
    (void)state;
    m = sn_module_new("test");
    n_input = n_bound = 0;
    ev = NULL;
    return m ? 0 : -1;
}

static int finish(void **state) {
    (void)state;
    sn_eval_free(ev);
    sn_module_free(m);
    return 0;
}

typedef struct pending {
    char name[16];
    const void *data;
    size_t bytes;
} pending;
static pending queue[32];

/* An input with its value; data must live until the test ends. */
static sn_tensor given(sn_dtype t, const void *data, size_t bytes, const sn_dim *shape) {
    pending *p = &queue[n_input];
    snprintf(p->name, sizeof p->name, "in%d", n_input++);
    p->data = data;
    p->bytes = bytes;
    return sn_input_at(SN_HERE, m, p->name, t, shape);
}
#define GIVEN(t, array, ...) given(t, array, sizeof(array), SN_DIMS(__VA_ARGS__))

static const sn_value *value_of(sn_tensor x) {
    if (!ev) {
        int64_t symbols[4] = {3, 2, 0, 0};
        ev = sn_eval_new(m, symbols);
    }
    for (; n_bound < n_input; n_bound++) /* binding forgets values computed before */
        sn_eval_bind(ev, queue[n_bound].name, queue[n_bound].data, queue[n_bound].bytes);
    const sn_value *v = sn_eval_node(ev, x);
    if (!v) fail_msg("%s", sn_module_error(m)->message);
    return v;
}

static void expect(const char *file, int line, sn_tensor x, sn_dtype t, const sn_dim *shape,
                   const double *want) {
    const sn_value *v = value_of(x);
    int rank = 0;
    int64_t n = 1;
    for (; shape[rank] != SN_END; rank++) n *= shape[rank];
    bool ok = v->dtype == t && v->rank == rank && v->n == n;
    for (int i = 0; ok && i < rank; i++) ok = v->shape[i] == shape[i];
    if (!ok) fail_msg("%s:%d: wrong type or shape", file, line);
    for (int64_t i = 0; i < n; i++)
        if (!(fabs(v->data[i] - want[i]) <= 1e-6 * (1 + fabs(want[i])) || v->data[i] == want[i]))
            fail_msg("%s:%d: element %d is %g, not %g", file, line, (int)i, v->data[i], want[i]);
}
#define LIST(...) __VA_ARGS__
#define EXPECT(x, t, shape, ...)                                                                   \
    expect(__FILE__, __LINE__, x, t, SN_DIMS(shape), (const double[]){__VA_ARGS__})

/* ---- elementwise ---- */

static double ref_neg(double x) {
    return -x;
}
static double ref_sign(double x) {
    return (x > 0) - (x < 0);
}
static double ref_rsqrt(double x) {
    return 1 / sqrt(x);
}
static double ref_recip(double x) {
    return 1 / x;
}
static double ref_square(double x) {
    return x * x;
}
static double ref_sigmoid(double x) {
    return 1 / (1 + exp(-x));
}
static double ref_relu(double x) {
    return x > 0 ? x : 0;
}
static double ref_gelu(double x) {
    return x * (1 + erf(x / sqrt(2))) / 2;
}
static double ref_gelu_tanh(double x) {
    return x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))) / 2;
}
static double ref_silu(double x) {
    return x / (1 + exp(-x));
}
static double ref_softplus(double x) {
    return log(1 + exp(x));
}
static double ref_same(double x) {
    return x;
}

static void unary(void **state) {
    (void)state;
    static const struct {
        sn_tensor (*op)(sn_loc, sn_tensor);
        double (*ref)(double);
        bool positive;
    } row[] = {
        {sn_neg_at, ref_neg, false},
        {sn_abs_at, fabs, false},
        {sn_sign_at, ref_sign, false},
        {sn_exp_at, exp, false},
        {sn_exp2_at, exp2, false},
        {sn_expm1_at, expm1, false},
        {sn_log_at, log, true},
        {sn_log1p_at, log1p, true},
        {sn_sqrt_at, sqrt, true},
        {sn_rsqrt_at, ref_rsqrt, true},
        {sn_recip_at, ref_recip, false},
        {sn_square_at, ref_square, false},
        {sn_tanh_at, tanh, false},
        {sn_sigmoid_at, ref_sigmoid, false},
        {sn_erf_at, erf, false},
        {sn_sin_at, sin, false},
        {sn_cos_at, cos, false},
        {sn_atan_at, atan, false},
        {sn_floor_at, floor, false},
        {sn_ceil_at, ceil, false},
        {sn_round_at, rint, false},
        {sn_relu_at, ref_relu, false},
        {sn_gelu_at, ref_gelu, false},
        {sn_gelu_tanh_at, ref_gelu_tanh, false},
        {sn_silu_at, ref_silu, false},
        {sn_softplus_at, ref_softplus, false},
        {sn_stop_gradient_at, ref_same, false},
    };
    static const float any[4] = {-1.75F, -0.5F, 0.25F, 2.5F}, positive[4] = {0.1F, 1, 2.5F, 9};
    sn_tensor x = GIVEN(SN_F32, any, 4), y = GIVEN(SN_F32, positive, 4);
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        double want[4];
        const float *in = row[i].positive ? positive : any;
        for (int j = 0; j < 4; j++) want[j] = row[i].ref(in[j]);
        expect(__FILE__, (int)i, row[i].op(SN_HERE, row[i].positive ? y : x), SN_F32, SN_DIMS(4),
               want);
    }
    EXPECT(sn_not(sn_lt(x, 0)), SN_BOOL, 4, 0, 0, 1, 1);
    EXPECT(sn_cast(x, SN_I32), SN_I32, 4, -1, 0, 0, 2);
}

static void binary_mixes_numbers_and_dimensions(void **state) {
    (void)state;
    sn_dim T = sn_symbol(m, "T", 1, 8);
    static const float a[6] = {1, 2, 3, 4, 5, 6}, b[3] = {2, -1, 4};
    sn_tensor x = GIVEN(SN_F32, a, 2, 3), y = GIVEN(SN_F32, b, 3);
    EXPECT(sn_add(x, y), SN_F32, LIST(2, 3), 3, 1, 7, 6, 4, 10);
    EXPECT(sn_sub(1, y), SN_F32, 3, -1, 2, -3);
    EXPECT(sn_mul(y, 0.5), SN_F32, 3, 1, -0.5, 2);
    EXPECT(sn_div(y, T), SN_F32, 3, 2 / 3.0, -1 / 3.0, 4 / 3.0);
    EXPECT(sn_div(T, y), SN_F32, 3, 1.5, -3, 0.75);
    EXPECT(sn_pow(y, 2), SN_F32, 3, 4, 1, 16);
    EXPECT(sn_add(y, (int64_t)-2), SN_F32, 3, 0, -3, 2); /* a small long is a number */
    EXPECT(sn_dim_tensor(m, SN_I64, sn_dim_add(m, T, -5)), SN_I64, SN_SCALAR, -2);
    EXPECT(sn_max(y, 0), SN_F32, 3, 2, 0, 4);
    EXPECT(sn_min(y, sn_index(x, 0, 0)), SN_F32, 3, 1, -1, 3);
    EXPECT(sn_add(sn_mul(sn_add(y, 1), 2), sn_sub(y, y)), SN_F32, 3, 6, 0, 10);
    EXPECT(sn_dim_tensor(m, SN_I32, sn_dim_add(m, T, 4)), SN_I32, SN_SCALAR, 7);
    EXPECT(sn_dim_tensor(m, SN_I32, sn_dim_quot_up(m, sn_dim_mul(m, T, 5), 4)), SN_I32, SN_SCALAR,
           4);
    sn_dim same[2] = {sn_dim_quot(m, sn_dim_mul(m, T, 6), 2), sn_dim_mul(m, T, 3)};
    assert_true(same[0] == same[1]);
}

static void integers_and_comparisons(void **state) {
    (void)state;
    static const int32_t a[4] = {7, -7, 6, 0};
    static const float f[4] = {7, -2, 6, 1};
    sn_tensor x = GIVEN(SN_I32, a, 4), y = GIVEN(SN_F32, f, 4);
    EXPECT(sn_div(x, 2), SN_I32, 4, 3, -4, 3, 0);
    EXPECT(sn_mod(x, 4), SN_I32, 4, 3, 1, 2, 0);
    sn_tensor other = sn_mul(x, 3);
    assert_ptr_equal(sn_add(other, sn_sub(x, other)), x); /* folded */
    EXPECT(sn_and(x, 3), SN_I32, 4, 3, 1, 2, 0);
    EXPECT(sn_or(x, 8), SN_I32, 4, 15, -7, 14, 8);
    EXPECT(sn_xor(x, 1), SN_I32, 4, 6, -8, 7, 1);
    EXPECT(sn_lt(x, 6), SN_BOOL, 4, 0, 1, 0, 1);
    EXPECT(sn_le(x, 6), SN_BOOL, 4, 0, 1, 1, 1);
    EXPECT(sn_gt(x, 6), SN_BOOL, 4, 1, 0, 0, 0);
    EXPECT(sn_ge(x, 6), SN_BOOL, 4, 1, 0, 1, 0);
    EXPECT(sn_eq(x, 6), SN_BOOL, 4, 0, 0, 1, 0);
    EXPECT(sn_ne(x, 6), SN_BOOL, 4, 1, 1, 0, 1);
    EXPECT(sn_where(sn_and(sn_gt(x, 0), sn_lt(x, 7)), y, -1), SN_F32, 4, -1, -1, 6, -1);
    EXPECT(sn_where(sn_or(sn_eq(x, 0), sn_eq(x, 7)), 1, 2), SN_F32, 4, 1, 2, 2, 1);
}

/* ---- leaves ---- */

static void constants_and_counters(void **state) {
    (void)state;
    sn_dim T = sn_symbol(m, "T", 1, 8);
    EXPECT(sn_scalar(m, SN_F64, 2.5), SN_F64, SN_SCALAR, 2.5);
    EXPECT(sn_full(m, SN_I8, 3, 2, 2), SN_I8, LIST(2, 2), 3, 3, 3, 3);
    EXPECT(sn_arange(m, SN_I32, T), SN_I32, 3, 0, 1, 2);
    EXPECT(sn_iota(m, SN_F32, -1, 2, T), SN_F32, LIST(2, 3), 0, 1, 2, 0, 1, 2);
}

static void random_streams_are_independent(void **state) {
    (void)state;
    static const int64_t seed[2] = {42, 7};
    sn_tensor rng = GIVEN(SN_I64, seed, 2);
    const sn_value *a = value_of(sn_uniform(rng, 50)), *b = value_of(sn_uniform(rng, 50));
    int equal = 0;
    for (int i = 0; i < 50; i++) {
        assert_true(a->data[i] >= 0 && a->data[i] < 1);
        equal += a->data[i] == b->data[i];
    }
    assert_true(equal < 5);
    sn_tensor x = sn_full(m, SN_F32, 1, 400), y = sn_dropout(x, rng, 0.25);
    const sn_value *v = value_of(y);
    int kept = 0;
    for (int i = 0; i < 400; i++) {
        assert_true(v->data[i] == 0 || fabs(v->data[i] - 1 / 0.75) < 1e-6);
        kept += v->data[i] != 0;
    }
    assert_true(kept > 250 && kept < 350);
    assert_ptr_equal(sn_dropout(x, rng, 0), x);
    assert_ptr_not_equal(sn_dropout(x, rng, 0.25), y); /* two never share a mask */
}

/* ---- reductions ---- */

static sn_tensor decayed(sn_tensor before, sn_tensor x, const void *user) {
    (void)user;
    return sn_add(sn_mul(before, 0.5), x);
}

static void reductions(void **state) {
    (void)state;
    static const float a[6] = {1, 5, 3, 4, 2, 9};
    sn_tensor x = GIVEN(SN_F32, a, 2, 3);
    EXPECT(sn_sum(x, 1), SN_F32, 2, 9, 15);
    EXPECT(sn_sum(x, 0, 1), SN_F32, SN_SCALAR, 24);
    EXPECT(sn_sum_keep(x, -2), SN_F32, LIST(1, 3), 5, 7, 12);
    EXPECT(sn_sum_all(x), SN_F32, SN_SCALAR, 24);
    EXPECT(sn_mean(x, 1), SN_F32, 2, 3, 5);
    EXPECT(sn_mean_keep(x, 1), SN_F32, LIST(2, 1), 3, 5);
    EXPECT(sn_mean_all(x), SN_F32, SN_SCALAR, 4);
    EXPECT(sn_variance(x, -1), SN_F32, 2, 8 / 3.0, 26 / 3.0);
    EXPECT(sn_variance_keep(x, 1), SN_F32, LIST(2, 1), 8 / 3.0, 26 / 3.0);
    EXPECT(sn_amax(x, 0), SN_F32, 3, 4, 5, 9);
    EXPECT(sn_amax_keep(x, 1), SN_F32, LIST(2, 1), 5, 9);
    EXPECT(sn_amin(x, 1), SN_F32, 2, 1, 2);
    EXPECT(sn_amin_keep(x, 0), SN_F32, LIST(1, 3), 1, 2, 3);
    EXPECT(sn_argmax(x, 1), SN_I32, 2, 1, 2);
    EXPECT(sn_cumsum(x, 1), SN_F32, LIST(2, 3), 1, 6, 9, 4, 6, 15);
    EXPECT(sn_cumprod(x, 1), SN_F32, LIST(2, 3), 1, 5, 15, 4, 8, 72);
    EXPECT(sn_cummax(x, -1), SN_F32, LIST(2, 3), 1, 5, 5, 4, 4, 9);
    EXPECT(sn_cummin(x, 0), SN_F32, LIST(2, 3), 1, 5, 3, 1, 2, 3);
    EXPECT(sn_cumulate(x, .axis = 1, .reverse = true), SN_F32, LIST(2, 3), 9, 8, 3, 15, 11, 9);
    EXPECT(sn_cumulate(x, .axis = 1, .exclusive = true), SN_F32, LIST(2, 3), 0, 1, 6, 0, 4, 6);
    EXPECT(sn_cumulate(x, .axis = 1, .op = SN_CUMMAX, .exclusive = true, .reverse = true), SN_F32,
           LIST(2, 3), 5, 3, -INFINITY, 9, 9, -INFINITY);
    EXPECT(sn_cummax(sn_cast(x, SN_I32), 1), SN_I32, LIST(2, 3), 1, 5, 5, 4, 4, 9);
    EXPECT(sn_cumulate(x, .axis = 1, .combine = decayed, .first = 8), SN_F32, LIST(2, 3), 5, 7.5,
           6.75, 8, 6, 12);
    sn_tensor index; /* rows 1 5 3 and 4 2 9 */
    EXPECT(sn_sort(x, 1, false), SN_F32, LIST(2, 3), 1, 3, 5, 2, 4, 9);
    EXPECT(sn_argsort(x, 0, true), SN_I32, LIST(2, 3), 1, 0, 1, 0, 1, 0);
    EXPECT(sn_top_k(x, 2, &index), SN_F32, LIST(2, 2), 5, 3, 9, 4);
    EXPECT(index, SN_I32, LIST(2, 2), 1, 2, 2, 0);
    EXPECT(sn_argsort(sn_div(0, sn_sub(x, 5)), 1, false), SN_I32, LIST(2, 3), 0, 2, 1, 0, 1, 2);
    EXPECT(sn_logsumexp(x, 1), SN_F32, 2, log(exp(1) + exp(5) + exp(3)),
           log(exp(4) + exp(2) + exp(9)));
    EXPECT(sn_sparsemax(sn_div(x, 4), 1), SN_F32, LIST(2, 3), 0, 0.75, 0.25, 0, 0, 1);
    EXPECT(sn_entmax(sn_mul(x, 0), -1), SN_F32, LIST(2, 3), 1 / 3.0, 1 / 3.0, 1 / 3.0, 1 / 3.0,
           1 / 3.0, 1 / 3.0);
    EXPECT(sn_softmax(sn_mul(x, 0), -1), SN_F32, LIST(2, 3), 1 / 3.0, 1 / 3.0, 1 / 3.0, 1 / 3.0,
           1 / 3.0, 1 / 3.0);
    EXPECT(sn_log_softmax(sn_mul(x, 0), 0), SN_F32, LIST(2, 3), -log(2), -log(2), -log(2), -log(2),
           -log(2), -log(2));
}

/* ---- shapes ---- */

static void shapes(void **state) {
    (void)state;
    static const float a[6] = {1, 2, 3, 4, 5, 6}, b[2] = {8, 9};
    sn_tensor x = GIVEN(SN_F32, a, 2, 3), y = GIVEN(SN_F32, b, 2, 1), part[3];
    EXPECT(sn_reshape(x, 3, 2), SN_F32, LIST(3, 2), 1, 2, 3, 4, 5, 6);
    EXPECT(sn_reshape(x, SN_REST), SN_F32, 6, 1, 2, 3, 4, 5, 6);
    EXPECT(sn_reshape(x, 1, SN_REST, 3), SN_F32, LIST(1, 2, 3), 1, 2, 3, 4, 5, 6);
    EXPECT(sn_transpose(x, 1, 0), SN_F32, LIST(3, 2), 1, 4, 2, 5, 3, 6);
    EXPECT(sn_swap(x, -1, -2), SN_F32, LIST(3, 2), 1, 4, 2, 5, 3, 6);
    EXPECT(sn_broadcast(y, 2, 2), SN_F32, LIST(2, 2), 8, 8, 9, 9);
    EXPECT(sn_expand(x, -1), SN_F32, LIST(2, 3, 1), 1, 2, 3, 4, 5, 6);
    EXPECT(sn_squeeze(y, 1), SN_F32, 2, 8, 9);
    EXPECT(sn_slice(x, 1, 1, 2), SN_F32, LIST(2, 2), 2, 3, 5, 6);
    EXPECT(sn_slice_step(x, 1, 0, 2, 2), SN_F32, LIST(2, 2), 1, 3, 4, 6);
    EXPECT(sn_index(x, 0, 1), SN_F32, 3, 4, 5, 6);
    sn_split(x, 1, 3, part);
    EXPECT(part[2], SN_F32, LIST(2, 1), 3, 6);
    EXPECT(sn_concat(1, x, y), SN_F32, LIST(2, 4), 1, 2, 3, 8, 4, 5, 6, 9);
    EXPECT(sn_stack(0, part[0], part[1]), SN_F32, LIST(2, 2, 1), 1, 4, 2, 5);
    EXPECT(sn_stack(-1, y, y), SN_F32, LIST(2, 1, 2), 8, 8, 9, 9);
    EXPECT(sn_pad(y, 1, 1, 1, -1), SN_F32, LIST(2, 3), -1, 8, -1, -1, 9, -1);
    EXPECT(sn_update(x, y, 0, 1), SN_F32, LIST(2, 3), 1, 8, 3, 4, 9, 6);
    assert_true(sn_dim_of(x, -1) == 3 && sn_rank_of(x) == 2 && sn_dtype_of(x) == SN_F32);
}

static void symbolic_shapes(void **state) {
    (void)state;
    static const float a[6] = {1, 2, 3, 4, 5, 6};
    sn_dim T = sn_symbol(m, "T", 1, 8), B = sn_symbol(m, "B", 1, 4);
    sn_tensor x = GIVEN(SN_F32, a, B, T);
    EXPECT(sn_sum(sn_reshape(x, SN_REST), 0), SN_F32, SN_SCALAR, 21);
    EXPECT(sn_slice(x, 1, sn_dim_sub(m, T, 1), 1), SN_F32, LIST(2, 1), 3, 6);
    EXPECT(sn_mean(x, 1), SN_F32, 2, 2, 5);
    assert_true(sn_dim_of(sn_concat(1, x, x), 1) == sn_dim_mul(m, T, 2));
}

/* ---- products and look-ups ---- */

static void products(void **state) {
    (void)state;
    static const float a[6] = {1, 2, 3, 4, 5, 6}, b[6] = {1, 0, 2, 1, 0, 3}, c[2] = {10, 20};
    sn_tensor x = GIVEN(SN_F32, a, 2, 3), y = GIVEN(SN_F32, b, 3, 2), z = GIVEN(SN_F32, c, 2);
    EXPECT(sn_matmul(x, y), SN_F32, LIST(2, 2), 5, 11, 14, 23);
    EXPECT(sn_linear(x, sn_swap(y, 0, 1), z), SN_F32, LIST(2, 2), 15, 31, 24, 43);
    EXPECT(sn_linear(x, sn_swap(y, 0, 1), NULL), SN_F32, LIST(2, 2), 5, 11, 14, 23);
    EXPECT(sn_einsum("ij,jk->ik", x, y), SN_F32, LIST(2, 2), 5, 11, 14, 23);
    EXPECT(sn_einsum("ij,jk->ki", x, y), SN_F32, LIST(2, 2), 5, 14, 11, 23);
    EXPECT(sn_einsum("ij,ik->ijk", x, sn_reshape(y, 2, 3)), SN_F32, LIST(2, 3, 3), 1, 0, 2, 2, 0, 4,
           3, 0, 6, 4, 0, 12, 5, 0, 15, 6, 0, 18);
    EXPECT(sn_einsum("i,j->ij", z, z), SN_F32, LIST(2, 2), 100, 200, 200, 400);
    EXPECT(sn_einsum("bi,bi->b", x, x), SN_F32, 2, 14, 77);
    static const float d[4] = {2, 1, 4, 5}, r[2] = {2, 14};
    sn_tensor t = GIVEN(SN_F32, d, 2, 2), right = GIVEN(SN_F32, r, 2, 1),
              x3 = sn_reshape(x, 2, 1, 3);
    EXPECT(sn_solve_triangular(t, right), SN_F32, LIST(2, 1), 1, 2);
    EXPECT(sn_solve_triangular(t, right, .upper = true), SN_F32, LIST(2, 1), -0.4, 2.8);
    EXPECT(sn_solve_triangular(t, right, .transposed = true), SN_F32, LIST(2, 1), -4.6, 2.8);
    EXPECT(sn_solve_triangular(t, right, .upper = true, .transposed = true), SN_F32, LIST(2, 1), 1,
           2.6);
    EXPECT(sn_solve_triangular(t, right, .unit = true), SN_F32, LIST(2, 1), 2, 6);
    EXPECT(sn_solve_triangular(sn_expand(t, 0), sn_reshape(y, 3, 2, 1), .unit = true), SN_F32,
           LIST(3, 2, 1), 1, -4, 2, -7, 0, 3);
    EXPECT(sn_matmul(x3, sn_expand(y, 0)), SN_F32, LIST(2, 1, 2), 5, 11, 14, 23);
}

static void convolution(void **state) {
    (void)state;
    static const float a[9] = {1, 2, 3, 4, 5, 6, 7, 8, 9}, k[4] = {1, 2, 3, 4}, c[1] = {10};
    sn_tensor x = GIVEN(SN_F32, a, 1, 1, 3, 3), w = GIVEN(SN_F32, k, 1, 1, 2, 2);
    sn_tensor b = GIVEN(SN_F32, c, 1);
    EXPECT(sn_conv2d(x, w, NULL), SN_F32, LIST(1, 1, 2, 2), 37, 47, 67, 77);
    EXPECT(sn_conv2d(x, w, b, .stride = {2, 2}, .padding = {1, 1}), SN_F32, LIST(1, 1, 2, 2), 14,
           28, 46, 87);
    EXPECT(sn_conv2d(x, w, NULL, .dilation = {2, 2}), SN_F32, LIST(1, 1, 1, 1), 1 + 6 + 21 + 36);
    EXPECT(sn_conv3d(sn_expand(x, 2), sn_expand(w, 2), NULL), SN_F32, LIST(1, 1, 1, 2, 2), 37, 47,
           67, 77);
    x = GIVEN(SN_F32, a, 1, 1, 9, 1, 1), w = GIVEN(SN_F32, k, 1, 1, 4, 1, 1);
    EXPECT(sn_conv3d(x, w, b), SN_F32, LIST(1, 1, 6, 1, 1), 40, 50, 60, 70, 80, 90);
    EXPECT(sn_conv3d(x, w, NULL, .stride = {2}, .padding = {1}, .dilation = {2}), SN_F32,
           LIST(1, 1, 3, 1, 1), 40, 60, 40);
    x = GIVEN(SN_F32, k, 1, 2, 2, 1, 1), w = GIVEN(SN_F32, k, 2, 1, 2, 1, 1);
    EXPECT(sn_conv3d(x, w, NULL, .groups = 2), SN_F32, LIST(1, 2, 1, 1, 1), 5, 25);
}

static void look_ups(void **state) {
    (void)state;
    static const float a[6] = {1, 2, 3, 4, 5, 6};
    static const int32_t i[3] = {2, 0, 2}, j[3] = {1, 0, 0};
    sn_tensor table = GIVEN(SN_F32, a, 3, 2), ids = GIVEN(SN_I32, i, 3), js = GIVEN(SN_I32, j, 3);
    EXPECT(sn_embedding(table, ids), SN_F32, LIST(3, 2), 5, 6, 1, 2, 5, 6);
    EXPECT(sn_gather(table, 1, js), SN_F32, LIST(3, 3), 2, 1, 1, 4, 3, 3, 6, 5, 5);
    EXPECT(sn_scatter_add(table, 0, ids, 4), SN_F32, LIST(4, 2), 3, 4, 0, 0, 6, 8, 0, 0);
    EXPECT(sn_scatter_max(table, 0, ids, 4), SN_F32, LIST(4, 2), 3, 4, -INFINITY, -INFINITY, 5, 6,
           -INFINITY, -INFINITY);
    EXPECT(sn_scatter_product(table, 0, ids, 4), SN_F32, LIST(4, 2), 3, 4, 1, 1, 5, 12, 1, 1);
    EXPECT(sn_at(table, ids, js), SN_F32, 3, 6, 1, 5);
    EXPECT(sn_at(table, sn_expand(ids, 1), sn_slice(js, 0, 0, 2)), SN_F32, LIST(3, 2), 6, 5, 2, 1,
           6, 5);
    EXPECT(sn_one_hot(js, 2, SN_F32), SN_F32, LIST(3, 2), 0, 1, 1, 0, 1, 0);
    /* SPEC property 7: a one-hot matrix product is a look-up */
    EXPECT(sn_matmul(sn_one_hot(ids, 3, SN_F32), table), SN_F32, LIST(3, 2), 5, 6, 1, 2, 5, 6);
}

/* ---- norms, positions, losses ---- */

static void norms(void **state) {
    (void)state;
    static const float a[4] = {1, 3, 2, -2}, g[2] = {2, 1}, b[2] = {0, 5};
    sn_tensor x = GIVEN(SN_F32, a, 2, 2), gain = GIVEN(SN_F32, g, 2), bias = GIVEN(SN_F32, b, 2);
    double r = sqrt(5 + 1e-3), s = sqrt(4 + 1e-3), n = 1 / sqrt(1 + 1e-3), k = 2 / sqrt(4 + 1e-3);
    EXPECT(sn_layer_norm(x, gain, bias, 1e-3), SN_F32, LIST(2, 2), -2 * n, n + 5, 2 * k, -k + 5);
    EXPECT(sn_layer_norm(x, NULL, NULL, 1e-3), SN_F32, LIST(2, 2), -n, n, k, -k);
    EXPECT(sn_layer_norm(x, NULL, bias, 1e-3), SN_F32, LIST(2, 2), -n, n + 5, k, -k + 5);
    EXPECT(sn_layer_norm(x, gain, NULL, 1e-3), SN_F32, LIST(2, 2), -2 * n, n, 2 * k, -k);
    EXPECT(sn_rms_norm(x, gain, 1e-3), SN_F32, LIST(2, 2), 2 / r, 3 / r, 4 / s, -2 / s);
    EXPECT(sn_rms_norm(x, NULL, 1e-3), SN_F32, LIST(2, 2), 1 / r, 3 / r, 2 / s, -2 / s);
}

static void positions(void **state) {
    (void)state;
    static const float a[4] = {1, 2, 3, 4};
    static const int32_t p[1] = {2};
    sn_tensor x = GIVEN(SN_F32, a, 1, 4), pos = GIVEN(SN_I32, p, 1);
    double c = cos(2), s = sin(2), c2 = cos(2 / 10.0), s2 = sin(2 / 10.0);
    EXPECT(sn_rope(x, pos, .base = 100), SN_F32, LIST(1, 4), 1 * c - 2 * s, 2 * c + 1 * s,
           3 * c2 - 4 * s2, 4 * c2 + 3 * s2);
    EXPECT(sn_rope(x, pos, .base = 100, .halves = true), SN_F32, LIST(1, 4), 1 * c - 3 * s,
           2 * c2 - 4 * s2, 3 * c + 1 * s, 4 * c2 + 2 * s2);
    double d = cos(2 / 100.0), e = sin(2 / 100.0);
    EXPECT(sn_rope(x, pos), SN_F32, LIST(1, 4), 1 * c - 2 * s, 2 * c + 1 * s, 3 * d - 4 * e,
           4 * d + 3 * e);
    EXPECT(sn_sinusoid(pos, 4, 100, true), SN_F32, LIST(1, 4), s, c, s2, c2);
    EXPECT(sn_sinusoid(pos, 4, 100, false), SN_F32, LIST(1, 4), sin(0.3), cos(0.3), sin(0.03),
           cos(0.03));
}

static void losses(void **state) {
    (void)state;
    static const float a[4] = {0, 0, 1, 3};
    static const int32_t t[2] = {1, 0};
    sn_tensor x = GIVEN(SN_F32, a, 2, 2), target = GIVEN(SN_I32, t, 2);
    EXPECT(sn_cross_entropy(x, target), SN_F32, 2, log(2), log(1 + exp(2)));
}

/* ---- attention ---- */

enum { B = 2, H = 4, HK = 2, TQ = 3, TK = 5, DK = 4, DV = 2 };
static float q_data[B * H * TQ * DK], k_data[B * HK * TK * DK], v_data[B * HK * TK * DV];

typedef struct heads {
    sn_tensor q, k, v;
} heads;

static heads make_heads(void) {
    fill_floats(q_data, B * H * TQ * DK, 1);
    fill_floats(k_data, B * HK * TK * DK, 2);
    fill_floats(v_data, B * HK * TK * DV, 3);
    return (heads){GIVEN(SN_F32, q_data, B, H, TQ, DK), GIVEN(SN_F32, k_data, B, HK, TK, DK),
                   GIVEN(SN_F32, v_data, B, HK, TK, DV)};
}

typedef double (*score_ref)(double s, int b, int h, int q, int k); /* -inf: hidden */

static void expect_attention(int line, sn_tensor y, double scale, score_ref change) {
    double want[B * H * TQ * DV];
    for (int b = 0; b < B; b++)
        for (int h = 0; h < H; h++)
            for (int q = 0; q < TQ; q++) {
                double w[TK], sum = 0;
                int kv = b * HK + h / (H / HK);
                for (int k = 0; k < TK; k++) {
                    double s = 0;
                    for (int i = 0; i < DK; i++)
                        s += (double)q_data[((b * H + h) * TQ + q) * DK + i] *
                             k_data[(kv * TK + k) * DK + i];
                    sum += w[k] = exp(change(s * scale, b, h, q, k));
                }
                for (int j = 0; j < DV; j++) {
                    double v = 0;
                    for (int k = 0; k < TK && sum > 0; k++)
                        v += w[k] / sum * v_data[(kv * TK + k) * DV + j];
                    want[((b * H + h) * TQ + q) * DV + j] = v;
                }
            }
    expect(__FILE__, line, y, SN_F32, SN_DIMS(B, H, TQ, DV), want);
}

static double as_it_is(double s, int b, int h, int q, int k) {
    (void)b, (void)h, (void)q, (void)k;
    return s;
}
static double causal(double s, int b, int h, int q, int k) {
    (void)b, (void)h;
    return k <= q + TK - TQ ? s : -INFINITY;
}
static double windowed(double s, int b, int h, int q, int k) {
    return q + TK - TQ - k < 2 ? causal(s, b, h, q, k) : -INFINITY;
}

static const float slope_data[H] = {0.5F, 0.25F, 1, 2};
static const int32_t length_data[B] = {4, 0};

static sn_tensor alibi(const sn_score_ctx *c) {
    sn_tensor distance = sn_cast(sn_sub(c->k, c->q), SN_F32);
    return sn_add(c->score, sn_mul(sn_at(c->captured[0], c->h), distance));
}
static double alibi_ref(double s, int b, int h, int q, int k) {
    (void)b;
    return s + (double)slope_data[h] * (k - q);
}

static sn_tensor shorter(const sn_score_ctx *c) {
    return sn_lt(c->k, sn_at(c->captured[1], c->b));
}
static double all_ref(double s, int b, int h, int q, int k) {
    return k < length_data[b] ? alibi_ref(causal(s, b, h, q, k), b, h, q, k) : -INFINITY;
}

static sn_tensor softcap(const sn_score_ctx *c) {
    double cap = *(const double *)c->user;
    return sn_mul(sn_tanh(sn_div(c->score, cap)), cap);
}
static double softcap_ref(double s, int b, int h, int q, int k) {
    (void)b, (void)h, (void)q, (void)k;
    return 0.5 * tanh(s / 0.5);
}

static void attention(void **state) {
    (void)state;
    heads x = make_heads();
    double half = 1 / sqrt(DK), cap = 0.5;
    sn_tensor slopes = GIVEN(SN_F32, slope_data, H), lengths = GIVEN(SN_I32, length_data, B);
    expect_attention(__LINE__, sn_attention(x.q, x.k, x.v), half, as_it_is);
    expect_attention(__LINE__, sn_attention(x.q, x.k, x.v, .scale = 2), 2, as_it_is);
    expect_attention(__LINE__, sn_attention(x.q, x.k, x.v, .causal = true), half, causal);
    expect_attention(__LINE__, sn_attention(x.q, x.k, x.v, .causal = true, .window = 2), half,
                     windowed);
    expect_attention(__LINE__, sn_attention(x.q, x.k, x.v, .score = alibi, .captured = {slopes}),
                     half, alibi_ref);
    expect_attention(__LINE__, sn_attention(x.q, x.k, x.v, .score = softcap, .user = &cap), half,
                     softcap_ref);
    expect_attention(__LINE__,
                     sn_attention(x.q, x.k, x.v, .causal = true, .score = alibi, .mask = shorter,
                                  .captured = {slopes, lengths}),
                     half, all_ref);
}

static void attention_spelled_out(void **state) {
    (void)state;
    heads x = make_heads();
    sn_tensor k = sn_gather(x.k, 1, sn_div(sn_arange(m, SN_I32, H), H / HK));
    sn_tensor v = sn_gather(x.v, 1, sn_div(sn_arange(m, SN_I32, H), H / HK));
    sn_tensor s = sn_mul(sn_matmul(x.q, sn_swap(k, -1, -2)), 1 / sqrt(DK));
    sn_tensor c = sn_mask_scores(s, sn_causal_mask(m, TQ, TK));
    sn_tensor w = sn_mask_scores(s, sn_window_mask(m, TQ, TK, 2));
    expect_attention(__LINE__, sn_matmul(sn_softmax(c, -1), v), 1 / sqrt(DK), causal);
    expect_attention(__LINE__, sn_matmul(sn_softmax(w, -1), v), 1 / sqrt(DK), windowed);
}

static void heads_and_masks(void **state) {
    (void)state;
    static const float a[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    static const int32_t lengths[2] = {1, 3}, docs[3] = {4, 4, 9};
    sn_tensor x = GIVEN(SN_F32, a, 1, 2, 4), split = sn_split_heads(x, 2);
    EXPECT(split, SN_F32, LIST(1, 2, 2, 2), 1, 2, 5, 6, 3, 4, 7, 8);
    EXPECT(sn_merge_heads(split), SN_F32, LIST(1, 2, 4), 1, 2, 3, 4, 5, 6, 7, 8);
    EXPECT(sn_causal_mask(m, 2, 3), SN_BOOL, LIST(2, 3), 1, 1, 0, 1, 1, 1);
    EXPECT(sn_causal_mask(m, 1, 3), SN_BOOL, LIST(1, 3), 1, 1, 1);
    EXPECT(sn_window_mask(m, 1, 3, 2), SN_BOOL, LIST(1, 3), 0, 1, 1);
    EXPECT(sn_window_mask(m, 3, 3, 2), SN_BOOL, LIST(3, 3), 1, 0, 0, 1, 1, 0, 0, 1, 1);
    EXPECT(sn_length_mask(GIVEN(SN_I32, lengths, 2), 3), SN_BOOL, LIST(2, 1, 1, 3), 1, 0, 0, 1, 1,
           1);
    EXPECT(sn_document_mask(GIVEN(SN_I32, docs, 1, 3)), SN_BOOL, LIST(1, 1, 3, 3), 1, 1, 0, 1, 1, 0,
           0, 0, 1);
}

/* ---- layers, scopes, entries ---- */

static const char *name_of(sn_tensor x) {
    return sn_attr_str(x, SN_A_name, "");
}

static void layers_name_their_parameters(void **state) {
    (void)state;
    static const float a[2] = {1, 2}, w[4] = {1, 2, 3, 4}, b[2] = {10, 20}, g[2] = {1, 1};
    static const int32_t i[1] = {1};
    sn_tensor x = GIVEN(SN_F32, a, 1, 2), ids = GIVEN(SN_I32, i, 1);
    sn_scope_params(m, "model.");
    sn_scope_push(m, "h.%d", 3);
    sn_tensor y = sn_nn_linear(x, "fc", 2, SN_BIAS), z = sn_nn_linear(x, "fc2", 2, SN_IN_OUT);
    sn_tensor e = sn_nn_embedding(ids, "wte", 2, 2), n = sn_nn_rms_norm(x, "norm", 0);
    sn_tensor ln = sn_nn_layer_norm(x, "ln", 0);
    sn_tensor mat = sn_param(m, "fc.weight", SN_F32, 2, 2);
    sn_tensor glu = sn_swiglu(x, mat, mat, mat), gegl = sn_geglu(x, mat, mat, mat);
    sn_scope_pop(m);
    assert_string_equal(name_of(mat), "model.h.3.fc.weight");
    sn_scope_params(m, NULL);
    assert_string_equal(name_of(sn_param(m, "head", SN_F32, 2)), "head");

    value_of(x);
    static const char *const weights[] = {"fc.weight", "fc2.weight", "wte.weight"};
    for (int j = 0; j < 3; j++) {
        char full[64];
        snprintf(full, sizeof full, "model.h.3.%s", weights[j]);
        sn_eval_bind(ev, full, w, sizeof w);
    }
    sn_eval_bind(ev, "model.h.3.fc.bias", b, sizeof b);
    sn_eval_bind(ev, "model.h.3.norm.weight", g, sizeof g);
    sn_eval_bind(ev, "model.h.3.ln.weight", g, sizeof g);
    sn_eval_bind(ev, "model.h.3.ln.bias", b, sizeof b);
    EXPECT(y, SN_F32, LIST(1, 2), 15, 31);
    EXPECT(z, SN_F32, LIST(1, 2), 7, 10);
    EXPECT(e, SN_F32, LIST(1, 2), 3, 4);
    EXPECT(n, SN_F32, LIST(1, 2), 1 / sqrt(2.5), 2 / sqrt(2.5));
    EXPECT(ln, SN_F32, LIST(1, 2), 9, 21);
    double p = ref_silu(5) * 5, r = ref_silu(11) * 11;
    EXPECT(glu, SN_F32, LIST(1, 2), p + 2 * r, 3 * p + 4 * r);
    p = ref_gelu(5) * 5, r = ref_gelu(11) * 11;
    EXPECT(gegl, SN_F32, LIST(1, 2), p + 2 * r, 3 * p + 4 * r);
}

static void entries_share_states(void **state) {
    (void)state;
    sn_entry_begin(m, "step");
    sn_scope_push(m, "rnn");
    sn_tensor x = sn_input(m, "x", SN_F32, 2), s = sn_state(m, "sum", SN_F32, 2);
    sn_tensor next = sn_name(sn_add(s, x), "next%d", 1);
    sn_assign(s, next);
    sn_scope_pop(m);
    sn_output("y", next);
    sn_entry_begin(m, "read");
    sn_scope_push(m, "rnn");
    sn_tensor again = sn_state(m, "sum", SN_F32, 2), other = sn_input(m, "x", SN_F32, 7);
    sn_scope_pop(m);
    sn_output("sum", again);
    sn_output("x", other); /* inputs belong to their entry */
    assert_true(sn_module_ok(m, NULL));
    assert_ptr_equal(s, again);
    assert_string_equal(name_of(s), "rnn.sum");
    assert_int_equal(sn_entry_count(m), 2);
    const sn_entry *e = sn_entry_get(m, "step");
    assert_int_equal(e->n_output, 1);
    assert_string_equal(e->assign[0].name, "rnn.sum");
    assert_ptr_equal(e->assign[0].node, next);
    assert_string_equal(e->tap[0].name, "rnn.next1");
    assert_string_equal(sn_entry_get(m, "read")->output[0].name, "sum");
}

static void cache_appends(void **state) {
    (void)state;
    static const float x_data[2] = {5, 6}, old[4] = {1, 2, 0, 0};
    (void)sn_symbol(m, "T", 1, 8);
    sn_dim P = sn_symbol(m, "P", 0, 3); /* 2 in this program's evaluator */
    sn_entry_begin(m, "step");
    sn_tensor x = GIVEN(SN_F32, x_data, 1, 2, 1), y = sn_kv_cache(x, "cache", P, 4);
    value_of(x);
    sn_eval_bind(ev, "cache", old, sizeof old);
    EXPECT(y, SN_F32, LIST(1, 4, 1), 1, 2, 5, 6);
    assert_string_equal(sn_entry_get(m, "step")->assign[0].name, "cache");
}

int main(void) {
#define TEST(f) cmocka_unit_test_setup_teardown(f, start, finish)
    const struct CMUnitTest tests[] = {
        TEST(unary),
        TEST(binary_mixes_numbers_and_dimensions),
        TEST(integers_and_comparisons),
        TEST(constants_and_counters),
        TEST(random_streams_are_independent),
        TEST(reductions),
        TEST(shapes),
        TEST(symbolic_shapes),
        TEST(products),
        TEST(convolution),
        TEST(look_ups),
        TEST(norms),
        TEST(positions),
        TEST(losses),
        TEST(attention),
        TEST(attention_spelled_out),
        TEST(heads_and_masks),
        TEST(layers_name_their_parameters),
        TEST(entries_share_states),
        TEST(cache_appends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
