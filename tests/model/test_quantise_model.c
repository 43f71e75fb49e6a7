/* GPTQ's factor and rounding against their definitions, and what weights "int4" make of the result. */
#include "model/quantise/gptq.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { K = 96, N = 24, ROWS = 160 };

static double gram[K * K];
static float matrix[N * K];

static double pseudo(uint32_t i) {
    i = i * 2654435761u + 12345u;
    i ^= i >> 15;
    i *= 2246822519u;
    return (double)(i >> 8) * 0x1p-23 - 1;
}

/* Correlated inputs, some channels larger, one unused. */
static void make_case(void) {
    static double x[ROWS][K];
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < K; c++) {
            double common = pseudo((uint32_t)(r * 7 + c / 12)),
                   own = pseudo((uint32_t)(r * K + c + 5000));
            x[r][c] = c == 13 ? 0 : (c % 17 == 3 ? 8 : 1) * (common + 0.4 * own);
        }
    for (int i = 0; i < K; i++)
        for (int j = 0; j < K; j++) {
            gram[i * K + j] = 0;
            for (int r = 0; r < ROWS; r++) gram[i * K + j] += x[r][i] * x[r][j];
        }
    for (int i = 0; i < N * K; i++) matrix[i] = (float)pseudo((uint32_t)i + 77777);
    memset(matrix, 0, sizeof *matrix * GPTQ_GROUP); /* a group of zeros, and nothing before it */
}

/* U^T U is the inverse of the damped matrix. */
static void factor(void **state) {
    (void)state;
    static double u[K * K], damped[K * K];
    make_case();
    memcpy(u, gram, sizeof u);
    memcpy(damped, gram, sizeof gram);
    double mean = 0;
    for (int i = 0; i < K; i++) mean += gram[i * K + i] / (K - 1); /* of the used ones */
    damped[13 * K + 13] = mean;
    for (int i = 0; i < K; i++) damped[i * K + i] += 0.01 * mean;
    sn_error err = {0};
    assert_true(gptq_factor(u, K, 0.01, &err));
    for (int i = 0; i < K; i++)
        for (int j = 0; j < K; j++) {
            double sum = 0; /* (damped U^T) U */
            for (int m = 0; m < K; m++) {
                double left = 0;
                for (int c = m; c < K; c++) left += damped[i * K + c] * (m <= c ? u[m * K + c] : 0);
                sum += m <= j ? left * u[m * K + j] : 0;
            }
            assert_true(fabs(sum - (i == j)) < 1e-8);
        }
}

static void singular_and_bad_inputs(void **state) {
    (void)state;
    static double h[K * K];
    sn_error err = {0};
    memset(h, 0, sizeof h); /* nothing came in */
    assert_true(gptq_factor(h, K, 0.01, &err));
    for (int i = 0; i < K * K; i++) h[i] = 1; /* one direction */
    assert_true(gptq_factor(h, K, 1e-6, &err));
    h[3] = h[0] = NAN;
    assert_false(gptq_factor(h, K, 0.01, &err));
    assert_int_equal(err.code, SN_ERR_RANGE);
}

/* Columns in order: round, then correct those that remain by the inverse of what remains of h, which
 * Gaussian elimination shrinks: the derivation of GPTQ, without its factor. Compares the integers. */
static void check_by_elimination(const float *from, const float *rounded, const double *damped) {
    static double inverse[K * K], work[K * 2 * K];
    for (int i = 0; i < K; i++)
        for (int j = 0; j < 2 * K; j++)
            work[i * 2 * K + j] = j < K ? damped[i * K + j] : j - K == i;
    for (int p = 0; p < K; p++) {
        double pivot = work[p * 2 * K + p];
        for (int j = 0; j < 2 * K; j++) work[p * 2 * K + j] /= pivot;
        for (int i = 0; i < K; i++) {
            double f = work[i * 2 * K + p];
            for (int j = 0; i != p && j < 2 * K; j++)
                work[i * 2 * K + j] -= f * work[p * 2 * K + j];
        }
    }
    for (int i = 0; i < K; i++)
        for (int j = 0; j < K; j++) inverse[i * K + j] = work[i * 2 * K + K + j];
    double w[N][K];
    for (int r = 0; r < N; r++)
        for (int c = 0; c < K; c++) w[r][c] = (double)from[r * K + c];
    int other = 0;
    for (int c = 0; c < K; c++) {
        for (int r = 0; r < N; r++) {
            const float *g = rounded + r * K + c / GPTQ_GROUP * GPTQ_GROUP;
            double extreme = 0;
            for (int i = 0; i < GPTQ_GROUP; i++)
                if (fabs((double)g[i]) > fabs(extreme)) extreme = (double)g[i];
            double scale = extreme / -8, got = (double)rounded[r * K + c];
            double q = scale == 0 ? 0 : fmax(-8, fmin(7, rint(w[r][c] / scale)));
            /* the number that must be -8 may be elsewhere; rounding may fall on a tie */
            other += fabs(q * scale - got) > 1e-6;
            double off = (w[r][c] - got) / inverse[c * K + c];
            for (int j = c + 1; j < K; j++) w[r][j] -= off * inverse[c * K + j];
        }
        for (int i = c + 1; i < K; i++)
            for (int j = c + 1; j < K; j++)
                inverse[i * K + j] -= inverse[i * K + c] * inverse[c * K + j] / inverse[c * K + c];
    }
    assert_true(other <= N * K / GPTQ_GROUP); /* at most one a group */
    assert_true(other < N * K / GPTQ_GROUP / 2);
}

static void rounding(void **state) {
    (void)state;
    static double u[K * K], damped[K * K];
    static float done[N * K], again[N * K], plain[N * K], off[N * K];
    sn_error err = {0};
    make_case();
    memcpy(u, gram, sizeof u);
    assert_true(gptq_factor(u, K, 0.01, &err));
    double mean = 0;
    for (int i = 0; i < K; i++) mean += gram[i * K + i] / (K - 1);
    memcpy(damped, gram, sizeof gram);
    damped[13 * K + 13] = mean;
    for (int i = 0; i < K; i++) damped[i * K + i] += 0.01 * mean;
    memcpy(done, matrix, sizeof done);
    assert_true(gptq_round(done, N, K, u, &err));
    /* weights int4 find the same integers and scales */
    memcpy(again, done, sizeof done);
    gptq_plain(again, N, K);
    assert_memory_equal(again, done, sizeof done);
    memcpy(plain, matrix, sizeof plain);
    gptq_plain(plain, N, K);
    for (int i = 0; i < N * K; i++) off[i] = plain[i] - matrix[i];
    double before = gptq_error(matrix, off, N, K, gram);
    for (int i = 0; i < N * K; i++) off[i] = done[i] - matrix[i];
    double after = gptq_error(matrix, off, N, K, gram);
    assert_true(after < 0.7 * before);
    check_by_elimination(matrix, done, damped);
    /* each number by itself: the scales are chosen, so it is not worse than the largest number's */
    memcpy(done, matrix, sizeof done);
    assert_true(gptq_round(done, N, K, NULL, &err));
    memcpy(again, done, sizeof done);
    gptq_plain(again, N, K);
    assert_memory_equal(again, done, sizeof done);
    double squares[2] = {0, 0};
    for (int i = 0; i < N * K; i++) {
        squares[0] += pow((double)(done[i] - matrix[i]), 2);
        squares[1] += pow((double)(plain[i] - matrix[i]), 2);
    }
    assert_true(squares[0] <= squares[1]);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(factor),
                                       cmocka_unit_test(singular_and_bad_inputs),
                                       cmocka_unit_test(rounding)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
