/* oneDNN's primitives behind our functions, against plain loops; skipped in builds
 * without oneDNN. */
#include "codegen/onednn/onednn.h"
#include "tests/support/noise.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static sn_dnnl *open_or_skip(void) {
    sn_error err = {0};
    sn_dnnl *d = sn_dnnl_create(&err);
    if (!d) {
        assert_int_equal(err.code, SN_ERR_TARGET);
        assert_non_null(strstr(err.message, "oneDNN"));
        skip();
    }
    return d;
}

static float *numbers(int64_t n, uint32_t seed) {
    float *p = malloc((size_t)(n + 1) * sizeof *p);
    assert_non_null(p);
    fill_floats(p, n, seed);
    return p;
}

static void check(const char *what, const float *is, const double *want, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        if (!(fabs((double)is[i] - want[i]) <= 2e-5 * (1 + fabs(want[i]))))
            fail_msg("%s: element %lld is %g, not %g", what, (long long)i, (double)is[i], want[i]);
}

static void product_reference(const sn_matmul *s, const float *a, const float *b, const float *bias,
                              double *c) {
    int64_t outer = s->n_batch > 0 ? s->batch[0] : 1, inner = s->n_batch > 1 ? s->batch[1] : 1;
    for (int64_t x = 0; x < outer; x++)
        for (int64_t y = 0; y < inner; y++)
            for (int64_t i = 0; i < s->m; i++)
                for (int64_t j = 0; j < s->n; j++) {
                    double sum = bias ? (double)bias[j] : 0;
                    for (int64_t k = 0; k < s->k; k++)
                        sum += (double)a[x * s->a_batch[0] + y * s->a_batch[1] + i * s->a_row +
                                         k * s->a_col] *
                               (double)b[x * s->b_batch[0] + y * s->b_batch[1] + k * s->b_row +
                                         j * s->b_col];
                    c[x * s->c_batch[0] + y * s->c_batch[1] + i * s->c_row + j * s->c_col] = sum;
                }
}

static void products(void **state) {
    (void)state;
    sn_dnnl *d = open_or_skip();
    enum { M = 5, N = 7, K = 9 };
    const sn_matmul cases[] = {
        {.m = M,
         .n = N,
         .k = K,
         .a_row = K,
         .a_col = 1,
         .b_row = N,
         .b_col = 1,
         .c_row = N,
         .c_col = 1},
        {.m = M,
         .n = N,
         .k = K,
         .a_row = 1,
         .a_col = M,
         .b_row = 1,
         .b_col = K,
         .c_row = N,
         .c_col = 1,
         .bias = 1},
        {.m = M,
         .n = N,
         .k = K,
         .a_row = K,
         .a_col = 1,
         .b_row = N,
         .b_col = 1,
         .c_row = N,
         .c_col = 1,
         .packed = 1},
        {.n_batch = 2,
         .batch = {2, 3},
         .m = M,
         .n = N,
         .k = K,
         .a_batch = {3 * M * K, M * K},
         .b_batch = {K * N, 0},
         .c_batch = {3 * M * N, M * N},
         .a_row = K,
         .a_col = 1,
         .b_row = N,
         .b_col = 1,
         .c_row = N,
         .c_col = 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const sn_matmul *s = &cases[i];
        float *a = numbers(6 * M * K, 1), *b = numbers(6 * K * N, 2), *bias = numbers(N, 3);
        float *c = numbers(6 * M * N, 4);
        double want[6 * M * N];
        sn_error err = {0};
        product_reference(s, a, b, s->bias ? bias : NULL, want);
        void *weights = b;
        if (s->packed) {
            int64_t bytes = sn_dnnl_packed_bytes(d, s, &err);
            assert_true(bytes >= (int64_t)(K * N * sizeof *b));
            weights = aligned_alloc(64, ((size_t)bytes + 63) / 64 * 64);
            assert_non_null(weights);
            assert_true(sn_dnnl_pack(d, s, b, weights, &err));
        }
        for (int again = 0; again < 2; again++) { /* the second time from the cache */
            memset(c, 0, 6 * M * N * sizeof *c);
            if (!sn_dnnl_run_matmul(d, s, a, weights, bias, c, &err)) fail_msg("%s", err.message);
            check("product", c, want, (s->n_batch ? 6 : 1) * M * N);
        }
        if (weights != b) free(weights);
        free(a);
        free(b);
        free(c);
        free(bias);
    }
    sn_dnnl_destroy(d);
}

/* Products of 8-bit integers, small enough for any instruction set: without VNNI the primitive adds pairs
 * of products in 16 bits, which saturates. */
static void integers(void **state) {
    (void)state;
    sn_dnnl *d = open_or_skip();
    enum { ROWS = 5, COLUMNS = 37, TERMS = 70 };
    int8_t a[ROWS * TERMS], b[COLUMNS * TERMS];
    float c[ROWS * COLUMNS];
    sn_error err = {0};
    for (int i = 0; i < ROWS * TERMS; i++) a[i] = (int8_t)(i * 31 % 127 - 63);
    for (int i = 0; i < COLUMNS * TERMS; i++) b[i] = (int8_t)(i * 57 % 127 - 63);
    sn_matmul s = {.m = ROWS,
                   .n = COLUMNS,
                   .k = TERMS,
                   .a_row = TERMS,
                   .a_col = 1,
                   .b_row = 1,
                   .b_col = TERMS,
                   .c_row = COLUMNS,
                   .c_col = 1,
                   .packed = 1,
                   .factors = SN_I8};
    int64_t bytes = sn_dnnl_packed_bytes(d, &s, &err);
    assert_true(bytes >= COLUMNS * TERMS);
    void *weights = aligned_alloc(64, ((size_t)bytes + 63) / 64 * 64);
    assert_non_null(weights);
    assert_true(sn_dnnl_pack(d, &s, b, weights, &err));
    if (!sn_dnnl_run_matmul(d, &s, a, weights, NULL, c, &err)) fail_msg("%s", err.message);
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < COLUMNS; j++) {
            int sum = 0;
            for (int k = 0; k < TERMS; k++) sum += a[i * TERMS + k] * b[j * TERMS + k];
            assert_true(c[i * COLUMNS + j] == (float)sum);
        }
    free(weights);
    sn_dnnl_destroy(d);
}

static void rows(void **state) {
    (void)state;
    sn_dnnl *d = open_or_skip();
    enum { ROWS = 3, N = 19 };
    float *x = numbers(ROWS * N, 1), *gain = numbers(N, 2), *bias = numbers(N, 3);
    float *y = numbers(ROWS * N, 4);
    double soft[ROWS * N], norm[ROWS * N];
    for (int i = 0; i < ROWS; i++) {
        double sum = 0, mean = 0, var = 0;
        const float *r = x + i * N;
        for (int j = 0; j < N; j++) {
            sum += exp((double)r[j]);
            mean += (double)r[j] / N;
        }
        for (int j = 0; j < N; j++) var += ((double)r[j] - mean) * ((double)r[j] - mean) / N;
        for (int j = 0; j < N; j++) {
            soft[i * N + j] = exp((double)r[j]) / sum;
            norm[i * N + j] =
                ((double)r[j] - mean) / sqrt(var + 1e-5) * (double)gain[j] + (double)bias[j];
        }
    }
    sn_error err = {0};
    if (!sn_dnnl_run_softmax(d, ROWS, N, x, y, &err)) fail_msg("%s", err.message);
    check("softmax", y, soft, ROWS * N);
    if (!sn_dnnl_run_layer_norm(d, ROWS, N, 1e-5f, x, gain, bias, y, &err))
        fail_msg("%s", err.message);
    check("layer norm", y, norm, ROWS * N);
    free(x);
    free(y);
    free(gain);
    free(bias);
    sn_dnnl_destroy(d);
}

static void convolutions(void **state) {
    (void)state;
    sn_dnnl *d = open_or_skip();
    const sn_dnnl_conv s = {.batch = 2,
                            .in = 3,
                            .out = 4,
                            .height = 9,
                            .width = 8,
                            .kernel_h = 3,
                            .kernel_w = 2,
                            .stride_h = 2,
                            .stride_w = 1,
                            .dilate_h = 2,
                            .dilate_w = 1,
                            .pad_top = 1,
                            .pad_left = 1,
                            .pad_bottom = 2,
                            .pad_right = 0,
                            .bias = 1};
    int64_t oh =
        sn_dnnl_conv_out(s.height, s.kernel_h, s.stride_h, s.dilate_h, s.pad_top + s.pad_bottom);
    int64_t ow =
        sn_dnnl_conv_out(s.width, s.kernel_w, s.stride_w, s.dilate_w, s.pad_left + s.pad_right);
    assert_int_equal(oh, 4);
    assert_int_equal(ow, 8);
    float *x = numbers(s.batch * s.in * s.height * s.width, 1), *bias = numbers(s.out, 3);
    float *w = numbers(s.out * s.in * s.kernel_h * s.kernel_w, 2),
          *y = numbers(s.batch * s.out * oh * ow, 4);
    double *want = calloc((size_t)(s.batch * s.out * oh * ow), sizeof *want), *to = want;
    assert_non_null(want);
    for (int64_t b = 0; b < s.batch; b++)
        for (int64_t o = 0; o < s.out; o++)
            for (int64_t i = 0; i < oh; i++)
                for (int64_t j = 0; j < ow; j++, to++) {
                    *to = (double)bias[o];
                    for (int64_t c = 0; c < s.in; c++)
                        for (int64_t ki = 0; ki < s.kernel_h; ki++)
                            for (int64_t kj = 0; kj < s.kernel_w; kj++) {
                                int64_t r = i * s.stride_h + ki * s.dilate_h - s.pad_top;
                                int64_t q = j * s.stride_w + kj * s.dilate_w - s.pad_left;
                                if (r < 0 || r >= s.height || q < 0 || q >= s.width) continue;
                                *to +=
                                    (double)x[((b * s.in + c) * s.height + r) * s.width + q] *
                                    (double)w[((o * s.in + c) * s.kernel_h + ki) * s.kernel_w + kj];
                            }
                }
    sn_error err = {0};
    if (!sn_dnnl_run_conv(d, &s, x, w, bias, y, &err)) fail_msg("%s", err.message);
    check("convolution", y, want, s.batch * s.out * oh * ow);
    free(x);
    free(y);
    free(w);
    free(bias);
    free(want);
    sn_dnnl_destroy(d);
}

/* What oneDNN refuses is an error message, and stays one the second time. */
static void refusal(void **state) {
    (void)state;
    sn_dnnl *d = open_or_skip();
    sn_matmul s = {.m = -1,
                   .n = 2,
                   .k = 3,
                   .a_row = 3,
                   .a_col = 1,
                   .b_row = 2,
                   .b_col = 1,
                   .c_row = 2,
                   .c_col = 1};
    float x[16] = {0};
    for (int again = 0; again < 2; again++) {
        sn_error err = {0};
        assert_false(sn_dnnl_run_matmul(d, &s, x, x, NULL, x, &err));
        assert_int_equal(err.code, SN_ERR_TARGET);
        assert_int_equal(sn_dnnl_packed_bytes(d, &s, NULL), -1);
    }
    sn_dnnl_destroy(d);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(products), cmocka_unit_test(integers),
                                       cmocka_unit_test(rows), cmocka_unit_test(convolutions),
                                       cmocka_unit_test(refusal)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
