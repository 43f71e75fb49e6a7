/* gptq.c: GPTQ's Cholesky factor and its rounding, column by column. */
#include "model/quantise/gptq.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- the factor ---- */

/* h = R R^T with R upper triangular, from the last column to the first; R overwrites the upper part.
 * False: h is not positive definite. */
static bool factor_upper(double *h, int64_t k, double *column) {
    for (int64_t j = k - 1; j >= 0; j--) {
        double pivot = h[j * k + j];
        if (!(pivot > 0) || !isfinite(pivot)) return false;
        double root = sqrt(pivot);
        for (int64_t i = 0; i < j; i++) column[i] = h[i * k + j] / root;
#pragma omp parallel for schedule(static) if (j > 256)
        for (int64_t i = 0; i < j; i++) {
            double *row = h + i * k, c = column[i];
            for (int64_t l = i; l < j; l++) row[l] -= c * column[l];
            row[j] = c;
        }
        h[j * k + j] = root;
    }
    return true;
}

/* The inverse of R in place of it, upper triangular, row by row. sum: [threads][k] is not needed: each
 * row has its own memory. */
static bool invert_upper(double *h, int64_t k) {
    double *inverse = malloc(sizeof *inverse * (size_t)(k * k) + 1);
    if (!inverse) return false;
#pragma omp parallel for schedule(dynamic, 8)
    for (int64_t i = 0; i < k; i++) {
        double *x = inverse + i * k;
        memset(x, 0, sizeof *x * (size_t)k);
        x[i] = -1;
        for (int64_t m = i; m < k; m++) {
            const double *r = h + m * k;
            double u = x[m] = -x[m] / r[m];
            for (int64_t j = m + 1; j < k; j++) x[j] += u * r[j];
        }
    }
    memcpy(h, inverse, sizeof *h * (size_t)(k * k));
    free(inverse);
    return true;
}

/* The mean of the diagonal of the columns that inputs use; 1 without any. */
static double mean_of_diagonal(const double *h, int64_t k) {
    double sum = 0;
    int64_t used = 0;
    for (int64_t j = 0; j < k; j++) {
        sum += h[j * k + j];
        used += h[j * k + j] > 0;
    }
    return used ? sum / (double)used : 1;
}

bool gptq_factor(double *h, int64_t k, double damping, sn_error *err) {
    double *copy = malloc(sizeof *copy * (size_t)(k * k) + 1),
           *column = malloc(sizeof *column * (size_t)k + 1);
    bool ok = (copy && column) || sn_fail(err, SN_ERR_MEMORY, "out of memory");
    bool done = false;
    double mean = ok ? mean_of_diagonal(h, k) : 0;
    if (ok && !isfinite(mean))
        ok = sn_fail(err, SN_ERR_RANGE, "the inputs of a product are not finite");
    for (int64_t j = 0; ok && j < k; j++)
        if (!(h[j * k + j] > 0)) h[j * k + j] = mean;
    /* inputs of too few directions need more than usual */
    for (double d = damping; ok && !done && d < 1e3; d *= 10) {
        memcpy(copy, h, sizeof *h * (size_t)(k * k));
        for (int64_t j = 0; j < k; j++) copy[j * k + j] += d * mean;
        done = factor_upper(copy, k, column);
    }
    if (ok && !done)
        ok = sn_fail(err, SN_ERR_RANGE, "the inputs of a product have no usable second moments");
    if (ok) memcpy(h, copy, sizeof *h * (size_t)(k * k));
    free(copy);
    free(column);
    return ok && (invert_upper(h, k) || sn_fail(err, SN_ERR_MEMORY, "out of memory"));
}

/* ---- scales ---- */

typedef struct group {
    float scale;
    int most; /* the number that becomes -8 if no other does */
} group;

static float to_bf16(float x) {
    return sn_bf16_to_f32(sn_f32_to_bf16(x));
}

static float integer_of(float w, float scale) {
    return fmaxf(-8, fminf(7, rintf(w / scale)));
}

/* Sum of the squared errors of a group, where the number at `most` becomes -8. */
static double error_of(const float *w, const float *importance, group g) {
    double sum = 0;
    for (int i = 0; i < GPTQ_GROUP; i++) {
        float q = i == g.most ? -8 : integer_of(w[i], g.scale);
        double off = (double)(w[i] - q * g.scale);
        sum += (double)importance[i] * off * off;
    }
    return sum;
}

/* The scale of the least error: the largest number of either sign is -8 steps, or would be more. */
static group choose_scale(const float *w, const float *importance) {
    int extreme[2] = {0, 0};
    for (int i = 1; i < GPTQ_GROUP; i++) {
        if (w[i] > w[extreme[0]]) extreme[0] = i;
        if (w[i] < w[extreme[1]]) extreme[1] = i;
    }
    group best = {0, extreme[0]};
    double least = INFINITY;
    for (int sign = 0; sign < 2; sign++) {
        float most = w[extreme[sign]];
        if (sign ? most >= 0 : most <= 0) continue;
        for (int step = 0; step < 16; step++) {
            group g = {to_bf16(most * -0.125F * (1.05F - 0.03F * (float)step)), extreme[sign]};
            if (g.scale == 0 || !isfinite(g.scale)) continue;
            double error = error_of(w, importance, g);
            if (error < least) least = error, best = g;
        }
    }
    return best;
}

/* ---- rounding ---- */

/* One row of W, with room for the group's state. */
typedef struct rows {
    float *w;
    int64_t k;
    const float *u;          /* [k, k], rows divided by their diagonal; NULL */
    const float *importance; /* [k] */
} rows;

/* Rounds the numbers of the group at column `from`; later ones make up for the errors. */
static void round_group(const rows *r, float *w, int64_t from) {
    group g = choose_scale(w + from, r->importance + from);
    bool reached = false;
    for (int i = 0; i < GPTQ_GROUP; i++) {
        int64_t j = from + i;
        float q = g.scale == 0 ? 0 : integer_of(w[j], g.scale);
        if (i == g.most && g.scale != 0 && !reached) q = -8;
        reached |= q == -8;
        float value = q * g.scale, off = w[j] - value;
        const float *u = r->u ? r->u + j * r->k : NULL;
        for (int64_t c = j + 1; u && c < r->k; c++) w[c] -= off * u[c];
        w[j] = value;
    }
}

/* The rows of U over their diagonal: what an error of 1 in column j moves into the others. */
static float *make_moves(const double *u, int64_t k) {
    float *out = malloc(sizeof *out * (size_t)(k * k) + 1);
    for (int64_t j = 0; out && j < k; j++)
        for (int64_t c = 0; c < k; c++)
            out[j * k + c] = c < j ? 0 : (float)(u[j * k + c] / u[j * k + j]);
    return out;
}

bool gptq_round(float *w, int64_t n, int64_t k, const double *u, sn_error *err) {
    float *moves = u ? make_moves(u, k) : NULL,
          *importance = malloc(sizeof *importance * (size_t)k + 1);
    bool ok = (importance && (moves || !u)) || sn_fail(err, SN_ERR_MEMORY, "out of memory");
    for (int64_t j = 0; ok && j < k; j++) /* the loss that an error in column j causes */
        importance[j] = u ? (float)(u[(k - 1) * k + k - 1] * u[(k - 1) * k + k - 1] /
                                    (u[j * k + j] * u[j * k + j]))
                          : 1;
    const rows r = {w, k, moves, importance};
#pragma omp parallel for schedule(dynamic, 4) if (ok)
    for (int64_t i = 0; i < (ok ? n : 0); i++)
        for (int64_t from = 0; from < k; from += GPTQ_GROUP) round_group(&r, w + i * k, from);
    free(moves);
    free(importance);
    return ok;
}

void gptq_plain(float *w, int64_t n, int64_t k) {
    for (int64_t at = 0; at < n * k; at += GPTQ_GROUP) {
        float *g = w + at, high = g[0], low = g[0];
        for (int i = 1; i < GPTQ_GROUP; i++) high = fmaxf(high, g[i]), low = fminf(low, g[i]);
        float extreme = high < -low ? low : high;
        float scale = to_bf16((extreme == 0 ? 1 : extreme) * -0.125F);
        for (int i = 0; i < GPTQ_GROUP; i++) g[i] = integer_of(g[i], scale) * scale;
    }
}

/* tr(a h a^T) */
static double energy(const float *a, int64_t n, int64_t k, const double *h) {
    double sum = 0;
#pragma omp parallel for schedule(static, 8) reduction(+ : sum)
    for (int64_t i = 0; i < n; i++) {
        const float *row = a + i * k;
        for (int64_t j = 0; j < k; j++) {
            double dot = 0;
            for (int64_t c = 0; c < k; c++) dot += (double)row[c] * h[j * k + c];
            sum += dot * (double)row[j];
        }
    }
    return sum;
}

double gptq_error(const float *w, const float *off, int64_t n, int64_t k, const double *h) {
    double all = energy(w, n, k, h);
    return all > 0 ? sqrt(fmax(0, energy(off, n, k, h)) / all) : 0;
}
